from __future__ import annotations

from typing import Any

import pytest

from jobs.common.endings import EndedError, Ending
from jobs.common.plan import Recipe, Rules
from jobs.runs.pilot import split_updates
from jobs.runs.trainee import Stopwatch, find_differences, refuse_other_path

RULES = Rules(
    warmup_updates=20, windows=2, window_s=1.0, pilot_s=1.0, seed=1, clock_relative=0.02, clock_absolute_s=0.05
)


def test_one_step_that_the_machine_holds_up_is_no_disagreement_of_the_clocks() -> None:
    watch = Stopwatch()
    for _ in range(10):
        watch.add(2.0, 2.0)
    watch.add(2.3, 2.0)
    watch.check(RULES, "updates")
    assert watch.side_s == pytest.approx(22.3)


@pytest.mark.parametrize("claimed_s", [0.85, 1.15, 0.0, 100.0])
def test_every_step_may_be_held_up_by_as_much_as_one_alone_and_no_more(claimed_s: float) -> None:
    watch = Stopwatch()
    watch.add(0.5, 0.5)
    watch.add(0.5, claimed_s - 0.5)
    with pytest.raises(EndedError) as caught:
        watch.check(RULES, "updates")
    assert caught.value.ending is Ending.CLOCK_DISAGREEMENT
    watch.add(0.0, 1.08 - claimed_s)
    watch.check(RULES, "updates")


def test_copying_counts_and_is_not_the_sides() -> None:
    watch = Stopwatch(own_s=0.5)
    watch.add(1.0, 1.0)
    assert (watch.seconds, watch.side_s) == (1.5, 1.0)


@pytest.mark.parametrize(
    ("after", "found"),
    [
        ({"a": 1, "b": 0.5, "c": "x"}, []),
        ({"a": 2, "b": 0.5, "c": "x"}, ["a was 1, is 2"]),
        ({"a": 1.0, "b": 0.5, "c": "x"}, ["a was 1, is 1.0"]),
        ({"a": 1, "c": "x", "d": 3}, ["b was 0.5, is absent", "d was absent, is 3"]),
        ({}, ["a was 1, is absent", "b was 0.5, is absent", "c was 'x', is absent"]),
    ],
)
def test_every_difference_of_progress_is_found_and_shown(after: dict[str, Any], found: list[str]) -> None:
    assert find_differences({"a": 1, "b": 0.5, "c": "x"}, after) == found


def test_the_first_path_is_taken_as_it_is_and_then_kept() -> None:
    refuse_other_path("a1", None, "first")
    refuse_other_path("a1", "a1", "later")
    for before in ("b2", ""):
        with pytest.raises(EndedError, match="later: its text stands for the path 'a1'") as caught:
            refuse_other_path("a1", before, "later")
        assert caught.value.ending is Ending.STATE_MISMATCH


@pytest.mark.parametrize(("updates", "split"), [(2, (0, 1)), (3, (1, 1)), (10, (4, 5)), (1000, (20, 979))])
def test_a_pilot_makes_no_more_updates_than_the_recipe_has(updates: int, split: tuple[int, int]) -> None:
    recipe = Recipe(
        name="r", config={}, config_sha256="", targets=1, validation_targets=1, updates=updates, evaluate_every=1
    )
    assert split_updates(recipe, RULES) == split
    assert sum(split) + 1 <= updates
