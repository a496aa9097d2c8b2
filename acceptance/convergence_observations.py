"""What is shown beside the convergence gates: differences, spreads, and what the same quality costs each side.

None of it gates anything. Runs with a fault in their evidence are left out, and with them their seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from acceptance import arithmetic
from acceptance.arithmetic import to_double
from acceptance.check_extension import look_at
from acceptance.check_runs import Run
from acceptance.checks import Checked
from acceptance.convergence import final_look
from acceptance.convergence_rules import ConvergenceRules, Recipe
from acceptance.formats import RUN_SIDES
from acceptance.looks import Look, Paired
from acceptance.plan import Plan

_SHOWABLE = Decimal("1e300")

_Pair = tuple[Run, Run]
"""The runs of the baseline and the candidate with one seed."""


def observe(plan: Plan, checked: Checked) -> dict[str, Any] | None:
    """Return the observations of the convergence family; None where it is not declared.

    Args:
        plan: What is expected.
        checked: The evidence after all checks.
    """
    rules = plan.protocol.convergence
    if rules is None:
        return None
    return {
        "margin": to_double(rules.margin),
        "max_segments": rules.max_segments,
        "recipes": [_recipe(plan, rules, checked, recipe) for recipe in rules.recipes],
    }


def _recipe(plan: Plan, rules: ConvergenceRules, checked: Checked, recipe: Recipe) -> dict[str, Any]:
    number = final_look(checked, recipe.name)
    seeds = rules.seeds_of(number)
    pairs = {seed: pair for seed in seeds if (pair := _usable(plan, checked, recipe, seed)) is not None}
    look = _look(plan, rules, checked, recipe, number) if len(pairs) == len(seeds) else None
    # The first look stands beside the second one even where the extension is not complete.
    first_seeds_there = all(seed in pairs for seed in rules.seeds)
    first = _look(plan, rules, checked, recipe, 1) if number == 2 and first_seeds_there else None
    found = [_paired(seed, pair) for seed, pair in sorted(pairs.items())]
    return {
        "recipe": recipe.name,
        "scored": recipe.scored,
        "targets": recipe.targets,
        "validation_targets": recipe.validation_targets,
        "updates": recipe.updates,
        "seeds": list(seeds),
        "look": number,
        "extension": _extension_state(rules, checked, recipe, first_look_known=number == 2 or look is not None),
        "differences": [_difference(pair, pairs[pair.seed]) for pair in found],
        **_statistics(look),
        **_sides(found),
        "first_look": None if first is None else _statistics(first) | {"finding": first.finding.value},
        "cost": _cost(list(pairs.values()), Decimal(0)),
        "cost_at_margin": _cost(list(pairs.values()), rules.margin),
    }


def _extension_state(rules: ConvergenceRules, checked: Checked, recipe: Recipe, *, first_look_known: bool) -> str:
    if rules.extension is None:
        return "undeclared"
    if recipe.name in checked.extended:
        return "due"
    return "not_due" if first_look_known else "unknown"


def _usable(plan: Plan, checked: Checked, recipe: Recipe, seed: int) -> _Pair | None:
    """Return the runs of both sides with one seed; None where one is missing, faulty or cannot be shown."""
    slots = [plan.runs[recipe.name, seed, side].slot for side in RUN_SIDES]
    runs = [checked.runs[slot] for slot in slots if slot in checked.runs and not checked.blocking([slot])]
    if len(runs) < 2 or any(run.row.final_loss.copy_abs() > _SHOWABLE for run in runs):
        return None
    return runs[0], runs[1]


def _look(plan: Plan, rules: ConvergenceRules, checked: Checked, recipe: Recipe, number: int) -> Look | None:
    differ = checked.snapshots_differ
    return look_at(plan, rules, checked.runs, recipe.name, look=number, snapshots_differ=differ)


# --- differences and their statistics ---------------------------------------------------------------------------------


def _paired(seed: int, pair: _Pair) -> Paired:
    baseline, candidate = pair
    return Paired(seed=seed, baseline=baseline.row.final_loss, candidate=candidate.row.final_loss)


def _difference(pair: Paired, runs: _Pair) -> dict[str, Any]:
    return {
        "seed": pair.seed,
        "baseline": to_double(pair.baseline),
        "candidate": to_double(pair.candidate),
        "difference": to_double(pair.difference),
        "segments": {side: run.row.segments for side, run in zip(RUN_SIDES, runs, strict=True)},
        "train_s": {side: to_double(run.row.train_s) for side, run in zip(RUN_SIDES, runs, strict=True)},
    }


def _statistics(look: Look | None) -> dict[str, Any]:
    """Return the statistics of a look, null where a seed is not there: fewer seeds are another statistic."""
    if look is None:
        names = ("quantile", "mean_difference", "sd_difference_ddof1", "lower", "upper", "largest_difference")
        return dict.fromkeys(names)
    return {
        "quantile": to_double(look.quantile),
        "mean_difference": to_double(look.mean),
        "sd_difference_ddof1": to_double(look.std_ddof1),
        "lower": to_double(look.lower),
        "upper": to_double(look.upper),
        "largest_difference": to_double(max(pair.difference for pair in look.pairs)),
    }


def _sides(pairs: Sequence[Paired]) -> dict[str, Any]:
    """Return mean and unpaired spread of each side, and how the sides' losses go together over the seeds."""
    losses = {"baseline": [pair.baseline for pair in pairs], "candidate": [pair.candidate for pair in pairs]}
    together = arithmetic.correlation(losses["baseline"], losses["candidate"]) if pairs else None
    shown: dict[str, Any] = {"correlation": None if together is None else to_double(together)}
    for side, values in losses.items():
        spread = arithmetic.std_ddof1(values)
        shown[f"{side}_mean"] = to_double(arithmetic.mean(values)) if values else None
        shown[f"{side}_sd_ddof1"] = None if spread is None else to_double(spread)
    return shown


