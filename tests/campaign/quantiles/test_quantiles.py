from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from acceptance import arithmetic
from acceptance.convergence_rules import least_quantile
from campaign.planning.quantiles import look_quantiles, single_quantile, student_quantile


@pytest.mark.parametrize("level", [0.95, 0.9725, 0.975])
def test_quantiles_agree_with_a_library(level: float) -> None:
    for degrees in (*range(1, 40), 100, 101, 999, 1999):
        assert float(student_quantile(level, degrees)) == pytest.approx(stats.t.ppf(level, degrees), rel=5e-6)


def test_three_seeds_have_the_published_quantile_and_all_others_six_digits() -> None:
    assert single_quantile(3) == "2.920"
    assert [single_quantile(number) for number in (2, 4, 6)] == ["6.31375", "2.35336", "2.01505"]


def test_three_seeds_and_then_six_have_the_documented_quantiles() -> None:
    assert look_quantiles(3, 6) == ("4.08607", "2.49239")


@given(st.integers(2, 1000), st.integers(1, 1000))
def test_acceptance_asks_for_the_same_quantiles(first: int, added: int) -> None:
    sizes = (first, first + added)
    assert look_quantiles(*sizes) == tuple(str(least_quantile(sizes, look)) for look in (1, 2))
    if first != 3:
        assert single_quantile(first) == str(arithmetic.student_quantile(first - 1, central=0.90))
