from __future__ import annotations

from pathlib import Path

import pytest

from jobs.common.endings import EndedError, Ending
from jobs.processes.sidelog import HeldLog, RankLog, SideLog


def test_lines_of_ranks_are_kept_whole_with_their_numbers(tmp_path: Path) -> None:
    log = SideLog(tmp_path / "log", 1000)
    first, second = RankLog(log, 0), RankLog(log, 1)
    first.add(b"one li")
    second.add(b"another\nand")
    first.add(b"ne\n")
    first.close()
    second.close()
    log.close()
    assert (tmp_path / "log").read_bytes() == b"[1] another\n[0] one line\n[1] and\n"
    assert (first.tail(), second.tail()) == ("one line", "another\nand")


def test_ranks_share_one_limit(tmp_path: Path) -> None:
    log = SideLog(tmp_path / "log", 20)
    RankLog(log, 0).add(b"0123456\n")
    with pytest.raises(EndedError) as caught:
        RankLog(log, 1).add(b"0123456\n")
    assert caught.value.ending is Ending.OUTPUT_FLOOD
    log.close()


def test_a_line_without_end_does_not_wait_for_ever(tmp_path: Path) -> None:
    log = SideLog(tmp_path / "log", 1 << 20)
    RankLog(log, 3).add(b"x" * 10_000)
    log.close()
    assert (tmp_path / "log").stat().st_size == 10_000 + len("[3] \n")


def test_what_is_held_is_fetched_in_parts_up_to_its_limit() -> None:
    log = HeldLog(10)
    log.add(b"01234")
    with pytest.raises(EndedError):
        log.add(b"56789abc")
    assert (log.fetch(7), log.fetch(7), log.fetch(7)) == (b"0123456", b"789", b"")
    assert log.is_truncated
