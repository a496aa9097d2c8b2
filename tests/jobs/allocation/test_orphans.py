from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.allocation.orphans import describe, find_orphans
from jobs.processes.marks import VARIABLE, Mark

USER = 4321
OWN = Mark(boot_id="boot", pid=100, process_start=1000, job="9")
OTHER = Mark(boot_id="boot", pid=200, process_start=2000, job="8")


class Processes:
    """What the kernel would show of some processes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, pid: int, *, start: int, mark: Mark | None = None, state: str = "S", numbers: str = "") -> None:
        folder = self.root / str(pid)
        folder.mkdir()
        fields = [state, "1", *["0"] * 17, str(start)]
        (folder / "stat").write_text(f"{pid} (a (b) c) {' '.join(fields)}")
        (folder / "environ").write_bytes(b"A=1\0" + (f"{VARIABLE}={mark.text}\0".encode() if mark else b""))
        (folder / "cmdline").write_bytes(b"python\0-c\0train\x1b[2J\0")
        (folder / "status").write_text(f"Name:\tpython\nNSpid:\t{pid}{numbers}\n")

    def found(self, user: int | None = None) -> list[int]:
        return [one.pid for one in find_orphans(OWN, self.root, user)]


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    made = Processes(tmp_path)
    made.add(100, start=1000)
    made.add(101, start=1001, mark=OWN)
    made.add(300, start=3000)
    return made


def test_a_process_of_a_harness_that_is_gone_is_an_orphan(processes: Processes) -> None:
    processes.add(201, start=2001, mark=OTHER)
    assert processes.found() == [201]
    assert processes.found(os.getuid() + 1) == []
    (orphan,) = find_orphans(OWN, processes.root)
    text = describe([orphan])
    assert "process 201 (python -c train\\x1b[2J) of job 8" in text
    assert "whose harness is gone" in text


def test_another_harness_that_lives_beside_this_one_has_its_own(processes: Processes) -> None:
    processes.add(200, start=2000)
    processes.add(201, start=2001, mark=OTHER)
    assert processes.found() == []


def test_processes_of_several_harnesses_are_each_held_to_their_own(processes: Processes) -> None:
    processes.add(200, start=2000)
    gone = Mark(boot_id="boot", pid=400, process_start=4000, job="7")
    for pid in range(201, 207):
        processes.add(pid, start=2001, mark=(OTHER, gone, OWN)[pid % 3])
    assert sorted(processes.found()) == [pid for pid in range(201, 207) if pid % 3 == 1]


@pytest.mark.parametrize("state", ["Z", "X"])
def test_a_harness_that_is_just_ending_does_not_live(processes: Processes, state: str) -> None:
    processes.add(200, start=2000, state=state)
    processes.add(201, start=2001, mark=OTHER)
    assert processes.found() == [201]


def test_another_process_with_the_number_of_the_harness_is_not_the_harness(processes: Processes) -> None:
    processes.add(200, start=2777)
    processes.add(201, start=2001, mark=OTHER)
    assert processes.found() == [201]


def test_a_harness_of_an_inner_namespace_is_known_by_its_number_there(processes: Processes) -> None:
    processes.add(555, start=2000, numbers="\t200")
    processes.add(201, start=2001, mark=OTHER)
    assert processes.found() == []


def test_what_was_marked_before_the_machine_was_started_has_no_harness_here(processes: Processes) -> None:
    processes.add(200, start=2000)
    processes.add(201, start=2001, mark=Mark(boot_id="before", pid=200, process_start=2000, job="8"))
    assert processes.found() == [201]


def test_an_orphan_that_has_ended_and_one_that_is_going_disturb_nobody(processes: Processes) -> None:
    processes.add(201, start=2001, mark=OTHER, state="Z")
    processes.add(202, start=2002, mark=OTHER)
    (processes.root / "202" / "stat").unlink()
    assert processes.found() == []


def test_of_many_orphans_some_are_named_and_all_are_counted(processes: Processes) -> None:
    for pid in range(201, 210):
        processes.add(pid, start=2001, mark=OTHER)
    text = describe(find_orphans(OWN, processes.root))
    assert text.startswith("this node still runs 9 processes")
    assert text.endswith("and 4 more")
