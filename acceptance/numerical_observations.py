"""What is shown beside the numerical gates: worst values, curves, flags and blindness. None of it gates anything.

Cases with a fault in their own evidence are left out; so are readings of what was not offered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from acceptance import arithmetic
from acceptance.check_numerical import Case
from acceptance.checks import Checked
from acceptance.formats import COMPARISONS, GLOBAL_QUANTITIES, QUANTITIES
from acceptance.numerical import measures, threshold_of
from acceptance.numerical_rules import NumericalRules
from acceptance.plan import Plan
from acceptance.readings import Reading, State, View, read, view_of, worst
from acceptance.rows import NumericalRow
from acceptance.vacuity import sight

_MOMENTS = ("exp_avg", "exp_avg_sq")

_SHOWN: dict[str, tuple[str, ...]] = {
    **{quantity: (quantity,) for quantity in QUANTITIES if quantity not in {"optimizer", "consensus"}},
    "moments": _MOMENTS,
    "optimizer": ("optimizer",),
    "consensus": ("consensus",),
}
"""The lines of the table, and the quantities whose worst each one shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """The cases that can be shown, in the order of the protocol's workloads."""

    rules: NumericalRules
    cases: tuple[Case, ...]

    def of(self, comparison: str, workload: str = "") -> list[Case]:
        """Return the cases of one comparison, of one workload or of all."""
        return [case for case in self.cases if case.comparison == comparison and workload in {"", case.slot.workload}]

    def worst(self, cases: Sequence[Case], quantities: Sequence[str]) -> Reading | None:
        """Return the worst reading of some quantities over some cases; None where there is none."""
        found = [self._worst(case, quantity) for case in cases for quantity in quantities]
        offered = [reading for reading in found if reading is not None and reading.state is not State.NOT_OFFERED]
        return max(offered, key=lambda reading: reading.order) if offered else None

    def _worst(self, case: Case, quantity: str) -> Reading | None:
        rows = case.rows.get(quantity)
        return worst(self.rules, view_of(quantity), rows) if rows else None


def observe(plan: Plan, checked: Checked) -> dict[str, Any] | None:
    """Return the observations of the numerical family; None where it is not declared.

    Args:
        plan: What is expected.
        checked: The evidence after all checks.
    """
    rules = plan.protocol.numerical
    if rules is None:
        return None
    workloads = [workload.name for workload in plan.protocol.workloads]
    slots = [plan.cases.get((comparison, name)) for name in workloads for comparison in COMPARISONS]
    usable = [slot.slot for slot in slots if slot is not None and not checked.blocking([slot.slot])]
    cases = tuple(checked.cases[name] for name in usable if name in checked.cases)
    seen = _Seen(rules=rules, cases=cases)
    return {
        "moments": rules.moments,
        "updates": rules.updates,
        "isolated_scalars": rules.isolated_scalars,
        "quantities": [_quantity(seen, name) for name in _SHOWN],
        "cases": [_case(rules, case) for case in cases],
        "flags": [flag for name in workloads for flag in (*_control_flags(seen, name), *_tensor_flags(seen, name))],
        "vacuity": [entry for case in seen.of("control") for entry in _vacuity(rules, case, checked)],
    }


# --- the worst of each quantity ---------------------------------------------------------------------------------------


def _quantity(seen: _Seen, name: str) -> dict[str, Any]:
    candidate, control = (seen.worst(seen.of(comparison), _SHOWN[name]) for comparison in COMPARISONS)
    threshold = threshold_of(seen.rules, name)
    return {
        "quantity": name,
        "gated": threshold is not None,
        "threshold": None if threshold is None else arithmetic.to_double(threshold),
        "candidate": _worst(candidate),
        "control": _worst(control),
        "ratio": _ratio(candidate, control),
        "flagged": _limit(seen.rules, candidate, control) is not None,
    }


def _worst(reading: Reading | None) -> dict[str, Any] | None:
    if reading is None:
        return None
    row = reading.row
    return {
        "value": reading.shown,
        "workload": row.workload,
        "update": row.update,
        "worker": row.worker,
        "tensor": row.worst_tensor,
        "tensor_value": None if row.worst_rel_l2 is None else arithmetic.to_double(row.worst_rel_l2),
    }


def _ratio(candidate: Reading | None, control: Reading | None) -> float | None:
    """Return candidate / control where both are numbers and the quotient is one."""
    if candidate is None or control is None or candidate.shown is None or not control.shown:
        return None
    quotient = arithmetic.divide(candidate.value, control.value)
    return arithmetic.to_double(quotient) if quotient <= arithmetic.LARGEST else None


