"""What became of the attempts on every node, and which nodes got no more jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.numbers import count
from reports.view import Cell, Table, code, columns, number, text

_NUMERIC = ("Allocations", "Completed")


def node_table(provenance: Mapping[str, Any]) -> Table | None:
    """Return the nodes with what ended there; None for provenance that was written before it told them."""
    nodes = provenance.get("node_records")
    if nodes is None:
        return None
    return Table(
        name="nodes",
        caption="What ended on each node, and which nodes got no more jobs",
        columns=columns("Node", *_NUMERIC, "Ended otherwise", "No more jobs since", numeric=_NUMERIC),
        rows=tuple(
            (
                code(node["node"]),
                number(count(node["allocations"]), node["allocations"]),
                number(count(node["completed"]), node["completed"]),
                text(_endings(node["endings"])),
                _excluded(node),
            )
            for node in nodes
        ),
        empty="Nothing ran.",
        file="provenance.json",
    )


def _endings(endings: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in endings.items()) or "none"


def _excluded(node: Mapping[str, Any]) -> Cell:
    if not node["excluded_seq"]:
        return text("never kept out")
    return Cell(text=f"ledger entry {node['excluded_seq']}", note=node["excluded"])
