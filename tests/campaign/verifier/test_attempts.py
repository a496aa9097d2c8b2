from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acceptance.formats import Ending
from campaign.verifier import attempts, matrix, receipts
from campaign.verifier.findings import State
from tests.support.home import SMALL, Home
from tests.support.lifelike import LifelikeHome, freeze_lifelike
from tests.support.verifying import edit_document, edit_ledger, make_checks, reseal, tampered

PAIR = "attempts/ccccccccccccc/pair/sync-b4/r1/1"
OTHER = "attempts/ccccccccccccc/pair/sync-b4/r2/1"
CONTROL = "attempts/baseline/control/sync-b4/r1/1"
RUN = "attempts/baseline/run/sync/s45/1/segments/1"


def found(root: Path) -> list[str]:
    return [f"{one.where}: {one.what}" for one in tampered(make_checks(root, matrix.check, attempts.check))]


def flip(path: Path) -> None:
    """Change one bit and keep size and times."""
    times = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_home_in_which_nothing_is_wrong_is_intact(whole_home: Path) -> None:
    checks = make_checks(whole_home, matrix.check, attempts.check)
    assert [check.state for check in checks.made] == [State.INTACT, State.INTACT]


@pytest.mark.parametrize(
    "path",
    [
        f"{PAIR}/receipt.json",
        f"{PAIR}/start.json",
        f"{PAIR}/harness.log",
        f"{PAIR}/pairs.csv",
        f"{PAIR}/windows.csv",
        f"{RUN}/curves.csv",
        "attempts/ccccccccccccc/case/sync-b4/1/tensors.csv.gz",
        "attempts/baseline/pilot/sync-b4/1/inputs.json",
        "allocations/a0001/allocation.json",
    ],
)
def test_a_bit_that_flips_is_found_whatever_its_size_and_time(home: Path, path: str) -> None:
    flip(home / path)
    assert [one for one in found(home) if one.startswith(path)]


@pytest.mark.parametrize("name", ["receipt.json", "start.json", "windows.csv", "harness.log"])
def test_a_file_that_is_gone_is_found(home: Path, name: str) -> None:
    (home / PAIR / name).unlink()
    assert [one for one in found(home) if one.startswith(PAIR)]


@pytest.mark.parametrize("name", ["receipt.json", "start.json", "windows.csv", "harness.log"])
def test_a_link_in_place_of_a_file_is_found(home: Path, name: str) -> None:
    path = home / PAIR / name
    path.rename(home.parent / name)
    path.symlink_to(home.parent / name)
    assert [one for one in found(home) if one.startswith(PAIR)]


@pytest.mark.parametrize("name", ["notes.txt", ".hidden", "receipt.json.bak"])
def test_a_file_that_no_receipt_seals_is_found(home: Path, name: str) -> None:
    (home / PAIR / name).write_bytes(b"new\n")
    assert found(home) == [f"{PAIR}/{name}: not sealed by the receipt: added later"]


def test_a_folder_that_is_added_to_an_attempt_is_found(home: Path) -> None:
    (home / PAIR / "more").mkdir()
    assert found(home) == [f"{PAIR}/more: not sealed by the receipt: added later"]


def test_what_a_killed_writer_left_is_nothing(home: Path) -> None:
    (home / PAIR / ".receipt.json.1.tmp").write_bytes(b"")
    assert found(home) == []


def test_swapped_folders_are_found(home: Path) -> None:
    (home / PAIR).rename(home / "aside")
    (home / OTHER).rename(home / PAIR)
    (home / "aside").rename(home / OTHER)
    assert {one.partition("/1/")[0] for one in found(home)} == {PAIR[:-2], OTHER[:-2]}


def test_an_attempt_that_vanished_whole_is_found_by_the_ledger(home: Path) -> None:
    shutil.rmtree(home / PAIR)
    (line,) = found(home)
    assert "collected with SHA-256" in line
    assert line.endswith("it is gone")


