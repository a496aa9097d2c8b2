"""The gates as strip, tables and rows to download."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.numbers import count
from reports.status import mark_of_outcome
from reports.verdict import Gate, Number, failed_first
from reports.view import Cell, Chip, Table, columns, number, status, text

GATE_FIELDS = (
    "id",
    "family",
    "subject",
    "statistic",
    "value",
    "comparison",
    "threshold",
    "margin",
    "lower",
    "upper",
    "n",
    "outcome",
    "finding",
    "reason",
)
"""Columns of gates.csv."""


def chips(gates: Sequence[Gate]) -> tuple[Chip, ...]:
    """Return the strip of all gates, failed first."""
    return tuple(
        Chip(gate=gate.id, mark=gate.mark, value=gate.shown(gate.value), rule=gate.rule, reason=gate.reason)
        for gate in failed_first(gates)
    )


def _figure(gate: Gate, value: Number) -> Cell:
    return number(gate.shown(value), value)


def gate_table(gates: Sequence[Gate]) -> Table:
    """Return every gate with its numbers, failed first."""
    return Table(
        name="gates",
        caption="Every gate, failed first",
        columns=columns(
            "Gate and reason",
            "Outcome",
            "Statistic",
            "Lower",
            "Estimate",
            "Upper",
            "Threshold",
            "Margin",
            "n",
            numeric=("Lower", "Estimate", "Upper", "Threshold", "Margin", "n"),
        ),
        rows=tuple(
            (
                Cell(text=gate.id, code=True, note=gate.reason),
                status(gate.mark),
                text(gate.statistic.replace("_", " ")),
                _figure(gate, gate.lower),
                _figure(gate, gate.value),
                _figure(gate, gate.upper),
                number(gate.rule or "-", gate.threshold),
                number(gate.shown_margin, gate.margin),
                number(count(gate.n), gate.n),
            )
            for gate in failed_first(gates)
        ),
        empty="The verdict has no gates.",
        file="gates.csv",
    )


def family_table(verdict: Mapping[str, Any]) -> Table:
    """Return the roll-up by family."""
    return Table(
        name="families",
        caption="Families",
        columns=columns("Family", "Outcome", "Passed", "Gates", numeric=("Passed", "Gates")),
        rows=tuple(
            (
                text(name),
                status(mark_of_outcome(family["outcome"])),
                number(count(family["passed"]), family["passed"]),
                number(count(family["total"]), family["total"]),
            )
            for name, family in sorted(verdict["families"].items())
        ),
        empty="No family was declared.",
    )


def gate_rows(gates: Sequence[Gate]) -> list[tuple[str, ...]]:
    """Return the rows of gates.csv, unrounded, in the verdict's order."""
    return [
        tuple("" if getattr(gate, name) is None else str(getattr(gate, name)) for name in GATE_FIELDS) for gate in gates
    ]
