"""What a report says of every node."""

from __future__ import annotations

from typing import Any

from acceptance.formats import Ending
from campaign.documents import Entry, NodeSummary
from campaign.judging.nodes import node_summaries
from campaign.submission.acts import Attempt, EndedAttempt, History


def attempt(slot: str, allocation: str, node: str, ending: Ending, **more: Any) -> dict[str, Any]:
    return {
        "slot": slot, "attempt": 1, "allocation": allocation, "node": node, "ending": ending.value, "segments": [],
        "ended": None, **more,
    }  # fmt: skip


def intent(seq: int, **excluded: str) -> Entry:
    return Entry(seq=seq, previous="", at=0.0, act="intent", data={"excluded": excluded})


def summary(node: str, allocations: int, completed: int, **more: Any) -> NodeSummary:
    values = {"endings": {}, "excluded": "", "excluded_seq": 0, **more}
    return NodeSummary(node=node, allocations=allocations, completed=completed, **values)


def test_attempts_and_allocations_are_counted_by_node() -> None:
    attempts = [
        attempt("a", "a1", "n1", Ending.COMPLETED),
        attempt("b", "a1", "n1", Ending.CRASH),
        attempt("c", "a2", "n1", Ending.CRASH),
        attempt("d", "a3", "n2", Ending.COMPLETED),
    ]
    assert node_summaries(attempts, History(), []) == [
        summary("n1", 2, 1, endings={"crash": 2}),
        summary("n2", 1, 1),
    ]


def test_segments_count_each_by_itself_and_void_attempts_as_they_had_ended() -> None:
    segments = [
        {"segment": 1, "allocation": "a1", "node": "n1", "ending": "preempted"},
        {"segment": 2, "allocation": "a2", "node": "n2", "ending": "completed"},
    ]
    attempts = [
        attempt("run", "a2", "n2", Ending.COMPLETED, segments=segments),
        attempt("b", "a3", "n2", Ending.VOID, ended="completed"),
    ]
    assert node_summaries(attempts, History(), []) == [
        summary("n1", 1, 0, endings={"preempted": 1}),
        summary("n2", 2, 2),
    ]


def test_a_node_that_only_the_ledger_knows_is_named_and_one_that_nobody_knows_is_not() -> None:
    history = History()
    ended = EndedAttempt(
        slot="a", attempt=1, allocation="a1", ending=Ending.LOST, reason="gone", source="sacct", node="n3"
    )
    history.note_attempt(Attempt(slot="a", attempt=1, updates=1, allocation="a1", ended=ended))
    attempts = [attempt("a", "a1", "", Ending.LOST), attempt("b", "a2", "", Ending.LOST)]
    assert node_summaries(attempts, history, []) == [summary("n3", 1, 0, endings={"lost": 1})]


def test_the_first_submission_that_avoided_a_node_is_named_with_its_reason() -> None:
    entries = [Entry(seq=1, previous="", at=0.0, act="intent", data={}), intent(4, n2="first"), intent(6, n2="later")]
    assert node_summaries([], History(), entries) == [summary("n2", 0, 0, excluded="first", excluded_seq=4)]
