from __future__ import annotations

import json
import os
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from campaign.documents import SlotKind
from campaign.verifier import history, matrix
from campaign.verifier.facts import Facts
from campaign.verifier.findings import State
from tests.support.verifying import edit_document, edit_ledger, facts_of, make_checks, reseal, tampered

Entries = list[dict[str, Any]]


def found(root: Path) -> list[str]:
    return [f"{one.where}: {one.what}" for one in tampered(make_checks(root, matrix.check))]


def test_a_home_in_which_nothing_is_wrong_is_intact(whole_home: Path) -> None:
    assert make_checks(whole_home, matrix.check).state is State.INTACT


def test_slots_and_everything_planned_are_handed_on_under_their_names_here(whole_home: Path) -> None:
    facts: Facts = facts_of(whole_home)
    with facts.digests:
        matrix.check(facts, make_checks(whole_home, lambda _facts, _check: None).made[0])
    assert set(facts.slots) == {planned.slot for planned in facts.planned.values()}
    assert facts.slots["ccccccccccccc/pair/sync-b4/r1"].candidate == "ccccccccccccc"


def test_the_kinds_of_slots_are_those_of_the_protocol() -> None:
    assert set(matrix.KINDS) == set(typing.get_args(SlotKind)) - {"trial"}


@pytest.mark.parametrize(
    "path",
    [
        "notes.txt",
        "attempts/notes.txt",
        "attempts/baseline/pilot/sync-b8/1/start.json",
        "attempts/baseline/pilot/sync-b4/2/start.json",
        "attempts/baseline/run/sync/s45/1/segments/2/start.json",
        "attempts/baseline/run/sync/s45/1/notes",
        "attempts/cdddddddddddd/pair/sync-b4/r1/1/start.json",
        "allocations/a9999/allocation.json",
        "allocations/a0001/notes",
        "evaluations/cdddddddddddd/verdict.json",
        "evaluations/ccccccccccccc/notes",
    ],
)
def test_what_nobody_planned_is_found_anywhere(home: Path, path: str) -> None:
    (home / path).parent.mkdir(parents=True, exist_ok=True)
    (home / path).write_bytes(b"{}")
    (line,) = found(home)
    where = line.partition(":")[0]
    assert path.startswith(where)
    assert "added" in line


@pytest.mark.parametrize(
    "path",
    [
        "attempts/.start.json.1.tmp",
        "allocations/a0001/.ended.json.1.tmp",
        "campaign.sqlite-journal",
        ".campaign.sqlite.rebuild",
        "ledger.torn.1",
        "transport/anything/at.all",
    ],
)
def test_what_the_programs_of_a_campaign_leave_is_no_finding(home: Path, path: str) -> None:
    (home / path).parent.mkdir(parents=True, exist_ok=True)
    (home / path).write_bytes(b"{}")
    assert found(home) == []


@pytest.mark.parametrize("name", ["attempts", "allocations", "attempts/baseline", "allocations/a0001"])
def test_a_link_in_place_of_a_folder_is_found(home: Path, name: str) -> None:
    (home / name).rename(home.parent / "elsewhere")
    (home / name).symlink_to(home.parent / "elsewhere")
    assert any(line.startswith(f"{name}: ") for line in found(home))


@pytest.mark.parametrize(
    "name",
    [
        "ledger.lock",
        "ledger.torn.1",
        "campaign.sqlite",
        "campaign.sqlite-wal",
        ".campaign.sqlite.rebuild",
        "seal.json",
        ".x.tmp",
    ],
)
@pytest.mark.parametrize("kind", ["folder", "link", "pipe"])
def test_only_a_file_may_have_a_name_that_no_list_names(home: Path, name: str, kind: str) -> None:
    path = home / name
    path.unlink(missing_ok=True)
    if kind == "folder":
        path.mkdir()
        (path / "hidden").write_bytes(b"x")
    elif kind == "link":
        path.symlink_to(home / "ledger.jsonl")
    else:
        os.mkfifo(path)
    word = {"folder": "a folder", "link": "a symbolic link", "pipe": "no file or folder"}[kind]
    assert found(home) == [f"{name}: is {word} where a file should be"]


def test_a_file_in_the_place_of_a_freeze_under_way_is_found(home: Path) -> None:
    (home / ".freezing").write_bytes(b"x")
    assert found(home) == [".freezing: is a file where a folder should be"]


# --- the protocol -----------------------------------------------------------------------------------------------------


def edit_slots(root: Path, edit: Callable[[list[dict[str, Any]]], object]) -> None:
    edit_document(root / "protocol.json", lambda protocol: edit(protocol["slots"]))


def test_an_empty_plan_is_found(home: Path) -> None:
    edit_slots(home, lambda slots: slots.clear())
    assert any("the plan is empty" in line for line in found(home))


