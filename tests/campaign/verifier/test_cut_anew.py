"""A submission that nobody got may be cut into smaller ones: the same allocations and attempts, under other keys."""

from __future__ import annotations

from typing import Any

import pytest

from campaign.verifier.facts import Entry
from campaign.verifier.history import History, fold

Act = tuple[str, dict[str, Any]]


def allocation(number: int, plan: str = "0", attempt: int = 1) -> dict[str, Any]:
    planned = {"slot": f"baseline/solo/w{number}/r1", "attempt": attempt, "updates": 3}
    return {"allocation": f"a{number}", "plan_sha256": plan * 64, "attempts": [planned]}


def intent(key: str, *allocations: dict[str, Any]) -> Act:
    return "intent", {"submission": key, "cluster": "slurm", "allocations": list(allocations)}


def refused(key: str) -> Act:
    return "not_submitted", {"submission": key, "reason": "AssocMaxSubmitJobLimit"}


def submitted(key: str) -> Act:
    return "submitted", {"submission": key, "cluster": "slurm", "job": "7", "array": False}


def history(*acts: Act) -> History:
    return fold([Entry(seq=seq, at=0.0, act=act, data=data, sha256="") for seq, (act, data) in enumerate(acts, 1)])


WHOLE = intent("whole", allocation(1), allocation(2))
CUT = (
    WHOLE,
    refused("whole"),
    intent("first", allocation(1, "1")),
    submitted("first"),
    intent("second", allocation(2, "2")),
    submitted("second"),
)


def test_what_was_refused_and_cut_belongs_to_the_smaller_submissions() -> None:
    found = history(*CUT)
    assert found.faults == []
    assert {name: (one.submission, one.index, one.plan_sha256[0]) for name, one in found.allocations.items()} == {
        "a1": ("first", 0, "1"), "a2": ("second", 0, "2")
    }  # fmt: skip
    # When an attempt was planned is told by the first intent that names it.
    assert {one.intent.seq for one in found.planned.values()} == {1}
    assert {one.seq for one in found.allocations.values()} == {1}


@pytest.mark.parametrize(
    ("acts", "words"),
    [
        ((WHOLE, intent("first", allocation(1, "1"))), "allocation a1 was intended before, by whole"),
        ((WHOLE, submitted("whole"), intent("first", allocation(1, "1"))), "allocation a1 was intended before"),
        ((WHOLE, refused("whole"), intent("first", allocation(1, "1", attempt=2))), "before with other attempts"),
        ((*CUT[:3], refused("first"), WHOLE), "intends whole again, of which other submissions have allocations"),
        ((*CUT[:4], intent("third", allocation(1, "3"))), "allocation a1 was intended before, by first"),
    ],
)
def test_nothing_else_may_be_intended_twice(acts: tuple[Act, ...], words: str) -> None:
    (fault,) = history(*acts).faults
    assert words in fault[1]


def test_a_smaller_one_that_is_refused_may_be_cut_again() -> None:
    acts = (WHOLE, refused("whole"), intent("both", allocation(1, "1"), allocation(2, "1")), refused("both"), *CUT[2:])
    found = history(*acts)
    assert found.faults == []
    assert {one.submission for one in found.allocations.values()} == {"first", "second"}
