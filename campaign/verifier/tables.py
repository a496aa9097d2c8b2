"""Evidence tables as an attempt left them: is each row of this very attempt, and are there as many as were sealed?

What the numbers mean is for the frozen acceptance program. Here it only matters whose they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from . import names
from .facts import Facts, Planned, Sealed, Slot
from .findings import EvidenceError
from .strict import Node

PAIRS, WINDOWS, BASELINE = "pairs.csv", "windows.csv", "baseline.csv"
NUMERICAL, VACUITY = "numerical.csv", "vacuity.csv"
CONVERGENCE, CURVES = "convergence.csv", "curves.csv"
WRITES: Mapping[str, tuple[str, ...]] = {
    "pilot": (),
    "solo": (BASELINE,),
    "control_pair": (PAIRS, WINDOWS),
    "pair": (PAIRS, WINDOWS),
    "control_case": (NUMERICAL, VACUITY),
    "case": (NUMERICAL,),
    "run": (CONVERGENCE, CURVES),
}
"""The tables that a completed attempt of each kind leaves."""

Row = Mapping[str, str]


def headers(facts: Facts) -> Mapping[str, Sequence[str]]:
    """Return the header of every evidence table, as it was frozen; see docs/formats.md."""
    found = facts.memo.get("headers")
    if not isinstance(found, dict):
        node = Node(facts.protocol, names.PROTOCOL)["headers"]
        found = facts.memo["headers"] = {name: header.as_texts() for name, header in node.fields()}
    return found


def workloads(facts: Facts) -> Mapping[str, Mapping[str, Any]]:
    """Return the protocol's workloads by name."""
    found = facts.memo.get("workloads")
    if not isinstance(found, dict):
        nodes = Node(facts.protocol, names.PROTOCOL)["workloads"].items()
        found = facts.memo["workloads"] = {node["name"].as_text(): node.as_fields() for node in nodes}
    return found


def parse(data: bytes, header: Sequence[str], where: str) -> list[dict[str, str]]:
    """Return the rows of a table, as text by column.

    Args:
        data: Its bytes.
        header: The frozen header.
        where: The file, relative to the home.

    Raises:
        EvidenceError: It is not such a table.
    """
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise EvidenceError(where, f"not UTF-8: {error}") from error
    if lines.pop():
        raise EvidenceError(where, "the last line has no newline")
    if not lines or lines[0].split(",") != list(header):
        found = lines[0][:200] if lines else "nothing"
        raise EvidenceError(f"{where}:1", f"the header is {found!r}, frozen was {','.join(header)!r}")
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        fields = line.split(",")
        if len(fields) != len(header):
            raise EvidenceError(f"{where}:{number}", f"{len(fields)} fields, the header has {len(header)}")
        rows.append(dict(zip(header, fields, strict=True)))
    return rows


def rows_of(facts: Facts, sealed: Sealed, table: str) -> list[dict[str, str]]:
    """Return the rows of one table of an attempt that is whole.

    Raises:
        EvidenceError: The attempt has no such table.
    """
    where = f"{sealed.folder}/{table}"
    if table not in sealed.tables:
        raise EvidenceError(where, "is not there")
    return parse(sealed.tables[table], headers(facts)[table], where)


def faults(own: Row, rows: Sequence[Row]) -> Iterator[tuple[int, str]]:
    """Yield the line and the reason of every row that is not of an attempt.

    Args:
        own: See `owner`.
        rows: What a table holds.
    """
    for number, row in enumerate(rows, start=2):
        for column, value in own.items():
            if row.get(column, value) != value:
                yield number, f"{column} is {row[column]!r}, and this attempt's is {value!r}"


def owner(facts: Facts, slot: Slot, planned: Planned, start: Node) -> dict[str, str]:
    """Return what the columns that say whose a row is must say in every row of an attempt."""
    found = {
        "attempt": str(planned.attempt),
        "allocation": planned.allocation,
        "node": start["host"]["node"].as_text(),
        "device": start["device"].as_text(),
    }
    if slot.kind == "run":
        return {**found, "recipe": slot.workload, "seed": seed_of(planned.slot), "side": slot.side}
    workload = workloads(facts).get(slot.workload, {})
    return {
        **found,
        "workload": slot.workload,
        "comparison": "control" if slot.kind.startswith("control") else "candidate",
        "category": str(workload.get("category", "")),
        "production": "true" if workload.get("production") is True else "false",
        "repeat": str(slot.repeat),
        "pair": str(slot.pair),
    }


def seed_of(slot: str) -> str:
    """Return the seed in the name of a run's slot."""
    return slot.rpartition("/s")[2]
