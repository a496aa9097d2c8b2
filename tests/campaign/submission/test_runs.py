"""Runs: segments that go on from checkpoints, extensions that are due, and what the commands say of both."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any, Literal

import pytest

from acceptance.formats import Ending
from campaign import files
from campaign.cli.main import main
from campaign.collection.collect import collect
from campaign.documents import AllocationPlan, CheckpointName, ConvergenceExtension, PlannedAttempt
from campaign.files import sha256_file
from campaign.keys import AttemptKey
from campaign.record.ledger import Ledger
from campaign.submission.desk import Desk, Wish
from campaign.watching.state import SlotState
from tests.campaign.submission.support import Cluster, make_desk
from tests.campaign.submission.test_desk import quiet, run_jobs, submit
from tests.support import training
from tests.support.home import CANDIDATE, SMALL
from tests.support.jobs import JobHome, make_job_home

RUN, OTHER = "baseline/run/sync/s45", f"{CANDIDATE}/run/sync/s45"
FIRST = {RUN, OTHER}
ADDED = {f"{side}/run/sync/s{seed}" for side in ("baseline", CANDIDATE) for seed in (48, 49)}
RUNS = Wish(candidate=CANDIDATE, cluster="slurm", only="*/run/*")
ONE = Wish(candidate=CANDIDATE, cluster="slurm", only=RUN)
EXTENSION = ConvergenceExtension(seeds=(48, 49), quantile_first="4.08607", quantile="2.49239")


@pytest.fixture
def home(tmp_path: Path) -> JobHome:
    rules = training.make_rules("sync", seeds=(45,), max_segments=3, extension=EXTENSION)
    return make_job_home(tmp_path / "home", cases=SMALL[:1], repeats=1, convergence=rules)


@pytest.fixture
def desk(home: JobHome, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Desk:
    made = make_desk(home, cluster)
    for name in ("submit", "status", "show", "cancel"):
        monkeypatch.setattr(f"campaign.cli.{name}.open_desk", lambda *_: made)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    return made


def go(home: JobHome, cluster: Cluster, desk: Desk, wish: Wish = ONE, **endings: Any) -> set[str]:
    """Submit runs with their pilots, let the jobs end as wished, and return what was submitted."""
    if endings:
        home.wish(**endings)
    order = submit(desk, wish)
    run_jobs(home, cluster)
    desk.settle(quiet)
    return set(order.choice.slots)


def cut(*segments: int, ending: str = "time_limit", attempt: int = 1) -> dict[str, str]:
    return {f"{RUN}/{attempt}/{segment}": ending for segment in segments}


def state(desk: Desk, slot: str = RUN) -> SlotState:
    return desk.view(CANDIDATE).slots[slot].state


def planned(home: JobHome) -> list[PlannedAttempt]:
    """Return every segment that was planned of one run, in order of the allocations."""
    plans = [AllocationPlan.read(path) for path in sorted(home.paths.allocations.glob("*/allocation.json"))]
    return [attempt for plan in plans for attempt in plan.attempts if attempt.slot == RUN]


def report(home: JobHome, state: Literal["due", "not_due", "unknown"], *, recorded: bool = True) -> None:
    """Write a verdict that says this of the extension, and the act that names it."""
    verdict = {"observations": {"convergence": {"recipes": [{"recipe": "sync", "extension": state}]}}}
    path = home.paths.evaluation(CANDIDATE).verdict
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(files.dump_json(verdict))
    if recorded:
        act = {"candidate": CANDIDATE, "verdict_sha256": sha256_file(path), "outcome": "not_qualified"}
        with Ledger.open(home.paths, lambda: 0.0) as ledger:
            ledger.append("reported", act)


def run_cli(capsys: pytest.CaptureFixture[str], home: JobHome, *arguments: str) -> tuple[int, str, str]:
    command, *rest = arguments
    code = main([command, "--home", str(home.paths.root), *rest])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def run_json(capsys: pytest.CaptureFixture[str], home: JobHome, *arguments: str) -> Any:
    code, out, _ = run_cli(capsys, home, *arguments, "--json")
    assert code == 0
    return json.loads(out)


# --- segments


def test_runs_wait_for_the_pilots_of_their_recipes_and_each_has_an_allocation_of_its_own(
    home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    assert go(home, cluster, desk, RUNS) == {"baseline/pilot/sync", f"{CANDIDATE}/pilot/sync"}
    order = submit(desk, RUNS)
    assert set(order.choice.slots) == FIRST
    attempts = [one.attempts for batch in order.batches for one in batch.allocations]
    assert [len(own) for own in attempts] == [1, 1]
    assert {(own[0].attempt, own[0].segment, own[0].updates, own[0].resume) for own in attempts} == {(1, 1, 0, None)}


def test_a_run_that_was_cut_goes_on_from_its_newest_checkpoint_until_it_completes(
    home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    go(home, cluster, desk, endings=cut(1, 2))
    go(home, cluster, desk)
    assert state(desk) is SlotState.CUT
    assert go(home, cluster, desk) == {RUN}
    assert state(desk) is SlotState.CUT
    go(home, cluster, desk)
    assert state(desk) is SlotState.COMPLETED
    assert submit(desk, ONE).all == ()
    assert [(one.attempt, one.segment, one.updates) for one in planned(home)] == [(1, 1, 0), (1, 2, 0), (1, 3, 0)]
    expected = [
        CheckpointName(
            segment=segment,
            update=10 * segment,
            sha256=sha256_file(home.paths.attempt(RUN, 1, segment).checkpoint(10 * segment).document),
        )
        for segment in (1, 2)
    ]
    assert [one.resume for one in planned(home)] == [None, *expected]
    history = desk.history()
    assert [history.attempt(AttemptKey(RUN, 1, number)).resume for number in (1, 2, 3)] == [None, *expected]
    completed = desk.view(CANDIDATE).slots[RUN].completed
    assert completed is not None
    assert completed.segment == 3


def test_a_run_whose_segments_are_used_up_at_the_time_limit_is_out_of_reach(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    for _ in range(4):
        go(home, cluster, desk, endings=cut(1, 2, 3))
    assert state(desk) is SlotState.EXHAUSTED
    order = submit(desk, ONE)
    assert order.all == ()
    assert order.choice.out_of_reach == (RUN,)
    value = run_json(capsys, home, "status")
    assert value["gates_out_of_reach"] == [{"gate": "convergence/sync", "slot": RUN}]
    err = run_cli(capsys, home, "submit", "--cluster", "slurm", "--yes", "--only", RUN)[2]
    assert f"{RUN}: exhausted after 1 attempt(s), last time_limit: as the test wished" in err


def test_another_attempt_starts_from_the_beginning_where_the_retry_rule_allows_it(
    home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    for _ in range(4):
        go(home, cluster, desk, endings={**cut(1, 2), **cut(3, ending="node_fail")})
    assert state(desk) is SlotState.RETRYABLE
    go(home, cluster, desk)
    starts = [(one.attempt, one.segment, one.resume is None) for one in planned(home)]
    assert starts == [(1, 1, True), (1, 2, False), (1, 3, False), (2, 1, True)]
    assert state(desk) is SlotState.COMPLETED


def test_a_run_that_a_person_stopped_is_not_begun_anew_once_its_segments_are_used_up(
    home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    for _ in range(4):
        go(home, cluster, desk, endings={**cut(1, 2), **cut(3, ending="cancelled")})
    assert state(desk) is SlotState.EXHAUSTED
    order = submit(desk, ONE)
    assert (order.all, order.choice.out_of_reach) == ((), (RUN,))


def test_a_killed_segment_gets_its_ending_from_the_scheduler_and_its_checkpoint_counts(
    home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    go(home, cluster, desk, die={f"{RUN}/1/1": True})
    submit(desk, ONE)
    run_jobs(home, cluster)
    cluster.become("NODE_FAIL")
    desk.settle(quiet)
    (one,) = desk.view(CANDIDATE).slots[RUN].attempts
    assert (one.ending, one.source, one.segment) == (Ending.NODE_FAIL, "ledger", 1)
    assert state(desk) is SlotState.CUT
    home.wish()
    go(home, cluster, desk)
    assert [one.resume.update if one.resume else 0 for one in planned(home)] == [0, 10]


def test_a_receipt_counts_that_a_lost_segment_leaves_after_all(home: JobHome, cluster: Cluster, desk: Desk) -> None:
    go(home, cluster, desk)
    submit(desk, ONE)
    run_jobs(home, cluster)
    folder = home.paths.attempt(RUN, 1, 1)
    allocation = home.paths.allocation(planned_allocation(desk))
    kept = folder.receipt.read_bytes(), allocation.ended.read_bytes()
    folder.receipt.unlink()
    allocation.ended.unlink()
    desk.settle(quiet)
    assert state(desk) is SlotState.CUT
    folder.receipt.write_bytes(kept[0])
    allocation.ended.write_bytes(kept[1])
    assert state(desk) is SlotState.COMPLETED
    assert submit(desk, ONE).all == ()


def test_a_failure_that_a_command_has_seen_cannot_become_lost_by_removing_its_receipt(
    home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    go(home, cluster, desk)
    go(home, cluster, desk, endings=cut(1, ending="non_finite"))
    assert state(desk) is SlotState.FAILED
    receipt, ended = home.paths.attempt(RUN, 1, 1).receipt, home.paths.allocation(planned_allocation(desk)).ended
    kept, digest = receipt.read_bytes(), sha256_file(receipt)
    assert desk.history().sealed[f"{RUN}/1/1"] == digest
    acts = home.acts()
    desk.settle(quiet)
    assert home.acts() == acts
    receipt.unlink()
    ended.unlink()
    desk.settle(quiet)
    (one,) = desk.view(CANDIDATE).slots[RUN].attempts
    assert state(desk) is SlotState.UNKNOWN
    assert one.reason == f"a receipt with SHA-256 {digest} was seen there before, now there is none"
    assert submit(desk, ONE).all == ()
    with Ledger.open(home.paths, lambda: 0.0) as ledger:
        findings = [finding.what for finding in collect(home.paths, ledger).findings]
    assert f"seen before with SHA-256 {digest}, now there is none" in findings
    receipt.write_bytes(kept.replace(b"non_finite", b"time_limit"))
    assert state(desk) is SlotState.UNKNOWN
    receipt.write_bytes(kept)
    assert state(desk) is SlotState.FAILED


def planned_allocation(desk: Desk) -> str:
    return desk.history().attempt(AttemptKey(RUN, 1, 1)).allocation


def test_a_receipt_of_another_segment_is_none(home: JobHome, cluster: Cluster, desk: Desk) -> None:
    go(home, cluster, desk, endings=cut(1))
    go(home, cluster, desk)
    go(home, cluster, desk)
    first, second = (home.paths.attempt(RUN, 1, number).receipt for number in (1, 2))
    second.write_bytes(first.read_bytes())
    one = desk.view(CANDIDATE).attempts[AttemptKey(RUN, 1, 2)]
    assert state(desk) is SlotState.UNKNOWN
    assert "segment 1 in " in one.reason


def test_a_run_with_a_damaged_checkpoint_is_left_out_and_the_rest_is_submitted(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    go(home, cluster, desk, RUNS, endings=cut(1))
    go(home, cluster, desk, ONE)
    document = home.paths.attempt(RUN, 1, 1).checkpoint(10).document
    kept = document.read_bytes()
    document.write_text("{")
    code, _, err = run_cli(capsys, home, "submit", "--cluster", "slurm", "--yes", "--only", "*/run/*")
    assert code == 5
    assert f"{document}: the newest checkpoint is damaged" in err
    assert "this run is left out" in err
    assert "submitted 1 allocation(s)" in err
    assert [one.segment for one in planned(home)] == [1]
    assert state(desk, OTHER) is SlotState.PENDING
    assert run_cli(capsys, home, "submit", "--cluster", "slurm", "--dry-run", "--only", RUN)[0] == 5
    document.write_bytes(kept)
    assert go(home, cluster, desk) == {RUN}
    assert {state(desk), state(desk, OTHER)} == {SlotState.COMPLETED}


def test_waiting_goes_on_with_the_rest_and_ends_with_exit_5_beside_a_damaged_checkpoint(
    capsys: pytest.CaptureFixture[str],
    home: JobHome,
    cluster: Cluster,
    desk: Desk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go(home, cluster, desk, RUNS, endings={**cut(1), f"{OTHER}/1/1": "time_limit"})
    go(home, cluster, desk, ONE)
    checkpoint = home.paths.attempt(RUN, 1, 1).checkpoint(10)
    checkpoint.root.rename(checkpoint.root.with_name("aside"))
    monkeypatch.setattr("campaign.cli.submit.time.sleep", lambda _: run_jobs(home, cluster))
    wait = ("submit", "--cluster", "slurm", "--yes", "--wait", "--only", "*/run/*")
    code, _, err = run_cli(capsys, home, *wait)
    assert code == 5
    assert "it is not there, and the receipt of its segment lists it" in err
    assert run_json(capsys, home, "status")["runs"][0]["update"] is None
    assert state(desk, OTHER) is SlotState.COMPLETED
    assert [one.segment for one in planned(home)] == [1]


def test_an_interrupted_submission_of_a_segment_is_made_again_as_it_was_intended(
    home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    go(home, cluster, desk, endings=cut(1))
    go(home, cluster, desk)
    cluster.refusal = "sbatch: error: no"
    with pytest.raises(Exception, match="did not take the submission"):
        submit(desk, ONE)
    cluster.refusal = ""
    assert state(desk) is SlotState.INTERRUPTED
    order = submit(desk, ONE)
    assert len(order.again) == 1
    run_jobs(home, cluster)
    assert state(desk) is SlotState.COMPLETED
    assert [(one.segment, one.resume is not None) for one in planned(home)] == [(1, False), (2, True)]


# --- extensions


def test_runs_of_an_extension_are_neither_missing_nor_submitted_until_a_verdict_asks_for_them(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    go(home, cluster, desk, RUNS)
    value = run_json(capsys, home, "status")
    assert value["phases"]["convergence"] == {"planned": 1, "not due": 2}
    assert value["extensions"] == []
    go(home, cluster, desk, RUNS)
    order = submit(desk, RUNS)
    assert (order.all, order.choice.waiting, order.choice.out_of_reach) == ((), (), ())
    _, _, err = run_cli(capsys, home, "submit", "--cluster", "slurm", "--only", "*/run/*")
    assert "campaign report tells whether the extension is due of: sync" in err
    report(home, "not_due")
    assert submit(desk, RUNS).all == ()
    assert run_json(capsys, home, "status")["extensions"] == []
    assert "which no verdict on this candidate asks for" in run_cli(capsys, home, "show", "candidate/run/sync/s48")[1]


def test_an_extension_that_is_due_adds_the_runs_of_both_sides_and_is_told(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    go(home, cluster, desk, RUNS)
    go(home, cluster, desk, RUNS)
    report(home, "due")
    due = (
        "the first look at sync is inconclusive, so that its extension is due: "
        "it adds 4 runs (seeds 48, 49 on both sides)"
    )
    assert run_json(capsys, home, "status")["extensions"] == [f"{due}, 4 of them not complete"]
    _, _, err = run_cli(capsys, home, "submit", "--cluster", "slurm", "--only", "*/run/*", "--yes")
    assert due in err
    assert {one.slot for plan in plans(home)[-4:] for one in plan.attempts} == ADDED
    run_jobs(home, cluster)
    assert {state(desk, slot) for slot in ADDED} == {SlotState.COMPLETED}
    assert run_json(capsys, home, "status")["extensions"] == []


def plans(home: JobHome) -> list[AllocationPlan]:
    return [AllocationPlan.read(path) for path in sorted(home.paths.allocations.glob("*/allocation.json"))]


def test_a_verdict_that_the_ledger_does_not_name_makes_nothing_due(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    go(home, cluster, desk, RUNS)
    go(home, cluster, desk, RUNS)
    report(home, "due", recorded=False)
    assert submit(desk, RUNS).all == ()
    report(home, "not_due")
    report(home, "due", recorded=False)
    assert submit(desk, RUNS).all == ()
    (said,) = run_json(capsys, home, "status")["extensions"]
    assert "is not the verdict that the ledger's last report names; next: campaign report" in said
    home.paths.evaluation(CANDIDATE).verdict.unlink()
    (said,) = run_json(capsys, home, "status")["extensions"]
    assert "is not there; next: campaign report" in said
    assert submit(desk, RUNS).all == ()


def test_an_extension_that_is_due_no_more_is_not_continued_and_blocks_nothing(
    home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    go(home, cluster, desk, RUNS)
    go(home, cluster, desk, RUNS)
    report(home, "due")
    slot = "baseline/run/sync/s48"
    go(home, cluster, desk, RUNS, endings={f"{slot}/1/1": "crash", "baseline/run/sync/s49/1/1": "time_limit"})
    assert (state(desk, slot), state(desk, "baseline/run/sync/s49")) == (SlotState.FAILED, SlotState.CUT)
    report(home, "not_due")
    order = submit(desk, RUNS)
    assert (order.all, order.choice.out_of_reach) == ((), ())
    assert {state(desk, slot), state(desk, "baseline/run/sync/s49")} == {SlotState.NOT_DUE}


# --- what the commands say


def test_status_tells_how_far_the_runs_have_come_and_what_is_left(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    go(home, cluster, desk, RUNS, endings=cut(1))
    # Of each run three segments of five minutes: two runs that have not begun, and the pilots and pairs of a workload.
    before = run_json(capsys, home, "status")["remaining_device_hours"]
    go(home, cluster, desk, RUNS)
    value = run_json(capsys, home, "status")
    assert value["runs"] == [
        {
            "slot": RUN, "state": "cut", "attempt": 1, "segment": 1, "max_segments": 3, "update": 10, "updates": 40,
            "ending": "time_limit", "reason": "as the test wished",
        },
        {
            "slot": OTHER, "state": "completed", "attempt": 1, "segment": 1, "max_segments": 3, "update": 40,
            "updates": 40, "ending": "completed", "reason": "",
        },
    ]  # fmt: skip
    assert value["failed_attempts"] == [
        {"slot": RUN, "attempt": 1, "segment": 1, "ending": "time_limit", "reason": "as the test wished"}
    ]
    assert value["phases"]["baseline"]["cut"] == 1
    assert before - value["remaining_device_hours"] == pytest.approx((6 - 2) * 5 / 60, abs=0.002)
    out = run_cli(capsys, home, "status")[1]
    line = f"{RUN}: cut, update 10 of 40, segment 1 of at most 3, last time_limit: as the test wished"
    assert line in out
    assert "attempts without evidence" not in out
    assert OTHER not in out
    header, _, *rows = (text.split() for text in out.splitlines()[2:6])
    assert header[:3] == ["phase", "planned", "completed"]
    assert rows
    hold = home.hold
    hold.touch()
    submit(desk, RUNS)
    assert f"{RUN}: pending, update 10 of 40, segment 2 of at most 3" in run_cli(capsys, home, "status")[1]


def test_what_a_run_will_take_is_its_share_that_is_left(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    go(home, cluster, desk, endings=cut(1))
    fresh = run_json(capsys, home, "status")["expected_device_hours"]
    # 40 updates at 4 a second, three evaluations, two checkpoints of half a second, and the start.
    assert fresh == round((40 / 4 + 3 * 1.0 + 2 * 0.5 + 0.1) / 3600, 4)
    go(home, cluster, desk)
    left = run_json(capsys, home, "status")["expected_device_hours"]
    assert left == round((40 / 4 + 3 * 1.0 + 2 * 0.5 + 0.1) * 0.75 / 3600, 4)


def test_a_plan_counts_further_segments_apart_from_retries(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    go(home, cluster, desk, endings=cut(1))
    go(home, cluster, desk)
    err = run_cli(capsys, home, "submit", "--cluster", "slurm", "--only", RUN, "--dry-run")[2]
    assert "1 run" in err
    assert "1 further segments" in err
    assert "retries" not in err


def test_show_tells_a_run_segment_by_segment(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    go(home, cluster, desk, endings=cut(1), die={f"{RUN}/1/2": True})
    go(home, cluster, desk)
    go(home, cluster, desk)
    home.wish()
    go(home, cluster, desk)
    value = run_json(capsys, home, "show", RUN)
    assert value["state"] == "completed"
    seen = [(one["attempt"], one["segment"], one["ending"]) for one in value["attempts"]]
    assert seen == [(1, 1, "time_limit"), (1, 2, "lost"), (1, 3, "completed")]
    first, second, third = (one["run"] for one in value["attempts"])
    assert (first["resumes"], first["from_update"], first["to_update"]) == (None, 0, 12)
    assert first["checkpoints"] == [{"update": 10, "bytes": len("state after 10"), "sealed": True}]
    assert (second["from_update"], second["to_update"]) == (10, None)
    assert second["checkpoints"] == [{"update": 20, "bytes": None, "sealed": False}]
    assert (third["resumes"]["segment"], third["from_update"], third["to_update"]) == (2, 20, 40)
    assert [one["update"] for one in third["checkpoints"]] == [30, 40]
    assert [one["log_tail"] for one in value["attempts"]][2] == f"measuring {RUN}/1/3"
    assert [Path(one["folder"]).name for one in value["attempts"]] == ["1", "2", "3"]
    out = run_cli(capsys, home, "show", RUN)[1]
    assert "attempt 1 segment 1: time_limit (as the test wished)" in out
    assert "run: from the beginning, to update 12; train 0.1 s, evaluate 0.1 s, save 0.1 s, load 0 s" in out
    assert "run: from update 10 (checkpoint of segment 1), no receipt says how far" in out
    assert "checkpoints: after update 20 (not sealed)" in out
    assert "checkpoints: after update 30, 40" in out
    assert out.count("| measuring") == 1
    value = run_json(capsys, home, "show", "baseline/pilot/sync")
    assert "run" not in value["attempts"][0]
    assert "segment" not in value["attempts"][0]


def test_an_operators_stop_is_a_cut_with_its_reason_and_the_next_submission_goes_on(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    go(home, cluster, desk)
    submit(desk, ONE)
    run_cli(capsys, home, "cancel", "--yes", "--reason", "the partition is needed")
    desk.settle(quiet)
    assert state(desk) is SlotState.CUT
    out = run_cli(capsys, home, "show", RUN)[1]
    assert "attempt 1 segment 1: cancelled (" in out
    assert "the partition is needed" in out
    assert "goes on from its newest checkpoint; next: campaign submit" in out
    assert "the partition is needed" in run_cli(capsys, home, "status")[1]
    assert go(home, cluster, desk) == {RUN}
    assert [one.segment for one in planned(home)] == [1, 2]


WAIT = ("submit", "--cluster", "slurm", "--yes", "--wait", "--only", RUN)


def test_a_wait_does_not_go_on_with_what_was_cancelled_meanwhile_and_a_new_one_does(
    capsys: pytest.CaptureFixture[str],
    home: JobHome,
    cluster: Cluster,
    desk: Desk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go(home, cluster, desk)
    run_cli(capsys, home, "submit", "--cluster", "slurm", "--yes", "--only", RUN)

    def cancel(_: float) -> None:
        assert main(["cancel", "--home", str(home.paths.root), "--yes", "--reason", "the partition is needed"]) == 0

    monkeypatch.setattr("campaign.cli.submit.time.sleep", cancel)
    code, _, err = run_cli(capsys, home, *WAIT)
    assert code == 4
    assert f"not submitted: {RUN}: cancelled while this command waited (the partition is needed)" in err
    assert "to go on with it: campaign submit" in err
    assert [one.segment for one in planned(home)] == [1]
    assert state(desk) is SlotState.CUT
    monkeypatch.setattr("campaign.cli.submit.time.sleep", lambda _: run_jobs(home, cluster))
    assert run_cli(capsys, home, *WAIT)[0] == 0
    assert [one.segment for one in planned(home)] == [1, 2]
    assert state(desk) is SlotState.COMPLETED


def test_a_pilot_that_was_cancelled_meanwhile_is_left_alone_with_what_waits_for_it(
    capsys: pytest.CaptureFixture[str],
    home: JobHome,
    cluster: Cluster,
    desk: Desk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "campaign.cli.submit.time.sleep", lambda _: main(["cancel", "--home", str(home.paths.root), "--yes"])
    )
    code, _, err = run_cli(capsys, home, *WAIT)
    assert code == 4
    assert "not submitted: baseline/pilot/sync: cancelled while" in err
    assert "1 slot(s) wait for a pilot" in err
    assert state(desk, "baseline/pilot/sync") is SlotState.RETRYABLE
    assert len(cluster.requests) == 1


def test_a_wait_stops_with_a_run_whose_segments_leave_no_checkpoint(
    capsys: pytest.CaptureFixture[str],
    home: JobHome,
    cluster: Cluster,
    desk: Desk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home.wish(endings=cut(1, 2, 3, ending="no_space"))
    go(home, cluster, desk)

    def run_and_lose(_: float) -> None:
        run_jobs(home, cluster)
        for folder in home.paths.attempts.glob("baseline/run/sync/s45/1/segments/*/checkpoints/*"):
            shutil.rmtree(folder)
        for path in home.paths.attempts.glob("baseline/run/sync/s45/1/segments/*/receipt.json"):
            receipt = json.loads(path.read_bytes())
            receipt["run"]["checkpoints"] = []
            path.write_bytes(files.dump_json(receipt))
            ended = home.paths.allocation(receipt["allocation"]).ended
            said = json.loads(ended.read_bytes())
            ended.write_bytes(
                files.dump_json({**said, "receipts": {key: sha256_file(path) for key in said["receipts"]}})
            )

    monkeypatch.setattr("campaign.cli.submit.time.sleep", run_and_lose)
    code, _, err = run_cli(capsys, home, *WAIT)
    assert code == 4
    assert [one.segment for one in planned(home)] == [1, 2]
    assert (
        f"not submitted: {RUN}: its last 2 segments left no checkpoint, the last one ended no_space: as the test" in err
    )
    assert "mend the cause, then: campaign submit" in err
    home.wish()
    monkeypatch.setattr("campaign.cli.submit.time.sleep", lambda _: run_jobs(home, cluster))
    assert run_cli(capsys, home, *WAIT)[0] == 0
    assert [one.segment for one in planned(home)] == [1, 2, 3]


def test_the_gate_of_a_recipe_whose_pilot_failed_is_out_of_reach(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    go(home, cluster, desk, RUNS, endings={f"{CANDIDATE}/pilot/sync/1": "crash"})
    value = run_json(capsys, home, "status")
    assert value["gates_out_of_reach"] == [{"gate": "convergence/sync", "slot": f"{CANDIDATE}/pilot/sync"}]
    assert submit(desk, RUNS).choice.out_of_reach == (OTHER,)


def test_a_local_job_makes_the_segments_of_all_runs_one_after_another(
    home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    wish = Wish(candidate=CANDIDATE, cluster="local", only="*/run/*")
    go(home, cluster, desk, RUNS)
    order = submit(desk, wish)
    assert len(order.batches) == 1
    assert [len(one.attempts) for one in order.batches[0].allocations] == [1, 1]
