"""The convergence gates: a one-sided upper bound on the paired differences of the final loss, for each recipe.

upper = mean + q s / sqrt(n) < margin      met
lower = mean - q s / sqrt(n) >= margin     missed: shown to be worse
else                                       inconclusive

Where the protocol declares an extension the first seeds are judged alone with a quantile of their own, and all seeds
together only where that was inconclusive.
"""

from __future__ import annotations

from dataclasses import replace

from acceptance.arithmetic import to_double
from acceptance.check_extension import look_at
from acceptance.checks import Checked
from acceptance.convergence_rules import ConvergenceRules, Recipe
from acceptance.gates import Comparison, Finding, Gate, PointRule, guarded, join_reasons, missing_family, worst
from acceptance.looks import Look
from acceptance.plan import Plan

FAMILY = "convergence"
STATISTIC = "upper_95_one_sided"
STATISTIC_OF_TWO = "upper_one_sided"
"""Where an extension is declared: the level of each look is that of its quantile, 97.25% or more."""


def gates(plan: Plan, checked: Checked) -> list[Gate]:
    """Evaluate the gate of every recipe.

    Args:
        plan: What is expected.
        checked: The evidence after all checks.
    """
    rules = plan.protocol.convergence
    if rules is None or not rules.recipes:
        return [missing_family(FAMILY, "the protocol has no recipe: nothing could show a miss")]
    return [_gate(plan, rules, checked, recipe) for recipe in rules.recipes]


def final_look(checked: Checked, recipe: str) -> int:
    """Return the number of the look that decides: the second one where the extension is due."""
    return 2 if recipe in checked.extended else 1


def _gate(plan: Plan, rules: ConvergenceRules, checked: Checked, recipe: Recipe) -> Gate:
    rule = PointRule(
        id=f"{FAMILY}/{recipe.name}",
        family=FAMILY,
        subject=recipe.name,
        statistic=STATISTIC if rules.extension is None else STATISTIC_OF_TWO,
        comparison=Comparison.BELOW,
        threshold=rules.margin,
    )

    def compute() -> Gate:
        number = final_look(checked, recipe.name)
        slots = plan.runs_of(recipe.name, rules.seeds_of(number))
        blocking = checked.blocking([slot.slot for slot in slots])
        if blocking:
            reasons = join_reasons(f"{problem.file}: {problem.reason}" for problem in blocking)
            return rule.unevaluated(worst(blocking), f"not computed: {reasons}")
        look = look_at(plan, rules, checked.runs, recipe.name, look=number, snapshots_differ=checked.snapshots_differ)
        if look is None:
            return rule.unevaluated(Finding.INVALID, "a bound or a loss is beyond 1e300", len(rules.seeds_of(number)))
        return _judged(rule, look, extensible=rules.extension is not None)

    return guarded(rule, compute)


def _judged(rule: PointRule, look: Look, *, extensible: bool) -> Gate:
    """Return the gate of a look, with its bounds unless the differences are none."""
    place = {1: "first look", 2: "second look"}[look.number] if extensible else ""
    reason = ": ".join(filter(None, [place, look.reason]))
    if look.finding is Finding.INVALID:
        return rule.unevaluated(look.finding, reason, len(look.pairs))
    gate = rule.evaluated(look.upper, len(look.pairs))
    return replace(gate, finding=look.finding, reason=reason, lower=to_double(look.lower), upper=to_double(look.upper))
