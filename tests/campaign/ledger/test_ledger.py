from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign import documents, files
from campaign.errors import EvidenceError, InfrastructureError, StateError
from campaign.paths import HomePaths
from campaign.record import ledger, lock
from campaign.record.ledger import Ledger, parse_entries, read_entries, unlock
from campaign.watching import processes
from tests.support.refusing import refuse


def clock() -> float:
    return 1000.5


@pytest.fixture
def home(tmp_path: Path) -> HomePaths:
    return HomePaths(tmp_path)


def fill(home: HomePaths, number: int = 3) -> None:
    with Ledger.open(home, clock) as opened:
        for index in range(number):
            opened.append("collected", {"n": index})


def dead_owner(**changes: object) -> lock.Owner:
    """Return an owner on this host whose process is gone."""
    machine = processes.read_machine()
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    values = {
        "host": machine.host,
        "boot_id": machine.boot_id,
        "pid_namespace": lock.read_pid_namespace(),
        "pid": done.pid,
        "process_start": 1,
        "nonce": "0" * 16,
    }
    return lock.Owner.of({**values, **changes})


# --- the chain --------------------------------------------------------------------------------------------------------


def test_entries_are_chained_and_read_back(home: HomePaths) -> None:
    fill(home)
    lines = home.ledger.read_bytes().split(b"\n")
    entries = read_entries(home)
    assert [entry.seq for entry in entries] == [1, 2, 3]
    assert [entry.previous for entry in entries] == [
        "0" * 64,
        files.sha256_bytes(lines[0]),
        files.sha256_bytes(lines[1]),
    ]
    assert [entry.at for entry in entries] == [1000.5] * 3
    assert [entry.data for entry in entries] == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_a_reopened_ledger_goes_on_where_it_ended(home: HomePaths) -> None:
    fill(home, 2)
    fill(home, 2)
    with Ledger.open(home, clock) as opened:
        assert [entry.seq for entry in opened.entries] == [1, 2, 3, 4]
        assert opened.head == ledger.head(home.ledger.read_bytes())


def test_a_home_without_a_ledger_has_no_entries(home: HomePaths) -> None:
    assert read_entries(home) == []


def test_the_documented_line_is_what_is_written(home: HomePaths) -> None:
    fill(home, 1)
    line = home.ledger.read_text()
    assert line == f'{{"act":"collected","at":1000.5,"data":{{"n":0}},"previous":"{"0" * 64}","seq":1}}\n'


def _lines(home: HomePaths) -> list[bytes]:
    return home.ledger.read_bytes().splitlines(keepends=True)


TAMPERING: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "a value changed": lambda lines: [lines[0].replace(b'"n":0', b'"n":9'), *lines[1:]],
    "a line removed": lambda lines: [lines[0], lines[2]],
    "the first line removed": lambda lines: lines[1:],
    "lines swapped": lambda lines: [lines[1], lines[0], lines[2]],
    "a line doubled": lambda lines: [*lines, lines[2]],
    "rubbish": lambda lines: [lines[0], b"rubbish\n", *lines[1:]],
    "an empty line": lambda lines: [lines[0], b"\n", *lines[1:]],
    "an unknown act": lambda lines: [*lines[:2], lines[2].replace(b"collected", b"forgotten")],
    "a key twice": lambda lines: [*lines[:2], lines[2].replace(b'"seq":3', b'"seq":3,"seq":3')],
    "a blank added": lambda lines: [lines[0].replace(b'":0', b'": 0'), *lines[1:]],
    "not a number": lambda lines: [*lines[:2], lines[2].replace(b"1000.5", b"NaN")],
}


@pytest.mark.parametrize("tampering", TAMPERING)
def test_a_changed_chain_is_refused_with_its_line(home: HomePaths, tampering: str) -> None:
    fill(home)
    home.ledger.write_bytes(b"".join(TAMPERING[tampering](_lines(home))))
    with pytest.raises(EvidenceError) as caught:
        read_entries(home)
    assert caught.value.where.startswith(f"{home.ledger}:")
    with pytest.raises(EvidenceError):
        Ledger.open(home, clock)
    assert not home.lock.exists()


@given(st.integers(min_value=0), st.integers(min_value=1, max_value=255))
def test_no_changed_byte_goes_unnoticed_but_in_the_last_line(position: int, flip: int) -> None:
    """The last line is vouched for by what a head kept elsewhere says, and by nothing in the file."""
    data = b""
    for seq in (1, 2):
        entry = documents.Entry(seq=seq, previous=ledger.head(data), at=1.0, act="collected", data={"n": seq})
        data += ledger.encode_entry(entry) + b"\n"
    first_line = data.index(b"\n")
    place = position % (first_line + 1)
    changed = data[:place] + bytes([data[place] ^ flip]) + data[place + 1 :]
    with pytest.raises(EvidenceError):
        parse_entries(changed, where="ledger.jsonl")


