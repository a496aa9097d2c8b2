from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from acceptance.formats import Ending
from campaign import documents, files
from campaign.snapshot.digest import digest_folder
from jobs.allocation.data import WatchedData
from jobs.common.endings import InterruptedAttemptError
from jobs.common.plan import DataIdentity
from tests.support.harness import PAIR, SOLO, make_bench, misbehaving


def let_a_tick_pass(path: Path) -> None:
    """Wait until what is written next has another time than a file."""
    probe = path.parents[2] / "probe"
    while True:
        probe.write_bytes(b"")
        if probe.stat().st_mtime_ns > path.stat().st_ctime_ns:
            return


def put_back(path: Path) -> None:
    """Change a file and undo it, its times included."""
    before, status = path.read_bytes(), path.stat()
    path.write_bytes(b"2b||!")
    path.write_bytes(before)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def swap(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.replace(path)


def put_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def put_a_link(path: Path) -> None:
    """Put one in the file's place while that is there: it has another inode then, whatever others do on the disk."""
    other = path.with_name("other")
    other.symlink_to("/dev/null")
    other.replace(path)


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "rewritten": (lambda plays: plays.write_bytes(b"2b||!"), "the time of .* of .*plays.txt changed"),
    "put back": (put_back, "the time of status change of .*plays.txt changed"),
    "another file": (swap, "inode.* of .*plays.txt changed"),
    "longer": (lambda plays: plays.write_bytes(b"to be or"), "the size.* of .*plays.txt changed"),
    "added": (lambda plays: (plays.parent / "new").touch(), "/new was added"),
    "removed": (lambda plays: plays.unlink(), "plays.txt was removed"),
    "a folder": (put_a_folder, "the kind of .*plays.txt changed"),
    "a link": (put_a_link, "the inode, size, .* of .*plays.txt changed"),
}


@pytest.fixture
def plays(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "acts" / "plays.txt"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"to be")
    return path


def watched(place: Path, sha256: str) -> WatchedData:
    return WatchedData.hashed({"plays": DataIdentity(path=place, sha256=sha256, num_bytes=5, num_files=1)})


@pytest.mark.parametrize("name", CHANGES)
def test_whatever_happens_to_data_after_it_was_hashed_is_found(plays: Path, name: str) -> None:
    data = watched(plays.parents[1], digest_folder(plays.parents[1]))
    assert data.describe_changes() == ""
    change, words = CHANGES[name]
    let_a_tick_pass(plays)
    change(plays)
    assert re.search(words, data.describe_changes()), data.describe_changes()


def test_what_is_no_part_of_the_digest_is_no_change(plays: Path) -> None:
    data = watched(plays.parents[1], digest_folder(plays.parents[1]))
    lock = plays.parent / ".lock"
    lock.touch()
    lock.unlink()
    plays.read_bytes()
    assert data.describe_changes() == ""


def test_a_data_set_that_is_gone_or_was_never_there_is_said_so(plays: Path) -> None:
    data = watched(plays, files.sha256_file(plays))
    assert data.describe_changes() == ""
    plays.unlink()
    assert "data plays: [Errno 2]" in data.describe_changes()
    assert "data plays: [Errno 2]" in watched(plays, "0" * 64).describe_changes()


def test_of_many_changes_some_are_shown(plays: Path) -> None:
    data = watched(plays.parents[1], digest_folder(plays.parents[1]))
    for number in range(9):
        (plays.parent / str(number)).touch()
    assert data.describe_changes().splitlines()[5:] == ["and 4 more"]


def test_hashing_ends_when_the_job_is_told_to_stop(plays: Path) -> None:
    def stop() -> None:
        raise InterruptedAttemptError("SIGTERM")

    for path in (plays, plays.parents[1]):
        identity = DataIdentity(path=path, sha256="0" * 64, num_bytes=5, num_files=1)
        with pytest.raises(InterruptedAttemptError):
            WatchedData.hashed({"plays": identity}, stop)


CLOSING = """
def close(self):
    with open(os.environ["PLAYS"], "r+b") as stream:
        stream.write(b"to be")
"""


def test_data_that_a_side_touches_end_its_attempt_and_all_that_follow(tmp_path: Path, plays: Path) -> None:
    bench = make_bench(tmp_path, misbehaving(CLOSING, head="import os"))
    bench.data = {"plays": documents.DataIdentity(path=str(plays), sha256=files.sha256_file(plays), bytes=5, files=1)}
    bench.runnables["baseline"] = bench.runnables["baseline"].replace(environment={"PLAYS": str(plays)})
    bench.run(bench.plan(PAIR, SOLO))
    first, second = bench.receipt(PAIR), bench.receipt(SOLO)
    assert (first.ending, second.ending) == (Ending.DATA_CHANGED, Ending.DATA_CHANGED), first.reason
    assert f"the time of modification, time of status change of {plays} changed since it was hashed" in first.reason
    assert second.sides == ()
    assert bench.ended().reason == "done"
