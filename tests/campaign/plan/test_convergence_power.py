from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from campaign.documents import ConvergenceExtension, ConvergenceRules
from campaign.planning import convergence_power
from campaign.planning.convergence_power import ConvergenceGate, Look, seeds_for, upper_sd
from campaign.planning.quantiles import look_quantiles, single_quantile
from tests.support.trials import simulate

MARGIN = 0.005


def single(num: int = 3) -> ConvergenceGate:
    return ConvergenceGate.of(ConvergenceRules(seeds=tuple(range(num)), quantile=single_quantile(num)))


def double(first: int, added: int) -> ConvergenceGate:
    quantiles = look_quantiles(first, first + added)
    extension = ConvergenceExtension(
        seeds=tuple(range(first, first + added)), quantile_first=quantiles[0], quantile=quantiles[1]
    )
    return ConvergenceGate.of(ConvergenceRules(seeds=tuple(range(first)), extension=extension))


# --- one look: worked numbers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sd", "chance", "seeds", "beyond"),
    [
        (0.005428, 0.2914, (9, 12, 35), 0.01247),
        (0.007651, 0.1971, (16, 22, 67), 0.01758),
        (0.002424, 0.7322, (4, 4, 9), 0.00557),
        (0.000690, 1.0000, (2, 3, 3), 0.00159),
        (0.001586, 0.9471, (3, 3, 5), 0.00364),
    ],
)
def test_published_recipes_have_their_worked_power(
    sd: float, chance: float, seeds: tuple[int, int, int], beyond: float
) -> None:
    gate = single()
    assert gate.chance(0.0, sd) == pytest.approx(chance, abs=2e-4)  # the SDs are given to four digits
    found = seeds_for(MARGIN, sd), seeds_for(MARGIN, sd, 0.9), seeds_for(MARGIN, upper_sd(sd, 2))
    assert found == seeds
    assert gate.smallest_missed(sd) - MARGIN == pytest.approx(beyond, abs=1e-5)
    assert MARGIN - gate.largest_passing(sd) == pytest.approx(beyond, abs=1e-5)


@pytest.mark.parametrize(
    ("num", "sd_80", "sd_90"),
    [
        (3, 0.00218, 0.00180),
        (5, 0.00368, 0.00311),
        (6, 0.00422, 0.00357),
        (8, 0.00511, 0.00434),
        (10, 0.00586, 0.00498),
        (12, 0.00652, 0.00554),
    ],
)
def test_so_much_spread_is_borne_by_so_many_seeds(num: int, sd_80: float, sd_90: float) -> None:
    assert single(num).largest_sd() == pytest.approx(sd_80, abs=5e-6)
    assert single(num).largest_sd(0.9) == pytest.approx(sd_90, abs=5e-6)


def test_five_recipes_pooled_have_their_worked_power() -> None:
    assert single().chance(0.0, 0.0044) == pytest.approx(0.376, abs=5e-4)
    assert (seeds_for(MARGIN, 0.0044), seeds_for(MARGIN, 0.0044, 0.9)) == (7, 9)


@pytest.mark.parametrize(("sd", "at", "met"), [(7e-4, 0.0025, 0.976), (2.4e-3, 0.0025, 0.337), (5.4e-3, 0.01, 0.002)])
def test_worked_chances_away_from_zero(sd: float, at: float, met: float) -> None:
    assert single().chance(at, sd) == pytest.approx(met, abs=2e-3)


@pytest.mark.parametrize(("sd", "missed"), [(0.0024, 0.739), (0.005428, 0.292), (0.0007, 1.0)])
def test_worked_chances_to_be_shown_worse_at_twice_the_margin(sd: float, missed: float) -> None:
    assert single().chance_missed(0.01, sd) == pytest.approx(missed, abs=1e-3)


@given(st.integers(2, 40), st.floats(-0.02, 0.02), st.floats(1e-4, 0.05))
def test_one_look_has_the_noncentral_t_distribution(num: int, difference: float, sd: float) -> None:
    gate = single(num)
    noncentrality = (MARGIN - difference) * math.sqrt(num) / sd
    if abs(noncentrality) < 6:
        expected = stats.nct.sf(gate.first.quantile, num - 1, noncentrality)
        assert gate.chance(difference, sd) == pytest.approx(float(expected), abs=1e-9)


def test_at_the_margin_five_in_a_hundred_pass_and_as_many_are_missed() -> None:
    assert single().chance(MARGIN, 0.003) == pytest.approx(0.05, abs=1e-5)
    assert single().chance_missed(MARGIN, 0.003) == pytest.approx(0.05, abs=1e-5)


@pytest.mark.parametrize("sd", [1e-12, 1e-300])
def test_hardly_any_spread_makes_it_certain(sd: float) -> None:
    assert single().chance(0.0, sd) == pytest.approx(1.0, abs=1e-12)
    assert single().chance(0.01, sd) == 0.0
    assert double(3, 3).chance(0.01, sd) == 0.0
    assert double(3, 3).chance(0.0, sd) == pytest.approx(1.0)
    assert seeds_for(MARGIN, sd) == 2


@pytest.mark.parametrize("quantile", [2.0, 60.0, 1000.0])
def test_a_larger_quantile_than_asked_for_is_no_trouble(quantile: float) -> None:
    looks = Look(num_seeds=3, quantile=quantile), Look(num_seeds=6, quantile=quantile)
    for gate in (ConvergenceGate(margin=MARGIN, first=looks[0], second=second) for second in (None, looks[1])):
        for theta in (-50.0, 0.0, 50.0, 500.0):
            assert 0 <= gate.chance(MARGIN - theta * 1e-3, 1e-3) <= 1
        assert gate.chance(0.0, gate.largest_sd()) == pytest.approx(0.8, abs=1e-6)


