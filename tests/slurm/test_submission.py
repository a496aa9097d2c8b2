"""The same on the real cluster: arrays, identities, killed submitters, cancelling and dead nodes' states."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from campaign.documents import Start, Started
from campaign.errors import InfrastructureError
from campaign.frozen import read_frozen
from campaign.submission.desk import Desk, Wish, open_desk
from campaign.submission.ending import Selection, cancel
from campaign.submission.wait import Pace, wait_for_jobs
from campaign.watching.scheduler import local_slurm
from campaign.watching.state import AttemptState, Patience, SlotState
from tests.campaign.submission.support import SUBMITTER
from tests.slurm.cluster import Cluster
from tests.support import training
from tests.support.cli import expect_json
from tests.support.home import CANDIDATE
from tests.support.jobs import RESOURCES, JobHome, make_job_home

pytestmark = pytest.mark.slurm
ROOT = Path(__file__).parents[2]
WISH = Wish(candidate=CANDIDATE, cluster="slurm")
PACE = Pace(first_s=0.2, longest_s=0.5)


def quiet(_line: str) -> None:
    """Drop what the desk says."""


@pytest.fixture
def home(tmp_path: Path, slurm_cluster: Cluster) -> Iterator[JobHome]:
    assert slurm_cluster.conf.is_file()
    made = make_job_home(tmp_path / "it's a home", repeats=1)
    yield made
    made.hold.unlink(missing_ok=True)
    history = make_real_desk(made).history()
    for submission in history.submissions.values():
        subprocess.run(["scancel", "--quiet", f"--name={submission.key}"], check=False)


def make_real_desk(home: JobHome) -> Desk:
    desk = open_desk(home.paths, read_frozen(home.paths), time.time)
    return replace(desk, observer=replace(desk.observer, patience=Patience(visible_s=1.0)))


def submit(desk: Desk) -> int:
    """Submit what is missing; return the number of submissions."""
    desk.settle(quiet)
    order = desk.order(WISH, desk.view(WISH.candidate), desk.array_limit(WISH.cluster))
    return len(desk.hand_over(WISH, order, quiet)) if order.all else 0


def wait(desk: Desk) -> dict[str, SlotState]:
    view = wait_for_jobs(lambda: desk.view(CANDIDATE), PACE, sleep=time.sleep, show=quiet)
    return {name: status.state for name, status in view.slots.items()}


def wait_until(desk: Desk, state: AttemptState, number: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if [one.state for one in desk.view(CANDIDATE).attempts.values()].count(state) >= number:
            return
        time.sleep(0.2)
    raise AssertionError(f"never {number} {state}")


def test_a_campaign_runs_on_the_cluster_with_a_callers_slurm_variables_left_behind(
    home: JobHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CPU_BIND", "quiet,mask_cpu:0x1")
    monkeypatch.setenv("SLURM_JOB_ID", "999999")
    monkeypatch.setenv("SBATCH_PARTITION", "no-such-partition")
    desk = make_real_desk(home)
    assert submit(desk) == 1
    assert list(wait(desk).values()).count(SlotState.COMPLETED) == 4
    assert submit(desk) == 1
    assert set(wait(desk).values()) == {SlotState.COMPLETED}
    assert submit(desk) == 0
    history = desk.history()
    for status in desk.view(CANDIDATE).attempts.values():
        start = Start.read(home.paths.attempt(status.slot, status.attempt).start)
        assert start.host.node in {"n1", "n2", "n3"}
        shown = f"{start.job.array_job_id}_{start.job.array_task_id}"
        allocation = history.allocations[status.allocation]
        assert shown == history.submissions[allocation.submission].job_of(allocation.index)
    environment = json.loads((home.paths.allocation("a00001").root / "environment.json").read_text())
    assert "SBATCH_PARTITION" not in environment
    assert environment["SLURM_JOB_ID"] != "999999"
    assert environment.get("SLURM_CPU_BIND", "") != "quiet,mask_cpu:0x1"


def test_a_dry_run_shows_the_very_script_that_is_submitted(home: JobHome) -> None:
    (shown,) = expect_json(0, "submit", "--home", home.paths.root, "--cluster", "slurm", "--dry-run")["dry_run"]
    assert not home.paths.transport.exists()
    desk = make_real_desk(home)
    assert submit(desk) == 1
    (folder,) = home.paths.transport.iterdir()
    (script,) = folder.glob("*_submission.sh")
    assert folder.name == shown["submission"]
    assert script.read_text().splitlines() == shown["script"].splitlines()
    request = json.loads(home.paths.submission(folder.name).request.read_bytes())
    assert request["payloads"] == shown["payloads"]
    wait(desk)


@pytest.mark.parametrize("step", ["transporting", "transported"])
def test_a_submitter_that_is_killed_neither_loses_nor_doubles(home: JobHome, step: str) -> None:
    command = [sys.executable, "-c", SUBMITTER, step, str(home.paths.root), "slurm", CANDIDATE]
    done = subprocess.run(command, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    if step == "transported":
        # As if the transport's child had been killed as well, right after sbatch.
        (folder,) = home.paths.transport.iterdir()
        (folder / "answer.json").unlink()
    desk = make_real_desk(home)
    assert submit(desk) == 0
    states = wait(desk)
    assert list(states.values()).count(SlotState.COMPLETED) == 4
    assert {status.attempt for status in desk.view(CANDIDATE).attempts.values()} == {1}
    assert home.doubles() == []


def test_cancelled_jobs_end_as_cancelled_whether_they_had_begun_or_not(home: JobHome) -> None:
    home.hold.touch()
    desk = make_real_desk(home)
    submit(desk)
    wait_until(desk, AttemptState.RUNNING, 1)
    cancel(desk, "enough", quiet)
    wait(desk)
    desk.settle(quiet)
    assert {one.ending for one in desk.view(CANDIDATE).attempts.values()} == {"cancelled"}


def test_only_the_named_tasks_of_an_array_are_cancelled_and_the_others_go_on(home: JobHome) -> None:
    home.hold.touch()
    desk = make_real_desk(home)
    submit(desk)
    wait_until(desk, AttemptState.RUNNING, 1)
    assert len(cancel(desk, "enough", quiet, Selection(only="baseline/*")).jobs) == 2
    assert len(cancel(desk, "still enough", quiet, Selection(only="baseline/*")).allocations) <= 2
    home.hold.unlink()
    wait(desk)
    desk.settle(quiet)
    endings = {key.slot.partition("/")[0]: one.ending for key, one in desk.view(CANDIDATE).attempts.items()}
    assert endings == {"baseline": "cancelled", CANDIDATE: "completed"}
    assert home.acts().count("cancelled") == 1


def test_a_job_whose_harness_dies_is_lost_and_made_again(home: JobHome) -> None:
    home.wish(die={"baseline/pilot/sync-b4/1": True})
    desk = make_real_desk(home)
    submit(desk)
    assert wait(desk)["baseline/pilot/sync-b4"] is SlotState.RETRYABLE
    assert submit(desk) == 1
    assert wait(desk)["baseline/pilot/sync-b4"] is SlotState.COMPLETED
    assert Started.read(home.paths.allocation("a00005").started).job.scheduler == "slurm"


def test_a_run_that_is_killed_and_then_told_to_stop_goes_on_from_what_each_segment_saved(
    tmp_path: Path, slurm_cluster: Cluster
) -> None:
    assert slurm_cluster.conf.is_file()
    run = "baseline/run/sync/s45"
    rules = training.make_rules("sync", seeds=(45,))
    home = make_job_home(tmp_path / "home", repeats=1, candidate=False, convergence=rules)
    home.wish(die={f"{run}/1/1": True})
    desk, wish = make_real_desk(home), Wish(candidate="", cluster="slurm", only=run)

    def go() -> None:
        desk.settle(quiet)
        order = desk.order(wish, desk.view(""), desk.array_limit("slurm"))
        desk.hand_over(wish, order, quiet)

    def ended() -> SlotState:
        wait_for_jobs(lambda: desk.view(""), PACE, sleep=time.sleep, show=quiet)
        return desk.view("").slots[run].state

    go()
    assert ended() is SlotState.PLANNED
    go()
    assert ended() is SlotState.CUT
    home.hold.touch()
    go()
    deadline = time.monotonic() + 60
    while (running := desk.view("").slots[run].attempts[-1]).state is not AttemptState.RUNNING:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    subprocess.run(["scancel", "--signal=USR2", running.job], check=True)
    assert ended() is SlotState.CUT
    home.hold.unlink()
    go()
    assert ended() is SlotState.COMPLETED
    segments = desk.view("").slots[run].attempts
    assert [(one.segment, one.ending) for one in segments] == [(1, "lost"), (2, "time_limit"), (3, "completed")]
    resumed = [desk.history().attempt(one.key).resume for one in segments]
    assert [(one.segment, one.update) if one else None for one in resumed] == [None, (1, 10), (2, 20)]


def test_a_refused_submission_says_what_sbatch_said(tmp_path: Path, slurm_cluster: Cluster) -> None:
    assert slurm_cluster.conf.is_file()
    resources = {**RESOURCES, "slurm": {**RESOURCES["slurm"], "partition": "no-such-partition"}}
    home = make_job_home(tmp_path / "home", repeats=1, resources=resources)
    with pytest.raises(InfrastructureError) as refused:
        submit(make_real_desk(home))
    assert "invalid partition" in refused.value.why.lower()
    assert home.acts()[-1] == "not_submitted"


def test_a_request_that_no_node_can_meet_uses_no_attempt_up_however_often(
    tmp_path: Path, slurm_cluster: Cluster
) -> None:
    assert slurm_cluster.conf.is_file()
    resources = {**RESOURCES, "slurm": {**RESOURCES["slurm"], "mem_gb": 4000}}
    home = make_job_home(tmp_path / "home", repeats=1, resources=resources)
    for _ in range(2):
        with pytest.raises(InfrastructureError) as refused:
            submit(make_real_desk(home))
        assert "not available" in refused.value.why
        assert refused.value.hint.startswith("mend the cause")
        assert home.acts()[-1] == "not_submitted"
    # Slurm keeps a failed job of each, which is no job that nobody intended.
    (key,) = make_real_desk(home).history().submissions
    left = local_slurm().queue([key])
    assert {(one.state, one.node) for one in left} == {("FAILED", "")}
    assert len({one.job.partition("_")[0] for one in left}) == 2
    expect_json(0, "collect", "--home", home.paths.root)
    assert {one.state for one in make_real_desk(home).view(CANDIDATE).attempts.values()} == {AttemptState.INTERRUPTED}
