"""Numbers shown beside the gates: spread, order effect, intervals. None of them gates anything.

They are taken from the same usable pairs as the gates; a pair with a fault in its evidence enters no observation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from acceptance import arithmetic, convergence_observations, numerical_observations
from acceptance.arithmetic import to_double
from acceptance.checks import Checked
from acceptance.plan import Plan
from acceptance.protocol import Slot
from acceptance.throughput import pair_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRatio:
    """The ratio of one usable pair."""

    slot: Slot
    ratio: Decimal

    @property
    def sign(self) -> int:
        """Return +1 if the baseline ran first, else -1."""
        return 1 if self.slot.order[0] == "baseline" else -1


def observe_safely(plan: Plan, checked: Checked) -> dict[str, Any]:
    """Return the observations; a failure is said instead of them, since nothing that only shows may cost a verdict."""
    try:
        return {
            **observe(plan, checked),
            "numerical": numerical_observations.observe(plan, checked),
            "convergence": convergence_observations.observe(plan, checked),
        }
    except Exception as error:  # noqa: BLE001 - see above; no gate reads what is returned
        return {
            "throughput": [],
            "ratios": [],
            "numerical": None,
            "convergence": None,
            "error": f"{type(error).__name__}: {error}",
        }


def observe(plan: Plan, checked: Checked) -> dict[str, Any]:
    """Return the observations of the throughput family as they stand in the verdict.

    Args:
        plan: What is expected.
        checked: The evidence after all checks.
    """
    candidate = _usable(plan, checked, "candidate")
    control = _usable(plan, checked, "control")
    candidates, controls = _by_workload(candidate), _by_workload(control)
    controlled = {slot.workload for slot in plan.of_comparison("control")}
    protocol = plan.protocol
    subjects = [
        *(
            _subject("category", c.name, [p for p in candidate if p.slot.workload in c.workloads])
            for c in protocol.categories
        ),
        *(_subject("production", w.name, candidates[w.name]) for w in protocol.workloads if w.production),
        *(_subject("control", w.name, controls[w.name]) for w in protocol.workloads if w.name in controlled),
    ]
    ratios = [_ratio("candidate", pair) for pair in candidate] + [_ratio("control", pair) for pair in control]
    return {"throughput": subjects, "ratios": ratios}


def _usable(plan: Plan, checked: Checked, comparison: str) -> list[PairRatio]:
    """Return the pairs without any problem, in the order of workload, repeat and pair."""
    found: list[PairRatio] = []
    for slot in sorted(plan.of_comparison(comparison), key=lambda slot: (slot.workload, slot.repeat, slot.pair)):
        if slot.slot in checked.counted and not checked.blocking([slot.slot]):
            ratio = pair_ratio(checked.counted[slot.slot])
            if _is_showable(ratio):
                found.append(PairRatio(slot=slot, ratio=ratio))
    return found


def _by_workload(pairs: Sequence[PairRatio]) -> defaultdict[str, list[PairRatio]]:
    found: defaultdict[str, list[PairRatio]] = defaultdict(list)
    for pair in pairs:
        found[pair.slot.workload].append(pair)
    return found


def _is_showable(ratio: Decimal) -> bool:
    """Return whether a ratio is a finite, positive double; the gates call any other one invalid."""
    return Decimal("1e-300") < ratio < Decimal("1e300")


def _ratio(comparison: str, pair: PairRatio) -> dict[str, Any]:
    return {
        "comparison": comparison,
        "workload": pair.slot.workload,
        "repeat": pair.slot.repeat,
        "pair": pair.slot.pair,
        "ratio": to_double(pair.ratio),
        "order": list(pair.slot.order),
    }


def _subject(kind: str, name: str, pairs: Sequence[PairRatio]) -> dict[str, Any]:
    ratios = [pair.ratio for pair in pairs]
    logs = [arithmetic.log(ratio) for ratio in ratios]
    spread = arithmetic.std_ddof1(logs)
    effect, effect_lower, effect_upper = _order_effect(pairs)
    repeats = _repeats(pairs)
    mean, lower, upper = _mean_over_repeats([median for _, median, _ in repeats])
    return {
        "kind": kind,
        "subject": name,
        "pairs": len(pairs),
        "median_ratio": to_double(arithmetic.median(ratios)) if ratios else None,
        "minimum_ratio": to_double(min(ratios)) if ratios else None,
        "maximum_ratio": to_double(max(ratios)) if ratios else None,
        "below_one": sum(ratio < 1 for ratio in ratios),
        "sd_log_ratio_ddof1": None if spread is None else to_double(spread),
        "order_effect": effect,
        "order_effect_lower": effect_lower,
        "order_effect_upper": effect_upper,
        "mean_ratio": mean,
        "mean_ratio_lower": lower,
        "mean_ratio_upper": upper,
        "repeats": [_repeat(repeat, median, workloads) for repeat, median, workloads in repeats],
    }


def _order_effect(pairs: Sequence[PairRatio]) -> tuple[float | None, float | None, float | None]:
    """Return exp of the order effect with its 95% interval.

    ln r = (the workload's own level) + effect * (+1 if the baseline ran first, else -1), by least squares over all
    pairs: with the effect positive, whoever runs second is measured faster.
    """
    groups: dict[str, list[tuple[int, Decimal]]] = defaultdict(list)
    for pair in pairs:
        groups[pair.slot.workload].append((pair.sign, arithmetic.log(pair.ratio)))
    estimate = arithmetic.slope_within_groups([groups[name] for name in sorted(groups)]) if groups else None
    return (None, None, None) if estimate is None else estimate.exponentials()


def _repeats(pairs: Sequence[PairRatio]) -> list[tuple[int, Decimal, list[Decimal]]]:
    """Return for each repeat with usable pairs the median over its workloads, and the workloads' ratios."""
    by_repeat: dict[int, dict[str, list[Decimal]]] = defaultdict(lambda: defaultdict(list))
    for pair in pairs:
        by_repeat[pair.slot.repeat][pair.slot.workload].append(pair.ratio)
    found: list[tuple[int, Decimal, list[Decimal]]] = []
    for repeat in sorted(by_repeat):
        workloads = sorted(arithmetic.geometric_mean(ratios) for ratios in by_repeat[repeat].values())
        found.append((repeat, arithmetic.median(workloads), workloads))
    return found


def _mean_over_repeats(medians: Sequence[Decimal]) -> tuple[float | None, float | None, float | None]:
    """Return exp of the mean log repeat ratio with its 95% t interval: the repeats are the independent allocations."""
    if not medians:
        return None, None, None
    return arithmetic.mean_estimate([arithmetic.log(median) for median in medians]).exponentials()


def _repeat(repeat: int, median: Decimal, workloads: Sequence[Decimal]) -> dict[str, Any]:
    """Return one repeat with the order-statistics interval of its median; `workloads` is sorted."""
    ranks = arithmetic.median_interval_ranks(len(workloads))
    return {
        "repeat": repeat,
        "ratio": to_double(median),
        "lower": None if ranks is None else to_double(workloads[ranks[0]]),
        "upper": None if ranks is None else to_double(workloads[ranks[1]]),
        "workloads": len(workloads),
    }
