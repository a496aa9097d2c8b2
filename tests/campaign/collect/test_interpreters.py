"""All evidence of a side comes from one interpreter, unless an amendment says otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaign import documents
from campaign.collection.collect import collect
from campaign.collection.interpreters import Sealed, check_interpreters
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


def found(home: Home) -> list[tuple[str, str]]:
    """Return slot and text of every finding."""
    sealed = []
    for slot in SLOTS:
        folder = home.folder(slot)
        if folder.receipt.exists():
            receipt = documents.Receipt.read(folder.receipt)
            owner = receipt.slot.partition("/")[0]
            sealed.append(Sealed(where=slot, owner=owner, allocation=receipt.allocation, receipt=receipt))
    entries = read_entries(home.paths)
    return [(finding.where, finding.what) for finding in check_interpreters(reversed(sealed), entries)]


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