# --- a torn last line -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("torn", [b'{"act":"coll', b"\0\0\0\0", b"}"])
def test_a_torn_last_line_is_set_aside_and_named(home: HomePaths, torn: bytes) -> None:
    fill(home, 2)
    whole = home.ledger.read_bytes()
    home.ledger.write_bytes(whole + torn)
    assert [entry.seq for entry in read_entries(home)] == [1, 2]
    with Ledger.open(home, clock) as opened:
        opened.append("collected", {})
    assert home.torn(1).read_bytes() == torn
    entries = read_entries(home)
    assert [entry.act for entry in entries] == ["collected", "collected", "torn_line", "collected"]
    assert entries[2].data == {"file": "ledger.torn.1", "bytes": len(torn), "sha256": files.sha256_bytes(torn)}
    assert home.ledger.read_bytes().startswith(whole)


def test_a_second_torn_line_does_not_overwrite_the_first(home: HomePaths) -> None:
    for torn in (b"first", b"second"):
        with home.ledger.open("ab") as stream:
            stream.write(torn)
        fill(home, 1)
    assert (home.torn(1).read_bytes(), home.torn(2).read_bytes()) == (b"first", b"second")


# --- writing ----------------------------------------------------------------------------------------------------------


def test_a_second_writer_is_refused_while_the_first_one_lives(home: HomePaths) -> None:
    with Ledger.open(home, clock), pytest.raises(StateError, match=f"locked by process {os.getpid()}") as caught:
        Ledger.open(home, clock)
    assert "campaign unlock" in caught.value.hint
    assert not home.lock.exists()


def test_a_foreign_line_under_the_lock_is_noticed(home: HomePaths) -> None:
    with Ledger.open(home, clock) as opened:
        opened.append("collected", {})
        with home.ledger.open("ab") as stream:
            stream.write(b"foreign\n")
        with pytest.raises(EvidenceError, match="somebody else wrote"):
            opened.append("collected", {})


def test_nothing_is_written_once_the_lock_is_gone(home: HomePaths) -> None:
    with Ledger.open(home, clock) as opened:
        home.lock.unlink()
        with pytest.raises(StateError, match="removed while it was held"):
            opened.append("collected", {})
    assert not home.ledger.exists()


def test_a_lock_of_somebody_else_is_not_removed_on_leaving(home: HomePaths) -> None:
    with Ledger.open(home, clock):
        home.lock.unlink()
        home.lock.write_bytes(dead_owner().to_bytes())
    assert home.lock.exists()


def test_a_full_disk_leaves_the_chain_as_it_was(home: HomePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(home, 1)
    before = home.ledger.read_bytes()
    write = os.write
    with Ledger.open(home, clock) as opened:
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
            with pytest.raises(InfrastructureError, match="only a part"):
                opened.append("collected", {})
        assert home.ledger.read_bytes() == before
        opened.append("collected", {})
    assert len(read_entries(home)) == 2


def test_a_ledger_that_is_a_link_is_not_followed(home: HomePaths, tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"")
    home.ledger.symlink_to(tmp_path / "victim")
    with pytest.raises(EvidenceError, match="not a regular file"):
        Ledger.open(home, clock)
    home.ledger.unlink()
    with Ledger.open(home, clock) as opened:
        home.ledger.symlink_to(tmp_path / "victim")
        with pytest.raises(InfrastructureError):
            opened.append("collected", {})
    assert (tmp_path / "victim").read_bytes() == b""


# --- the lock ---------------------------------------------------------------------------------------------------------


def test_the_lock_of_a_dead_process_is_taken_over_and_recorded(home: HomePaths) -> None:
    owner = dead_owner()
    home.lock.write_bytes(owner.to_bytes())
    fill(home, 1)
    entries = read_entries(home)
    assert [entry.act for entry in entries] == ["lock_taken_over", "collected"]
    assert entries[0].data == {"owner": owner.to_json()}
    assert not home.lock.exists()


def test_a_killed_writer_is_taken_over(home: HomePaths) -> None:
    code = (
        "import os, sys, time; from pathlib import Path; from campaign.record.ledger import Ledger; "
        "from campaign.paths import HomePaths; ledger = Ledger.open(HomePaths(Path(sys.argv[1])), time.time); "
        "ledger.append('collected', {}); os.kill(os.getpid(), 9)"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code, str(home.root)], cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, check=False
    )
    assert done.returncode == -9
    assert home.lock.exists()
    fill(home, 1)
    assert [entry.act for entry in read_entries(home)] == ["collected", "lock_taken_over", "collected"]


