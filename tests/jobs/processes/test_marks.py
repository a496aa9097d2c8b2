from __future__ import annotations

import os

import pytest

from jobs.processes.affinity import list_cpus, read_affinity
from jobs.processes.lineage import read_stat
from jobs.processes.marks import VARIABLE, Mark, find_mark, own_mark, parse_mark

MARK = Mark(boot_id="b", pid=7, process_start=12, job="10_2: odd")


def test_a_mark_is_found_among_other_variables_and_reads_back_whole() -> None:
    environ = f"PATH=/bin\0NOT_{VARIABLE}=b:1:1:x\0{VARIABLE}={MARK.text}\0".encode()
    assert find_mark(environ) == MARK
    assert find_mark(b"PATH=/bin\0") is None


@pytest.mark.parametrize("text", ["", "b:7:12", "b:x:12:job", "b:7::job"])
def test_what_is_no_mark_is_none(text: str) -> None:
    assert parse_mark(text) is None


def test_a_process_knows_itself_by_number_and_beginning() -> None:
    mark, stat = own_mark("b", "j"), read_stat(os.getpid())
    assert stat is not None
    assert (mark.pid, mark.process_start) == (os.getpid(), stat[2])
    assert stat[1] == os.getppid()
    assert read_stat(2**22 + 1) is None


@pytest.mark.parametrize(("cpus", "text"), [((), ""), ((3,), "3"), ((0, 1, 2, 8), "0-2,8"), ((9, 7, 8, 1), "1,7-9")])
def test_processors_are_listed_as_the_kernel_does(cpus: tuple[int, ...], text: str) -> None:
    assert list_cpus(cpus) == text


def test_a_process_that_is_gone_has_no_processors() -> None:
    assert read_affinity(os.getpid()) == list_cpus(os.sched_getaffinity(0))
    assert read_affinity(2**22 + 1) == ""
