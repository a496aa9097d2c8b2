from __future__ import annotations

import pytest

from jobs.measurement.blocks import Block
from jobs.runs.pace import Pace


def block(updates: int, seconds: float) -> Block:
    return Block(updates=updates, microbatches=updates, skipped=0, tokens=updates, seconds=seconds, claimed_s=seconds)


def chunks(update_s: float, left: int, *, limit_s: float = 600.0, first_s: float = 0.0) -> list[int]:
    """Return the chunks of a training whose updates take so long, the first one longer."""
    pace, made = Pace(limit_s), list[int]()
    while left:
        made.append(pace.next_chunk(left))
        left -= made[-1]
        pace.took(block(made[-1], made[-1] * update_s + (first_s if len(made) == 1 else 0.0)))
    return made


def test_chunks_double_from_one_until_they_last_about_two_seconds() -> None:
    assert chunks(0.1, 100) == [1, 2, 4, 8, 16, 20, 20, 20, 9]


def test_an_update_that_lasts_longer_is_a_chunk_by_itself() -> None:
    assert chunks(30.0, 3) == [1, 1, 1]


def test_compilation_in_the_first_update_says_nothing_of_the_rate() -> None:
    assert chunks(0.1, 10, first_s=60.0) == [1, 1, 2, 4, 2]


def test_a_chunk_leaves_room_to_the_limit_of_an_answer() -> None:
    assert max(chunks(0.1, 100, limit_s=1.0)) == 5


def test_a_clock_that_shows_no_time_does_not_stop_a_run() -> None:
    assert chunks(0.0, 20) == [1, 2, 4, 8, 5]


@pytest.mark.parametrize("most", [1, 3])
def test_a_chunk_never_passes_the_next_point(most: int) -> None:
    pace = Pace(600.0)
    pace.took(block(64, 0.1))
    assert pace.next_chunk(most) == most