def test_an_attempt_that_vanished_is_found_by_its_allocation_before_anybody_saw_it(home: Path) -> None:
    edit_ledger(home, lambda entries: entries.pop())
    shutil.rmtree(home / PAIR)
    (line,) = found(home)
    assert "its allocation wrote a receipt with SHA-256" in line


def test_a_receipt_that_its_allocation_did_not_write_is_planted(home: Path) -> None:
    allocation = json.loads((home / PAIR / "receipt.json").read_bytes())["allocation"]
    edit_document(home / f"allocations/{allocation}/ended.json", lambda ended: ended["receipts"].clear())
    assert found(home) == [
        f"{PAIR}/receipt.json: its allocation ended without writing this receipt: somebody else put it there"
    ]


def test_a_receipt_that_no_act_names_yet_is_incomplete(home: Path) -> None:
    edit_ledger(home, lambda entries: entries.pop())
    checks = make_checks(home, matrix.check, attempts.check)
    assert checks.made[1].state is State.INCOMPLETE
    assert all("no act of the ledger names this receipt yet" in one.what for one in checks.findings)


def test_a_receipt_that_no_act_names_cannot_be_in_a_closed_campaign(home: Path) -> None:
    edit_ledger(home, lambda entries: entries.__setitem__(-1, {"at": 0.0, "act": "closed", "data": {}}))
    assert all("the campaign was closed" in line for line in found(home))
    assert found(home)


# --- everything sealed again ------------------------------------------------------------------------------------------


def forge_start(key: str, value: Any) -> Callable[[Path], None]:
    return lambda root: edit_document(root / PAIR / "start.json", lambda start: start.update({key: value}))


def forge_receipt(key: str, value: Any) -> Callable[[Path], None]:
    return lambda root: edit_document(root / PAIR / "receipt.json", lambda receipt: receipt.update({key: value}))


def forge_table(old: bytes, new: bytes, name: str = "pairs.csv") -> Callable[[Path], None]:
    def forge(root: Path) -> None:
        path = root / PAIR / name
        assert old in path.read_bytes()
        path.write_bytes(path.read_bytes().replace(old, new))

    return forge


def copy_windows(root: Path) -> None:
    text = (root / PAIR / "windows.csv").read_bytes()
    (root / OTHER / "windows.csv").write_bytes(text.replace(b",candidate,1,1,", b",candidate,2,1,"))


def copy_start(root: Path) -> None:
    at = json.loads((root / PAIR / "start.json").read_bytes())["at"]
    edit_document(root / OTHER / "start.json", lambda start: start.update(at=at))


def copy_durations(root: Path) -> None:
    receipt = json.loads((root / PAIR / "receipt.json").read_bytes())
    walls = [side["wall_s"] for side in receipt["sides"]]

    def edit(value: dict[str, Any]) -> None:
        value["elapsed_s"] = receipt["elapsed_s"]
        for side, wall_s in zip(value["sides"], walls, strict=True):
            side["wall_s"] = wall_s

    edit_document(root / OTHER / "receipt.json", edit)


def swap_sides(root: Path) -> None:
    path = root / PAIR / "receipt.json"
    edit_document(path, lambda value: [side.update(position=3 - side["position"]) for side in value["sides"]])


def drop_windows(root: Path) -> None:
    (root / PAIR / "windows.csv").unlink()
    edit_document(root / PAIR / "receipt.json", lambda value: value["files"].pop())