def test_a_slot_that_is_planned_twice_is_found(home: Path) -> None:
    edit_slots(home, lambda slots: slots.append(slots[0]))
    assert any("is planned twice" in line for line in found(home))


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [("side", "candidate", "begin with its side"), ("kind", "trial", "kind"), ("order", ["candidate"], "cannot run")],
)
def test_a_slot_that_cannot_be_is_found(home: Path, field: str, value: Any, what: str) -> None:
    edit_slots(home, lambda slots: slots[2].update({field: value}))
    assert any(what in line for line in found(home))


def test_a_slot_that_was_dropped_from_the_protocol_is_found_by_the_ledger(home: Path) -> None:
    edit_slots(home, lambda slots: slots.pop())
    assert any("is not a slot of the protocol" in line for line in found(home))


# --- the ledger -------------------------------------------------------------------------------------------------------


def intents(entries: Entries) -> list[dict[str, Any]]:
    return [entry["data"] for entry in entries if entry["act"] == "intent"]


def test_an_attempt_without_the_one_before_it_is_found(home: Path) -> None:
    edit_ledger(home, lambda entries: intents(entries)[0]["allocations"][0]["attempts"][0].update(attempt=2))
    assert any("a number is missing" in line for line in found(home))


def test_an_attempt_that_is_planned_twice_is_found(home: Path) -> None:
    def again(entries: Entries) -> None:
        entry = json.loads(json.dumps(entries[1]))
        entry["data"]["submission"] = "synthetic/again"
        entry["data"]["allocations"][0]["allocation"] = "a9999"
        entries.insert(3, entry)

    edit_ledger(home, again)
    assert any("was planned before, in allocation a0001" in line for line in found(home))


def test_an_intent_that_is_made_again_must_have_been_refused_and_be_the_same(home: Path) -> None:
    refused = {"at": 0.0, "act": "not_submitted", "data": {"submission": "synthetic/a0001", "reason": "no"}}
    edit_ledger(home, lambda entries: entries.insert(2, json.loads(json.dumps(entries[1]))))
    assert any("which no act says was not submitted" in line for line in found(home))
    edit_ledger(home, lambda entries: entries.insert(2, refused))
    assert found(home) == []
    edit_ledger(home, lambda entries: entries[3]["data"]["allocations"][0].update(minutes=11))
    assert any("with other allocations than line 2" in line for line in found(home))


def test_a_candidates_attempt_that_was_planned_before_its_freeze_is_found(home: Path) -> None:
    def late(entries: Entries) -> None:
        (frozen,) = [entry for entry in entries if entry["act"] == "froze_candidate"]
        entries.remove(frozen)
        entries.insert(len(entries) - 1, frozen)

    edit_ledger(home, late)
    assert any("before its candidate was frozen" in line for line in found(home))


ACTS = [
    ("submitted", {"submission": "never"}),
    ("not_submitted", {"submission": "synthetic/a0001", "reason": ""}),
    ("cancelled", {"allocations": ["a9999"], "reason": ""}),
    ("ended", {"slot": "baseline/pilot/sync-b4", "attempt": 1, "allocation": "a0001", "ending": "lost"}),
    ("ended", {"slot": "baseline/pilot/sync-b4", "attempt": 9, "allocation": "a0001", "ending": "lost"}),
    ("collected", {"receipts": {"baseline/pilot/sync-b4/9": "0" * 64}}),
    ("sealed", {"receipts": {"baseline/pilot/sync-b4/1": "0" * 64}}),
    ("intent", {"submission": "x", "cluster": "local", "allocations": []}),
    ("intent", {"submission": "x", "cluster": "cloud", "allocations": []}),
    ("pruned", {"what": ["attempts/baseline/pilot/sync-b4/1/pairs.csv"], "files": 1, "bytes": 1, "reason": ""}),
]


@pytest.mark.parametrize(("act", "data"), ACTS)
def test_an_act_that_cannot_follow_is_found_at_its_line(home: Path, act: str, data: dict[str, Any]) -> None:
    edit_ledger(home, lambda entries: entries.append({"at": 0.0, "act": act, "data": data}))
    (line,) = found(home)
    last = len((home / "ledger.jsonl").read_bytes().splitlines())
    assert line.startswith(f"ledger.jsonl:{last}: ")


@pytest.mark.parametrize("ending", ["completed", "void"])
def test_the_ledger_cannot_say_of_an_attempt_without_a_receipt_what_only_one_can_say(home: Path, ending: str) -> None:
    def say(entries: Entries) -> None:
        entries[:] = [entry for entry in entries if entry["act"] != "collected"]
        data = {"slot": "baseline/pilot/sync-b4", "attempt": 1, "allocation": "a0001", "ending": ending}
        entries.append({"at": 0.0, "act": "ended", "data": data})

    edit_ledger(home, say)
    (line,) = found(home)
    assert f"ended {ending}, which only a receipt can say" in line


