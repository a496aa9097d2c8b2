from __future__ import annotations

import pytest

from acceptance.formats import RETRIABLE, Ending
from acceptance.gates import Finding
from acceptance.protocol import Retries
from acceptance.rows import AttemptRow
from acceptance.selection import Selection, select

RULES = Retries(
    max_attempts=3,
    again=frozenset(ending.value for ending in RETRIABLE if ending is not Ending.WINDOW_SHORT),
    again_once=frozenset({Ending.WINDOW_SHORT.value}),
)
FINAL = [ending for ending in Ending if ending not in (*RETRIABLE, Ending.COMPLETED, Ending.VOID)]


def row(attempt: int, ending: str, *, sealed: bool = True, node: str = "node1") -> AttemptRow:
    return AttemptRow(
        slot="s",
        attempt=attempt,
        allocation=f"a{attempt}",
        node=node,
        device="cpu",
        baseline_path="",
        candidate_path="",
        ending=ending,
        sealed=sealed,
    )


def choose(*endings: str) -> Selection:
    rows = [row(number, ending) for number, ending in enumerate(endings, start=1)]
    return select(rows[::-1], RULES)


def test_the_first_completed_attempt_counts_whatever_follows() -> None:
    found = choose("completed", "completed", "crash")
    assert found.attempt is not None
    assert found.attempt.attempt == 1
    assert not found.doubled


@pytest.mark.parametrize("ending", [ending for ending in RETRIABLE if ending is not Ending.WINDOW_SHORT])
def test_an_ending_of_the_machine_allows_two_others(ending: Ending) -> None:
    found = choose(ending, ending, "completed")
    assert found.attempt is not None
    assert found.attempt.attempt == 3
    assert not found.doubled


@pytest.mark.parametrize("ending", FINAL)
def test_the_fault_of_a_side_is_final_even_if_a_later_attempt_completed(ending: Ending) -> None:
    for endings in ([ending], [ending, "completed"], ["node_fail", ending, "completed"]):
        found = choose(*endings)
        assert (found.attempt, found.finding) == (None, Finding.INVALID)
        assert f"ended {ending}, which allows no other" in found.reason


def test_a_short_window_allows_one_other_which_measures_twice_as_much() -> None:
    for endings in (
        ["window_short", "completed"],
        ["window_short", "lost", "completed"],
        ["lost", "window_short", "completed"],
    ):
        found = choose(*endings)
        assert found.attempt is not None
        assert found.doubled


def test_a_second_short_window_is_final() -> None:
    found = choose("window_short", "window_short", "completed")
    assert (found.attempt, found.finding) == (None, Finding.INVALID)
    assert "only once" in found.reason


@pytest.mark.parametrize("endings", [[], ["lost"], ["lost", "window_short"]])
def test_a_slot_that_may_still_be_tried_is_missing(endings: list[str]) -> None:
    found = choose(*endings)
    assert (found.attempt, found.finding) == (None, Finding.MISSING)


def test_a_slot_whose_attempts_are_used_up_is_invalid() -> None:
    found = choose("lost", "lost", "lost")
    assert (found.attempt, found.finding) == (None, Finding.INVALID)
    assert "all 3 attempts" in found.reason


def test_more_attempts_than_the_protocol_allows_are_invalid() -> None:
    found = choose("lost", "lost", "lost", "completed")
    assert (found.attempt, found.finding) == (None, Finding.INVALID)
    assert "4 attempts" in found.reason


@pytest.mark.parametrize("numbers", [[2], [1, 3], [1, 1], [2, 3]])
def test_attempts_are_numbered_from_one_without_a_gap(numbers: list[int]) -> None:
    endings = ["lost"] * (len(numbers) - 1) + ["completed"]
    found = select([row(number, ending) for number, ending in zip(numbers, endings, strict=True)], RULES)
    assert (found.attempt, found.finding) == (None, Finding.INVALID)
    assert "without a gap" in found.reason


def test_an_unsealed_attempt_cannot_count() -> None:
    assert select([row(1, "completed", sealed=False)], RULES).finding is Finding.INVALID
    assert select([row(1, "lost", sealed=False), row(2, "completed")], RULES).finding is Finding.MET


def test_an_attempt_without_a_node_cannot_count() -> None:
    assert select([row(1, "completed", node="")], RULES).finding is Finding.INVALID


# --- what an amendment made void --------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_void", [1, 2, 5])
def test_void_attempts_count_for_nothing_and_the_next_one_counts(num_void: int) -> None:
    found = choose(*["void"] * num_void, "completed")
    assert found.attempt is not None
    assert (found.attempt.attempt, found.finding) == (num_void + 1, Finding.MET)


def test_void_attempts_leave_the_slot_all_its_attempts() -> None:
    found = choose("void", "void", "lost", "lost", "completed")
    assert found.attempt is not None
    assert found.attempt.attempt == 5
    used_up = choose("void", "void", "lost", "lost", "lost")
    assert (used_up.attempt, used_up.finding) == (None, Finding.INVALID)
    assert "all 3 attempts" in used_up.reason
    too_many = choose("void", "lost", "lost", "lost", "completed")
    assert "4 attempts" in too_many.reason


def test_a_slot_with_void_attempts_alone_is_missing() -> None:
    found = choose("void", "void")
    assert (found.attempt, found.finding) == (None, Finding.MISSING)
    assert "all attempts so far (2) are void" in found.reason


@pytest.mark.parametrize("endings", [["completed", "void"], ["void", "lost", "void"], ["crash", "void", "completed"]])
def test_a_void_attempt_after_a_valid_one_is_invalid(endings: list[str]) -> None:
    found = choose(*endings)
    assert (found.attempt, found.finding) == (None, Finding.INVALID)
    assert "is not void, and a later one is" in found.reason


def test_the_ending_of_what_comes_after_void_attempts_decides_as_ever() -> None:
    assert choose("void", "crash", "completed").finding is Finding.INVALID
    short = choose("void", "window_short", "completed")
    assert short.doubled
    waiting = choose("void", "lost")
    assert (waiting.finding, waiting.reason) == (Finding.MISSING, "attempt 2 ended lost and no other was made")


def test_a_void_attempt_does_not_fill_a_gap_of_the_numbers() -> None:
    found = select([row(2, "void"), row(3, "completed")], RULES)
    assert (found.attempt, found.finding) == (None, Finding.INVALID)
    assert "without a gap" in found.reason


def test_a_run_whose_only_completed_attempt_is_void_is_missing() -> None:
    rows = [row(1, "void"), row(2, "crash")]
    assert select(rows, RULES, is_run=True).finding is Finding.MISSING
    assert select([*rows[:1], row(2, "completed")], RULES, is_run=True).finding is Finding.MET
