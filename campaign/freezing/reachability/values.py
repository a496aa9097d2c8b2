"""The numbers of made-up evidence: just on one side of each rule, and never beyond what a real candidate could do.

What a candidate can do at the worst: compute zeros in the place of every tensor, whose relative error is then 1; be a
thousand times slower; and predict as badly as if it had learnt nothing, 10 nats worse. A rule that allows even that
cannot be missed.
"""

from __future__ import annotations

import decimal
import enum
from decimal import Decimal

from campaign.documents import ConvergenceExtension, NumericalRules, ThroughputRules, Workload

MOST_RATIO = Decimal(1000)
"""No candidate is so much faster, or so much slower, than this."""
WORST_LOSS_NATS = Decimal(10)
"""What guessing among 22,026 tokens costs; a loss of the baseline, and by how much a candidate's may be off."""
ZEROS_REL_L2 = Decimal(1)
"""The relative error of zeros."""

_BEYOND = Decimal("1.05")
_WITHIN = Decimal("0.95")
_LEAST_LOSS_NATS = Decimal("1e-9")
"""Losses differ by no less, so that they can be written down whatever the margin."""
_LOSS_DIGITS = Decimal("1e-24")
_OPEN = Decimal("0.99")
"""How far from the mean towards a bound the margin lies in a first look that is just inconclusive."""
_EXACT = decimal.Context(prec=40, Emin=-99999, Emax=99999)


class Aim(enum.Enum):
    """What evidence shall come to."""

    MET = "met"
    """Just on the passing side of each rule."""
    MISSED = "missed"
    """Just on the other side, as far as a candidate can get there."""
    INCONCLUSIVE = "inconclusive"
    """Bounds on both sides of the margin; for rules without bounds, met."""
    EQUAL = "equal"
    """What the baseline itself would have given."""


def ratio(rules: ThroughputRules, workload: Workload, aim: Aim) -> Decimal:
    """Return candidate / baseline of a workload; 1 where no rule asks for it.

    Args:
        rules: The rules of the throughput family.
        workload: The workload, perhaps in a category, perhaps a production workload.
        aim: What its gates shall come to; EQUAL is 1.
    """
    thresholds = [Decimal(rules.category_threshold)] if workload.category else []
    thresholds += [Decimal(rules.production_threshold)] if workload.production else []
    if aim is Aim.EQUAL or not thresholds:
        return Decimal(1)
    missed = aim is Aim.MISSED
    wanted = _EXACT.multiply(min(thresholds) if missed else max(thresholds), _WITHIN if missed else _BEYOND)
    return min(max(wanted, _EXACT.divide(Decimal(1), MOST_RATIO)), MOST_RATIO)


def loss_error(rules: NumericalRules, aim: Aim) -> Decimal:
    """Return by how much a candidate's loss is off beside a baseline's of `WORST_LOSS_NATS`."""
    atol, rtol = Decimal(rules.loss_atol), Decimal(rules.loss_rtol)
    return _beside(_EXACT.fma(rtol, WORST_LOSS_NATS, atol), WORST_LOSS_NATS, aim, least=_LEAST_LOSS_NATS)


def tensor_error(rules: NumericalRules, quantity: str, aim: Aim) -> Decimal:
    """Return the relative L2 error of a quantity that is a single tensor."""
    threshold = getattr(rules, f"{quantity}_threshold", None)
    limits = [] if threshold is None else [Decimal(threshold)]
    limits += [worst_tensor_limit(rules, quantity)] if quantity in rules.gated_tensors or threshold is None else []
    if aim is Aim.MISSED:
        return _beside(max(limits), ZEROS_REL_L2, aim)
    return _beside(min(limits), ZEROS_REL_L2, aim)


def worst_tensor_limit(rules: NumericalRules, quantity: str) -> Decimal:
    """Return the relative L2 error at which a single tensor is at its own limit."""
    return _EXACT.multiply(Decimal(getattr(rules, f"tensor_{quantity}")), max(Decimal(1), Decimal(rules.tensor_floor)))


def worst_tensor(rules: NumericalRules, rel_l2: Decimal) -> Decimal:
    """Return the error of a quantity's only tensor: over its norm or its floor, kappa times the norm."""
    return _EXACT.divide(rel_l2, max(Decimal(1), Decimal(rules.tensor_floor)))


