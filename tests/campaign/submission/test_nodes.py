"""Which nodes get no more jobs: those that fail repeatedly, unless all do, or none would be left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from acceptance.formats import Ending
from campaign.documents import Receipt
from campaign.submission.acts import Allocation, History
from campaign.submission.nodes import HOME_IS_FULL, Exclusion, Place, exclude, excluded_so_far, find_failing, joined
from campaign.watching.state import AttemptState, AttemptStatus
from jobs.allocation import attempt

Row = tuple[str, str, Ending | None]
"""Allocation, node, ending."""
BROKEN: tuple[Row, ...] = (
    ("a1", "n1", Ending.COMPLETED),
    ("a2", "n2", Ending.NODE_FAIL),
    ("a3", "n2", Ending.LOST),
)


def history(rows: Sequence[Row]) -> History:
    made = History()
    for name, _, _ in rows:
        made.allocations.setdefault(
            name,
            Allocation(
                allocation=name, submission="k", index=0, minutes=5, plan_sha256="0" * 64, attempts=(), cancelled=None
            ),
        )
    return made


def statuses(rows: Sequence[Row]) -> list[AttemptStatus]:
    return [
        AttemptStatus(
            slot=f"baseline/solo/w{number}/r1",
            attempt=1,
            allocation=allocation,
            job="7",
            state=AttemptState.ENDED if ending is not None else AttemptState.RUNNING,
            ending=ending,
            reason="",
            node=node,
            source="sacct",
            receipt=None,
        )
        for number, (allocation, node, ending) in enumerate(rows)
    ]


def failing(*rows: Row, after: int = 2) -> Exclusion:
    return find_failing(history(rows), statuses(rows), after)


def test_a_node_on_which_two_allocations_failed_is_named_with_what_happened() -> None:
    found = failing(*BROKEN)
    assert found.nodes == {"n2": "2 allocations failed there and nothing completed since: a2 node_fail, a3 lost"}
    assert not found.note


@pytest.mark.parametrize("ending", list(Ending))
def test_only_endings_that_a_broken_node_explains_count(ending: Ending) -> None:
    found = failing(("a1", "n1", Ending.COMPLETED), ("a2", "n2", ending), ("a3", "n2", ending))
    counts = {Ending.NODE_FAIL, Ending.LOST, Ending.NO_SPACE, Ending.HARNESS_ERROR}
    assert bool(found.nodes) == (ending in counts)


@pytest.mark.parametrize(
    ("reason", "is_excluded"),
    [
        ("[Errno 28] No space left on device: the disk of the home is full", False),
        ("[Errno 122] Disk quota exceeded", False),
        ("[Errno 28] No space left on device: the disk of the node's private folders is full", True),
    ],
)
def test_a_home_that_is_full_is_no_nodes_fault(reason: str, is_excluded: bool) -> None:
    rows: list[Row] = [
        ("a1", "n1", Ending.COMPLETED),
        ("a2", "n2", Ending.NO_SPACE),
        ("a3", "n2", Ending.NO_SPACE),
    ]
    found = find_failing(history(rows), [replace(one, reason=reason) for one in statuses(rows)], 2)
    assert bool(found.nodes) == is_excluded


def test_the_harness_says_in_these_words_that_the_home_is_full() -> None:
    assert attempt.HOME_IS_FULL == HOME_IS_FULL


def test_two_attempts_of_one_allocation_are_one_failure() -> None:
    rows: list[Row] = [("a1", "n1", Ending.COMPLETED), ("a2", "n2", Ending.NODE_FAIL), ("a2", "n2", Ending.NODE_FAIL)]
    assert not failing(*rows).nodes
    assert set(failing(*rows, ("a3", "n2", Ending.NODE_FAIL)).nodes) == {"n2"}


def test_a_node_that_completed_something_since_is_trusted_again() -> None:
    assert not failing(*BROKEN, ("a4", "n2", Ending.COMPLETED)).nodes
    assert not failing(*BROKEN, ("a4", "n2", Ending.COMPLETED), ("a5", "n2", Ending.LOST)).nodes
    again: list[Row] = [("a4", "n2", Ending.COMPLETED), ("a5", "n2", Ending.LOST), ("a6", "n2", Ending.LOST)]
    assert set(failing(*BROKEN, *again).nodes) == {"n2"}


def test_a_node_that_dies_in_the_middle_of_an_allocation_is_not_excused_by_what_it_completed_before() -> None:
    rows: list[Row] = [
        ("a1", "n1", Ending.COMPLETED),
        ("a2", "n2", Ending.COMPLETED),
        ("a2", "n2", Ending.NODE_FAIL),
        ("a3", "n2", Ending.NODE_FAIL),
    ]
    assert set(failing(*rows).nodes) == {"n2"}


def test_failures_on_every_node_are_no_nodes_fault() -> None:
    rows: list[Row] = [(f"a{number}", f"n{1 + number % 3}", Ending.NO_SPACE) for number in range(6)]
    found = failing(*rows)
    assert not found.nodes
    assert "every node that was used (n1, n2, n3): that is no node's fault" in found.note


def test_the_only_node_that_was_used_may_be_broken() -> None:
    assert set(failing(("a1", "n1", Ending.LOST), ("a2", "n1", Ending.LOST)).nodes) == {"n1"}


def test_what_is_not_known_to_have_run_on_one_node_blames_none() -> None:
    for node in ("", "n[1-2]", "n1,n2"):
        assert failing(("a1", node, Ending.LOST), ("a2", node, Ending.LOST)) == Exclusion()


def test_the_number_is_a_choice_and_zero_switches_the_rule_off() -> None:
    assert not failing(*BROKEN, after=3).nodes
    assert not failing(*BROKEN, after=0).nodes
    assert set(failing(*BROKEN[:2], after=1).nodes) == {"n2"}


def test_what_an_amendment_made_void_does_not_count() -> None:
    made = history(BROKEN)
    made.voided = {"baseline/solo/w1/r1": 1}
    assert not find_failing(made, statuses(BROKEN), 2).nodes


def test_what_is_under_way_does_not_count() -> None:
    assert not failing(*BROKEN[:2], ("a3", "n2", None)).nodes


def test_long_lists_are_cut() -> None:
    rows: list[Row] = [("a0", "n1", Ending.COMPLETED), *((f"a{number}", "n2", Ending.LOST) for number in range(1, 6))]
    assert failing(*rows).nodes["n2"].endswith("a1 lost, a2 lost, a3 lost and 2 more")


# --- what of that is excluded -----------------------------------------------------------------------------------------

FAILING = Exclusion(nodes={"n2": "broken"})


def test_a_failing_node_is_excluded_where_others_are_left() -> None:
    assert exclude(FAILING, Place(nodes=frozenset({"n1", "n2", "n3"})), 2) == FAILING


@pytest.mark.parametrize(
    ("nodes", "needed", "words"),
    [
        ({"n2"}, 1, "0 of 1 usable nodes would be left, and an allocation needs 1"),
        ({"n1", "n2"}, 2, "1 of 2 usable nodes would be left, and an allocation needs 2"),
        (set(), 1, "0 of 0 usable nodes would be left"),
    ],
)
def test_none_is_excluded_where_too_few_would_be_left(nodes: set[str], needed: int, words: str) -> None:
    found = exclude(FAILING, Place(nodes=frozenset(nodes)), needed)
    assert not found.nodes
    assert "n2 failed repeatedly, and gets jobs all the same" in found.note
    assert words in found.note


def test_none_is_excluded_where_the_nodes_are_not_known() -> None:
    found = exclude(FAILING, Place(unknown="sinfo did not answer"), 1)
    assert not found.nodes
    assert found.note.endswith("sinfo did not answer")


def test_where_none_fails_nothing_is_said() -> None:
    assert exclude(Exclusion(), Place(), 1) == Exclusion()


def test_configured_nodes_stay_excluded() -> None:
    assert joined("n[7-9]", ["n2", "n1"]) == "n[7-9],n1,n2"
    assert joined(None, ["n2"]) == "n2"
    assert not joined(None, [])


def test_the_first_recorded_reason_is_kept() -> None:
    made = history(())
    assert excluded_so_far(made) == {}
    assert replace(FAILING, note="x").nodes == FAILING.nodes


def test_of_several_nodes_the_one_that_the_reason_names_failed() -> None:
    rows: list[Row] = [("a1", "n1", Ending.NODE_FAIL), ("a2", "n1", Ending.NODE_FAIL)]
    named = [replace(one, reason="node n3: warm-up: lost: exit code 1") for one in statuses(rows)]
    assert list(find_failing(history(rows), named, 2).nodes) == ["n3"]


def test_of_several_nodes_none_failed_where_none_is_named_and_all_completed() -> None:
    ranks = tuple(SimpleNamespace(node=node) for node in ("n1", "n1", "n2"))
    receipt = cast("Receipt", SimpleNamespace(sides=(SimpleNamespace(ranks=ranks),)))
    rows: list[Row] = [("a1", "n1", Ending.LOST), ("a2", "n1", Ending.LOST), ("a3", "n1", Ending.COMPLETED)]
    several = [replace(one, receipt=receipt) for one in statuses(rows)]
    assert not find_failing(history(rows), several[:2], 2).nodes
    broken = statuses([("a1", "n2", Ending.LOST), ("a2", "n2", Ending.LOST)])
    assert list(find_failing(history(rows), broken, 2).nodes) == ["n2"]
    assert not find_failing(history(rows), [*broken, several[2]], 2).nodes
