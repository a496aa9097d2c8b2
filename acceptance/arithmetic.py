"""Arithmetic that gives the same bytes on every machine.

Evidence is decimal text, so ratios, medians and means are computed from it in decimal arithmetic with 50 digits,
including logarithm, exponential and square root, and turned into the nearest double once, at the end. A gate compares
that double, the very number which the verdict shows. No result depends on the mathematics library of a machine or on
the order of rows.
"""

from __future__ import annotations

import decimal
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

_CONTEXT = decimal.Context(
    prec=50,
    rounding=decimal.ROUND_HALF_EVEN,
    Emin=-999999,
    Emax=999999,
    traps=[decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow],
)


class NotFiniteError(ArithmeticError):
    """A result cannot be shown as a finite double."""


LARGEST = Decimal("1e300")
"""Whatever is larger counts as not finite where an estimate may be any number."""


def to_double(value: Decimal) -> float:
    """Return the nearest double.

    Raises:
        NotFiniteError: There is none.
    """
    result = float(value)
    if not math.isfinite(result):
        raise NotFiniteError(f"{value} is not finite")
    return result


def difference(value: float, reference: float) -> float:
    """Return value - reference as their decimal spellings differ: 1.837 - 1.05 is 0.787."""
    return to_double(_CONTEXT.subtract(Decimal(repr(value)), Decimal(repr(reference))))


def add(values: Sequence[Decimal]) -> Decimal:
    """Return the sum."""
    return functools.reduce(_CONTEXT.add, values, Decimal(0))


def rate(tokens: int, seconds: Decimal) -> Decimal:
    """Return tokens / seconds."""
    return _CONTEXT.divide(Decimal(tokens), seconds)


def divide(numerator: Decimal, denominator: Decimal) -> Decimal:
    """Return numerator / denominator."""
    return _CONTEXT.divide(numerator, denominator)


def multiply(value: Decimal, factor: Decimal) -> Decimal:
    """Return value * factor."""
    return _CONTEXT.multiply(value, factor)


def subtract(value: Decimal, reference: Decimal) -> Decimal:
    """Return value - reference."""
    return _CONTEXT.subtract(value, reference)


def distance(value: Decimal, reference: Decimal) -> Decimal:
    """Return |value - reference|."""
    return _CONTEXT.subtract(value, reference).copy_abs()


def hypotenuse(one: Decimal, other: Decimal) -> Decimal:
    """Return sqrt(one^2 + other^2)."""
    return _CONTEXT.sqrt(_CONTEXT.add(_CONTEXT.multiply(one, one), _CONTEXT.multiply(other, other)))


def differs(value: Decimal, reference: Decimal, relative: Decimal) -> bool:
    """Return whether |value - reference| is more than `relative` times |reference|."""
    return not (distance(value, reference) <= _CONTEXT.multiply(relative, reference.copy_abs()))


def median(values: Sequence[Decimal]) -> Decimal:
    """Return the median; of an even count, the mean of the middle two.

    Raises:
        ValueError: There are no values.
    """
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return _CONTEXT.divide(_CONTEXT.add(ordered[middle - 1], ordered[middle]), Decimal(2))


def log(value: Decimal) -> Decimal:
    """Return the natural logarithm."""
    return _CONTEXT.ln(value)


def exp(value: Decimal) -> Decimal:
    """Return the exponential."""
    return _CONTEXT.exp(value)


def mean(values: Sequence[Decimal]) -> Decimal:
    """Return the arithmetic mean.

    Raises:
        ValueError: There are no values.
    """
    if not values:
        raise ValueError("no values")
    return _CONTEXT.divide(add(values), Decimal(len(values)))


def geometric_mean(values: Sequence[Decimal]) -> Decimal:
    """Return exp(mean of the logarithms); a single value is returned as it is."""
    if len(values) == 1:
        return values[0]
    return exp(mean([log(value) for value in values]))


def sum_of_squares(values: Sequence[Decimal]) -> Decimal:
    """Return the sum of squared deviations from the mean."""
    centre = mean(values)
    return add([_CONTEXT.power(_CONTEXT.subtract(value, centre), 2) for value in values])


def std_ddof1(values: Sequence[Decimal]) -> Decimal | None:
    """Return the sample standard deviation with n - 1; None for fewer than two values."""
    if len(values) < 2:
        return None
    return _CONTEXT.sqrt(_CONTEXT.divide(sum_of_squares(values), Decimal(len(values) - 1)))


def correlation(one: Sequence[Decimal], other: Sequence[Decimal]) -> Decimal | None:
    """Return Pearson's correlation of paired values; None where either side does not vary.

    Raises:
        ValueError: The numbers of values differ, or there are none.
    """
    one_mean, other_mean = mean(one), mean(other)
    products = [
        _CONTEXT.multiply(_CONTEXT.subtract(x, one_mean), _CONTEXT.subtract(y, other_mean))
        for x, y in zip(one, other, strict=True)
    ]
    if len(set(one)) == 1 or len(set(other)) == 1:
        return None
    squares = _CONTEXT.multiply(sum_of_squares(one), sum_of_squares(other))
    return _CONTEXT.divide(add(products), _CONTEXT.sqrt(squares))


