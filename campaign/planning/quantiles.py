"""The quantiles of Student's t that a convergence protocol has where campaign.toml gives none.

The acceptance program computes them anew and refuses a protocol with others, so that a fault here ends at the freeze.
"""

from __future__ import annotations

import math
from decimal import Decimal

_LEVEL = 0.95
"""One-sided 5%, where there is one look at the seeds."""
_LEVEL_DOUBLED = 0.9725
"""One-sided 2.75% at each of two looks: below 5% together where the second has at most twice the first one's seeds."""
_LEVEL_SPLIT = 0.975
"""One-sided 2.5% at each of two looks, which cannot exceed 5% together."""
_LEAST_FIRST = 3
"""Seeds of a first look below which the level of two looks is split."""
_PUBLISHED = {3: "2.920"}
"""For three seeds the number stands as the default protocol prints it, with three decimals."""


def single_quantile(num_seeds: int) -> str:
    """Return t(0.95, n - 1) for the only look at n seeds, to six significant digits; 2.920 for three seeds."""
    return _PUBLISHED.get(num_seeds) or str(student_quantile(_LEVEL, num_seeds - 1))


def look_quantiles(num_first: int, num_both: int) -> tuple[str, str]:
    """Return the least quantiles of two looks, to six significant digits.

    Args:
        num_first: Seeds of the first look.
        num_both: Seeds of the second one, those of the first among them.
    """
    is_doubled = num_first >= _LEAST_FIRST and num_both <= 2 * num_first
    level = _LEVEL_DOUBLED if is_doubled else _LEVEL_SPLIT
    return str(student_quantile(level, num_first - 1)), str(student_quantile(level, num_both - 1))


def student_quantile(level: float, degrees: int) -> Decimal:
    """Return the q with P(T <= q) = level for Student's t, to six significant digits, found by bisection.

    Args:
        level: From 0.95 to 0.975: the quantile lies between 1 and 13.
        degrees: Degrees of freedom, at least one.
    """
    low, high = 1.0, 13.0
    while low < (middle := (low + high) / 2) < high:
        if _upper_half(middle, degrees) < level - 0.5:
            low = middle
        else:
            high = middle
    return Decimal(f"{high:.5e}")


def _upper_half(t: float, degrees: int) -> float:
    """Return P(0 < T < t), in the closed form for whole degrees (Abramowitz and Stegun 26.7.3 and 26.7.4).

    With theta = arctan(t / sqrt(degrees)) it is a sum of powers of cos(theta), each term a multiple of the one before:
    even powers for even degrees, odd ones and theta itself for odd degrees.
    """
    theta = math.atan2(t, math.sqrt(degrees))
    is_odd = degrees % 2 == 1
    term = math.cos(theta) if is_odd else 1.0
    terms = [0.0]
    for power in range(1 + is_odd, degrees, 2):
        terms.append(term)
        term *= math.cos(theta) ** 2 * power / (power + 1)
    series = math.sin(theta) * math.fsum(terms)
    return (theta + series) / math.pi if is_odd else series / 2