def test_a_number_that_another_process_has_now_is_not_the_owner(home: HomePaths) -> None:
    start = processes.read_start(os.getpid())
    assert start is not None
    home.lock.write_bytes(dead_owner(pid=os.getpid(), process_start=start - 1).to_bytes())
    fill(home, 1)
    assert read_entries(home)[0].act == "lock_taken_over"


@pytest.mark.parametrize("changes", [{"host": "elsewhere"}, {"boot_id": "another"}, {"pid_namespace": "pid:[1]"}])
def test_a_lock_from_another_host_boot_or_container_stays(home: HomePaths, changes: dict[str, object]) -> None:
    home.lock.write_bytes(dead_owner(**changes).to_bytes())
    with pytest.raises(StateError, match="the ledger is locked by") as caught:
        Ledger.open(home, clock)
    assert "campaign unlock" in caught.value.hint
    assert home.lock.exists()


def test_a_lock_that_does_not_say_whose_it_is_stays(home: HomePaths) -> None:
    home.lock.write_bytes(b"rubbish")
    with pytest.raises(StateError, match="does not say whose it is"):
        Ledger.open(home, clock)
    assert home.lock.exists()


def test_two_processes_cannot_both_take_over(home: HomePaths) -> None:
    """The second one to look finds the first one's guard on the stale lock."""
    home.lock.write_bytes(dead_owner().to_bytes())
    with lock._guarded(home.lock), pytest.raises(StateError, match="the ledger is locked"):
        Ledger.open(home, clock)
    assert home.lock.exists()


def test_unlock_removes_a_foreign_lock_and_records_who_and_why(home: HomePaths) -> None:
    owner = dead_owner(host="node17")
    home.lock.write_bytes(owner.to_bytes())
    assert unlock(home, clock, " node17 was reinstalled ") == owner
    (entry,) = read_entries(home)
    assert (entry.act, entry.data) == ("unlocked", {"owner": owner.to_json(), "reason": "node17 was reinstalled"})
    assert not home.lock.exists()


def test_unlock_does_not_remove_the_lock_of_a_living_process(home: HomePaths) -> None:
    with Ledger.open(home, clock), pytest.raises(StateError, match="is alive"):
        unlock(home, clock, "impatience")


def test_unlock_without_a_lock_records_nothing(home: HomePaths) -> None:
    assert unlock(home, clock, "to be sure") is None
    assert not home.ledger.exists()


def test_unlock_wants_a_reason(home: HomePaths) -> None:
    home.lock.write_bytes(dead_owner(host="node17").to_bytes())
    with pytest.raises(StateError, match="no reason"):
        unlock(home, clock, "  ")
    assert home.lock.exists()


def test_the_lock_names_this_process(home: HomePaths) -> None:
    with Ledger.open(home, clock):
        assert json.loads(home.lock.read_bytes())["pid"] == os.getpid()


# --- what a machine refuses -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_home_that_cannot_be_written_is_no_crash(
    home: HomePaths, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    fill(home, 1)
    before = sorted(home.root.iterdir())
    with monkeypatch.context() as patched:
        refuse(patched, "fsync", number)
        with pytest.raises(InfrastructureError, match=os.strerror(number)) as caught:
            Ledger.open(home, clock)
    assert caught.value.where == str(home.lock)
    assert sorted(home.root.iterdir()) == before


def test_an_act_that_was_not_made_durable_did_not_happen(home: HomePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(home, 1)
    before = home.ledger.read_bytes()
    with Ledger.open(home, clock) as opened:
        with monkeypatch.context() as patched:
            refuse(patched, "fsync", errno.ENOSPC)
            with pytest.raises(InfrastructureError, match="No space left") as caught:
                opened.append("collected", {})
        assert "free some space" in caught.value.hint
        assert home.ledger.read_bytes() == before
        opened.append("collected", {})
    assert len(read_entries(home)) == 2


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_a_ledger_or_a_lock_that_is_no_file_is_refused_at_once(tmp_path: Path, make: Callable[[Path], None]) -> None:
    first, second = HomePaths(tmp_path / "first"), HomePaths(tmp_path / "second")
    for paths in (first, second):
        paths.root.mkdir()
    make(first.ledger)
    with pytest.raises(EvidenceError, match="not a regular file"):
        read_entries(first)
    with pytest.raises(EvidenceError, match="not a regular file"):
        Ledger.open(first, clock)
    assert not first.lock.exists()
    make(second.lock)
    with pytest.raises(StateError, match="does not say whose it is"):
        Ledger.open(second, clock)
