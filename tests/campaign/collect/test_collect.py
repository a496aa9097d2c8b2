from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acceptance.formats import Ending
from campaign import documents, files
from campaign.collection.collect import Collection, collect, require_intact
from campaign.collection.sealed import TamperedError
from campaign.errors import EvidenceError, ExitCode, StateError
from campaign.record.ledger import Ledger
from tests.support.home import SMALL, Home, build_home, freeze, freeze_candidate
from tests.support.refusing import forbid

PAIR = "candidate/pair/sync-b4/r1"
SOLO = "baseline/solo/sync-b4/r1"
Edit = Callable[[bytes], bytes]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return build_home(tmp_path / "home", SMALL[:2], repeats=2)


def run(home: Home, *, rebuild: bool = False) -> Collection:
    with Ledger.open(home.paths, time.time) as ledger:
        return collect(home.paths, ledger, rebuild=rebuild)


def dump(home: Home) -> list[str]:
    connection = sqlite3.connect(home.paths.database)
    try:
        # What the file system said of files is remembered once they are some seconds old.
        return sorted(line for line in connection.iterdump() if not line.startswith('INSERT INTO "stamps"'))
    finally:
        connection.close()


def query(home: Home, text: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(home.paths.database)
    try:
        found = connection.execute(text).fetchall()
        connection.commit()
        return found
    finally:
        connection.close()


def stored_slots(home: Home) -> set[object]:
    return {row[0] for row in query(home, "SELECT slot FROM attempts")}


def messages(collection: Collection) -> str:
    return "\n".join(map(str, collection.findings))


# --- what is taken ----------------------------------------------------------------------------------------------------


def test_every_sealed_attempt_is_taken_with_its_rows(home: Home) -> None:
    collection = run(home)
    num_slots = len(home.protocol.slots)
    assert collection.findings == ()
    assert (collection.attempts, collection.sealed, collection.running) == (num_slots, num_slots, 0)
    num_pairs = sum(slot.kind in ("pair", "control_pair") for slot in home.protocol.slots)
    assert query(home, "SELECT count(*) FROM pairs") == [(2 * num_pairs,)]
    assert query(home, "SELECT count(*) FROM windows") == [(2 * 5 * num_pairs,)]


def test_the_raw_line_stands_beside_its_typed_columns(home: Home) -> None:
    run(home)
    (raw, train_s), *_ = query(home, "SELECT raw, train_s FROM baseline ORDER BY source_slot")
    lines = home.folder("baseline/solo/packed-b4/r1").table("baseline.csv").read_text().splitlines()
    assert raw == lines[1]
    assert train_s == 12.5


def test_collecting_twice_changes_nothing(home: Home) -> None:
    run(home)
    database, ledger = dump(home), home.paths.ledger.read_bytes()
    again = run(home)
    assert again.findings == ()
    assert dump(home) == database
    assert home.paths.ledger.read_bytes() == ledger


def test_a_rebuilt_cache_holds_the_same(home: Home) -> None:
    # Collected in two steps, so that the order of insertion differs from the rebuilt one's.
    receipt = home.folder("baseline/pilot/packed-b4").receipt
    kept = receipt.read_bytes()
    receipt.unlink()
    run(home)
    receipt.write_bytes(kept)
    run(home)
    before = dump(home)
    run(home, rebuild=True)
    assert dump(home) == before
    assert not home.paths.rebuilt_database.exists()


def test_the_ledger_names_each_receipt_once(home: Home) -> None:
    collection = run(home)
    home.attempt(home.slot(PAIR), 2)
    run(home)
    acts = [documents.Entry.parse(line, where="ledger") for line in home.paths.ledger.read_bytes().splitlines()]
    first, second = [entry.data for entry in acts if entry.act == "collected"]
    assert first["receipts"] == collection.receipts
    assert list(second["receipts"]) == [f"{home.real_slot(PAIR)}/2"]
    assert first["rows_sha256"] != second["rows_sha256"]


def test_a_collection_killed_before_its_act_is_completed_by_the_next(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "append", killed)
        with pytest.raises(KeyboardInterrupt):
            run(home)
    before = dump(home)
    collection = run(home)
    assert dump(home) == before
    entries = [documents.Entry.parse(line, where="ledger") for line in home.paths.ledger.read_bytes().splitlines()]
    assert [entry.data["receipts"] for entry in entries if entry.act == "collected"] == [collection.receipts]


def test_what_a_killed_rebuild_left_is_no_part_of_the_next(home: Home) -> None:
    run(home)
    before = dump(home)
    home.paths.rebuilt_database.write_bytes(b"half a cache")
    assert run(home, rebuild=True).findings == ()
    assert dump(home) == before


def test_an_unreadable_cache_can_be_rebuilt(home: Home) -> None:
    run(home)
    before = dump(home)
    home.paths.database.write_bytes(b"not a database at all" * 300)
    with pytest.raises(StateError) as caught:
        run(home)
    assert caught.value.hint == "campaign collect --rebuild"
    run(home, rebuild=True)
    assert dump(home) == before


def test_a_half_written_attempt_stays_out_until_its_receipt_is_there(home: Home) -> None:
    receipt = home.folder(PAIR).receipt
    kept = receipt.read_bytes()
    receipt.unlink()
    (home.folder(PAIR).root / "pairs.csv").write_bytes(b"workload,comp")
    collection = run(home)
    assert (collection.findings, collection.running) == ((), 1)
    assert home.real_slot(PAIR) not in stored_slots(home)
    home.tables(home.slot(PAIR), 1, "x")
    (home.folder(PAIR).root / "pairs.csv").write_bytes(_original_pairs(home, kept))
    receipt.write_bytes(kept)
    collection = run(home)
    assert (collection.findings, collection.running) == ((), 0)
    assert home.real_slot(PAIR) in stored_slots(home)


def _original_pairs(home: Home, receipt: bytes) -> bytes:
    allocation = documents.Receipt.parse(receipt, where="receipt").allocation
    return home.tables(home.slot(PAIR), 1, allocation)["pairs.csv"]


def test_a_temporary_file_of_a_killed_writer_is_neither_evidence_nor_a_finding(home: Home) -> None:
    (home.folder(PAIR).root / ".receipt.json.77.ab12.tmp").write_bytes(b"{")
    assert run(home).findings == ()


def test_an_attempt_without_a_receipt_takes_its_ending_from_the_ledger(home: Home) -> None:
    slot = home.slot(PAIR)
    lost = home.plan(slot, 2)
    home.end(slot, 2, lost, Ending.LOST)
    died = home.plan(slot, 3)
    home.start(slot, 3, died)
    home.end(slot, 3, died, Ending.NODE_FAIL)
    run(home)
    found = query(home, "SELECT attempt, ending, node, sealed FROM attempts WHERE attempt > 1 ORDER BY attempt")
    assert found == [(2, "lost", "", 0), (3, "node_fail", "node1", 0)]


def test_a_receipt_that_arrives_late_takes_the_place_of_the_schedulers_word(home: Home) -> None:
    slot = home.slot(PAIR)
    allocation = home.plan(slot, 2)
    home.end(slot, 2, allocation, Ending.LOST)
    run(home)
    home.start(slot, 2, allocation)
    home.seal(slot, 2, allocation, ending=Ending.CRASH)
    assert run(home).findings == ()
    assert query(home, "SELECT ending, sealed FROM attempts WHERE attempt = 2") == [("crash", 1)]


def test_an_attempt_without_any_ending_is_counted_as_running(tmp_path: Path) -> None:
    home = freeze(tmp_path / "home")
    home.plan(home.slot(SOLO))
    collection = run(home)
    assert (collection.attempts, collection.running) == (0, 1)


# --- what is refused --------------------------------------------------------------------------------------------------


def _flip(data: bytes) -> bytes:
    return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]


