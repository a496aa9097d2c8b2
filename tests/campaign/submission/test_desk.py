"""The desk: what is submitted, that nothing is lost or doubled, and what a refusal leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from acceptance.formats import Ending
from campaign.documents import AllocationPlan
from campaign.errors import EvidenceError, InfrastructureError, StateError
from campaign.paths import HomePaths
from campaign.record.ledger import read_entries
from campaign.submission import acts
from campaign.submission.desk import Desk, Order, Wish
from campaign.submission.ending import cancel
from campaign.submission.limits import NoRoomError
from campaign.watching.scheduler import Slurm
from campaign.watching.state import AttemptState, SlotState
from tests.campaign.submission.support import Cluster, KilledError, make_desk
from tests.support.home import CANDIDATE, SMALL
from tests.support.jobs import RESOURCES, JobHome, make_job_home

WISH = Wish(candidate=CANDIDATE, cluster="slurm")


@pytest.fixture
def home(tmp_path: Path) -> JobHome:
    return make_job_home(tmp_path / "a home")


def quiet(_line: str) -> None:
    """Drop what the desk says."""


def order_of(desk: Desk, wish: Wish = WISH) -> Order:
    return desk.order(wish, desk.view(wish.candidate), desk.array_limit(wish.cluster))


def submit(desk: Desk, wish: Wish = WISH) -> Order:
    desk.settle(quiet)
    order = order_of(desk, wish)
    if order.all:
        desk.hand_over(wish, order, quiet)
    return order


def run_jobs(home: JobHome, cluster: Cluster) -> None:
    """Run the payloads that the cluster took and that have not run, as its nodes would."""
    for request in cluster.requests:
        for argv in request.payloads:
            started = home.paths.allocation(Path(argv[-1]).parent.name).started
            if not started.exists():
                known = cluster.environment(argv) if request.cluster == "slurm" else {}
                subprocess.run(argv, check=False, cwd="/", env={**os.environ, **known})
    cluster.become("COMPLETED")


def states(desk: Desk) -> dict[str, SlotState]:
    return {name: status.state for name, status in desk.view(CANDIDATE).slots.items()}


def intents(home: JobHome) -> list[acts.Intent]:
    found = [entry for entry in read_entries(home.paths) if entry.act == "intent"]
    return [acts.Intent.parse(json.dumps(entry.data).encode(), where="") for entry in found]


def test_the_pilots_of_both_sides_go_first_and_alone(home: JobHome, cluster: Cluster) -> None:
    order = submit(make_desk(home, cluster))
    assert set(order.choice.slots) == {
        f"{side}/pilot/{name}" for side in ("baseline", CANDIDATE) for name in ("sync-b4", "packed-b4")
    }
    assert len(order.choice.waiting) == 12
    assert home.acts() == ["froze_baseline", "froze_candidate", "intent", "submitted"]


def test_a_second_submission_while_the_first_is_under_way_submits_nothing(home: JobHome, cluster: Cluster) -> None:
    desk = make_desk(home, cluster)
    submit(desk)
    assert submit(desk).all == ()
    cluster.become("RUNNING")
    assert submit(desk).all == ()
    assert len(cluster.requests) == 1


def test_the_rest_follows_the_pilots_and_then_nothing_is_missing(home: JobHome, cluster: Cluster) -> None:
    desk = make_desk(home, cluster)
    home.wish(rates={"baseline": 4.0, CANDIDATE: 8.0})
    submit(desk)
    run_jobs(home, cluster)
    order = submit(desk)
    assert len(order.choice.slots) == 12
    updates = {one.slot: one.updates for batch in order.all for al in batch.allocations for one in al.attempts}
    assert updates["baseline/solo/sync-b4/r1"] == 5
    assert updates["baseline/control/sync-b4/r2"] == 5
    assert updates[f"{CANDIDATE}/pair/sync-b4/r1"] == 10
    run_jobs(home, cluster)
    assert submit(desk).all == ()
    assert set(states(desk).values()) == {SlotState.COMPLETED}
    assert home.doubles() == []


def test_an_allocation_names_only_what_it_runs(home: JobHome, cluster: Cluster) -> None:
    desk = make_desk(home, cluster)
    submit(desk)
    run_jobs(home, cluster)
    submit(desk)
    plans = [AllocationPlan.read(path) for path in sorted(home.paths.allocations.glob("*/allocation.json"))]
    for plan in plans:
        kinds = {attempt.kind for attempt in plan.attempts}
        if kinds & {"solo", "control_pair"}:
            assert set(plan.sides) == {"baseline"}
        if "pair" in kinds:
            assert set(plan.sides) == {"baseline", "candidate"}
        assert len({attempt.repeat for attempt in plan.attempts}) == 1
    assert len({plan.allocation for plan in plans}) == len(plans)


def test_a_retry_is_a_new_attempt_in_a_new_allocation(home: JobHome, cluster: Cluster) -> None:
    desk = make_desk(home, cluster)
    home.wish(endings={"baseline/pilot/sync-b4/1": "node_fail"})
    submit(desk)
    run_jobs(home, cluster)
    order = submit(desk)
    (batch,) = order.all
    (allocation,) = batch.allocations
    assert [(one.slot, one.attempt) for one in allocation.attempts] == [("baseline/pilot/sync-b4", 2)]
    # The baseline's pilot is one: nothing of the baseline goes before it is complete.
    assert all("pilot" in name for name in order.choice.slots)


def test_a_crash_is_final_and_takes_only_what_needs_it(home: JobHome, cluster: Cluster) -> None:
    desk = make_desk(home, cluster)
    home.wish(endings={"baseline/pilot/sync-b4/1": "crash"})
    submit(desk)
    run_jobs(home, cluster)
    order = submit(desk)
    assert all("packed-b4" in name for name in order.choice.slots)
    assert f"{CANDIDATE}/pair/sync-b4/r1" in order.choice.out_of_reach
    assert states(desk)["baseline/pilot/sync-b4"] is SlotState.FAILED


def test_an_incomplete_adapter_stops_its_side(home: JobHome, cluster: Cluster) -> None:
    desk = make_desk(home, cluster)
    home.wish(endings={f"{CANDIDATE}/pilot/sync-b4/1": "adapter_incomplete"})
    submit(desk)
    run_jobs(home, cluster)
    with pytest.raises(StateError, match="incomplete"):
        submit(desk)
    baseline = submit(desk, Wish(candidate=CANDIDATE, cluster="slurm", phase="baseline"))
    assert len(baseline.choice.slots) == 8


def test_attempts_of_a_job_that_died_get_the_schedulers_ending_once(home: JobHome, cluster: Cluster) -> None:
    desk = make_desk(home, cluster)
    submit(desk)
    cluster.become("NODE_FAIL")
    desk.settle(quiet)
    desk.settle(quiet)
    recorded = [entry.data for entry in read_entries(home.paths) if entry.act == "ended"]
    assert {one["slot"] for one in recorded} == set(order_of(desk).choice.slots)
    assert len(recorded) == 4
    assert {(one["ending"], one["source"], one["attempt"]) for one in recorded} == {("node_fail", "squeue", 1)}


class _EndsWhenAsked(Cluster):
    """Every job ends just before the queue answers."""

    home: JobHome

    def run(self, command: Sequence[str]) -> str:
        if command[0] == "squeue":
            run_jobs(self.home, self)
            self.become("COMPLETED")
        return super().run(command)


def test_an_attempt_that_is_sealed_while_its_job_is_asked_for_is_not_lost(home: JobHome) -> None:
    cluster = _EndsWhenAsked()
    cluster.home = home
    desk = make_desk(home, cluster)
    submit(desk)
    view = desk.view(CANDIDATE)
    assert {one.ending for one in view.attempts.values()} == {Ending.COMPLETED}
    assert {one.source for one in view.attempts.values()} == {"receipt"}
    desk.settle(quiet)
    assert "ended" not in home.acts()


def test_after_the_last_attempt_nothing_is_submitted_again(home: JobHome, cluster: Cluster) -> None:
    desk = make_desk(home, cluster)
    for _ in range(3):
        assert submit(desk).all
        cluster.become("PREEMPTED")
    assert submit(desk).all == ()
    assert states(desk)["baseline/pilot/sync-b4"] is SlotState.EXHAUSTED
    assert len(order_of(desk).choice.out_of_reach) == 16


def test_a_scheduler_that_does_not_answer_makes_nothing_missing(home: JobHome, cluster: Cluster) -> None:
    desk = make_desk(home, cluster)
    submit(desk)
    cluster.down = True
    view = desk.view(CANDIDATE)
    assert {status.state for status in view.attempts.values()} == {AttemptState.UNKNOWN}
    assert view.troubles
    assert desk.order(WISH, view, 100).all == ()


def test_arrays_are_cut_to_the_controllers_limit_each_from_zero(home: JobHome) -> None:
    cluster = Cluster(limit=3)
    desk = make_desk(home, cluster)
    submit(desk)
    assert [len(request.payloads) for request in cluster.requests] == [3, 1]
    assert sorted(cluster.jobs) == ["100_0", "100_1", "100_2", "101"]
    assert [one.allocation for intent in intents(home) for one in intent.allocations] == [
        f"a{number:05d}" for number in range(1, 5)
    ]


def test_the_place_in_the_array_is_the_place_in_the_intent(home: JobHome, cluster: Cluster) -> None:
    submit(make_desk(home, cluster))
    (intent,) = intents(home)
    planned = [str(home.paths.allocation(one.allocation).plan) for one in intent.allocations]
    assert [argv[-1] for argv in cluster.requests[0].payloads] == planned


def test_one_local_job_holds_everything(home: JobHome, cluster: Cluster) -> None:
    submit(make_desk(home, cluster), Wish(candidate=CANDIDATE, cluster="local"))
    (request,) = cluster.requests
    assert len(request.payloads) == 1
    assert len([part for part in request.payloads[0] if part.endswith("allocation.json")]) == 4


def test_workloads_share_an_allocation_if_asked_but_repeats_never_do(tmp_path: Path, cluster: Cluster) -> None:
    resources = {**RESOURCES, "submission": {"workloads_per_allocation": 2}}
    home = make_job_home(tmp_path / "home", resources=resources)
    desk = make_desk(home, cluster)
    submit(desk)
    assert [len(one.attempts) for intent in intents(home) for one in intent.allocations] == [2, 2]
    run_jobs(home, cluster)
    submit(desk)
    for intent in intents(home)[1:]:
        for one in intent.allocations:
            assert len({attempt.slot.rsplit("/", 1)[1] for attempt in one.attempts}) == 1


def test_only_takes_matching_slots_and_the_pilots_that_they_need(home: JobHome, cluster: Cluster) -> None:
    wish = Wish(candidate=CANDIDATE, cluster="slurm", only="*/pair/sync-b4/r1")
    desk = make_desk(home, cluster)
    assert submit(desk, wish).choice.slots == ("baseline/pilot/sync-b4", f"{CANDIDATE}/pilot/sync-b4")
    run_jobs(home, cluster)
    assert submit(desk, wish).choice.slots == (f"{CANDIDATE}/pair/sync-b4/r1",)


def test_without_a_candidate_only_the_baseline_is_submitted(tmp_path: Path, cluster: Cluster) -> None:
    home = make_job_home(tmp_path / "home", candidate=False)
    desk = make_desk(home, cluster)
    wish = Wish(candidate="", cluster="slurm")
    assert all(name.startswith("baseline/pilot/") for name in submit(desk, wish).choice.slots)
    run_jobs(home, cluster)
    assert {name.split("/")[1] for name in submit(desk, wish).choice.slots} == {"solo", "control"}


# --- what must not happen


def test_a_changed_harness_is_not_submitted(home: JobHome, cluster: Cluster) -> None:
    home.paths.launcher.write_text("print('other')\n")
    with pytest.raises(EvidenceError, match="not the one that was frozen"):
        submit(make_desk(home, cluster))
    assert cluster.requests == []
    assert "intent" not in home.acts()


def test_what_was_not_shown_is_not_submitted(home: JobHome, cluster: Cluster) -> None:
    desk = make_desk(home, cluster)
    shown = order_of(desk)
    submit(desk)
    with pytest.raises(StateError, match="changed since"):
        desk.hand_over(WISH, shown, quiet)
    assert len(cluster.requests) == 1


def test_a_refusal_is_recorded_and_the_same_allocations_are_submitted_later(home: JobHome, cluster: Cluster) -> None:
    desk = make_desk(home, cluster)
    cluster.refusal = "FailedJobError: sbatch: error: invalid partition"
    with pytest.raises(InfrastructureError) as refused:
        submit(desk)
    assert "invalid partition" in refused.value.why
    assert home.acts()[-1] == "not_submitted"
    cluster.refusal = ""
    submit(desk)
    first, second = intents(home)
    assert first.allocations == second.allocations
    assert first.submission == second.submission


def refuse_an_array(home: JobHome, cluster: Cluster) -> Desk:
    """Let the array of the four pilots be refused once it was intended."""
    desk = make_desk(home, cluster)
    cluster.refusal = "FailedJobError: sbatch: error: AssocMaxSubmitJobLimit"
    with pytest.raises(NoRoomError):
        submit(desk)
    cluster.refusal = ""
    cluster.requests.clear()  # no node has it
    return desk


def order_within(desk: Desk) -> Order:
    return desk.order(WISH, desk.view(CANDIDATE), desk.array_limit("slurm"), desk.room("slurm"))


def test_an_array_that_was_refused_is_cut_to_what_fits_and_no_attempt_is_used_up(
    home: JobHome, cluster: Cluster
) -> None:
    desk = refuse_an_array(home, cluster)
    cluster.submit_limit = 3
    order = order_within(desk)
    assert ([len(one.allocations) for one in order.all], order.num_left) == ([3], 1)
    desk.hand_over(WISH, order, quiet)
    full = order_within(desk)
    assert (full.all, full.num_left) == ((), 1)
    run_jobs(home, cluster)
    desk.settle(quiet)
    desk.hand_over(WISH, order_within(desk), quiet)
    run_jobs(home, cluster)
    first, *later = intents(home)
    assert [one.allocation for intent in later[:2] for one in intent.allocations] == [
        one.allocation for one in first.allocations
    ]
    assert len({one.submission for one in (first, *later)}) == 1 + len(later)
    pilots = [one for one in desk.view(CANDIDATE).attempts.values() if "/pilot/" in one.slot]
    assert {(one.attempt, one.ending) for one in pilots} == {(1, Ending.COMPLETED)}
    assert desk.history().open_submissions() == []
    assert home.doubles() == []


def test_a_submitter_that_is_killed_before_it_wrote_the_smaller_plans_loses_nothing(
    home: JobHome, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = refuse_an_array(home, cluster)
    cluster.submit_limit = 2
    with monkeypatch.context() as patch:
        kill_at_plans(cluster, patch)
        with pytest.raises(KilledError):
            desk.hand_over(WISH, order_within(desk), quiet)
    for _ in range(2):
        desk.settle(quiet)
        desk.hand_over(WISH, order_within(desk), quiet)
        run_jobs(home, cluster)
    assert list(states(desk).values()).count(SlotState.COMPLETED) == 4
    assert {one.attempt for one in desk.view(CANDIDATE).attempts.values()} == {1}


@pytest.mark.parametrize("limit", [None, 3])
def test_a_plan_that_no_submission_ever_intended_is_not_written_over(
    home: JobHome, cluster: Cluster, limit: int | None
) -> None:
    desk = refuse_an_array(home, cluster)
    cluster.submit_limit = limit
    plan = home.paths.allocation(intents(home)[0].allocations[0].allocation).plan
    plan.write_bytes(b"{}")
    with pytest.raises(StateError, match="not the allocation that was intended"):
        desk.hand_over(WISH, order_within(desk), quiet)
    assert plan.read_bytes() == b"{}"
    assert cluster.requests == []


def test_what_is_left_of_an_array_that_was_cut_can_be_given_up(home: JobHome, cluster: Cluster) -> None:
    desk = refuse_an_array(home, cluster)
    cluster.submit_limit = 3
    desk.hand_over(WISH, order_within(desk), quiet)
    run_jobs(home, cluster)
    assert len(cancel(desk, "enough", quiet).allocations) == 1
    assert desk.history().open_submissions() == []
    endings = [one.ending for one in desk.view(CANDIDATE).attempts.values()]
    assert (endings.count(Ending.COMPLETED), endings.count(Ending.CANCELLED)) == (3, 1)


@pytest.mark.parametrize("accounts", ["none", "full"])
def test_a_request_that_no_node_can_meet_leaves_a_failed_job_and_uses_no_attempt_up(
    home: JobHome, cluster: Cluster, accounts: Literal["none", "full"]
) -> None:
    cluster.accounts = accounts
    desk = make_desk(home, cluster)
    said = "FailedJobError: sbatch: error: Requested node configuration is not available"
    cluster.refusal, cluster.made_all_the_same = said, True
    cluster.after = lambda: cluster.become("FAILED")
    with pytest.raises(InfrastructureError) as refused:
        submit(desk)
    assert refused.value.hint.startswith("mend the cause")
    assert home.acts()[-1] == "not_submitted"
    cluster.refusal, cluster.after = "", None
    submit(desk)
    run_jobs(home, cluster)
    completed = [one for one in desk.view(CANDIDATE).attempts.values() if one.ending is Ending.COMPLETED]
    assert [one.attempt for one in completed] == [1] * 4


def test_an_sbatch_that_failed_after_it_made_the_job_is_not_repeated(home: JobHome, cluster: Cluster) -> None:
    desk = make_desk(home, cluster)

    cluster.refusal = "FailedJobError: sbatch: error: Socket timed out on send/recv operation"
    cluster.made_all_the_same = True
    with pytest.raises(InfrastructureError):
        submit(desk)
    assert home.acts()[-1] == "submitted"
    cluster.refusal = ""
    assert submit(desk).all == ()
    assert len(cluster.requests) == 1


def test_a_job_that_failed_on_a_node_was_made_although_sbatch_failed(home: JobHome, cluster: Cluster) -> None:
    desk = make_desk(home, cluster)
    cluster.refusal, cluster.made_all_the_same = "FailedJobError: sbatch: error: Socket timed out", True
    cluster.node, cluster.after = "n1", lambda: cluster.become("FAILED")
    with pytest.raises(InfrastructureError):
        submit(desk)
    assert home.acts()[-1] == "submitted"


def kill() -> None:
    raise KilledError


def kill_before(cluster: Cluster, _patch: pytest.MonkeyPatch) -> None:
    cluster.before = kill


def kill_after(cluster: Cluster, _patch: pytest.MonkeyPatch) -> None:
    cluster.after = kill


def kill_at_plans(_cluster: Cluster, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("campaign.submission.desk.write_plans", lambda *_: kill())


@pytest.mark.parametrize("blow", [kill_at_plans, kill_before, kill_after])
def test_a_submission_that_is_cut_off_is_neither_lost_nor_doubled(
    home: JobHome, cluster: Cluster, blow: Callable[[Cluster, pytest.MonkeyPatch], None]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        blow(cluster, patch)
        with pytest.raises(KilledError):
            submit(make_desk(home, cluster))
    cluster.before = cluster.after = None
    desk = make_desk(home, cluster)
    assert {status.state for status in desk.view(CANDIDATE).attempts.values()} == {AttemptState.INTERRUPTED}
    submit(desk)
    assert len(cluster.jobs) == 4
    run_jobs(home, cluster)
    assert submit(desk).again == ()
    finished = [name for name, state in states(desk).items() if state is SlotState.COMPLETED]
    assert len(finished) == 4
    assert {attempt.attempt for attempt in desk.view(CANDIDATE).attempts.values()} == {1}
    assert home.doubles() == []


def test_a_submission_that_began_was_submitted_though_the_scheduler_has_forgotten_it(
    home: JobHome, cluster: Cluster
) -> None:
    cluster.after = kill
    with pytest.raises(KilledError):
        submit(make_desk(home, cluster))
    cluster.after = None
    run_jobs(home, cluster)
    cluster.jobs = {}
    cluster.accounts = "failing"  # what the job itself wrote is proof enough
    desk = make_desk(home, cluster)
    desk.settle(quiet)
    assert home.acts()[-2:] == ["submitted", "sealed"]
    assert list(states(desk).values()).count(SlotState.COMPLETED) == 4


def test_while_the_scheduler_is_silent_an_interrupted_submission_stays_open(home: JobHome, cluster: Cluster) -> None:
    cluster.after = kill
    with pytest.raises(KilledError):
        submit(make_desk(home, cluster))
    cluster.after = None
    cluster.down = True
    with pytest.raises(InfrastructureError):
        submit(make_desk(home, cluster))
    assert home.acts()[-1] == "intent"


def cut_off_and_forget(home: JobHome, cluster: Cluster) -> None:
    """Submit with a submitter that is killed before it learns of the job, which ends and leaves the queue."""
    cluster.after = kill
    with pytest.raises(KilledError):
        submit(make_desk(home, cluster))
    cluster.after = None
    cluster.become("NODE_FAIL")
    cluster.forget()


def test_a_job_that_left_the_queue_is_found_in_accounting(home: JobHome, cluster: Cluster) -> None:
    cut_off_and_forget(home, cluster)
    cluster.accounts = "full"
    make_desk(home, cluster).settle(quiet)
    (submitted,) = [entry.data for entry in read_entries(home.paths) if entry.act == "submitted"]
    assert (submitted["job"], submitted["source"], submitted["array"]) == ("100", "sacct", True)
    assert "not_submitted" not in home.acts()


def test_while_accounting_does_not_answer_nothing_is_submitted_again(home: JobHome, cluster: Cluster) -> None:
    cut_off_and_forget(home, cluster)
    cluster.accounts = "failing"
    for _ in range(2):
        with pytest.raises(InfrastructureError, match="it is open whether a submission reached Slurm") as refused:
            submit(make_desk(home, cluster))
        assert "Problem talking to the database" in refused.value.why
        assert refused.value.exit_code == 6
    assert home.acts()[-1] == "intent"
    assert len(cluster.requests) == 1
    cluster.accounts = "full"
    make_desk(home, cluster).settle(quiet)
    assert "not_submitted" not in home.acts()


@pytest.mark.parametrize(
    ("accounts", "ending"),
    [("failing", None), ("full", Ending.TIME_LIMIT), ("none", Ending.LOST), ("empty", Ending.LOST)],
)
def test_a_job_that_the_queue_forgot_is_lost_only_if_accounting_answered_or_there_is_none(
    home: JobHome, cluster: Cluster, accounts: Literal["failing", "full", "none", "empty"], ending: Ending | None
) -> None:
    submit(make_desk(home, cluster))
    cluster.become("TIMEOUT")
    cluster.forget()
    cluster.accounts = accounts
    desk = make_desk(home, cluster, lambda: time.time() + 86400.0)
    assert {one.ending for one in desk.view(CANDIDATE).attempts.values()} == {ending}
    desk.settle(quiet)
    assert home.acts().count("ended") == (0 if ending is None else 4)


@pytest.mark.parametrize("accounts", ["none", "empty"])
def test_a_job_that_neither_the_queue_nor_an_answering_or_absent_accounting_knows_was_not_submitted(
    home: JobHome, cluster: Cluster, accounts: Literal["none", "empty"]
) -> None:
    cluster.before = kill
    with pytest.raises(KilledError):
        submit(make_desk(home, cluster))
    cluster.before = None
    cluster.accounts = accounts
    submit(make_desk(home, cluster))
    assert home.acts()[-3:] == ["not_submitted", "intent", "submitted"]


def test_a_refusal_while_accounting_does_not_answer_stays_open_and_shows_what_sbatch_said(
    home: JobHome, cluster: Cluster
) -> None:
    cluster.refusal = "FailedJobError: sbatch: error: Socket timed out"
    cluster.accounts = "failing"
    with pytest.raises(InfrastructureError) as refused:
        submit(make_desk(home, cluster))
    assert "Socket timed out" in refused.value.why
    assert "cannot be told now" in refused.value.why
    assert home.acts()[-1] == "intent"


def test_a_job_that_reached_the_queue_after_all_cannot_run_an_allocation_twice(home: JobHome, cluster: Cluster) -> None:
    submit(make_desk(home, cluster))
    argv = cluster.requests[0].payloads[0]
    subprocess.run(argv, check=True, cwd="/")
    subprocess.run(argv, check=True, cwd="/")
    assert len(home.doubles()) == 1
    assert len(list(home.paths.attempts.rglob("receipt.json"))) == 1


# --- cancelling


def test_cancelling_ends_what_is_under_way_and_allows_another_attempt(home: JobHome, cluster: Cluster) -> None:
    desk = make_desk(home, cluster)
    submit(desk)
    done = cancel(desk, "wrong node", quiet)
    assert len(done.allocations) == 4
    assert {state for _, state, _ in cluster.jobs.values()} == {"CANCELLED"}
    view = desk.view(CANDIDATE)
    assert {status.ending for status in view.attempts.values()} == {Ending.CANCELLED}
    assert states(desk)["baseline/pilot/sync-b4"] is SlotState.RETRYABLE
    assert cancel(desk, "again", quiet).allocations == ()


def test_cancelling_gives_up_a_submission_that_never_was(home: JobHome, cluster: Cluster) -> None:
    desk = make_desk(home, cluster)
    cluster.before = kill
    with pytest.raises(KilledError):
        submit(desk)
    cluster.before = None
    cancel(desk, "changed my mind", quiet)
    order = submit(desk)
    assert order.again == ()
    assert {one.attempt for batch in order.batches for al in batch.allocations for one in al.attempts} == {2}


def test_cancelling_is_recorded_before_the_scheduler_is_told(home: JobHome, cluster: Cluster) -> None:
    desk = make_desk(home, cluster)
    submit(desk)
    told: list[list[str]] = []

    def note(command: Sequence[str]) -> str:
        if command[0] == "scancel":
            told.append(home.acts())
        return cluster.run(command)

    cancel(replace(desk, slurm=Slurm(note)), "x", quiet)
    assert told[0][-1] == "cancelled"


def test_a_home_in_another_place_does_not_continue_an_intent(home: JobHome, cluster: Cluster, tmp_path: Path) -> None:
    cluster.before = kill
    with pytest.raises(KilledError):
        submit(make_desk(home, cluster))
    cluster.before = None
    home.paths.root.rename(tmp_path / "moved")
    moved = JobHome(paths=HomePaths(tmp_path / "moved"), protocol=home.protocol)
    with pytest.raises(StateError, match="as it was intended"):
        submit(make_desk(moved, cluster))


def test_three_workloads_need_three_pilots_a_side(tmp_path: Path, cluster: Cluster) -> None:
    home = make_job_home(tmp_path / "home", cases=SMALL)
    assert len(submit(make_desk(home, cluster)).choice.slots) == 6


def test_the_payload_starts_the_frozen_harness_safely(home: JobHome, cluster: Cluster) -> None:
    submit(make_desk(home, cluster))
    argv = cluster.requests[0].payloads[0]
    assert argv[:4] == (sys.executable, "-P", "-s", "-X")
    assert argv[4].startswith("pycache_prefix=")
    assert argv[5:7] == (str(home.paths.launcher), "allocation")


def test_what_does_not_fit_a_limit_is_left_and_follows_as_room_comes(home: JobHome, cluster: Cluster) -> None:
    cluster.submit_limit = 3
    desk = make_desk(home, cluster)

    def go() -> Order:
        desk.settle(quiet)
        order = desk.order(WISH, desk.view(CANDIDATE), desk.array_limit("slurm"), desk.room("slurm"))
        if order.all:
            desk.hand_over(WISH, order, quiet)
        return order

    first = go()
    assert ([len(one.allocations) for one in first.all], first.num_left) == ([3], 1)
    assert first.left_text.endswith("MaxSubmitJobs of the association is 3 and 0 of that are used up")
    full = go()
    assert (full.all, full.num_left) == ((), 1)
    run_jobs(home, cluster)
    last = go()
    assert sum(len(one.allocations) for one in last.all) == 3
    assert last.num_left > 0
    assert cluster.tested == [3, 3]
    assert home.acts().count("not_submitted") == 0


def test_a_limit_that_only_sbatch_knows_leaves_nothing_in_the_ledger(home: JobHome, cluster: Cluster) -> None:
    cluster.submit_limit, cluster.tells_limits = 3, False
    desk = make_desk(home, cluster)
    order = desk.order(WISH, desk.view(CANDIDATE), desk.array_limit("slurm"), desk.room("slurm"))
    with pytest.raises(NoRoomError) as refused:
        desk.hand_over(WISH, order, quiet)
    assert refused.value.exit_code == 6
    assert (refused.value.num_jobs, cluster.requests) == (4, [])
    assert "AssocMaxSubmitJobLimit" in refused.value.why
    assert home.acts() == ["froze_baseline", "froze_candidate"]


def test_the_cluster_is_recorded_before_and_after_a_job_exists(home: JobHome, cluster: Cluster) -> None:
    submit(make_desk(home, cluster))
    told = [entry.data["cluster_name"] for entry in read_entries(home.paths) if entry.act in ("intent", "submitted")]
    assert told == ["there", "there"]


def test_a_controller_that_does_not_answer_leaves_nothing_in_the_ledger(home: JobHome, cluster: Cluster) -> None:
    desk = make_desk(home, cluster)
    order = order_of(desk)
    cluster.down = True
    with pytest.raises(InfrastructureError):
        desk.hand_over(WISH, order, quiet)
    assert "intent" not in home.acts()


def test_an_interrupted_submission_is_not_looked_for_on_another_cluster(home: JobHome, cluster: Cluster) -> None:
    def die() -> None:
        raise KilledError

    cluster.after = die
    with pytest.raises(KilledError):
        submit(make_desk(home, cluster))
    cluster.after = None
    elsewhere = Cluster(name="elsewhere")
    with pytest.raises(StateError, match="it is open whether") as refused:
        make_desk(home, elsewhere).settle(quiet)
    assert refused.value.why == "submitted to cluster there; this host's commands reach elsewhere"
    assert home.acts()[-1] == "intent"
    make_desk(home, cluster).settle(quiet)
    assert home.acts()[-1] == "submitted"


def make_colleagues_desk(home: JobHome, cluster: Cluster, clock: Callable[[], float] = time.time) -> Desk:
    """Return the desk of somebody else, to whom the cluster shows no job of whoever submitted so far."""
    cluster.hides_jobs = True
    for request in cluster.requests:
        Path(request.folder).mkdir(parents=True)
    desk = make_desk(home, cluster, clock)
    return replace(desk, observer=replace(desk.observer, uid=os.geteuid() + 1))


def test_jobs_that_a_cluster_hides_from_a_colleague_are_neither_lost_nor_doubled(
    home: JobHome, cluster: Cluster
) -> None:
    submit(make_desk(home, cluster))
    desk = make_colleagues_desk(home, cluster, lambda: time.time() + 86400.0)
    before = home.acts()
    assert submit(desk).all == ()
    assert home.acts() == before
    view = desk.view(CANDIDATE)
    reasons = {status.reason for status in view.attempts.values() if status.state is AttemptState.UNKNOWN}
    assert len(reasons) == 1
    assert "PrivateData" in reasons.pop()
    # To the superuser, or to whoever submitted, a job that is not shown is gone.
    desk = make_desk(home, cluster, lambda: time.time() + 86400.0)
    desk.settle(quiet)
    assert {status.ending for status in desk.view(CANDIDATE).attempts.values()} == {Ending.LOST}


def test_an_interrupted_submission_of_a_colleague_is_left_to_them_where_jobs_are_hidden(
    home: JobHome, cluster: Cluster
) -> None:
    cluster.after = kill
    with pytest.raises(KilledError):
        submit(make_desk(home, cluster))
    cluster.after = None
    with pytest.raises(StateError, match="it is open whether") as refused:
        make_colleagues_desk(home, cluster).settle(quiet)
    assert "PrivateData" in refused.value.why
    assert home.acts()[-1] == "intent"
    cluster.hides_jobs = False
    make_desk(home, cluster).settle(quiet)
    assert home.acts()[-1] == "submitted"


def test_jobs_of_another_cluster_are_neither_lost_nor_doubled_nor_cancelled(home: JobHome, cluster: Cluster) -> None:
    submit(make_desk(home, cluster))
    desk = make_desk(home, Cluster(name="elsewhere"), lambda: time.time() + 86400.0)
    desk.settle(quiet)
    assert set(states(desk).values()) == {SlotState.UNKNOWN, SlotState.PLANNED}
    with pytest.raises(StateError, match="nothing more is submitted"):
        order_of(desk)
    with pytest.raises(StateError, match="nothing is cancelled"):
        cancel(desk, "enough", quiet)
    assert home.acts()[-1] == "submitted"
    assert set(states(make_desk(home, cluster)).values()) == {SlotState.PENDING, SlotState.PLANNED}


def test_after_its_jobs_have_ended_a_campaign_may_go_on_on_another_cluster(home: JobHome, cluster: Cluster) -> None:
    submit(make_desk(home, cluster))
    run_jobs(home, cluster)
    assert len(submit(make_desk(home, Cluster(name="elsewhere"))).choice.slots) == 12


def test_a_hopeless_job_says_so_and_why(home: JobHome, cluster: Cluster) -> None:
    cluster.reason = "PartitionTimeLimit"
    desk = make_desk(home, cluster)
    submit(desk)
    (said,) = {one.reason for one in desk.view(CANDIDATE).attempts.values()}
    assert said.startswith("PartitionTimeLimit: its time limit is over the partition's")
    assert all(one.hopeless for one in desk.view(CANDIDATE).attempts.values())
    cluster.become("RUNNING")
    assert not any(one.hopeless for one in desk.view(CANDIDATE).attempts.values())