FORGED = {
    "slot": (forge_start("slot", "ccccccccccccc/pair/sync-b4/r2"), "slot"),
    "attempt": (forge_start("attempt", 2), "attempt"),
    "kind": (forge_receipt("kind", "solo"), "kind"),
    "allocation": (forge_receipt("allocation", "a0001"), "allocation"),
    "manifest": (forge_start("manifest_sha256", "0" * 64), "manifest_sha256"),
    "protocol": (forge_start("protocol_sha256", "0" * 64), "protocol_sha256"),
    "harness": (forge_start("harness_sha256", "0" * 64), "harness_sha256"),
    "threads": (forge_start("threads", 2), "threads"),
    "snapshot": (forge_start("snapshots", {"baseline": "b" * 64, "candidate": "b" * 64}), "snapshots.candidate"),
    "snapshots": (forge_start("snapshots", {"baseline": "b" * 64}), "does not name candidate"),
    "format": (forge_receipt("format", "receipt/2"), "does not know"),
    "ending": (forge_receipt("ending", "fine"), "ending"),
    "void": (forge_receipt("ending", "void"), "ending"),
    "one side": (forge_receipt("sides", []), "completed with no side"),
    "a case": (forge_receipt("case", {"inputs_sha256": "0" * 64}), "has the field 'case'"),
    "swapped sides": (swap_sides, "position"),
    "job": (
        lambda root: edit_document(root / PAIR / "start.json", lambda start: start["job"].update(job_id="9")),
        "job is",
    ),
    "boot": (
        lambda root: edit_document(root / PAIR / "start.json", lambda start: start["host"].update(boot_id="9")),
        "boot_id is",
    ),
    "path": (
        lambda root: edit_document(root / PAIR / "receipt.json", lambda value: value["sides"][0].update(path="0" * 12)),
        "sides[0].path",
    ),
    "node of a row": (forge_table(b",node1,", b",node2,"), "node is 'node2'"),
    "device of a row": (forge_table(b"Synthetic", b"Synthesised"), "device is"),
    "workload of a row": (forge_table(b"sync-b4,", b"sync-b8,", "windows.csv"), "workload is"),
    "attempt of a row": (forge_table(b",baseline,1,1,", b",baseline,2,1,", "windows.csv"), "attempt is"),
    "header": (forge_table(b"workload,", b"work,"), "the header is"),
    "newline": (lambda root: (root / PAIR / "pairs.csv").write_bytes(b"a\nb"), "no newline"),
    "copied windows": (copy_windows, "windows are those of"),
    "copied start": (copy_start, "time of the start are those of"),
    "copied durations": (copy_durations, "durations are those of"),
    "no windows": (drop_windows, "completed without windows.csv"),
}


@pytest.mark.parametrize("name", FORGED)
def test_what_was_forged_and_sealed_again_is_found(home: Path, name: str) -> None:
    forge, what = FORGED[name]
    forge(home)
    reseal(home)
    lines = found(home)
    assert lines
    assert all("/pair/" in line for line in lines)
    assert any(what in line for line in lines), lines


OF_STARTS = ("slot", "attempt", "segment", "allocation", "kind", "manifest_sha256", "protocol_sha256", "harness_sha256")
OF_RECEIPTS = ("slot", "attempt", "segment", "allocation", "kind", "ending", "reason", "at", "elapsed_s", "sides")


@pytest.mark.parametrize(
    ("file", "name"),
    [
        *(("start.json", name) for name in (*OF_STARTS, "threads", "at", "snapshots")),
        *(("receipt.json", name) for name in OF_RECEIPTS),
    ],
)
def test_every_field_that_says_whose_an_attempt_is_is_held_to_it(home: Path, file: str, name: str) -> None:
    assert name in json.loads((home / PAIR / file).read_bytes())
    edit_document(home / PAIR / file, lambda value: value.update({name: ["made up"]}))
    reseal(home)
    lines = found(home)
    assert any(line.startswith(f"{PAIR}/{file}: {name}") for line in lines), lines


