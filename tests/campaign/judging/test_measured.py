"""What the report is told of a measurement that was cut off."""

from __future__ import annotations

from campaign.judging.provenance import _measured
from tests.support.bare import make_receipt, make_side


def test_the_windows_of_each_side_are_summed_and_a_side_without_any_is_left_out() -> None:
    windows = [{"updates": 10, "tokens": 50, "seconds": 0.1}, {"updates": 10, "tokens": 50, "seconds": 0.2}]
    sides = [make_side("baseline", 1, windows=windows), make_side("candidate", 2)]
    (found,) = _measured(make_receipt(sides))
    assert (found.side, found.windows, found.tokens) == ("baseline", 2, 100)
    assert abs(found.seconds - 0.3) < 1e-12


def test_of_an_attempt_without_a_receipt_nothing_is_known() -> None:
    assert _measured(None) == []
