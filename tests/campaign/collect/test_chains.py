"""Collecting runs: their segments, and the checkpoints that tie one to the next."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from acceptance.formats import Ending
from campaign import documents, files
from campaign.collection import checkpoints
from campaign.collection.chains import UNSEEN_S
from campaign.collection.collect import Collection, collect
from campaign.documents import CheckpointName
from campaign.errors import EvidenceError
from campaign.record.ledger import Ledger
from campaign.submission import acts
from tests.support.home import AT, SMALL, Home, freeze
from tests.support.training import make_rules

RUN = "baseline/run/sync/s45"
PILOT = "baseline/pilot/sync"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return freeze(tmp_path / "home", (), convergence=make_rules(max_segments=4))


@pytest.fixture
def slot(home: Home) -> documents.Slot:
    return home.slot(RUN)


@pytest.fixture
def chain(home: Home, slot: documents.Slot) -> Home:
    """A run that was cut twice, once without a receipt, and then completed."""
    home.segment(slot, ending=Ending.TIME_LIMIT, checkpoints=(5, 12))
    home.segment(slot, 1, 2, ending=Ending.NODE_FAIL, checkpoints=(17, 22), is_sealed=False)
    home.segment(slot, 1, 3, checkpoints=(27, 40))
    return home


def run(home: Home, *, rebuild: bool = False) -> Collection:
    with Ledger.open(home.paths, time.time) as ledger:
        return collect(home.paths, ledger, rebuild=rebuild)


def found(home: Home) -> str:
    return "\n".join(map(str, run(home).findings))


def query(home: Home, text: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(home.paths.database)
    try:
        return connection.execute(text).fetchall()
    finally:
        connection.close()


def lines(home: Home) -> list[tuple[object, ...]]:
    return query(home, "SELECT attempt, allocation, ending, sealed FROM attempts ORDER BY slot, attempt")


# --- what is taken ----------------------------------------------------------------------------------------------------


def test_a_run_has_one_line_that_is_its_last_segments(chain: Home) -> None:
    collection = run(chain)
    assert collection.findings == ()
    assert (collection.attempts, collection.sealed, collection.running) == (1, 1, 0)
    assert lines(chain) == [(1, "a0003", "completed", 1)]
    (path,) = query(chain, "SELECT baseline_path, candidate_path FROM attempts")
    assert path[0] != ""
    assert path[1] == ""


def test_the_tables_are_those_of_the_last_segment(chain: Home) -> None:
    run(chain)
    assert query(chain, "SELECT segments, updates, train_s FROM convergence") == [(3, 40, 20.0)]
    assert query(chain, '''SELECT "update", tokens FROM curves ORDER BY "update"''') == [
        (15, 15360),
        (30, 30720),
        (40, 40960),
    ]


def test_every_segment_is_stored_with_what_it_started_from(chain: Home) -> None:
    run(chain)
    names = (
        'segment, allocation, ending, receipt_sha256 IS NULL, resumed_segment, resumed_update, first_update, "update"'
    )
    assert query(chain, f"SELECT {names} FROM segments ORDER BY segment") == [  # noqa: S608 - names of our own
        (1, "a0001", "time_limit", 0, None, None, 0, 12),
        (2, "a0002", "node_fail", 1, 1, 12, None, None),
        (3, "a0003", "completed", 0, 2, 22, 22, 40),
    ]
    kept = query(chain, "SELECT DISTINCT segment FROM files ORDER BY segment")
    assert kept == [(1,), (3,)]


def test_the_ledger_names_the_receipt_of_every_segment(chain: Home) -> None:
    collection = run(chain)
    assert list(collection.receipts) == [f"{RUN}/1/1", f"{RUN}/1/3"]
    entry = documents.Entry.parse(chain.paths.ledger.read_bytes().splitlines()[-1], where="ledger")
    assert entry.data["receipts"] == collection.receipts


def test_collecting_twice_changes_nothing_and_a_rebuilt_cache_holds_the_same(chain: Home) -> None:
    def dump() -> list[str]:
        connection = sqlite3.connect(chain.paths.database)
        try:
            return sorted(connection.iterdump())
        finally:
            connection.close()

    run(chain)
    before, ledger = dump(), chain.paths.ledger.read_bytes()
    assert run(chain).findings == ()
    assert (dump(), chain.paths.ledger.read_bytes()) == (before, ledger)
    assert run(chain, rebuild=True).findings == ()
    assert dump() == before


def test_segments_are_collected_as_they_come(home: Home, slot: documents.Slot) -> None:
    home.segment(slot, ending=Ending.TIME_LIMIT)
    assert run(home).findings == ()
    assert lines(home) == [(1, "a0001", "time_limit", 1)]
    allocation = home.plan(slot, segment=2, resume=home.newest(slot, before=2))
    going = run(home)
    assert (going.findings, going.attempts, going.running) == ((), 0, 1)
    assert list(going.receipts) == [f"{RUN}/1/1"]
    assert lines(home) == []
    home.start(slot, 1, allocation, 2)
    home.end(slot, 1, allocation, Ending.PREEMPTED, 2)
    assert run(home).findings == ()
    assert lines(home) == [(1, "a0002", "preempted", 0)]
    home.segment(slot, 1, 3)
    assert run(home).findings == ()
    assert lines(home) == [(1, "a0003", "completed", 1)]


def test_a_run_that_was_cut_and_cancelled_stands_with_that_ending(home: Home, slot: documents.Slot) -> None:
    home.segment(slot, ending=Ending.TIME_LIMIT)
    home.end(slot, 1, home.plan(slot, segment=2, resume=home.newest(slot, before=2)), Ending.CANCELLED, 2)
    assert run(home).findings == ()
    assert lines(home) == [(1, "a0002", "cancelled", 0)]
    assert query(home, "SELECT count(*) FROM convergence") == [(0,)]


def test_each_of_two_attempts_has_its_own_line_and_chain(home: Home, slot: documents.Slot) -> None:
    for segment in range(1, 5):
        home.segment(slot, 1, segment, ending=Ending.PREEMPTED)
    home.segment(slot, 2, 1, ending=Ending.TIME_LIMIT)
    home.segment(slot, 2, 2)
    assert run(home).findings == ()
    assert lines(home) == [(1, "a0004", "preempted", 1), (2, "a0006", "completed", 1)]


def test_a_segment_that_starts_at_the_end_saves_what_it_found(home: Home, slot: documents.Slot) -> None:
    home.segment(slot, ending=Ending.NODE_FAIL, checkpoints=(5, 40), is_sealed=False)
    home.segment(slot, 1, 2)
    assert run(home).findings == ()
    assert home.read_checkpoint(slot, 1, 2, 40).previous == name_of(home, 1, 40)
    assert lines(home) == [(1, "a0002", "completed", 1)]


def test_a_segment_that_starts_at_the_end_evaluates_that_state_itself(home: Home, slot: documents.Slot) -> None:
    home.segment(slot, ending=Ending.NODE_FAIL, checkpoints=(5, 40), is_sealed=False)

    def edit(document: documents.Checkpoint) -> documents.Checkpoint:
        *others, last = document.curve
        return document.replace(curve=(*others, last.replace(validation_loss=last.validation_loss + 1e-9)))

    edit_document(home, 1, 40, edit)
    home.segment(slot, 1, 2)
    assert run(home).findings == ()
    edit_receipt(home, 2, of_run(evaluate_s=0.0))
    assert "run.evaluate_s is 0.0, and the segment that completes a run evaluates itself" in found(home)


def test_a_segment_that_left_no_checkpoint_is_passed_over(home: Home, slot: documents.Slot) -> None:
    home.segment(slot, ending=Ending.TIME_LIMIT, checkpoints=(5,))
    home.segment(slot, 1, 2, ending=Ending.LOST, checkpoints=(), is_sealed=False)
    allocation = home.segment(slot, 1, 3)
    assert run(home).findings == ()
    assert query(home, "SELECT resumed_segment, resumed_update FROM segments WHERE segment = 3") == [(1, 5)]
    assert lines(home) == [(1, allocation, "completed", 1)]


def test_a_checkpoint_that_is_being_written_is_no_evidence_and_no_finding(chain: Home) -> None:
    folder = chain.folder(RUN, 1, 2).checkpoints / ".23.ab12.tmp"
    folder.mkdir()
    (folder / "checkpoint.json").write_bytes(b"{")
    assert found(chain) == ""


def test_what_a_segment_under_way_writes_is_looked_at_later(home: Home, slot: documents.Slot) -> None:
    home.segment(slot, ending=Ending.LOST, checkpoints=(5,), is_sealed=False, is_ended=False)
    document = home.folder(RUN).checkpoint(5).document
    document.write_bytes(b"{}")
    assert run(home).running == 1
    home.end(slot, 1, "a0001", Ending.LOST)
    assert f"{document}:" in found(home)


# --- one segment ------------------------------------------------------------------------------------------------------


def edit_receipt(home: Home, segment: int, edit: Callable[[documents.Receipt], documents.Receipt]) -> None:
    path = home.folder(RUN, 1, segment).receipt
    path.write_bytes(edit(documents.Receipt.read(path)).to_bytes())


def of_run(**fields: object) -> Callable[[documents.Receipt], documents.Receipt]:
    def edit(receipt: documents.Receipt) -> documents.Receipt:
        assert receipt.run is not None
        return receipt.replace(run=receipt.run.replace(**fields))

    return edit


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda receipt: receipt.replace(segment=2), "segment is 2 where the plan says 3"),
        (lambda receipt: receipt.replace(run=None), "it does not say how the run went"),
        (of_run(seed=46), "run.seed is 46 where the plan says 45"),
        (of_run(recipe="packed"), "run.recipe is 'packed'"),
        (of_run(resumed=None), "run.resumed is None"),
        (of_run(first_update=5), "run.first_update is 5"),
        (of_run(update=39), "run.update is 39 after a start at 22; the recipe has 40"),
        (of_run(update=41), "run.update is 41"),
    ],
)
def test_a_receipt_of_another_segment_or_run_is_found(
    chain: Home, edit: Callable[[documents.Receipt], documents.Receipt], words: str
) -> None:
    edit_receipt(chain, 3, edit)
    assert words in found(chain)
    assert lines(chain) == []


def test_a_start_record_of_another_segment_is_found(chain: Home) -> None:
    path = chain.folder(RUN, 1, 3).start
    path.write_bytes(documents.Start.read(path).replace(segment=2).to_bytes())
    assert "segment is 2 where the plan says 3" in found(chain)


def test_a_receipt_of_something_else_says_nothing_of_a_run(home: Home) -> None:
    home.attempt(home.slot(PILOT))
    assert found(home) == ""
    path = home.folder(PILOT).receipt
    said = documents.RunReceipt(
        recipe="sync",
        seed=45,
        resumed=None,
        first_update=0,
        update=1,
        checkpoints=(),
        train_s=0.0,
        evaluate_s=0.0,
        save_s=0.0,
        load_s=0.0,
    )
    path.write_bytes(documents.Receipt.read(path).replace(run=said).to_bytes())
    assert "a pilot that says how a run went" in found(home)


def reseal(home: Home, segment: int, name: str, edit: Callable[[bytes], bytes]) -> None:
    """Change a table of a segment and seal it again: what a harness that errs would leave."""
    folder = home.folder(RUN, 1, segment)
    folder.table(name).write_bytes(edit(folder.table(name).read_bytes() if folder.table(name).exists() else b""))
    receipt = documents.Receipt.read(folder.receipt)
    home.seal(home.slot(RUN), 1, receipt.allocation, ending=receipt.ending, segment=segment, run=receipt.run)


def test_a_segment_that_was_cut_writes_no_table(chain: Home) -> None:
    table = chain.folder(RUN, 1, 3).table("curves.csv").read_bytes()
    reseal(chain, 1, "curves.csv", lambda _data: table)
    assert "a segment that ended time_limit does not write this table" in found(chain)


def test_a_run_writes_no_table_of_another_family(chain: Home) -> None:
    header = ",".join(chain.protocol.headers["pairs.csv"]).encode() + b"\n"
    reseal(chain, 3, "pairs.csv", lambda _data: header)
    assert "pairs.csv: no run writes this table" in found(chain)


def test_rows_of_another_run_are_found(chain: Home) -> None:
    reseal(chain, 3, "curves.csv", lambda data: data.replace(b"sync,45,", b"sync,46,", 1))
    assert "curves.csv:2: a row of another run" in found(chain)


@pytest.mark.parametrize("name", ["convergence.csv", "curves.csv"])
def test_a_completed_run_without_a_table_is_found(chain: Home, name: str) -> None:
    folder = chain.folder(RUN, 1, 3)
    folder.table(name).unlink()
    receipt = documents.Receipt.read(folder.receipt)
    chain.seal(chain.slot(RUN), 1, receipt.allocation, segment=3, run=receipt.run)
    assert f"completed without {name}" in found(chain)


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("convergence.csv", b",3.498,", b",3.497,", "final_loss is 3.497, the last checkpoint says 3.498"),
        ("convergence.csv", b",3.498,", b",3.4980,", "final_loss is 3.4980, the last checkpoint says 3.498"),
        ("convergence.csv", b",3,20.0,", b",2,20.0,", "segments is 2, the last checkpoint says 3"),
        ("convergence.csv", b",3,20.0,", b",3,19.5,", "train_s is 19.5, the last checkpoint says 20.0"),
        ("convergence.csv", b",40960,", b",40961,", "target_tokens is 40961"),
        ("convergence.csv", b",20.0,26.5,", b",20.0,20.5,", "elapsed_s is 20.5"),
        ("curves.csv", b"3.598", b"3.597", "curves.csv:3: not the 3 points that the last checkpoint holds"),
        ("curves.csv", b",30,30720,", b",29,30720,", "curves.csv:3: not the 3 points"),
        ("curves.csv", b"sync,45,baseline,1,15,15360,3.748\n", b"", "curves.csv:2: not the 3 points"),
    ],
)
def test_a_result_that_the_last_checkpoint_does_not_hold_is_found(
    chain: Home, name: str, old: bytes, new: bytes, words: str
) -> None:
    assert old in chain.folder(RUN, 1, 3).table(name).read_bytes()
    reseal(chain, 3, name, lambda data: data.replace(old, new))
    assert words in found(chain)


def test_a_curve_that_was_swapped_with_another_runs_is_found(chain: Home) -> None:
    other = "baseline/run/sync/s47"
    chain.attempt(chain.slot(other))
    theirs = chain.folder(other).table("curves.csv").read_bytes().replace(b"sync,47,", b"sync,45,")
    reseal(chain, 3, "curves.csv", lambda _data: theirs)
    assert "not the 3 points that the last checkpoint holds" in found(chain)


# --- checkpoints ------------------------------------------------------------------------------------------------------


def model(home: Home, segment: int, update: int) -> Path:
    return home.folder(RUN, 1, segment).checkpoint(update).files / "model.bin"


def edit_document(
    home: Home, segment: int, update: int, edit: Callable[[documents.Checkpoint], documents.Checkpoint]
) -> None:
    path = home.folder(RUN, 1, segment).checkpoint(update).document
    path.write_bytes(edit(documents.Checkpoint.read(path)).to_bytes())


@pytest.mark.parametrize(("segment", "update"), [(1, 5), (1, 12), (2, 17), (2, 22), (3, 40)])
@pytest.mark.parametrize("was_collected", [False, True])
def test_a_byte_that_was_changed_in_any_checkpoint_is_found(
    chain: Home, segment: int, update: int, was_collected: bool
) -> None:
    if was_collected:
        assert run(chain).findings == ()
    path = model(chain, segment, update)
    stat = path.stat()
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    (finding,) = run(chain).findings
    assert finding.where == str(path)
    assert "it was changed" in finding.what
    if not was_collected:
        assert lines(chain) == []


def test_files_of_checkpoints_are_hashed_once_unless_the_cache_is_rebuilt(
    chain: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[Path] = []
    whole = checkpoints._hash

    def counting(file: checkpoints.SavedFile) -> None:
        hashed.append(file.path)
        whole(file)

    monkeypatch.setattr(checkpoints, "_hash", counting)
    run(chain)
    assert len(hashed) == 2 * 6
    run(chain)
    assert len(hashed) == 2 * 6
    path = model(chain, 2, 17)
    path.write_bytes(path.read_bytes())
    run(chain)
    assert hashed[12:] == [path]
    run(chain, rebuild=True)
    assert len(hashed) == 13 + 12


def test_a_file_that_is_as_it_was_hashed_is_hashed_again_for_another_digest(chain: Home) -> None:
    run(chain)
    path = model(chain, 2, 17)

    def edit(document: documents.Checkpoint) -> documents.Checkpoint:
        first, *others = document.files
        return document.replace(files=(first.replace(sha256="0" * 64), *others))

    edit_document(chain, 2, 17, edit)
    assert str(path) in found(chain)


def test_a_longer_file_an_added_one_a_link_and_one_that_is_gone_are_found(chain: Home, tmp_path: Path) -> None:
    folder = chain.folder(RUN, 1, 2).checkpoint(17)
    (folder.files / "added.bin").write_bytes(b"1")
    (folder.files / "empty").mkdir()
    (folder.root / "notes.txt").write_bytes(b"1")
    longer = chain.folder(RUN, 1, 1).checkpoint(5).files / "state" / "random.json"
    longer.write_bytes(longer.read_bytes() + b" ")
    shutil.move(model(chain, 2, 22), tmp_path / "model.bin")
    model(chain, 2, 22).symlink_to(tmp_path / "model.bin")
    model(chain, 3, 27).unlink()
    (chain.folder(RUN, 1, 3).checkpoints / "041").mkdir()
    text = found(chain)
    assert f"{folder.files / 'added.bin'}: not listed by its checkpoint.json" in text
    assert f"{folder.files / 'empty'}: not listed by its checkpoint.json" in text
    assert f"{folder.root / 'notes.txt'}: no part of a checkpoint" in text
    assert f"{longer}: " in text
    assert f"{model(chain, 2, 22)}: not a regular file" in text
    assert f"{model(chain, 3, 27)}: its checkpoint.json lists it, and it is gone" in text
    assert "041: not a checkpoint" in text


def test_something_beside_the_segments_is_found(chain: Home) -> None:
    root = chain.paths.attempt(RUN, 1).root
    (root / "receipt.json").write_bytes(b"{}")
    shutil.copytree(root / "segments" / "1", root / "segments" / "5")
    text = found(chain)
    assert f"{root / 'receipt.json'}: no intent of the ledger names it" in text
    assert f"{root / 'segments' / '5'}: no intent of the ledger names it" in text


def test_checkpoints_are_no_part_of_an_attempt_that_is_no_run(home: Home) -> None:
    home.attempt(home.slot(PILOT))
    home.folder(PILOT).checkpoints.mkdir()
    assert "checkpoints: not sealed by the receipt" in found(home)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"manifest_sha256": "0" * 64}, "manifest_sha256 is '0000"),
        ({"slot": "baseline/run/sync/s46"}, "slot is 'baseline/run/sync/s46'"),
        ({"attempt": 2}, "attempt is 2, and it must be 1"),
        ({"segment": 1}, "segment is 1, and it must be 2"),
        ({"allocation": "a0001"}, "allocation is 'a0001'"),
        ({"side": "candidate"}, "side is 'candidate'"),
        ({"snapshot_sha256": "0" * 64}, "snapshot_sha256 is '0000"),
        ({"recipe": "packed"}, "recipe is 'packed'"),
        ({"config_sha256": "0" * 64}, "config_sha256 is '0000"),
        ({"seed": 46}, "seed is 46, and it must be 45"),
        ({"previous": None}, "previous is None"),
        ({"update": 18}, "update is 18, and its folder is that of update 17"),
        ({"tokens": 40961}, "tokens is 40961, and the recipe has 40960"),
        ({"train_s": 1e6}, "train_s is 1000000.0"),
        ({"curve": ()}, "the curve has points after the updates [], and planned are [15]"),
        ({"files": ()}, "it lists no file"),
    ],
)
def test_a_checkpoint_of_something_else_is_found(chain: Home, fields: dict[str, object], words: str) -> None:
    edit_document(chain, 2, 17, lambda document: document.replace(**fields))
    assert words in found(chain)


@pytest.mark.parametrize("name", ["../model.bin", "/etc/passwd", "a//b", "a\nb", ""])
def test_a_checkpoint_that_lists_a_file_elsewhere_is_found(chain: Home, name: str) -> None:
    def edit(document: documents.Checkpoint) -> documents.Checkpoint:
        return document.replace(files=tuple(one.replace(name=name) for one in document.files[:1]))

    edit_document(chain, 2, 17, edit)
    assert "is not the name of a file below it" in found(chain)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"train_s": 1.0, "elapsed_s": 12.0}, "train_s goes from 8.5 to 1.0"),
        ({"train_s": 11.0, "elapsed_s": 11.0}, "elapsed_s goes from"),
        ({"tokens": 15361}, "tokens goes from 17408 to 15361"),
        ({"path": "0" * 12}, "the engaged path goes from"),
    ],
)
def test_an_account_that_does_not_go_on_from_the_one_before_is_found(
    chain: Home, fields: dict[str, object], words: str
) -> None:
    edit_document(chain, 2, 22, lambda document: document.replace(**fields))
    assert words in found(chain)


def test_a_curve_that_was_rewritten_on_the_way_is_found(chain: Home) -> None:
    def edit(document: documents.Checkpoint) -> documents.Checkpoint:
        first, *others = document.curve
        return document.replace(curve=(first.replace(validation_loss=3.0), *others))

    edit_document(chain, 2, 22, edit)
    assert "the curve does not begin with the one that was there before" in found(chain)


def test_a_document_that_was_replaced_is_no_longer_what_the_next_segment_named(chain: Home) -> None:
    edit_document(chain, 2, 22, lambda document: document.replace(at=document.at + 1))
    text = found(chain)
    assert "it was planned from update 22 of segment 2 with the SHA-256" in text
    assert lines(chain) == []


def test_a_document_that_its_receipt_names_otherwise_is_found(chain: Home) -> None:
    edit_document(chain, 1, 5, lambda document: document.replace(at=document.at + 1))
    path = chain.folder(RUN).checkpoint(5)
    assert f"{path.root}: its checkpoint.json has the SHA-256 {files.sha256_file(path.document)}" in found(chain)


def test_a_checkpoint_that_its_receipt_lists_and_that_is_gone_is_found(chain: Home) -> None:
    shutil.rmtree(chain.folder(RUN).checkpoint(5).root)
    assert "checkpoints/5: listed by the receipt, and it is not there" in found(chain)


def test_a_checkpoint_that_its_receipt_does_not_list_is_found(chain: Home) -> None:
    resume = chain.newest(chain.slot(RUN), before=3)
    chain.checkpoint(chain.slot(RUN), 1, 33, segment=3, allocation="a0003", resume=resume)
    assert "checkpoints/33: not listed by the receipt of its segment: added later" in found(chain)


def test_a_completed_run_without_its_last_checkpoint_is_found(home: Home, slot: documents.Slot) -> None:
    home.segment(slot, checkpoints=(5, 40))
    shutil.rmtree(home.folder(RUN).checkpoint(40).root)
    edit_receipt(home, 1, of_run(checkpoints=home.run_receipt(slot, 1, 1, None, 40).checkpoints))
    assert "completed, but it left no checkpoint after the last update, 40" in found(home)


def test_a_segment_cannot_save_again_where_it_started_but_at_the_end(chain: Home) -> None:
    shutil.copytree(chain.folder(RUN).checkpoint(12).root, chain.folder(RUN, 1, 2).checkpoint(12).root)
    edit_document(chain, 2, 12, lambda one: one.replace(segment=2, allocation="a0002", previous=name_of(chain, 1, 12)))
    assert "update goes from 12 to 12" in found(chain)


# --- the chain --------------------------------------------------------------------------------------------------------


def name_of(home: Home, segment: int, update: int) -> CheckpointName:
    sha256 = files.sha256_file(home.folder(RUN, 1, segment).checkpoint(update).document)
    return CheckpointName(segment=segment, update=update, sha256=sha256)


def test_an_older_state_of_a_sealed_segment_cannot_be_chosen(home: Home, slot: documents.Slot) -> None:
    home.segment(slot, ending=Ending.PREEMPTED, checkpoints=(5, 12))
    home.segment(slot, 1, 2, resume=name_of(home, 1, 5))
    assert "planned from update 5 of segment 1, although there was update 12 of segment 1" in found(home)
    assert lines(home) == []


@pytest.mark.parametrize("is_sealed", [True, False])
def test_an_earlier_segments_state_cannot_be_chosen(home: Home, slot: documents.Slot, is_sealed: bool) -> None:
    home.segment(slot, ending=Ending.PREEMPTED, checkpoints=(5,))
    home.segment(slot, 1, 2, ending=Ending.NODE_FAIL, checkpoints=(17,), is_sealed=is_sealed)
    _write_at(home, 2, 17, -UNSEEN_S - 60)
    home.segment(slot, 1, 3, resume=name_of(home, 1, 5))
    assert "planned from update 5 of segment 1, although there was update 17 of segment 2" in found(home)


def test_the_beginning_cannot_be_chosen_where_there_is_a_state(home: Home, slot: documents.Slot) -> None:
    home.segment(slot, ending=Ending.PREEMPTED, checkpoints=(5,))
    home.segment(slot, 1, 2, resume=None)
    assert "planned from the beginning, although there was update 5 of segment 1" in found(home)


def _write_at(home: Home, segment: int, update: int, seconds: float) -> None:
    """Let a checkpoint say that it was written some seconds after what the ledger says next."""
    now = AT + len(home.paths.ledger.read_bytes().splitlines())
    edit_document(home, segment, update, lambda document: document.replace(at=now + seconds))
    receipt = home.folder(RUN, 1, segment).receipt
    if receipt.exists():
        run_of = documents.Receipt.read(receipt).run
        assert run_of is not None
        again = home.run_receipt(home.slot(RUN), 1, segment, run_of.resumed, run_of.update)
        edit_receipt(home, segment, of_run(checkpoints=again.checkpoints))


@pytest.mark.parametrize(("seconds", "is_found"), [(-UNSEEN_S - 60, True), (-UNSEEN_S + 60, False), (600, False)])
def test_what_a_lost_segment_wrote_after_its_successor_was_planned_was_not_passed_over(
    home: Home, slot: documents.Slot, seconds: float, is_found: bool
) -> None:
    home.segment(slot, ending=Ending.LOST, checkpoints=(5, 12), is_sealed=False)
    _write_at(home, 1, 12, seconds)
    home.segment(slot, 1, 2, resume=name_of(home, 1, 5))
    assert ("although there was update 12 of segment 1" in found(home)) == is_found


def test_a_sealed_segment_has_nothing_that_could_have_been_unseen(home: Home, slot: documents.Slot) -> None:
    home.segment(slot, ending=Ending.PREEMPTED, checkpoints=(5, 12))
    _write_at(home, 1, 12, 600)
    home.segment(slot, 1, 2, resume=name_of(home, 1, 5))
    assert "although there was update 12 of segment 1" in found(home)


def test_the_state_that_a_segment_started_from_must_still_be_there(chain: Home) -> None:
    shutil.rmtree(chain.folder(RUN, 1, 2).checkpoint(22).root)
    assert "it was planned from update 22 of segment 2, which is not there" in found(chain)


def test_a_segment_cannot_start_from_its_own_state_or_a_later_one(home: Home, slot: documents.Slot) -> None:
    home.segment(slot, ending=Ending.PREEMPTED, checkpoints=(5,))
    own = CheckpointName(segment=2, update=17, sha256="0" * 64)
    home.end(slot, 1, home.plan(slot, segment=2, resume=own), Ending.LOST, 2)
    assert "it was planned from update 17 of segment 2, which is not there" in found(home)


def test_a_segment_that_is_missing_in_the_middle_is_found(home: Home, slot: documents.Slot) -> None:
    home.segment(slot, ending=Ending.TIME_LIMIT)
    home.segment(slot, 1, 3)
    assert "segments 1, 3 were planned, which are not numbered from 1 without a gap" in found(home)


def test_more_segments_than_the_protocol_allows_are_found(home: Home, slot: documents.Slot) -> None:
    for segment in range(1, 6):
        home.segment(slot, 1, segment, ending=Ending.PREEMPTED, checkpoints=(5 * segment,))
    assert "5 segments were planned, the protocol allows 4" in found(home)


@pytest.mark.parametrize("ending", [Ending.COMPLETED, Ending.CRASH, Ending.CHECKPOINT_REFUSED])
def test_nothing_goes_on_after_an_ending_that_is_no_cut(home: Home, slot: documents.Slot, ending: Ending) -> None:
    home.segment(slot, ending=ending)
    home.segment(slot, 1, 2, ending=Ending.LOST, is_sealed=False)
    assert f"segment 1 ended {ending}, after which no segment goes on" in found(home)


def test_nothing_goes_on_from_a_segment_that_has_no_ending(home: Home, slot: documents.Slot) -> None:
    home.segment(slot, ending=Ending.LOST, is_sealed=False, is_ended=False)
    home.segment(slot, 1, 2)
    assert "it has no ending, and segment 2 was planned after it" in found(home)


def test_a_receipt_that_comes_late_and_cut_leaves_the_chain_as_it_is(home: Home, slot: documents.Slot) -> None:
    first = home.segment(slot, ending=Ending.LOST, checkpoints=(5,), is_sealed=False)
    home.segment(slot, 1, 2)
    assert run(home).findings == ()
    home.seal(slot, 1, first, ending=Ending.PREEMPTED, segment=1, run=home.run_receipt(slot, 1, 1, None, 7))
    assert run(home).findings == ()
    assert query(home, "SELECT segment, ending FROM segments") == [(1, "preempted"), (2, "completed")]
    assert lines(home) == [(1, "a0002", "completed", 1)]


def test_a_segment_that_was_given_up_and_ended_otherwise_after_all_decides(home: Home, slot: documents.Slot) -> None:
    first = home.segment(slot, ending=Ending.LOST, checkpoints=(5,), is_sealed=False)
    home.segment(slot, 1, 2)
    assert run(home).findings == ()
    home.seal(slot, 1, first, ending=Ending.CRASH, segment=1, run=home.run_receipt(slot, 1, 1, None, 7))
    assert run(home).findings == ()
    assert lines(home) == [(1, first, "crash", 1)]
    assert query(home, "SELECT count(*) FROM convergence") == [(0,)]


def test_a_segment_that_was_ended_for_another_path_is_no_tampering(home: Home, slot: documents.Slot) -> None:
    home.segment(slot, ending=Ending.PREEMPTED, checkpoints=(5,))
    home.segment(slot, 1, 2, ending=Ending.STATE_MISMATCH, checkpoints=())
    path = home.folder(RUN, 1, 2).receipt
    receipt = documents.Receipt.read(path)
    sides = tuple(side.replace(path="0" * 12) for side in receipt.sides)
    path.write_bytes(receipt.replace(sides=sides).to_bytes())
    assert run(home).findings == ()
    assert lines(home) == [(1, "a0002", "state_mismatch", 1)]


def test_segments_that_engaged_different_paths_are_found(chain: Home) -> None:
    def edit(receipt: documents.Receipt) -> documents.Receipt:
        return receipt.replace(sides=tuple(side.replace(path="0" * 12) for side in receipt.sides))

    edit_receipt(chain, 3, edit)
    assert f"segments/3: it engaged the path {'0' * 12}, the run began with" in found(chain)


def test_a_segment_planned_otherwise_than_intended_is_found(home: Home, slot: documents.Slot) -> None:
    home.segment(slot, ending=Ending.PREEMPTED, checkpoints=(5, 12))
    home.segment(slot, 1, 2)
    *before, last = home.paths.ledger.read_bytes().splitlines()
    entry = documents.Entry.parse(last, where="ledger")
    assert entry.act == "intent"
    intent = acts.Intent.of(dict(entry.data))
    (allocation,) = intent.allocations
    planned = allocation.attempts[0].replace(resume=name_of(home, 1, 5))
    changed = intent.replace(allocations=(allocation.replace(attempts=(planned,)),))
    home.paths.ledger.write_bytes(b"\n".join(before) + b"\n")
    home.append("intent", changed.to_json())
    assert f"{RUN} attempt 1 segment 2 is planned otherwise than in the ledger's intent" in found(home)


@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_run_is_not_begun_anew_while_an_attempt_can_go_on(home: Home, slot: documents.Slot, is_sealed: bool) -> None:
    home.segment(slot, ending=Ending.PREEMPTED, is_sealed=is_sealed)
    home.segment(slot, 2, 1)
    text = found(home)
    assert "attempt 2 was planned, although segment 1 ended preempted, after which the same attempt goes on" in text
    assert lines(home) == [(1, "a0001", "preempted", int(is_sealed))]


def test_a_run_that_a_person_stopped_is_not_begun_anew(home: Home, slot: documents.Slot) -> None:
    assert home.protocol.convergence is not None
    last = home.protocol.convergence.max_segments
    for segment in range(1, last + 1):
        home.segment(slot, 1, segment, ending=Ending.CANCELLED, checkpoints=())
    home.segment(slot, 2, 1)
    text = found(home)
    assert f"attempt 2 was planned, although segment {last} ended cancelled, after which no other is made" in text


def test_a_run_is_not_begun_anew_beside_an_attempt_under_way(home: Home, slot: documents.Slot) -> None:
    home.segment(slot, ending=Ending.LOST, is_sealed=False, is_ended=False)
    home.segment(slot, 2, 1)
    assert "attempt 2 was planned, although segment 1 has no ending" in found(home)


def test_an_ending_that_allows_no_other_attempt_is_acceptances_affair(home: Home, slot: documents.Slot) -> None:
    home.segment(slot, ending=Ending.CRASH)
    home.segment(slot, 2, 1)
    assert run(home).findings == ()
    assert lines(home) == [(1, "a0001", "crash", 1), (2, "a0002", "completed", 1)]


# --- what was collected before ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rebuild", [False, True])
def test_the_receipt_of_a_segment_cannot_be_replaced(chain: Home, rebuild: bool) -> None:
    run(chain)
    edit_receipt(chain, 1, of_run(train_s=2.0))
    path = chain.folder(RUN).receipt
    collection = run(chain, rebuild=rebuild)
    (finding,) = collection.findings
    assert finding.where == str(path)
    assert f"now {files.sha256_file(path)}" in finding.what
    assert f"{RUN}/1/1" not in collection.receipts


@pytest.mark.parametrize("rebuild", [False, True])
def test_the_receipt_of_a_segment_cannot_vanish(chain: Home, rebuild: bool) -> None:
    run(chain)
    chain.folder(RUN).receipt.unlink()
    (finding,) = run(chain, rebuild=rebuild).findings
    assert finding.where == str(chain.folder(RUN).receipt)


def test_the_receipt_of_a_segment_of_a_run_under_way_cannot_vanish(home: Home, slot: documents.Slot) -> None:
    first = home.segment(slot, ending=Ending.PREEMPTED)
    home.plan(slot, segment=2, resume=home.newest(slot, before=2))
    run(home)
    home.folder(RUN).receipt.unlink()
    home.end(slot, 1, first, Ending.PREEMPTED)
    assert "collected before with SHA-256" in found(home)


def test_a_segment_cannot_be_taken_back(chain: Home) -> None:
    run(chain)
    kept = [line for line in chain.paths.ledger.read_bytes().splitlines() if b'"a0003"' not in line]
    chain.paths.ledger.unlink()
    for line in kept:
        entry = documents.Entry.parse(line, where="ledger")
        chain.append(entry.act, dict(entry.data))
    text = found(chain)
    assert f"{chain.folder(RUN, 1, 3).root}: no intent of the ledger names it" in text
    assert f"{chain.folder(RUN, 1, 3).receipt}: collected before with SHA-256" in text


def test_a_ledger_that_names_no_receipt_is_refused(home: Home) -> None:
    home.append("collected", {"receipts": {"nonsense": "0" * 64}})
    with pytest.raises(EvidenceError, match="not the name of a receipt"):
        run(home)


# --- pilots -----------------------------------------------------------------------------------------------------------


def edit_calibration(home: Home, **fields: object) -> str:
    path = home.folder(PILOT).receipt
    receipt = documents.Receipt.read(path)
    assert receipt.calibration is not None
    path.write_bytes(receipt.replace(calibration=receipt.calibration.replace(**fields)).to_bytes())
    return found(home)


@pytest.mark.parametrize("name", ["evaluate_s", "checkpoint_bytes", "save_s"])
def test_a_recipes_pilot_without_what_runs_are_planned_by_is_found(home: Home, name: str) -> None:
    home.attempt(home.slot(PILOT))
    assert f"the pilot of a recipe completed without {name}" in edit_calibration(home, **{name: None})


def test_a_workloads_pilot_has_nothing_that_runs_are_planned_by(tmp_path: Path) -> None:
    home = freeze(tmp_path / "home", SMALL[:1], convergence=make_rules())
    pilot = "baseline/pilot/sync-b4"
    home.attempt(home.slot(pilot))
    assert found(home) == ""
    path = home.folder(pilot).receipt
    receipt = documents.Receipt.read(path)
    assert receipt.calibration is not None
    path.write_bytes(receipt.replace(calibration=receipt.calibration.replace(save_s=0.5)).to_bytes())
    assert "the pilot of a workload has save_s" in found(home)


def test_a_recipes_pilot_records_no_canonical_inputs(tmp_path: Path) -> None:
    home = freeze(tmp_path / "home", SMALL[:1], numerical=documents.NumericalRules(), convergence=make_rules())
    home.attempt(home.slot(PILOT))
    assert found(home) == ""
    home.paths.inputs.mkdir()
    (home.paths.inputs / f"{'0' * 64}.json").write_bytes(b"{}")
    assert "no pilot listed it" in found(home)
    home.folder(PILOT).inputs.write_bytes(home.inputs("sync-b4").to_bytes())
    home.seal(home.slot(PILOT), 1, "a0001")
    assert "only a pilot of the baseline records inputs, at a workload" in found(home)