def count_rows(number: int | None) -> Callable[[dict[str, Any]], None]:
    def count(receipt: dict[str, Any]) -> None:
        (table,) = (one for one in receipt["files"] if one["name"] == "pairs.csv")
        table["rows"] = number

    return count


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        (lambda receipt: receipt.update(start_sha256="0" * 64), "receipt.json: start_sha256: is "),
        (count_rows(3), "pairs.csv: 2 rows, the receipt says 3"),
        (count_rows(None), "pairs.csv: 2 rows, the receipt says None"),
        (lambda receipt: receipt["files"].append(receipt["files"][0]), "twice"),
        (lambda receipt: receipt["sides"].append(receipt["sides"][0]), "sides: names a side twice"),
        (
            lambda receipt: receipt["sides"][0].update(side="baseline_again"),
            "baseline_again ran, which was not planned",
        ),
        (lambda receipt: receipt.update(elapsed_s=-1.0), "elapsed_s: is a negative duration"),
    ],
)
def test_a_receipt_that_was_forged_and_named_again_is_found(
    home: Path, monkeypatch: pytest.MonkeyPatch, edit: Callable[[dict[str, Any]], object], what: str
) -> None:
    edit_document(home / PAIR / "receipt.json", edit)
    monkeypatch.setattr("tests.support.verifying._seal", lambda _receipt, _folder: None)
    reseal(home)
    lines = found(home)
    assert any(what in line for line in lines), lines


def test_one_broken_receipt_hides_nothing_of_the_others(home: Path) -> None:
    (home / PAIR / "receipt.json").write_bytes(b'{"format": 1, "format": 2}')
    flip(home / OTHER / "windows.csv")
    assert {line.split("/1/")[0] for line in found(home)} == {PAIR[:-2], OTHER[:-2]}


def test_a_duplicate_key_is_found_although_it_was_sealed(home: Path) -> None:
    path = home / PAIR / "start.json"
    path.write_bytes(path.read_bytes().replace(b'"kind": "pair"', b'"kind": "solo",\n  "kind": "pair"'))
    reseal(home)
    assert any("duplicate key 'kind'" in line for line in found(home))


def test_started_of_another_job_than_the_ledger_submitted_is_found(home: Path) -> None:
    edit_document(home / "allocations/a0001/started.json", lambda value: value["job"].update(job_id="9"))
    assert any(line.startswith("allocations/a0001/started.json: job") for line in found(home))


def test_a_task_of_a_job_array_is_held_to_the_place_of_its_allocation(home: Path) -> None:
    def be_array(entries: list[dict[str, Any]]) -> None:
        (submitted,) = (
            one["data"]
            for one in entries
            if one["act"] == "submitted" and one["data"]["submission"] == "synthetic/a0001"
        )
        submitted.update(array=True, job="77")

    def be_task(index: str) -> None:
        for path in (home / "allocations/a0001/started.json", *home.glob("attempts/**/start.json")):
            if json.loads(path.read_bytes())["allocation"] == "a0001":
                edit_document(path, lambda value: value["job"].update(array_job_id="77", array_task_id=index))
        reseal(home)

    edit_ledger(home, be_array)
    be_task("0")
    assert found(home) == []
    be_task("1")
    assert any("is local job 77_1, the ledger says" in line for line in found(home))


@pytest.mark.parametrize("file", ["started.json", "ended.json"])
@pytest.mark.parametrize(("name", "what"), [("format", "has the format 'a0002'"), ("allocation", "allocation: is ")])
def test_what_another_allocation_left_is_found(home: Path, file: str, name: str, what: str) -> None:
    edit_document(home / "allocations/a0001" / file, lambda value: value.update({name: "a0002"}))
    assert any(line.startswith(f"allocations/a0001/{file}: {what}") for line in found(home))


def test_an_attempt_without_started_is_found(home: Path) -> None:
    (home / "allocations/a0001/started.json").unlink()
    assert any(line.startswith("allocations/a0001/started.json: there is none") for line in found(home))


def test_what_ran_without_being_submitted_is_incomplete_and_tampered_once_nobody_got_it(home: Path) -> None:
    edit_ledger(home, lambda entries: entries.__delitem__(2))
    checks = make_checks(home, matrix.check, attempts.check)
    assert [one.state for one in checks.findings] == [State.INCOMPLETE]
    refused = {"at": 0.0, "act": "not_submitted", "data": {"submission": "synthetic/a0001", "reason": "no"}}
    edit_ledger(home, lambda entries: entries.insert(2, refused))
    (line,) = found(home)
    assert "nobody got its job" in line


