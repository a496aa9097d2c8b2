"""Tables of the convergence family: the gates of all recipes, losses by seed, looks, power, curves and cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import ROUND_FLOOR, Decimal
from typing import Any

from acceptance.formats import RUN_SIDES
from reports.numbers import ABSENT, against, count, near, significant
from reports.status import Mark
from reports.training_plots import thinned
from reports.trainings import Cost, CostOfSeed, Family, Recipe, Statistics
from reports.verdict import Number
from reports.view import Cell, Table, code, columns, number, text

TIMES = "\u00d7"
DIGITS = 6
"""Decimals of losses and of their differences, in nats."""
_SECONDS_PER_HOUR = 3600
NEVER = "never reached"


def loss_text(value: Number) -> str:
    """Return a loss as text."""
    return against(value, digits=DIGITS)


def bound_text(value: Number, margin: str) -> str:
    """Return a bound as text that stands on its own side of zero and of the margin."""
    return against(value, 0, margin, digits=DIGITS)


def difference_text(value: Number, margin: str) -> str:
    """Return a difference with its sign; only zero prints as zero."""
    shown = bound_text(value, margin)
    return shown if value is None or value <= 0 else f"+{shown}"


def _loss(value: Number) -> Cell:
    return number(loss_text(value), value)


def _bound(value: Number, margin: str) -> Cell:
    return number(bound_text(value, margin), value)


def _difference(value: Number, margin: str) -> Cell:
    return number(difference_text(value, margin), value)


# --- all recipes ------------------------------------------------------------------------------------------------------


def bound_name(family: Family) -> str:
    """Return what the bounds are called: with two looks each has a level of its own."""
    return "bound" if family.extension else "95%"


def recipe_table(family: Family) -> Table:
    """Return the gate of every recipe with what it rests on."""
    upper, lower = f"Upper {bound_name(family)}", f"Lower {bound_name(family)}"
    numeric = ("Baseline mean", "Candidate mean", "Mean difference", upper, lower, "SD", "n", "Quantile")
    return Table(
        name="convergence-recipes",
        caption=(
            "Final validation losses in nats by recipe; a difference is candidate - baseline, and every upper bound "
            f"must be strictly below {family.margin}"
        ),
        columns=columns("Recipe", *numeric[:4], "Outcome", *numeric[4:], numeric=numeric),
        rows=tuple(_recipe_row(family, recipe) for recipe in family.recipes),
        empty="The protocol has no recipe.",
        file="gates.csv",
    )


def _recipe_row(family: Family, recipe: Recipe) -> tuple[Cell, ...]:
    found, seen, margin = recipe.statistics, recipe.seen, family.margin
    look = "second look" if seen is not None and seen.look == 2 else ""
    return (
        code(recipe.name),
        _loss(seen.baseline_mean if seen else None),
        _loss(seen.candidate_mean if seen else None),
        _difference(found.mean_difference, margin),
        _bound(recipe.upper, margin),
        outcome_cell(recipe.mark, note=look),
        _bound(recipe.lower, margin),
        _loss(found.sd_difference_ddof1),
        seeds_cell(recipe),
        _quantile(family, found, seen.look if seen else 1),
    )


def _quantile(family: Family, found: Statistics, look: int) -> Cell:
    """Return the quantile in the protocol's own digits."""
    extension = family.extension
    own = family.rules["quantile"] if extension is None else extension["quantile_first" if look == 1 else "quantile"]
    return number(ABSENT if found.quantile is None else str(own), found.quantile)


def outcome_cell(mark: Mark, *, note: str = "") -> Cell:
    """Return the outcome with the finding that says why."""
    return Cell(text="pass" if mark is Mark.PASS else f"not qualified: {mark.word}", mark=mark, note=note)


def seeds_cell(recipe: Recipe) -> Cell:
    """Return how many of the planned differences are there."""
    there, planned = len(recipe.differences), len(recipe.seeds)
    return number(count(there) if there == planned else f"{count(there)} of {count(planned)}", there)


def look_table(family: Family) -> Table | None:
    """Return first and second look side by side; None if no extension was taken."""
    taken = [recipe for recipe in family.recipes if recipe.seen is not None and recipe.seen.first_look is not None]
    if not taken:
        return None
    numeric = ("Seeds", "Mean difference", "SD", "Lower bound", "Upper bound", "Quantile")
    return Table(
        name="convergence-looks",
        caption="First and second look, where the extension was taken",
        columns=columns("Recipe", "Look", *numeric, "Finding", numeric=numeric),
        rows=tuple(row for recipe in taken for row in _look_rows(family, recipe)),
        file="verdict.json",
    )


def _look_rows(family: Family, recipe: Recipe) -> tuple[tuple[Cell, ...], ...]:
    first = recipe.seen.first_look if recipe.seen else None
    own = Mark(first.finding) if first is not None and first.finding not in ("", "met") else Mark.PASS
    return (
        (code(recipe.name), *_look_cells(family, 1, first or Statistics(), len(recipe.first_seeds)), _finding(own)),
        (code(recipe.name), *_look_cells(family, 2, recipe.statistics, len(recipe.seeds)), _finding(recipe.mark)),
    )


