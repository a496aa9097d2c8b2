"""Which processes are below another one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from jobs.processes.keeper import descendants, is_descendant

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""


@pytest.fixture
def pids() -> Iterator[tuple[int, int]]:
    """A child of this process and a child of that."""
    child = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    yield child.pid, int(child.stdout.readline())
    child.communicate("\n")


def test_what_is_below_is_so_by_its_own_line_as_by_a_look_at_all(pids: tuple[int, int]) -> None:
    child, grandchild = pids
    own = os.getpid()
    assert {child, grandchild} <= descendants(own)
    assert all(is_descendant(below, above) for below, above in ((child, own), (grandchild, own), (grandchild, child)))
    assert not any(is_descendant(below, above) for below, above in ((own, child), (child, grandchild), (own, own)))


def test_a_process_that_has_ended_is_below_none() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_descendant(child.pid, os.getpid())
    child.wait()
    assert not is_descendant(child.pid, os.getpid())
