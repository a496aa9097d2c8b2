"""Waiting: the pace, and when it is given up."""

from __future__ import annotations

import itertools

import pytest

from acceptance.formats import Ending
from campaign.errors import InfrastructureError
from campaign.submission.acts import History
from campaign.submission.wait import SILENT_POLLS, Pace, pauses, wait_for_jobs
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


def test_a_submission_that_was_interrupted_is_not_waited_for() -> None:
    def refuse(_pause_s: float) -> None:
        raise AssertionError("waited for a job that there may not be")

    found = wait_for_jobs(lambda: view(AttemptState.INTERRUPTED), PACE, sleep=refuse, show=lambda _: None)
    assert [status.state for status in found.attempts.values()] == [AttemptState.INTERRUPTED]
