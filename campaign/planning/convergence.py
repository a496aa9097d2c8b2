"""The rules of the convergence family as they are frozen, and how they depart from the default protocol."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

from campaign import documents
from campaign.config import model
from campaign.config.locate import KeyPath
from campaign.config.model import Config
from campaign.planning.quantiles import look_quantiles, single_quantile

_AGREEMENT = Decimal("1e-3")
"""How far the quantile of the only look may be off its distribution's, relative to it, as acceptance has it."""
_ROUNDING = Decimal("1e-5")
"""How far one of two may be below its distribution's, likewise: six digits are not more exact."""


def convergence_rules(config: Config, recipes: Sequence[documents.Recipe]) -> documents.ConvergenceRules | None:
    """Return the rules of the convergence family, quantiles resolved; None where it is not declared.

    Args:
        config: The configuration.
        recipes: Its recipes, expanded.

    Raises:
        ConfigError: Recipes and table do not belong together, a seed stands twice, or a quantile is of another level.
    """
    rules = config.convergence
    if rules is None:
        if config.recipe:
            raise config.error(
                ("recipe", 0), "a recipe without [convergence]", hint="add [convergence], or remove the recipe"
            )
        return None
    if not config.recipe:
        raise config.error(
            ("convergence",), "[convergence] without a recipe", hint="add a [[recipe]], or remove [convergence]"
        )
    _check_seeds(config, rules)
    return documents.ConvergenceRules(
        seeds=rules.seeds,
        margin=rules.margin,
        quantile=_quantile(config, rules),
        max_segments=rules.max_segments,
        checkpoint_s=rules.checkpoint_s,
        extension=_extension(config, rules),
        recipes=tuple(recipes),
    )


def departures(rules: documents.ConvergenceRules) -> Iterator[str]:
    """Say, one sentence each, which rules differ from those of the default protocol.

    `checkpoint_s` decides nothing, and what a recipe trains has no default. A quantile that belongs to another number
    of seeds is no departure of its own.
    """
    default = documents.ConvergenceRules()
    if set(rules.seeds) != set(default.seeds):
        yield f"convergence.seeds is {_listed(rules.seeds)} instead of {_listed(default.seeds)}."
    usual = single_quantile(len(rules.seeds))
    for key, value, expected in (
        ("margin", rules.margin, default.margin),
        ("quantile", rules.quantile, usual),
        ("max_segments", str(rules.max_segments), str(default.max_segments)),
    ):
        if Decimal(value) != Decimal(expected):
            yield f"convergence.{key} is {value} instead of {expected}."
    extension = rules.extension
    if extension is not None:
        yield (
            f"convergence.extension adds the seeds {_listed(extension.seeds)} where the first look is inconclusive; "
            f"the quantiles of the two looks are {extension.quantile_first} and {extension.quantile}."
        )


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(str(seed) for seed in seeds)


# --- seeds and quantiles ----------------------------------------------------------------------------------------------


def _check_seeds(config: Config, rules: model.Convergence) -> None:
    known: set[int] = set()
    added = rules.extension.seeds if rules.extension is not None else ()
    lists: list[tuple[KeyPath, tuple[int, ...]]] = [(("seeds",), rules.seeds), (("extension", "seeds"), added)]
    for key, seeds in lists:
        for number, seed in enumerate(seeds):
            if seed in known:
                raise config.error(
                    ("convergence", *key, number),
                    f"the seed {seed} stands twice",
                    why="one training would count as two",
                    hint="give another seed",
                )
            known.add(seed)


def _quantile(config: Config, rules: model.Convergence) -> str:
    """Return the quantile of the only look, checked if it is given."""
    usual = single_quantile(len(rules.seeds))
    if rules.quantile is None:
        return usual
    if not abs(Decimal(rules.quantile) - Decimal(usual)) <= _AGREEMENT * Decimal(usual):
        raise config.error(
            ("convergence", "quantile"),
            f"{rules.quantile} is not t(0.95, {len(rules.seeds) - 1}) = {usual} within a thousandth of it",
            why=f"the bound for {len(rules.seeds)} seeds would not be one of 95%",
            hint="leave quantile out",
        )
    return rules.quantile


def _extension(config: Config, rules: model.Convergence) -> documents.ConvergenceExtension | None:
    declared = rules.extension
    if declared is None:
        return None
    least = look_quantiles(len(rules.seeds), len(rules.seeds) + len(declared.seeds))
    quantiles = []
    for key, given, own in zip(
        ("quantile_first", "quantile"), (declared.quantile_first, declared.quantile), least, strict=True
    ):
        if given is not None and not Decimal(given) >= Decimal(own) * (1 - _ROUNDING):
            raise config.error(
                ("convergence", "extension", key),
                f"{given} is below {own}",
                why="over both looks more than 5% of wrong candidates could pass",
                hint=f"leave {key} out",
            )
        quantiles.append(given or own)
    return documents.ConvergenceExtension(seeds=declared.seeds, quantile_first=quantiles[0], quantile=quantiles[1])
