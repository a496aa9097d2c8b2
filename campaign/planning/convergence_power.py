"""The chance that a convergence gate passes: what trainings can find out, before they are run.

The differences of a recipe are taken as independent and normal, with one true mean and one SD. With n seeds the gate
passes where T = (margin - mean) sqrt(n) / s is above the quantile; T has the noncentral t distribution with n - 1
degrees of freedom and noncentrality theta sqrt(n), where

    theta = (margin - true difference) / SD

So everything depends on theta alone. To be found `missed` is the mirror image of passing: at a true difference
margin + x it has the chance that passing has at margin - x, with one look and with two.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from campaign.documents import ConvergenceRules

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

MOST_SEEDS = 1000
"""Seeds above which none are looked for: no protocol may have more."""
WANTED = 0.8
"""The chance to pass, at a true difference of 0, below which a campaign is not worth its runs."""
_LEVEL = 0.95
_UPPER = 0.8
_TAIL = 1e-15
_CERTAIN = 1e6
"""Beyond this theta nothing changes in any digit."""
_REACH = 9.0
"""How many SDs of a normal variable are integrated over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A look at some seeds."""

    num_seeds: int
    """All that it looks at; of a second look, those of the first among them."""
    quantile: float

    @property
    def degrees(self) -> int:
        """Degrees of freedom."""
        return self.num_seeds - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvergenceGate:
    """The gate of one recipe; all recipes of a protocol have the same."""

    margin: float
    first: Look
    second: Look | None
    """None where no extension is declared."""

    @classmethod
    def of(cls, rules: ConvergenceRules) -> ConvergenceGate:
        """Return the gate of a protocol's rules."""
        num, extension = len(rules.seeds), rules.extension
        if extension is None:
            first, second = Look(num_seeds=num, quantile=float(rules.quantile)), None
        else:
            first = Look(num_seeds=num, quantile=float(extension.quantile_first))
            second = Look(num_seeds=num + len(extension.seeds), quantile=float(extension.quantile))
        return cls(margin=float(rules.margin), first=first, second=second)

    def chance(self, true_difference: float, sd: float) -> float:
        """Return the chance to pass, at either look.

        Args:
            true_difference: What candidate - baseline is on average over all seeds there could be, in nats.
            sd: SD of the differences, in nats; above zero.
        """
        return _chance(self.first, self.second, (self.margin - true_difference) / _positive(sd))

    def chance_missed(self, true_difference: float, sd: float) -> float:
        """Return the chance that the gate ends `missed`, at either look; arguments as for `chance`.

        `smallest_missed` is its inverse, found without it: this is what that is checked against.
        """
        return _chance(self.first, self.second, (true_difference - self.margin) / _positive(sd))

    def largest_passing(self, sd: float, wanted: float = WANTED) -> float:
        """Return the largest true difference at which the gate passes with the wanted chance."""
        return self.margin - _theta(self.first, self.second, wanted) * _positive(sd)

    def smallest_missed(self, sd: float, wanted: float = WANTED) -> float:
        """Return the smallest true difference at which the gate ends `missed` with the wanted chance."""
        return self.margin + _theta(self.first, self.second, wanted) * _positive(sd)

    def largest_sd(self, wanted: float = WANTED) -> float:
        """Return the largest SD with which the gate passes with the wanted chance at a true difference of 0."""
        return self.margin / _theta(self.first, self.second, wanted)


@functools.cache
def seeds_for(margin: float, sd: float, wanted: float = WANTED) -> int | None:
    """Return the fewest seeds of a single look that pass with the wanted chance at a true difference of 0.

    The quantile is t(0.95, n - 1); at least two seeds, and None if a thousand do not suffice.
    """
    from scipy import special  # noqa: PLC0415 - commands that need no power start without scipy

    theta = margin / _positive(sd)
    for num in range(2, MOST_SEEDS + 1):
        quantile = float(special.stdtrit(num - 1, _LEVEL))
        if _chance(Look(num_seeds=num, quantile=quantile), None, theta) >= wanted:
            return num
    return None


