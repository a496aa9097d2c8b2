"""How a side's end is judged, for ends that no side can be made to have on purpose."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.common.endings import EndedError, Ending
from jobs.measurement.session import _check_exit
from jobs.processes.keeper import Exit
from jobs.processes.sidelog import SideLog

CLEAN = Exit(exit_code=0)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SideLog]:
    with contextlib.closing(SideLog(tmp_path / "side.log", most_bytes=8)) as made:
        yield made


def ended(found: Exit, log: SideLog) -> EndedError:
    with pytest.raises(EndedError) as caught:
        _check_exit(found, log)
    return caught.value


def test_a_clean_exit_ends_nothing(log: SideLog) -> None:
    log.add(b"12345678")
    _check_exit(CLEAN, log)


def test_processes_that_cannot_be_killed_are_the_harnesss_error(log: SideLog) -> None:
    error = ended(Exit(exit_code=0, survivors=2), log)
    assert (error.ending, error.reason) == (Ending.HARNESS_ERROR, "2 processes of the side could not be killed")


def test_what_is_found_printed_after_the_end_counts_as_well(log: SideLog) -> None:
    with pytest.raises(EndedError):
        log.add(b"123456789")
    assert ended(CLEAN, log).ending is Ending.OUTPUT_FLOOD


def test_a_signal_after_the_last_answer_is_a_crash(log: SideLog) -> None:
    log.add(b"bye")
    error = ended(Exit(signal=11), log)
    assert error.ending is Ending.CRASH
    assert "SIGSEGV" in error.reason
    assert "bye" in error.reason
