from __future__ import annotations

from acceptance.formats import Ending as Everything
from jobs.common.endings import Ending


def test_every_ending_of_the_harness_is_one_that_acceptance_knows() -> None:
    assert {ending.value for ending in Ending} <= {ending.value for ending in Everything}