def _swap_sides(data: bytes) -> bytes:
    return data.replace(b",baseline,", b",\0,").replace(b",candidate,", b",baseline,").replace(b",\0,", b",candidate,")


CHANGES: dict[str, Edit] = {
    "a flipped bit": _flip,
    "a deleted row": lambda data: data[: data.rstrip(b"\n").rindex(b"\n") + 1],
    "an added row": lambda data: data + data.splitlines(keepends=True)[-1].replace(b"10,", b"11,", 1),
    "a duplicated row": lambda data: data + data.splitlines(keepends=True)[-1],
    "swapped sides": _swap_sides,
    "a truncated last line": lambda data: data[:-2],
    "nothing left": lambda _data: b"",
}


@pytest.mark.parametrize("edit", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("file", ["pairs.csv", "windows.csv"])
def test_a_table_changed_after_sealing_is_found_and_the_rest_is_taken(home: Home, file: str, edit: Edit) -> None:
    path = home.folder(PAIR).table(file)
    stat = path.stat()
    path.write_bytes(edit(path.read_bytes()))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    collection = run(home)
    (finding,) = collection.findings
    assert finding.where == str(path)
    assert "changed after it was sealed" in finding.what
    assert stored_slots(home) == {home.real_slot(slot.slot) for slot in home.protocol.slots} - {home.real_slot(PAIR)}
    for table in ("pairs", "windows", "files", "receipts"):
        column = "slot" if table in ("files", "receipts") else "source_slot"
        assert query(home, f"SELECT count(*) FROM {table} WHERE {column} = '{home.real_slot(PAIR)}'") == [(0,)]  # noqa: S608 - names of our own


SYNTAX: dict[str, tuple[Edit, str]] = {
    "NaN": (lambda data: data.replace(b",0.5,", b",NaN,", 1), ":2: startup_s: 'NaN'"),
    "infinity": (lambda data: data.replace(b",0.5,", b",inf,", 1), ":2: startup_s: 'inf'"),
    "a separator": (lambda data: data.replace(b",3200,", b",3_200,", 1), ":2: tokens: '3_200'"),
    "a truncated last line": (lambda data: data[:-1], ":3: the last line does not end with a newline"),
    "an extra column": (lambda data: data.replace(b",0.5,", b",0.5,1,", 1), ":2: 22 fields where 21"),
    "a foreign byte": (lambda data: data.replace(b"node1", b"node\xff", 1), ":2: byte 0xff is not UTF-8"),
    "another header": (lambda data: data.replace(b"workload,", b"Workload,", 1), ":1: the header is not"),
    "carriage returns": (lambda data: data.replace(b"\n", b"\r\n"), ":1: the header is not"),
    "a quoted field": (lambda data: data.replace(b"node1", b'"node1"', 1), ":2: node: "),
}


@pytest.mark.parametrize(("edit", "said"), SYNTAX.values(), ids=SYNTAX)
def test_a_sealed_table_that_does_not_parse_is_named_by_file_and_line(home: Home, edit: Edit, said: str) -> None:
    home.reseal(PAIR, "pairs.csv", edit)
    collection = run(home)
    assert f"{home.folder(PAIR).table('pairs.csv')}{said}" in messages(collection)
    assert home.real_slot(PAIR) not in stored_slots(home)
    with pytest.raises(TamperedError) as caught:
        require_intact(collection)
    assert caught.value.exit_code is ExitCode.TAMPERED


def test_all_findings_of_all_attempts_are_listed(home: Home) -> None:
    for slot, file in ((PAIR, "pairs.csv"), (SOLO, "baseline.csv")):
        path = home.folder(slot).table(file)
        path.write_bytes(path.read_bytes() + b"x")
    (home.folder(PAIR).root / "harness.log").unlink()
    with pytest.raises(TamperedError) as caught:
        require_intact(run(home))
    text = "\n".join(caught.value.lines())
    assert len(caught.value.findings) == 3
    assert all(name in text for name in ("pairs.csv", "baseline.csv", "harness.log"))


def test_a_file_added_after_sealing_is_found(home: Home) -> None:
    (home.folder(PAIR).root / "extra.csv").write_bytes(b"1\n")
    assert "extra.csv: not sealed by the receipt" in messages(run(home))


def test_a_link_in_place_of_a_sealed_file_is_found(home: Home, tmp_path: Path) -> None:
    path = home.folder(PAIR).table("pairs.csv")
    shutil.move(path, tmp_path / "pairs.csv")
    path.symlink_to(tmp_path / "pairs.csv")
    assert "pairs.csv: sealed by the receipt, but" in messages(run(home))


def test_a_changed_start_record_is_found(home: Home) -> None:
    path = home.folder(PAIR).start
    path.write_bytes(path.read_bytes().replace(b'"node1"', b'"node2"'))
    assert "start_sha256" in messages(run(home))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b'"boot_id": "0000"', b'"boot_id": "1111"', "boot_id is '1111'"),
        (b'"job_id": "1"', b'"job_id": "2"', "job is {"),
        (b'"scheduler": "local"', b'"scheduler": "slurm"', "job is {"),
        (b'"allocation": "a', b'"allocation": "b', "allocation is 'b"),
    ],
)
@pytest.mark.parametrize("is_sealed", [True, False])
def test_an_attempt_of_another_job_than_the_one_that_began_its_allocation_is_found(
    home: Home, old: bytes, new: bytes, said: str, is_sealed: bool
) -> None:
    slot = home.slot(PAIR)
    allocation = home.plan(slot, 2)
    if is_sealed:
        home.run(slot, 2, allocation)
    else:
        home.start(slot, 2, allocation)
        home.end(slot, 2, allocation, Ending.LOST)
    assert run(home).findings == ()
    started = home.paths.allocation(allocation).started
    data = started.read_bytes()
    assert old in data
    started.write_bytes(data.replace(old, new))
    (finding,) = run(home).findings
    assert finding.where == str(started)
    assert said in finding.what
    assert f"start.json of {home.real_slot(PAIR)} attempt 2 says" in finding.what


