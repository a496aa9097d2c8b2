"""Being told to stop, and being killed: what is sealed, and that nothing of a side goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from acceptance.formats import Ending
from campaign.watching.processes import find_processes
from tests.support.harness import PAIR, SOLO, Bench, make_bench, misbehaving

STUCK = misbehaving(
    """
def updates(self, n):
    import os
    if n == 10:
        if os.fork() == 0:
            os.setsid()
            time.sleep(300)
        fifo = os.open(self.config["fifo"], os.O_WRONLY)
        if os.fork() == 0:
            time.sleep(300)
        os.write(fifo, b"in a window")
        time.sleep(300)
    return super().updates(n)
"""
)
"""Hangs in its first window, beside two children, after it has said so through a named pipe that it keeps open."""


class Stopped:
    """A job that is in the middle of a window; while anything of the side lives, the pipe has a writer."""

    def __init__(self, root: Path, environment: dict[str, str]) -> None:
        fifo = root / "fifo"
        os.mkfifo(fifo)
        self.bench: Bench = make_bench(root, STUCK, config={"tokens": 5, "fifo": str(fifo)})
        self.bench.environment = environment
        self.job = self.bench.start(self.bench.plan(PAIR, SOLO), self.bench.plan(SOLO, allocation="a00002"))
        self.pipe = fifo.open("rb", buffering=0)
        assert self.pipe.read(11) == b"in a window"

    def wait_until_nothing_of_the_side_lives(self) -> None:
        assert self.pipe.read(1) == b""

    def finish(self) -> int:
        output, _ = self.job.communicate(timeout=60)
        assert output == ""
        return self.job.returncode


Begin = Callable[..., Stopped]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    begun: list[Stopped] = []

    def start(**environment: str) -> Stopped:
        begun.append(Stopped(tmp_path, environment))
        return begun[-1]

    yield start
    for stopped in begun:
        stopped.pipe.close()
        if stopped.job.poll() is None:
            stopped.job.kill()
            stopped.job.communicate()


@pytest.mark.parametrize(
    ("number", "ending"),
    [(signal.SIGTERM, Ending.CANCELLED), (signal.SIGUSR2, Ending.TIME_LIMIT), (signal.SIGINT, Ending.CANCELLED)],
)
def test_a_signal_seals_the_attempt_and_ends_everything(begin: Begin, number: signal.Signals, ending: Ending) -> None:
    stopped = begin()
    stopped.job.send_signal(number)
    assert stopped.finish() == 128 + number
    stopped.wait_until_nothing_of_the_side_lives()
    receipt = stopped.bench.receipt(PAIR)
    assert receipt.ending is ending
    assert receipt.reason.startswith(number.name)
    assert [(side.side, side.signal) for side in receipt.sides] == [("baseline", signal.SIGKILL)]
    assert stopped.bench.ended().reason == ending
    assert not stopped.bench.attempt(SOLO).root.exists()
    assert not stopped.bench.paths.allocation("a00002").started.exists()
    assert list(stopped.bench.temporary.iterdir()) == []


def test_in_a_slurm_job_the_scheduler_says_what_a_signal_means(tmp_path: Path, begin: Begin) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    scontrol = tools / "scontrol"
    scontrol.write_text('#!/bin/sh\necho "JobId=$5 JobState=PREEMPTED Asked=$*"\n')
    scontrol.chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    stopped = begin(PATH=path, SLURM_JOB_ID="17", SLURMD_NODENAME="node7")
    stopped.job.send_signal(signal.SIGTERM)
    assert stopped.finish() == 128 + signal.SIGTERM
    assert stopped.bench.receipt(PAIR).ending is Ending.PREEMPTED
    assert '"node": "node7"' in stopped.bench.attempt(PAIR).start.read_text()


def test_a_signal_to_every_process_at_once_is_not_taken_for_a_crash(tmp_path: Path, begin: Begin) -> None:
    stopped = begin()
    pids = [process.pid for process in find_processes(str(tmp_path))]
    assert len(pids) >= 4
    for pid in sorted(pids, reverse=True):
        os.kill(pid, signal.SIGTERM)
    assert stopped.finish() == 128 + signal.SIGTERM
    assert stopped.bench.receipt(PAIR).ending is Ending.CANCELLED


def test_killing_the_parent_leaves_nothing_of_the_side(begin: Begin) -> None:
    stopped = begin()
    stopped.job.kill()
    stopped.job.communicate()
    stopped.wait_until_nothing_of_the_side_lives()
    assert not stopped.bench.attempt(PAIR).receipt.exists()
    assert not stopped.bench.paths.allocation("a00001").ended.exists()


def test_killing_the_keeper_is_a_crash_that_leaves_nothing_of_the_side(tmp_path: Path) -> None:
    body = "def updates(self, n):\n    import os\n    os.kill(os.getppid(), 9)\n    time.sleep(300)"
    bench = make_bench(tmp_path, misbehaving(body))
    bench.run(bench.plan(SOLO))
    receipt = bench.receipt(SOLO)
    assert receipt.ending is Ending.CRASH
    assert "its keeper was killed" in receipt.reason
