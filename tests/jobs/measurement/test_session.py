"""How a side's end and answers are judged, for those that no side can be made to have or give on purpose."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.common.endings import EndedError, Ending
from jobs.common.strict import MOST_COUNT, Fields
from jobs.measurement import session
from jobs.measurement.session import MOST_ENGAGED_BYTES, Session, _check_exit, _read_examples, read_engaged
from jobs.processes.channel import Answer
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


@pytest.mark.parametrize(("seen", "affinity"), [({}, ""), ({7: "0-1", 8: "1,4", 9: ""}, "0-1,4")])
def test_within_a_container_the_processors_of_a_side_are_those_of_all_its_processes(
    monkeypatch: pytest.MonkeyPatch, seen: dict[int, str], affinity: str
) -> None:
    one = Session.__new__(Session)
    one.worker_pid, one._keeper_pid = 2, 6
    monkeypatch.setattr(session, "is_descendant", lambda _pid, _of: False)
    monkeypatch.setattr(session, "descendants", lambda pid: set(seen) if pid == 6 else set())
    monkeypatch.setattr(session, "read_affinity", seen.__getitem__)
    assert one.affinity() == affinity


def answer(**values: Any) -> Answer:
    return Answer(fields=Fields(values, "answer"), asked_s=0.0, answered_s=0.0)


@pytest.mark.parametrize("value", [None, {}, {"n": -MOST_COUNT}, {"path": "x" * (MOST_ENGAGED_BYTES - 11)}])
def test_what_is_engaged_is_texts_and_whole_numbers(value: Any) -> None:
    assert read_engaged(answer(engaged=value).fields) == value


@pytest.mark.parametrize(
    "value", [{"n": 1.5}, {"n": True}, {"n": None}, {"n": MOST_COUNT + 1}, {"path": "x" * MOST_ENGAGED_BYTES}, [], "x"]
)
def test_anything_else_that_is_engaged_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="engaged"):
        read_engaged(answer(engaged=value).fields)


def test_examples_are_whole_numbers() -> None:
    found = answer(examples=[3, -MOST_COUNT])
    assert _read_examples(found.fields, found) == (3, -MOST_COUNT)


@pytest.mark.parametrize("value", [[1.0], [True], ["1"], [None], [MOST_COUNT + 1], "12", None])
def test_anything_else_than_whole_numbers_is_no_example(value: Any) -> None:
    found = answer(examples=value)
    with pytest.raises(ValueError, match="examples"):
        _read_examples(found.fields, found)
