"""From the pilots' rates to the updates of a window. docs/protocol.md states the rule."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TypeAlias

from acceptance.formats import Ending
from campaign.documents import Calibration, Receipt, Slot, ThroughputRules
from campaign.errors import EvidenceError

Calibrations: TypeAlias = Mapping[tuple[str, str], Calibration]
"""What pilots found, by side (``baseline`` or ``candidate``) and workload."""

BOUNDED_KINDS = ("pilot", "solo", "control_pair", "pair")
"""Kinds of slots whose files have a known size, and whose time the limits bound."""


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


def about_seconds(rules: ThroughputRules, slot: Slot, calibrations: Calibrations) -> float | None:
    """Return how long a slot will take, from the pilots; None while one that it needs is missing.

    Each side's set-up and warm-up, as its pilot had them, and its windows. Both sides execute the updates of every
    window, as many as the faster side needs.
    """
    if slot.kind not in BOUNDED_KINDS:
        return None
    sides = ["baseline" if side == "baseline_again" else side for side in slot.order]
    found = [calibrations.get((side, slot.workload)) for side in sides]
    known = [calibration for calibration in found if calibration is not None and calibration.updates_per_s > 0]
    if len(known) < len(found):
        return None
    startup_s = sum(calibration.startup_s for calibration in known)
    if slot.kind == "pilot":
        return startup_s + len(known) * float(rules.pilot_s)
    updates = rules.windows * updates_per_window(rules, [calibration.updates_per_s for calibration in known])
    return startup_s + sum(updates / calibration.updates_per_s for calibration in known)
