"""What a receipt says of its sides, against the plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from acceptance.formats import Ending
from campaign import documents, files
from campaign.collection.sealed import Expected, read_attempt
from tests.support.home import SNAPSHOTS, Home, freeze, freeze_candidate

Sides = tuple[documents.SideReceipt, ...]
Edit = Callable[[documents.Receipt], documents.Receipt]
PAIR = "candidate/pair/sync-b4/r1"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = freeze(tmp_path / "home", repeats=1, solo=False, controls=False)
    freeze_candidate(made)
    made.attempt(made.slot(PAIR))
    return made


def findings(home: Home, edit: Edit) -> list[str]:
    """Edit the receipt of the pair and return what is found to be wrong with it."""
    folder = home.folder(PAIR)
    receipt = documents.Receipt.read(folder.receipt)
    folder.receipt.write_bytes(edit(receipt).to_bytes())
    plan = documents.AllocationPlan.read(home.paths.allocation(receipt.allocation).plan)
    expected = Expected(
        planned=plan.attempts[0],
        allocation=receipt.allocation,
        manifest_sha256=files.sha256_file(home.paths.manifest),
        protocol_sha256=files.sha256_file(home.paths.protocol),
        harness_sha256=home.manifest.harness_sha256,
        snapshots=SNAPSHOTS,
    )
    sealed, found = read_attempt(folder, expected)
    assert (sealed is None) == bool(found)
    return [finding.what for finding in found]


def of_sides(change: Callable[[Sides], Sides]) -> Edit:
    return lambda receipt: receipt.replace(sides=change(receipt.sides))


def swapped(sides: Sides) -> Sides:
    first, second = sides
    return second.replace(position=1), first.replace(position=2)


def test_a_receipt_as_planned_is_taken(home: Home) -> None:
    assert findings(home, lambda receipt: receipt) == []


def test_sides_that_ran_in_the_other_order_are_found(home: Home) -> None:
    first, second = home.slot(PAIR).order
    assert findings(home, of_sides(swapped)) == [
        f"{second} ran in position 1, which was not planned",
        f"{first} ran in position 2, which was not planned",
    ]


def test_a_side_that_was_not_planned_is_found(home: Home) -> None:
    found = findings(home, of_sides(lambda sides: (sides[0], sides[1].replace(side="baseline_again"))))
    assert found == [
        "baseline_again ran in position 2, which was not planned",
        "completed, but not every planned side ran",
    ]


def test_a_side_named_twice_is_found(home: Home) -> None:
    assert findings(home, of_sides(lambda sides: (*sides, sides[0]))) == ["names a side twice"]


def test_a_side_may_be_absent_only_where_the_attempt_did_not_complete(home: Home) -> None:
    one = of_sides(lambda sides: sides[:1])
    assert findings(home, one) == ["completed, but not every planned side ran"]
    assert findings(home, lambda receipt: one(receipt).replace(ending=Ending.CRASH)) == []


@pytest.mark.parametrize("name", ["start_sha256", "slot", "attempt", "allocation", "kind"])
def test_a_receipt_of_something_else_is_found(home: Home, name: str) -> None:
    other = {"start_sha256": "0" * 64, "slot": "x", "attempt": 2, "allocation": "x", "kind": "solo"}[name]
    (found,) = findings(home, lambda receipt: receipt.replace(**{name: other}))
    assert found.startswith(f"{name} is {other!r} where the plan says ")
