"""What a run will take, from the pilot of its recipe: time, segments and checkpoints."""

from __future__ import annotations

import math
from dataclasses import dataclass

from campaign.documents import Calibration, ConvergenceRules, Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutlook:
    """What one run will take."""

    seconds: float
    """All segments together."""
    num_segments: int
    num_checkpoints: int
    checkpoint_bytes: int
    """One of them; all are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Segments:
    """What a segment spends beside updates and evaluations.

    It starts the side, loads what it goes on from (taken to be as long as saving it), and saves after its first
    updates, every `checkpoint_s` and at its end.
    """

    startup_s: float
    save_s: float
    checkpoint_s: int
    limit_s: float
    """Seconds after which it is told to stop."""

    def num_saved(self, seconds: float) -> int:
        """Return the checkpoints of so many seconds of training."""
        return 2 + int(seconds // self.checkpoint_s)

    def capacity(self, *, loads: bool) -> float:
        """Return how much work a segment does that is cut at its limit; zero or less where it does not get on."""
        left_s = self.limit_s - self.startup_s - (self.save_s if loads else 0.0)
        return left_s - self.num_saved(max(left_s, 0.0)) * self.save_s


def num_points(recipe: Recipe) -> int:
    """Return the points of a validation curve; the last update has one in any case."""
    return math.ceil(recipe.updates / recipe.evaluate_every)


def run_outlook(
    rules: ConvergenceRules, recipe: Recipe, found: Calibration, segment_s: float = math.inf
) -> RunOutlook | None:
    """Return what a run will take; None where its segments are too short to get on, or the pilot does not say.

    Args:
        rules: The rules of the convergence family.
        recipe: The recipe.
        found: What its pilot found on this side.
        segment_s: Seconds after which a segment is told to stop; infinite where it is not.
    """
    if found.evaluate_s is None or found.save_s is None or found.checkpoint_bytes is None or found.updates_per_s <= 0:
        return None
    segments = _Segments(
        startup_s=found.startup_s, save_s=found.save_s, checkpoint_s=rules.checkpoint_s, limit_s=segment_s
    )
    work_s = recipe.updates / found.updates_per_s + num_points(recipe) * found.evaluate_s
    cut = _cut(segments, work_s)
    if cut is None:
        return None
    num_cut, last_s = cut
    saved = segments.num_saved(last_s)
    seconds = found.startup_s + last_s + saved * found.save_s
    if num_cut:
        seconds += found.save_s + num_cut * segment_s
        saved += num_cut * segments.num_saved(max(segment_s - found.startup_s, 0.0))
    return RunOutlook(
        seconds=seconds, num_segments=num_cut + 1, num_checkpoints=saved, checkpoint_bytes=found.checkpoint_bytes
    )


def _cut(segments: _Segments, work_s: float) -> tuple[int, float] | None:
    """Return how many segments are cut at their limit, and the work that is left for the one after them."""
    if segments.limit_s == math.inf:
        return 0, work_s
    left_s = work_s - max(segments.capacity(loads=False), 0.0)
    if left_s <= 0:
        return 0, work_s
    later_s = segments.capacity(loads=True)
    if later_s <= 0:
        return None
    num_full = math.ceil(left_s / later_s) - 1
    return 1 + num_full, left_s - num_full * later_s
