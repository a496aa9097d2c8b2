"""What a collection reads again, and what it finds: see "What is read again" in docs/audit.md."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from acceptance import formats
from campaign import documents, files
from campaign.collection import reuse, tries
from campaign.collection.collect import Collection, collect
from campaign.collection.reuse import Care, look_at
from campaign.collection.sealed import read_unchanged
from campaign.paths import HomePaths
from campaign.record.ledger import Ledger, read_entries
from tests.support.home import CANDIDATE, SMALL, Home, attempt_all, freeze, freeze_candidate
from tests.support.large import build_large

PAIR = "candidate/pair/sync-b4/r1"
OWN = f"source_slot LIKE '{CANDIDATE}/%'"
NUM_WINDOWS = 60
"""Of each side: more rows than are stored by one statement."""


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every change be old enough, as it is in all but the seconds after it."""
    monkeypatch.setattr(reuse, "SETTLED_NS", -(1 << 60))


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Return a home that no test changes, without its candidate's attempts."""
    home = freeze(tmp_path_factory.mktemp("incremental") / "home", SMALL[:1], repeats=2, windows=NUM_WINDOWS)
    attempt_all(home, "baseline")
    freeze_candidate(home)
    return home


@pytest.fixture
def home(collected: Home, tmp_path: Path) -> Home:
    shutil.copytree(collected.paths.root, tmp_path / "home")
    return Home(paths=HomePaths(tmp_path / "home"), protocol=collected.protocol, allocations=collected.allocations)


def run(home: Home, *, care: Care = Care.STAMPS, rebuild: bool = False) -> Collection:
    with Ledger.open(home.paths, time.time) as ledger:
        return collect(home.paths, ledger, care=care, rebuild=rebuild)


def names_read(home: Home, monkeypatch: pytest.MonkeyPatch, care: Care = Care.STAMPS) -> set[str]:
    """Collect; return the names of the files below attempts/ that were read."""
    names: set[str] = set()
    read = files.read_regular

    def spy(path: Path | str) -> bytes:
        if str(path).startswith(str(home.paths.attempts)):
            names.add(Path(path).name)
        return read(path)

    with monkeypatch.context() as patched:
        patched.setattr(files, "read_regular", spy)
        assert run(home, care=care).findings == ()
    return names


def content(paths: HomePaths) -> list[str]:
    """Return all that a cache holds, but what it remembers of the file system."""
    with closing(sqlite3.connect(paths.database)) as connection:
        return sorted(line for line in connection.iterdump() if not line.startswith('INSERT INTO "stamps"'))


def change(home: Home, statement: str) -> None:
    with closing(sqlite3.connect(home.paths.database)) as connection:
        assert connection.execute(statement).rowcount != 0
        connection.commit()


def flip(path: Path) -> None:
    """Change the last digit of a file in place: its size and inode stay."""
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(bytes(data))


def test_what_did_not_change_is_not_read_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt_all(home, "candidate")
    assert {"windows.csv", "pairs.csv", "harness.log"} <= names_read(home, monkeypatch)
    assert names_read(home, monkeypatch) == {"receipt.json", "start.json"}


def test_an_incremental_collection_gives_what_one_from_the_start_gives(home: Home) -> None:
    run(home)
    slots = [slot for slot in home.protocol.slots if slot.side == "candidate"]
    for slot in slots[:2]:
        home.attempt(slot)
    run(home)
    for slot in slots[2:]:
        home.attempt(slot)
    grown = run(home)
    found = content(home.paths)
    again = run(home, rebuild=True)
    assert (found, grown.rows_sha256, grown.rows) == (content(home.paths), again.rows_sha256, again.rows)
    assert grown.receipts == again.receipts
    assert grown.records[0].row == again.records[0].row


def test_many_rows_are_stored_with_the_values_that_their_texts_have(home: Home) -> None:
    home.attempt(home.slot(PAIR))
    run(home)
    data = home.folder(PAIR).table("windows.csv").read_bytes()
    rows, _ = formats.parse_table(formats.WINDOWS, data, "windows.csv")
    names = ", ".join(formats.WINDOWS.header)
    with closing(sqlite3.connect(home.paths.database)) as connection:
        found = connection.execute(f"SELECT line, {names}, raw FROM windows WHERE {OWN} ORDER BY line").fetchall()  # noqa: S608 - of ours
    assert len(found) == 2 * NUM_WINDOWS
    assert found == [(row.line, *row.values.values(), row.raw) for row in rows]


def test_a_byte_that_changed_is_found(home: Home) -> None:
    home.attempt(home.slot(PAIR))
    run(home)
    flip(home.folder(PAIR).table("windows.csv"))
    (finding,) = run(home).findings
    assert "changed after it was sealed" in finding.what


