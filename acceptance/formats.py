"""The one definition of every evidence table: file names, columns, types and keys.

Everybody who reads or writes evidence takes its headers from here: the driver directly, the harness through the
``headers`` entry of the frozen protocol, the report by import. Field types are syntax, not meaning: a value that
parses here may still be refused by an evidence check.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, overload


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
    UNDECLARED_INPUT = "undeclared_input"
    SNAPSHOT_CHANGED = "snapshot_changed"
    DATA_CHANGED = "data_changed"
    ADAPTER_INCOMPLETE = "adapter_incomplete"
    INTERFERENCE = "interference"
    STATE_MISMATCH = "state_mismatch"
    CHECKPOINT_REFUSED = "checkpoint_refused"
    HARNESS_ERROR = "harness_error"
    VOID = "void"
    """Made void by an amendment, however it ended: no ending that an attempt itself can have."""


RETRIABLE = (
    Ending.NODE_FAIL,
    Ending.PREEMPTED,
    Ending.CANCELLED,
    Ending.LOST,
    Ending.NO_SPACE,
    Ending.TIME_LIMIT,
    Ending.WINDOW_SHORT,
)
"""The endings that a protocol may let be tried again: none of them is the fault of a side."""

RESERVED_CATEGORIES = ("throughput", "numerical", "convergence", "device", "evidence", "production", "family")
"""Names that a category cannot have: the ids of its gates would be ambiguous."""

SIDES = ("baseline", "baseline_again", "candidate")
GLOBAL_QUANTITIES = ("gradients", "parameters", "updates", "exp_avg", "exp_avg_sq")
"""What is compared tensor by tensor after every matched update."""
ISOLATED_QUANTITIES = ("optimizer", "consensus")
"""What is checked alone, element by element."""
QUANTITIES = ("loss", *GLOBAL_QUANTITIES, *ISOLATED_QUANTITIES)
MUTATIONS = ("no_update", "negated", "shuffled", "previous_batch")
"""Faults of a candidate that are computed from the baseline alone, to see which gates would have noticed them."""
COMPARISONS = ("candidate", "control")
RUN_SIDES = ("baseline", "candidate")
"""The sides that a run can be one of."""


def _text(name: str, meaning: str, *, optional: bool = False, choices: tuple[str, ...] = ()) -> Column:
    return Column(name=name, kind=Kind.TEXT, meaning=meaning, optional=optional, choices=choices)


def _counter(name: str, meaning: str) -> Column:
    return Column(name=name, kind=Kind.COUNT, meaning=meaning, minimum=1)


def _count(name: str, meaning: str) -> Column:
    return Column(name=name, kind=Kind.COUNT, meaning=meaning)


def _decimal(name: str, meaning: str, *, optional: bool = False) -> Column:
    return Column(name=name, kind=Kind.DECIMAL, meaning=meaning, optional=optional)


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

NUMERICAL = Table(
    file="numerical.csv",
    meaning="One row per quantity, worker and matched update of a case.",
    columns=(
        _text("workload", "name of the workload"),
        _text("comparison", "candidate against baseline, or the baseline's control", choices=COMPARISONS),
        _counter("attempt", "attempt at the slot"),
        _counter("update", "matched update; of an isolated check its step or round"),
        _count("worker", "worker, from 0"),
        _text("quantity", "what is compared", choices=QUANTITIES),
        _decimal("reference", "loss: the baseline's; tensors: L2 norm of the baseline; else empty", optional=True),
        _decimal(
            "value",
            "loss: the other side's; tensors: L2 norm of the difference; isolated: worst error / allowance",
            optional=True,
        ),
        _decimal("rel_l2", "tensors: value / reference, 0 where both are 0; else empty", optional=True),
        _text("worst_tensor", "tensor with the largest worst_rel_l2", optional=True),
        _decimal("worst_rel_l2", "largest error_i / max(|ref_i|, kappa * |ref| * sqrt(n_i / N))", optional=True),
        _count("nonfinite", "values that are not finite, on either side"),
        _text("executor", "whether the sides had executors of their own", choices=("independent", "shared")),
        Column(name="serialized", kind=Kind.FLAG, meaning="whether the sides took turns on the device"),
    ),
    key=("workload", "comparison", "attempt", "update", "worker", "quantity"),
)

VACUITY = Table(
    file="vacuity.csv",
    meaning="What the gates would have read for a faulty candidate, from the baseline alone; enters no gate.",
    columns=(
        _text("workload", "name of the workload"),
        _counter("attempt", "attempt at the control's slot"),
        _text("mutation", "the fault", choices=MUTATIONS),
        _counter("update", "matched update"),
        _count("worker", "worker, from 0"),
        _text("quantity", "what is compared", choices=("loss", *GLOBAL_QUANTITIES)),
        _decimal(
            "rel_l2",
            "what rel_l2 would have been; of a loss |c - b| / |b|; empty where it is not finite",
            optional=True,
        ),
    ),
    key=("workload", "attempt", "mutation", "update", "worker", "quantity"),
)

TENSORS = Table(
    file="tensors.csv",
    meaning="One row per tensor of every global quantity; kept with its attempt as tensors.csv.gz, not merged.",
    columns=(
        _text("workload", "name of the workload"),
        _text("comparison", "candidate or control", choices=COMPARISONS),
        _counter("update", "matched update"),
        _count("worker", "worker, from 0"),
        _text("quantity", "what is compared", choices=GLOBAL_QUANTITIES),
        _text("tensor", "name of the tensor"),
        _count("numel", "its number of elements"),
        _decimal("reference", "L2 norm of the baseline's; empty if it is not finite", optional=True),
        _decimal("value", "L2 norm of the difference; empty if it is not finite", optional=True),
        _decimal(
            "rel_l2", "value / max(|ref_i|, kappa * |ref| * sqrt(n_i / N)); empty if it is not finite", optional=True
        ),
        Column(name="floored", kind=Kind.FLAG, meaning="whether the floor was the larger denominator"),
        _decimal("largest_error", "largest absolute difference; empty if it is not finite", optional=True),
        Column(
            name="sign_flips",
            kind=Kind.COUNT,
            meaning="updates: elements whose signs differ; else empty",
            optional=True,
        ),
    ),
    key=("workload", "comparison", "update", "worker", "quantity", "tensor"),
)

_RUN = (
    _text("recipe", "name of the recipe"),
    _count("seed", "seed of the run"),
    _text("side", "which side", choices=RUN_SIDES),
    _counter("attempt", "attempt at the slot"),
)

CONVERGENCE = Table(
    file="convergence.csv",
    meaning="One row per completed run: a whole training of a recipe with one seed on one side.",
    columns=(
        *_RUN,
        _decimal("final_loss", "mean loss over the whole validation split after the last update, in nats"),
        _count("target_tokens", "targets (non-padding tokens predicted) of the training"),
        _count("validation_tokens", "targets of the whole validation split"),
        _count("updates", "optimizer updates of the training"),
        _counter("segments", "segments in which the run was made, the last one included"),
        _decimal("train_s", "sum of the stretches of training over all segments, without evaluation, in seconds"),
        _decimal("elapsed_s", "set-up, training, evaluation and saving over all segments, in seconds"),
        _text("checkpoint_sha256", "digest of the last checkpoint, which names recipe, seed, side and snapshot"),
    ),
    key=("recipe", "seed", "side", "attempt"),
)

CURVES = Table(
    file="curves.csv",
    meaning="One row per evaluation during a run, the last one after its last update.",
    columns=(
        *_RUN,
        _counter("update", "updates made before the evaluation"),
        _count("tokens", "targets seen before the evaluation"),
        _decimal("validation_loss", "mean loss over the whole validation split, in nats"),
    ),
    key=("recipe", "seed", "side", "attempt", "update"),
)

TABLES: dict[str, Table] = {
    table.file: table for table in (ATTEMPTS, PAIRS, WINDOWS, BASELINE, NUMERICAL, VACUITY, CONVERGENCE, CURVES)
}
"""Every evidence table by file name."""


# --- reading a table: pure, strict, the one definition of the syntax --------------------------------------------------

_COUNT = re.compile(r"0|[1-9][0-9]{0,17}")
# Bounded, so that a value is exact as a decimal too and no field takes long to read.
_DECIMAL = re.compile(r"-?[0-9]{1,64}(\.[0-9]{1,64})?(e[+-]?[0-9]{1,3})?")
# Written out, not str.isprintable(): that depends on the Unicode tables of the Python that runs this.
_TEXT = re.compile(r"""[^\x00-\x1f\x7f-\x9f\u2028\u2029",]+""")
_FLAGS = {"true": True, "false": False}

