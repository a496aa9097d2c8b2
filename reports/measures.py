"""Measurements side by side: the rows of pairs.csv joined to pairs, and ratios by workload and repeat."""

from __future__ import annotations

import itertools
import operator
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from acceptance.formats import PAIRS, WINDOWS, Row, Value, columns_of, texts
from reports.ahead import ByRows
from reports.verdict import Ratio

if TYPE_CHECKING:
    import pandas as pd

_PAIR = ("comparison", "workload", "repeat", "pair", "attempt")
_PLACE = operator.itemgetter(*_PAIR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """One measurement of a pair."""

    tokens_per_s: float
    startup_s: float
    peak_allocated_bytes: int
    peak_reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Both measurements of one attempt at a pair; a side is None if it has not exactly one row."""

    comparison: str
    workload: str
    repeat: int
    pair: int
    attempt: int
    allocation: str
    node: str
    order: tuple[str, ...]
    updates: int
    microbatches: tuple[int | None, int | None]
    """Of all windows, the baseline's and the other side's; None without windows."""
    baseline: Half | None
    other: Half | None

    @property
    def ratio(self) -> float | None:
        """Return other / baseline in tokens per second."""
        if self.baseline is None or self.other is None or not self.baseline.tokens_per_s > 0:
            return None
        return self.other.tokens_per_s / self.baseline.tokens_per_s


def frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Return the rows of pairs.csv as a frame with typed columns."""
    import pandas as pd  # noqa: PLC0415 - slow to import, and a command that fails earlier needs none of it

    return pd.DataFrame([dict(row.values) for row in rows], columns=list(PAIRS.header))


def _half(rows: Sequence[Mapping[str, Value]]) -> Half | None:
    if len(rows) != 1:
        return None
    (row,) = rows
    if not float(row["train_s"]) > 0:
        return None
    return Half(
        tokens_per_s=float(row["tokens"]) / float(row["train_s"]),
        startup_s=float(row["startup_s"]),
        peak_allocated_bytes=int(row["peak_allocated_bytes"]),
        peak_reserved_bytes=int(row["peak_reserved_bytes"]),
    )


_LINES_AT_ONCE = 4096
_FORESEEN = ByRows[dict[tuple[str, ...], int]]()
_FORESEEN_COSTS = ByRows[dict[tuple[str, str], "Costs"]]()


def foresee(windows: Sequence[Row]) -> None:
    """Count the microbatches of all windows before they are asked for."""
    _FORESEEN.put(windows, _counted(windows))


def foresee_costs(pairs: Sequence[Row]) -> None:
    """Take the medians of `costs_by_workload` before they are asked for."""
    _FORESEEN_COSTS.put(pairs, _costs_of(pairs))


def _microbatches(windows: Sequence[Row]) -> dict[tuple[str, ...], int]:
    """Return the microbatches of each measurement, by the texts of its pair's key and whether it is the baseline."""
    return _FORESEEN.take(windows, lambda: _counted(windows))


def _counted(windows: Sequence[Row]) -> dict[tuple[str, ...], int]:
    # By their texts, column by column, since there may be millions of windows.
    names = (*_PAIR, "side", "microbatches")
    lines = texts(windows)
    by_side: dict[tuple[str, ...], int] = defaultdict(int)
    for begin in range(0, len(lines), _LINES_AT_ONCE):
        *key, number = columns_of(WINDOWS, lines[begin : begin + _LINES_AT_ONCE], names)
        for own, count in zip(zip(*key, strict=True), map(int, number), strict=True):
            by_side[own] += count
    found: dict[tuple[str, ...], int] = defaultdict(int)
    for (*pair, side), count in by_side.items():
        found[*pair, str(side == "baseline")] += count
    return found


def pairs_of(rows: Sequence[Row], windows: Sequence[Row] = ()) -> list[Pair]:
    """Return all pairs, those of attempts that do not count included, candidates before controls.

    Args:
        rows: Of pairs.csv.
        windows: Of windows.csv.
    """
    if not rows:
        return []
    found: list[Pair] = []
    microbatches = _microbatches(windows)
    measured = sorted((dict(row.values) for row in rows), key=_PLACE)
    for names, group in itertools.groupby(measured, key=_PLACE):
        ordered = sorted(group, key=operator.itemgetter("position"))
        first = ordered[0]
        key = tuple(map(str, names))
        found.append(
            Pair(
                comparison=str(first["comparison"]),
                workload=str(first["workload"]),
                repeat=int(first["repeat"]),
                pair=int(first["pair"]),
                attempt=int(first["attempt"]),
                allocation=str(first["allocation"]),
                node=str(first["node"]),
                order=tuple(str(row["side"]) for row in ordered),
                updates=int(first["updates"]),
                microbatches=(microbatches.get((*key, "True")), microbatches.get((*key, "False"))),
                baseline=_half([row for row in ordered if row["side"] == "baseline"]),
                other=_half([row for row in ordered if row["side"] != "baseline"]),
            )
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Medians of start-up and memory of one side over a workload's measurements."""

    startup_s: float
    peak_allocated_bytes: float
    peak_reserved_bytes: float


def costs_by_workload(rows: Sequence[Row]) -> dict[tuple[str, str], Costs]:
    """Return the median costs by (workload, side) over the candidate's pairs, all attempts."""
    return _FORESEEN_COSTS.take(rows, lambda: _costs_of(rows))


def _costs_of(rows: Sequence[Row]) -> dict[tuple[str, str], Costs]:
    if not rows:
        return {}
    table = frame(rows)
    table = table[table["comparison"] == "candidate"]
    names = list(Costs.__dataclass_fields__)
    medians = table.groupby(["workload", "side"], sort=True)[names].median()
    return {
        (str(workload), str(side)): Costs(**{name: float(row[name]) for name in names})
        for (workload, side), row in zip(medians.index, medians.to_dict("records"), strict=True)
    }


def _geometric_mean(ratios: Sequence[Decimal]) -> Decimal:
    """Return exp(mean ln r), the ratio of a repeat with several pairs; a single pair's ratio is returned as it is."""
    if len(ratios) == 1:
        return ratios[0]
    return (sum((ratio.ln() for ratio in ratios), Decimal(0)) / len(ratios)).exp()


def by_workload(ratios: Sequence[Ratio], comparison: str) -> dict[str, dict[int, Decimal]]:
    """Return the ratios of one comparison by workload and repeat.

    Exact decimals, not a frame of floats: a ratio on its gate must print as one.
    """

    def place(ratio: Ratio) -> tuple[str, int]:
        return ratio.workload, ratio.repeat

    chosen = sorted((ratio for ratio in ratios if ratio.comparison == comparison), key=place)
    table: dict[str, dict[int, Decimal]] = {}
    for (workload, repeat), group in itertools.groupby(chosen, key=place):
        table.setdefault(workload, {})[repeat] = _geometric_mean([Decimal(ratio.ratio) for ratio in group])
    return table
