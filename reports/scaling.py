"""What more processes gain: workloads of one configuration, measured in several topologies. Gates nothing."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from acceptance.formats import Row
from reports.numbers import against, count, plural, significant
from reports.source import Source
from reports.view import Cell, Table, code, columns, number, text

SAME_WORK = 0.01
"""Relative difference in targets per update up to which two topologies do the same work: batches may be padded."""
_NUMBERS = (
    "Targets per update",
    "Measurements",
    "End to end, tokens/s",
    "Efficiency, end to end",
    "Training, tokens/s",
    "Efficiency, training",
)
SENTENCE = (
    "The same configuration in several topologies. Efficiency is the rate per process against that of the topology "
    "with the fewest processes of the same side; 1 is perfect. End to end is everything from set-up to the collected "
    "result, which a short measurement pays for with its start; training is the windows alone. Medians over the "
    "measurements that count. Nothing here decides."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """One workload on one side, medians over its measurements."""

    workload: str
    side: str
    processes: int
    nodes: int
    exchange: str
    synchronisation: str
    measurements: int
    targets_per_update: float
    end_to_end: float
    """Targets per second of elapsed time."""
    training: float
    """Targets per second of the windows."""

    @property
    def topology(self) -> str:
        """Return how many processes ran where."""
        if self.processes == 1:
            return "1 process"
        return f"{plural(self.processes, 'process', 'processes')} on {plural(self.nodes, 'node')}"


def table(source: Source) -> Table | None:
    """Return rates and efficiencies by configuration and side; None where no configuration has several topologies.

    Args:
        source: What was read.
    """
    groups = _groups(source.protocol)
    if not groups:
        return None
    measured = _measured(source)
    words = {(one["workload"], one["side"]): one for one in source.provenance.get("exchanges", ())}
    rows: list[tuple[Cell, ...]] = []
    for group in groups:
        for side in ("baseline", "candidate"):
            rates = [
                _rates(workload, side, measured[workload["name"], side], words.get((workload["name"], side), {}))
                for workload in group
                if measured.get((workload["name"], side))
            ]
            rows.extend(_row(one, rates[0]) for one in rates)
    return Table(
        name="scaling",
        caption="Scaling: the same configuration in several topologies; gates nothing",
        columns=columns(
            "Workload", "Side", "Topology", "Exchange", "Synchronisation", *_NUMBERS, numeric=_NUMBERS
        ),
        rows=tuple(rows),
        empty="None of these workloads has a measurement that counts.",
    )  # fmt: skip


def _groups(protocol: Mapping[str, Any]) -> list[list[Mapping[str, Any]]]:
    """Return the workloads that share a configuration and differ in topology, those with the fewest processes first."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for workload in protocol["workloads"]:
        found.setdefault(workload["config_sha256"], []).append(workload)
    return [sorted(group, key=_topology) for group in found.values() if len({_topology(one) for one in group}) > 1]


def _topology(workload: Mapping[str, Any]) -> tuple[int, int]:
    return workload.get("processes", 1), workload.get("nodes", 1)


def _measured(source: Source) -> dict[tuple[str, str], list[Row]]:
    """Return the rows of the candidate's pairs that count, by workload and side."""
    counted = set(_counted(source))
    found: dict[tuple[str, str], list[Row]] = {}
    for row in source.tables.get("pairs.csv", ()):
        own = row.values
        if (
            own["comparison"] == "candidate"
            and (own["workload"], own["repeat"], own["pair"], own["attempt"]) in counted
            and float(own["train_s"]) > 0
            and float(own["elapsed_s"]) > 0
        ):
            found.setdefault((str(own["workload"]), str(own["side"])), []).append(row)
    return found


def _counted(source: Source) -> Iterator[tuple[Any, ...]]:
    """Yield workload, repeat, pair and attempt of every pair that counts: the first completed attempt of its slot."""
    first: dict[str, int] = {}
    for row in source.tables.get("attempts.csv", ()):
        if row.values["ending"] == "completed":
            slot, attempt = str(row.values["slot"]), int(row.values["attempt"])
            first[slot] = min(attempt, first.get(slot, attempt))
    for slot in source.protocol["slots"]:
        owner, _, rest = slot["slot"].partition("/")
        name = f"{source.identity['candidate']}/{rest}" if owner == "candidate" else slot["slot"]
        if slot["kind"] == "pair" and name in first:
            yield slot["workload"], slot["repeat"], slot["pair"], first[name]


def _rates(workload: Mapping[str, Any], side: str, rows: Sequence[Row], words: Mapping[str, Any]) -> Rates:
    processes, nodes = _topology(workload)

    def median(over: str) -> float:
        return statistics.median(float(row.values["tokens"]) / float(row.values[over]) for row in rows)

    return Rates(
        workload=workload["name"],
        side=side,
        processes=processes,
        nodes=nodes,
        exchange="none" if processes == 1 else str(words.get("exchange", "")),
        synchronisation="none" if processes == 1 else str(words.get("synchronisation", "")),
        measurements=len(rows),
        targets_per_update=median("updates"),
        end_to_end=median("elapsed_s"),
        training=median("train_s"),
    )


def efficiency(rate: float, reference: float, processes: int, fewest: int) -> float | None:
    """Return rate / reference * fewest / processes; None without a reference.

    Args:
        rate: Targets per second of these processes.
        reference: Of the fewest.
        processes: How many there are.
        fewest: How many the fewest are.
    """
    return rate / reference * fewest / processes if reference > 0 else None


def _row(own: Rates, fewest: Rates) -> tuple[Cell, ...]:
    return (
        code(own.workload),
        text(own.side),
        text(own.topology),
        text(own.exchange),
        text(own.synchronisation),
        number(significant(own.targets_per_update, digits=4), own.targets_per_update),
        number(count(own.measurements), own.measurements),
        number(significant(own.end_to_end, digits=4), own.end_to_end),
        _efficiency(own, fewest, own.end_to_end, fewest.end_to_end),
        number(significant(own.training, digits=4), own.training),
        _efficiency(own, fewest, own.training, fewest.training),
    )


def _efficiency(own: Rates, fewest: Rates, rate: float, reference: float) -> Cell:
    difference = abs(own.targets_per_update - fewest.targets_per_update)
    if not difference <= SAME_WORK * fewest.targets_per_update:
        return Cell(text="-", note="other work per update")
    found = efficiency(rate, reference, own.processes, fewest.processes)
    return text(None) if found is None else number(against(found, 1), found)