def _limit(rules: NumericalRules, candidate: Reading | None, control: Reading | None) -> float | None:
    """Return control_factor times the control's worst if the candidate's is above it, else None."""
    if candidate is None or control is None or control.shown is None:
        return None
    limit = arithmetic.multiply(rules.control_factor, control.value)
    exceeded = candidate.shown is None or candidate.value > limit
    return arithmetic.to_double(limit) if exceeded else None


# --- the cases --------------------------------------------------------------------------------------------------------


def _case(rules: NumericalRules, case: Case) -> dict[str, Any]:
    first = case.rows["loss"][0]
    curves = {
        quantity: _curve(rules, quantity, case.rows[quantity]) for quantity in QUANTITIES if case.rows.get(quantity)
    }
    return {
        "workload": case.slot.workload,
        "comparison": case.comparison,
        "attempt": case.attempt,
        "executor": first.executor,
        "serialized": first.serialized,
        "workers": case.workers,
        "curves": {quantity: curve for quantity, curve in curves.items() if curve is not None},
    }


def _curve(rules: NumericalRules, quantity: str, rows: Sequence[NumericalRow]) -> list[float | None] | None:
    """Return the worst over the workers for each update; None if it was not offered."""
    readings = [
        worst(rules, view_of(quantity), [row for row in rows if row.update == update])
        for update in sorted({row.update for row in rows})
    ]
    if any(reading.state is State.NOT_OFFERED for reading in readings):
        return None
    return [reading.shown for reading in readings]


# --- flags ------------------------------------------------------------------------------------------------------------


def _control_flags(seen: _Seen, workload: str) -> list[dict[str, Any]]:
    """Return a flag for every quantity that is above so many times the workload's own control."""
    flags: list[dict[str, Any]] = []
    for quantity in QUANTITIES:
        candidate, control = (seen.worst(seen.of(comparison, workload), (quantity,)) for comparison in COMPARISONS)
        limit = _limit(seen.rules, candidate, control)
        if candidate is not None and control is not None and limit is not None:
            rows = [row for case in seen.of("candidate", workload) for row in case.rows[quantity]]
            readings = [read(seen.rules, view_of(quantity), row) for row in rows]
            above = sum(_limit(seen.rules, reading, control) is not None for reading in readings)
            flags.append(_flag("control_factor", candidate, limit, rows=above))
    return flags


def _tensor_flags(seen: _Seen, workload: str) -> list[dict[str, Any]]:
    """Return a flag for every case and quantity with a tensor above its threshold, at its worst."""
    flags: list[dict[str, Any]] = []
    for case in [case for comparison in COMPARISONS for case in seen.of(comparison, workload)]:
        for quantity in GLOBAL_QUANTITIES:
            threshold = seen.rules.tensor_thresholds[quantity]
            readings = [read(seen.rules, View.TENSOR, row) for row in case.rows[quantity]]
            above = sum(reading.shown is None or not (reading.value <= threshold) for reading in readings)
            if above:
                reading = worst(seen.rules, View.TENSOR, case.rows[quantity])
                flags.append(_flag("tensor", reading, arithmetic.to_double(threshold), rows=above))
    return flags


def _flag(kind: str, reading: Reading, limit: float, *, rows: int) -> dict[str, Any]:
    """Return a flag at its worst, with the number of rows that are above the limit."""
    row = reading.row
    return {
        "kind": kind,
        "workload": row.workload,
        "comparison": row.comparison,
        "quantity": row.quantity,
        "update": row.update,
        "worker": row.worker,
        "tensor": row.worst_tensor,
        "value": reading.shown,
        "limit": limit,
        "rows": rows,
    }


# --- blindness --------------------------------------------------------------------------------------------------------


def _vacuity(rules: NumericalRules, case: Case, checked: Checked) -> list[dict[str, Any]]:
    """Return for each gate over all tensors, and that of the loss, which faults it would have seen.

    The other gates have no readings: a fault is known of whole quantities only.
    """
    rows = checked.vacuities.get(case.slot.slot)
    if rows is None:
        return []
    sights = [
        sight(rules, measure.rule, measure.quantity, case, rows)
        for measure in measures(rules, case.slot.workload, case.workers)
        if measure.view in {View.LOSS, View.GLOBAL}
    ]
    return [
        {
            "workload": case.slot.workload,
            "quantity": own.quantity,
            "readings": own.readings,
            "seen": list(own.seen),
            "unseen": list(own.unseen),
            "discriminating": own.discriminating,
        }
        for own in sights
    ]
