from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.numbers import against, decimal_of, listed, near, signed, significant, size

DECIMALS = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e12, max_value=1e12)


@pytest.mark.parametrize(
    ("value", "gate", "shown"),
    [
        (1.0469, "1.05", "1.047"),
        (1.05, "1.05", "1.050"),
        (1.0499, "1.05", "1.0499"),
        (1.0499999, "1.05", "1.0499999"),
        (1.0500001, "1.05", "1.0500001"),
        (1.04999999999999982, "1.05", "1.0499999999999998"),
        (0.00499997, "0.005", "0.00499997"),
        (0.97999, 0.98, "0.97999"),
        (0.9999, 1, "0.9999"),
        (1, 1, "1.000"),
        (1.837, None, "1.837"),
        (None, "1.05", "-"),
        (0, 0, "0.000"),
    ],
)
def test_a_printed_number_stays_on_its_side_of_the_gate(value: float | None, gate: str | None, shown: str) -> None:
    assert against(value, gate) == shown


@given(value=DECIMALS, gate=DECIMALS)
def test_no_number_is_printed_at_or_across_a_gate_that_it_does_not_meet(value: float, gate: float) -> None:
    shown, exact, bound = Decimal(against(value, gate)), decimal_of(value), decimal_of(gate)
    assert (shown < bound, shown > bound) == (exact < bound, exact > bound)


def test_a_number_between_two_gates_stays_between_them() -> None:
    assert against(1.0499999, 1, "1.05") == "1.0499999"
    assert against(1.0000001, "1.05", 1) == "1.0000001"
    assert against(1.02, 1, "1.05", None) == "1.020"


@given(gate=st.floats(min_value=0.5, max_value=2), steps=st.integers(min_value=-3, max_value=3))
def test_neighbouring_doubles_of_a_gate_are_told_apart(gate: float, steps: int) -> None:
    value = gate + steps * 2**-52
    shown = Decimal(against(value, gate))
    assert (shown < decimal_of(gate)) == (value < gate)
    assert (shown == decimal_of(gate)) == (value == gate)


def test_only_a_margin_of_zero_prints_as_zero() -> None:
    assert signed(-0.0000001) == "-0.0000001"
    assert signed(0.013) == "+0.013000"
    assert signed(0) == "+0.000000"
    assert signed(None) == "-"


def test_non_finite_numbers_are_shown_as_what_they_are() -> None:
    assert against(float("nan"), "1.05") == "NaN"
    assert against(float("inf"), "1.05") == "Infinity"


def test_quantities_have_three_significant_digits() -> None:
    assert [significant(value) for value in (3.25, 0.012345, 12345.6, 0, 1e-12)] == [
        "3.25",
        "0.0123",
        "12,346",
        "0",
        "1.00e-12",
    ]


def test_sizes_are_in_binary_units() -> None:
    assert [size(value) for value in (None, 512, 1 << 20, 3 << 30)] == ["-", "512 B", "1.0 MiB", "3.0 GiB"]


def test_words_are_joined_as_in_a_sentence() -> None:
    assert [listed(words) for words in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]


@pytest.mark.parametrize(
    ("value", "gate", "shown"),
    [
        (6.48159e-05, "0.02", "6.482e-05"),
        (2.8181e-05, None, "2.818e-05"),
        (0.00575311, "0.05", "0.005753"),
        (0.0777747, "0.10", "0.07777"),
        (0.1, "0.10", "0.1000"),
        (0.09999999, "0.10", "0.09999999"),
        (0.1000004, "0.10", "0.1000004"),
        (0.99999999, "1", "0.99999999"),
        (3.1852, "3", "3.185"),
        (3.0000001, "3", "3.0000001"),
        (123456789.0, "1", "1.235e+08"),
        (0, "0.02", "0"),
        (0.0, "0.02", "0"),
        (1e-300, "0.02", "1.000e-300"),
        (None, "0.02", "-"),
    ],
)
def test_a_small_number_keeps_its_digits_and_its_side(value: float | None, gate: str | None, shown: str) -> None:
    assert near(value, gate) == shown


@given(value=st.floats(min_value=1e-300, max_value=1e300), gate=st.floats(min_value=1e-12, max_value=1e12))
def test_no_small_number_is_printed_at_or_across_a_gate_that_it_does_not_meet(value: float, gate: float) -> None:
    shown, exact, bound = Decimal(near(value, gate)), decimal_of(value), decimal_of(gate)
    assert (shown < bound, shown > bound) == (exact < bound, exact > bound)


@given(exponent=st.integers(min_value=-12, max_value=2), places=st.integers(min_value=1, max_value=15))
def test_digits_are_added_however_close_a_number_is_to_its_gate(exponent: int, places: int) -> None:
    gate = Decimal(1).scaleb(exponent)
    just_below, just_above = gate * (1 - Decimal(1).scaleb(-places)), gate * (1 + Decimal(1).scaleb(-places))
    assert Decimal(near(just_below, gate)) < gate < Decimal(near(just_above, gate))