def test_an_attempt_whose_allocation_nobody_began_is_found(home: Home) -> None:
    allocation = home.attempt(home.slot(PAIR), 2)
    started = home.paths.allocation(allocation).started
    started.unlink()
    (finding,) = run(home).findings
    assert (finding.where, finding.what) == (str(started), "cannot be read: No such file or directory")


def test_a_receipt_that_seals_a_file_elsewhere_is_refused(home: Home) -> None:
    path = home.folder(PAIR).receipt
    path.write_bytes(path.read_bytes().replace(b'"harness.log"', b'"../../r2/1/harness.log"'))
    assert "is not the name of a file here" in messages(run(home))


def test_a_receipt_whose_row_count_differs_from_the_table_is_refused(home: Home) -> None:
    path = home.folder(PAIR).receipt
    path.write_bytes(path.read_bytes().replace(b'"rows": 10', b'"rows": 11'))
    assert "10 rows, the receipt says 11" in messages(run(home))


def test_an_attempt_copied_from_another_slot_is_refused(home: Home) -> None:
    other = home.folder("candidate/pair/sync-b4/r2").root
    shutil.rmtree(other)
    shutil.copytree(home.folder(PAIR).root, other)
    text = messages(run(home))
    assert (
        f"slot is '{home.real_slot(PAIR)}' where the plan says '{home.real_slot('candidate/pair/sync-b4/r2')}'" in text
    )


