from __future__ import annotations

import itertools
import math
import statistics
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.planning.ratio_power import RatioGate, chance_median


def gate(*, num: int = 1, repeats: int = 3, pairs: int = 1, threshold: float = 1.05, median: bool = True) -> RatioGate:
    return RatioGate(
        subject="x", num_workloads=num, num_repeats=repeats, num_pairs=pairs, threshold=threshold, median=median
    )


@pytest.mark.parametrize(("sds", "chance"), [(0, 0.125), (0.5, 0.33), (1, 0.60), (1.5, 0.81), (2, 0.93), (3, 0.996)])
def test_one_workload_in_three_repeats_has_the_textbook_chance(sds: float, chance: float) -> None:
    true_ratio = 1.05 * math.exp(sds * 0.01)
    assert gate().chance(true_ratio, 0.01) == pytest.approx(chance, abs=0.005)


@pytest.mark.parametrize(("num", "sd"), [(1, 0.0110), (5, 0.0081), (10, 0.0074), (20, 0.0069)])
def test_neutral_production_cases_pass_at_90_percent_with_the_known_scatter(num: int, sd: float) -> None:
    production = gate(num=num, threshold=0.98, median=False)
    assert production.chance(1.0, sd) == pytest.approx(0.90, abs=0.012)


def grid_chance(num: int, relative: float, sd: float, cells: int) -> float:
    """Enumerate equally likely quantiles of each ratio."""
    normal = NormalDist(math.log(relative), sd)
    ratios = [math.exp(normal.inv_cdf((cell + 0.5) / cells)) for cell in range(cells)]
    hits = sum(statistics.median(draw) >= 1 for draw in itertools.product(ratios, repeat=num))
    return float(hits / cells**num)


@pytest.mark.parametrize(
    ("num", "relative", "sd", "cells"),
    [(2, 1.01, 0.02, 400), (2, 1.05, 0.5, 400), (3, 1.01, 0.02, 60), (4, 0.995, 0.02, 24), (4, 1.0, 0.4, 24)],
)
def test_the_chance_of_a_median_agrees_with_enumeration(num: int, relative: float, sd: float, cells: int) -> None:
    assert chance_median(num, relative, sd) == pytest.approx(grid_chance(num, relative, sd, cells), abs=0.03)


@given(st.integers(1, 300), st.floats(0.8, 1.2), st.floats(0.001, 0.5))
def test_a_chance_is_a_probability_and_grows_with_the_ratio(num: int, relative: float, sd: float) -> None:
    lower, higher = chance_median(num, relative, sd), chance_median(num, relative * 1.01, sd)
    assert 0 <= lower <= 1
    assert higher >= lower - 1e-6


@given(st.integers(1, 60), st.floats(0.001, 0.2), st.booleans())
def test_the_ratio_for_90_percent_has_that_chance(num: int, sd: float, median: bool) -> None:
    tested = gate(num=num, median=median)
    assert tested.chance(tested.ratio_for(sd), sd) == pytest.approx(0.9, abs=1e-3)


@pytest.mark.parametrize(
    ("num", "median", "repeats", "pairs"), [(4, True, 3, 1), (5, True, 3, 2), (24, True, 3, 1), (3, False, 3, 2)]
)
@pytest.mark.parametrize("shift", [-0.5, 0.0, 0.5, 1.5])
def test_the_chance_of_a_whole_gate_agrees_with_trials(
    num: int, median: bool, repeats: int, pairs: int, shift: float
) -> None:
    tested, sd, trials = gate(num=num, repeats=repeats, pairs=pairs, median=median), 0.02, 20_000
    true_ratio = tested.threshold * math.exp(shift * sd)
    random = np.random.default_rng([num, repeats, pairs, round(10 * shift) + 10])
    logs = random.normal(math.log(true_ratio), sd, (trials, repeats, num, pairs))
    ratios = np.exp(logs.mean(axis=3))
    of_repeats = np.median(ratios, axis=2) if median else ratios.min(axis=2)
    found = float((of_repeats >= tested.threshold).all(axis=1).mean())
    chance = tested.chance(true_ratio, sd)
    assert found == pytest.approx(chance, abs=4 * math.sqrt(chance * (1 - chance) / trials) + 1e-4)


@given(st.integers(1, 60), st.floats(0.001, 0.2), st.booleans())
def test_a_ratio_that_is_missed_with_80_percent_passes_with_20(num: int, sd: float, median: bool) -> None:
    tested = gate(num=num, median=median)
    assert tested.chance(tested.missed_from(sd), sd) == pytest.approx(0.2, abs=1e-3)
    assert tested.missed_from(sd) < tested.ratio_for(sd)


@pytest.mark.parametrize("wanted", [0.8, 0.9])
@pytest.mark.parametrize("median", [True, False])
@pytest.mark.parametrize("sd", [0.005, 0.02, 0.05])
def test_the_pairs_that_are_needed_suffice_and_fewer_do_not(sd: float, median: bool, wanted: float) -> None:
    tested = gate(num=5, median=median, threshold=0.98)
    found = tested.pairs_for(1.0, sd, wanted)
    assert found is not None
    assert found == 1 or found % 2 == 0
    assert gate(num=5, median=median, threshold=0.98, pairs=found).chance(1.0, sd) >= wanted
    if found > 1:
        fewer = gate(num=5, median=median, threshold=0.98, pairs=max(found - 2, 1))
        assert fewer.chance(1.0, sd) < wanted


def test_no_number_of_pairs_helps_at_the_threshold() -> None:
    assert gate(threshold=1.05).pairs_for(1.05, 0.01) is None
    assert gate(threshold=1.05).pairs_for(1.0, 0.01) is None
    assert gate(threshold=1.05).pairs_for(1.0501, 0.1) is None


def test_two_pairs_a_repeat_halve_the_variance() -> None:
    assert gate(pairs=2).chance(1.06, 0.02) == pytest.approx(gate().chance(1.06, 0.02 / math.sqrt(2)))


@pytest.mark.parametrize(("ratio", "sd"), [(1.0, 0.0), (1.0, -1.0), (1.0, math.nan), (0.0, 0.1), (math.inf, 0.1)])
def test_numbers_that_mean_nothing_are_refused(ratio: float, sd: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        gate().chance(ratio, sd)


def test_the_median_of_nothing_has_no_chance() -> None:
    with pytest.raises(ValueError, match="nothing"):
        chance_median(0, 1.0, 0.1)


def test_rounding_does_not_make_a_chance_above_one() -> None:
    assert chance_median(299, 1.1875, 0.25) == 1
    assert chance_median(43, 1.125, 0.0625) == 1
