"""The state of attempts and slots: which source counts, and that unknown is neither success nor failure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acceptance.formats import Ending
from campaign.documents import Ended, JobIdentity, Receipt, Retries, Slot, Started
from campaign.submission.acts import Allocation, Attempt, Cancelled, EndedAttempt
from campaign.watching.state import (
    CUTS,
    MISSING,
    AllocationFacts,
    AttemptFacts,
    AttemptState,
    AttemptStatus,
    Job,
    JobStage,
    Patience,
    SlotState,
    SlotStatus,
    allows_another,
    ending_of_state,
    resolve_attempt,
    resolve_slot,
)

NOW = 10_000.0
ATTEMPT = Attempt(slot="baseline/solo/w/r1", attempt=1, updates=4, allocation="a00001", ended=None)
ALLOCATION = Allocation(
    allocation="a00001", submission="k", index=0, minutes=5, plan_sha256="0" * 64, attempts=(), cancelled=None
)
NOTHING = AttemptFacts(began=False, node="", receipt=None, problem="")
BEGAN = replace(NOTHING, began=True, node="n1")
LOST = EndedAttempt(
    slot=ATTEMPT.slot, attempt=1, allocation="a00001", ending=Ending.LOST, reason="gone", source="sacct"
)


def receipt(ending: Ending = Ending.COMPLETED) -> Receipt:
    return Receipt(
        start_sha256="0" * 64,
        slot=ATTEMPT.slot,
        attempt=1,
        allocation="a00001",
        kind="solo",
        ending=ending,
        reason="",
        elapsed_s=1.0,
        at=NOW,
        sides=(),
        calibration=None,
        files=(),
    )


def started() -> Started:
    job = JobIdentity(scheduler="slurm", cluster="c", job_id="7", array_job_id="", array_task_id="", restart_count=0)
    return Started(allocation="a00001", job=job, host="n1", boot_id="b", pid=1, process_start=1, at=NOW - 500.0)


def ended(reason: str) -> Ended:
    return Ended(allocation="a00001", reason=reason, at=NOW, wall_s=1.0, sides_s=1.0, overhead_s=0.0, receipts={})


def where(stage: JobStage, state: str = "", **more: float) -> AllocationFacts:
    job = Job(job="7", stage=stage, state=state, source="squeue", ended_at=more.get("ended_at", 0.0))
    return AllocationFacts(started=None, ended=None, job=job, last_sign_at=more.get("last_sign_at", NOW))


def resolve(
    facts: AttemptFacts, place: AllocationFacts, attempt: Attempt = ATTEMPT, allocation: Allocation = ALLOCATION
) -> AttemptStatus:
    return resolve_attempt(attempt, allocation, facts, place, now=NOW, patience=Patience())


@pytest.mark.parametrize("stage", list(JobStage))
def test_a_sealed_receipt_counts_whatever_else_is_said(stage: JobStage) -> None:
    status = resolve(replace(BEGAN, receipt=receipt()), where(stage, "FAILED"), replace(ATTEMPT, ended=LOST))
    assert (status.state, status.ending, status.source) == (AttemptState.ENDED, Ending.COMPLETED, "receipt")


def test_the_ledger_counts_before_the_scheduler() -> None:
    status = resolve(BEGAN, where(JobStage.RUNNING, "RUNNING"), replace(ATTEMPT, ended=LOST))
    assert (status.ending, status.source) == (Ending.LOST, "ledger")


def test_a_receipt_that_cannot_be_used_is_unknown_and_never_a_success() -> None:
    status = resolve(replace(BEGAN, problem="receipt.json: not JSON"), where(JobStage.ENDED, "COMPLETED"))
    assert (status.state, status.ending) == (AttemptState.UNKNOWN, None)


def test_a_job_that_completed_without_a_receipt_is_lost_not_completed() -> None:
    assert resolve(BEGAN, where(JobStage.ENDED, "COMPLETED")).ending is Ending.LOST


@pytest.mark.parametrize(
    ("state", "ending"),
    [
        ("CANCELLED", Ending.CANCELLED),
        ("TIMEOUT", Ending.TIME_LIMIT),
        ("DEADLINE", Ending.TIME_LIMIT),
        ("NODE_FAIL", Ending.NODE_FAIL),
        ("BOOT_FAIL", Ending.NODE_FAIL),
        ("PREEMPTED", Ending.PREEMPTED),
        ("OUT_OF_MEMORY", Ending.CRASH),
        ("FAILED", Ending.LOST),
        ("SOMETHING_NEW", Ending.LOST),
    ],
)
def test_a_final_state_gives_the_ending(state: str, ending: Ending) -> None:
    assert resolve(BEGAN, where(JobStage.ENDED, state)).ending is ending


def test_memory_that_ran_out_before_an_attempt_began_is_not_its_crash() -> None:
    assert ending_of_state("OUT_OF_MEMORY", began=False) is Ending.LOST


def test_files_of_a_job_that_has_just_ended_may_not_be_visible_yet() -> None:
    status = resolve(BEGAN, where(JobStage.ENDED, "COMPLETED", ended_at=NOW - 1.0))
    assert status.state is AttemptState.UNKNOWN


def test_an_allocation_that_ended_in_order_is_not_waited_for() -> None:
    place = replace(where(JobStage.ENDED, "COMPLETED", ended_at=NOW - 1.0), ended=ended("time_limit"))
    assert resolve(NOTHING, place).ending is Ending.TIME_LIMIT
    # The job may go on with other allocations: this one is over.
    assert resolve(NOTHING, replace(place, job=replace(place.job, stage=JobStage.RUNNING))).ending is Ending.TIME_LIMIT


def test_the_reason_of_an_allocation_is_the_ending_of_attempts_that_were_not_made() -> None:
    place = replace(where(JobStage.ENDED, "FAILED"), ended=ended("harness_error"))
    assert resolve(NOTHING, place).ending is Ending.HARNESS_ERROR


def test_what_an_allocation_says_of_a_node_that_it_refused_is_the_reason_of_its_attempts() -> None:
    refused = ended("node_fail").replace(detail="process 7 (python train) of job 16")
    status = resolve(NOTHING, replace(where(JobStage.ENDED, "FAILED"), ended=refused))
    assert status.ending is Ending.NODE_FAIL
    assert status.reason.endswith("node_fail: process 7 (python train) of job 16")


@pytest.mark.parametrize("reason", ["completed", "void", "all attempts made", ""])
def test_an_allocation_that_says_it_made_an_attempt_without_a_receipt_lost_it(reason: str) -> None:
    place = replace(where(JobStage.ENDED, "COMPLETED"), ended=ended(reason))
    assert resolve(NOTHING, place).ending is Ending.LOST


def test_silence_becomes_lost_only_after_the_deadline() -> None:
    deadline = Patience().absent_s
    before = resolve(BEGAN, where(JobStage.ABSENT, last_sign_at=NOW - deadline))
    after = resolve(BEGAN, where(JobStage.ABSENT, last_sign_at=NOW - deadline - 0.1))
    assert (before.state, before.ending) == (AttemptState.UNKNOWN, None)
    assert (after.state, after.ending) == (AttemptState.ENDED, Ending.LOST)


def test_a_scheduler_that_does_not_answer_never_loses_an_attempt() -> None:
    assert resolve(BEGAN, where(JobStage.UNKNOWN, last_sign_at=0.0)).state is AttemptState.UNKNOWN


def test_an_interrupted_submission_is_neither_pending_nor_lost() -> None:
    assert resolve(NOTHING, where(JobStage.NONE, last_sign_at=0.0)).state is AttemptState.INTERRUPTED


def test_a_submission_that_was_given_up_is_cancelled() -> None:
    given_up = replace(ALLOCATION, cancelled=Cancelled(allocations=("a00001",), reason="no budget"))
    status = resolve(NOTHING, where(JobStage.NONE), allocation=given_up)
    assert status.ending is Ending.CANCELLED
    assert "no budget" in status.reason


def test_a_vanished_job_that_a_person_cancelled_is_cancelled() -> None:
    asked = replace(ALLOCATION, cancelled=Cancelled(allocations=("a00001",), reason="wrong node"))
    assert resolve(BEGAN, where(JobStage.ENDED, "gone"), allocation=asked).ending is Ending.CANCELLED


def test_an_attempt_runs_once_it_has_begun_and_waits_before() -> None:
    assert resolve(BEGAN, where(JobStage.RUNNING)).state is AttemptState.RUNNING
    waiting = resolve(NOTHING, replace(where(JobStage.RUNNING), started=started()))
    assert (waiting.state, waiting.reason) == (AttemptState.PENDING, "its allocation runs")
    assert resolve(NOTHING, where(JobStage.PENDING)).state is AttemptState.PENDING


# --- slots


RULE = Retries()


def attempts(*endings: Ending | None) -> list[AttemptStatus]:
    return [
        AttemptStatus(
            slot="s",
            attempt=number,
            allocation="a",
            job="7",
            state=AttemptState.ENDED if ending else AttemptState.RUNNING,
            ending=ending,
            reason="",
            node="",
            source="",
            receipt=None,
        )
        for number, ending in enumerate(endings, start=1)
    ]


@pytest.mark.parametrize(
    ("endings", "state"),
    [
        ((), SlotState.PLANNED),
        ((None,), SlotState.RUNNING),
        ((Ending.COMPLETED,), SlotState.COMPLETED),
        ((Ending.LOST,), SlotState.RETRYABLE),
        ((Ending.LOST, None), SlotState.RUNNING),
        ((Ending.LOST, Ending.COMPLETED), SlotState.COMPLETED),
        ((Ending.LOST, Ending.PREEMPTED), SlotState.RETRYABLE),
        ((Ending.LOST, Ending.PREEMPTED, Ending.NODE_FAIL), SlotState.EXHAUSTED),
        ((Ending.CRASH,), SlotState.FAILED),
        ((Ending.LOST, Ending.HANG), SlotState.FAILED),
        ((Ending.WINDOW_SHORT,), SlotState.RETRYABLE),
        ((Ending.WINDOW_SHORT, Ending.WINDOW_SHORT), SlotState.EXHAUSTED),
        ((Ending.WINDOW_SHORT, Ending.LOST), SlotState.RETRYABLE),
        ((Ending.WINDOW_SHORT, Ending.LOST, Ending.COMPLETED), SlotState.COMPLETED),
        # Two attempts that ran although the first was final: acceptance would not count the second.
        ((Ending.CRASH, Ending.COMPLETED), SlotState.FAILED),
    ],
)
def test_a_slot_follows_from_its_attempts(endings: tuple[Ending | None, ...], state: SlotState) -> None:
    assert resolve_slot(attempts(*endings), RULE) is state


def test_an_unknown_attempt_makes_its_slot_unknown_and_so_not_missing() -> None:
    unknown = replace(attempts(None)[0], state=AttemptState.UNKNOWN)
    assert resolve_slot([unknown], RULE) is SlotState.UNKNOWN


def test_every_ending_is_final_once_only_or_allows_another() -> None:
    final = {ending for ending in Ending if not allows_another(RULE, [ending])}
    assert Ending.CRASH in final
    assert Ending.COMPLETED in final
    assert not final & {*RULE.again, *RULE.again_once}


# --- runs

MAX_SEGMENTS = 3
RUN = Slot(
    slot="baseline/run/r/s45", side="baseline", phase="baseline", kind="run", workload="r", repeat=0, pair=0,
    order=("baseline",),
)  # fmt: skip
LIMIT, LOST_, CRASH, DONE = Ending.TIME_LIMIT, Ending.LOST, Ending.CRASH, Ending.COMPLETED


def segments(*chains: tuple[Ending | None, ...]) -> list[AttemptStatus]:
    """Return the segments of attempts, each given by its endings; None stands for one that runs."""
    return [
        replace(attempts(ending)[0], attempt=attempt, segment=segment)
        for attempt, chain in enumerate(chains, start=1)
        for segment, ending in enumerate(chain, start=1)
    ]


def run_state(*chains: tuple[Ending | None, ...], rule: Retries = RULE) -> SlotState:
    return resolve_slot(segments(*chains), rule, max_segments=MAX_SEGMENTS)


@pytest.mark.parametrize(
    ("chains", "state"),
    [
        ((), SlotState.PLANNED),
        (((None,),), SlotState.RUNNING),
        (((LIMIT,),), SlotState.CUT),
        (((LIMIT, None),), SlotState.RUNNING),
        (((LIMIT, LOST_),), SlotState.CUT),
        (((LIMIT, LOST_, DONE),), SlotState.COMPLETED),
        (((DONE,),), SlotState.COMPLETED),
        (((CRASH,),), SlotState.FAILED),
        (((LIMIT, CRASH),), SlotState.FAILED),
        (((LIMIT, Ending.CHECKPOINT_REFUSED),), SlotState.FAILED),
        # All segments are used up: the last one's ending is the attempt's, and that is what the retry rule sees.
        (((LIMIT, LIMIT, LOST_),), SlotState.RETRYABLE),
        (((LOST_, LOST_, LIMIT),), SlotState.EXHAUSTED),
        (((LOST_, LOST_, LOST_), (LIMIT,)), SlotState.CUT),
        (((LOST_, LOST_, LOST_), (CRASH,)), SlotState.FAILED),
        (((LOST_,) * 3, (LOST_,) * 3, (LOST_,) * 2), SlotState.CUT),
        (((LOST_,) * 3, (LOST_,) * 3, (LOST_,) * 3), SlotState.EXHAUSTED),
        (((LOST_,) * 3, (LOST_, DONE)), SlotState.COMPLETED),
        (((Ending.WINDOW_SHORT,),), SlotState.FAILED),
        # The first attempt allowed no second one: acceptance would not count it, so that it does not go on.
        (((CRASH,), (LIMIT,)), SlotState.EXHAUSTED),
        (((CRASH,), (DONE,)), SlotState.FAILED),
        (((LIMIT, LIMIT, LIMIT), (DONE,)), SlotState.FAILED),
        # A segment that was given up sealed another ending after all: what came after it is surplus.
        (((CRASH, DONE),), SlotState.FAILED),
        (((DONE, CRASH),), SlotState.COMPLETED),
        (((DONE, None),), SlotState.RUNNING),
    ],
)
def test_a_run_follows_from_the_segments_of_its_attempts(
    chains: tuple[tuple[Ending | None, ...], ...], state: SlotState
) -> None:
    assert run_state(*chains) is state


@pytest.mark.parametrize("ending", list(Ending))
def test_a_segment_is_followed_by_another_after_a_cut_and_after_nothing_else(ending: Ending) -> None:
    is_cut = ending in {
        Ending.TIME_LIMIT, Ending.PREEMPTED, Ending.NODE_FAIL, Ending.LOST, Ending.CANCELLED, Ending.NO_SPACE,
    }  # fmt: skip
    assert (run_state((ending,)) is SlotState.CUT) == is_cut
    assert (ending in CUTS) == is_cut


def test_a_run_goes_on_after_a_cut_that_would_allow_no_other_attempt() -> None:
    strict = Retries(again=(), again_once=())
    assert run_state((LOST_,), rule=strict) is SlotState.CUT
    assert run_state((LOST_, LOST_, LOST_), rule=strict) is SlotState.EXHAUSTED


def test_only_a_run_is_cut() -> None:
    assert resolve_slot(attempts(LIMIT), RULE) is SlotState.RETRYABLE
    assert SlotState.CUT in MISSING


def test_the_endings_of_a_run_are_those_of_its_attempts() -> None:
    status = SlotStatus(
        slot=RUN,
        name=RUN.slot,
        state=SlotState.COMPLETED,
        attempts=tuple(segments((LIMIT, LIMIT, LOST_), (LIMIT, DONE))),
    )
    assert status.endings == (LOST_, DONE)
    assert [len(chain) for chain in status.chains] == [3, 2]
    assert status.completed is not None
    assert (status.completed.attempt, status.completed.segment) == (2, 2)
    running = replace(status, attempts=tuple(segments((LIMIT, LIMIT, LOST_), (LIMIT, None))))
    assert (running.endings, running.completed) == ((LOST_,), None)
