"""Whether the trainings can show what they are for: looked at once, before a baseline is frozen."""

from __future__ import annotations

import math
from collections.abc import Sequence

from campaign.config.model import Config
from campaign.documents import ConvergenceRules, Power, RecipePower
from campaign.errors import ConfigError
from campaign.planning.convergence_power import MOST_SEEDS, WANTED, ConvergenceGate
from campaign.planning.power import Assumption, convergence_row, percent

OPTION = "--waive-power"


def assess_power(config: Config, rules: ConvergenceRules | None, waiver: str = "") -> Power | None:
    """Return what the convergence gates can find out, for the manifest; None where the family is not declared.

    Args:
        config: The configuration, with the SD that it assumes.
        rules: The rules of the convergence family as they will be frozen.
        waiver: Why to freeze all the same, from the command line; it goes before the configuration's own.

    Raises:
        ConfigError: No SD is assumed, or a recipe's chance to pass is below 80%, and nobody said why that will do.
    """
    table = config.convergence
    if rules is None or table is None:
        if waiver:
            raise ConfigError(
                f"{OPTION} is about trainings, and the configuration declares none", where=str(config.path)
            )
        return None
    _check_source(config)
    reason = " ".join((waiver or table.power_waiver).split())
    if table.assumed_sd is None:
        if not reason:
            raise _not_assumed(config, rules)
        return Power(assumed_sd=None, source="", recipes=(), chance_all=None, sufficient=False, waiver=reason)
    recipes = _recipes(rules, table.assumed_sd)
    sufficient = all(recipe.chance >= WANTED for recipe in recipes)
    if not (sufficient or reason):
        raise _too_weak(config, rules, recipes)
    return Power(
        assumed_sd=table.assumed_sd,
        source=table.assumed_sd_source,
        recipes=recipes,
        chance_all=math.prod(recipe.chance for recipe in recipes),
        sufficient=sufficient,
        waiver="" if sufficient else reason,
    )


def _check_source(config: Config) -> None:
    table = config.convergence
    if table is None or (table.assumed_sd is None) == (not table.assumed_sd_source.strip()):
        return
    given, absent = ("assumed_sd", "assumed_sd_source")[:: 1 if table.assumed_sd is not None else -1]
    raise config.error(
        ("convergence", given),
        f"[convergence] {given} without {absent}",
        why="the manifest and the report say where the assumed SD is from",
        hint='assumed_sd = 0.0018 with assumed_sd_source = "five seeds of the last campaign, upper 80% bound"',
    )


def _recipes(rules: ConvergenceRules, assumed_sd: str) -> tuple[RecipePower, ...]:
    gate = ConvergenceGate.of(rules)
    one = Assumption(sd=float(assumed_sd), basis="assumed", origin="")
    rows = [convergence_row(gate, recipe.name, one) for recipe in rules.recipes]
    return tuple(
        RecipePower(
            recipe=row.recipe,
            chance=row.chance,
            seeds_80=row.seeds_80,
            seeds_90=row.seeds_90,
            smallest_missed=row.smallest_missed,
        )
        for row in rows
    )


def _waive() -> str:
    return f'say why that will do: [convergence] power_waiver = "REASON", or {OPTION} REASON'


def _not_assumed(config: Config, rules: ConvergenceRules) -> ConfigError:
    return config.error(
        ("convergence",),
        "[convergence] assumes no SD of the paired differences",
        why=f"nobody can say whether {len(rules.seeds)} seeds will show that a good candidate is good",
        hint="set assumed_sd and assumed_sd_source; campaign plan --spread-from HOME shows what an earlier home found. "
        f"Or {_waive()}",
    )


def _too_weak(config: Config, rules: ConvergenceRules, recipes: Sequence[RecipePower]) -> ConfigError:
    table = config.convergence
    sd, source = (table.assumed_sd, table.assumed_sd_source) if table is not None else ("", "")
    weak = [recipe for recipe in recipes if not recipe.chance >= WANTED]
    seeds = weak[0].seeds_80
    enough = f"more seeds: {seeds} give 80%" if seeds is not None else f"not even {MOST_SEEDS} seeds give 80%"
    if rules.extension is None:
        further = "or a [convergence.extension]"
    else:
        enough, further = (
            f"{enough} at a single look",
            "or a larger [convergence.extension], which counts for the chances",
        )
    return config.error(
        ("convergence", "assumed_sd"),
        f"{len(weak)} of {len(recipes)} recipes would pass with less than {WANTED:.0%} if both sides were equally good",
        why=f"{', '.join(f'{recipe.recipe} with {percent(recipe.chance)}' for recipe in weak)}; "
        f"{len(rules.seeds)} seeds, margin {rules.margin}, assumed SD {sd} ({source})",
        hint=f"{enough}; {further}; campaign plan shows all of it. Or {_waive()}",
    )


def power_note(power: Power, given: str) -> str:
    """Return what a freeze says of the power.

    Args:
        power: What was found.
        given: The waiver that was given, if any.
    """
    if power.assumed_sd is None:
        return f"power: no SD of the paired differences is assumed; waived: {power.waiver}"
    least = min(power.recipes, key=lambda recipe: recipe.chance)
    found = (
        f"power: at a true difference of 0 every recipe passes with at least {percent(least.chance)} ({least.recipe}), "
        f"by the assumed SD {power.assumed_sd} ({power.source})"
    )
    if not power.sufficient:
        return f"{found}; below {WANTED:.0%}, waived: {power.waiver}"
    return f"{found}; the waiver is not needed, and not recorded" if given.strip() else found