def half_width(quantile: Decimal, std: Decimal, count: int) -> Decimal:
    """Return quantile * std / sqrt(count)."""
    return _CONTEXT.divide(_CONTEXT.multiply(quantile, std), _CONTEXT.sqrt(Decimal(count)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An estimate with a two-sided 95% interval; no interval where there are no degrees of freedom."""

    value: Decimal
    lower: Decimal | None
    upper: Decimal | None

    def exponentials(self) -> tuple[float, float | None, float | None]:
        """Return exp of value, lower and upper as doubles."""
        bounds = (None if bound is None else to_double(exp(bound)) for bound in (self.lower, self.upper))
        lower, upper = bounds
        return to_double(exp(self.value)), lower, upper


def _interval(value: Decimal, variance: Decimal, degrees: int) -> Estimate:
    """Return value -+ t(0.975, degrees) * sqrt(variance)."""
    if degrees < 1:
        return Estimate(value=value, lower=None, upper=None)
    half = _CONTEXT.multiply(student_975(degrees), _CONTEXT.sqrt(variance))
    return Estimate(value=value, lower=_CONTEXT.subtract(value, half), upper=_CONTEXT.add(value, half))


def mean_estimate(values: Sequence[Decimal]) -> Estimate:
    """Return the mean with its t interval, mean -+ t * s / sqrt(n)."""
    degrees = len(values) - 1
    variance = Decimal(0)
    if degrees:
        variance = _CONTEXT.divide(sum_of_squares(values), Decimal(degrees * len(values)))
    return _interval(mean(values), variance, degrees)


def slope_within_groups(groups: Sequence[Sequence[tuple[int, Decimal]]]) -> Estimate | None:
    """Return the common slope of y on x by least squares, every group with an intercept of its own.

    Args:
        groups: One sequence of (x, y) per group.

    Returns:
        slope = sum((x - mean x)(y - mean y)) / sum((x - mean x)^2), deviations taken within groups, with its t interval
        on (observations - groups - 1) degrees of freedom; None where x varies within no group.
    """
    deviations: list[tuple[Decimal, Decimal]] = []
    for group in groups:
        x_mean, y_mean = mean([Decimal(x) for x, _ in group]), mean([y for _, y in group])
        deviations += [(_CONTEXT.subtract(Decimal(x), x_mean), _CONTEXT.subtract(y, y_mean)) for x, y in group]
    spread = add([_CONTEXT.multiply(x, x) for x, _ in deviations])
    degrees = len(deviations) - len(groups) - 1
    # Means of integers are rounded to 50 digits, so a spread that is zero in truth may come out as 1e-98.
    if not (spread > Decimal("1e-30")):
        return None
    slope = _CONTEXT.divide(add([_CONTEXT.multiply(x, y) for x, y in deviations]), spread)
    residuals = [_CONTEXT.subtract(y, _CONTEXT.multiply(slope, x)) for x, y in deviations]
    squares = add([_CONTEXT.multiply(residual, residual) for residual in residuals])
    variance = Decimal(0) if degrees < 1 else _CONTEXT.divide(squares, _CONTEXT.multiply(Decimal(degrees), spread))
    return _interval(slope, variance, degrees)


def student_975(degrees: int) -> Decimal:
    """Return the 0.975 quantile of Student's t distribution with six significant digits."""
    return student_quantile(degrees, central=0.95)


@functools.lru_cache(maxsize=256)
def student_quantile(degrees: int, *, central: float) -> Decimal:
    """Return the t with P(-t < T < t) = central for Student's t distribution, with six significant digits.

    The closed form of the distribution for whole degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4) is
    inverted by bisection; six digits leave the last places of the machine's arc tangent without influence.

    Args:
        degrees: Degrees of freedom.
        central: From 0.7 to 0.95: the quantile lies between 1 and 13.
    """
    low, high = 1.0, 13.0
    for _ in range(80):
        middle = (low + high) / 2
        if _central_probability(middle, degrees) < central:
            low = middle
        else:
            high = middle
    return Decimal(f"{high:.5e}")


def _central_probability(t: float, degrees: int) -> float:
    """Return P(-t < T < t) for whole degrees of freedom."""
    theta = math.atan(t / math.sqrt(degrees))
    cosine_squared = math.cos(theta) ** 2
    odd = degrees % 2
    term = math.cos(theta) if odd else 1.0
    terms = []
    for k in range(1 + odd, degrees, 2):
        terms.append(term)
        term *= cosine_squared * k / (k + 1)
    series = math.sin(theta) * math.fsum(terms)
    return 2 / math.pi * (theta + series) if odd else series


def median_interval_ranks(count: int) -> tuple[int, int] | None:
    """Return the ranks (from 0) of the order statistics that enclose the median with at least 95% confidence.

    With X the number of values below the median, X is binomial(count, 1/2); the interval [x_(k), x_(n+1-k)] has
    confidence 1 - 2 P(X < k). The largest such k is taken.

    Returns:
        The two ranks, or None where even the extremes do not suffice (count < 6).
    """
    outside, rank = 0, 0
    while 40 * (outside + math.comb(count, rank)) <= 2**count:
        outside += math.comb(count, rank)
        rank += 1
    return (rank - 1, count - rank) if rank else None
