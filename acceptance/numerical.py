"""The numerical gates: point rules on the worst of a workload's matched updates and isolated checks.

loss                   |c - b| / (atol + rtol |b|) <= 1
gradients, parameters,
updates                relative L2 error over all tensors < the quantity's threshold
optimizer, consensus   |error| / (atol + rtol |reference|) <= 1; a single worker has no consensus to check
<quantity>/tensors     the largest error of a single tensor <= the quantity's threshold, where the protocol lists it

The control never loosens a gate: one that breaks the same rules makes the case invalid.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from acceptance.arithmetic import to_double
from acceptance.check_numerical import Case
from acceptance.checks import Checked
from acceptance.gates import Comparison, Finding, Gate, PointRule, guarded, join_reasons, missing_family, worst
from acceptance.numerical_rules import GATED_QUANTITIES, REQUIRABLE, NumericalRules
from acceptance.plan import Plan
from acceptance.protocol import Slot
from acceptance.readings import Reading, State, View, view_of
from acceptance.readings import worst as worst_reading
from acceptance.rows import NumericalRow

FAMILY = "numerical"
MOMENTS = ("exp_avg", "exp_avg_sq")
"""Compared and shown, and gated only in that they must be finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One rule of a workload's case and which rows it reads."""

    rule: PointRule
    quantity: str
    view: View

    def worst_of(self, rules: NumericalRules, case: Case) -> Reading:
        """Return a case's worst reading.

        Raises:
            KeyError: The case has no rows of the quantity.
        """
        return worst_reading(rules, self.view, case.rows[self.quantity])


_STATISTICS = {
    View.LOSS: "worst_loss_error",
    View.GLOBAL: "worst_rel_l2",
    View.ISOLATED: "worst_isolated_error",
    View.TENSOR: "worst_tensor_rel_l2",
}


def threshold_of(rules: NumericalRules, quantity: str) -> Decimal | None:
    """Return what a quantity's own gate compares with; None where it has no gate."""
    if view_of(quantity) is not View.GLOBAL:
        return Decimal(1)
    return rules.thresholds.get(quantity)


def measures(rules: NumericalRules, workload: str, workers: int) -> list[Measure]:
    """Return the rules of one workload.

    Args:
        rules: The rules of the family.
        workload: The workload's name.
        workers: How many workers it has; 0 if that is not known, which makes evidence missing elsewhere.
    """
    quantities = ["loss", *GATED_QUANTITIES, "optimizer", *(["consensus"] if workers > 1 else [])]
    found = [_measure(rules, workload, quantity) for quantity in quantities]
    return found + [
        Measure(
            rule=PointRule(
                id=f"{FAMILY}/{workload}/{quantity}/tensors",
                family=FAMILY,
                subject=workload,
                statistic=_STATISTICS[View.TENSOR],
                comparison=Comparison.AT_MOST,
                threshold=rules.tensor_thresholds[quantity],
            ),
            quantity=quantity,
            view=View.TENSOR,
        )
        for quantity in rules.gated_tensors
    ]


def _measure(rules: NumericalRules, workload: str, quantity: str) -> Measure:
    view = view_of(quantity)
    return Measure(
        rule=PointRule(
            id=f"{FAMILY}/{workload}/{quantity}",
            family=FAMILY,
            subject=workload,
            statistic=_STATISTICS[view],
            comparison=Comparison.BELOW if view is View.GLOBAL else Comparison.AT_MOST,
            threshold=rules.thresholds[quantity] if view is View.GLOBAL else Decimal(1),
        ),
        quantity=quantity,
        view=view,
    )


def gates(plan: Plan, checked: Checked) -> list[Gate]:
    """Evaluate every numerical gate that the protocol declares.

    Args:
        plan: What is expected.
        checked: The evidence after all checks.
    """
    rules = plan.protocol.numerical
    compared = [item.name for item in plan.protocol.workloads if item.numerical]
    if rules is None or not compared:
        return [missing_family(FAMILY, "the protocol has no workload to compare: nothing could show a miss")]
    return [gate for name in compared for gate in _workload_gates(plan, rules, checked, name)]


def _workload_gates(plan: Plan, rules: NumericalRules, checked: Checked, workload: str) -> list[Gate]:
    slots = [plan.cases["candidate", workload]]
    if rules.controls:
        slots.append(plan.cases["control", workload])
    found = [checked.cases[slot.slot] for slot in slots if slot.slot in checked.cases]
    own = measures(rules, workload, max((case.workers for case in found), default=0))
    broken = functools.cache(lambda: _control_faults(rules, own, checked, slots[1:]))
    found_gates = [_gate(rules, measure, checked, slots, broken) for measure in own]
    if found and rules.requires("consensus") and all(case.workers == 1 for case in found):
        found_gates.append(_alone(rules, checked, workload))
    return found_gates


