"""How long a job asks for: by the limits where nothing is known, and by the pilots, with a margin, where they are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from campaign import documents
from campaign.planning.calibration import Experience, besides_seconds
from campaign.planning.walltime import (
    APART,
    END_S,
    MARGIN,
    START_S,
    UNSEEN_CASE_S,
    Case,
    apart,
    expected_seconds,
    minutes_for,
)

LIMITS = documents.Limits(import_s=100, startup_s=200, stall_s=300)
SIDE_S = 100 + 200 + (5 + 1) * 300
RULES = documents.ThroughputRules(windows=5, window_s="1", window_margin="1.5", pilot_s="10")
FOUND = documents.Calibration(updates_per_s=2.0, tokens_per_update=8.0, startup_s=30.0, updates=20)
PAIR_S = 2 * 30.0 + 2 * (5 * 3 / 2.0)
"""Both sides' set-up, and five windows of three updates."""


def slot(kind: str, *order: str, workload: str = "w") -> documents.Slot:
    return documents.Slot.of(
        {
            "slot": f"baseline/{kind}/{workload}/r1", "side": "baseline", "phase": "throughput", "kind": kind,
            "workload": workload, "repeat": 1, "pair": 1, "order": order or ("baseline",),
        }
    )  # fmt: skip


PAIR = slot("pair", "baseline", "candidate")
PILOT = slot("pilot")
CASE = slot("case", "baseline", "candidate")


def case(pilots: Mapping[tuple[str, str], documents.Calibration] | None = None, **changes: Any) -> Case:
    values: dict[str, Any] = {
        "limits": LIMITS,
        "throughput": RULES,
        "numerical": documents.NumericalRules(),
        "trained": None,
        "known": Experience(calibrations=pilots or {}),
    }
    return Case(**{**values, **changes})


BOTH = {("baseline", "w"): FOUND, ("candidate", "w"): FOUND}


def minutes(seconds: float) -> int:
    return math.ceil((START_S + seconds + END_S) / 60)


def test_a_pilot_of_which_nothing_is_known_gets_what_the_limits_allow() -> None:
    assert minutes_for(case(), [PILOT]) == minutes(SIDE_S)
    assert minutes_for(case(), [PAIR]) == minutes(2 * SIDE_S)


def test_what_the_pilots_found_is_doubled_and_leaves_room_for_one_answer_at_its_limit() -> None:
    assert minutes_for(case(BOTH), [PAIR]) == minutes(MARGIN * PAIR_S + 300)


def test_the_limits_bound_what_the_pilots_let_expect() -> None:
    slow = documents.Calibration(updates_per_s=2.0, tokens_per_update=8.0, startup_s=1e5, updates=20)
    found = {("baseline", "w"): slow, ("candidate", "w"): slow}
    assert minutes_for(case(found), [PAIR]) == minutes(2 * SIDE_S)


def test_an_allocation_gets_the_sum_of_its_slots() -> None:
    both = case({**BOTH, ("baseline", "x"): FOUND, ("candidate", "x"): FOUND})
    other = slot("pair", "baseline", "candidate", workload="x")
    assert minutes_for(both, [PAIR, other]) == minutes(2 * MARGIN * PAIR_S + 300)


def test_imports_count_as_the_pilots_took_them() -> None:
    known = Experience(calibrations=BOTH, besides_s={("baseline", "w"): 40.0, ("candidate", "w"): 50.0})
    assert minutes_for(case(known=known), [PAIR]) == minutes(MARGIN * (PAIR_S + 90) + 300)
    assert besides_seconds(60.0, FOUND) == pytest.approx(60 - 30 - 10)
    assert besides_seconds(1.0, FOUND) == 0.0


def test_each_time_that_was_over_doubles_the_next_one() -> None:
    assert minutes_for(case(BOTH, timeouts={PAIR.slot: 2}), [PAIR]) == minutes(4 * MARGIN * PAIR_S + 300)


def test_data_and_images_are_hashed_first() -> None:
    assert minutes_for(case(num_bytes=60 * 50_000_000), [PILOT]) == 1 + minutes_for(case(), [PILOT])


def test_a_case_gets_half_an_hour_for_its_comparison_until_one_has_shown_how_long_that_takes() -> None:
    about_s = 2 * (30.0 + 5 / 2.0)
    assert minutes_for(case(BOTH), [CASE]) == minutes(MARGIN * (about_s + UNSEEN_CASE_S) + 300)
    seen = Experience(calibrations=BOTH, case_s={("case", "w"): 100.0})
    assert minutes_for(case(known=seen), [CASE]) == minutes(MARGIN * 100 + 300)


def test_a_run_gets_what_is_left_of_it() -> None:
    recipe = documents.Recipe(
        name="r", config={}, config_sha256="0" * 64, targets=8, validation_targets=9, updates=1000, evaluate_every=250
    )
    rules = documents.ConvergenceRules(recipes=(recipe,))
    found = documents.Calibration(
        updates_per_s=0.01, tokens_per_update=8.0, startup_s=30.0, updates=20, evaluate_s=1.0, checkpoint_bytes=9,
        save_s=1.0,
    )  # fmt: skip
    run = slot("run", workload=recipe.name)
    known = Experience(calibrations={("baseline", recipe.name): found})
    whole = minutes_for(case(known=known, trained=rules), [run])
    half = minutes_for(case(known=known, trained=rules, behind={run.slot: recipe.updates // 2}), [run])
    assert whole > minutes(MARGIN * recipe.updates / 0.01)
    assert whole - half == pytest.approx(MARGIN * (recipe.updates // 2) / 0.01 / 60, rel=0.2)
    unknown = minutes_for(case(trained=rules), [run])
    assert unknown == minutes(24 * 3600 + 300)


def test_what_is_expected_has_no_margin_and_is_nothing_where_nothing_tells() -> None:
    assert expected_seconds(case(), PILOT) is None
    assert expected_seconds(case(), PAIR) is None
    assert expected_seconds(case(BOTH), PAIR) == PAIR_S
    besides = Experience(calibrations=BOTH, besides_s={("baseline", "w"): 7.0, ("candidate", "w"): 2.0})
    assert expected_seconds(case(known=besides), PAIR) == PAIR_S + 9.0


def test_a_case_is_expected_to_take_what_one_of_its_workload_took() -> None:
    assert expected_seconds(case(BOTH), CASE) is None
    seen = {("control_case", "w"): 50.0, ("case", "x"): 90.0}
    assert expected_seconds(case(known=Experience(calibrations=BOTH, case_s=seen)), CASE) == 50.0
    both = {**seen, ("case", "w"): 40.0}
    assert expected_seconds(case(known=Experience(calibrations=BOTH, case_s=both)), CASE) == 50.0


def test_short_and_long_allocations_are_submitted_apart() -> None:
    assert apart([10, 11, 40, 10]) == [40, 40, 40, 40]
    assert apart([10, 41, 12, 160, 165]) == [12, 160, 12, 160, 165]
    assert apart([]) == []
    assert APART == 4


def test_no_slot_of_an_allocation_gets_more_than_the_limits_allow_it() -> None:
    slow = documents.Calibration(updates_per_s=2.0, tokens_per_update=8.0, startup_s=1e5, updates=20)
    other = slot("pair", "baseline", "candidate", workload="x")
    both = case({**BOTH, ("baseline", "x"): slow, ("candidate", "x"): slow})
    assert minutes_for(both, [PAIR, other]) == minutes(MARGIN * PAIR_S + 2 * SIDE_S + 300)
