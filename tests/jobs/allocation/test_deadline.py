"""Whether another attempt fits into a command's time."""

from __future__ import annotations

import pytest

from jobs.allocation.deadline import Deadline
from jobs.common.plan import PlannedAttempt

NAME = "baseline/x/w/1"


def planned(kind: str = "pair") -> PlannedAttempt:
    return PlannedAttempt(
        slot="baseline/x/w",
        attempt=1,
        kind=kind,
        workload="w",
        repeat=1,
        pair=1,
        order=("baseline",),
        updates=1,
        inputs_sha256="",
    )


def make(left_s: float, made_s: float | None = None, kind: str = "pair") -> Deadline:
    deadline = Deadline(stop_at=left_s, clock=lambda: 0.0)
    if made_s is not None:
        deadline.note(planned(kind), made_s)
    return deadline


@pytest.mark.parametrize(
    ("left_s", "expected_s", "fits"),
    [(125.0, 100.0, True), (124.9, 100.0, False), (125.0, float("nan"), False), (0.0, 100.0, False)],
)
@pytest.mark.parametrize("made_s", [None, 1000.0])
def test_what_is_expected_must_fit_with_its_margin(
    left_s: float, expected_s: float, made_s: float | None, *, fits: bool
) -> None:
    assert (make(left_s, made_s).objection(planned(), {NAME: expected_s}) == "") is fits


@pytest.mark.parametrize(("left_s", "fits"), [(25.0, True), (24.9, False)])
def test_where_nothing_tells_the_longest_so_far_of_the_kind_counts(left_s: float, *, fits: bool) -> None:
    deadline = make(left_s, 20.0)
    deadline.note(planned(), 10.0)
    assert (deadline.objection(planned(), {NAME: None}) == "") is fits


@pytest.mark.parametrize(
    ("left_s", "made_s", "fits"),
    [(60.0, 1.0, True), (59.9, 1.0, False), (59.9, None, True), (0.1, None, True), (0.0, None, False)],
)
def test_of_an_unknown_kind_the_first_attempt_of_a_command_is_tried(
    left_s: float, made_s: float | None, *, fits: bool
) -> None:
    assert (make(left_s, made_s, "case").objection(planned(), {}) == "") is fits


@pytest.mark.parametrize(("made_s", "fits"), [(None, True), (1.0, False)])
def test_a_training_that_no_command_has_time_for_is_begun_by_a_fresh_one(made_s: float | None, *, fits: bool) -> None:
    assert (make(60.0, made_s).objection(planned("run"), {NAME: 1e6}) == "") is fits
    assert make(60.0, made_s).objection(planned("case"), {NAME: 1e6})


def test_an_objection_says_what_is_needed_and_what_is_left() -> None:
    assert make(-3.0).objection(planned(), {NAME: 80.0}) == f"{NAME} needs about 100 s, and 0 s are left"
