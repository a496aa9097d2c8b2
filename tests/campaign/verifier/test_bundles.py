"""What the verifier makes of allocations that were made where the driver does not reach."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from campaign import documents, files
from campaign.detached.ingest import abandon, ingest
from campaign.frozen import read_frozen
from campaign.submission.desk import open_desk
from campaign.verifier import attempts, bundles, inputs, matrix, names
from campaign.verifier.findings import Checks, Finding, State
from tests.support.bundles import PACKED, PROD, SYNC, Handmade, edit, write_bundle, write_pilots
from tests.support.home import Home, freeze
from tests.support.verifying import edit_ledger, make_checks, tampered

Entries = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing wait for the disk: what a loss of power leaves is not tried here."""
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return freeze(tmp_path / "home", numerical=documents.NumericalRules())


@pytest.fixture
def pilots(home: Home, tmp_path: Path) -> Handmade:
    return write_pilots(home, tmp_path / "bundle")


def take_in(home: Home, path: Path) -> None:
    ingest(open_desk(home.paths, read_frozen(home.paths), time.time), path)


@pytest.fixture
def back(home: Home, pilots: Handmade) -> Home:
    """A home into which a bundle with a call that was killed and one that went on came back."""
    pilots.call("a0001", make=[0], is_killed=True)
    pilots.call("a0001", make=[1])
    pilots.call("a0002")
    take_in(home, pilots.paths.root)
    return home


def verified(home: Home) -> Checks:
    return make_checks(home.paths.root, matrix.check, bundles.check, attempts.check, inputs.check)


def remarks(checks: Checks, name: str = "bundles") -> str:
    return "\n".join(line for one in checks.made if one.name == name for line in one.remarks)


def of_bundles(checks: Checks) -> list[Finding]:
    """Return the faults, but for those of every synthetic home: its plans have keys, and its attempts times, alike."""
    return [one for one in tampered(checks) if not (one.what.startswith("key: ") or one.what.endswith(": copied"))]


def found(home: Home) -> str:
    return "\n".join(f"{one.where}: {one.what}" for one in of_bundles(verified(home)))


def test_what_came_back_is_whole(back: Home) -> None:
    checks = verified(back)
    assert found(back) == ""
    assert remarks(checks) == "1 bundles were written, 1 of them came back"
    assert len([one for one in checks.findings if one.state is State.INCOMPLETE]) == 0


def test_a_bundle_that_never_came_back_is_named(home: Home, pilots: Handmade) -> None:
    checks = verified(home)
    assert f"bundle {pilots.id} (line 3) never came back: nobody knows what was made of it" in remarks(checks)
    assert {one.state for one in checks.findings if one.check == "attempts"} == {State.INCOMPLETE}
    abandon(open_desk(home.paths, read_frozen(home.paths), time.time), pilots.id, "the machine is gone")
    checks = verified(home)
    assert "never came back, and was abandoned in line 4" in remarks(checks)
    assert [one for one in checks.findings if one.check == "attempts"] == []


def test_files_that_were_left_behind_are_held_to_their_digests(home: Home, pilots: Handmade, tmp_path: Path) -> None:
    pilots.call("a0001")
    take_in(home, pilots.pack(tmp_path / "small.tar", "attempts/*.log", "inputs/*.safetensors"))
    checks = verified(home)
    assert found(home) == ""
    assert "4 files" in remarks(checks)
    assert "were left behind" in remarks(checks)
    assert {one.name: one.state for one in checks.made}["bundles"] is State.NOT_CHECKED
    (home.folder(SYNC).root / "harness.log").write_bytes(b"do?e\n")
    assert "changed after it was sealed: its SHA-256" in found(home)


def _ingested(entries: Entries) -> dict[str, Any]:
    data: dict[str, Any] = next(entry["data"] for entry in entries if entry["act"] == "ingested")
    return data


def _swap_left(entries: Entries) -> None:
    path = f"attempts/{SYNC}/1/harness.log"
    _ingested(entries)["left"][path] = ["0" * 64, 5]


def _leave_receipt(entries: Entries) -> None:
    _ingested(entries)["left"][f"attempts/{SYNC}/1/receipt.json"] = ["0" * 64, 5]


def test_a_digest_of_what_was_left_behind_is_the_sealed_one(home: Home, pilots: Handmade, tmp_path: Path) -> None:
    pilots.call("a0001")
    take_in(home, pilots.pack(tmp_path / "small.tar", "attempts/*.log"))
    edit_ledger(home.paths.root, _swap_left)
    assert "harness.log: changed after it was sealed" in found(home)


