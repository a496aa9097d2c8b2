"""campaign.sqlite, row by row against the sealed files. Nothing rests on it; one that was edited tells of somebody."""

from __future__ import annotations

import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, TypeAlias
from urllib.parse import quote

from . import columns, names, rows
from .columns import Kind
from .facts import Facts
from .findings import Check, EvidenceError
from .history import history_of
from .strict import Node

APPLICATION_ID = 0x43414D50
SCHEMA_VERSION = 5
"""The newest release of the cache that is known here, and that of today's driver."""
SCHEMA_VERSIONS = (4, SCHEMA_VERSION)
"""All that are known. Another one is not looked at."""
SINCE: Mapping[str, int] = {"stamps": 5}
"""The release in which a table came that was not in all of them."""
TIMEOUT_S = 120.0
_MOST_BYTES = 1 << 20
"""Of one value, and of one row."""
_STEPS = 100_000  # of SQLite's machine between two looks at the clock

PLACE = ("source_slot", "source_attempt", "line")
OWN: Mapping[str, tuple[str, ...]] = {
    "origin": ("id", "manifest_sha256", "protocol_sha256"),
    "receipts": ("slot", "attempt", "receipt_sha256", "start_sha256", "kind", "reason"),
    "segments": (
        "slot",
        "attempt",
        "segment",
        "allocation",
        "node",
        "device",
        "ending",
        "reason",
        "receipt_sha256",
        "start_sha256",
        "resumed_segment",
        "resumed_update",
        "resumed_sha256",
        "first_update",
        "update",
    ),
    "files": ("slot", "attempt", "segment", "name", "bytes", "sha256"),
    "stamps": ("slot", "attempt", "stamp"),
    "inputs": ("name", "bytes", "inode", "modified_ns", "changed_ns"),
    "checkpoint_files": ("path", "sha256", "bytes", "inode", "modified_ns", "changed_ns"),
}
"""The tables beside those of the evidence, and their columns."""

Line: TypeAlias = tuple[Any, ...]
Key: TypeAlias = tuple[str, int]
"""Slot and number of an attempt."""
Content: TypeAlias = dict[str, list[Line]]
"""The rows of one attempt, by table; tables without any are left out."""


def tables(version: int = SCHEMA_VERSION) -> dict[str, tuple[str, ...]]:
    """Return the columns of every table of the cache in one of its releases, by the table's name."""
    attempts = (*columns.TABLES[columns.ATTEMPTS].columns, "raw")
    measured = {
        file.removesuffix(".csv"): (*PLACE, *table.columns, "raw")
        for file, table in columns.TABLES.items()
        if file != columns.ATTEMPTS
    }
    own = {name: listed for name, listed in OWN.items() if SINCE.get(name, 0) <= version}
    return {"attempts": attempts, **measured, **own}


def check(facts: Facts, check: Check) -> None:
    """Compare the cache with what the sealed files give, now or as of the last collection.

    Args:
        facts: Everything up to the sealed attempts is known.
        check: Where findings go.
    """
    found = facts.digests.get(names.DATABASE)
    if found is None or found.withheld:
        check.not_checked(f"{names.DATABASE} is not here; nothing rests on it")
        return
    facts.digests.require_readable(names.DATABASE)
    journal = facts.digests.get(f"{names.DATABASE}-journal")
    if journal is not None and journal.num_bytes:
        check.not_checked(f"{names.DATABASE}: a collection was cut short, the next one puts it right")
        return
    try:
        with closing(_open(facts)) as connection:
            if _is_known(connection, check):
                _check_rows(facts, connection, check)
    except (sqlite3.Error, UnicodeError) as error:
        check.tampered(names.DATABASE, f"cannot be read as a cache: {error}")


def _open(facts: Facts) -> sqlite3.Connection:
    # Immutable: SQLite neither locks nor writes, not even to roll something back.
    path = quote(os.fsencode(facts.root.resolve() / names.DATABASE))
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True, isolation_level=None)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_BYTES)
    # A view, or a table that is none, could keep a reader busy for ever.
    end = time.monotonic() + TIMEOUT_S
    connection.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
    return connection


