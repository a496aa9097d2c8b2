"""Real local jobs through submitit, and submitters that are really killed."""

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

from campaign.errors import StateError
from campaign.frozen import read_frozen
from campaign.record.ledger import read_entries
from campaign.submission.desk import LEAVE_S, Desk, Wish, open_desk
from campaign.submission.ending import cancel
from campaign.submission.wait import Pace, wait_for_jobs
from campaign.watching.observation import live_local_jobs
from campaign.watching.processes import Process, find_processes, is_alive, read_start
from campaign.watching.state import AttemptState, SlotState
from tests.campaign.submission.support import SUBMITTER
from tests.support.home import CANDIDATE
from tests.support.jobs import JobHome, make_job_home

ROOT = Path(__file__).parents[3]
WISH = Wish(candidate=CANDIDATE, cluster="local")
PACE = Pace(first_s=0.05, longest_s=0.1)


def quiet(_line: str) -> None:
    """Drop what the desk says."""


def kill_submitter(home: JobHome, step: str, cluster: str) -> None:
    """Run a submitter that is killed at a step."""
    command = [sys.executable, "-c", SUBMITTER, step, str(home.paths.root), cluster, CANDIDATE]
    done = subprocess.run(command, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def make_real_desk(home: JobHome) -> Desk:
    return open_desk(home.paths, read_frozen(home.paths), time.time)


def submit(desk: Desk, wish: Wish = WISH) -> int:
    """Submit what is missing; return the number of submissions."""
    desk.settle(quiet)
    order = desk.order(wish, desk.view(wish.candidate), desk.array_limit(wish.cluster))
    return len(desk.hand_over(wish, order, quiet)) if order.all else 0


def wait(desk: Desk) -> dict[str, SlotState]:
    view = wait_for_jobs(lambda: desk.view(CANDIDATE), PACE, sleep=time.sleep, show=quiet)
    return {name: status.state for name, status in view.slots.items()}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[JobHome]:
    made = make_job_home(tmp_path / "it's a home", repeats=1)
    yield made
    made.hold.unlink(missing_ok=True)
    for process in find_processes(str(made.paths.root)):
        os.kill(process.pid, signal.SIGKILL)


def test_a_local_campaign_runs_from_the_pilots_to_the_last_pair(home: JobHome) -> None:
    desk = make_real_desk(home)
    assert submit(desk) == 1
    assert list(wait(desk).values()).count(SlotState.COMPLETED) == 4
    assert submit(desk) == 1
    assert set(wait(desk).values()) == {SlotState.COMPLETED}
    assert submit(desk) == 0
    assert home.doubles() == []


def test_a_job_gets_only_listed_variables_and_its_own_session(
    home: JobHome, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("SLURM_CPU_BIND", "SBATCH_PARTITION", "PYTHONPATH", "CUDA_VISIBLE_DEVICES", "SECRET"):
        monkeypatch.setenv(name, "1")
    (tmp_path / "submitit").mkdir()
    (tmp_path / "submitit" / "__init__.py").write_text("raise SystemExit('the wrong submitit')\n")
    monkeypatch.chdir(tmp_path)
    home.hold.touch()
    desk = make_real_desk(home)
    submit(desk)
    _wait_until_running(desk)
    environment = json.loads((home.paths.allocation("a00001").root / "environment.json").read_text())
    assert not {"SLURM_CPU_BIND", "SBATCH_PARTITION", "PYTHONPATH", "SECRET"} & set(environment)
    argv = json.loads((home.paths.allocation("a00001").root / "argv.json").read_text())
    assert str(tmp_path) not in argv["path"]
    (job,) = live_local_jobs(desk.history(), desk.machine, ["a00001"])
    assert os.getsid(int(job)) != os.getsid(0)
    home.hold.unlink()
    wait(desk)


def _wait_until_running(desk: Desk) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if any(one.state is AttemptState.RUNNING for one in desk.view(CANDIDATE).attempts.values()):
            return
        time.sleep(0.05)
    raise AssertionError("nothing runs")


def test_nothing_is_submitted_beside_a_local_job_that_runs(home: JobHome) -> None:
    home.hold.touch()
    desk = make_real_desk(home)
    submit(desk, Wish(candidate=CANDIDATE, cluster="local", phase="pilot", only="baseline/*"))
    with pytest.raises(StateError, match="still running"):
        submit(desk)
    home.hold.unlink()
    wait(desk)


def test_a_job_that_only_cleans_up_is_waited_for(home: JobHome) -> None:
    home.linger.touch()
    desk = make_real_desk(home)
    submit(desk)
    assert list(wait(desk).values()).count(SlotState.COMPLETED) == 4
    (job,) = live_local_jobs(desk.history(), desk.machine, desk.history().allocations)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if sum(slept) > 30:  # as if it were slow
            home.linger.unlink(missing_ok=True)
            time.sleep(seconds)

    patient = replace(desk, sleep=sleep)
    assert submit(patient) == 1
    assert sum(slept) > 30
    assert read_start(int(job)) is None
    assert set(wait(desk).values()) == {SlotState.COMPLETED}


def test_a_job_that_does_not_leave_is_named(home: JobHome) -> None:
    home.linger.touch()
    desk = make_real_desk(home)
    submit(desk)
    wait(desk)
    (job,) = live_local_jobs(desk.history(), desk.machine, desk.history().allocations)
    slept: list[float] = []
    with pytest.raises(StateError, match="does not leave") as caught:
        submit(replace(desk, sleep=slept.append))
    assert f"process {job}" in caught.value.why
    assert sum(slept) == pytest.approx(LEAVE_S, abs=1)
    assert [entry.act for entry in read_entries(home.paths)].count("intent") == 1


def test_a_job_that_is_killed_loses_its_attempts_and_they_are_made_again(home: JobHome) -> None:
    home.wish(die={"baseline/pilot/sync-b4/1": True})
    desk = make_real_desk(home)
    submit(desk)
    states = wait(desk)
    assert states["baseline/pilot/sync-b4"] is SlotState.RETRYABLE
    submit(desk)
    assert list(wait(desk).values()).count(SlotState.COMPLETED) == 4
    attempts = {(one.slot, one.attempt): one.ending for one in desk.view(CANDIDATE).attempts.values()}
    assert attempts["baseline/pilot/sync-b4", 1] == "lost"
    assert attempts["baseline/pilot/sync-b4", 2] == "completed"


def test_cancelling_a_local_job_lets_the_harness_seal_and_ends_it(home: JobHome) -> None:
    home.hold.touch()
    desk = make_real_desk(home)
    submit(desk)
    _wait_until_running(desk)
    cancel(desk, "enough", quiet)
    assert live_local_jobs(desk.history(), desk.machine, desk.history().allocations) == []
    view = desk.view(CANDIDATE)
    assert {status.ending for status in view.attempts.values()} == {"cancelled"}
    assert [status.source for status in view.attempts.values()].count("receipt") == 1
    assert [entry.act for entry in read_entries(home.paths)].count("ended") == 3


SLOW = [pytest.param(step, marks=pytest.mark.slow) for step in ("intended", "planned")]
"""Covered by faster tests in memory as well."""


@pytest.mark.parametrize("step", [*SLOW, "transporting", "transported"])
def test_a_submitter_that_is_killed_neither_loses_nor_doubles(home: JobHome, step: str) -> None:
    home.hold.touch()  # else what a submitter left behind may have ended before anybody looks
    kill_submitter(home, step, "local")
    desk = make_real_desk(home)
    submit(desk)
    home.hold.unlink()
    states = wait(desk)
    assert list(states.values()).count(SlotState.COMPLETED) == 4
    assert {status.attempt for status in desk.view(CANDIDATE).attempts.values()} == {1}
    assert home.doubles() == []
    assert submit(desk) == 1
    assert set(wait(desk).values()) == {SlotState.COMPLETED}


def test_a_process_is_told_from_a_later_one_with_its_number() -> None:
    start = read_start(os.getpid())
    assert start is not None
    assert is_alive(Process(pid=os.getpid(), start=start))
    assert not is_alive(Process(pid=os.getpid(), start=start - 1))
    assert read_start(2**22 + 1) is None
