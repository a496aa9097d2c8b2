"""JSON read strictly: UTF-8, no duplicate key, neither NaN nor infinity; typed access names the place of a fault."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar

from acceptance.formats import Column, Kind, parse_field

_T = TypeVar("_T")

_TEXT = Column(name="text", kind=Kind.TEXT, meaning="a text that an evidence table can hold", optional=True)
_NUMBER = Column(name="number", kind=Kind.DECIMAL, meaning="a number as an evidence table writes it")
# Written out for the same reason as in formats.py.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_HEX_64 = re.compile(r"[0-9a-f]{64}")


class DocumentError(Exception):
    """A document is not what it should be.

    Args:
        place: ``file:line`` or ``file: path.to.the.field``.
        reason: Why.
    """

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for key, item in pairs:
        if key in value:
            raise ValueError(f"duplicate key {key!a}")
        value[key] = item
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is out of range")
    return value


def load(data: bytes, file: str) -> Any:
    """Parse bytes as JSON.

    Args:
        data: The file's bytes.
        file: The file's name, for messages.

    Raises:
        DocumentError: They are not such a document.
    """
    try:
        text = data.decode("utf-8")
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DocumentError(f"{file}:{line}", f"byte 0x{data[error.start]:02x} is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise DocumentError(f"{file}:{error.lineno}:{error.colno}", error.msg) from error
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"{file}:1", f"not strict JSON: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One value of a document with its place."""

    file: str
    path: str
    value: Any

    def fail(self, reason: str) -> DocumentError:
        """Return the error that names this place."""
        return DocumentError(f"{self.file}: {self.path or 'document'}", reason)

    def _child(self, name: str, value: Any) -> Node:
        return Node(file=self.file, path=f"{self.path}.{name}" if self.path else name, value=value)

    def fields(self, names: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Node]:
        """Return the members of an object that has exactly these names, and others that it may have.

        Raises:
            DocumentError: It is no object, lacks a name or has another one.
        """
        if not isinstance(self.value, dict):
            raise self.fail("not an object")
        for name in sorted(set(self.value) - {*names, *optional}):
            raise self.fail(f"unknown field {name!a}")
        for name in names:
            if name not in self.value:
                raise self.fail(f"the field {name!r} is missing")
        there = [*names, *(name for name in optional if name in self.value)]
        return {name: self._child(name, self.value[name]) for name in there}

    def members(self) -> dict[str, Node]:
        """Return the members of an object with free names."""
        if not isinstance(self.value, dict):
            raise self.fail("not an object")
        return {name: self._child(name, item) for name, item in self.value.items()}

    def items(self, build: Callable[[Node], _T]) -> tuple[_T, ...]:
        """Return the items of an array, each built from its node."""
        if not isinstance(self.value, list):
            raise self.fail("not an array")
        return tuple(
            build(Node(file=self.file, path=f"{self.path}[{index}]", value=item))
            for index, item in enumerate(self.value)
        )

    def refuse_duplicates(self, names: Iterable[str]) -> None:
        """Refuse names that are listed twice.

        Raises:
            DocumentError: One is.
        """
        for name, count in sorted(Counter(names).items()):
            if count > 1:
                raise self.fail(f"{name!a} is listed {count} times")

    def text(self, *, optional: bool = False, choices: Sequence[str] = ()) -> str:
        """Return a text that an evidence table could hold; empty only if `optional`."""
        if not isinstance(self.value, str):
            raise self.fail("not a text")
        if choices and self.value not in choices:
            raise self.fail(f"{self.value!a} is none of {', '.join(choices)}")
        if not self.value and not optional:
            raise self.fail("empty")
        try:
            parse_field(_TEXT, self.value)
        except ValueError as error:
            raise self.fail(str(error)) from error
        return self.value

    def words(self) -> str:
        """Return a text for people, which no evidence table holds; it may be empty."""
        if not isinstance(self.value, str):
            raise self.fail("not a text")
        if _CONTROL.search(self.value):
            raise self.fail("a control character")
        return self.value

    def name(self) -> str:
        """Return a text that can be part of a path: without a slash, not beginning with a dot."""
        text = self.text()
        if "/" in text or text.startswith("."):
            raise self.fail(f"{text!a} cannot be a name: it has a slash or begins with a dot")
        return text

    def integer(self, minimum: int, maximum: int = 10**15) -> int:
        """Return an integer within bounds; true and false are none."""
        if type(self.value) is not int:
            raise self.fail("not an integer")
        if not (minimum <= self.value <= maximum):
            raise self.fail(f"not between {minimum} and {maximum}")
        return self.value

    def flag(self) -> bool:
        """Return true or false."""
        if type(self.value) is not bool:
            raise self.fail("neither true nor false")
        return self.value

    def decimal(self, low: str, high: str, *, low_included: bool = False) -> Decimal:
        """Return a number written as a decimal string, within bounds; the upper bound is included."""
        text = self.text()
        try:
            parse_field(_NUMBER, text)
        except ValueError as error:
            raise self.fail(str(error)) from error
        value = Decimal(text)
        above = value >= Decimal(low) if low_included else value > Decimal(low)
        if not (above and value <= Decimal(high)):
            raise self.fail(f"{text} is not {'at least' if low_included else 'above'} {low} and at most {high}")
        return value

    def digest(self) -> str:
        """Return a SHA-256 in lower-case hex."""
        text = self.text()
        if _HEX_64.fullmatch(text) is None:
            raise self.fail("not 64 lower-case hex digits")
        return text