def test_withheld_files_count_as_present_with_their_digest(home: Path) -> None:
    path = home / PAIR / "harness.log"
    sealed = json.loads((home / PAIR / "receipt.json").read_bytes())["files"][0]
    path.unlink()
    known = {f"{PAIR}/harness.log": (sealed["bytes"], sealed["sha256"])}
    assert tampered(make_checks(home, matrix.check, attempts.check, withheld=known)) == []
    other = {f"{PAIR}/harness.log": (sealed["bytes"], "0" * 64)}
    assert tampered(make_checks(home, matrix.check, attempts.check, withheld=other))


# --- attempts without a receipt, and further ones ---------------------------------------------------------------------


@pytest.fixture
def begun(tmp_path: Path) -> LifelikeHome:
    return freeze_lifelike(tmp_path / "home", SMALL[:1], repeats=1)


def states(home: Home) -> list[State]:
    return [one.state for one in make_checks(home.paths.root, matrix.check, attempts.check).findings]


SOLO = "baseline/solo/sync-b4/r1"


def test_a_running_attempt_is_incomplete(begun: LifelikeHome) -> None:
    slot = begun.slot(SOLO)
    begun.start(slot, 1, begun.plan(slot))
    assert states(begun) == [State.INCOMPLETE]


def test_an_attempt_that_ended_without_a_receipt_is_intact(begun: LifelikeHome) -> None:
    slot = begun.slot(SOLO)
    allocation = begun.plan(slot)
    begun.start(slot, 1, allocation)
    begun.end(slot, 1, allocation, Ending.NODE_FAIL)
    assert states(begun) == []


def test_an_attempt_that_ended_and_sealed_late_counts_by_its_receipt(begun: LifelikeHome) -> None:
    slot = begun.slot(SOLO)
    allocation = begun.plan(slot)
    begun.end(slot, 1, allocation, Ending.LOST)
    begun.run(slot, 1, allocation)
    begun.attempt(slot, 2)
    begun.collect()
    assert states(begun) == []


def test_an_ending_without_a_receipt_cannot_follow_on_the_receipt(begun: LifelikeHome) -> None:
    slot = begun.slot(SOLO)
    allocation = begun.attempt(slot)
    begun.collect()
    begun.end(slot, 1, allocation, Ending.LOST)
    assert states(begun) == [State.TAMPERED]


@pytest.mark.parametrize(
    ("endings", "is_allowed"),
    [
        ([Ending.NODE_FAIL], True),
        ([Ending.NODE_FAIL, Ending.TIME_LIMIT], True),
        ([Ending.WINDOW_SHORT], True),
        ([Ending.WINDOW_SHORT, Ending.WINDOW_SHORT], False),
        ([Ending.NODE_FAIL, Ending.NODE_FAIL, Ending.NODE_FAIL], False),
        ([Ending.CRASH], False),
        ([Ending.COMPLETED], False),
    ],
)
def test_a_further_attempt_is_held_to_the_retry_rule(
    begun: LifelikeHome, endings: list[Ending], *, is_allowed: bool
) -> None:
    slot = begun.slot(SOLO)
    for number, ending in enumerate([*endings, Ending.COMPLETED], start=1):
        begun.attempt(slot, number, ending=ending)
    begun.collect()
    assert states(begun) == ([] if is_allowed else [State.TAMPERED])


def test_a_further_attempt_needs_an_ending_of_the_one_before(begun: LifelikeHome) -> None:
    slot = begun.slot(SOLO)
    begun.plan(slot)
    begun.attempt(slot, 2)
    begun.collect()
    assert states(begun) == [State.INCOMPLETE, State.TAMPERED]


def test_the_endings_are_those_of_the_evidence_tables() -> None:
    assert sorted(receipts.ENDINGS) == sorted(one.value for one in Ending if one is not Ending.VOID)
