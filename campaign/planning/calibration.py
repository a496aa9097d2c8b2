"""From the pilots' rates to the updates of a window. docs/protocol.md states the rule."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TypeAlias

from acceptance.formats import Ending
from campaign.documents import Calibration, ConvergenceRules, NumericalRules, Receipt, Slot, ThroughputRules
from campaign.errors import EvidenceError
from campaign.planning.outlook import run_outlook

Calibrations: TypeAlias = Mapping[tuple[str, str], Calibration]
"""What pilots found, by side (``baseline`` or ``candidate``) and workload."""

BOUNDED_KINDS = ("pilot", "solo", "control_pair", "pair")
"""Kinds of slots whose files have a known size, and whose time the limits bound."""
CASE_KINDS = ("control_case", "case")
"""Kinds of slots that compare matched updates: how much there is to compare depends on the model."""
RUN_KIND = "run"
"""The kind of slots that are trainings: as long as their recipe says, in as many segments as that needs."""


def pilot_rate(receipt: Receipt) -> float:
    """Return the rate that a pilot found, in updates per second.

    Raises:
        EvidenceError: A completed pilot without a usable rate.
    """
    rate = receipt.calibration.updates_per_s if receipt.calibration is not None else math.nan
    if not (math.isfinite(rate) and rate > 0.0):
        raise EvidenceError(f"the pilot {receipt.slot} completed without a positive rate", where=receipt.slot)
    return rate


def updates_per_window(rules: ThroughputRules, rates_per_s: Sequence[float], earlier: Iterable[Ending] = ()) -> int:
    """Return the updates in each window of an attempt.

    ceil(window_margin * window_s * rate of the faster side), the same in every repeat; twice that once a window was
    shorter than its minimum.

    Args:
        rules: The frozen rules.
        rates_per_s: The pilots' rates of the sides that are measured, in updates per second.
        earlier: The endings of the slot's earlier attempts.
    """
    rate = max(Decimal(repr(rate)) for rate in rates_per_s)
    updates = max(1, math.ceil(Decimal(rules.window_margin) * Decimal(rules.window_s) * rate))
    return 2 * updates if Ending.WINDOW_SHORT in earlier else updates


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """What has been found so far of how long slots take."""

    calibrations: Calibrations = field(default_factory=dict)
    case_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Seconds of a completed case, by kind of slot and workload."""
    besides_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Seconds of a pilot beside set-up and calibration, such as imports, by side and workload."""

    def besides(self, slot: Slot) -> float:
        """Return such seconds of all sides of a slot; 0 for a side of which they are not known."""
        return sum(self.besides_s.get((side, slot.workload), 0.0) for side in _sides_of(slot))


def about_seconds(
    rules: ThroughputRules,
    numerical: NumericalRules | None,
    slot: Slot,
    known: Experience,
    *,
    trained: ConvergenceRules | None = None,
    segment_s: float = math.inf,
) -> float | None:
    """Return how long a slot will take, from the pilots; None while one that it needs is missing.

    Each side's set-up and warm-up, as its pilot had them, and its windows. Both sides execute the updates of every
    window, as many as the faster side needs. A case takes as long as one of its workload took; until there is one,
    its set-ups and updates are counted, without the comparison. A run takes what `run_outlook` says.

    Args:
        rules: The rules of the throughput family.
        numerical: Those of the numerical family, if it is declared.
        slot: The slot.
        known: What is known so far.
        trained: The rules of the convergence family, if it is declared.
        segment_s: Seconds after which a segment of a run is told to stop.
    """
    if slot.kind not in (*BOUNDED_KINDS, *CASE_KINDS, RUN_KIND):
        return None
    found = [known.calibrations.get((side, slot.workload)) for side in _sides_of(slot)]
    usable = [calibration for calibration in found if calibration is not None and calibration.updates_per_s > 0]
    if len(usable) < len(found):
        return None
    if slot.kind == RUN_KIND:
        return _about_run(trained, slot, usable[0], segment_s) if trained is not None else None
    if slot.kind in CASE_KINDS:
        return _about_case(numerical, slot, usable, known.case_s) if numerical is not None else None
    startup_s = sum(calibration.startup_s for calibration in usable)
    if slot.kind == "pilot":
        return startup_s + len(usable) * float(rules.pilot_s) + sum(_about_saving(one) for one in usable)
    updates = rules.windows * updates_per_window(rules, [calibration.updates_per_s for calibration in usable])
    return startup_s + sum(updates / calibration.updates_per_s for calibration in usable)


def _sides_of(slot: Slot) -> list[str]:
    return ["baseline" if side == "baseline_again" else side for side in slot.order]


def _about_run(rules: ConvergenceRules, slot: Slot, found: Calibration, segment_s: float) -> float | None:
    recipes = [recipe for recipe in rules.recipes if recipe.name == slot.workload]
    outlook = run_outlook(rules, recipes[0], found, segment_s) if recipes else None
    return None if outlook is None else outlook.seconds


def besides_seconds(elapsed_s: float, found: Calibration) -> float:
    """Return what a pilot took beside set-up, calibration and saving: imports, and proving the adapter.

    Args:
        elapsed_s: The whole pilot.
        found: What it found.
    """
    calibrated_s = found.updates / found.updates_per_s if found.updates_per_s > 0 else 0.0
    return max(0.0, elapsed_s - found.startup_s - calibrated_s - _about_saving(found))


def _about_saving(found: Calibration) -> float:
    """Return what the pilot of a recipe does beside calibrating: it evaluates, saves, starts anew and loads."""
    if found.evaluate_s is None or found.save_s is None:
        return 0.0
    return found.evaluate_s + found.startup_s + 2 * found.save_s


def _about_case(
    rules: NumericalRules, slot: Slot, sides: Sequence[Calibration], case_s: Mapping[tuple[str, str], float]
) -> float:
    seen = case_s.get((slot.kind, slot.workload), case_s.get(("control_case", slot.workload)))
    if seen is not None:
        return seen
    shares = slot.kind == "control_case" and slot.workload in rules.shared_executor
    if shares:
        sides = sides[:1]
    # Sides that take turns on the device are built anew for every turn, unless they share one process.
    in_turns = not shares and slot.workload in (*rules.serialized, *rules.shared_executor)
    starts = rules.updates if in_turns else 1
    return sum(starts * side.startup_s + rules.updates / side.updates_per_s for side in sides)