def upper_sd(sd: float, degrees: int) -> float:
    """Return the one-sided upper 80% confidence bound of an SD that was found: sd sqrt(degrees / chi2(0.20, degrees)).

    Args:
        sd: The sample's, with n - 1.
        degrees: Its degrees of freedom; at least one.
    """
    from scipy import special  # noqa: PLC0415 - as in `seeds_for`

    return sd * math.sqrt(degrees / float(special.chdtri(degrees, _UPPER)))


def _positive(sd: float) -> float:
    if not (sd > 0 and math.isfinite(sd)):
        raise ValueError(f"the SD {sd} must be finite and above zero")
    return sd


# --- one look and two -------------------------------------------------------------------------------------------------


@functools.cache
def _chance(first: Look, second: Look | None, theta: float) -> float:
    """Return the chance to pass at the first look, or at the second one after an inconclusive first one."""
    certain = min(max(theta, -_CERTAIN), _CERTAIN)
    once = _chance_at(first, certain)
    again = _chance_at_second_only(first, second, certain) if second is not None else 0.0
    return min(max(once + again, 0.0), 1.0)


def _chance_at(look: Look, theta: float) -> float:
    """Return P(T > quantile) for noncentral t: the sum over r of P(Z + theta sqrt(n) > quantile r / sqrt(n - 1)).

    Z is normal and r chi with n - 1 degrees. Library functions for noncentral t give NaN where a chance is all but 0.
    """
    from scipy import special  # noqa: PLC0415 - as in `seeds_for`

    noncentrality = theta * math.sqrt(look.num_seeds)
    r, weights = _chi_points(look.degrees, 64, _cuts(look, noncentrality))
    slope = look.quantile / math.sqrt(look.degrees)
    return float((weights * special.ndtr(noncentrality - slope * r)).sum())


def _cuts(look: Look, noncentrality: float) -> list[float]:
    """Return between which r the look is decided: there a sum over r needs more points than elsewhere."""
    scale = math.sqrt(look.degrees) / look.quantile
    return [(noncentrality - _REACH) * scale, (noncentrality + _REACH) * scale]


@functools.cache
def _theta(first: Look, second: Look | None, wanted: float) -> float:
    """Return the theta at which the gate passes with the wanted chance, which grows with theta."""
    from scipy import optimize  # noqa: PLC0415 - as in `seeds_for`

    if not 0.5 < wanted < 1:
        raise ValueError(f"a wanted chance of {wanted} is not between 0.5 and 1")
    high = 1.0
    while _chance(first, second, high) < wanted:
        high *= 2
    return float(optimize.brentq(lambda theta: _chance(first, second, theta) - wanted, 0.0, high, xtol=1e-9))


def _chance_at_second_only(first: Look, second: Look, theta: float) -> float:
    """Return the chance that the first look is inconclusive and the second one passes.

    In units of the SD, and with margin - difference as what is measured, the first seeds have the mean m1 and the sum
    of squares r1^2, those that are added m2 and r2^2: normal about theta and chi, all independent. The sum runs over
    r1, r2 and m1 (Gauss-Legendre); given these, the second look passes for m2 in an interval, in closed form.
    """
    import numpy as np  # noqa: PLC0415 - as in `seeds_for`

    num, root = first.num_seeds, math.sqrt(first.num_seeds)
    cuts = _cuts(first, abs(theta) * root)
    r1, weights_r1 = (part[:, None, None] for part in _chi_points(first.degrees, 64, cuts))
    r2, weights_r2 = (part[None, :, None] for part in _added_points(second.num_seeds - num - 1))
    half = first.quantile * r1 / math.sqrt(num * first.degrees)
    low = np.maximum(np.maximum(-half, theta - _REACH / root), _least_mean(second, num, r1**2 + r2**2))
    high = np.maximum(np.minimum(half, theta + _REACH / root), low)
    points, weights = _legendre(64)
    # With the square of the points, what grows like a square root above `low` is smooth.
    m1 = low + (high - low) * points**2
    weights_m1 = (high - low) * 2 * points * weights * math.sqrt(num / (2 * math.pi))
    density = np.exp(-0.5 * num * (m1 - theta) ** 2)
    inner = _chance_of_second(second, num, theta, m1, r1**2 + r2**2)
    return float((weights_r1 * weights_r2 * weights_m1 * density * inner).sum())


