"""Where each key of a TOML text stands, so that an error about meaning can point at a line and a column.

The text must already have been accepted by ``tomllib``: this scanner skips values and trusts the syntax.
"""

from __future__ import annotations

import bisect
import re
import tomllib
from dataclasses import dataclass
from typing import TypeAlias

KeyPath: TypeAlias = tuple[str | int, ...]
"""A place in the parsed document: keys, and indices into arrays and arrays of tables."""

_BLANK = re.compile(r"[ \t]*")
_FILLER = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BASIC_KEY = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_LITERAL_KEY = re.compile(r"'[^'\n]*'")
_SCALAR = re.compile(r"[^,\]}#\n]*")
# The closing quotes of a multi-line string may be preceded by up to two quotes that belong to it.
_STRINGS = (
    re.compile(r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})', re.DOTALL),
    re.compile(r"'''.*?'''(?:'{0,2})", re.DOTALL),
    _BASIC_KEY,
    _LITERAL_KEY,
)


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a text; both counters start at one."""

    line: int
    column: int


class _Scanner:
    """Walks once over the text and notes the offset of each key path."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.offsets: dict[KeyPath, int] = {}
        self._num_tables: dict[KeyPath, int] = {}

    def scan(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        while self._skip(_FILLER) < len(self.text):
            if self.text.startswith("[", self.at):
                table = self._header()
            else:
                self._entry(table)
        return self.offsets

    def _skip(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self.text, self.at)
        if match is not None:
            self.at = match.end()
        return self.at

    def _note(self, path: KeyPath, offset: int) -> None:
        self.offsets.setdefault(path, offset)

    def _header(self) -> KeyPath:
        start = self.at
        repeated = self.text.startswith("[[", start)
        self.at += 2 if repeated else 1
        parts = self._dotted_key()
        self._skip(_BLANK)
        self.at += 2 if repeated else 1
        path: KeyPath = ()
        for number, (part, _) in enumerate(parts, start=1):
            path = (*path, part)
            self._note(path, start)
            if repeated and number == len(parts):
                self._num_tables[path] = self._num_tables.get(path, 0) + 1
            if path in self._num_tables:
                path = (*path, self._num_tables[path] - 1)
                self._note(path, start)
        return path

    def _dotted_key(self) -> list[tuple[str, int]]:
        parts: list[tuple[str, int]] = []
        while True:
            start = self._skip(_BLANK)
            parts.append((self._key(), start))
            self._skip(_BLANK)
            if not self.text.startswith(".", self.at):
                return parts
            self.at += 1

    def _key(self) -> str:
        start = self.at
        for pattern in (_BARE_KEY, _BASIC_KEY, _LITERAL_KEY):
            if self._skip(pattern) > start:
                break
        else:
            raise ValueError(f"no key at offset {start}")
        written = self.text[start : self.at]
        return str(tomllib.loads(f"key = {written}")["key"]) if written[0] in "\"'" else written

    def _entry(self, table: KeyPath) -> None:
        path = table
        for part, offset in self._dotted_key():
            path = (*path, part)
            self._note(path, offset)
        self.at += 1  # the equals sign
        self._skip(_BLANK)
        self._value(path)

    def _value(self, path: KeyPath) -> None:
        if self.text.startswith("[", self.at):
            self._array(path)
        elif self.text.startswith("{", self.at):
            self._inline_table(path)
        else:
            start = self.at
            for pattern in (*_STRINGS, _SCALAR):
                if self._skip(pattern) > start:
                    return

    def _array(self, path: KeyPath) -> None:
        self.at += 1
        index = 0
        while self._skip(_FILLER) < len(self.text) and self.text[self.at] != "]":
            if self.text[self.at] == ",":
                self.at += 1
                continue
            self._note((*path, index), self.at)
            self._value((*path, index))
            index += 1
        self.at += 1

    def _inline_table(self, path: KeyPath) -> None:
        self.at += 1
        while self._skip(_FILLER) < len(self.text) and self.text[self.at] != "}":
            if self.text[self.at] == ",":
                self.at += 1
                continue
            self._entry(path)
        self.at += 1


@dataclass(frozen=True, slots=True)
class Places:
    """The places of all keys of one text."""

    offsets: dict[KeyPath, int]
    line_starts: tuple[int, ...]

    def find(self, path: KeyPath) -> Position:
        """Return the place of a key, or of the closest table around it; the first line if there is none."""
        length = self.num_found(path)
        if not length:
            return Position(1, 1)
        offset = self.offsets[path[:length]]
        line = bisect.bisect_right(self.line_starts, offset)
        return Position(line, offset - self.line_starts[line - 1] + 1)

    def num_found(self, path: KeyPath) -> int:
        """Return how many parts of a path, from its first on, lead to a key or table of the text."""
        return next((length for length in range(len(path), 0, -1) if path[:length] in self.offsets), 0)


def locate(text: str) -> Places:
    """Find every key of a valid TOML text.

    Args:
        text: A document that ``tomllib`` accepts.
    """
    line_starts = (0, *(match.end() for match in re.finditer("\n", text)))
    return Places(_Scanner(text).scan(), line_starts)