Value: TypeAlias = str | int | float | bool
"""A field's value: TEXT a str, COUNT an int, DECIMAL a finite float, FLAG a bool. An empty optional field is ``""``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One parsed line of an evidence table."""

    line: int
    """Line number in its file; the header is line 1."""
    raw: str
    """The line's own text without its newline."""
    values: dict[str, Value]
    """Column name to value, in file order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why a line is not one of its table."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        """Return ``file:line: what``."""
        return f"{self.file}:{self.line}: {self.what}"


def _parse_flag(_column: Column, text: str) -> Value:
    if text not in _FLAGS:
        raise ValueError("is neither true nor false")
    return _FLAGS[text]


def _parse_count(column: Column, text: str) -> Value:
    if not _COUNT.fullmatch(text):
        raise ValueError("is not a count (digits alone, at most 18, no leading zero)")
    if int(text) < column.minimum:
        raise ValueError(f"is below {column.minimum}")
    return int(text)


def _parse_decimal(_column: Column, text: str) -> Value:
    if not _DECIMAL.fullmatch(text):
        raise ValueError("is not a decimal number")
    if not math.isfinite(float(text)):
        raise ValueError("is not a finite number")
    return float(text)


def _parse_text(column: Column, text: str) -> Value:
    if not _TEXT.fullmatch(text):
        raise ValueError("is not text without quotes and control characters")
    if column.choices and text not in column.choices:
        raise ValueError(f"is not one of {', '.join(column.choices)}")
    return text


_PARSERS = {
    Kind.FLAG: _parse_flag,
    Kind.COUNT: _parse_count,
    Kind.DECIMAL: _parse_decimal,
    Kind.TEXT: _parse_text,
}


def parse_field(column: Column, text: str) -> Value:
    """Return the value of one field.

    Raises:
        ValueError: The text is not in the column's syntax; the message says why.
    """
    if not text and column.optional:
        return ""
    try:
        return _PARSERS[column.kind](column, text)
    except ValueError as error:
        shown = text if len(text) <= 60 else f"{text[:60]}..."
        raise ValueError(f"{column.name}: {shown!r} {error}") from error


def _parse_line(table: Table, raw: str, line: int, file: str) -> Row | list[Fault]:
    fields = raw.split(",")
    if len(fields) != len(table.columns):
        what = f"{len(fields)} fields where {len(table.columns)} are expected" if raw.strip() else "blank line"
        return [Fault(file=file, line=line, what=what)]
    values: dict[str, Value] = {}
    faults: list[Fault] = []
    for column, text in zip(table.columns, fields, strict=True):
        try:
            values[column.name] = parse_field(column, text)
        except ValueError as error:
            faults.append(Fault(file=file, line=line, what=str(error)))
    return faults or Row(line=line, raw=raw, values=values)


def _decode(data: bytes, file: str) -> tuple[list[str | None], list[Fault]]:
    """Return the lines of a file, None for one that is not UTF-8, and the faults of its bytes."""
    lines: list[str | None] = []
    faults: list[Fault] = []
    *pieces, rest = data.split(b"\n")
    if rest:
        pieces.append(rest)
        faults.append(Fault(file=file, line=len(pieces), what="the last line does not end with a newline"))
    for number, piece in enumerate(pieces, start=1):
        try:
            lines.append(piece.decode("utf-8"))
        except UnicodeDecodeError as error:
            lines.append(None)
            faults.append(Fault(file=file, line=number, what=f"byte 0x{piece[error.start]:02x} is not UTF-8"))
    return lines, faults


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows(Sequence[Row]):
    """The rows of a whole table that was found right, each made when it is asked for: there may be millions."""

    table: Table
    lines: tuple[str, ...]
    """The lines' own texts without newlines; the first one is line 2 of the file."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.lines)

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        """Return one row, or some."""
        if isinstance(index, slice):
            return [self._row(place) for place in range(*index.indices(len(self.lines)))]
        return self._row(range(len(self.lines))[index])

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows in file order."""
        return map(self._row, range(len(self.lines)))

    def _row(self, index: int) -> Row:
        raw, syntax = self.lines[index], _syntax(self.table)
        fields = zip(syntax.names, syntax.converts, raw.split(","), strict=True)
        values = {name: convert(text) if text else "" for name, convert, text in fields}
        return Row(line=index + 2, raw=raw, values=values)


_CONVERT: dict[Kind, Callable[[str], Value]] = {
    Kind.TEXT: str,
    Kind.COUNT: int,
    Kind.DECIMAL: float,
    Kind.FLAG: _FLAGS.__getitem__,
}
"""From the text of a field that is in its syntax to its value."""


def texts(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the rows' own texts, without making a row of those that are none yet."""
    return rows.lines if isinstance(rows, Rows) else tuple(row.raw for row in rows)


