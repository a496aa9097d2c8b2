"""The convergence family: a closed sentence for every finding, budgets, looks, power, plots and cost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from acceptance.formats import RUN_SIDES
from reports import training_tables, tries
from reports.numbers import count, listed, plural, significant
from reports.status import Mark, mark_of_outcome, severity
from reports.training_plots import (
    MOST_LABELLED,
    DifferencePlot,
    TrainingCurve,
    TrainingPlot,
    draw_differences,
    draw_trainings,
)
from reports.training_tables import bound_text, difference_text
from reports.trainings import Family, Recipe
from reports.view import Convergence, Training

HOW_TO_READ_DIFFERENCES = (
    "One ring per seed: the candidate's final validation loss less the baseline's of the same seed; left of zero the "
    "candidate ended better. The diamond is their mean. The bold bar from it ends at the upper bound, which the gate "
    "looks at: it must be left of the margin line. The thin dashed line ends at the lower bound: a miss is shown only "
    "if that is not left of the line either. Where the line lies between the two, nothing is shown either way."
)
HOW_TO_READ_CURVES = (
    "The loss over the whole validation split after so many training targets, every run by itself: thin and solid is "
    "the candidate, wide and dashed the baseline, and each seed has a marker of its own. A stroke across a curve is "
    "where the run was cut and went on from a checkpoint in another segment. Runs of one seed start from their own "
    f"side's initial state and are never realigned. Up to {MOST_LABELLED} runs are named at their ends, in the order "
    "of their final losses."
)

_QUESTION = (
    "Every recipe is trained by both sides with every seed. The question is one-sided: whether the candidate ends "
    "worse than is allowed; one that ends better passes too."
)
_LIMITS = (
    "A pass bounds the final loss, nothing else: a difference below the margin, or one that training makes good again, "
    "is not seen here. A learning rate 3% too high passes, rightly, since the model is as good. Whether it is the same "
    "computation is for the numerical family to show: in this case for its isolated optimizer check alone, where both "
    "adapters offer one, since matched updates that differ by 3% pass where 10% is allowed."
)


def section(family: Family, verdict: Mapping[str, Any]) -> Convergence:
    """Return the family's part of the page.

    Args:
        family: What it is derived from.
        verdict: The verdict document.
    """
    rolled_up = verdict["families"].get("convergence")
    power = family.provenance.get("power")
    return Convergence(
        mark=mark_of_outcome(rolled_up["outcome"]) if rolled_up else Mark.MISSING,
        sentence=sentence(family),
        basis=(_QUESTION, _LIMITS),
        recipes=training_tables.recipe_table(family),
        rule_sentence=rule_sentence(family),
        looks=training_tables.look_table(family),
        trainings=tuple(_training(family, recipe) for recipe in family.recipes),
        how_to_read_differences=HOW_TO_READ_DIFFERENCES,
        how_to_read_curves=HOW_TO_READ_CURVES,
        power_sentence=power_sentence(power),
        power=training_tables.power_table(family, power) if power else None,
        cost_sentence=cost_sentence(family),
        costs=training_tables.cost_table(family),
        chance_sentences=tries.chance_sentences(family),
        chance=tries.chance_table(family),
    )


def cost_sentence(family: Family) -> str:
    """Return what the tables of cost hold, and which of their rows to read."""
    return (
        "What each side needed to reach the same loss, from the curves (linear between two points) and each run's own "
        f"mean rate. Read the cost to the baseline's final loss + {family.margin} nats, the margin: what the gate "
        "allows, a passing candidate reaches. An equally good candidate gets to the final loss itself with "
        "about half of the seeds, and the sums over those favour it. A side whose curve never is at or "
        "below a loss never reached it. Prices are not known here; device-hours are, where the attempts name devices. "
        "Nothing of this gates."
    )


# --- sentences --------------------------------------------------------------------------------------------------------


def sentence(family: Family) -> str:
    """Return how the recipes stand, in one sentence."""
    kinds = Counter(recipe.mark for recipe in family.recipes)
    recipes = plural(len(family.recipes), "recipe")
    passing = kinds.pop(Mark.PASS, 0)
    said = (
        f"{count(passing)} of {recipes} {'is' if passing == 1 else 'are'} shown to end less than {family.margin} nats "
        "above the baseline"
    )
    others = [f"{count(kinds[mark])} {_STANDS[mark]}" for mark in sorted(kinds, key=severity)]
    return f"{said}{'; ' if others else ''}{listed(others)}."


_STANDS = {
    Mark.MISSED: "missed",
    Mark.INCONCLUSIVE: "inconclusive, shown neither to meet the margin nor to miss it",
    Mark.MISSING: "without all their runs",
    Mark.INVALID: "invalid",
    Mark.NOT_EVALUATED: "not evaluated",
}


def rule_sentence(family: Family) -> str:
    """Return how the bounds come about."""
    said = "SD is that of the paired differences (n - 1); the bounds are mean -+ quantile \u00d7 SD / sqrt(n). "
    if family.extension is None:
        return said + "Each of them is a one-sided 95% bound."
    return said + (
        "One extension was declared in advance; each of the two looks has a bound at a stricter level, so that a false "
        "pass over both stays at 5%."
    )


def finding_sentence(family: Family, recipe: Recipe) -> str:
    """Return one of a closed set of sentences on a recipe's gate."""
    margin = family.margin
    upper, lower = bound_text(recipe.upper, margin), bound_text(recipe.lower, margin)
    reason = recipe.gate.reason if recipe.gate is not None else "the verdict has no such gate"
    if recipe.mark is Mark.PASS:
        if recipe.differences and all(own.difference == 0 for own in recipe.differences.values()):
            return "Met: all differences are exactly zero, from different snapshots and runs of their own."
        return f"Met: the upper bound {upper} is below the margin of {margin} nats."
    if recipe.mark is Mark.MISSED:
        return (
            f"Missed: the candidate is shown to end worse than the margin allows; even the lower bound {lower} is not "
            f"below {margin} nats."
        )
    if recipe.mark is Mark.INCONCLUSIVE:
        return (
            f"Inconclusive: shown neither to meet the margin nor to miss it, since {margin} nats lie between the lower "
            f"bound {lower} and the upper bound {upper}. That is too few seeds for so much spread; it blocks for want "
            "of evidence and is a finding neither for nor against the candidate."
        )
    if recipe.mark is Mark.MISSING:
        return f"Missing: no bound is computed until every run is there. {_ended(reason)}"
    return f"{recipe.mark.word.capitalize()}: nothing can be concluded from this evidence. {_ended(reason)}"