def test_an_attempt_that_no_intent_names_is_refused(home: Home) -> None:
    shutil.copytree(home.folder(PAIR).root, home.folder(PAIR, 2).root)
    assert f"{home.folder(PAIR, 2).root}: no intent of the ledger names it" in messages(run(home))


def test_an_attempt_that_ran_another_snapshot_is_refused(home: Home) -> None:
    slot = home.slot(PAIR)
    allocation = home.plan(slot, 2)
    home.snapshot_sha256 = "e" * 64
    home.start(slot, 2, allocation)
    home.seal(slot, 2, allocation)
    assert f"the snapshot of candidate is {'e' * 64}" in messages(run(home))


def test_a_plan_changed_after_the_intent_is_refused(home: Home) -> None:
    receipt = documents.Receipt.read(home.folder(PAIR).receipt)
    path = home.paths.allocation(receipt.allocation).plan
    path.write_bytes(path.read_bytes().replace(b'"updates": 10', b'"updates": 99'))
    assert "changed after it was intended" in messages(run(home))


def test_a_slot_outside_the_protocol_is_refused(home: Home) -> None:
    home.attempt(home.slot(PAIR).replace(slot="candidate/pair/sync-b4/r9"))
    assert "is not a slot of the protocol" in messages(run(home))


def test_another_protocol_than_the_frozen_one_is_refused(home: Home) -> None:
    path = home.paths.protocol
    path.write_bytes(path.read_bytes().replace(b'"1.05"', b'"1.01"'))
    with pytest.raises(EvidenceError, match="not the protocol that was frozen"):
        run(home)


