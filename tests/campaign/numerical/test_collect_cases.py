"""Collecting what the numerical family leaves: cases, their tensors, and the canonical inputs."""

from __future__ import annotations

import gzip
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from acceptance.formats import TENSORS, Ending
from campaign import documents, files
from campaign.collection import case_tensors, cases, inputs
from campaign.collection.collect import Collection, collect
from campaign.collection.left import LeftBehind
from campaign.documents import NumericalRules
from campaign.record.ledger import Ledger
from tests.support.home import SMALL, Home, build_home, freeze, freeze_candidate, tensor_file

CASE = "candidate/case/sync-b4"
CONTROL = "baseline/control-case/sync-b4"
PILOT = "baseline/pilot/sync-b4"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return build_home(tmp_path / "home", SMALL[:2], repeats=1, numerical=NumericalRules())


def run(home: Home, *, rebuild: bool = False) -> Collection:
    with Ledger.open(home.paths, time.time) as ledger:
        return collect(home.paths, ledger, rebuild=rebuild)


def query(home: Home, text: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(home.paths.database)
    try:
        return connection.execute(text).fetchall()
    finally:
        connection.close()


def findings(home: Home) -> str:
    return "\n".join(map(str, run(home).findings))


def reseal_receipt(home: Home, slot: str, edit: Callable[[documents.Receipt], documents.Receipt]) -> None:
    """Write another receipt over the same files."""
    folder = home.folder(slot)
    folder.receipt.write_bytes(edit(documents.Receipt.read(folder.receipt)).to_bytes())


# --- cases ------------------------------------------------------------------------------------------------------------


def test_cases_are_collected_with_their_rows_and_without_their_tensors(home: Home) -> None:
    assert run(home).findings == ()
    # Two workloads, candidate and control: five updates of six quantities, and the isolated optimizer.
    assert query(home, "SELECT count(*) FROM numerical") == [(2 * 2 * 31,)]
    assert query(home, "SELECT count(DISTINCT source_slot) FROM vacuity") == [(2,)]
    lost = "SELECT DISTINCT quantity, rel_l2, worst_tensor FROM numerical WHERE rel_l2 IS NULL ORDER BY quantity"
    assert query(home, lost) == [("loss", None, ""), ("optimizer", None, "exp_avg/embedding")]
    assert query(home, "SELECT DISTINCT typeof(reference) FROM numerical WHERE quantity = 'loss'") == [("real",)]
    names = [row[0] for row in query(home, "SELECT DISTINCT name FROM files WHERE name LIKE 'tensors%'")]
    assert names == ["tensors.csv.gz"]


def test_the_evidence_has_the_rows_of_the_family_in_their_own_text(home: Home) -> None:
    run(home)
    raw = [row[0] for row in query(home, "SELECT raw FROM numerical WHERE source_slot LIKE 'baseline/%sync-b4'")]
    assert "\n".join(map(str, raw)) in home.folder(CONTROL).table("numerical.csv").read_text()


def edit_tensors(home: Home, edit: Callable[[bytes], bytes]) -> str:
    """Change what the packed table of a case holds, seal it again and return the findings."""

    def repack(data: bytes) -> bytes:
        return gzip.compress(edit(gzip.decompress(data)), mtime=0)

    home.reseal(CASE, "tensors.csv.gz", repack)
    return findings(home)


def test_tensors_with_a_number_that_is_none_are_named_with_their_line(home: Home) -> None:
    found = edit_tensors(home, lambda data: data.replace(b",8.0,", b",nan,", 1))
    assert "tensors.csv.gz:2" in found
    assert "reference" in found


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda data: data.replace(b"sync-b4", b"other", 1), "workload is 'other'"),
        (lambda data: data.replace(b"candidate", b"control", 1), "comparison is 'control'"),
        (lambda data: data + data.splitlines(keepends=True)[1], "2 rows stand for"),
        (lambda data: data.splitlines(keepends=True)[0], "it has no rows"),
        (lambda data: data[:-1], "does not end with a newline"),
    ],
)
def test_tensors_of_something_else_are_named(home: Home, edit: Callable[[bytes], bytes], words: str) -> None:
    assert words in edit_tensors(home, edit)


