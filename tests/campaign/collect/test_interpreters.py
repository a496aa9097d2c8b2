"""All evidence of a side comes from one interpreter, unless an amendment says otherwise."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from campaign import documents
from campaign.collection.collect import collect
from campaign.collection.interpreters import Sealed, check_interpreters, remarks_on_interpreters
from campaign.frozen import read_frozen
from campaign.judging.remarks import read_remarks
from campaign.record.ledger import Ledger, read_entries
from tests.support.home import AT, Home, freeze, freeze_candidate

SLOTS = ("baseline/control/sync-b4/r1", "candidate/pair/sync-b4/r1", "candidate/pair/sync-b4/r2")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = freeze(tmp_path / "home", repeats=2, solo=False)
    freeze_candidate(made)
    return made


def seal(home: Home, slot: str, **changed: str) -> None:
    """Make an attempt whose side named `side` ran on something else in one respect."""
    home.attempt(home.slot(slot))
    if not changed:
        return
    name = changed.pop("side")
    path = home.folder(slot).receipt
    receipt = documents.Receipt.read(path)
    sides = []
    for side in receipt.sides:
        one = side.interpreter
        assert one is not None
        if side.side == name:
            environment = changed.get("environment_sha256", side.environment_sha256)
            kept = {key: value for key, value in changed.items() if key != "environment_sha256"}
            sides.append(side.replace(interpreter=one.replace(**kept), environment_sha256=environment))
        else:
            sides.append(side)
    path.write_bytes(receipt.replace(sides=tuple(sides)).to_bytes())


def sealed_in(home: Home) -> list[Sealed]:
    sealed = []
    for slot in SLOTS:
        folder = home.folder(slot)
        if folder.receipt.exists():
            receipt = documents.Receipt.read(folder.receipt)
            owner = receipt.slot.partition("/")[0]
            sealed.append(Sealed(where=slot, owner=owner, allocation=receipt.allocation, receipt=receipt))
    return sealed


def found(home: Home) -> list[tuple[str, str]]:
    """Return slot and text of every finding."""
    findings = check_interpreters(reversed(sealed_in(home)), read_entries(home.paths))
    return [(finding.where, finding.what) for finding in findings]


def test_a_side_that_ran_on_one_interpreter_alone_is_fine(home: Home) -> None:
    for slot in SLOTS:
        seal(home, slot)
    assert found(home) == []


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("path", "path /x, there /usr/bin/python3.11"),
        ("version", "version /x, there 3.11.7"),
        ("sha256", "SHA-256 of the interpreter /x, there 66"),
        ("environment_sha256", "digest of what is installed /x, there 77"),
    ],
)
def test_a_later_attempt_on_another_interpreter_is_found(home: Home, field: str, words: str) -> None:
    seal(home, SLOTS[0])
    seal(home, SLOTS[1], side="baseline", **{field: "/x"})
    ((where, what),) = found(home)
    assert where == SLOTS[1]
    assert what.startswith("baseline ran on another interpreter, or with other packages, than its first sealed ")
    assert f"attempt, {SLOTS[0]}: {words}" in what


def test_the_first_sealed_attempt_is_what_later_ones_are_held_against(home: Home) -> None:
    seal(home, SLOTS[1], side="candidate", sha256="/x")
    seal(home, SLOTS[2])
    assert [where for where, _ in found(home)] == [SLOTS[2]]


def test_baseline_again_is_the_baseline(home: Home) -> None:
    seal(home, SLOTS[0], side="baseline_again", sha256="/x")
    ((where, what),) = found(home)
    assert where == SLOTS[0]
    assert "ran on another interpreter" in what


def test_the_sides_may_have_interpreters_of_their_own(home: Home) -> None:
    seal(home, SLOTS[0])
    seal(home, SLOTS[1], side="candidate", sha256="/x")
    seal(home, SLOTS[2], side="candidate", sha256="/x")
    assert found(home) == []


@pytest.mark.parametrize(("what", "expected"), [("interpreter", []), ("node", [SLOTS[1]])])
def test_only_an_amendment_of_the_interpreter_lets_it_change(home: Home, what: str, expected: list[str]) -> None:
    seal(home, SLOTS[0])
    home.append("amended", {"what": what})
    seal(home, SLOTS[1], side="baseline", version="3.12.1")
    assert [where for where, _ in found(home)] == expected


def test_a_process_that_ended_before_it_could_say_is_passed_over(home: Home) -> None:
    seal(home, SLOTS[0])
    path = home.folder(SLOTS[0]).receipt
    receipt = documents.Receipt.read(path)
    silent = tuple(side.replace(interpreter=None, environment_sha256="") for side in receipt.sides)
    path.write_bytes(receipt.replace(sides=silent).to_bytes())
    seal(home, SLOTS[1])
    assert found(home) == []


def test_collecting_finds_it(home: Home) -> None:
    seal(home, SLOTS[0])
    seal(home, SLOTS[1], side="baseline", sha256="9" * 64)
    with Ledger.open(home.paths, lambda: AT) as ledger:
        collection = collect(home.paths, ledger)
    assert any("ran on another interpreter" in finding.what for finding in collection.findings)


# --- what the freeze saw ----------------------------------------------------------------------------------------------

FROZEN = documents.Environment(
    path="/usr/bin/python3.11", version="3.11.7", sha256="66" * 32, environment_sha256="77" * 32, installed={}
)


def remarks(home: Home, **frozen: documents.Environment) -> list[str]:
    return list(remarks_on_interpreters(reversed(sealed_in(home)), read_entries(home.paths), frozen))


def test_a_side_that_ran_on_what_the_freeze_saw_needs_no_remark(home: Home) -> None:
    for slot in SLOTS:
        seal(home, slot)
    first = home.folder(SLOTS[0]).receipt
    (one, *_) = documents.Receipt.read(first).sides
    assert one.interpreter is not None
    same = FROZEN.replace(**one.interpreter.to_json(), environment_sha256=one.environment_sha256)
    assert remarks(home, baseline=same) == []
    assert remarks(home) == []  # the freeze could not ask


def test_a_node_with_other_software_than_the_host_that_froze_is_a_remark_once_for_a_side(home: Home) -> None:
    for slot in SLOTS:
        seal(home, slot)
    owner = documents.Receipt.read(home.folder(SLOTS[1]).receipt).slot.partition("/")[0]
    said = remarks(home, baseline=FROZEN.replace(sha256="/x"), **{owner: FROZEN.replace(version="3.12.0")})
    assert found(home) == []
    assert [one.partition(":")[0] for one in said] == ["baseline", owner]
    assert f"its first sealed attempt, {SLOTS[0]}, ran on another interpreter" in said[0]
    assert ", there /x; no fault where nodes have software of their own" in said[0]


def test_after_an_amendment_of_the_interpreter_the_freeze_says_nothing_more(home: Home) -> None:
    home.append("amended", {"what": "interpreter"})
    seal(home, SLOTS[0])
    assert remarks(home, baseline=FROZEN.replace(sha256="/x")) == []


def test_it_is_told_beside_an_intact_collection(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    seal(home, SLOTS[0])
    with Ledger.open(home.paths, lambda: AT) as ledger:
        collection = collect(home.paths, ledger)
    frozen = read_frozen(home.paths)
    side = frozen.manifest.baseline.replace(interpreter=FROZEN.replace(version="3.12.0"))
    other = dataclasses.replace(frozen, manifest=frozen.manifest.replace(baseline=side))
    monkeypatch.setattr("campaign.judging.remarks.read_frozen", lambda _paths: other)
    assert list(collection.findings) == []
    (remark,) = read_remarks(home.paths, collection)
    assert "version 3.11.7, there 3.12.0" in remark