# --- what changes between two collections -----------------------------------------------------------------------------


@pytest.mark.parametrize("rebuild", [False, True])
def test_another_receipt_for_a_collected_attempt_is_a_conflict_that_names_both(home: Home, *, rebuild: bool) -> None:
    run(home)
    path = home.folder(PAIR).receipt
    before = home.paths.ledger.read_text()
    home.ratio = lambda _workload, _repeat: 2.0
    allocation = documents.Receipt.read(path).allocation
    tables = home.tables(home.slot(PAIR), 1, allocation)
    for name, data in tables.items():
        home.folder(PAIR).table(name).write_bytes(data)
    home.seal(home.slot(PAIR), 1, allocation)
    collection = run(home, rebuild=rebuild)
    (finding,) = collection.findings
    assert finding.where == str(path)
    old, new = finding.what.split()[4].strip(","), finding.what.split()[-1]
    assert old in before
    assert new == files.sha256_file(path)


@pytest.mark.parametrize("rebuild", [False, True])
def test_a_collected_attempt_that_vanished_is_found(home: Home, *, rebuild: bool) -> None:
    run(home)
    shutil.rmtree(home.folder(PAIR).root)
    (finding,) = run(home, rebuild=rebuild).findings
    assert finding.where == str(home.folder(PAIR).receipt)
    assert "there is none" in finding.what


def test_a_receipt_that_vanished_from_an_attempt_with_an_ending_is_found_once(home: Home) -> None:
    run(home)
    home.folder(PAIR).receipt.unlink()
    ended = {"slot": home.real_slot(PAIR), "attempt": 1, "ending": "node_fail", "reason": "", "source": "squeue"}
    allocation = documents.Start.read(home.folder(PAIR).start).allocation
    home.append("ended", {**ended, "allocation": allocation})
    (finding,) = run(home).findings
    assert finding.where == str(home.folder(PAIR).receipt)
    assert "there is none" in finding.what


def test_an_edited_cache_is_found_and_can_be_rebuilt(home: Home) -> None:
    run(home)
    intact = dump(home)
    query(home, "UPDATE pairs SET raw = replace(raw, 'node1', 'node2') WHERE side = 'candidate'")
    assert "the cache holds other lines" in messages(run(home))
    assert run(home, rebuild=True).findings == ()
    assert dump(home) == intact


def test_a_row_added_to_the_cache_is_found(home: Home) -> None:
    run(home)
    columns = [row[1] for row in query(home, "PRAGMA table_info(attempts)")]
    values = ", ".join("2" if name == "attempt" else f'"{name}"' for name in columns)
    query(home, f"INSERT INTO attempts SELECT {values} FROM attempts WHERE slot = '{home.real_slot(PAIR)}'")  # noqa: S608 - names of our own
    assert "which left no ending" in messages(run(home))