def _look_cells(family: Family, look: int, found: Statistics, num_seeds: int) -> tuple[Cell, ...]:
    return (
        text({1: "first", 2: "second"}[look]),
        number(count(num_seeds), num_seeds),
        _difference(found.mean_difference, family.margin),
        _loss(found.sd_difference_ddof1),
        _bound(found.lower, family.margin),
        _bound(found.upper, family.margin),
        _quantile(family, found, look),
    )


def _finding(mark: Mark) -> Cell:
    return Cell(text="met" if mark is Mark.PASS else mark.word, mark=mark)


# --- power ------------------------------------------------------------------------------------------------------------


def power_table(family: Family, power: Mapping[str, Any]) -> Table:
    """Return what was expected of every recipe's gate before the freeze, beside the spread that came."""
    numeric = ("Assumed SD", "Observed SD", "Chance to pass", "Seeds for 80%", "Seeds for 90%", "80% missed from")
    by_name = {own["recipe"]: own for own in power["recipes"]}
    return Table(
        name="convergence-power",
        caption=(
            "Power as computed before the freeze: the chance to pass if the true difference is 0, and the smallest "
            "true difference, in nats, that would be found missed with a chance of at least 80%"
        ),
        columns=columns("Recipe", *numeric, numeric=numeric),
        rows=tuple(_power_row(recipe, power["assumed_sd"], by_name.get(recipe.name)) for recipe in family.recipes),
        file="provenance.json",
    )


def _power_row(recipe: Recipe, assumed: Any, expected: Mapping[str, Any] | None) -> tuple[Cell, ...]:
    observed = recipe.statistics.sd_difference_ddof1
    wider = assumed is not None and observed is not None and observed > Decimal(str(assumed))
    seen = Cell(
        text=significant(observed),
        value=None if observed is None else str(observed),
        mark=Mark.FLAGGED if wider else None,
        note="wider than assumed" if wider else "",
    )
    if expected is None:
        return code(recipe.name), _assumed(assumed), seen, *(text(None) for _ in range(4))
    return (
        code(recipe.name),
        _assumed(assumed),
        seen,
        number(power_percent(expected["chance"]), expected["chance"]),
        *(_seeds_needed(expected[name]) for name in ("seeds_80", "seeds_90")),
        number(significant(expected["smallest_missed"]), expected["smallest_missed"]),
    )


def _assumed(value: Any) -> Cell:
    return text("none") if value is None else number(significant(str(value)), value)


def _seeds_needed(value: int | None) -> Cell:
    return text("over 1,000") if value is None else number(count(value), value)


def power_percent(chance: Any) -> str:
    """Return a chance to pass rounded down, as `campaign plan` prints it: none reads as 80% that is less."""
    exact = Decimal(str(chance))
    if 0 < exact < Decimal("0.001"):
        return "<0.1%"
    if Decimal("0.9995") <= exact < 1:
        return ">99.9%"
    # A computed eighth may be short of 12.5% by a rounding.
    return f"{(exact * 100 + Decimal('1e-4')).quantize(Decimal('0.1'), rounding=ROUND_FLOOR)}%"


def percent(chance: Any) -> str:
    """Return a chance in percent that prints as 0 or 100 only where it is."""
    return f"{against(Decimal(str(chance)) * 100, 0, 100, digits=1)}%"


# --- one recipe -------------------------------------------------------------------------------------------------------


def difference_table(family: Family, recipe: Recipe) -> Table:
    """Return both losses and their difference for every planned seed."""
    numeric = (
        "Baseline",
        "Candidate",
        "Difference",
        "Segments, baseline",
        "Segments, candidate",
        "Training, baseline",
        "Training, candidate",
    )
    return Table(
        name=f"recipe-{recipe.number}-differences",
        caption="Final losses in nats and their paired differences, with segments and seconds of training",
        columns=columns("Seed", *numeric, numeric=numeric),
        rows=tuple(_difference_row(family, recipe, seed) for seed in recipe.seeds),
        file="convergence.csv",
    )


def _difference_row(family: Family, recipe: Recipe, seed: int) -> tuple[Cell, ...]:
    found = recipe.differences.get(seed)
    added = "" if seed in recipe.first_seeds else " (extension)"
    if found is None:
        return text(f"{seed}{added}: no usable pair"), *(text(None) for _ in range(7))
    segments = (number(count(found.segments[side]), found.segments[side]) for side in RUN_SIDES)
    seconds = (number(f"{significant(found.train_s[side])} s", found.train_s[side]) for side in RUN_SIDES)
    return (
        text(f"{seed}{added}"),
        _loss(found.baseline),
        _loss(found.candidate),
        _difference(found.difference, family.margin),
        *segments,
        *seconds,
    )