# --- cost to the baseline's final quality, and to what the margin allows ----------------------------------------------


def _cost(pairs: Sequence[_Pair], allowance: Decimal) -> dict[str, Any]:
    """Return what each side needs to reach a quality: the baseline's final loss of the same seed, plus an allowance.

    With the margin as allowance it is a quality that a passing candidate reaches, of three seeds in every one: a
    single difference is at most (n - 1) / sqrt(n) standard deviations above the mean, and the upper bound is further.
    """
    seeds: list[dict[str, Any]] = []
    reached: list[tuple[Decimal, Decimal, Decimal, Decimal]] = []
    for baseline, candidate in sorted(pairs, key=lambda pair: pair[0].row.seed):
        quality = arithmetic.add([baseline.row.final_loss, allowance])
        own, other = _needed(baseline, quality), _needed(candidate, quality)
        seeds.append(
            {
                "seed": baseline.row.seed,
                "quality": to_double(quality),
                "baseline": _shown(own),
                "candidate": _shown(other),
            }
        )
        if own is not None and other is not None:
            reached.append((*own, *other))
    own_targets, own_s, other_targets, other_s = (
        (arithmetic.add(column) for column in zip(*reached, strict=True)) if reached else (None,) * 4
    )
    ratios = {"targets_ratio": _ratio(other_targets, own_targets), "seconds_ratio": _ratio(other_s, own_s)}
    return {
        "seeds": seeds,
        **(ratios if len(reached) == len(seeds) else dict.fromkeys(ratios)),
        "reached": {"seeds": len(reached), **ratios},
    }


def _needed(run: Run, quality: Decimal) -> tuple[Decimal, Decimal] | None:
    """Return the targets and seconds of training after which a run's validation loss first is at most `quality`.

    Between two evaluations the loss is taken as linear in the targets; before the first one nothing is known, so that
    a run which is there by then is taken to have needed all of it. The seconds are those of a constant rate.

    Returns:
        None where the curve never gets there.
    """
    targets: Decimal | None = None
    for index, point in enumerate(run.curve):
        if point.validation_loss <= quality:
            targets = Decimal(point.tokens)
            if index:
                before = run.curve[index - 1]
                targets = _crossing(
                    (Decimal(before.tokens), before.validation_loss), (targets, point.validation_loss), quality
                )
            break
    if targets is None:
        return None
    share = arithmetic.divide(targets, Decimal(run.recipe.targets))
    return targets, arithmetic.multiply(run.row.train_s, share)


def _crossing(before: tuple[Decimal, Decimal], after: tuple[Decimal, Decimal], quality: Decimal) -> Decimal:
    """Return where the line from one point to the next one, which is lower, is at `quality`."""
    fall = arithmetic.subtract(before[1], after[1])
    share = arithmetic.divide(arithmetic.subtract(before[1], quality), fall)
    return arithmetic.add([before[0], arithmetic.multiply(arithmetic.subtract(after[0], before[0]), share)])


def _shown(needed: tuple[Decimal, Decimal] | None) -> dict[str, float] | None:
    return None if needed is None else {"targets": to_double(needed[0]), "seconds": to_double(needed[1])}


def _ratio(candidate: Decimal | None, baseline: Decimal | None) -> float | None:
    if candidate is None or baseline is None:
        return None
    quotient = arithmetic.divide(candidate, baseline)
    return to_double(quotient) if quotient <= arithmetic.LARGEST else None
