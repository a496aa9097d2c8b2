"""The arithmetic of a case, against plain definitions and at its edges."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.cases.numerics import (
    About,
    Ratios,
    Totals,
    error_row,
    isolated_row,
    loss_row,
    measure_worker,
    previous_batch_rows,
    relative,
    tensor_rows,
    total,
    vacuity_rows,
)
from jobs.tensors.sums import Sums

ABOUT = About(workload="w", comparison="control", attempt=1, executor="independent", serialized=False)
KAPPA = 0.1
numbers = st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20)


def sums_of(reference: Sequence[float], value: Sequence[float]) -> Sums:
    differences = [other - one for one, other in zip(reference, value, strict=True)]
    return Sums(
        reference_sq=math.fsum(x * x for x in reference),
        difference_sq=math.fsum(x * x for x in differences),
        largest_error=max(map(abs, differences), default=0.0),
        nonfinite_reference=0,
        nonfinite_value=0,
        sign_flips=0,
        roll_sq=0.0,
    )


def tensor(name: str, reference: Sequence[float], value: Sequence[float]) -> Totals:
    return total(0, name, len(reference), [sums_of(reference, value)], signs=False, roll=False)


def unknown(name: str, *, reference_sq: float | None = None, nonfinite: int = 1) -> Totals:
    one = Sums(
        reference_sq=reference_sq,
        difference_sq=None,
        largest_error=None,
        nonfinite_reference=0 if reference_sq is not None else nonfinite,
        nonfinite_value=nonfinite if reference_sq is not None else 0,
    )
    return total(0, name, 2, [one], signs=True, roll=True)


@given(numbers, st.integers(0, 20), st.data())
def test_pieces_of_a_tensor_add_up_to_the_whole(reference: list[float], cut: int, data: st.DataObject) -> None:
    value = data.draw(st.lists(st.floats(-1e6, 1e6, width=32), min_size=len(reference), max_size=len(reference)))
    pieces = [sums_of(reference[:cut], value[:cut]), sums_of(reference[cut:], value[cut:])]
    whole = sums_of(reference, value)
    found = total(0, "t", len(reference), pieces, signs=True, roll=True)
    assert found.reference_sq == pytest.approx(whole.reference_sq, rel=1e-14)
    assert found.difference_sq == pytest.approx(whole.difference_sq, rel=1e-14)
    assert found.largest_error == whole.largest_error


def test_a_tensor_without_elements_is_equal_to_any_other() -> None:
    found = total(0, "empty", 0, [], signs=True, roll=True)
    assert (found.reference_sq, found.difference_sq, found.largest_error, found.sign_flips, found.roll_sq) == (
        *(0.0, 0.0, 0.0),
        0,
        0.0,
    )


def test_one_piece_that_is_not_finite_makes_the_tensor_so() -> None:
    bad = Sums(
        reference_sq=4.0, difference_sq=None, largest_error=None, nonfinite_reference=0, nonfinite_value=3, roll_sq=1.0
    )
    found = total(0, "t", 4, [sums_of([1.0], [1.0]), bad], signs=True, roll=True)
    assert found == Totals(
        worker=0,
        tensor="t",
        numel=4,
        reference_sq=5.0,
        difference_sq=None,
        largest_error=None,
        nonfinite=3,
        sign_flips=None,
        roll_sq=1.0,
    )


def test_a_sum_beyond_a_double_is_none() -> None:
    huge = Sums(reference_sq=1.7e308, difference_sq=0.0, largest_error=0.0, nonfinite_reference=0, nonfinite_value=0)
    assert total(0, "t", 2, [huge, huge], signs=False, roll=False).reference_sq is None


@pytest.mark.parametrize(
    ("value", "reference", "expected"),
    [
        (0.0, 0.0, 0.0),
        (1e-300, 0.0, None),
        (3.0, 4.0, 0.75),
        (None, 1.0, None),
        (1.0, None, None),
        (1e300, 1e-300, None),
        (0.0, 5e-324, 0.0),
    ],
)
def test_a_relative_error_has_a_meaning_at_every_edge(
    value: float | None, reference: float | None, expected: float | None
) -> None:
    assert relative(value, reference) == expected


@given(st.lists(numbers, min_size=1, max_size=6), st.data())
def test_the_errors_of_a_worker_are_those_of_the_definition(references: list[list[float]], data: st.DataObject) -> None:
    same = [st.lists(st.floats(-1e6, 1e6, width=32), min_size=len(one), max_size=len(one)) for one in references]
    values = [data.draw(strategy) for strategy in same]
    found = measure_worker(
        0, [tensor(str(k), *p) for k, p in enumerate(zip(references, values, strict=True))], kappa=KAPPA
    )
    flat = [x for one in references for x in one]
    errors = [y - x for one, other in zip(references, values, strict=True) for x, y in zip(one, other, strict=True)]
    norm, error = math.hypot(*flat), math.hypot(*errors)
    assert found.reference == pytest.approx(norm, rel=1e-12)
    assert found.value == pytest.approx(error, rel=1e-12)
    expected = []
    for one, other in zip(references, values, strict=True):
        own = math.hypot(*(y - x for x, y in zip(one, other, strict=True)))
        bound = max(math.hypot(*one), KAPPA * norm * math.sqrt(len(one) / len(flat)))
        expected.append(0.0 if own == 0 else own / bound if bound else None)
    if None in expected:
        assert (found.worst_rel_l2, found.worst_tensor) == (None, str(expected.index(None)))
    else:
        assert found.worst_rel_l2 == pytest.approx(max(x for x in expected if x is not None), rel=1e-9)


def test_the_floor_keeps_a_tensor_that_is_next_to_nothing_from_being_the_worst() -> None:
    found = measure_worker(0, [tensor("big", [3.0] * 4, [3.0] * 4), tensor("tiny", [0.0], [0.1])], kappa=KAPPA)
    big, tiny = found.tensors
    assert (big.floored, tiny.floored) == (False, True)
    assert tiny.rel_l2 == pytest.approx(0.1 / (0.1 * 6.0 * math.sqrt(1 / 5)))
    assert found.worst_tensor == "tiny"


def test_a_tensor_just_at_the_floor_is_not_called_floored() -> None:
    found = measure_worker(0, [tensor("only", [1.0], [1.0])], kappa=1.0)
    assert found.tensors[0].floored is False


def test_of_two_equally_bad_tensors_the_first_one_is_named() -> None:
    same = [tensor("b", [1.0], [1.5]), tensor("a", [1.0], [1.5])]
    assert measure_worker(0, same, kappa=KAPPA).worst_tensor == "b"


def test_without_any_error_a_tensor_is_named_all_the_same() -> None:
    found = measure_worker(0, [tensor("a", [1.0], [1.0])], kappa=KAPPA)
    assert (found.worst_tensor, found.worst_rel_l2, found.rel_l2) == ("a", 0.0, 0.0)


def test_what_is_not_finite_is_the_worst_and_leaves_no_number() -> None:
    found = measure_worker(0, [tensor("a", [1.0], [9.0]), unknown("b", reference_sq=4.0)], kappa=KAPPA)
    assert (found.reference, found.value, found.rel_l2) == (math.sqrt(5.0), None, None)
    assert (found.worst_tensor, found.worst_rel_l2, found.nonfinite) == ("b", None, 1)


def test_a_baseline_that_is_not_finite_leaves_neither_norm() -> None:
    # Without a norm of all there is no floor, so no tensor has an error: the one that is not finite is named.
    found = measure_worker(0, [tensor("a", [1.0], [1.0]), unknown("b")], kappa=KAPPA)
    assert (found.reference, found.value, found.worst_tensor) == (None, None, "b")
    row = tensor_rows(ABOUT, 1, "updates", found)[0]
    assert (row["reference"], row["value"], row["rel_l2"], row["floored"]) == (1.0, 0.0, None, False)


def test_an_error_beside_a_reference_of_zero_has_no_ratio() -> None:
    found = measure_worker(0, [tensor("a", [0.0], [0.0]), tensor("b", [0.0], [1e-9])], kappa=KAPPA)
    assert (found.reference, found.value, found.rel_l2) == (0.0, 1e-9, None)
    assert (found.worst_tensor, found.worst_rel_l2) == ("b", None)
    none = measure_worker(0, [tensor("a", [0.0], [0.0])], kappa=KAPPA)
    assert (none.rel_l2, none.worst_rel_l2) == (0.0, 0.0)


# --- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pair", "shown", "nonfinite"),
    [
        ((1.5, 1.25), (1.5, 1.25), 0),
        ((1.5, math.nan), (1.5, None), 1),
        ((-math.inf, 2.0), (None, 2.0), 1),
        ((math.nan, math.nan), (None, None), 2),
    ],
)
def test_a_loss_that_is_not_finite_is_counted_and_left_empty(
    pair: tuple[float, float], shown: tuple[float | None, float | None], nonfinite: int
) -> None:
    row = loss_row(ABOUT, 2, 1, *pair)
    assert (row["reference"], row["value"], row["nonfinite"]) == (*shown, nonfinite)
    assert (row["rel_l2"], row["worst_tensor"], row["worst_rel_l2"]) == (None, "", None)


def test_an_isolated_check_shows_its_worst_tensor() -> None:
    ratios = [Ratios(worker=0, tensor=name, worst=worst, nonfinite=0) for name, worst in (("a", 0.2), ("b", 0.7))]
    row = isolated_row(ABOUT, 5, 0, "optimizer", ratios)
    assert (row["value"], row["worst_tensor"], row["nonfinite"], row["reference"]) == (0.7, "b", 0, None)


def test_an_isolated_check_that_is_not_finite_has_no_value() -> None:
    ratios = [
        Ratios(worker=0, tensor="a", worst=9.0, nonfinite=0),
        Ratios(worker=0, tensor="b", worst=None, nonfinite=4),
    ]
    row = isolated_row(ABOUT, 5, 0, "optimizer", ratios)
    assert (row["value"], row["worst_tensor"], row["nonfinite"]) == (None, "b", 4)


def test_an_isolated_check_that_is_not_offered_says_so_with_empty_fields() -> None:
    row = isolated_row(ABOUT, 5, 0, "consensus", [])
    assert (row["value"], row["worst_tensor"], row["nonfinite"]) == (None, "", 0)


def test_rows_of_quantities_have_all_numbers() -> None:
    error = measure_worker(3, [tensor("a", [4.0], [5.0])], kappa=KAPPA)
    row = error_row(ABOUT, 2, "gradients", error)
    assert row == {
        "workload": "w",
        "comparison": "control",
        "attempt": 1,
        "update": 2,
        "worker": 3,
        "quantity": "gradients",
        "reference": 4.0,
        "value": 1.0,
        "rel_l2": 0.25,
        "worst_tensor": "a",
        "worst_rel_l2": 0.25,
        "nonfinite": 0,
        "executor": "independent",
        "serialized": False,
    }


# --- vacuity ----------------------------------------------------------------------------------------------------------


def test_vacuity_says_what_faults_would_have_read() -> None:
    def error(norm: float, rolled: float) -> list[Totals]:
        sums = Sums(
            reference_sq=norm**2,
            difference_sq=0.0,
            largest_error=0.0,
            nonfinite_reference=0,
            nonfinite_value=0,
            roll_sq=rolled**2,
        )
        return [total(0, "a", 4, [sums], signs=False, roll=True)]

    norms = {"gradients": (2.0, 3.0), "parameters": (8.0, 4.0), "updates": (1.0, 1.0)}
    errors = {name: [measure_worker(0, error(*pair), kappa=KAPPA)] for name, pair in norms.items()}
    rows = vacuity_rows(ABOUT, 2, errors)
    assert {(row["mutation"], row["quantity"]): row["rel_l2"] for row in rows} == {
        ("no_update", "parameters"): 0.125,
        ("no_update", "updates"): 1.0,
        ("negated", "parameters"): 0.25,
        ("negated", "updates"): 2.0,
        ("shuffled", "gradients"): 1.5,
        ("shuffled", "parameters"): 0.5,
        ("shuffled", "updates"): 1.0,
    }


def test_vacuity_of_a_baseline_that_does_not_move_is_nothing() -> None:
    nothing = [measure_worker(0, [tensor("a", [0.0], [0.0])], kappa=KAPPA)]
    some = [measure_worker(0, [tensor("a", [2.0], [2.0])], kappa=KAPPA)]
    rows = vacuity_rows(ABOUT, 1, {"parameters": some, "updates": nothing})
    assert {row["rel_l2"] for row in rows if row["mutation"] in ("no_update", "negated")} == {0.0}


def test_a_repeated_batch_is_measured_like_a_candidate_and_its_loss_relatively() -> None:
    errors = {"gradients": [measure_worker(0, [tensor("a", [4.0], [5.0])], kappa=KAPPA)]}
    rows = previous_batch_rows(ABOUT, 2, [(2.0, 1.5), (0.0, 1.0), (math.inf, 1.0)], errors)
    assert [(row["worker"], row["quantity"], row["rel_l2"]) for row in rows] == [
        (0, "loss", 0.25),
        (1, "loss", None),
        (2, "loss", None),
        (0, "gradients", 0.25),
    ]
