from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.documents import Calibration, ConvergenceRules, Recipe
from campaign.planning.outlook import num_points, run_outlook

RULES = ConvergenceRules(checkpoint_s=100)
RECIPE = Recipe(
    name="r",
    config={"x": 1},
    config_sha256="0" * 64,
    targets=8000,
    validation_targets=9,
    updates=1000,
    evaluate_every=250,
)
FOUND = Calibration(
    updates_per_s=2.0,
    tokens_per_update=8.0,
    startup_s=10.0,
    updates=10,
    evaluate_s=5.0,
    checkpoint_bytes=1000,
    save_s=3.0,
)


def test_an_uncut_run_trains_evaluates_and_saves() -> None:
    found = run_outlook(RULES, RECIPE, FOUND)
    assert found is not None
    work = 1000 / 2 + 4 * 5
    assert found.num_segments == 1
    assert found.num_checkpoints == 1 + 5 + 1  # the first, every 100 s of 520 s, the last
    assert found.seconds == 10 + work + 7 * 3
    assert found.checkpoint_bytes == 1000


def test_a_cut_run_starts_loads_and_saves_again_in_every_segment() -> None:
    found = run_outlook(RULES, RECIPE, FOUND, segment_s=210.0)
    assert found is not None
    # 200 s after the start, 4 checkpoints: 188 s of work; later 197 s after loading, 3 checkpoints: 188 s.
    left = 520 - 188 - 188
    assert found.num_segments == 3
    assert found.num_checkpoints == 4 + 4 + 3
    assert found.seconds == pytest.approx(2 * 210 + 10 + 3 + left + 3 * 3)


@given(st.floats(30, 5000), st.floats(0.01, 100), st.floats(0.01, 20))
def test_segments_hold_the_work(segment_s: float, rate: float, save_s: float) -> None:
    calibration = FOUND.replace(updates_per_s=rate, save_s=save_s)
    whole, cut = run_outlook(RULES, RECIPE, calibration), run_outlook(RULES, RECIPE, calibration, segment_s)
    assert whole is not None
    if cut is not None:
        assert cut.seconds >= whole.seconds - 1e-6 or cut.num_segments == 1
        assert cut.num_segments >= math.floor(whole.seconds / (segment_s + save_s)) / 2
        assert cut.seconds <= cut.num_segments * segment_s + 2 * save_s + 1e-6


def test_segments_that_do_not_get_on_have_no_end() -> None:
    assert run_outlook(RULES, RECIPE, FOUND, segment_s=15.0) is None
    assert run_outlook(RULES, RECIPE, FOUND.replace(save_s=200.0), segment_s=300.0) is None


@pytest.mark.parametrize("field", ["evaluate_s", "save_s", "checkpoint_bytes"])
def test_without_the_pilot_of_the_recipe_nothing_is_known(field: str) -> None:
    assert run_outlook(RULES, RECIPE, FOUND.replace(**{field: None})) is None
    assert run_outlook(RULES, RECIPE, FOUND.replace(updates_per_s=0.0)) is None


@pytest.mark.parametrize(("every", "points"), [(250, 4), (300, 4), (1000, 1), (1, 1000)])
def test_the_last_update_has_a_point(every: int, points: int) -> None:
    assert num_points(RECIPE.replace(evaluate_every=every)) == points