def _ended(reason: str) -> str:
    told = reason.removeprefix("not computed: ").rstrip(".")
    return f"{told}." if told else ""


def budget_sentence(recipe: Recipe) -> str:
    """Return what was trained and scored; it is called full budget only where every row says so."""
    planned = (
        f"{count(recipe.targets)} targets in {plural(recipe.updates, 'update')}, scored on "
        f"{plural(recipe.validation_targets, 'validation target')}"
    )
    wanted = [(seed, side) for seed in recipe.seeds for side in RUN_SIDES]
    absent = [key for key in wanted if recipe.run(*key) is None]
    short = [
        f"{run.side} {run.seed} has {count(run.targets)} targets in {plural(run.updates, 'update')}, scored on "
        f"{count(run.validation_targets)}"
        for run in recipe.runs
        if (run.targets, run.validation_targets, run.updates)
        != (recipe.targets, recipe.validation_targets, recipe.updates)
    ]
    scored = f" Scored: {recipe.scored.rstrip('.')}." if recipe.scored else ""
    if not absent and not short:
        return (
            f"Full budget: each of the {count(len(recipe.runs))} runs made exactly {planned}, the whole validation "
            f"split.{scored}"
        )
    parts = [f"{count(len(absent))} of {plural(len(wanted), 'run')} {'is' if len(absent) == 1 else 'are'} not there"]
    return f"Planned per run: {planned}. {listed([*(parts if absent else []), *short])}.{scored}"


def configuration_sentence(recipe: Recipe) -> str:
    """Return the resolved configuration with which both sides train."""
    entries = [f"{name} {_config_text(value)}" for name, value in sorted(recipe.config.items())]
    return f"Configuration: {', '.join(entries) or 'no entry'}."


def _config_text(value: Any) -> str:
    """Return an entry as text, a number in the protocol's own digits."""
    if isinstance(value, str | Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name} {_config_text(own)}' for name, own in sorted(value.items()))}}}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_config_text, value))}]"
    return json.dumps(value)


def extension_sentence(family: Family, recipe: Recipe) -> str:
    """Return what became of the declared extension, in words."""
    declared = family.extension
    if declared is None:
        return "No extension was declared: more seeds would be a new protocol."
    seeds = ("seed " if len(declared["seeds"]) == 1 else "seeds ") + listed([str(seed) for seed in declared["seeds"]])
    state = recipe.seen.extension if recipe.seen is not None else "unknown"
    if state == "due":
        return (
            f"The first look was inconclusive, so that the declared extension by the {seeds} is due: the gate is "
            "the second look, at all seeds together."
        )
    if state == "not_due":
        return f"An extension by the {seeds} was declared and is not due: the first look decides."
    return (
        f"An extension by the {seeds} was declared; whether it is due is not known until the first look can be taken."
    )