@pytest.mark.parametrize("slot", ["../outside", "baseline//r1", "baseline/./r1", ""])
def test_a_slot_whose_name_leads_elsewhere_is_found_and_never_opened(home: Path, slot: str) -> None:
    edit_ledger(home, lambda entries: intents(entries)[0]["allocations"][0]["attempts"][0].update(slot=slot))
    assert any("cannot be the name of a slot" in line for line in found(home))


def test_a_fault_in_one_act_hides_nothing_of_the_others(whole_home: Path) -> None:
    entries = facts_of(whole_home).entries
    folded = history.fold(entries)
    assert folded.faults == []
    assert len(history.fold(entries[2:]).planned) == len(folded.planned) - 1


# --- allocation.json --------------------------------------------------------------------------------------------------


def edit_plan(root: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    name = json.loads((root / "attempts/ccccccccccccc/pair/sync-b4/r1/1/receipt.json").read_bytes())["allocation"]
    edit_document(root / f"allocations/{name}/allocation.json", edit)


def test_a_plan_that_changed_after_it_was_intended_is_found(home: Path) -> None:
    edit_plan(home, lambda plan: plan.update(key="other"))
    (line,) = found(home)
    assert "not the plan that the ledger's line" in line


FORGED: dict[str, Callable[[dict[str, Any]], object]] = {
    "allocation": lambda plan: plan.update(allocation="a0001"),
    "key": lambda plan: plan.update(key="other"),
    "manifest": lambda plan: plan.update(manifest_sha256="0" * 64),
    "data": lambda plan: plan.update(data={"x": {}}),
    "updates": lambda plan: plan["attempts"][0].update(updates=11),
    "workload": lambda plan: plan["attempts"][0].update(workload="other"),
    "examples": lambda plan: plan["attempts"][0].update(examples_sha256="1" * 64),
    "order": lambda plan: plan["attempts"][0]["order"].reverse(),
    "attempts": lambda plan: plan["attempts"].append(plan["attempts"][0]),
    "snapshot": lambda plan: plan["sides"]["candidate"].update(snapshot_sha256="b" * 64),
    "adapter": lambda plan: plan["sides"]["baseline"].update(adapter="other:native"),
    "python": lambda plan: plan["sides"]["baseline"].update(python="/usr/bin/python4"),
    "container": lambda plan: plan["sides"]["baseline"].update(
        container={"path": "/x", "bytes": 1, "sha256": "1" * 64}
    ),
    "side": lambda plan: plan["sides"].pop("candidate"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_plan_that_was_forged_and_sealed_again_is_found(home: Path, name: str) -> None:
    edit_plan(home, FORGED[name])
    reseal(home)
    (line,) = found(home)
    assert "/allocation.json: " in line


OF_PLANS = ("allocation", "key", "manifest_sha256", "protocol_sha256", "harness_sha256", "data")
OF_ATTEMPTS = ("slot", "attempt", "updates", "inputs_sha256", "segment", "resume", "kind", "workload", "repeat", "pair")
OF_SIDES = (
    "id",
    "snapshot_sha256",
    "adapter",
    "python",
    "python_path",
    "pass_environment",
    "launch",
    "reads",
    "container",
)


@pytest.mark.parametrize(
    ("part", "name"),
    [
        *(("plan", name) for name in OF_PLANS),
        *(("attempt", name) for name in (*OF_ATTEMPTS, "order")),
        *(("side", name) for name in OF_SIDES),
    ],
)
def test_every_field_of_a_plan_is_held_to_what_was_frozen_or_intended(home: Path, part: str, name: str) -> None:
    def forge(plan: dict[str, Any]) -> None:
        fields = {"plan": plan, "attempt": plan["attempts"][0], "side": plan["sides"]["candidate"]}[part]
        assert name in fields
        fields[name] = ["made up"]

    edit_plan(home, forge)
    reseal(home)
    (line,) = found(home)
    assert "/allocation.json: " in line
    assert f"{name}: is " in line


def test_a_plan_that_a_killed_submission_never_wrote_is_no_finding(home: Path) -> None:
    def intend(entries: Entries) -> None:
        attempt = {"slot": "baseline/pilot/sync-b4", "attempt": 2, "updates": 0}
        allocation = {"allocation": "a9999", "minutes": 1, "plan_sha256": "0" * 64, "attempts": [attempt]}
        data = {"submission": "x", "cluster": "local", "allocations": [allocation]}
        entries.append({"at": 0.0, "act": "intent", "data": data})

    edit_ledger(home, intend)
    assert found(home) == []
