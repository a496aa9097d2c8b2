"""What a program leaves running is ended with it, also what made a session of its own and whose parents have gone."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from campaign.verifier import execution, strays
from campaign.verifier.execution import Done, Run

LEAVES = """
import os, sys, time
reading, writing = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(writing, b"%d" % os.getpid())
        time.sleep(600)
    os._exit(0)
print(os.read(reading, 20).decode(), flush=True)
time.sleep(float(sys.argv[1]))
"""


def run(seconds: float, timeout_s: float) -> Done:
    """Run a program that leaves a process of a session of its own, and then sleeps."""
    program = {"__init__.py": b"", "__main__.py": LEAVES.encode()}
    runs = [Run(setting=execution.SETTINGS[0], arguments=(str(seconds),))]
    (done,) = execution.run_all(program, runs, python=sys.executable, root="/frozen", timeout_s=timeout_s)
    return done


def adopts() -> bool:
    found = ctypes.c_int(-1)
    assert ctypes.CDLL(None).prctl(strays._PR_GET_CHILD_SUBREAPER, ctypes.byref(found), 0, 0, 0) == 0
    return bool(found.value)


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(("seconds", "timeout_s", "trouble"), [(600, 1.0, "took more than 1 s"), (0, 60.0, "")])
def test_what_left_its_session_is_gone_when_the_program_is(seconds: float, timeout_s: float, trouble: str) -> None:
    done = run(seconds, timeout_s)
    assert done.trouble == trouble
    assert not is_there(int(done.printed))
    assert not adopts()


def test_it_would_have_stayed_where_nothing_can_be_adopted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strays, "_adopt", lambda _: None)
    pid = int(run(0, 60.0).printed)
    try:
        assert is_there(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_process_that_was_there_before_stays() -> None:
    with subprocess.Popen(["/bin/sleep", "600"]) as before:
        with strays.ending() as left:
            during = subprocess.Popen(["/bin/sleep", "600"], start_new_session=True)
        assert left.survivors == 0
        assert before.poll() is None
        assert not is_there(during.pid)
        during.wait()
        before.kill()


def test_what_cannot_be_ended_is_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strays, "_KILL_S", 0.0)  # as if what was killed did not go
    done = run(0, 60.0)
    assert done.trouble == "left 1 process(es) that could not be ended"
    os.kill(int(done.printed), signal.SIGKILL)
    os.waitpid(int(done.printed), 0)
