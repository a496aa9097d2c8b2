"""From the pilots' rates to the updates of a window. docs/protocol.md states the rule."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal

from acceptance.formats import Ending
from campaign.documents import Receipt, ThroughputRules
from campaign.errors import EvidenceError


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
