"""Strict JSON: UTF-8, no key twice, no NaN, no infinity, not nested without end; and typed access that names the place.

A reader that takes the last of two equal keys, or a number that overflowed, can be shown something else than another
reader sees. All of that is refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .findings import EvidenceError

MAX_DEPTH = 64
_DIGEST = re.compile(r"[0-9a-f]{64}")


def parse(data: bytes, where: str) -> Any:
    """Parse a JSON document.

    Args:
        data: Its bytes.
        where: The file, relative to the home, for messages.

    Raises:
        EvidenceError: It is not strict JSON.
    """
    try:
        value = _DECODER.decode(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise EvidenceError(where, f"not a valid JSON document: {error}") from error
    # Fewer brackets than levels that are allowed: nothing to measure, which is true of most documents.
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH and not _is_shallow(value):
        raise EvidenceError(where, f"not a valid JSON document: nested more than {MAX_DEPTH} deep")
    return value


def read(data: bytes, where: str) -> Node:
    """Parse a JSON document whose outermost value is an object; see `parse`."""
    node = Node(parse(data, where), where)
    node.as_fields()
    return node


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"duplicate key {twice!r}")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant, parse_float=_finite)


def _is_shallow(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            item
            for one in level
            if isinstance(one, dict | list)
            for item in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return True
    return False


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a document, with its place. What is not of the kind that is asked for is evidence that is not right.

    Attributes:
        value: The parsed value.
        where: The file, relative to the home, with ``:line`` where there is one.
        key: Where in the document: ``sides[0].path``; empty for the whole.
    """

    value: Any
    where: str
    key: str = ""

    def wrong(self, what: str) -> EvidenceError:
        """Return the error for this place, to be raised."""
        return EvidenceError(self.where, f"{self.key}: {what}" if self.key else what)

    # --- parts --------------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Node:
        """Return a field that must be there."""
        fields = self.as_fields()
        if name not in fields:
            raise self.wrong(f"has no field {name!r}")
        return Node(fields[name], self.where, f"{self.key}.{name}" if self.key else name)

    def get(self, name: str) -> Node | None:
        """Return a field; None where it is absent or null."""
        if self.as_fields().get(name) is None:
            return None
        return self[name]

    def has(self, name: str) -> bool:
        """Return whether there is such a field, null or not."""
        return name in self.as_fields()

    def items(self) -> Iterator[Node]:
        """Yield the items of a list."""
        if not isinstance(self.value, list):
            raise self.wrong(f"is {_kind(self.value)} where a list should be")
        for index, item in enumerate(self.value):
            yield Node(item, self.where, f"{self.key}[{index}]")

    def fields(self) -> Iterator[tuple[str, Node]]:
        """Yield the names and values of an object."""
        for name in self.as_fields():
            yield name, self[name]

    def only(self, names: Iterable[str]) -> None:
        """Refuse fields that have another name."""
        unknown = sorted(set(self.as_fields()) - set(names))
        if unknown:
            raise self.wrong(f"has an unknown field {unknown[0]!r}")

    def format(self, *known: str) -> str:
        """Return the name of the document's format, which must be one of those that are known here."""
        found = self["format"].as_text()
        if found not in known:
            raise self.wrong(
                f"has the format {found!r}, which this verifier does not know: use the release that made it"
            )
        return found

    # --- the value itself ---------------------------------------------------------------------------------------------

    def as_fields(self) -> Mapping[str, Any]:
        """Return the value, which must be an object."""
        if not isinstance(self.value, dict):
            raise self.wrong(f"is {_kind(self.value)} where an object should be")
        return self.value

    def as_text(self) -> str:
        """Return the value, which must be a text."""
        if not isinstance(self.value, str):
            raise self.wrong(f"is {_kind(self.value)} where a text should be")
        return self.value

    def as_word(self, allowed: Iterable[str]) -> str:
        """Return the value, which must be one of some texts."""
        text = self.as_text()
        words = tuple(allowed)
        if text not in words:
            raise self.wrong(f"is {text!r} where one of {', '.join(words)} should be")
        return text

    def as_digest(self) -> str:
        """Return the value, which must be a SHA-256 in lower-case hex."""
        text = self.as_text()
        if _DIGEST.fullmatch(text) is None:
            raise self.wrong(f"is {text[:80]!r} where a SHA-256 should be")
        return text

    def as_whole(self, least: int = 0) -> int:
        """Return the value, which must be a whole number of at least so much."""
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise self.wrong(f"is {_kind(self.value)} where a whole number should be")
        if self.value < least:
            raise self.wrong(f"is {self.value} where at least {least} should be")
        return self.value

    def as_number(self) -> float:
        """Return the value, which must be a number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self.wrong(f"is {_kind(self.value)} where a number should be")
        try:
            return float(self.value)
        except OverflowError:
            raise self.wrong("is a number beyond all measure") from None

    def as_flag(self) -> bool:
        """Return the value, which must be true or false."""
        if not isinstance(self.value, bool):
            raise self.wrong(f"is {_kind(self.value)} where true or false should be")
        return self.value

    def as_texts(self) -> tuple[str, ...]:
        """Return the value, which must be a list of texts."""
        return tuple(item.as_text() for item in self.items())

    def must_be(self, expected: Any, said_by: str) -> None:
        """Refuse a value that differs from what something else says.

        Args:
            expected: The right value.
            said_by: What says so, for the message: ``the ledger's line 3``.
        """
        # Of the same type: in Python true equals 1 and 1.0.
        if type(self.value) is not type(expected) or self.value != expected:
            raise self.wrong(f"is {_show(self.value)}, {said_by} says {_show(expected)}")


_KINDS = {dict: "an object", list: "a list", str: "a text", bool: "true or false", int: "a whole number"}


def _kind(value: Any) -> str:
    return "null" if value is None else _KINDS.get(type(value), "a number")


def _show(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= 200 else f"{text[:200]}..."