def power_sentence(power: Mapping[str, Any] | None) -> str:
    """Return what was assumed before the freeze, from where, and whether somebody waived what it said."""
    if power is None:
        return "Provenance holds no figures of power: what the gates could find out was not recorded at the freeze."
    source = str(power["source"]).rstrip(".")
    if power["assumed_sd"] is None:
        said = f"No SD of the paired differences was assumed before the freeze{f' ({source})' if source else ''}."
    else:
        said = f"Before the freeze an SD of {power['assumed_sd']} nats was assumed{f' ({source})' if source else ''}."
    if (chance := power.get("chance_all")) is not None:
        together = training_tables.power_percent(chance)
        said += f" All recipes together were then to pass with a chance of {together} if the true differences are 0."
    if power["waiver"]:
        said += f" That was too little, and frozen all the same with this waiver: {str(power['waiver']).rstrip('.')}."
    return said


# --- one recipe -------------------------------------------------------------------------------------------------------


def _training(family: Family, recipe: Recipe) -> Training:
    told = finding_sentence(family, recipe)
    return Training(
        name=f"recipe-{recipe.number}",
        title=recipe.name,
        mark=recipe.mark,
        sentence=told,
        budget=budget_sentence(recipe),
        configuration=configuration_sentence(recipe),
        extension=extension_sentence(family, recipe),
        summary=_summary(family, recipe),
        differences_figure=draw_differences(_difference_plot(family, recipe, told)),
        curves_figure=draw_trainings(_training_plot(recipe)),
        differences=training_tables.difference_table(family, recipe),
        cost=training_tables.seed_cost_table(family, recipe),
        curves=training_tables.curve_table(recipe),
    )


def _summary(family: Family, recipe: Recipe) -> str:
    """Return mean, largest difference and what pairing gained; empty where a seed is not there."""
    found, seen = recipe.statistics, recipe.seen
    if found.mean_difference is None or seen is None:
        return ""
    said = (
        f"Mean difference {difference_text(found.mean_difference, family.margin)}, the largest one "
        f"{difference_text(found.largest_difference, family.margin)} nats."
    )
    if seen.correlation is not None:
        said += f" The sides' losses go together over the seeds with a correlation of {significant(seen.correlation)}."
    return said


def _difference_plot(family: Family, recipe: Recipe, told: str) -> DifferencePlot:
    bounds = (recipe.lower, recipe.statistics.mean_difference, recipe.upper)
    known = tuple(float(value) for value in bounds if value is not None)
    return DifferencePlot(
        name=f"recipe-{recipe.number}-differences",
        description=(
            f"Paired differences of {recipe.name}, candidate - baseline in nats: "
            + (
                listed(
                    [
                        f"seed {seed} {difference_text(own.difference, family.margin)}"
                        for seed, own in recipe.differences.items()
                    ]
                )
                or "none"
            )
            + f". {told}"
        ),
        margin=float(family.margin),
        mark=recipe.mark,
        differences=tuple((seed, float(own.difference)) for seed, own in recipe.differences.items()),
        bounds=(known[0], known[1], known[2]) if len(known) == len(bounds) else None,
    )


def _training_plot(recipe: Recipe) -> TrainingPlot:
    runs = [run for run in recipe.runs if run.curve]
    ends = [
        f"{run.side} {run.seed} from {training_tables.loss_text(run.curve[0].loss)} to "
        f"{training_tables.loss_text(run.curve[-1].loss)}"
        for run in runs
    ]
    return TrainingPlot(
        name=f"recipe-{recipe.number}-curves",
        description=f"Validation loss of {recipe.name} over training targets: {listed(ends) or 'no curve'}.",
        curves=tuple(
            TrainingCurve(
                side=run.side,
                seed=run.seed,
                points=tuple((point.targets, float(point.loss)) for point in _finite(run.curve)),
                # Updates of a recipe have equally many targets but for the last one.
                cuts=tuple(recipe.targets * cut / recipe.updates for cut in run.cuts if cut),
            )
            for run in runs
        ),
    )


def _finite(points: Sequence[Any]) -> list[Any]:
    """Return the points that a plot can hold: a loss of evidence is finite, but may be beyond all measure."""
    return [point for point in points if abs(point.loss) < _DRAWABLE]


_DRAWABLE = 10**30
