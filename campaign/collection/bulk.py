"""Many rows at a time, in and out of the cache, through the driver's own cursor: a campaign may have millions."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from sqlalchemy import Table
from sqlalchemy.orm import Session

from acceptance import formats
from acceptance.formats import Kind, Row

Key: TypeAlias = tuple[str, int]
"""Slot and number of an attempt."""


def cursor_of(session: Session) -> sqlite3.Cursor:
    """Return a cursor in the session's transaction."""
    return cast("sqlite3.Cursor", session.connection().connection.cursor())


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


# --- in ---------------------------------------------------------------------------------------------------------------


def _decimal(text: str) -> float | None:
    return float(text) if text else None


def _count(text: str) -> int | None:
    return int(text) if text else None


_CONVERT: Mapping[Kind, Callable[[str], Any] | None] = {
    Kind.TEXT: None,
    Kind.COUNT: int,
    Kind.DECIMAL: float,
    Kind.FLAG: "true".__eq__,
}
_CONVERT_OPTIONAL: Mapping[Kind, Callable[[str], Any] | None] = {
    **_CONVERT,
    Kind.COUNT: _count,
    Kind.DECIMAL: _decimal,
}


def _convert_of(column: formats.Column) -> Callable[[str], Any] | None:
    return (_CONVERT_OPTIONAL if column.optional else _CONVERT)[column.kind]


def flat_values(table: formats.Table, key: Key, rows: Sequence[Row]) -> list[Any]:
    """Return what is stored of the rows of one attempt, field by field in the order of the cache's columns.

    Args:
        table: The evidence table.
        key: The attempt.
        rows: Its rows, which were found right.
    """
    lines = formats.texts(rows)
    if not lines:
        return []
    num_rows, width = len(lines), len(table.columns) + _NUM_BESIDE
    flat: list[Any] = [None] * (num_rows * width)
    flat[0::width] = [key[0]] * num_rows
    flat[1::width] = [key[1]] * num_rows
    flat[2::width] = range(2, num_rows + 2) if isinstance(rows, formats.Rows) else [row.line for row in rows]
    for place, (column, fields) in enumerate(zip(table.columns, formats.columns_of(table, lines), strict=True), 3):
        flat[place::width] = _converted(fields, _convert_of(column))
    flat[width - 1 :: width] = lines
    return flat


def _converted(texts: list[str], convert: Callable[[str], Any] | None) -> list[Any]:
    """Return the values of a column; most columns of an attempt say the same in each row."""
    if convert is None:
        return texts
    if texts.count(texts[0]) == len(texts):
        return [convert(texts[0])] * len(texts)
    return list(map(convert, texts))


_NUM_BESIDE = 4
"""Columns of the cache beside the table's own: slot, attempt and line before them, the text after them."""
_ROWS_AT_ONCE = 250
"""Of one statement: to begin one costs as much as all checks of a row do.
SQLite takes 32,766 values."""


def _insertion(table: Table, num_rows: int = 1) -> str:
    places = f"({', '.join('?' for _ in table.columns)})"
    names = _quoted(column.name for column in table.columns)
    return f"INSERT INTO {_quoted([table.name])} ({names}) VALUES {', '.join([places] * num_rows)}"  # noqa: S608 - names of our own


def insert(session: Session, table: Table, values: Sequence[tuple[Any, ...]]) -> None:
    """Store some thousand rows.

    Args:
        session: The cache.
        table: The cache's table.
        values: Each row, in the order of the table's columns.
    """
    if values:
        session.connection().exec_driver_sql(_insertion(table), list(values))


class Insertion:
    """Stores millions of rows in one table, many with each statement.

    The indexes of a table without rows are made at the end: to sort once takes less than to keep order. All of it is
    one transaction with the rows.
    """

    def __init__(self, session: Session, table: Table) -> None:
        """Prepare for rows of one of the cache's tables."""
        self._session = session
        self._table = table
        self._width = len(table.columns)
        self._many = _insertion(table, _ROWS_AT_ONCE)
        self._waiting: list[Any] = []
        self._cursor: sqlite3.Cursor | None = None
        self._unindexed = False

    def add(self, flat: Sequence[Any]) -> None:
        """Store rows, or keep them until there are enough.

        Args:
            flat: As `flat_values` returns them.
        """
        self._waiting += flat
        step, begin = self._width * _ROWS_AT_ONCE, 0
        if len(self._waiting) < step:
            return
        cursor = self._begun()
        while len(self._waiting) - begin >= step:
            cursor.execute(self._many, self._waiting[begin : begin + step])
            begin += step
        del self._waiting[:begin]

    def finish(self) -> None:
        """Store what was kept, and make the indexes that are not there."""
        if self._waiting:
            width, waiting = self._width, self._waiting
            rows = [waiting[begin : begin + width] for begin in range(0, len(waiting), width)]
            self._begun().executemany(_insertion(self._table), rows)
            self._waiting = []
        if self._unindexed:
            self._unindexed = False
            for index in self._table.indexes:
                index.create(self._session.connection())

    def _begun(self) -> sqlite3.Cursor:
        if self._cursor is None:
            self._cursor = cursor_of(self._session)
            found = self._cursor.execute(f"SELECT 1 FROM {_quoted([self._table.name])} LIMIT 1").fetchone()  # noqa: S608 - a name of our own
            if found is None:
                self._unindexed = True
                for index in self._table.indexes:
                    index.drop(self._session.connection())
        return self._cursor


