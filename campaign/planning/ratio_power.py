"""The chance that a ratio gate passes: what a campaign can find out, before it is run.

A workload's ratio in a repeat is taken as log-normal about one true ratio, independent of every other: what the
workloads of an allocation have in common makes the true chance smaller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

_NORMAL = NormalDist()
_NUM_STEPS = 512
_WANTED = 0.9
_MOST_PAIRS = 1000
"""As many as a protocol may ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioGate:
    """A gate that must hold in every repeat: a median of several workloads, or every one of several."""

    subject: str
    num_workloads: int
    num_repeats: int
    num_pairs: int
    """Pairs of a workload in one repeat, whose log ratios are averaged."""
    threshold: float
    median: bool
    """True for the median of the workloads, False if every one of them must reach the threshold."""

    def chance(self, true_ratio: float, sd_log_ratio: float) -> float:
        """Return the chance that the gate passes.

        Args:
            true_ratio: The candidate's true speed relative to the baseline's, the same for all workloads.
            sd_log_ratio: Standard deviation of the logarithm of one pair's ratio; above zero.
        """
        sd = sd_log_ratio / math.sqrt(self.num_pairs)
        if not (sd > 0 and math.isfinite(sd) and true_ratio > 0 and math.isfinite(true_ratio)):
            raise ValueError(f"ratio {true_ratio} and SD {sd_log_ratio} must be finite and above zero")
        relative = true_ratio / self.threshold
        if self.median:
            return chance_median(self.num_workloads, relative, sd) ** self.num_repeats
        return _NORMAL.cdf(math.log(relative) / sd) ** (self.num_repeats * self.num_workloads)

    def ratio_for(self, sd_log_ratio: float, wanted: float = _WANTED) -> float:
        """Return the true ratio at which the gate passes with the wanted chance, by bisection."""
        low, high = self.threshold * math.exp(-10 * sd_log_ratio), self.threshold * math.exp(10 * sd_log_ratio)
        for _ in range(40):
            middle = math.sqrt(low * high)
            if self.chance(middle, sd_log_ratio) < wanted:
                low = middle
            else:
                high = middle
        return high

    def missed_from(self, sd_log_ratio: float, missed: float = 0.8) -> float:
        """Return the true ratio at which the gate is missed with a chance; below it, with a larger one."""
        return self.ratio_for(sd_log_ratio, 1 - missed)

    def pairs_for(self, true_ratio: float, sd_log_ratio: float, wanted: float = _WANTED) -> int | None:
        """Return the pairs in a repeat with which the gate passes with the wanted chance: 1 or an even number.

        None where no number that a protocol may ask for suffices, such as for a true ratio at or below the threshold.
        More repeats do not help: the gate must hold in every one.
        """
        if self._with(_MOST_PAIRS, true_ratio, sd_log_ratio) < wanted:
            return None
        if self._with(1, true_ratio, sd_log_ratio) >= wanted:
            return 1
        low, high = 0, _MOST_PAIRS // 2  # halves: `high` suffices, `low` does not
        while high - low > 1:
            middle = (low + high) // 2
            if self._with(2 * middle, true_ratio, sd_log_ratio) < wanted:
                low = middle
            else:
                high = middle
        return 2 * high

    def _with(self, num_pairs: int, true_ratio: float, sd_log_ratio: float) -> float:
        return replace(self, num_pairs=num_pairs).chance(true_ratio, sd_log_ratio)


def chance_median(num: int, relative: float, sd: float) -> float:
    """Return the chance that the median of log-normal ratios reaches 1.

    For an odd number it is a binomial tail. For an even one, with the mean of the middle two, it is the integral of
    the joint density of the two middle order statistics, by the midpoint rule over the upper one's quantile.

    Args:
        num: How many ratios; at least one.
        relative: Their true value divided by the threshold.
        sd: Standard deviation of their logarithm.
    """
    if num < 1:
        raise ValueError("a median of nothing has no chance")
    half = num // 2
    mean = math.log(relative)
    below = _NORMAL.cdf(-mean / sd)
    if num % 2:
        return min(sum(_binomial(num, count, 1 - below) for count in range(half + 1, num + 1)), 1.0)
    log_factor = math.lgamma(num + 1) - math.lgamma(half) - math.lgamma(half + 1)
    step = (1 - below) / _NUM_STEPS
    total = 0.0
    for number in range(_NUM_STEPS):
        upper = below + (number + 0.5) * step
        if not 0 < upper < 1:
            continue
        least_lower = 2 - math.exp(mean + sd * _NORMAL.inv_cdf(upper))
        lower = _NORMAL.cdf((math.log(least_lower) - mean) / sd) if least_lower > 0 else 0.0
        inner = upper**half - lower**half
        total += math.exp(log_factor + (half - 1) * math.log1p(-upper)) * inner * step
    return min(max(total, 0.0), 1.0)


def _binomial(num: int, count: int, chance: float) -> float:
    if chance in (0.0, 1.0):
        return float(count == num * chance)
    log_ways = math.lgamma(num + 1) - math.lgamma(count + 1) - math.lgamma(num - count + 1)
    return math.exp(log_ways + count * math.log(chance) + (num - count) * math.log1p(-chance))
