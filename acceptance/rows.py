"""The evidence as typed rows: bytes of a folder in, rows and faults out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from acceptance.formats import (
    ATTEMPTS,
    BASELINE,
    CONVERGENCE,
    CURVES,
    NUMERICAL,
    PAIRS,
    TABLES,
    VACUITY,
    WINDOWS,
    Column,
    Fault,
    Kind,
    Row,
    Table,
    columns_of,
    parse_rows,
    texts,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
    """One row of attempts.csv."""

    slot: str
    attempt: int
    allocation: str
    node: str
    device: str
    baseline_path: str
    candidate_path: str
    ending: str
    sealed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One row of pairs.csv or baseline.csv; a solo measurement counts as comparison ``solo``, pair 0, position 1."""

    workload: str
    comparison: str
    category: str
    production: bool
    repeat: int
    pair: int
    position: int
    side: str
    attempt: int
    allocation: str
    node: str
    device: str
    warmup_updates: int
    updates: int
    tokens: int
    startup_s: Decimal
    train_s: Decimal
    elapsed_s: Decimal
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    tokens_per_s: Decimal


class WindowRow(NamedTuple):
    """One row of windows.csv: a tuple, since there may be millions of them."""

    workload: str
    comparison: str
    repeat: int
    pair: int
    side: str
    attempt: int
    window: int
    updates: int
    microbatches: int
    skipped_updates: int
    tokens: int
    seconds: Decimal


_window_row: Callable[[tuple[Any, ...]], WindowRow] = partial(tuple.__new__, WindowRow)
"""As `WindowRow._make`, without a look at how many values there are: each line was found to have its columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumericalRow:
    """One row of numerical.csv; a number is None where its field is empty."""

    workload: str
    comparison: str
    attempt: int
    update: int
    worker: int
    quantity: str
    reference: Decimal | None
    value: Decimal | None
    rel_l2: Decimal | None
    worst_tensor: str
    worst_rel_l2: Decimal | None
    nonfinite: int
    executor: str
    serialized: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuityRow:
    """One row of vacuity.csv."""

    workload: str
    attempt: int
    mutation: str
    update: int
    worker: int
    quantity: str
    rel_l2: Decimal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One row of convergence.csv."""

    recipe: str
    seed: int
    side: str
    attempt: int
    final_loss: Decimal
    target_tokens: int
    validation_tokens: int
    updates: int
    segments: int
    train_s: Decimal
    elapsed_s: Decimal
    checkpoint_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveRow:
    """One row of curves.csv."""

    recipe: str
    seed: int
    side: str
    attempt: int
    update: int
    tokens: int
    validation_loss: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that was handed in, parsed. A table is None where its file is absent."""

    attempts: tuple[AttemptRow, ...] | None
    pairs: tuple[Measurement, ...] | None
    windows: tuple[WindowRow, ...] | None
    baseline: tuple[Measurement, ...] | None
    numerical: tuple[NumericalRow, ...] | None
    vacuity: tuple[VacuityRow, ...] | None
    convergence: tuple[RunRow, ...] | None
    curves: tuple[CurveRow, ...] | None
    raw: dict[str, Sequence[Row]]
    """The rows of every file that is there, as written."""
    foreign: tuple[str, ...]
    """Names in the folder that are no evidence of this protocol."""


_SOLO: dict[str, Any] = {"comparison": "solo", "pair": 0, "position": 1, "side": "baseline"}


_LINES_AT_ONCE = 4096
_SAME = 4
"""How often a text must stand in a column, on average, for a table of values to be worth making."""


def _decimal(text: str) -> Decimal | None:
    """Return a decimal exactly: as it is written, not as the nearest double."""
    return Decimal(text) if text else None


def _count(text: str) -> int | str:
    return int(text) if text else text


_CONVERT: Mapping[Kind, Callable[[str], Any]] = {Kind.COUNT: int, Kind.DECIMAL: Decimal, Kind.FLAG: "true".__eq__}
"""From the text of a field that was found right to its value; text is its own."""
_CONVERT_OPTIONAL: Mapping[Kind, Callable[[str], Any]] = {**_CONVERT, Kind.COUNT: _count, Kind.DECIMAL: _decimal}


def _convert_of(column: Column) -> Callable[[str], Any] | None:
    return (_CONVERT_OPTIONAL if column.optional else _CONVERT).get(column.kind)


def _typed(table: Table, rows: Sequence[Row]) -> Iterator[tuple[Any, ...]]:
    """Yield the values of each row, in the order of the columns."""
    lines = texts(rows)
    return chain.from_iterable(
        _typed_lines(table, lines[begin : begin + _LINES_AT_ONCE]) for begin in range(0, len(lines), _LINES_AT_ONCE)
    )


def _typed_lines(table: Table, lines: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*map(_converted, table.columns, columns_of(table, lines)), strict=True)


def _converted(column: Column, fields: list[str]) -> Iterable[Any]:
    convert = _convert_of(column)
    if convert is None:
        return fields
    # Most columns say the same in many lines: then each of their values is made once.
    distinct = set(fields)
    if len(distinct) < len(fields) // _SAME:
        return map({text: convert(text) for text in distinct}.__getitem__, fields)
    return map(convert, fields)


def parse(files: Mapping[str, bytes], foreign: Iterable[str]) -> tuple[Evidence, tuple[Fault, ...]]:
    """Parse the evidence tables of a folder.

    Args:
        files: Bytes by file name; a table that is absent from the folder is absent here.
        foreign: Other names found in the folder.

    Returns:
        The evidence and all faults. If there is any fault the evidence must not be used.
    """
    raw: dict[str, Sequence[Row]] = {}
    faults: list[Fault] = []
    for name in sorted(TABLES):
        if name in files:
            raw[name], found = parse_rows(TABLES[name], files[name], name)
            faults.extend(found)

    def values(table: Table) -> list[dict[str, Any]] | None:
        if table.file not in raw:
            return None
        return [dict(zip(table.header, row, strict=True)) for row in _typed(table, raw[table.file])]

    if faults:
        raw = dict.fromkeys(raw, ())
    attempts, pairs, solos = (values(table) for table in (ATTEMPTS, PAIRS, BASELINE))
    numerical, vacuity, runs, curves = (values(table) for table in (NUMERICAL, VACUITY, CONVERGENCE, CURVES))
    evidence = Evidence(
        attempts=None if attempts is None else tuple(AttemptRow(**row) for row in attempts),
        pairs=None if pairs is None else tuple(Measurement(**row) for row in pairs),
        windows=tuple(map(_window_row, _typed(WINDOWS, raw[WINDOWS.file]))) if WINDOWS.file in raw else None,
        baseline=None if solos is None else tuple(Measurement(**row, **_SOLO) for row in solos),
        numerical=None if numerical is None else tuple(NumericalRow(**row) for row in numerical),
        vacuity=None if vacuity is None else tuple(VacuityRow(**row) for row in vacuity),
        convergence=None if runs is None else tuple(RunRow(**row) for row in runs),
        curves=None if curves is None else tuple(CurveRow(**row) for row in curves),
        raw=raw,
        foreign=tuple(sorted(foreign)),
    )
    return evidence, tuple(faults)