def second_line(edit: Callable[[list[bytes]], None]) -> Callable[[bytes], bytes]:
    """Return an edit of the fields of the first row; `TENSORS` says in which order they are."""

    def change(data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        fields = lines[1].split(b",")
        edit(fields)
        return b"".join([lines[0], b",".join(fields), *lines[2:]])

    return change


def put(**changed: str) -> Callable[[bytes], bytes]:
    def edit(fields: list[bytes]) -> None:
        for name, text in changed.items():
            fields[TENSORS.header.index(name)] = text.encode()

    return second_line(edit)


def another_tensor(reference: str, value: str, rel_l2: str) -> Callable[[bytes], bytes]:
    """Return an edit that adds a tensor to the first row's quantity."""

    def change(data: bytes) -> bytes:
        edit = put(tensor="head", reference=reference, value=value, rel_l2=rel_l2)
        return data + edit(data).splitlines(keepends=True)[1]

    return change


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (put(reference="8.00001"), "reference is 8.0 in numerical.csv, the norm of its 1 tensors is 8.00001"),
        (put(value="0.011"), "value is 0.01 in numerical.csv, the norm of its 1 tensors is 0.011"),
        (put(reference=""), "reference is 8.0 in numerical.csv, the norm of its 1 tensors is not finite"),
        (put(rel_l2="0.5"), "with 0.00125 in numerical.csv; here it is 0.5, the worst is 0.5"),
        (put(rel_l2=""), "here it is not finite, the worst is not finite"),
        (put(tensor="head"), "here it has no row"),
        (put(update="9"), "in update 9 has no row in numerical.csv"),
        (put(update="9"), "in update 1 has no row in this table"),
        (another_tensor("6.0", "0.0", "0.0"), "the norm of its 2 tensors is 10.0"),
        (another_tensor("0.0", "0.0", "0.002"), "here it is 0.00125, the worst is 0.002"),
    ],
)
def test_tensors_that_do_not_add_up_to_the_cases_rows_are_named(
    home: Home, edit: Callable[[bytes], bytes], words: str
) -> None:
    assert words in edit_tensors(home, edit)


@pytest.mark.parametrize("edit", [put(reference="8.000000000001"), another_tensor("0.0", "0.0", "0.0")])
def test_tensors_that_add_up_but_for_rounding_have_no_finding(home: Home, edit: Callable[[bytes], bytes]) -> None:
    assert edit_tensors(home, edit) == ""


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda _: b"workload\n", "not a gzip file"),
        (lambda data: data[:-1], "cut off"),
        (lambda data: data + b"x", "1 bytes follow"),
        (lambda data: data + data, "bytes follow the gzip file"),
    ],
)
def test_what_is_not_one_whole_gzip_file_is_named(home: Home, edit: Callable[[bytes], bytes], words: str) -> None:
    home.reseal(CASE, "tensors.csv.gz", edit)
    assert words in findings(home)


def test_a_small_file_that_unpacks_to_a_huge_one_is_not_unpacked() -> None:
    packed = gzip.compress(b"0" * 100_000)
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        case_tensors.unpack(packed, most_bytes=1000)
    assert case_tensors.unpack(packed, most_bytes=100_000) == b"0" * 100_000


