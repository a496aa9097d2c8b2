"""The one definition of every evidence table: file names, columns, types and keys.

Everybody who reads or writes evidence takes its headers from here: the driver directly, the harness through the
``headers`` entry of the frozen protocol, the report by import. Field types are syntax, not meaning: a value that
parses here may still be refused by an evidence check.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Kind(enum.Enum):
    """The syntax of one field."""

    TEXT = "text"
    """Printable characters; never empty unless the column is optional."""
    COUNT = "count"
    """A non-negative integer without sign, separator or leading zero."""
    DECIMAL = "decimal"
    """A finite decimal number: ``-?digits[.digits][e[+-]digits]``."""
    FLAG = "flag"
    """``true`` or ``false``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of an evidence table."""

    name: str
    kind: Kind
    meaning: str
    optional: bool = False
    """True if the field may be empty."""
    minimum: int = 0
    """Smallest value of a COUNT: 1 for counters that start at one."""
    choices: tuple[str, ...] = ()
    """The closed set of values of a TEXT column, if it has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One evidence table, stored as one CSV file."""

    file: str
    meaning: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """Columns that identify a row: no two rows of a file may agree on all of them."""

    @property
    def header(self) -> tuple[str, ...]:
        """Return the column names in file order."""
        return tuple(column.name for column in self.columns)


class Ending(enum.StrEnum):
    """How an attempt ended. The protocol's retry rule says which endings allow another attempt."""

    COMPLETED = "completed"
    NODE_FAIL = "node_fail"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    LOST = "lost"
    NO_SPACE = "no_space"
    TIME_LIMIT = "time_limit"
    WINDOW_SHORT = "window_short"
    CRASH = "crash"
    HANG = "hang"
    NO_RESULT = "no_result"
    NON_FINITE = "non_finite"
    RUBBISH = "rubbish"
    OUTPUT_FLOOD = "output_flood"
    CLOCK_DISAGREEMENT = "clock_disagreement"
    COUNT_DISAGREEMENT = "count_disagreement"
    FOREIGN_IMPORT = "foreign_import"
    SNAPSHOT_CHANGED = "snapshot_changed"
    DATA_CHANGED = "data_changed"
    ADAPTER_INCOMPLETE = "adapter_incomplete"
    HARNESS_ERROR = "harness_error"


SIDES = ("baseline", "baseline_again", "candidate")
COMPARISONS = ("candidate", "control")


def _text(name: str, meaning: str, *, optional: bool = False, choices: tuple[str, ...] = ()) -> Column:
    return Column(name=name, kind=Kind.TEXT, meaning=meaning, optional=optional, choices=choices)


def _counter(name: str, meaning: str) -> Column:
    return Column(name=name, kind=Kind.COUNT, meaning=meaning, minimum=1)


def _count(name: str, meaning: str) -> Column:
    return Column(name=name, kind=Kind.COUNT, meaning=meaning)


def _decimal(name: str, meaning: str) -> Column:
    return Column(name=name, kind=Kind.DECIMAL, meaning=meaning)


_MEASURED = (
    _count("warmup_updates", "updates executed before the first window"),
    _count("updates", "updates in each window"),
    _count("tokens", "targets (non-padding tokens predicted) in all windows"),
    _decimal("startup_s", "runner set-up, compilation or capture, and warm-up, in seconds"),
    _decimal("train_s", "sum of the windows, in seconds"),
    _decimal("elapsed_s", "set-up, training and result collection, in seconds"),
    _count("peak_allocated_bytes", "peak of live device allocations; on the CPU the process's peak resident bytes"),
    _count("peak_reserved_bytes", "peak of the device allocator's reservation; on the CPU as above"),
    _decimal("tokens_per_s", "tokens / train_s"),
)

ATTEMPTS = Table(
    file="attempts.csv",
    meaning="One row per attempt at a slot, whatever its ending.",
    columns=(
        _text("slot", "name of the slot"),
        _counter("attempt", "number of the attempt, given by the ledger"),
        _text("allocation", "id of the allocation"),
        _text("node", "host that ran it; empty when it never started", optional=True),
        _text("device", "device identity; empty when it never started", optional=True),
        _text("baseline_path", "first 12 hex digits of the SHA-256 over the baseline's engaged() text", optional=True),
        _text("candidate_path", "the same for the other side (candidate, or baseline_again)", optional=True),
        _text("ending", "how it ended", choices=tuple(Ending)),
        Column(name="sealed", kind=Kind.FLAG, meaning="whether a receipt seals its files"),
    ),
    key=("slot", "attempt"),
)

PAIRS = Table(
    file="pairs.csv",
    meaning="One row per measurement of a pair: two rows a pair.",
    columns=(
        _text("workload", "name of the workload"),
        _text("comparison", "candidate against baseline, or the baseline's control", choices=COMPARISONS),
        _text("category", "category of the workload; empty for none", optional=True),
        Column(name="production", kind=Kind.FLAG, meaning="whether the workload is a required production case"),
        _counter("repeat", "repeat"),
        _counter("pair", "pair within the repeat"),
        _counter("position", "1 if this side ran first, 2 if second"),
        _text("side", "which side", choices=SIDES),
        _counter("attempt", "attempt at the slot"),
        _text("allocation", "id of the allocation"),
        _text("node", "host"),
        _text("device", "device identity"),
        *_MEASURED,
    ),
    key=("workload", "comparison", "repeat", "pair", "side", "attempt"),
)

WINDOWS = Table(
    file="windows.csv",
    meaning="One row per scored window of a pair's measurement.",
    columns=(
        _text("workload", "name of the workload"),
        _text("comparison", "candidate or control", choices=COMPARISONS),
        _counter("repeat", "repeat"),
        _counter("pair", "pair within the repeat"),
        _text("side", "which side", choices=SIDES),
        _counter("attempt", "attempt at the slot"),
        _counter("window", "window"),
        _count("updates", "updates in the window"),
        _count("microbatches", "forward and backward passes in the window"),
        _count("skipped_updates", "updates skipped by the loss scaler in the window"),
        _count("tokens", "targets in the window"),
        _decimal("seconds", "the window's duration on the parent's clock"),
    ),
    key=("workload", "comparison", "repeat", "pair", "side", "attempt", "window"),
)

BASELINE = Table(
    file="baseline.csv",
    meaning="One row per solo measurement of the baseline phase; enters no gate.",
    columns=(
        _text("workload", "name of the workload"),
        _text("category", "category of the workload; empty for none", optional=True),
        Column(name="production", kind=Kind.FLAG, meaning="whether the workload is a required production case"),
        _counter("repeat", "repeat"),
        _counter("attempt", "attempt at the slot"),
        _text("allocation", "id of the allocation"),
        _text("node", "host"),
        _text("device", "device identity"),
        *_MEASURED,
    ),
    key=("workload", "repeat", "attempt"),
)

TABLES: dict[str, Table] = {table.file: table for table in (ATTEMPTS, PAIRS, WINDOWS, BASELINE)}
"""Every evidence table by file name."""
