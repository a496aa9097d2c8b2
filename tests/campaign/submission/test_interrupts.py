"""Ctrl-C at every stage of a submission, to the real process: exit 130, and the next command goes on, once."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaign.cli.main import main
from campaign.frozen import read_frozen
from campaign.submission.desk import Desk, open_desk
from campaign.submission.wait import Pace, wait_for_jobs
from campaign.watching.processes import find_processes
from campaign.watching.state import AttemptState, SlotState
from tests.support.home import CANDIDATE
from tests.support.jobs import JobHome, make_job_home

ROOT = Path(__file__).parents[3]
HEEDING = ("env", "--default-signal=INT")
"""Before a command that is to be interrupted: what a shell runs in the background inherits that SIGINT is ignored."""
PACE = Pace(first_s=0.05, longest_s=0.1)

INTERRUPTED = """
import os, signal, subprocess, sys
from campaign.cli.main import main
from campaign.submission import desk as desks

step, home = sys.argv[1:]


def after(given, *, only=""):
    def call(*arguments, **named):
        if not only or only in arguments:
            os.kill(os.getpid(), signal.SIGINT)
        return given(*arguments, **named)
    return call


if step == "planned":
    desks.Desk.intent = after(desks.Desk.intent)
elif step == "intended":
    desks.write_plans = after(desks.write_plans)
elif step == "transporting":
    given = desks.SubmititTransport.submit
    def submit(self, request, key):
        subprocess.Popen.wait = after(subprocess.Popen.wait)
        return given(self, request, key)
    desks.SubmititTransport.submit = submit
elif step == "transported":
    desks._append = after(desks._append, only="submitted")
sys.exit(main(["submit", "--home", home, "--cluster", "local", "--yes"]))
"""
"""Runs the command, which gets SIGINT at one step."""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[JobHome]:
    made = make_job_home(tmp_path / "home", repeats=1)
    yield made
    made.hold.unlink(missing_ok=True)
    for process in find_processes(str(made.paths.root)):
        os.kill(process.pid, signal.SIGKILL)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def make_real_desk(home: JobHome) -> Desk:
    return open_desk(home.paths, read_frozen(home.paths), time.time)


def finish(home: JobHome) -> None:
    """Submit what is missing as the next command would, and see that every pilot was made, and made once."""
    assert main(["submit", "--home", str(home.paths.root), "--cluster", "local", "--yes", "--only", "*/pilot/*"]) == 0
    desk = make_real_desk(home)
    view = wait_for_jobs(lambda: desk.view(CANDIDATE), PACE, sleep=time.sleep, show=lambda _: None)
    pilots = [status for status in view.slots.values() if status.slot.kind == "pilot"]
    assert {status.state for status in pilots} == {SlotState.COMPLETED}
    assert {one.attempt for one in view.attempts.values()} == {1}
    assert home.acts().count("submitted") == 1
    assert home.doubles() == []
    assert not home.paths.lock.exists()


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("planned", marks=pytest.mark.slow),
        pytest.param("intended", marks=pytest.mark.slow),
        "transporting",
        pytest.param("transported", marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_submission_is_gone_on_with(home: JobHome, step: str) -> None:
    done = subprocess.run(
        [*HEEDING, sys.executable, "-c", INTERRUPTED, step, str(home.paths.root)],
        env=environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 130, done.stderr
    assert "nothing is lost; to go on from here: campaign submit" in done.stderr
    assert "Traceback" not in done.stderr
    assert home.acts().count("submitted") == 0
    assert ("intent" in home.acts()) == (step != "planned")
    finish(home)


def test_an_interrupted_wait_on_a_terminal_leaves_the_jobs_and_the_cursor(home: JobHome) -> None:
    home.hold.touch()
    keyboard, terminal = os.openpty()
    command = ["submit", "--home", str(home.paths.root), "--cluster", "local", "--yes", "--wait"]
    process = subprocess.Popen(
        [*HEEDING, sys.executable, "-c", "from campaign.cli.main import run; run()", *command],
        env={**environment(), "TERM": "xterm", "COLUMNS": "120", "LINES": "40"},
        stdin=terminal,
        stdout=subprocess.DEVNULL,
        stderr=terminal,
    )
    os.close(terminal)
    try:
        shown = read_until(keyboard, b"running: 1")
        process.send_signal(signal.SIGINT)
        shown += read_until(keyboard, b"interrupted")
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.wait()
        os.close(keyboard)
    text = shown.decode()
    assert "baseline/pilot/sync-b4" in text
    assert "a pass is no longer reachable" not in text
    assert "the jobs go on; to go on waiting: campaign submit --wait" in text
    assert text.count("\x1b[?25h") >= 1  # the cursor is shown again
    running = [
        one for one in make_real_desk(home).view(CANDIDATE).attempts.values() if one.state is AttemptState.RUNNING
    ]
    assert len(running) == 1
    home.hold.unlink()
    finish_after_wait(home)


def finish_after_wait(home: JobHome) -> None:
    desk = make_real_desk(home)
    view = wait_for_jobs(lambda: desk.view(CANDIDATE), PACE, sleep=time.sleep, show=lambda _: None)
    assert [one.ending for one in view.attempts.values() if one.receipt is None] == []
    finish(home)


def read_until(descriptor: int, wanted: bytes, timeout_s: float = 60.0) -> bytes:
    """Read what a terminal shows until something stands there."""
    deadline, shown = time.monotonic() + timeout_s, b""
    while wanted not in shown:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, shown.decode(errors="replace")[-2000:]
        shown += os.read(descriptor, 65536)
    return shown
