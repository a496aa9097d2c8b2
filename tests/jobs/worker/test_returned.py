from __future__ import annotations

import itertools
from typing import Any

import pytest

from jobs.processes.serving import SideError
from jobs.worker.returned import MOST_EXAMPLES, check_evaluation, check_examples, check_progress


def test_an_evaluation_is_a_sum_of_nats_and_a_count() -> None:
    assert check_evaluation((2.5, 7)) == ("2.5", 7)
    assert check_evaluation([float("nan"), 0]) == ("nan", 0)


@pytest.mark.parametrize(
    "value", [None, 2.5, (2.5,), (2.5, 7, 1), (2, 7), (2.5, 7.0), (2.5, True), (2.5, -1), ("2", 7)]
)
def test_anything_else_is_rubbish(value: Any) -> None:
    with pytest.raises(SideError) as caught:
        check_evaluation(value)
    assert caught.value.kind == "rubbish"


def test_progress_is_kept_as_it_is() -> None:
    value = {"update": 3, "lr": -0.1, "state": "abc", "": 10**18 - 1}
    assert check_progress(value) == value


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([("a", 1)], "a list, not a dict"),
        ({1: 1}, "not str: int, float or str"),
        ({"a": True}, "not str: int, float or str"),
        ({"a": None}, "not str: int, float or str"),
        ({"a": float("inf")}, "not finite"),
        ({"a": -(10**5000)}, "an int of 16610 bits as 'a': too large a number"),
        ({"a": "\udce9"}, "not what UTF-8 can hold"),
        ({"a": "x" * 10_001}, "more than 10000 characters"),
        ({str(number): number for number in range(1001)}, "1001 entries, more than 1000"),
    ],
)
def test_progress_that_no_document_can_hold_is_rubbish(value: Any, problem: str) -> None:
    with pytest.raises(SideError, match=problem) as caught:
        check_progress(value)
    assert caught.value.kind == "rubbish"


def test_examples_are_whole_numbers_from_anything_that_yields_them() -> None:
    assert check_examples(iter([3, -1, 3])) == [3, -1, 3]
    assert check_examples(range(MOST_EXAMPLES)) == list(range(MOST_EXAMPLES))
    assert check_examples(()) == []


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "cannot be iterated"),
        ([1, True], "not an int"),
        ([1.0], "not an int"),
        (["1"], "not an int"),
        ([10**18], "not an int"),
        (itertools.count(), f"more than {MOST_EXAMPLES} for one step"),
    ],
)
def test_examples_that_are_anything_else_are_rubbish(value: Any, problem: str) -> None:
    with pytest.raises(SideError, match=problem) as caught:
        check_examples(value)
    assert caught.value.kind == "rubbish"