def test_tensors_that_were_read_before_are_hashed_and_not_parsed_again(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(home)
    monkeypatch.setattr(case_tensors, "unpack", lambda *_: pytest.fail("parsed again"))
    assert run(home).findings == ()
    home.folder(CASE).tensors.write_bytes(b"x")
    assert "changed after it was sealed" in findings(home)


def test_a_completed_case_needs_its_tensors(home: Home) -> None:
    home.folder(CASE).tensors.unlink()
    home.seal(home.slot(CASE), 1, documents.Receipt.read(home.folder(CASE).receipt).allocation)
    assert "completed without tensors.csv.gz" in findings(home)


def test_tensors_that_were_left_behind_count_as_there_for_a_case_and_for_nothing_else(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = home.slot("candidate/pair/sync-b4/r1")
    home.folder(pair.slot).tensors.write_bytes(home.folder(CASE).tensors.read_bytes())
    home.seal(pair, 1, documents.Receipt.read(home.folder(pair.slot).receipt).allocation)
    assert "a pair compares no tensors" in findings(home)
    monkeypatch.setattr(LeftBehind, "covers", lambda _self, path, *_about: not os.path.lexists(path))
    for slot in (CASE, pair.slot):
        home.folder(slot).tensors.unlink()
    (finding,) = run(home, rebuild=True).findings
    assert finding.what == "a pair compares no tensors"


def test_a_completed_case_says_how_it_was_run(home: Home) -> None:
    reseal_receipt(home, CASE, lambda receipt: receipt.replace(case=None))
    assert "does not say how the case was run" in findings(home)


def test_a_case_on_other_inputs_than_planned_is_named(home: Home) -> None:
    def other(receipt: documents.Receipt) -> documents.Receipt:
        assert receipt.case is not None
        return receipt.replace(case=receipt.case.replace(inputs_sha256="0" * 64))

    reseal_receipt(home, CONTROL, other)
    assert f"it ran on the inputs {'0' * 64}, planned were {home.inputs_sha256('sync-b4')}" in findings(home)


def test_a_case_of_another_number_of_workers_than_were_recorded_is_named(home: Home) -> None:
    def two(receipt: documents.Receipt) -> documents.Receipt:
        assert receipt.case is not None
        return receipt.replace(case=receipt.case.replace(num_workers=2))

    reseal_receipt(home, CASE, two)
    assert "it compared 2 workers, and numerical.csv has rows of the workers 0" in findings(home)


def test_a_worker_that_is_missing_from_receipt_and_rows_alike_is_named_by_the_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = freeze(tmp_path / "home", SMALL[:1], repeats=1, numerical=NumericalRules())
    one = home.inputs("sync-b4")
    two = one.replace(state=(one.state[0], one.state[0].replace(worker=1)))
    monkeypatch.setattr(Home, "inputs", lambda *_: two)
    for slot in home.protocol.slots:
        if slot.side == "baseline":
            home.attempt(slot)
    assert "it compared 1 workers, the pilot recorded 2" in findings(home)


def test_all_cases_of_a_workload_run_on_what_its_first_completed_pilot_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = freeze(tmp_path / "home", SMALL[:1], repeats=1, numerical=NumericalRules())
    for slot in home.protocol.slots:
        if slot.side == "baseline" and slot.kind != "control_case":
            home.attempt(slot)
    assert run(home).findings == ()
    canonical, other = home.inputs_sha256("sync-b4"), "0" * 64
    monkeypatch.setattr(Home, "inputs_sha256", lambda *_: other)
    home.attempt(home.slot(CONTROL))
    assert f"it ran on the inputs {other}, the pilot recorded {canonical}" in findings(home)


def test_a_void_case_too_ran_on_what_some_pilot_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = freeze(tmp_path / "home", SMALL[:1], repeats=1, numerical=NumericalRules())
    for slot in home.protocol.slots:
        if slot.side == "baseline" and slot.kind != "control_case":
            home.attempt(slot)
    other = "0" * 64
    monkeypatch.setattr(Home, "inputs_sha256", lambda *_: other)
    home.attempt(home.slot(CONTROL))
    void = documents.Amended(
        what="node",
        changed="a fan",
        void=(CONTROL,),
        voided_attempts={CONTROL: 1},
        valid="all other slots",
        keep_reason="other nodes",
        by="me",
        reason="it broke",
        after_report=False,
        shown=(),
        platform=False,
    )
    home.append("amended", void.to_json())
    assert f"it ran on the inputs {other}, which no pilot recorded" in findings(home)


def test_a_pair_that_says_how_a_case_was_run_is_named(home: Home) -> None:
    reseal_receipt(home, "candidate/pair/sync-b4/r1", lambda receipt: receipt.replace(case=home.case("sync-b4")))
    assert "a pair that says how a case was run" in findings(home)


def test_a_case_that_failed_needs_nothing(tmp_path: Path) -> None:
    home = freeze(tmp_path / "home", SMALL[:1], repeats=1, numerical=NumericalRules())
    home.attempt(home.slot(PILOT))
    home.attempt(home.slot(CONTROL), ending=Ending.STATE_MISMATCH, reason="head: torch.float16")
    collection = run(home)
    assert collection.findings == ()
    assert query(
        home, "SELECT ending, reason FROM attempts JOIN receipts USING (slot, attempt) WHERE slot LIKE '%case%'"
    ) == [("state_mismatch", "head: torch.float16")]


# --- canonical inputs -------------------------------------------------------------------------------------------------


def state_file(home: Home) -> Path:
    return home.paths.input_tensors(home.inputs("sync-b4").state[0].sha256)


def test_a_missing_input_is_named(home: Home) -> None:
    state_file(home).unlink()
    assert "a completed pilot lists it, and it is gone" in findings(home)
    home.paths.inputs_listing(home.inputs_sha256("sync-b4")).unlink()
    assert f"{home.inputs_sha256('sync-b4')}.json" in findings(home)


def test_an_input_of_another_size_is_named(home: Home) -> None:
    state_file(home).write_bytes(b"short")
    assert "5 bytes, the pilot listed" in findings(home)


def test_an_input_that_was_changed_is_found_by_its_digest_even_with_its_old_time(home: Home) -> None:
    path = state_file(home)
    assert run(home).findings == ()
    before = path.stat()
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"\xff")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert "it was changed" in findings(home)
    path.write_bytes(data)
    assert findings(home) == ""


def test_an_input_is_hashed_once_and_again_when_it_changed_or_the_cache_is_rebuilt(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []
    hash_file = files.sha256_regular

    def note(path: Path) -> str:
        hashed.append(path.name)
        return hash_file(path)

    monkeypatch.setattr(files, "sha256_regular", note)
    run(home)
    first = sorted(hashed)
    assert first == sorted(path.name for path in home.paths.inputs.iterdir())
    run(home)
    assert sorted(hashed) == first
    os.utime(state_file(home))
    run(home)
    assert sorted(hashed) == sorted([*first, state_file(home).name])
    hashed.clear()
    run(home, rebuild=True)
    assert sorted(hashed) == first


def test_an_input_that_is_a_link_is_named(home: Home, tmp_path: Path) -> None:
    path = state_file(home)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert "not a regular file" in findings(home)


@pytest.mark.parametrize("name", ["notes.txt", f"{'0' * 64}.safetensors", f"{'0' * 64}.json"])
def test_a_file_that_nobody_listed_is_named(home: Home, name: str) -> None:
    (home.paths.inputs / name).write_bytes(b"")
    assert "no pilot listed it" in findings(home)


def test_what_a_killed_writer_left_is_no_finding(home: Home) -> None:
    (home.paths.inputs / ".x.tmp").write_bytes(b"half")
    assert findings(home) == ""


@pytest.mark.parametrize("ending", [None, Ending.TIME_LIMIT])
def test_what_a_pilot_without_a_list_wrote_is_no_finding(tmp_path: Path, ending: Ending | None) -> None:
    home = freeze(tmp_path / "home", SMALL[:1], repeats=1, numerical=NumericalRules())
    slot = home.slot(PILOT)
    allocation = home.plan(slot)
    if ending is not None:
        home.run(slot, 1, allocation, ending=ending, reason="its time was over")
    home.paths.inputs.mkdir()
    home.paths.input_tensors("0" * 64).write_bytes(b"")
    assert findings(home) == ""
    (home.paths.inputs / "notes.txt").write_bytes(b"")
    assert "notes.txt: no pilot listed it" in findings(home)


def test_a_completed_pilot_of_the_baseline_needs_a_list(home: Home) -> None:
    home.folder(PILOT).inputs.unlink()
    home.seal(home.slot(PILOT), 1, documents.Receipt.read(home.folder(PILOT).receipt).allocation)
    assert "completed without inputs.json" in findings(home)


def test_a_candidates_pilot_records_no_inputs(home: Home) -> None:
    slot = home.slot("candidate/pilot/sync-b4")
    folder = home.folder(slot.slot)
    folder.inputs.write_bytes(home.inputs("sync-b4").to_bytes())
    home.seal(slot, 1, documents.Receipt.read(folder.receipt).allocation)
    assert "only a pilot of the baseline records inputs" in findings(home)


def test_a_campaign_without_the_family_takes_no_inputs(tmp_path: Path) -> None:
    home = build_home(tmp_path / "home", SMALL[:1], repeats=1)
    home.paths.inputs.mkdir()
    home.paths.input_tensors("0" * 64).write_bytes(b"")
    assert "no pilot listed it" in findings(home)


PROTOCOL_CHANGES: dict[str, tuple[Callable[[documents.Inputs], documents.Inputs], str]] = {
    "workload": (lambda one: one.replace(workload="other"), "workload is 'other'"),
    "configuration": (lambda one: one.replace(config_sha256="0" * 64), "config_sha256 is"),
    "moments": (lambda one: one.replace(moments="warm"), "moments is 'warm', the protocol says 'fresh'"),
    "step": (lambda one: one.replace(step=3), "step is 3, the protocol says 0"),
    "a batch too few": (lambda one: one.replace(batches=one.batches[:-1]), "not for 1 to 5"),
    "a batch twice": (lambda one: one.replace(batches=(*one.batches, one.batches[0])), "not for 1 to 5"),
    "no state": (lambda one: one.replace(state=()), "not whole: nothing"),
    "a state twice": (lambda one: one.replace(state=one.state * 2), "not whole"),
    "a worker left out": (lambda one: one.replace(state=(one.state[0].replace(worker=1),)), "not whole"),
    "moments although fresh": (
        lambda one: one.replace(state=(*one.state, one.state[0].replace(quantity="exp_avg"))),
        "exp_avg of worker 0",
    ),
    "no digest": (lambda one: one.replace(state=(one.state[0].replace(sha256="../x"),)), "'../x' is not a SHA-256"),
}


@pytest.mark.parametrize("case", PROTOCOL_CHANGES)
def test_a_list_that_is_not_what_the_protocol_asks_for_is_named(home: Home, case: str) -> None:
    change, words = PROTOCOL_CHANGES[case]
    found = inputs.check_listing(change(home.inputs("sync-b4")), "sync-b4", home.protocol, "inputs.json")
    assert words in "\n".join(map(str, found))


def test_a_right_list_has_no_finding(home: Home) -> None:
    assert list(inputs.check_listing(home.inputs("sync-b4"), "sync-b4", home.protocol, "inputs.json")) == []


def test_warm_moments_are_listed_with_the_step_of_the_warm_up(home: Home) -> None:
    protocol = home.protocol.replace(numerical=NumericalRules(moments="warm"))
    one = home.inputs("sync-b4")
    moments = [one.state[0].replace(quantity=name) for name in inputs.MOMENTS]
    warm = one.replace(moments="warm", step=20, state=(*one.state, *moments))
    assert list(inputs.check_listing(warm, "sync-b4", protocol, "inputs.json")) == []
    lacking = warm.replace(state=warm.state[:-1])
    assert "not whole" in "\n".join(map(str, inputs.check_listing(lacking, "sync-b4", protocol, "inputs.json")))


def test_the_number_of_tensors_is_read_from_the_header(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(tensor_file("embedding"))
    assert inputs.num_tensors(path) == 1


# --- what the report is told ------------------------------------------------------------------------------------------


def test_the_cases_of_the_provenance_are_the_completed_ones_in_order(home: Home) -> None:
    receipts = run(home).receipts_read
    workloads = {home.real_slot(slot.slot): slot.workload for slot in home.protocol.slots}
    found = cases.summaries(receipts, workloads)
    assert [(one.workload, one.comparison) for one in found] == [
        ("packed-b4", "candidate"),
        ("packed-b4", "control"),
        ("sync-b4", "candidate"),
        ("sync-b4", "control"),
    ]
    assert found[0].tied == ("head = embedding",)
    assert (found[0].load_s, found[0].train_s, found[0].compare_s, found[0].compared_bytes) == (0.25, 1.5, 0.5, 4096)


def test_the_header_of_the_packed_table_is_that_of_the_formats(home: Home) -> None:
    first = gzip.decompress(home.folder(CASE).tensors.read_bytes()).splitlines()[0].decode()
    assert first == ",".join(TENSORS.header)


def test_another_candidates_case_uses_the_same_inputs(home: Home) -> None:
    freeze_candidate(home, "c" + "e" * 12, "e" * 64)
    for slot in home.protocol.slots:
        if slot.side == "candidate" and slot.workload == "sync-b4":
            home.attempt(slot)
    assert findings(home) == ""