def test_a_second_candidate_is_collected_beside_the_first(home: Home) -> None:
    freeze_candidate(home, "c" + "d" * 12, "d" * 64)
    home.attempt(home.slot(PAIR))
    collection = run(home)
    assert collection.findings == ()
    assert collection.attempts == len(home.protocol.slots) + 1


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Home:
    home = build_home(tmp_path_factory.mktemp("shared") / "home", SMALL[:1], repeats=1, solo=False)
    run(home)  # from now on the ledger knows the receipts
    return home


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_single_changed_byte_of_an_attempt_goes_unnoticed(shared: Home, data: st.DataObject) -> None:
    folder = shared.folder(PAIR).root
    path = folder / data.draw(st.sampled_from(sorted(entry.name for entry in folder.iterdir())))
    original = path.read_bytes()
    place = data.draw(st.integers(0, len(original) - 1))
    path.write_bytes(
        original[:place] + bytes([original[place] ^ data.draw(st.integers(1, 255))]) + original[place + 1 :]
    )
    try:
        assert run(shared).findings
    finally:
        path.write_bytes(original)


def test_the_attempt_is_intact_again_once_its_bytes_are(shared: Home) -> None:
    assert run(shared).findings == ()


# --- what the harness says that it wrote ------------------------------------------------------------------------------


def _write_ended(home: Home, receipts: dict[str, str]) -> None:
    """Write the ended.json of the pair's allocation."""
    allocation = documents.Receipt.read(home.folder(PAIR).receipt).allocation
    ended = documents.Ended(
        allocation=allocation, reason="done", at=1.0, wall_s=1.0, sides_s=1.0, overhead_s=0.0, receipts=receipts
    )
    home.paths.allocation(allocation).ended.write_bytes(ended.to_bytes())


def _name_and_digest(home: Home) -> tuple[str, str]:
    return f"{home.real_slot(PAIR)}/1", files.sha256_file(home.folder(PAIR).receipt)


def test_a_receipt_that_its_allocation_names_is_taken(home: Home) -> None:
    name, digest = _name_and_digest(home)
    _write_ended(home, {name: digest})
    assert run(home).findings == ()


@pytest.mark.parametrize("is_in_ledger", [True, False])
def test_a_sealed_attempt_that_was_deleted_is_found_and_not_lost(home: Home, is_in_ledger: bool) -> None:
    name, digest = _name_and_digest(home)
    _write_ended(home, {name: digest})
    allocation = documents.Receipt.read(home.folder(PAIR).receipt).allocation
    shutil.rmtree(home.folder(PAIR).root)
    if is_in_ledger:
        home.end(home.slot(PAIR), 1, allocation, Ending.LOST)
    collection = run(home)
    (finding,) = collection.findings
    assert finding.where == str(home.folder(PAIR).receipt)
    assert digest in finding.what
    assert home.real_slot(PAIR) not in stored_slots(home)
    with pytest.raises(TamperedError):
        require_intact(collection)


def test_a_receipt_that_its_allocation_did_not_write_is_found(home: Home) -> None:
    _write_ended(home, {})
    (finding,) = run(home).findings
    assert "without writing this receipt" in finding.what
    assert home.real_slot(PAIR) not in stored_slots(home)


def test_another_receipt_than_the_one_that_was_written_is_found(home: Home) -> None:
    name, _ = _name_and_digest(home)
    _write_ended(home, {name: "0" * 64})
    assert "0" * 64 in messages(run(home))


def test_what_an_allocation_left_unreadable_is_found(home: Home) -> None:
    name, digest = _name_and_digest(home)
    _write_ended(home, {name: digest})
    allocation = documents.Receipt.read(home.folder(PAIR).receipt).allocation
    home.paths.allocation(allocation).ended.write_bytes(b"{}")
    assert "ended.json" in messages(run(home))


# --- what may not be read ---------------------------------------------------------------------------------------------


def test_an_attempt_that_may_not_be_read_is_a_finding_and_the_rest_is_taken(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(home)
    slot = home.protocol.slots[0].slot
    folder = home.paths.attempt(slot, 1).root
    with monkeypatch.context() as patched:
        forbid(patched, folder.parent)
        collection = run(home)
    assert {finding.where for finding in collection.findings} & {str(folder.parent), str(folder / "receipt.json")}
    assert "Permission denied" in messages(collection)
    assert len(collection.records) == len(whole.records) - 1
    assert run(home).findings == ()