def curve_table(recipe: Recipe) -> Table:
    """Return the curves of all runs, a column each."""
    runs = [run for run in recipe.runs if run.curve]
    updates = sorted({point.update for run in runs for point in run.curve})
    shown = [updates[index] for index in thinned(len(updates))]
    losses = [{point.update: point.loss for point in run.curve} for run in runs]
    targets = {point.update: point.targets for run in runs for point in run.curve}
    titles = ("Updates", "Targets", *(f"{run.side} {run.seed}" for run in runs))
    less = f" ({count(len(shown))} of {count(len(updates))} points)" if len(shown) < len(updates) else ""
    return Table(
        name=f"recipe-{recipe.number}-curves",
        caption=f"Validation losses in nats by run{less}",
        columns=columns(*titles, numeric=titles[1:]),
        rows=tuple(
            (
                text(count(update)),
                number(count(targets[update]), targets[update]),
                *(_loss(own.get(update)) for own in losses),
            )
            for update in shown
        ),
        empty="There is no validation curve.",
        long=True,
        file="validation-curves.csv",
    )


# --- cost to the baseline's quality -----------------------------------------------------------------------------------


def _costs(recipe: Recipe) -> tuple[Cost, ...]:
    return recipe.seen.costs if recipe.seen else ()


def _quality(family: Family, cost: Cost) -> Cell:
    return text(f"baseline's final loss + {family.margin}" if cost.at_margin else "baseline's final loss")


def cost_table(family: Family) -> Table:
    """Return what each side needed to reach the baseline's final losses, and what the margin allows, by recipe."""
    numeric = (
        "Targets, candidate / baseline",
        "Training time, candidate / baseline",
        "Baseline's training",
        "Candidate's training",
        "Baseline's device-hours",
        "Candidate's device-hours",
    )
    return Table(
        name="convergence-cost",
        caption=(
            "Cost to the same quality, summed over the seeds in which both sides reach it; not gating. Device-hours "
            "are seconds of training times the devices of a run"
        ),
        columns=columns("Recipe", "Quality", "Both reach it", *numeric, numeric=numeric),
        rows=tuple(_cost_row(family, recipe, cost) for recipe in family.recipes for cost in _costs(recipe)),
        empty="Nothing is known of the cost.",
        file="verdict.json",
    )


def _cost_row(family: Family, recipe: Recipe, cost: Cost) -> tuple[Cell, ...]:
    there, num_seeds = len(cost.reached), len(cost.seeds)
    # A sum over some seeds is no figure of the recipe, and is not to be read as one where it is copied alone.
    note = f"{count(there)} of {count(num_seeds)} seeds" if 0 < there < num_seeds else ""
    cells = (
        _ratio(cost.targets_ratio),
        _ratio(cost.seconds_ratio),
        *(_seconds_cell(cost, side) for side in RUN_SIDES),
        *(_hours_cell(recipe, cost, side) for side in RUN_SIDES),
    )
    return (
        code(recipe.name),
        _quality(family, cost),
        text(f"in {count(there)} of {count(num_seeds)}" if num_seeds else None),
        *(replace(cell, note=note if cell.value is not None else "") for cell in cells),
    )


def _seconds_cell(cost: Cost, side: str) -> Cell:
    needs = [need for own in cost.reached if (need := own.of(side)) is not None]
    if not needs:
        return text(None)
    total = sum((Decimal(need.seconds) for need in needs), Decimal(0))
    return number(f"{significant(total)} s", total)


def _hours_cell(recipe: Recipe, cost: Cost, side: str) -> Cell:
    hours = _device_hours(recipe, cost, side)
    return number(significant(hours), hours)


def _device_hours(recipe: Recipe, cost: Cost, side: str) -> Decimal | None:
    """Return seconds times devices over the seeds that count; None where the devices of one are not known."""
    total = Decimal(0)
    for own in cost.reached:
        need, run = own.of(side), recipe.run(own.seed, side)
        if need is None or run is None or run.num_devices is None:
            return None
        total += Decimal(need.seconds) * run.num_devices
    return total / _SECONDS_PER_HOUR if total else None


def _ratio(value: Number) -> Cell:
    return text(None) if value is None else number(f"{near(value, 1, digits=3)}{TIMES}", value)


def seed_cost_table(family: Family, recipe: Recipe) -> Table:
    """Return the same of one recipe, seed by seed."""
    numeric = ("Loss", "Targets, baseline", "Targets, candidate", "Time, baseline", "Time, candidate")
    return Table(
        name=f"recipe-{recipe.number}-cost",
        caption="Targets and seconds of training to the same quality by seed; not gating",
        columns=columns("Seed", "Quality", *numeric, numeric=numeric),
        rows=tuple(_seed_cost_row(family, cost, own) for cost in _costs(recipe) for own in cost.seeds),
        empty="No seed has the runs of both sides.",
        file="verdict.json",
    )


def _seed_cost_row(family: Family, cost: Cost, own: CostOfSeed) -> tuple[Cell, ...]:
    needs = [own.of(side) for side in RUN_SIDES]
    return (
        text(own.seed),
        _quality(family, cost),
        _loss(own.quality),
        *(_need_cell(need.targets if need else None, unit="") for need in needs),
        *(_need_cell(need.seconds if need else None, unit=" s") for need in needs),
    )


def _need_cell(value: Number, *, unit: str) -> Cell:
    if value is None:
        return text(NEVER)
    shown = significant(value) if unit else count(round(value))
    return number(f"{shown}{unit}", value)
