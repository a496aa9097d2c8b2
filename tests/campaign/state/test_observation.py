"""What the schedulers' records and the files of a home become."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from campaign.documents import Ended, JobIdentity, Receipt, Started
from campaign.files import sha256_file
from campaign.paths import HomePaths
from campaign.submission.acts import Allocation, Attempt, History, Intent, Submission, Submitted
from campaign.watching.asking import Told
from campaign.watching.observation import Observer, local_job, read_attempt, slurm_job
from campaign.watching.processes import Machine, read_machine, read_start
from campaign.watching.scheduler import JobRecord, Slurm
from campaign.watching.state import JobStage
from tests.support.home import build_home
from tests.support.refusing import forbid

ALLOCATION = Allocation(
    allocation="a00001", submission="k", index=1, minutes=5, plan_sha256="0" * 64, attempts=(), cancelled=None
)


def submission(cluster: str = "slurm", job: str = "7", start: int = 0, machine: Machine | None = None) -> Submission:
    place = machine or Machine(host="h", boot_id="b")
    intent = {
        "submission": "k", "cluster": cluster, "host": place.host, "boot_id": place.boot_id, "candidate": "",
        "allocations": (),
    }  # fmt: skip
    data = {
        "submission": "k", "cluster": cluster, "job": job, "array": cluster == "slurm", "host": place.host,
        "boot_id": place.boot_id, "process_start": start, "source": "transport",
    }  # fmt: skip
    return Submission(
        intent=Intent.of(intent),
        intended_at=0.0,
        submitted=Submitted.of(data),
        submitted_at=0.0,
        not_submitted=None,
    )


def record(job: str, state: str, source: str) -> JobRecord:
    return JobRecord(
        job=job, name="k", state=state, reason="", node="n1", submitted_at=1.0, ended_at=2.0, source=source
    )


def told(*records: JobRecord, troubles: tuple[str, ...] = ()) -> Told:
    return Told(records={one.job: one for one in records}, troubles=troubles, is_whole=True)


def started(array_task: str) -> Started:
    job = JobIdentity(
        scheduler="slurm", cluster="c", job_id="99", array_job_id="7", array_task_id=array_task, restart_count=0
    )
    return Started(allocation="a00001", job=job, host="n1", boot_id="b", pid=1, process_start=1, at=1.0)


def test_an_allocation_of_an_array_is_looked_up_by_its_place() -> None:
    said = told(record("7_0", "FAILED", "squeue"), record("7_1", "RUNNING", "squeue"))
    job = slurm_job(submission(), ALLOCATION, None, said)
    assert (job.job, job.stage, job.source) == ("7_1", JobStage.RUNNING, "squeue")


def test_the_job_that_began_counts_before_the_one_that_was_recorded() -> None:
    said = told(record("7_1", "FAILED", "squeue"), record("7_5", "RUNNING", "squeue"))
    assert slurm_job(submission(), ALLOCATION, started("5"), said).job == "7_5"


@pytest.mark.parametrize("state", ["RUNNING", "REQUEUED", "PENDING", "SOMETHING_NEW"])
def test_accounting_that_lags_is_no_life_sign_and_no_end(state: str) -> None:
    job = slurm_job(submission(), ALLOCATION, None, told(record("7_1", state, "sacct")))
    assert job.stage is JobStage.ABSENT
    assert state in job.reason


def test_accountings_final_state_counts_when_the_queue_has_forgotten_the_job() -> None:
    job = slurm_job(submission(), ALLOCATION, None, told(record("7_1", "NODE_FAIL", "sacct")))
    assert (job.stage, job.state, job.source) == (JobStage.ENDED, "NODE_FAIL", "sacct")


def test_a_word_that_is_not_known_in_the_queue_is_unknown() -> None:
    job = slurm_job(submission(), ALLOCATION, None, told(record("7_1", "SOMETHING_NEW", "squeue")))
    assert (job.stage, job.reason) == (JobStage.UNKNOWN, "state SOMETHING_NEW")


def test_a_silent_queue_is_unknown_and_an_answering_one_without_the_job_is_absence() -> None:
    silent = Told(records=None, troubles=("timed out",))
    assert slurm_job(submission(), ALLOCATION, None, silent).stage is JobStage.UNKNOWN
    absent = slurm_job(submission(), ALLOCATION, None, told(troubles=("sacct: no accounting here",)))
    assert absent.stage is JobStage.ABSENT
    assert "no accounting here" in absent.reason


def test_a_task_that_its_array_no_longer_has_was_cancelled_while_it_waited() -> None:
    of_the_array = replace(told(record("7_0", "RUNNING", "squeue")), arrays=frozenset({"7"}))
    job = slurm_job(submission(), ALLOCATION, None, of_the_array)
    assert (job.job, job.stage, job.state) == ("7_1", JobStage.ENDED, "CANCELLED")
    # Without accounting it may also have failed to start the harness; one that began is not gone; silence is no word.
    unaccounted = replace(of_the_array, troubles=("sacct: no accounting here",))
    assert slurm_job(submission(), ALLOCATION, None, unaccounted).state == ""
    none_kept = replace(of_the_array, unaccounted="sacct: accounting storage is disabled")
    assert slurm_job(submission(), ALLOCATION, None, none_kept).state == ""
    assert slurm_job(submission(), ALLOCATION, started("1"), of_the_array).stage is JobStage.ABSENT
    silent = replace(of_the_array, is_whole=False)
    assert slurm_job(submission(), ALLOCATION, None, silent).stage is JobStage.UNKNOWN


def test_a_local_job_is_told_by_process_boot_and_start_time() -> None:
    machine = read_machine()
    start = read_start(1)
    assert start is not None
    alive = submission("local", "1", start, machine)
    assert local_job(alive, machine).stage is JobStage.RUNNING
    assert local_job(submission("local", "1", start + 1, machine), machine).stage is JobStage.ENDED
    assert local_job(alive, replace(machine, boot_id="other")).stage is JobStage.ENDED
    assert local_job(alive, replace(machine, host="other")).stage is JobStage.UNKNOWN


def test_a_receipt_of_another_attempt_or_of_no_known_form_is_a_problem(tmp_path: Path) -> None:
    home = build_home(tmp_path / "home", repeats=1)
    slot = "baseline/pilot/sync-b4"
    receipt = home.paths.attempt(slot, 1).receipt
    allocation = Receipt.read(receipt).allocation
    attempt = Attempt(slot=slot, attempt=1, updates=0, allocation=allocation, ended=None)
    assert read_attempt(home.paths, attempt).receipt is not None
    moved = read_attempt(home.paths, replace(attempt, allocation="a99999"))
    assert moved.receipt is None
    assert "that of" in moved.problem
    receipt.write_bytes(receipt.read_bytes()[:-20])
    torn = read_attempt(home.paths, attempt)
    assert torn.receipt is None
    assert torn.problem


def test_a_receipt_that_its_allocation_did_not_write_or_that_is_gone_is_a_problem_and_no_ending(tmp_path: Path) -> None:
    home = build_home(tmp_path / "home", repeats=1)
    slot = "baseline/pilot/sync-b4"
    folder = home.paths.attempt(slot, 1)
    allocation = Receipt.read(folder.receipt).allocation
    attempt = Attempt(slot=slot, attempt=1, updates=0, allocation=allocation, ended=None)

    def end(receipts: dict[str, str]) -> None:
        ended = Ended(
            allocation=allocation, reason="done", at=1.0, wall_s=1.0, sides_s=1.0, overhead_s=0.0, receipts=receipts
        )
        home.paths.allocation(allocation).ended.write_bytes(ended.to_bytes())

    end({})
    forged = read_attempt(home.paths, attempt)
    assert forged.receipt is None
    assert "without writing this receipt" in forged.problem
    end({f"{slot}/1": sha256_file(folder.receipt)})
    assert read_attempt(home.paths, attempt).receipt is not None
    folder.receipt.unlink()
    gone = read_attempt(home.paths, attempt)
    assert gone.receipt is None
    assert "there is none" in gone.problem


def test_an_attempt_that_may_not_be_looked_at_is_a_problem_and_no_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = build_home(tmp_path / "home", repeats=1)
    slot = "baseline/pilot/sync-b4"
    folder = home.paths.attempt(slot, 1)
    attempt = Attempt(slot=slot, attempt=1, updates=0, allocation=Receipt.read(folder.receipt).allocation, ended=None)
    forbid(monkeypatch, folder.root.parent)
    found = read_attempt(home.paths, attempt)
    assert found.receipt is None
    assert found.problem == f"{folder.root}: cannot be looked at: Permission denied"


def test_an_allocation_that_may_not_be_looked_at_is_no_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = build_home(tmp_path / "home", repeats=1)
    slot = "baseline/pilot/sync-b4"
    allocation = Receipt.read(home.paths.attempt(slot, 1).receipt).allocation
    forbid(monkeypatch, home.paths.allocation(allocation).root)
    assert read_attempt(home.paths, Attempt(slot=slot, attempt=1, updates=0, allocation=allocation, ended=None)).receipt


NUM_TASKS = 3000


def _many_tasks(paths: HomePaths) -> History:
    """Return three arrays of a thousand waiting tasks, with the folders that they have."""
    history = History()
    for first in range(0, NUM_TASKS, 1000):
        key = f"k{first}"
        made = submission(job=str(7 + first))
        history.submissions[key] = replace(made, intent=made.intent.replace(submission=key))
        for index in range(1000):
            name, slot = f"a{first + index}", f"baseline/solo/w{first + index}/r1"
            history.allocations[name] = replace(ALLOCATION, allocation=name, submission=key, index=index)
            history.note_attempt(Attempt(slot=slot, attempt=1, updates=5, allocation=name, ended=None))
            paths.allocation(name).root.mkdir(parents=True)
            paths.attempt(slot, 1).root.mkdir(parents=True)
    return history


@pytest.mark.slow
def test_a_look_at_three_thousand_tasks_takes_less_than_two_seconds_of_processor(tmp_path: Path) -> None:
    home = build_home(tmp_path / "home", repeats=1)
    history = _many_tasks(home.paths)
    queue = "".join(
        f"{7 + first}_{index}|k{first}|PENDING||1|N/A|Priority\n"
        for first in range(0, NUM_TASKS, 1000)
        for index in range(1000)
    )
    observer = Observer(paths=home.paths, slurm=Slurm(lambda _: queue), machine=read_machine())
    before = time.process_time()
    view = observer.view(home.protocol, "", history, 2.0)
    assert time.process_time() - before < 2.0
    assert [one.reason for one in view.attempts.values()] == ["Priority"] * NUM_TASKS