# --- out --------------------------------------------------------------------------------------------------------------


def select_lines(session: Session, table: Table, key: Key) -> tuple[tuple[int, str], ...]:
    """Return the rows of one attempt in one table as line number and text, in file order."""
    statement = (
        f"SELECT line, raw FROM {_quoted([table.name])}"  # noqa: S608 - a name of our own
        " WHERE source_slot = ? AND source_attempt = ? ORDER BY line"
    )
    return tuple(cursor_of(session).execute(statement, key))


def select_sorted(session: Session, table: Table, slot: str, keys: Sequence[str], owners: Sequence[str]) -> list[str]:
    """Return the texts of some owners' rows, sorted by their key and then by text.

    Args:
        session: The cache.
        table: The cache's table.
        slot: Name of the column with the slot.
        keys: Names of the columns that are sorted by.
        owners: The first parts of the slots to take.
    """
    # The plus keeps SQLite from going by the slot, and sorting what an index has in order.
    wanted = " OR ".join([f'substr(+"{slot}", 1, ?) = ?'] * len(owners)) or "0"
    statement = f"SELECT raw FROM {_quoted([table.name])} WHERE {wanted} ORDER BY {_quoted(keys)}, raw"  # noqa: S608 - as above
    prefixes = [f"{owner}/" for owner in owners]
    cursor = cursor_of(session)
    cursor.row_factory = _only
    return list(cursor.execute(statement, [item for prefix in prefixes for item in (len(prefix), prefix)]))


def _only(_cursor: sqlite3.Cursor, row: tuple[str]) -> str:
    return row[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """All that the cache holds, in short."""

    sha256: str
    """Over every line, attempt by attempt: see docs/formats.md."""
    rows: int
    """Rows that attempts measured."""
    orphans: int
    """Rows of attempts that it does not hold; they are in neither number."""


class _Groups:
    """The lines of one table by attempt, asked for in the order of the attempts."""

    def __init__(self, session: Session, file: str, table: Table) -> None:
        name = _quoted([table.name])
        counts = (
            f"SELECT source_slot, source_attempt, count(*) FROM {name}"  # noqa: S608 - a name of our own
            " GROUP BY source_slot, source_attempt ORDER BY source_slot, source_attempt"
        )
        lines = f"SELECT raw FROM {name} ORDER BY source_slot, source_attempt, line"  # noqa: S608 - as above
        self.file = file
        self.orphans = 0
        self._counts = cursor_of(session).execute(counts)
        self._lines = cursor_of(session).execute(lines)
        self._next: tuple[Key, list[str]] | None = None
        self._advance()

    def _advance(self) -> None:
        found = next(self._counts, None)
        if found is None:
            self._next = None
        else:
            slot, attempt, number = found
            self._next = (slot, attempt), [raw for (raw,) in self._lines.fetchmany(number)]

    def take(self, key: Key) -> list[str]:
        """Return the lines of one attempt, past those of attempts before it."""
        while self._next is not None and self._next[0] < key:
            self.orphans += len(self._next[1])
            self._advance()
        if self._next is None or self._next[0] != key:
            return []
        lines = self._next[1]
        self._advance()
        return lines

    def finish(self) -> None:
        """Count what is left."""
        while self._next is not None:
            self.orphans += len(self._next[1])
            self._advance()


def _netstrings(name: str, lines: Sequence[str]) -> bytes:
    """Return each line after the name of its table, each preceded by its length and a colon, followed by a comma."""
    first = f"{len(name)}:{name},"
    text = "".join([f"{first}{len(line)}:{line}," for line in lines])
    if text.isascii():
        return text.encode("ascii")
    return b"".join(b"%b%d:%b," % (first.encode("ascii"), len(data), data) for data in map(str.encode, lines))


def digest_rows(session: Session, tables: Mapping[str, Table], attempts: Iterable[tuple[Key, str]]) -> Digest:
    """Return the digest of what the cache holds.

    Args:
        session: The cache.
        tables: The cache's tables of what attempts measured, by file name.
        attempts: Every attempt with its line of attempts.csv.
    """
    groups = [_Groups(session, file, table) for file, table in sorted(tables.items())]
    digest = hashlib.sha256(b"campaign-rows/1\n")
    rows = 0
    for key, raw in sorted(attempts):
        digest.update(_netstrings(formats.ATTEMPTS.file, [raw]))
        for group in groups:
            lines = group.take(key)
            rows += len(lines)
            digest.update(_netstrings(group.file, lines))
    for group in groups:
        group.finish()
    return Digest(sha256=digest.hexdigest(), rows=rows, orphans=sum(group.orphans for group in groups))