def test_a_byte_that_changed_is_found_although_the_time_was_put_back(home: Home) -> None:
    home.attempt(home.slot(PAIR))
    run(home)
    path = home.folder(PAIR).table("windows.csv")
    before = path.stat()
    flip(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    (finding,) = run(home).findings
    assert "changed after it was sealed" in finding.what


@pytest.mark.parametrize("name", ["allocation.json", "started.json"])
def test_a_changed_document_of_the_allocation_is_found(home: Home, name: str) -> None:
    allocation = home.attempt(home.slot(PAIR))
    run(home)
    path = home.paths.allocation(allocation).root / name
    path.write_bytes(path.read_bytes().replace(allocation.encode(), b"a9999"))
    (finding,) = run(home).findings
    assert str(path) in finding.where


def test_what_hides_from_the_file_system_is_found_by_every_byte(home: Home) -> None:
    allocation = home.attempt(home.slot(PAIR))
    run(home)
    flip(home.folder(PAIR).table("windows.csv"))
    stamp = look_at(home.folder(PAIR), home.paths.allocation(allocation)).stamp
    change(home, f"UPDATE stamps SET stamp = '{stamp}' WHERE slot LIKE '{CANDIDATE}/%'")  # noqa: S608 - of our own
    assert run(home).findings == ()
    for found in (run(home, care=Care.BYTES), run(home, rebuild=True)):
        (finding,) = found.findings
        assert "changed after it was sealed" in finding.what


def test_every_byte_is_read_where_that_is_asked_for(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.attempt(home.slot(PAIR))
    run(home)
    with monkeypatch.context() as patched:
        patched.setattr(formats, "parse_rows", None)  # what the cache holds is not parsed again
        assert {"windows.csv", "harness.log"} <= names_read(home, monkeypatch, Care.BYTES)


def test_what_changed_just_before_a_collection_is_read_by_the_next(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.attempt(home.slot(PAIR))
    with monkeypatch.context() as patched:
        patched.setattr(reuse, "SETTLED_NS", 1 << 60)
        run(home)
    assert "windows.csv" in names_read(home, monkeypatch)
    assert "windows.csv" not in names_read(home, monkeypatch)


def test_a_home_that_was_copied_is_read_again(home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home.attempt(home.slot(PAIR))
    run(home)
    shutil.copytree(home.paths.root, tmp_path / "copy")
    copy = Home(paths=HomePaths(tmp_path / "copy"), protocol=home.protocol)
    assert "windows.csv" in names_read(copy, monkeypatch)


def test_nothing_is_remembered_from_a_cache_that_the_ledger_does_not_vouch_for(home: Home) -> None:
    home.attempt(home.slot(PAIR))
    run(home)
    change(home, f"UPDATE windows SET raw = replace(raw, '640', '641') WHERE line = 2 AND {OWN}")  # noqa: S608 - of ours
    (finding,) = run(home).findings
    assert "the cache holds other lines than the sealed files" in finding.what


def test_rows_of_no_attempt_in_the_cache_are_found(home: Home) -> None:
    home.attempt(home.slot(PAIR))
    run(home)
    columns = ", ".join(("source_attempt", "line", *formats.WINDOWS.header, "raw"))
    change(home, f"INSERT INTO windows SELECT 'nobody/pair', {columns} FROM windows WHERE line = 2 AND {OWN}")  # noqa: S608 - of ours
    (finding,) = run(home).findings
    assert "1 rows of attempts that it does not hold" in finding.what


def test_nothing_is_remembered_from_a_cache_with_rows_of_no_attempt(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.attempt(home.slot(PAIR))
    run(home)
    columns = ", ".join(("source_attempt", "line", *formats.WINDOWS.header, "raw"))
    change(home, f"INSERT INTO windows SELECT 'nobody/pair', {columns} FROM windows WHERE line = 2 AND {OWN}")  # noqa: S608 - of ours
    monkeypatch.setattr(tries, "read_unchanged", None)  # would be called for what is remembered
    assert len(run(home).findings) == 1


def test_what_is_not_read_again_is_held_to_the_receipt_that_was_collected(home: Home) -> None:
    home.attempt(home.slot(PAIR))
    folder = home.folder(PAIR)
    folder.inputs.write_bytes(b"[]")
    sealed = documents.SealedFile(name=folder.inputs.name, bytes=2, sha256=files.sha256_bytes(b"[]"), rows=None)
    receipt = documents.Receipt.read(folder.receipt)
    folder.receipt.write_bytes(receipt.replace(files=(*receipt.files, sealed)).to_bytes())
    known = files.sha256_file(folder.receipt)
    found = read_unchanged(folder, known)
    assert found is not None
    assert (found.kept, found.is_stored) == ({folder.inputs.name: b"[]"}, True)
    for path in (folder.receipt, folder.start, folder.inputs):
        data = path.read_bytes()
        path.write_bytes(data + b" ")
        assert read_unchanged(folder, known) is None
        path.unlink()
        assert read_unchanged(folder, known) is None
        path.write_bytes(data)
    assert read_unchanged(folder, known) is not None


def test_a_file_that_is_added_or_removed_is_found(home: Home) -> None:
    home.attempt(home.slot(PAIR))
    run(home)
    added = home.folder(PAIR).root / "more.csv"
    added.write_bytes(b"")
    assert "added later" in run(home).findings[0].what
    added.unlink()
    assert run(home).findings == ()
    (home.folder(PAIR).root / "harness.log").unlink()
    assert "sealed by the receipt" in run(home).findings[0].what


@pytest.mark.slow
def test_ten_thousand_attempts_with_a_million_rows_give_the_same_incrementally(tmp_path: Path) -> None:
    made = build_large(tmp_path / "home", 10_000, windows=134, last="")
    first = run(made)
    assert (first.attempts, first.findings) == (10_000, ())
    assert first.rows > 1_000_000
    num_acts = len(read_entries(made.paths))
    second = run(made)
    assert (second.rows_sha256, second.receipts, second.findings) == (first.rows_sha256, first.receipts, ())
    assert len(read_entries(made.paths)) == num_acts
    path = made.folder("candidate/pair/w00700-b4/r2").table("windows.csv")
    flip(path)
    (finding,) = run(made).findings
    assert str(path) in finding.where