def _alone(rules: NumericalRules, checked: Checked, workload: str) -> Gate:
    """Return the gate of a consensus that is required and that a single worker cannot show.

    A campaign may have workloads of one worker beside others. Where none has several, what is required was never seen.
    """
    rule = _measure(rules, workload, "consensus").rule
    said = f"the protocol requires {REQUIRABLE['consensus']}(), and the case has a single worker: nothing is mixed"
    if any(case.workers > 1 for case in checked.cases.values()):
        return rule.unevaluated(Finding.NOT_EVALUATED, said)
    return rule.unevaluated(Finding.MISSING, f"{said}; no workload has several")


def _gate(
    rules: NumericalRules, measure: Measure, checked: Checked, slots: list[Slot], broken: Callable[[], list[str]]
) -> Gate:
    """Evaluate one rule; `slots` are those of the case and, where the protocol plans one, of its control."""
    rule = measure.rule

    def compute() -> Gate:
        blocking = checked.blocking([slot.slot for slot in slots])
        if blocking:
            reasons = join_reasons(f"{problem.file}: {problem.reason}" for problem in blocking)
            return rule.unevaluated(worst(blocking), f"not computed: {reasons}")
        if broken():
            return rule.unevaluated(Finding.INVALID, f"the control breaks the rules: {join_reasons(broken())}")
        return _judge(rules, measure, checked.cases[slots[0].slot])

    return guarded(rule, compute)


def _control_faults(rules: NumericalRules, own: list[Measure], checked: Checked, slots: list[Slot]) -> list[str]:
    """Return which rules a control breaks; one without a number breaks them too, unless nothing was offered."""
    faults: list[str] = []
    for case in (checked.cases[slot.slot] for slot in slots):
        for measure in own:
            gate = _judge(rules, measure, case)
            if gate.finding in {Finding.MISSED, Finding.INVALID}:
                faults.append(f"{measure.rule.id.removeprefix(f'{FAMILY}/')}: {gate.reason}")
    return faults


def _judge(rules: NumericalRules, measure: Measure, case: Case) -> Gate:
    """Evaluate one rule on the rows of one case."""
    rule, rows = measure.rule, case.rows[measure.quantity]
    reading = _with_moments(rules, measure, case)
    if reading.state is State.VALUE:
        if measure.view is not View.ISOLATED and (empty := _empty_workers(rows)):
            reason = f"the baseline's {measure.quantity} are all zero, so that nothing is compared: worker {empty[0]}"
            return rule.unevaluated(Finding.INVALID, reason, len(rows))
        return rule.evaluated(reading.value, len(rows), reading.place)
    if reading.state is State.NOT_OFFERED:
        method = REQUIRABLE[measure.quantity]
        if rules.requires(measure.quantity):
            return rule.unevaluated(Finding.MISSING, f"the protocol requires {method}(), which a side does not offer")
        return rule.unevaluated(Finding.NOT_EVALUATED, f"a side does not offer {method}()")
    said = "" if reading.row.quantity == measure.quantity else f"{reading.row.quantity} of "
    if reading.state is State.BASELINE_NOT_FINITE:
        return rule.unevaluated(Finding.INVALID, f"the baseline is not finite: {said}{reading.place}", len(rows))
    zero = "differs where nothing is allowed" if measure.view is View.LOSS else "differs from a baseline of zero"
    what = "is not finite" if reading.state is State.NOT_FINITE else zero
    return rule.unevaluated(Finding.MISSED, f"the other side {what}: {said}{reading.place}", len(rows))


def _with_moments(rules: NumericalRules, measure: Measure, case: Case) -> Reading:
    """Return the worst reading of a rule; that of the updates is also one of moments which are not finite.

    Moments have no threshold, since the updates show what they are worth. Numbers that are not finite never pass.
    """
    found = [measure.worst_of(rules, case)]
    if measure.quantity == "updates" and measure.view is View.GLOBAL:
        moments = [worst_reading(rules, View.GLOBAL, case.rows[quantity]) for quantity in MOMENTS]
        found += [reading for reading in moments if reading.state in {State.NOT_FINITE, State.BASELINE_NOT_FINITE}]
    return max(found, key=lambda reading: reading.order)


def _empty_workers(rows: Sequence[NumericalRow]) -> list[int]:
    """Return the workers whose baseline is zero, as a double, in every row."""
    filled = {row.worker for row in rows if row.reference is None or to_double(row.reference)}
    return sorted({row.worker for row in rows} - filled)