def isolated_error(rules: NumericalRules, aim: Aim) -> Decimal:
    """Return |error| / allowance of an isolated check; zeros are off by the whole value."""
    sd = Decimal(rules.isolated_sd)
    allowance = _EXACT.fma(Decimal(rules.isolated_rtol), sd, Decimal(rules.isolated_atol))
    return _beside(Decimal(1), _EXACT.divide(sd, allowance), aim)


def _beside(limit: Decimal, worst: Decimal, aim: Aim, least: Decimal = Decimal(0)) -> Decimal:
    """Return an error just above or below a limit, at least `least` above it and never above `worst`."""
    if aim is Aim.EQUAL:
        return Decimal(0)
    if aim is Aim.MISSED:
        return min(max(_EXACT.multiply(limit, _BEYOND), least), worst)
    return _EXACT.multiply(min(limit, worst), _WITHIN)


def loss_differences(seeds: int, quantile: str, margin: str, aim: Aim) -> list[Decimal]:
    """Return the differences of the final losses, seed by seed.

    Their bounds are m -+ h with m the mean and h = q s / sqrt(n). With u the margin, or the smallest difference that
    can be written down if that is more: h is a tenth of u; MET has an upper bound of the margin - u/20, MISSED a lower
    one of the margin + u/20, INCONCLUSIVE the mean at the margin.

    Args:
        seeds: How many there are; at least two.
        quantile: q.
        margin: What the upper bound must be below, in nats.
        aim: What the bounds shall show.
    """
    if aim is Aim.EQUAL:
        return [Decimal(0)] * seeds
    with decimal.localcontext(_EXACT):
        limit, unit = Decimal(margin), _loss_unit(margin)
        half, beside = unit / 10, unit / 20
        centre = {
            Aim.MET: limit - beside - half,
            Aim.MISSED: min(limit + beside + half, WORST_LOSS_NATS),
            Aim.INCONCLUSIVE: limit,
        }[aim]
        return _spread(seeds, centre, std=half * Decimal(seeds).sqrt() / Decimal(quantile))


def differences_of_two_looks(seeds: int, extension: ConvergenceExtension, margin: str, aim: Aim) -> list[Decimal]:
    """Return differences of which the first look is inconclusive and, if any do, the second one comes to the aim.

    For MET the first ones have a mean of the margin - 0.99 h, as low as leaves their look open, and all added ones lie
    d = s (n - 1) / (0.99 q sqrt(n)) below that mean: no others make (margin - mean) / SD of all together as large. For
    MISSED the same above the margin; for INCONCLUSIVE the mean of the first and all added ones are the margin.

    Args:
        seeds: How many the first look has; n.
        extension: The seeds that are added, and the quantile q of the first look.
        margin: What the upper bound must be below, in nats.
        aim: What the bounds of the second look shall show.
    """
    with decimal.localcontext(_EXACT):
        half = _loss_unit(margin) / 10
        std = half * Decimal(seeds).sqrt() / Decimal(extension.quantile_first)
        away = {Aim.MET: -1, Aim.MISSED: 1, Aim.INCONCLUSIVE: 0}[aim]
        centre = Decimal(margin) + away * _OPEN * half
        step = std * std * (seeds - 1) / (seeds * _OPEN * half)
        added = (centre + away * step).quantize(_LOSS_DIGITS)
        return [*_spread(seeds, centre, std=std), *[added] * len(extension.seeds)]


def _loss_unit(margin: str) -> Decimal:
    return max(Decimal(margin), _LEAST_LOSS_NATS)


def _spread(count: int, centre: Decimal, *, std: Decimal) -> list[Decimal]:
    """Return evenly spaced numbers with this mean and sample standard deviation."""
    places = [Decimal(2 * index - (count - 1)) for index in range(count)]  # their mean is 0
    unit = (sum((place * place for place in places), Decimal(0)) / (count - 1)).sqrt()
    return [(centre + std / unit * place).quantize(_LOSS_DIGITS) for place in places]


def text(value: Decimal) -> str:
    """Return a number as it may stand in a table."""
    return str(value).lower()