ACTS: dict[str, tuple[Callable[[Entries], object], str]] = {
    "another bundle": (lambda entries: _ingested(entries).update(bundle="f" * 24), "bundle: is"),
    "a bundle that nobody wrote": (lambda entries: _ingested(entries).update(submission="x"), "which is no bundle"),
    "a strange receipt": (
        lambda entries: _ingested(entries)["receipts"].update({f"{SYNC}/7": "0" * 64}),
        "which was not planned in bundle",
    ),
    "a receipt less": (lambda entries: _ingested(entries)["receipts"].pop(f"{SYNC}/1"), "no act of the ledger says"),
    "an unknown field": (lambda entries: _ingested(entries).update(more=1), "unknown field 'more'"),
    "no word on the end": (lambda entries: _ingested(entries).pop("complete"), "has no field 'complete'"),
    "complete too early": (lambda entries: _ingested(entries).update(complete=False), "complete: says otherwise"),
    "a receipt left behind": (_leave_receipt, "cannot be a file that was left behind"),
    "a record of nobody": (
        lambda entries: _ingested(entries)["records"].update({"allocations/a9/ended.json": "0" * 64}),
        "which no allocation of the bundle leaves",
    ),
    "a record less": (
        lambda entries: _ingested(entries)["records"].pop("allocations/a0001/calls/2.json"),
        "no act of the ledger says that this came back",
    ),
    "no calls": (
        lambda entries: [
            _ingested(entries)["records"].pop(name)
            for name in list(_ingested(entries)["records"])
            if "a0001/calls" in name
        ],
        "no call of the allocation came back",
    ),
    "an abandoned bundle": (
        lambda entries: entries.insert(3, {**entries[2], "act": "cancelled", "data": _cancelled("a0002")}),
        "was abandoned in line 4",
    ),
}


def _cancelled(name: str) -> dict[str, Any]:
    return {"allocations": [name], "reason": "why"}


@pytest.mark.parametrize("name", list(ACTS))
def test_an_act_that_cannot_be_is_found(back: Home, name: str) -> None:
    change, said = ACTS[name]
    edit_ledger(back.paths.root, change)
    assert said in found(back) + "".join(one.what for one in verified(back).findings)


TAKEN_BACK: dict[str, tuple[dict[str, Any], str]] = {
    "receipts": ({"receipts": {}}, "has fewer or other receipts than line 4"),
    "records": ({"records": {}}, "has fewer or other records than line 4"),
    "begun": ({"begun": []}, f"does not name {SYNC}/1 any more, which line 4 does"),
}


@pytest.mark.parametrize("name", list(TAKEN_BACK))
def test_an_act_that_takes_something_back_is_found(home: Home, pilots: Handmade, name: str) -> None:
    fewer, said = TAKEN_BACK[name]

    def again(entries: Entries) -> None:
        (place, first) = next((n, entry) for n, entry in enumerate(entries) if entry["act"] == "ingested")
        entries.insert(place + 1, {**first, "data": {**first["data"], **fewer}})

    pilots.call("a0001", make=[], begin=[0], is_killed=True)
    pilots.call("a0001", make=[1])
    take_in(home, pilots.paths.root)
    assert found(home) == ""
    edit_ledger(home.paths.root, again)
    assert said in found(home)


FILES: dict[str, tuple[Callable[[Home], object], str]] = {
    "another boot": (lambda home: edit(home.paths.allocation("a0001").call(2), {"boot_id": "x"}), "not what came back"),
    "a call more": (
        lambda home: home.paths.allocation("a0001").call(3).write_bytes(b"{}"),
        "no act of the ledger says that this came back",
    ),
    "a stranger": (
        lambda home: (home.paths.allocation("a0001").calls / "notes.txt").write_bytes(b""),
        "no file of a call: added",
    ),
    "a call less": (lambda home: home.paths.allocation("a0001").call(1).unlink(), "is not there"),
}


@pytest.mark.parametrize("name", list(FILES))
def test_records_that_are_not_what_came_back_are_found(back: Home, name: str) -> None:
    change, said = FILES[name]
    change(back)
    assert said in found(back)


def renamed(home: Home, path: Path) -> Callable[[Entries], None]:
    """Return what makes the ledger name a record as it is now, as whoever can write everything would."""

    def edit_acts(entries: Entries) -> None:
        name = path.relative_to(home.paths.root).as_posix()
        _ingested(entries)["records"][name] = files.sha256_file(path)

    return edit_acts


