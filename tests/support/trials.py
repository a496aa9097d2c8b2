"""Simulated trainings: how often the gate of a recipe ends as what, straight from its definition."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from campaign.planning.convergence_power import ConvergenceGate, Look

_PART = 100_000


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
    generator = np.random.default_rng(seed)
    met = missed = 0
    for _ in range(num_trials // _PART):
        every = (gate.second or gate.first).num_seeds
        differences = generator.normal(true_difference, sd, (_PART, every))
        ends_met, ends_missed = _judge(differences, gate.first, gate.margin)
        if gate.second is not None:
            open_ = ~ends_met & ~ends_missed
            later_met, later_missed = _judge(differences, gate.second, gate.margin)
            ends_met, ends_missed = ends_met | (open_ & later_met), ends_missed | (open_ & later_missed)
        met += int(np.count_nonzero(ends_met))
        missed += int(np.count_nonzero(ends_missed))
    return Outcomes(met / num_trials, missed / num_trials, num_trials)


def _judge(
    differences: np.ndarray[tuple[int, int], np.dtype[np.float64]], look: Look, margin: float
) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    own = differences[:, : look.num_seeds]
    half = look.quantile * own.std(axis=1, ddof=1) / math.sqrt(look.num_seeds)
    mean = own.mean(axis=1)
    return mean + half < margin, mean - half >= margin
