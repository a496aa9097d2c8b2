"""Updates per window from the pilots' rates."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceptance.formats import Ending
from campaign.documents import Calibration, Receipt, ThroughputRules
from campaign.errors import EvidenceError
from campaign.planning.calibration import pilot_rate, updates_per_window

RULES = ThroughputRules()


def pilot(rate: float | None) -> Receipt:
    found = (
        Calibration(updates_per_s=rate, tokens_per_update=1.0, startup_s=1.0, updates=1) if rate is not None else None
    )
    return Receipt(
        start_sha256="0" * 64,
        slot="baseline/pilot/w",
        attempt=1,
        allocation="a00001",
        kind="pilot",
        ending=Ending.COMPLETED,
        reason="",
        elapsed_s=1.0,
        at=0.0,
        sides=(),
        calibration=found,
        files=(),
    )


def test_the_faster_side_decides() -> None:
    assert updates_per_window(RULES, [4.0, 9.7]) == math.ceil(1.25 * 9.7)
    assert updates_per_window(RULES, [9.7, 4.0]) == math.ceil(1.25 * 9.7)


def test_a_product_that_is_whole_is_not_rounded_up() -> None:
    # In binary floating point 1.1 * 10 exceeds 11.
    rules = ThroughputRules(window_margin="1.1")
    assert updates_per_window(rules, [10.0]) == 11


def test_a_slow_side_makes_at_least_one_update() -> None:
    assert updates_per_window(RULES, [0.001]) == 1


def test_a_short_window_doubles_the_count_once_and_for_all_later_attempts() -> None:
    assert updates_per_window(RULES, [4.0], [Ending.WINDOW_SHORT]) == 10
    assert updates_per_window(RULES, [4.0], [Ending.WINDOW_SHORT, Ending.LOST]) == 10
    assert updates_per_window(RULES, [4.0], [Ending.LOST]) == 5


@pytest.mark.parametrize("rate", [None, 0.0, -1.0, math.nan, math.inf])
def test_a_pilot_without_a_positive_rate_is_refused(rate: float | None) -> None:
    with pytest.raises(EvidenceError):
        pilot_rate(pilot(rate))


@given(st.floats(min_value=1e-3, max_value=1e4), st.floats(min_value=1e-3, max_value=1e4))
def test_a_window_of_the_faster_side_is_planned_to_last_its_minimum(first: float, second: float) -> None:
    updates = updates_per_window(RULES, [first, second])
    assert updates / max(first, second) >= 1.0
