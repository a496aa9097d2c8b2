"""Waiting: the pace, and when it is given up."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from acceptance.formats import Ending
from campaign.errors import InfrastructureError, StateError
from campaign.submission.acts import History
from campaign.submission.limits import NoRoomError
from campaign.submission.wait import (
    GLANCE_S,
    LOOK_SHARE,
    ROOM_TRIES,
    SILENT_POLLS,
    SURE_S,
    Pace,
    Squeeze,
    pauses,
    wait_for_jobs,
    when_room_may_have_come,
)
from campaign.watching.observation import View
from campaign.watching.state import AttemptState, AttemptStatus

PACE = Pace(first_s=1.0, longest_s=3.0, factor=2.0)


def view(state: AttemptState, *troubles: str) -> View:
    ending = Ending.COMPLETED if state is AttemptState.ENDED else None
    attempt = AttemptStatus(
        slot="s", attempt=1, allocation="a", job="7", state=state, ending=ending, reason="", node="", source="",
        receipt=None,
    )  # fmt: skip
    return View(history=History(), slots={}, attempts={attempt.key: attempt}, troubles=troubles)


def test_pauses_grow_to_the_longest() -> None:
    assert list(itertools.islice(pauses(PACE), 4)) == [1.0, 2.0, 3.0, 3.0]


def test_pauses_start_again_when_something_changes() -> None:
    states = [AttemptState.PENDING] * 3 + [AttemptState.RUNNING] * 2 + [AttemptState.ENDED]
    views = iter([view(state) for state in states])
    slept: list[float] = []
    wait_for_jobs(lambda: next(views), PACE, sleep=slept.append, show=lambda _: None)
    assert slept == [1.0, 2.0, 3.0, 1.0, 2.0]


def test_an_unknown_attempt_is_waited_for() -> None:
    views = iter([view(AttemptState.UNKNOWN), view(AttemptState.ENDED)])
    slept: list[float] = []
    wait_for_jobs(lambda: next(views), PACE, sleep=slept.append, show=lambda _: None)
    assert len(slept) == 1


def test_a_scheduler_that_stays_silent_ends_the_wait_and_not_the_jobs() -> None:
    slept: list[float] = []
    with pytest.raises(InfrastructureError, match="does not answer"):
        wait_for_jobs(
            lambda: view(AttemptState.UNKNOWN, "squeue: timed out"), PACE, sleep=slept.append, show=lambda _: None
        )
    assert len(slept) == SILENT_POLLS - 1


def test_a_wait_goes_on_while_the_queue_tells_of_jobs_although_accounting_is_silent() -> None:
    views = iter([view(AttemptState.RUNNING, "sacct: refused")] * (2 * SILENT_POLLS) + [view(AttemptState.ENDED)])
    found = wait_for_jobs(lambda: next(views), PACE, sleep=lambda _: None, show=lambda _: None)
    assert found.troubles == ()


def test_a_submission_that_was_interrupted_is_not_waited_for() -> None:
    def refuse(_pause_s: float) -> None:
        raise AssertionError("waited for a job that there may not be")

    found = wait_for_jobs(lambda: view(AttemptState.INTERRUPTED), PACE, sleep=refuse, show=lambda _: None)
    assert [status.state for status in found.attempts.values()] == [AttemptState.INTERRUPTED]


def pending(**hopeless: str) -> View:
    """Return a view of waiting jobs, by allocation with why they are hopeless, if they are."""
    attempts = [
        AttemptStatus(
            slot=name, attempt=1, allocation=name, job=f"7_{index}", state=AttemptState.PENDING, ending=None,
            reason=why or "Priority", node="", source="squeue", receipt=None, hopeless=why,
        )
        for index, (name, why) in enumerate(hopeless.items())
    ]  # fmt: skip
    return View(history=History(), slots={}, attempts={one.key: one for one in attempts}, troubles=())


def test_a_wait_ends_once_nothing_but_hopeless_jobs_is_left_and_says_what_ends_them() -> None:
    slept: list[float] = []
    stuck = pending(a="PartitionTimeLimit: too long", b="PartitionTimeLimit: too long")
    with pytest.raises(InfrastructureError, match="will not start by themselves") as given_up:
        wait_for_jobs(lambda: stuck, PACE, sleep=slept.append, show=lambda _: None)
    assert given_up.value.exit_code == 6
    assert "2 job(s), such as 7_0: PartitionTimeLimit" in given_up.value.why
    assert "campaign cancel" in given_up.value.hint
    assert len(slept) >= 1
    assert SURE_S <= sum(slept) <= SURE_S + PACE.longest_s


def test_a_hopeless_job_is_waited_for_beside_one_that_may_start_or_may_have_come_free() -> None:
    stuck, mixed, ended = pending(a="JobHeldUser: held"), pending(a="JobHeldUser: held", b=""), view(AttemptState.ENDED)
    views = iter([*[mixed] * 50, *[stuck] * 4, mixed, *[stuck] * 4, ended])
    assert wait_for_jobs(lambda: next(views), PACE, sleep=lambda _: None, show=lambda _: None) is ended


def test_jobs_of_another_cluster_are_not_waited_for() -> None:
    away = replace(view(AttemptState.UNKNOWN), elsewhere=("submitted to cluster a; this host's commands reach b",))
    with pytest.raises(StateError, match="another cluster"):
        wait_for_jobs(lambda: away, PACE, sleep=lambda _: None, show=lambda _: None)


def test_what_waits_for_room_goes_on_once_a_share_of_what_runs_has_ended() -> None:
    eight, seven, six = (pending(**dict.fromkeys("abcdefgh"[:number], "")) for number in (8, 7, 6))
    views = iter([eight, eight, seven, six])
    is_enough = when_room_may_have_come()
    found = wait_for_jobs(lambda: next(views), PACE, sleep=lambda _: None, show=lambda _: None, is_enough=is_enough)
    assert found is six


def test_a_refusal_halves_what_is_tried_and_then_waits_longer_and_longer_but_not_for_ever() -> None:
    slept: list[float] = []
    squeeze = Squeeze(sleep=slept.append)
    tried = []
    for size in (100, 50, 25, 12, 6, 3):
        squeeze.refused(NoRoomError("no", size))
        tried.append(squeeze.cap)
    assert tried == [50, 25, 12, 6, 3, 1]
    assert slept == []
    squeeze.refused(NoRoomError("no", 1))
    assert (squeeze.cap, slept) == (None, [15.0])
    squeeze.took()
    for _ in range(ROOM_TRIES - 1):
        squeeze.refused(NoRoomError("no", 1))
    assert slept[1:4] == [15.0, 30.0, 60.0]
    assert max(slept) == 600.0
    with pytest.raises(NoRoomError):
        squeeze.refused(NoRoomError("no", 1))


def test_a_pause_ends_early_once_all_allocations_under_way_say_that_they_ended() -> None:
    views = iter([view(AttemptState.RUNNING), view(AttemptState.ENDED)])
    slept: list[float] = []
    wait_for_jobs(
        lambda: next(views),
        Pace(first_s=60.0, longest_s=60.0),
        sleep=slept.append,
        show=lambda _: None,
        has_ended=lambda allocation: allocation == "a" and len(slept) >= 3,
    )
    assert slept == [GLANCE_S] * 3


def test_what_has_ended_and_is_not_settled_is_slept_for() -> None:
    views = iter([view(AttemptState.UNKNOWN), view(AttemptState.ENDED)])
    slept: list[float] = []
    wait_for_jobs(lambda: next(views), PACE, sleep=slept.append, show=lambda _: None, has_ended=lambda _: True)
    assert slept == [1.0]


def test_looks_that_take_long_are_made_less_often_but_not_less_than_the_pace_allows() -> None:
    views = iter([view(AttemptState.RUNNING), view(AttemptState.RUNNING), view(AttemptState.ENDED)])
    times = iter([0.0, 0.2, 10.0, 10.9, 20.0, 20.1])
    slept: list[float] = []
    wait_for_jobs(lambda: next(views), PACE, sleep=slept.append, show=lambda _: None, clock=lambda: next(times))
    assert slept == [pytest.approx(LOOK_SHARE * 0.2), PACE.longest_s]
