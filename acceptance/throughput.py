"""The throughput gates: point rules on ratios, candidate / baseline.

ratio of a pair      r = (tokens / train_s of the other side) / (tokens / train_s of the baseline)
ratio of a workload  in one repeat: r, or exp(mean ln r) over the repeat's pairs where there are several
category gate        per repeat: median over the category's workloads >= category_threshold
production gate      per workload and repeat: ratio >= production_threshold
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from acceptance import arithmetic
from acceptance.checks import Checked
from acceptance.gates import Comparison, Gate, PointRule, Problem, guarded, join_reasons, missing_family, worst
from acceptance.plan import Plan
from acceptance.protocol import Slot
from acceptance.rows import Measurement

FAMILY = "throughput"


def gates(plan: Plan, checked: Checked) -> list[Gate]:
    """Evaluate every throughput gate that the protocol declares.

    Args:
        plan: What is expected.
        checked: The evidence after all checks.
    """
    found = [*_category_gates(plan, checked), *_production_gates(plan, checked)]
    if found:
        return found
    reason = "the protocol declares neither a category nor a production workload: nothing could show a miss"
    return [missing_family(FAMILY, reason)]


def pair_ratio(rows: Sequence[Measurement]) -> Decimal:
    """Return the ratio of one pair: the other side's tokens / train_s over the baseline's."""
    (baseline,) = [row for row in rows if row.side == "baseline"]
    (other,) = [row for row in rows if row.side != "baseline"]
    return arithmetic.divide(
        arithmetic.rate(other.tokens, other.train_s), arithmetic.rate(baseline.tokens, baseline.train_s)
    )


def slots_of(plan: Plan, workload: str, repeat: int) -> list[Slot]:
    """Return the pairs of one workload in one repeat.

    Raises:
        KeyError: The protocol does not plan one of them.
    """
    pairs = range(1, plan.protocol.throughput.pairs_per_repeat + 1)
    return [plan.measured["candidate", workload, repeat, pair] for pair in pairs]


def workload_ratio(plan: Plan, checked: Checked, workload: str, repeat: int) -> Decimal:
    """Return the ratio of one workload in one repeat."""
    return arithmetic.geometric_mean(
        [pair_ratio(checked.counted[slot.slot]) for slot in slots_of(plan, workload, repeat)]
    )


def _category_gates(plan: Plan, checked: Checked) -> list[Gate]:
    rules = plan.protocol.throughput
    return [
        _gate(
            PointRule(
                id=f"{FAMILY}/{category.name}/repeat-{repeat}",
                family=FAMILY,
                subject=category.name,
                statistic="median_ratio",
                comparison=Comparison.AT_LEAST,
                threshold=rules.category_threshold,
            ),
            plan,
            checked,
            category.workloads,
            repeat,
        )
        for category in plan.protocol.categories
        for repeat in range(1, rules.repeats + 1)
    ]


def _production_gates(plan: Plan, checked: Checked) -> list[Gate]:
    rules = plan.protocol.throughput
    return [
        _gate(
            PointRule(
                id=f"{FAMILY}/production/{workload.name}/repeat-{repeat}",
                family=FAMILY,
                subject=workload.name,
                statistic="ratio",
                comparison=Comparison.AT_LEAST,
                threshold=rules.production_threshold,
            ),
            plan,
            checked,
            (workload.name,),
            repeat,
        )
        for workload in plan.protocol.workloads
        if workload.production
        for repeat in range(1, rules.repeats + 1)
    ]


def _gate(rule: PointRule, plan: Plan, checked: Checked, workloads: tuple[str, ...], repeat: int) -> Gate:
    """Evaluate one rule on the median of its workloads' ratios; a single workload is its own median."""

    def compute() -> Gate:
        slots = [slot.slot for workload in workloads for slot in slots_of(plan, workload, repeat)]
        blocking = checked.blocking(slots)
        if blocking:
            return _blocked(rule, blocking)
        ratios = [workload_ratio(plan, checked, workload, repeat) for workload in workloads]
        return rule.evaluated(arithmetic.median(ratios), len(ratios))

    return guarded(rule, compute)


def _blocked(rule: PointRule, problems: Sequence[Problem]) -> Gate:
    reasons = join_reasons(f"{problem.file}: {problem.reason}" for problem in problems)
    return rule.unevaluated(worst(problems), f"not computed: {reasons}")
