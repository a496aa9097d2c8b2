from __future__ import annotations

import decimal
import math
import statistics
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from acceptance import arithmetic

positive = st.decimals(min_value="0.01", max_value="100", places=6)


def test_the_median_of_an_even_count_is_the_mean_of_the_middle_two_in_ratio_space() -> None:
    assert arithmetic.median([Decimal(text) for text in ("1.3", "0.8", "1.2", "1")]) == Decimal("1.10")


def test_the_median_of_nothing_is_no_number() -> None:
    with pytest.raises(ValueError, match="no values"):
        arithmetic.median([])


@given(st.lists(positive, min_size=1, max_size=9))
def test_median_agrees_with_an_independent_computation(values: list[Decimal]) -> None:
    assert float(arithmetic.median(values)) == pytest.approx(statistics.median(map(float, values)), rel=1e-12)


@given(st.lists(positive, min_size=2, max_size=8))
def test_geometric_mean_and_spread_agree_with_independent_computations(values: list[Decimal]) -> None:
    doubles = [float(value) for value in values]
    assert float(arithmetic.geometric_mean(values)) == pytest.approx(statistics.geometric_mean(doubles), rel=1e-12)
    spread = arithmetic.std_ddof1(values)
    assert spread is not None
    assert float(spread) == pytest.approx(statistics.stdev(doubles), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("count", [2, 4, 6])
def test_equal_ratios_on_a_threshold_keep_their_value_as_a_double(count: int) -> None:
    assert arithmetic.to_double(arithmetic.geometric_mean([Decimal("1.05")] * count)) == 1.05


def test_one_value_has_no_standard_deviation() -> None:
    assert arithmetic.std_ddof1([Decimal(1)]) is None


def test_what_is_not_finite_is_refused() -> None:
    with pytest.raises(arithmetic.NotFiniteError):
        arithmetic.to_double(Decimal("1e400"))


@pytest.mark.parametrize(
    ("value", "expected"), [("1.000000001", False), ("1.0000000011", True), ("0.9999999989", True)]
)
def test_two_spellings_may_differ_by_the_tolerance_and_no_more(value: str, expected: bool) -> None:
    assert arithmetic.differs(Decimal(value), Decimal(1), Decimal("1e-9")) is expected


def test_the_students_t_quantile_agrees_with_scipy_to_six_digits() -> None:
    for degrees in range(1, 400):
        exact = float(stats.t.ppf(0.975, degrees))
        assert float(arithmetic.student_975(degrees)) == pytest.approx(exact, rel=5.1e-6), degrees


def test_no_students_t_quantile_lies_so_near_a_rounding_edge_that_a_machine_could_tell() -> None:
    for degrees in range(1, 400):
        scaled = float(stats.t.ppf(0.975, degrees)) * 10 ** (5 - math.floor(math.log10(stats.t.ppf(0.975, degrees))))
        assert abs(scaled % 1 - 0.5) > 1e-6, degrees


def test_the_median_interval_holds_its_confidence_and_is_as_narrow_as_it_may_be() -> None:
    for count in range(1, 60):
        ranks = arithmetic.median_interval_ranks(count)
        below = 0 if ranks is None else ranks[0] + 1
        assert 2 * stats.binom.cdf(below - 1, count, 0.5) <= 0.05
        assert 2 * stats.binom.cdf(below, count, 0.5) > 0.05
        if ranks is not None:
            assert ranks[0] + ranks[1] == count - 1


def test_fewer_than_six_values_have_no_median_interval() -> None:
    assert [arithmetic.median_interval_ranks(count) is None for count in (0, 1, 5, 6)] == [True, True, True, False]


def test_the_mean_interval_agrees_with_scipy() -> None:
    values = [Decimal(text) for text in ("0.1", "0.15", "0.3", "0.22")]
    found = arithmetic.mean_estimate(values)
    assert found.lower is not None
    assert found.upper is not None
    doubles = [float(value) for value in values]
    expected = stats.t.interval(0.95, 3, loc=statistics.mean(doubles), scale=stats.sem(doubles))
    assert (float(found.lower), float(found.upper)) == pytest.approx(expected, rel=1e-5)


def test_the_slope_within_groups_agrees_with_least_squares() -> None:
    groups = [
        [(1, Decimal("0.10")), (-1, Decimal("0.05")), (1, Decimal("0.12"))],
        [(-1, Decimal("0.5")), (1, Decimal("0.6"))],
    ]
    found = arithmetic.slope_within_groups(groups)
    assert found is not None
    x = [x - statistics.mean(x for x, _ in group) for group in groups for x, _ in group]
    y = [float(y) - statistics.mean(float(y) for _, y in group) for group in groups for _, y in group]
    assert float(found.value) == pytest.approx(sum(a * b for a, b in zip(x, y, strict=True)) / sum(a * a for a in x))
    assert found.lower is not None
    residuals = [b - float(found.value) * a for a, b in zip(x, y, strict=True)]
    error = math.sqrt(sum(r * r for r in residuals) / 2 / sum(a * a for a in x))
    assert float(found.value - found.lower) == pytest.approx(stats.t.ppf(0.975, 2) * error, rel=1e-5)


def test_without_variation_of_order_there_is_no_slope() -> None:
    assert arithmetic.slope_within_groups([[(1, Decimal(1)), (1, Decimal(2)), (1, Decimal(3))]]) is None
    assert arithmetic.slope_within_groups([[(1, Decimal(1))], [(-1, Decimal(2))]]) is None


@settings(max_examples=20)
@given(st.lists(positive, min_size=2, max_size=6))
def test_the_processs_decimal_context_has_no_influence(values: list[Decimal]) -> None:
    expected = arithmetic.geometric_mean(values), arithmetic.median(values), arithmetic.std_ddof1(values)
    with decimal.localcontext(decimal.Context(prec=3, rounding=decimal.ROUND_UP)):
        assert (arithmetic.geometric_mean(values), arithmetic.median(values), arithmetic.std_ddof1(values)) == expected
        assert arithmetic.differs(Decimal("1.0000000011"), Decimal(1), Decimal("1e-9"))


@pytest.mark.parametrize("central", [0.90, 0.945, 0.95])
def test_any_central_quantile_agrees_with_scipy_to_six_digits(central: float) -> None:
    for degrees in range(1, 200):
        exact = float(stats.t.ppf((1 + central) / 2, degrees))
        assert float(arithmetic.student_quantile(degrees, central=central)) == pytest.approx(exact, rel=5.1e-6), degrees


@given(st.lists(st.tuples(positive, positive), min_size=3, max_size=8))
def test_the_correlation_agrees_with_an_independent_computation(pairs: list[tuple[Decimal, Decimal]]) -> None:
    one, other = [x for x, _ in pairs], [y for _, y in pairs]
    found = arithmetic.correlation(one, other)
    if len(set(one)) == 1 or len(set(other)) == 1:
        assert found is None
    else:
        assert found is not None
        expected = statistics.correlation([float(x) for x in one], [float(y) for y in other])
        assert float(found) == pytest.approx(expected, abs=1e-6)


def test_a_correlation_needs_pairs() -> None:
    with pytest.raises(ValueError, match="shorter"):
        arithmetic.correlation([Decimal(1), Decimal(2)], [Decimal(1)])
