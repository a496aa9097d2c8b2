from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.submission.plans import examples_digest
from jobs.common.endings import EndedError, Ending
from jobs.measurement.examples import check_examples, digest_examples, digest_steps, join_examples


@given(st.lists(st.integers(0, 1000), unique=True, min_size=1), st.integers(1, 5))
def test_any_division_of_a_batch_is_accepted_and_has_its_digest(batch: list[int], world: int) -> None:
    found = join_examples([batch[rank::world] for rank in range(world)], 0)
    check_examples(found, batch, 0)
    assert digest_examples(found) == digest_examples(Counter(sorted(batch)))


@pytest.mark.parametrize(
    ("by_rank", "alone", "reason"),
    [
        ([[1, 2], [2, 3]], [1, 2, 3], "step 4: ranks 0 and 1 both take example 2"),
        ([[1], [2]], [1, 2, 3], "the ranks lack 1 of the 3 examples of one process, among them 3"),
        ([[1, 4], [2]], [1, 2], "the ranks add 1 of the 2 examples of one process, among them 4"),
        ([[1, 1], [2]], [1, 2], "the ranks add 1 of the 2 examples of one process, among them 1"),
        ([[1], [2]], [1, 1, 2], "the ranks lack 1 of the 3 examples of one process, among them 1"),
        ([[], []], [], "one process alone takes no example"),
    ],
)
def test_what_is_not_the_work_of_one_process_divided_is_refused(
    by_rank: list[list[int]], alone: list[int], reason: str
) -> None:
    with pytest.raises(EndedError, match=reason) as caught:
        check_examples(join_examples(by_rank, 4), alone, 4)
    assert caught.value.ending is Ending.STATE_MISMATCH


def test_driver_and_harness_take_the_same_digest_of_all_steps() -> None:
    digests = [digest_examples(Counter([step])) for step in range(3)]
    assert digest_steps(digests) == examples_digest(digests)
    assert digest_steps(()) == ""