FORGED: dict[str, tuple[int, dict[str, Any], str]] = {
    "another boot": (2, {"boot_id": "x"}, "boot_id: is"),
    "another host": (2, {"host": "x"}, "host: is"),
    "another bundle": (2, {"bundle": "x"}, "bundle: is"),
    "another allocation": (2, {"allocation": "a0002"}, "allocation: is"),
    "another number": (2, {"number": 1}, "number: is"),
    "another format": (2, {"format": "call/2"}, "does not know"),
    "a field more": (2, {"mine": 1}, "unknown field 'mine'"),
    "no interpreter": (2, {"python": {"harness": 3}}, "a text should be"),
}


@pytest.mark.parametrize("name", list(FORGED))
def test_a_call_that_the_ledger_names_is_held_to_the_others(back: Home, name: str) -> None:
    number, change, said = FORGED[name]
    path = back.paths.allocation("a0001").call(number)
    edit(path, change)
    edit_ledger(back.paths.root, renamed(back, path))
    assert said in found(back)


def test_a_call_that_claims_another_receipt_is_found(back: Home) -> None:
    path = back.paths.allocation("a0001").call_ended(2)
    edit(path, {"receipts": {f"{PACKED}/1": "0" * 64}})
    edit_ledger(back.paths.root, renamed(back, path))
    assert "which is not what came back" in found(back)


def test_a_call_that_is_missing_among_the_others_is_found(back: Home) -> None:
    folder = back.paths.allocation("a0001")
    folder.call(2).rename(folder.call(3))
    folder.call_ended(2).rename(folder.call_ended(3))

    def renumber(entries: Entries) -> None:
        records = _ingested(entries)["records"]
        for end in ("json", "ended.json"):
            records[f"allocations/a0001/calls/3.{end}"] = records.pop(f"allocations/a0001/calls/2.{end}")

    edit_ledger(back.paths.root, renumber)
    assert "the calls are not numbered from 1 without a gap" in found(back)


def test_a_receipt_that_no_call_wrote_is_found(back: Home) -> None:
    path = back.paths.allocation("a0002").call_ended(1)
    edit(path, {"receipts": {}})
    edit_ledger(back.paths.root, renamed(back, path))
    assert f"no call wrote the receipt of {PROD}/1" in found(back)


def test_results_that_nobody_ingested_are_no_evidence(home: Home, pilots: Handmade) -> None:
    pilots.call("a0001")
    folder = home.folder(SYNC).root
    folder.mkdir(parents=True)
    (folder / "start.json").write_bytes((pilots.there().folder(SYNC).root / "start.json").read_bytes())
    (said,) = [one for one in verified(home).findings if one.check == "bundles"]
    assert (said.state, said.where) == (State.INCOMPLETE, f"attempts/{SYNC}/1")
    home.append("closed", {})
    assert "no act of the ledger says that this was ingested, and the campaign was closed" in found(home)


def test_calls_belong_to_bundles_alone(home: Home) -> None:
    allocation = home.attempt(home.slot(SYNC))
    folder = home.paths.allocation(allocation).calls
    folder.mkdir()
    assert f"allocations/{allocation}/calls: no file of an allocation: added" in found(home)


def test_two_repeats_on_one_boot_are_told(home: Home, tmp_path: Path) -> None:
    home.attempt(home.slot(SYNC))
    solo = [home.slot(f"baseline/solo/sync-b4/r{repeat}") for repeat in (1, 2, 3)]
    made = write_bundle(home, tmp_path / "bundle", *([one] for one in solo))
    for allocation, boot_id in zip(made.slots, ("first", "first", "second"), strict=True):
        made.call(allocation, boot_id=boot_id)
    take_in(home, made.paths.root)
    said = remarks(verified(home))
    assert "sync-b4 (solo) in repeats 1, 2: those allocations were not obtained afresh" in said


def test_the_names_that_may_be_left_behind_are_those_of_run() -> None:
    from campaign.detached import run  # noqa: PLC0415 - the one test of it here

    for path in (
        f"inputs/{'a' * 64}.safetensors",
        f"inputs/{'a' * 64}.json",
        "inputs/x.safetensors",
        "attempts/a/b/1/receipt.json",
        "attempts/a/b/1/baseline.log",
        "attempts/a/b/1/tensors.csv.gz",
        "attempts/a/b/1/pairs.csv",
        "attempts/a/run/b/1/segments/1/checkpoints/40/files/x/y",
        "attempts/a/run/b/1/segments/1/checkpoints/40/checkpoint.json",
        "allocations/a1/harness.log",
        "ledger.jsonl",
    ):
        assert names.can_be_left(path) == run.may_be_left(path)
    assert not names.can_be_left("attempts/../x.log")
