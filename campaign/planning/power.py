"""What the gates of a campaign can find out, by the spreads that are assumed or were found: the tables of a plan."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from campaign import documents
from campaign.documents import ConvergenceRules
from campaign.planning import convergence_power
from campaign.planning.convergence_power import ConvergenceGate
from campaign.planning.matrix import Expansion
from campaign.planning.ratio_power import RatioGate
from campaign.planning.spreads import Spread, Spreads

_ROUNDING = 1e-3
"""What rounding of a chance may cost, in tenths of a percent: an eighth is 12.5%."""

Basis: TypeAlias = Literal["assumed", "found", "upper_80"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """A standard deviation, and why it is taken."""

    sd: float
    basis: Basis
    """`upper_80` is the one-sided upper 80% confidence bound of one that was found."""
    origin: str
    """Where it is from, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerRow:
    """What one ratio gate can find out."""

    gate: str
    num_workloads: int
    threshold: str
    sd_log_ratio: float
    basis: Basis
    origin: str
    chances: tuple[float, ...]
    """Chance to pass, one for each true ratio asked for."""
    ratio_for_90: float
    """True ratio that passes with a chance of 90%."""
    missed_from: float
    """True ratio that is missed with a chance of 80%: a smaller one with a larger."""
    pairs_80: tuple[int | None, ...]
    """Pairs of a workload in one repeat with which a true ratio asked for passes with 80%; None above 1000."""
    pairs_90: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvergenceRow:
    """What the gate of one recipe can find out."""

    recipe: str
    sd: float
    basis: Basis
    origin: str
    chance: float
    """To pass if the true difference is 0."""
    seeds_80: int | None
    """Seeds of a single look with which that chance is 80%; None above 1000."""
    seeds_90: int | None
    largest_passing: float
    """Largest true difference that passes with a chance of 80%; below zero where 0 itself does not."""
    smallest_missed: float
    """Smallest true difference that is found `missed` with a chance of 80%."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvergenceTotal:
    """The chance that all recipes pass at once."""

    basis: Basis
    sd: float | None
    """The one SD that was assumed for all; None where each recipe has its own."""
    chance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvergencePower:
    """What the convergence gates can find out."""

    margin: str
    num_seeds: tuple[int, ...]
    """Of each look."""
    quantiles: tuple[float, ...]
    largest_sd_80: float
    """Largest SD with which a recipe passes with a chance of 80% if the true difference is 0."""
    largest_sd_90: float
    rows: tuple[ConvergenceRow, ...]
    totals: tuple[ConvergenceTotal, ...]


def assumed(sds: Iterable[float], origin: str) -> list[Assumption]:
    """Return SDs that a person assumes."""
    return [Assumption(sd=sd, basis="assumed", origin=origin) for sd in sds]


def _found(spread: Spread) -> list[Assumption]:
    """Return a spread that was found, and the upper bound on it."""
    upper = convergence_power.upper_sd(spread.sd, spread.degrees)
    return [
        Assumption(sd=spread.sd, basis="found", origin=spread.origin),
        Assumption(sd=upper, basis="upper_80", origin=spread.origin),
    ]


def percent(chance: float) -> str:
    """Return a chance in words, rounded down: it never reads as 80% where it is less, as certain or as impossible."""
    if 0 < chance < 0.001:
        return "<0.1%"
    if 0.9995 <= chance < 1:
        return ">99.9%"
    return f"{math.floor(1000 * chance + _ROUNDING) / 10:.1f}%"


# --- ratio gates ------------------------------------------------------------------------------------------------------


def ratio_power(
    rules: documents.ThroughputRules,
    expansion: Expansion,
    given: Sequence[Assumption],
    true_ratios: Sequence[float],
    spreads: Spreads | None,
) -> tuple[PowerRow, ...]:
    """Return what the ratio gates can find out.

    Args:
        rules: The rules of the throughput family.
        expansion: The workloads and categories.
        given: SDs of the logarithm of a pair's ratio, the same for all gates.
        true_ratios: True ratios.
        spreads: What an earlier home found; each gate has its own.
    """
    gates = _gates(rules, expansion)
    cases = [(gate, text, one) for one in given for gate, text in gates]
    for gate, text in gates:
        spread = _spread_of(gate, spreads) if spreads is not None else None
        cases += [(gate, text, one) for one in _found(spread)] if spread is not None else []
    return tuple(_ratio_row(gate, text, one, true_ratios) for gate, text, one in cases)


def _spread_of(gate: RatioGate, spreads: Spreads) -> Spread | None:
    """Return the spread of a gate; a category may have any name, so that its kind decides."""
    return spreads.of_category(gate.subject) if gate.median else spreads.of_production()


def _gates(rules: documents.ThroughputRules, expansion: Expansion) -> list[tuple[RatioGate, str]]:
    """Return the ratio gates with their thresholds as written."""
    production = sum(workload.production for workload in expansion.workloads)
    gates = [
        (_gate(rules, category.name, len(category.workloads), rules.category_threshold, median=True))
        for category in expansion.categories
    ]
    if production:
        gates.append(_gate(rules, "production", production, rules.production_threshold, median=False))
    return gates


def _gate(
    rules: documents.ThroughputRules, subject: str, num: int, threshold: str, *, median: bool
) -> tuple[RatioGate, str]:
    gate = RatioGate(
        subject=subject,
        num_workloads=num,
        num_repeats=rules.repeats,
        num_pairs=rules.pairs_per_repeat,
        threshold=float(threshold),
        median=median,
    )
    return gate, threshold


def _ratio_row(gate: RatioGate, threshold: str, one: Assumption, true_ratios: Sequence[float]) -> PowerRow:
    return PowerRow(
        gate=gate.subject,
        num_workloads=gate.num_workloads,
        threshold=threshold,
        sd_log_ratio=one.sd,
        basis=one.basis,
        origin=one.origin,
        chances=tuple(gate.chance(ratio, one.sd) for ratio in true_ratios),
        ratio_for_90=gate.ratio_for(one.sd),
        missed_from=gate.missed_from(one.sd),
        pairs_80=tuple(gate.pairs_for(ratio, one.sd, 0.8) for ratio in true_ratios),
        pairs_90=tuple(gate.pairs_for(ratio, one.sd) for ratio in true_ratios),
    )


# --- convergence gates ------------------------------------------------------------------------------------------------


def convergence_table(
    rules: ConvergenceRules, given: Sequence[Assumption], spreads: Spreads | None
) -> ConvergencePower:
    """Return what the convergence gates can find out.

    Args:
        rules: The rules of the convergence family, with its recipes.
        given: SDs of the paired differences, the same for all recipes.
        spreads: What an earlier home found; each recipe has its own, or the pooled one.
    """
    gate = ConvergenceGate.of(rules)
    looks = [gate.first, *([gate.second] if gate.second is not None else [])]
    groups = [[convergence_row(gate, recipe.name, one) for recipe in rules.recipes] for one in given]
    found = [(recipe.name, spreads.of_recipe(recipe.name)) for recipe in rules.recipes] if spreads is not None else []
    pairs = [(name, _found(spread)) for name, spread in found if spread is not None]
    groups += [[convergence_row(gate, name, bounds[number]) for name, bounds in pairs] for number in range(2) if pairs]
    return ConvergencePower(
        margin=rules.margin,
        num_seeds=tuple(look.num_seeds for look in looks),
        quantiles=tuple(look.quantile for look in looks),
        largest_sd_80=gate.largest_sd(),
        largest_sd_90=gate.largest_sd(0.9),
        rows=tuple(row for group in groups for row in group),
        totals=tuple(_total(group) for group in groups if len(group) == len(rules.recipes)),
    )


def convergence_row(gate: ConvergenceGate, recipe: str, one: Assumption) -> ConvergenceRow:
    """Return what the gate of one recipe can find out."""
    return ConvergenceRow(
        recipe=recipe,
        sd=one.sd,
        basis=one.basis,
        origin=one.origin,
        chance=gate.chance(0.0, one.sd),
        seeds_80=convergence_power.seeds_for(gate.margin, one.sd),
        seeds_90=convergence_power.seeds_for(gate.margin, one.sd, 0.9),
        largest_passing=gate.largest_passing(one.sd),
        smallest_missed=gate.smallest_missed(one.sd),
    )


def _total(group: Sequence[ConvergenceRow]) -> ConvergenceTotal:
    first = group[0]
    return ConvergenceTotal(
        basis=first.basis,
        sd=first.sd if first.basis == "assumed" else None,
        chance=math.prod(row.chance for row in group),
    )
