from __future__ import annotations

import math
from typing import Any

import pytest

from jobs.common.endings import EndedError, Ending
from jobs.common.plan import Rules
from jobs.common.strict import Fields
from jobs.measurement.blocks import Block, calibrate, check_block, check_loss, check_processor_time, check_window

RULES = Rules(
    warmup_updates=3, windows=2, window_s=1.0, pilot_s=1.0, seed=1, clock_relative=0.02, clock_absolute_s=0.05
)


def answer(**changes: Any) -> Fields:
    value = {"updates": 4, "microbatches": 8, "skipped": 0, "tokens": 64, "seconds": 10.0}
    return Fields({**value, **changes}, "answer")


def block(seconds: float, updates: int = 4) -> Block:
    return Block(updates=updates, microbatches=8, skipped=0, tokens=64, seconds=seconds, claimed_s=seconds)


@pytest.mark.parametrize(("claimed_s", "agrees"), [(9.801, True), (10.199, True), (9.799, False), (10.201, False)])
def test_long_blocks_may_differ_by_the_relative_tolerance(claimed_s: float, agrees: bool) -> None:
    if agrees:
        assert check_block(answer(seconds=claimed_s), 4, 10.0, RULES, "window").seconds == 10.0
        return
    with pytest.raises(EndedError) as caught:
        check_block(answer(seconds=claimed_s), 4, 10.0, RULES, "window")
    assert caught.value.ending is Ending.CLOCK_DISAGREEMENT


def test_short_blocks_may_differ_by_the_absolute_tolerance() -> None:
    check_block(answer(seconds=0.1), 4, 0.1499, RULES, "window")
    with pytest.raises(EndedError):
        check_block(answer(seconds=0.1), 4, 0.1501, RULES, "window")


def test_a_block_that_is_not_scored_by_time_is_held_to_its_counts_alone() -> None:
    check_block(answer(seconds=0.1), 4, 10.0, RULES, "warm-up", is_timed=False)
    with pytest.raises(EndedError) as caught:
        check_block(answer(updates=3), 4, 10.0, RULES, "warm-up", is_timed=False)
    assert caught.value.ending is Ending.COUNT_DISAGREEMENT


@pytest.mark.parametrize("changes", [{"tokens": True}, {"tokens": 64.0}, {"updates": -1}, {"seconds": 10}, {"x": 1}])
def test_an_answer_of_other_types_is_malformed(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="answer"):
        check_block(answer(**changes), 4, 10.0, RULES, "window")


def test_a_window_of_exactly_the_minimum_is_long_enough() -> None:
    check_window(block(1.0), 1, RULES)
    for seconds in (math.nextafter(1.0, 0.0), math.nan):
        with pytest.raises(EndedError) as caught:
            check_window(block(seconds), 1, RULES)
        assert caught.value.ending is Ending.WINDOW_SHORT


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999"])
def test_a_loss_that_is_not_finite_ends_the_attempt(text: str) -> None:
    check_loss("2.5")
    with pytest.raises(EndedError) as caught:
        check_loss(text)
    assert caught.value.ending is Ending.NON_FINITE


def test_a_pilot_doubles_its_updates_until_a_block_is_long_enough() -> None:
    asked: list[int] = []

    def run(updates: int) -> Block:
        asked.append(updates)
        return block(0.3 * updates, updates)

    found = calibrate(run, RULES, startup_s=2.0)
    assert asked == [1, 2, 4]
    assert (found.updates, found.updates_per_s, found.tokens_per_update) == (4, 4 / (0.3 * 4), 16.0)


@pytest.mark.parametrize(
    ("most", "made"), [(1, [1]), (2, [1]), (3, [1, 2]), (6, [1, 2]), (7, [1, 2, 4]), (99, [1, 2, 4])]
)
def test_a_pilot_makes_no_more_updates_than_it_may(most: int, made: list[int]) -> None:
    asked: list[int] = []

    def run(updates: int) -> Block:
        asked.append(updates)
        return block(0.3 * updates, updates)

    found = calibrate(run, RULES, startup_s=2.0, most=most)
    assert (asked, found.updates) == (made, made[-1])


@pytest.mark.parametrize(("cpu_s", "threads", "fits"), [(12.0, 1, True), (12.1, 1, False), (22.9, 2, True)])
def test_processor_time_is_bounded_by_threads_and_time(cpu_s: float, threads: int, fits: bool) -> None:
    if fits:
        check_processor_time(cpu_s, 10.0, threads)
        return
    with pytest.raises(EndedError, match=r"12\.100 s of processor time within 10\.000 s") as caught:
        check_processor_time(cpu_s, 10.0, threads)
    assert caught.value.ending is Ending.INTERFERENCE


def test_no_processor_time_that_cannot_be_compared_fits() -> None:
    with pytest.raises(EndedError):
        check_processor_time(math.nan, 10.0, 1)