def _is_known(connection: sqlite3.Connection, check: Check) -> bool:
    """Return whether the file is a cache that can be compared."""
    marks = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
    if marks[0] != APPLICATION_ID:
        check.tampered(names.DATABASE, "not a campaign's cache")
        return False
    if marks[1] not in SCHEMA_VERSIONS and marks[1] > 0:
        check.not_checked(f"{names.DATABASE} is the cache of another release (its version is {marks[1]})")
        return False
    wanted = {**dict.fromkeys(tables(marks[1] if marks[1] > 0 else SCHEMA_VERSION), "table")}
    listed = connection.execute("SELECT name, type FROM sqlite_master WHERE type != 'index'").fetchall()
    if sorted(listed) != sorted(wanted.items()):
        other = sorted(set(listed) ^ set(wanted.items()))
        check.tampered(names.DATABASE, f"its tables are not those of a cache: {', '.join(name for name, _ in other)}")
        return False
    for table in wanted:
        # A column that is computed when it is read could be of any size, in as many rows as there are.
        if any(hidden for *_, hidden in connection.execute(f'PRAGMA table_xinfo("{table}")')):
            check.tampered(names.DATABASE, f"its tables are not those of a cache: {table} has a computed column")
            return False
    (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if verdict != "ok":
        check.tampered(names.DATABASE, f"damaged: {verdict}")
        return False
    return True


# --- what it holds ----------------------------------------------------------------------------------------------------


def _select(connection: sqlite3.Connection, table: str) -> Iterator[Line]:
    listed = ", ".join(f'"{name}"' for name in tables()[table])
    return connection.execute(f'SELECT {listed} FROM "{table}"')  # noqa: S608 - the names are those above


def _stored(connection: sqlite3.Connection) -> dict[Key, Content]:
    """Return what the cache holds, attempt by attempt; what the file system said of files is nobody's evidence."""
    found: dict[Key, Content] = defaultdict(dict)
    for table in tables():
        if table in ("origin", "stamps", "inputs", "checkpoint_files"):
            continue
        for line in _select(connection, table):
            found[line[0], line[1]].setdefault(table, []).append(line)
    return found


def _check_rows(facts: Facts, connection: sqlite3.Connection, check: Check) -> None:
    origin = [(1, facts.manifest_sha256, facts.protocol_sha256)]
    if list(_select(connection, "origin")) != origin:
        check.tampered(names.DATABASE, "belongs to another campaign")
        return
    _check_stamps(facts, connection, check)
    last = next((one for one in reversed(facts.entries) if one.act == "collected"), None)
    now = rows.attempts_at(facts)
    if now.faults:
        check.not_checked(f"{names.DATABASE}: attempts that cannot be read ({len(now.faults)})")
        return
    then = rows.attempts_at(facts, last.seq + 1 if last is not None else 0)
    unsure = _damaged(facts, now, then)
    reader = _Reader(facts)
    stored = _stored(connection)
    states = (now.attempts, then.attempts)
    for key, content in stored.items():
        if key in unsure:
            continue
        right = [one for one in (by_key.get(key) for by_key in states) if one is not None]
        if not right:
            check.tampered(names.DATABASE, f"holds {key[0]}/{key[1]}, which left no ending")
        elif not any(_same(content, reader.content(one), reader.reasons(one)) for one in right):
            check.tampered(names.DATABASE, f"{key[0]}/{key[1]}: holds other rows than the sealed files")
    lost = [key for key in then.attempts if key not in stored and key not in unsure]
    if lost and last is not None:
        what = f"lacks attempts that the ledger's line {last.seq} collected ({len(lost)}), as {lost[0][0]}/{lost[0][1]}"
        if last.data.get("findings") == 0:
            check.tampered(names.DATABASE, what)
        else:
            check.incomplete(names.DATABASE, f"{what}: campaign collect")
    if unsure:
        check.not_checked(f"{names.DATABASE}: attempts that are not whole themselves ({len(unsure)})")


def _damaged(facts: Facts, *states: rows.Known) -> set[Key]:
    """Return slot and number of every attempt that is not whole itself."""
    planned = [facts.planned[name] for state in states for name in state.damaged]
    return {(one.slot, one.attempt) for one in planned}


def _check_stamps(facts: Facts, connection: sqlite3.Connection, check: Check) -> None:
    """Check what the cache says of files whose digest it need not look at again. Here all of them are looked at."""
    for name, num_bytes, *_ in _select(connection, "inputs"):
        path = f"{names.INPUTS}/{name}"
        if facts.digests.is_file(path):
            _check_stamp(facts, check, path, num_bytes, str(name).partition(".")[0])
    for path, sha256, num_bytes, *_ in _select(connection, "checkpoint_files"):
        if facts.digests.is_file(str(path)):
            _check_stamp(facts, check, str(path), num_bytes, str(sha256))


def _check_stamp(facts: Facts, check: Check, path: str, num_bytes: Any, sha256: str) -> None:
    found = facts.digests.require_file(path)
    if found.num_bytes != num_bytes or facts.digests.sha256(path) != sha256:
        check.tampered(names.DATABASE, f"takes {path} for whole with another size or digest than it has")


# --- what it must hold ------------------------------------------------------------------------------------------------


def _same(stored: Content, right: Content, reasons: Mapping[int, frozenset[str]]) -> bool:
    """Return whether stored rows are the right ones, the reason being one of several that may stand there."""
    if stored.keys() != right.keys():
        return False
    return all(
        sorted(_settled(table, line, reasons) for line in stored[table])
        == sorted(_settled(table, line, reasons) for line in right[table])
        if table in ("receipts", "segments")
        else sorted(stored[table], key=_order) == sorted(right[table], key=_order)
        for table in right
    )


def _order(line: Line) -> tuple[str, ...]:
    return tuple(map(str, line))


def _settled(table: str, line: Line, reasons: Mapping[int, frozenset[str]]) -> tuple[str, ...]:
    """Return a row as text, with a mark in the place of a reason that is right."""
    place = OWN[table].index("reason")
    segment = line[2] if table == "segments" else 0
    is_right = isinstance(segment, int) and line[place] in reasons.get(segment, frozenset())
    return tuple(repr(value) for value in (*line[:place], is_right or line[place], *line[place + 1 :]))


class _Reader:
    """Derives the rows of attempts from what they sealed."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._history = history_of(facts)

    def content(self, attempt: rows.Attempt) -> Content:
        """Return the rows of one attempt, by table."""
        found: Content = {"attempts": [_typed(columns.ATTEMPTS, attempt.line)]}
        is_run = attempt.deciding.planned.segment > 0
        for one in attempt.tries:
            if one.sealed is not None and not is_run:
                found["receipts"] = [self._receipt(one)]
            if is_run:
                found.setdefault("segments", []).append(self._segment(one))
            found.setdefault("files", []).extend(_files(one))
        if attempt.deciding.sealed is not None:
            found.update(self._measured(attempt.deciding))
        return {table: lines for table, lines in found.items() if lines}

    def reasons(self, attempt: rows.Attempt) -> dict[int, frozenset[str]]:
        """Return, by segment, what may stand as the reason of an ending; of no run the segment is 0."""
        return {one.planned.segment: frozenset(self._reasons(one)) for one in attempt.tries}

    def _reasons(self, one: rows.Try) -> Iterator[str]:
        reason = self._reason(one)
        yield reason
        if one.sealed is None or one.ending != "cancelled":
            return
        for entry in self._facts.entries:
            if entry.act == "cancelled" and one.planned.allocation in entry.data.get("allocations", ()):
                yield "; ".join(filter(None, [f"campaign cancel: {entry.data.get('reason')}", reason]))

    def _reason(self, one: rows.Try) -> str:
        if one.sealed is not None:
            return Node(one.sealed.receipt, one.sealed.folder)["reason"].as_text()
        ended = self._facts.entries[self._history.ended[one.planned.name].seq - 1]
        return Node(ended.data, names.LEDGER)["reason"].as_text()

    def _receipt(self, one: rows.Try) -> Line:
        assert one.sealed is not None  # noqa: S101 - the caller looked
        receipt = Node(one.sealed.receipt, one.sealed.folder)
        start, kind = receipt["start_sha256"].as_text(), receipt["kind"].as_text()
        planned = one.planned
        return planned.slot, planned.attempt, one.sealed.receipt_sha256, start, kind, self._reason(one)

    def _segment(self, one: rows.Try) -> Line:
        planned = one.planned
        receipt = Node(one.sealed.receipt, one.sealed.folder) if one.sealed is not None else None
        run = receipt.get("run") if receipt is not None else None
        resume = Node(planned.resume, names.LEDGER) if planned.resume is not None else None
        return (
            planned.slot,
            planned.attempt,
            planned.segment,
            planned.allocation,
            one.node,
            one.device,
            one.ending,
            self._reason(one),
            one.sealed.receipt_sha256 if one.sealed is not None else None,
            receipt["start_sha256"].as_text() if receipt is not None else None,
            *((resume["segment"].value, resume["update"].value, resume["sha256"].value) if resume else (None,) * 3),
            *((run["first_update"].as_whole(), run["update"].as_whole()) if run is not None else (None, None)),
        )

    def _measured(self, one: rows.Try) -> Iterator[tuple[str, list[Line]]]:
        assert one.sealed is not None  # noqa: S101 - the caller looked
        place = (one.planned.slot, one.planned.attempt)
        for file, lines in rows.lines_of(self._facts, one.sealed).items():
            typed = [(*place, number, *_typed(file, line)) for number, line in enumerate(lines, start=2)]
            yield file.removesuffix(".csv"), typed


def _files(one: rows.Try) -> Iterator[Line]:
    if one.sealed is None:
        return
    place = (one.planned.slot, one.planned.attempt, one.planned.segment)
    for node in Node(one.sealed.receipt, one.sealed.folder)["files"].items():
        yield (*place, node["name"].as_text(), node["bytes"].as_whole(), node["sha256"].as_text())


def _typed(file: str, line: str) -> Line:
    """Return a row of the evidence as SQLite holds it, its own text last."""
    kinds = columns.known(file).columns.values()
    return (*map(_value, kinds, line.split(",")), line)


def _value(kind: Kind, text: str) -> Any:
    if kind is Kind.TEXT:
        return text
    if not text:
        return None
    try:
        if kind is Kind.FLAG:
            return ("false", "true").index(text)
        return int(text) if kind is Kind.COUNT else float(text)
    except ValueError as error:
        raise EvidenceError(names.DATABASE, f"cannot be compared: {text[:80]!r} is sealed where a number is") from error