def _least_mean(second: Look, num: int, squares: NDArray[float64]) -> NDArray[float64] | float:
    """Return the m1 below which no m2 lets the second look pass; see `_chance_of_second`."""
    import numpy as np  # noqa: PLC0415 - as in `seeds_for`

    k = second.degrees / second.quantile**2
    lacking = num - k * (second.num_seeds - num)
    return np.sqrt(lacking * squares / (k * num * second.num_seeds)) if lacking > 0 else -math.inf


def _chance_of_second(
    second: Look, num: int, theta: float, m1: NDArray[float64], squares: NDArray[float64]
) -> NDArray[float64]:
    """Return the chance that the second look passes, over the mean of the added seeds alone.

    With u = m2 - m1, N = all seeds, a = those added and k = (N - 1) / quantile^2, it passes where N m1 + a u > 0 and

        k (N m1 + a u)^2 > N squares + (N - a) a u^2

    which is the interval between or above the roots of a quadratic in u. At N m1 + a u = 0 the quadratic is negative,
    so that the sign need not be looked at again.

    Args:
        second: The second look.
        num: Seeds of the first one.
        theta: The true value of every mean.
        m1: Mean of the first seeds.
        squares: Sum of the squares within both groups of seeds.
    """
    import numpy as np  # noqa: PLC0415 - as in `seeds_for`
    from scipy import special  # noqa: PLC0415 - as in `seeds_for`

    every, added = second.num_seeds, second.num_seeds - num
    k = second.degrees / second.quantile**2
    leading = added * (k * added - num)
    middle = k * every * added * m1
    discriminant = every * added * (k * num * every * m1**2 + (k * added - num) * squares)
    spread = np.sqrt(np.maximum(discriminant, 0.0))
    constant = every * (k * every * m1**2 - squares)
    centre, root = theta - m1, math.sqrt(added)
    if leading > 0:
        with np.errstate(divide="ignore", invalid="ignore"):
            lower = np.where(middle > 0, -constant / (middle + spread), (spread - middle) / leading)
        return np.asarray(special.ndtr((centre - lower) * root))
    passes = (discriminant > 0) & (middle > 0)
    lower = -constant / np.where(passes, middle + spread, 1.0)
    upper = (middle + spread) / -leading if leading < 0 else np.inf
    found = special.ndtr((centre - lower) * root) - special.ndtr((centre - upper) * root)
    return np.where(passes, found, 0.0)


# --- points and weights -----------------------------------------------------------------------------------------------


@functools.cache
def _legendre(count: int) -> tuple[NDArray[float64], NDArray[float64]]:
    """Return points and weights of an integral from 0 to 1."""
    import numpy as np  # noqa: PLC0415 - as in `seeds_for`

    points, weights = np.polynomial.legendre.leggauss(count)
    return (points + 1) / 2, weights / 2


def _chi_points(degrees: int, count: int, cuts: list[float]) -> tuple[NDArray[float64], NDArray[float64]]:
    """Return points and weights of an expectation over a chi variable, `count` for each piece between the cuts."""
    import numpy as np  # noqa: PLC0415 - as in `seeds_for`
    from scipy import special  # noqa: PLC0415 - as in `seeds_for`

    low, high = (math.sqrt(float(special.chdtri(degrees, tail))) for tail in (1 - _TAIL, _TAIL))
    edges = [low, *sorted(min(max(cut, low), high) for cut in cuts), high]
    points, weights = _legendre(count)
    pieces = [(left, right - left) for left, right in itertools.pairwise(edges) if right > left]
    r = np.concatenate([left + width * points for left, width in pieces])
    factor = math.log(2) * (1 - degrees / 2) - math.lgamma(degrees / 2)
    density = np.exp(factor + (degrees - 1) * np.log(r) - r**2 / 2)
    return r, np.concatenate([width * weights for _, width in pieces]) * density


def _added_points(degrees: int) -> tuple[NDArray[float64], NDArray[float64]]:
    """Return points and weights of the spread within the added seeds; a single one has none."""
    import numpy as np  # noqa: PLC0415 - as in `seeds_for`

    return _chi_points(degrees, 24, []) if degrees > 0 else (np.zeros(1), np.ones(1))
