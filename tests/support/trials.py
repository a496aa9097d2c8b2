"""Simulated trainings: how often the gate of a recipe ends as what, straight from its definition."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from campaign.planning.convergence_power import ConvergenceGate, Look

_PART = 100_000
_Numbers = np.ndarray[tuple[int], np.dtype[np.float64]]
_Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Shares of the trials."""

    met: float
    missed: float
    num_trials: int

    def error(self, chance: float, sigmas: float = 4.0) -> float:
        """Return how far a share of these trials may be from its true chance."""
        return sigmas * math.sqrt(max(chance * (1 - chance), 1e-12) / self.num_trials) + 1e-9


def simulate(gate: ConvergenceGate, true_difference: float, sd: float, num_trials: int, *, seed: int = 11) -> Outcomes:
    """Draw differences, take the bounds, and count what the gate says."""
    looks = (gate.first, gate.second) if gate.second else (gate.first,)
    drawn = _draw(tuple(look.num_seeds for look in looks), num_trials, seed)
    ends_met, ends_missed = _judge(drawn[0], true_difference, sd, gate.first, gate.margin)
    if gate.second is not None:
        open_ = ~ends_met & ~ends_missed
        later_met, later_missed = _judge(drawn[1], true_difference, sd, gate.second, gate.margin)
        ends_met, ends_missed = ends_met | (open_ & later_met), ends_missed | (open_ & later_missed)
    met, missed = int(np.count_nonzero(ends_met)), int(np.count_nonzero(ends_missed))
    return Outcomes(met / num_trials, missed / num_trials, num_trials)


@functools.lru_cache(maxsize=4)
def _draw(nums_seeds: tuple[int, ...], num_trials: int, seed: int) -> tuple[tuple[_Numbers, _Numbers], ...]:
    """Return mean and SD of every trial's standard normal differences at each look.

    Differences of another mean and spread are these shifted and scaled, and so are their mean and SD: they are drawn
    once for all.
    """
    generator = np.random.default_rng(seed)
    found: list[list[tuple[_Numbers, _Numbers]]] = [[] for _ in nums_seeds]
    for _ in range(num_trials // _PART):
        differences = generator.standard_normal((_PART, nums_seeds[-1]))
        for parts, num in zip(found, nums_seeds, strict=True):
            own = differences[:, :num]
            parts.append((own.mean(axis=1), own.std(axis=1, ddof=1)))
    return tuple(
        (np.concatenate([one[0] for one in parts]), np.concatenate([one[1] for one in parts])) for parts in found
    )


def _judge(
    drawn: tuple[_Numbers, _Numbers], true_difference: float, sd: float, look: Look, margin: float
) -> tuple[_Flags, _Flags]:
    means, spreads = drawn
    half = look.quantile * sd * spreads / math.sqrt(look.num_seeds)
    mean = true_difference + sd * means
    return mean + half < margin, mean - half >= margin
