"""The gates as strip, tables and rows to download."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.matched import place_of
from reports.numbers import ABSENT, count, plural
from reports.status import Mark, mark_of_outcome, severity
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


_FOLDED = (Mark.PASS, Mark.NOT_EVALUATED)
"""What the gate table may fold; whatever blocks always has an open row."""
_MOST_CHIPS = 4
"""So many gates that block for one quantity have chips of their own in the strip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Numerical gates of several workloads with one quantity, one rule and one outcome."""

    label: str
    mark: Mark
    rule: str
    gates: tuple[Gate, ...]

    @property
    def folded(self) -> bool:
        """Return whether its gates have a table of their own, folded."""
        return self.mark in _FOLDED and len(self.gates) > 1

    @property
    def name(self) -> str:
        """Return the id of the table that its gates are in."""
        return f"gates-{self.label}-{self.mark.value}-{self.rule}".translate(_ID) if self.folded else "gates"

    @property
    def tightest(self) -> Gate | None:
        """Return the gate with the smallest margin; None if none has one."""
        known = [gate for gate in self.gates if gate.margin is not None]
        return min(known, key=lambda gate: gate.margin or 0, default=None)

    @property
    def title(self) -> str:
        """Return what it holds."""
        return f"numerical, {self.label}: {plural(len(self.gates), 'workload')}"


_ID = {ord(" "): "-", ord(","): "", ord("<"): "below", ord("\u2264"): "at-most", ord("\u2265"): "at-least"}


def grouped(gates: Sequence[Gate]) -> tuple[list[Gate], list[Group]]:
    """Return the gates that are no numerical ones, and the groups of those that are, in the verdict's order.

    With a gate of each quantity for each workload the numerical family has hundreds.
    """
    others: list[Gate] = []
    members: dict[tuple[str, Mark, str], list[Gate]] = {}
    for gate in gates:
        place = place_of(gate)
        if place is None:
            others.append(gate)
        else:
            members.setdefault((place.label, gate.mark, gate.rule), []).append(gate)
    groups = [
        Group(label=label, mark=mark, rule=rule, gates=tuple(found)) for (label, mark, rule), found in members.items()
    ]
    return others, groups


def _open_gates(gates: Sequence[Gate]) -> list[Gate]:
    """Return the gates with an open row, failed first."""
    folded = {gate.id for group in grouped(gates)[1] if group.folded for gate in group.gates}
    return [gate for gate in failed_first(gates) if gate.id not in folded]


def _chip(gate: Gate) -> Chip:
    return Chip(gate=gate.id, mark=gate.mark, value=gate.shown(gate.value), rule=gate.rule, reason=gate.reason)


def _group_chips(group: Group) -> list[Chip]:
    if not group.folded and len(group.gates) <= _MOST_CHIPS:
        return [_chip(gate) for gate in group.gates]
    tightest = group.tightest
    value = tightest.shown(tightest.value) if tightest else ABSENT
    note = f"the smallest margin is that of {tightest.id}" if tightest else _common_reason(group)
    return [Chip(gate=group.title, mark=group.mark, value=value, rule=group.rule, reason=note, target=group.name)]


def _common_reason(group: Group) -> str:
    reasons = sorted({gate.reason for gate in group.gates})
    return reasons[0] if len(reasons) == 1 else f"{len(reasons)} different reasons"


def chips(gates: Sequence[Gate]) -> tuple[Chip, ...]:
    """Return the strip of all gates, failed first; many numerical gates of one quantity share a chip."""
    others, groups = grouped(gates)
    place = {gate.id: index for index, gate in enumerate(gates)}
    found = [(place[gate.id], _chip(gate)) for gate in others]
    found += [(place[group.gates[0].id], chip) for group in groups for chip in _group_chips(group)]
    return tuple(chip for _, chip in sorted(found, key=lambda item: (severity(item[1].mark), item[0])))


def group_tables(gates: Sequence[Gate]) -> tuple[Table, ...]:
    """Return the numerical gates that do not block, by quantity."""
    groups = sorted(grouped(gates)[1], key=lambda group: severity(group.mark))
    return tuple(_group_table(group) for group in groups if group.folded)


def _group_table(group: Group) -> Table:
    rule = f" {group.rule}" if group.rule else ""
    return Table(
        name=group.name,
        caption=f"{group.title}, {group.mark.word}{rule}",
        columns=columns("Gate", "Estimate", "Margin", "n", numeric=("Estimate", "Margin", "n")),
        rows=tuple(
            (
                Cell(text=gate.id, code=True, note=gate.reason),
                _figure(gate, gate.value),
                number(gate.shown_margin, gate.margin),
                number(count(gate.n), gate.n),
            )
            for gate in group.gates
        ),
        long=True,
        file="gates.csv",
    )


def _figure(gate: Gate, value: Number) -> Cell:
    return number(gate.shown(value), value)


def gate_table(gates: Sequence[Gate]) -> Table:
    """Return every gate with its numbers, failed first, but those in groups."""
    shown = _open_gates(gates)
    return Table(
        name="gates",
        caption=(
            "Every gate, failed first"
            if len(shown) == len(gates)
            else "Every gate, failed first; the numerical gates that do not block are grouped by quantity below"
        ),
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
            for gate in shown
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
