"""Strict JSON: what is malformed, unknown, of another type or too large is refused, never converted."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

MOST_COUNT = 10**18 - 1
"""The largest count: evidence tables hold 18 digits, and databases integers of 64 bits."""
MOST_READABLE = 20_000
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_DECIMAL = re.compile(r"[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands twice")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def parse_json(data: bytes) -> Any:
    """Parse JSON: UTF-8 throughout, no key twice, no NaN or infinity.

    Raises:
        ValueError: The bytes are not such a document.
    """
    try:
        text = data.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant)
        if _SURROGATE.search(data):
            # Half of a pair: no file and no other reader takes it.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value


def plain_unicode(text: str) -> str:
    """Return a text that UTF-8 can hold: what Python made of foreign bytes is spelled out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def readable(text: str) -> str:
    """Return a text of at most `MOST_READABLE` characters that a terminal and UTF-8 take; the middle goes first.

    What is not printable is spelled out but for line breaks and tabs: a side's words may hold a terminal's commands.
    """
    if len(text) > MOST_READABLE:
        half = MOST_READABLE // 2
        text = f"{text[:half]} [... {len(text) - 2 * half} characters ...] {text[-half:]}"
    return "".join(one if one.isprintable() or one in "\n\t" else _spelled(one) for one in text)


def _spelled(one: str) -> str:
    return one.encode("unicode_escape").decode("ascii")


def first_few(texts: Sequence[str], most: int) -> list[str]:
    """Return the first of some texts; of more than so many the rest is counted."""
    return [*texts[:most], *([f"and {len(texts) - most} more"] if len(texts) > most else [])]


def dump_json(value: Any) -> bytes:
    """Return the bytes of a document: sorted keys, two-space indent, ASCII, final newline, no NaN."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=True, allow_nan=False) + "\n").encode("ascii")


def compact_json(value: Any) -> bytes:
    """Return the bytes of a value on one line: sorted keys, no blanks, ASCII, no NaN, no newline."""
    text = json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=True, allow_nan=False)
    return text.encode("ascii")


class Fields:
    """The fields of one JSON object, taken one by one; `done` refuses what was not taken.

    Args:
        value: The object.
        where: What to call it in an error.

    Raises:
        ValueError: It is no object. All methods raise it for a field that is missing or of another type.
    """

    def __init__(self, value: Any, where: str) -> None:
        if type(value) is not dict:
            raise ValueError(f"{where}: not an object")
        self._rest: dict[str, Any] = dict(value)
        self._where = where

    def _take(self, name: str, kind: type, what: str) -> Any:
        if name not in self._rest:
            raise ValueError(f"{self._where}: {name} is missing")
        value = self._rest.pop(name)
        # Compared by identity of type: a bool is no integer here.
        if type(value) is not kind:
            raise ValueError(f"{self._where}: {name} is not {what}: {value!r:.100}")
        return value

    def has(self, name: str) -> bool:
        """Return whether a field is there and not taken yet."""
        return name in self._rest

    def optional(self, name: str, kind: type) -> Any:
        """Take a value of a type, or None where the field is null."""
        if self._rest.get(name, ...) is None:
            return self._rest.pop(name)
        return self._take(name, kind, f"a {kind.__name__}, or null")

    def text(self, name: str) -> str:
        """Take a text."""
        value: str = self._take(name, str, "a text")
        return value

    def flag(self, name: str) -> bool:
        """Take true or false."""
        value: bool = self._take(name, bool, "true or false")
        return value

    def count(self, name: str, *, minimum: int = 0, maximum: int = MOST_COUNT) -> int:
        """Take an integer that is not below a minimum, nor above a maximum."""
        value: int = self._take(name, int, "an integer")
        if value < minimum:
            raise ValueError(f"{self._where}: {name} is {value}, below {minimum}")
        if value > maximum:
            raise ValueError(f"{self._where}: {name} is above {maximum}")
        return value

    def optional_count(self, name: str) -> int | None:
        """Take an integer that is not negative, or None where the field is null."""
        return self.optional(name, int) if self._rest.get(name, ...) is None else self.count(name)

    def number(self, name: str) -> float:
        """Take a finite float."""
        value: float = self._take(name, float, "a floating-point number")
        if not math.isfinite(value):
            raise ValueError(f"{self._where}: {name} is not finite")
        return value

    def decimal_text(self, name: str) -> str:
        """Take a decimal string that is not negative, as it is."""
        text = self.text(name)
        if not _DECIMAL.fullmatch(text) or not math.isfinite(float(text)):
            raise ValueError(f"{self._where}: {name} is not a decimal number: {text!r:.100}")
        return text

    def decimal(self, name: str) -> float:
        """Take the value of a decimal string that is not negative."""
        return float(self.decimal_text(name))

    def items(self, name: str) -> list[Any]:
        """Take a list."""
        value: list[Any] = self._take(name, list, "a list")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Take a list of texts."""
        value = self.items(name)
        if any(type(item) is not str for item in value):
            raise ValueError(f"{self._where}: {name} is not a list of texts")
        return tuple(value)

    def table(self, name: str) -> dict[str, Any]:
        """Take an object as it is."""
        value: dict[str, Any] = self._take(name, dict, "an object")
        return value

    def text_table(self, name: str) -> dict[str, str]:
        """Take an object whose values are texts."""
        value = self.table(name)
        if any(type(item) is not str for item in value.values()):
            raise ValueError(f"{self._where}: {name} is not a table of texts")
        return value

    def fields(self, name: str) -> Fields:
        """Take an object, to take its fields."""
        return Fields(self.table(name), f"{self._where}.{name}")

    def skip(self, names: Iterable[str]) -> None:
        """Take fields that are known and of no use here."""
        for name in names:
            if name not in self._rest:
                raise ValueError(f"{self._where}: {name} is missing")
            del self._rest[name]

    def done(self) -> None:
        """Refuse fields that nobody took."""
        if self._rest:
            raise ValueError(f"{self._where}: unknown field {min(self._rest)!r}")