def columns_of(table: Table, lines: Sequence[str], names: Sequence[str] | None = None) -> list[list[str]]:
    """Return the texts of a table's columns, which is much faster than field by field where there are many lines.

    Args:
        table: The table.
        lines: As `texts` returns them.
        names: Those that are wanted; None for all, in file order.

    Raises:
        ValueError: A line has not as many fields as the table has columns.
    """
    header = table.header
    # No field holds a comma: all lines are divided at once, and a column is every so many of the fields.
    fields = ",".join(lines).split(",") if lines else []
    if len(fields) != len(header) * len(lines):
        raise ValueError(f"{len(fields)} fields in {len(lines)} lines of {table.file}")
    places = range(len(header)) if names is None else map(header.index, names)
    return [fields[place :: len(header)] for place in places]


_PLAIN_DECIMAL = r"-?[0-9]{1,64}(?:\.[0-9]{1,64})?(?:e[+-]?[0-9]{1,2})?"
"""A decimal whose exponent is too small for a number that is not finite."""


def _plain_field(column: Column) -> str:
    """Return an expression for fields that `parse_field` surely takes; there may be others."""
    if column.kind is Kind.TEXT:
        plain = "|".join(map(re.escape, column.choices)) or _TEXT.pattern
    elif column.kind is Kind.COUNT:
        plain = {0: "0|[1-9][0-9]{0,17}", 1: "[1-9][0-9]{0,17}"}[column.minimum]
    else:
        plain = {Kind.DECIMAL: _PLAIN_DECIMAL, Kind.FLAG: "|".join(_FLAGS)}[column.kind]
    return f"(?:{plain}){'?' if column.optional else ''}"