def test_a_thousand_seeds_may_not_suffice() -> None:
    assert seeds_for(MARGIN, 0.06) == pytest.approx(894, abs=10)
    assert seeds_for(MARGIN, 0.1) is None


@pytest.mark.parametrize("sd", [0.0, -1.0, math.nan, math.inf])
def test_a_spread_that_means_nothing_is_refused(sd: float) -> None:
    for compute in (
        lambda: single().chance(0.0, sd),
        lambda: seeds_for(MARGIN, sd),
        lambda: single().largest_passing(sd),
    ):
        with pytest.raises(ValueError, match="finite and above zero"):
            compute()


@pytest.mark.parametrize("wanted", [0.5, 1.0, math.nan])
def test_a_chance_that_is_never_reached_cannot_be_wanted(wanted: float) -> None:
    with pytest.raises(ValueError, match="wanted"):
        single().largest_sd(wanted)


@pytest.mark.parametrize("degrees", [1, 2, 10, 100])
def test_the_upper_bound_is_exceeded_by_a_fifth_of_true_spreads(degrees: int) -> None:
    factor = upper_sd(1.0, degrees)
    # The sample's SD is below true / factor, so that the bound is below the true one, with a chance of 20%.
    assert stats.chi2.cdf(degrees / factor**2, degrees) == pytest.approx(0.2)
    assert factor > 1


def test_three_seeds_leave_the_spread_open_by_a_factor_of_two() -> None:
    assert upper_sd(1.0, 2) == pytest.approx(2.117, abs=1e-3)


# --- two looks --------------------------------------------------------------------------------------------------------

SIZES = [(2, 1), (2, 6), (3, 1), (3, 3), (3, 9), (5, 5), (5, 20)]


@pytest.mark.parametrize(("first", "added"), SIZES)
@pytest.mark.parametrize("theta", [0.0, 0.7, 1.5])
def test_two_looks_agree_with_trials(first: int, added: int, theta: float) -> None:
    gate, sd = double(first, added), 0.002
    difference = MARGIN - theta * sd
    found = simulate(gate, difference, sd, 200_000)
    chances = gate.chance(difference, sd), gate.chance_missed(difference, sd)
    assert found.met == pytest.approx(chances[0], abs=found.error(chances[0]))
    assert found.missed == pytest.approx(chances[1], abs=found.error(chances[1]))


@pytest.mark.parametrize(("first", "added"), [*SIZES, (3, 2), (100, 100), (500, 500)])
def test_more_points_change_nothing(first: int, added: int, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = double(first, added)
    sds = [MARGIN * math.sqrt(first) / at for at in (0.5, 1.5, 3.0)]
    coarse = [gate.chance(0.0, sd) for sd in sds]
    points = convergence_power._legendre
    monkeypatch.setattr(convergence_power, "_legendre", lambda count: points(2 * count))
    convergence_power._chance.cache_clear()
    assert [gate.chance(0.0, sd) for sd in sds] == pytest.approx(coarse, abs=1e-5)


def test_points_of_a_chi_variable_weigh_one_and_have_its_mean_square() -> None:
    for degrees in (1, 2, 7, 400):
        points, weights = convergence_power._chi_points(degrees, 64, [])
        assert float(weights.sum()) == pytest.approx(1.0, abs=1e-9)
        assert float((weights * points**2).sum()) == pytest.approx(degrees, rel=1e-9)


def test_the_second_look_adds_to_the_first_and_costs_it_something() -> None:
    gate = double(3, 3)
    first = ConvergenceGate(margin=MARGIN, first=gate.first, second=None)
    six = single(6)
    assert first.chance(0.0, 0.0024) < single().chance(0.0, 0.0024) < gate.chance(0.0, 0.0024) < six.chance(0.0, 0.0024)


def test_two_looks_keep_five_percent() -> None:
    assert double(3, 3).chance(MARGIN, 0.003) == pytest.approx(0.0488, abs=1e-4)
    assert all(double(*sizes).chance(MARGIN, 0.003) < 0.05 for sizes in SIZES)


@pytest.mark.parametrize("gate", [single(), single(8), double(3, 3)])
def test_each_figure_has_the_chance_that_it_is_named_for(gate: ConvergenceGate) -> None:
    sd = 0.0031
    assert gate.chance(gate.largest_passing(sd), sd) == pytest.approx(0.8, abs=1e-6)
    assert gate.chance_missed(gate.smallest_missed(sd), sd) == pytest.approx(0.8, abs=1e-6)
    assert gate.chance(0.0, gate.largest_sd()) == pytest.approx(0.8, abs=1e-6)
    assert gate.chance(0.0, gate.largest_sd(0.9)) == pytest.approx(0.9, abs=1e-6)


@pytest.mark.parametrize("gate", [single(), double(3, 3)])
def test_the_chance_falls_with_the_difference_and_at_zero_with_the_spread(gate: ConvergenceGate) -> None:
    by_difference = [gate.chance(step * 1e-3, 0.003) for step in range(-5, 12)]
    by_spread = [gate.chance(0.0, step * 5e-4) for step in range(1, 20)]
    assert by_difference == sorted(by_difference, reverse=True)
    assert by_spread == sorted(by_spread, reverse=True)


def test_a_gate_takes_the_quantiles_of_its_protocol() -> None:
    assert single().first == Look(num_seeds=3, quantile=2.92)
    assert double(3, 3).second == Look(num_seeds=6, quantile=2.49239)
    assert float(special.stdtrit(2, 0.95)) == pytest.approx(2.9199856)
