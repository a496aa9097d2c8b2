"""The rules of the convergence family as the protocol states them.

The quantile is a number of the protocol, so that the bound can be recomputed with nothing but the protocol at hand.
That it belongs to the level it is meant for is checked here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from acceptance import arithmetic
from acceptance.strictjson import Node

FIELDS = ("seeds", "margin", "quantile", "max_segments", "checkpoint_s", "extension", "recipes")

_CENTRAL = 0.90
"""One-sided 5%: the quantile t(0.95, n - 1)."""

_CENTRAL_LOOK = 0.945
"""One-sided 2.75% at each of two looks. Over both it comes to 4.90% for three seeds and then six, and stays below 5%
for every first look of at least three seeds that is followed by at most as many again."""

_CENTRAL_SPLIT = 0.95
"""One-sided 2.5% at each of two looks, which cannot exceed 5% together, whatever their seeds."""

_AGREEMENT = Decimal("1e-3")
"""How far the quantile of a single look may be off its distribution's, relative to it: 2.920 stands for 2.91999."""

_ROUNDING = Decimal("1e-5")
"""How far the quantile of one of two looks may be below its distribution's: six digits are not more exact."""

_MOST_SEEDS = 1000
_MOST_POINTS = 10**5
_MOST_SEED = 10**18 - 1
"""The largest count that an evidence table can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One training recipe as far as the gates need it."""

    name: str
    targets: int
    validation_targets: int
    updates: int
    evaluate_every: int
    scored: str

    @property
    def points(self) -> tuple[int, ...]:
        """Return the updates after which the validation loss is taken: every multiple, and the last one."""
        multiples = range(self.evaluate_every, self.updates + 1, self.evaluate_every)
        return tuple(multiples) if self.updates % self.evaluate_every == 0 else (*multiples, self.updates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """The seeds that are added where the first look is inconclusive, and the quantile of each look."""

    seeds: tuple[int, ...]
    quantile_first: Decimal
    quantile: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvergenceRules:
    """Numbers and choices of the convergence family."""

    seeds: tuple[int, ...]
    margin: Decimal
    quantile: Decimal
    """Of the only look; where there are two, the extension's stand in its place."""
    max_segments: int
    extension: Extension | None
    recipes: tuple[Recipe, ...]

    def seeds_of(self, look: int) -> tuple[int, ...]:
        """Return the seeds of a look: the first ones, or all."""
        if look == 1 or self.extension is None:
            return self.seeds
        return (*self.seeds, *self.extension.seeds)

    def quantile_of(self, look: int) -> Decimal:
        """Return the quantile of a look."""
        if self.extension is None:
            return self.quantile
        return self.extension.quantile_first if look == 1 else self.extension.quantile

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """Return the seeds of both looks."""
        return self.seeds_of(2)


def slot_name(side: str, recipe: str, seed: int) -> str:
    """Return the name of a run's slot in the protocol."""
    return f"{side}/run/{recipe}/s{seed}"


def least_quantile(look_sizes: Sequence[int], look: int) -> Decimal:
    """Return the smallest quantile that a look may use where there are two, to six digits.

    Args:
        look_sizes: Numbers of seeds of the first look and of both together.
        look: 1 or 2.
    """
    first, both = look_sizes
    at_most_doubled = first >= 3 and both <= 2 * first
    central = _CENTRAL_LOOK if at_most_doubled else _CENTRAL_SPLIT
    return arithmetic.student_quantile(look_sizes[look - 1] - 1, central=central)


def parse(node: Node) -> ConvergenceRules:
    """Parse the protocol's field ``convergence``.

    Raises:
        DocumentError: It is not such an object.
    """
    fields = node.fields(FIELDS)
    seeds = _seeds(fields["seeds"], least=2)
    rules = ConvergenceRules(
        seeds=seeds,
        margin=fields["margin"].decimal("0", "1000"),
        quantile=_quantile(fields["quantile"], len(seeds)),
        max_segments=fields["max_segments"].integer(1, 10**6),
        extension=None if fields["extension"].value is None else _extension(fields["extension"], seeds),
        recipes=fields["recipes"].items(_recipe),
    )
    fields["checkpoint_s"].integer(1, 10**7)
    fields["recipes"].refuse_duplicates(recipe.name for recipe in rules.recipes)
    return rules


def _seeds(node: Node, *, least: int, known: tuple[int, ...] = ()) -> tuple[int, ...]:
    seeds = node.items(lambda item: item.integer(0, _MOST_SEED))
    if not (least <= len(seeds) <= _MOST_SEEDS):
        raise node.fail(f"{len(seeds)} seeds, and there are between {least} and {_MOST_SEEDS}")
    node.refuse_duplicates(str(seed) for seed in (*known, *seeds))
    return seeds


def _quantile(node: Node, count: int) -> Decimal:
    value = node.decimal("0", "1000")
    expected = arithmetic.student_quantile(count - 1, central=_CENTRAL)
    if arithmetic.differs(value, expected, _AGREEMENT):
        raise node.fail(f"{value} is not t(0.95, {count - 1}) = {expected} within a thousandth of it")
    return value


def _extension(node: Node, first: tuple[int, ...]) -> Extension:
    fields = node.fields(("seeds", "quantile_first", "quantile"))
    seeds = _seeds(fields["seeds"], least=1, known=first)
    sizes = (len(first), len(first) + len(seeds))
    return Extension(
        seeds=seeds,
        quantile_first=_look_quantile(fields["quantile_first"], sizes, 1),
        quantile=_look_quantile(fields["quantile"], sizes, 2),
    )


def _look_quantile(node: Node, sizes: tuple[int, int], look: int) -> Decimal:
    value, least = node.decimal("0", "1000"), least_quantile(sizes, look)
    if value < least and arithmetic.differs(value, least, _ROUNDING):
        raise node.fail(f"{value} is below {least}: over both looks more than 5% could pass wrongly")
    return value


def _recipe(node: Node) -> Recipe:
    fields = node.fields((
        "name", "config", "config_sha256", "targets", "validation_targets", "updates", "evaluate_every", "scored",
    ))  # fmt: skip
    fields["config"].members()
    fields["config_sha256"].digest()
    updates = fields["updates"].integer(1)
    recipe = Recipe(
        name=fields["name"].name(),
        targets=fields["targets"].integer(1),
        validation_targets=fields["validation_targets"].integer(1),
        updates=updates,
        evaluate_every=fields["evaluate_every"].integer(1, updates),
        scored=fields["scored"].words(),
    )
    points = -(-recipe.updates // recipe.evaluate_every)
    if points > _MOST_POINTS:
        raise fields["evaluate_every"].fail(f"{points} points of a curve, and there are at most {_MOST_POINTS}")
    if recipe.targets < points:
        raise fields["targets"].fail(f"fewer than the {points} points of its curve")
    return recipe