class _Syntax:
    """What is made of a table once, to read many files of it."""

    __slots__ = ("converts", "names", "plain", "table")

    def __init__(self, table: Table) -> None:
        line = ",".join(map(_plain_field, table.columns))
        self.table = table
        self.names = table.header
        self.converts = [_CONVERT[column.kind] for column in table.columns]
        self.plain = re.compile(f"{','.join(table.header)}\n(?:{line}\n)*+")
        """For whole files that surely parse: one step for all lines, since there may be millions."""


_SYNTAX: dict[int, _Syntax] = {}


def _syntax(table: Table) -> _Syntax:
    # By identity, which each of them keeps in use: to compare tables takes longer than to read a short file.
    found = _SYNTAX.get(id(table))
    if found is None:
        found = _SYNTAX[id(table)] = _Syntax(table)
    return found


def parse_rows(table: Table, data: bytes, name: str) -> tuple[Sequence[Row], tuple[Fault, ...]]:
    """Parse the bytes of one evidence table strictly, as `parse_table` does, but make no row before it is asked for.

    Args:
        table: Which table the bytes shall be.
        data: The whole file.
        name: What to call the file in a fault.

    Returns:
        The rows and the faults. If there is any fault the rows are not the whole file and must not be used.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if _syntax(table).plain.fullmatch(text) is None:
        return _parse_slowly(table, data, name)
    return Rows(table=table, lines=tuple(text.split("\n")[1:-1])), ()


def parse_table(table: Table, data: bytes, name: str) -> tuple[tuple[Row, ...], tuple[Fault, ...]]:
    """Parse the bytes of one evidence table strictly.

    There is no quoting: a field holds neither comma, quote nor control character. Lines end with one newline, the
    last one too. Nothing is skipped, trimmed or converted, and no two files parse to the same rows.

    Args:
        table: Which table the bytes shall be.
        data: The whole file.
        name: What to call the file in a fault.

    Returns:
        The rows and the faults. If there is any fault the rows are not the whole file and must not be used.
    """
    rows, faults = parse_rows(table, data, name)
    return tuple(rows), faults


def _parse_slowly(table: Table, data: bytes, name: str) -> tuple[tuple[Row, ...], tuple[Fault, ...]]:
    """Parse line by line, and say of each what is wrong."""
    lines, faults = _decode(data, name)
    if not lines or lines[0] != ",".join(table.header):
        what = f"the header is not {','.join(table.header)}"
        return (), (*faults, Fault(file=name, line=1, what=what))
    rows: list[Row] = []
    for number, raw in enumerate(lines[1:], start=2):
        parsed = [] if raw is None else _parse_line(table, raw, number, name)
        if isinstance(parsed, Row):
            rows.append(parsed)
        else:
            faults.extend(parsed)
    return tuple(rows), tuple(sorted(faults, key=lambda fault: fault.line))
