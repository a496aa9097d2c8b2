"""The power of the convergence gates against two million simulated campaigns each."""

from __future__ import annotations

import pytest

from campaign.documents import ConvergenceExtension, ConvergenceRules
from campaign.planning.convergence_power import ConvergenceGate, seeds_for
from campaign.planning.quantiles import look_quantiles, single_quantile
from tests.support.trials import simulate

pytestmark = pytest.mark.slow

NUM_TRIALS = 2_000_000
MARGIN = 0.005
SDS = (0.005428, 0.002424, 0.001586)


def gate(num: int, added: int = 0) -> ConvergenceGate:
    rules = ConvergenceRules(seeds=tuple(range(num)), quantile=single_quantile(num))
    if added:
        first, both = look_quantiles(num, num + added)
        seeds = tuple(range(num, num + added))
        rules = rules.replace(extension=ConvergenceExtension(seeds=seeds, quantile_first=first, quantile=both))
    return ConvergenceGate.of(rules)


@pytest.mark.parametrize("sd", SDS)
@pytest.mark.parametrize("sizes", [(2,), (3,), (8,), (3, 1), (3, 3), (3, 9), (5, 5), (5, 20)])
def test_the_chance_to_pass_is_the_share_of_trials_that_do(sizes: tuple[int, ...], sd: float) -> None:
    tested = gate(*sizes)
    for difference in (0.0, 0.0025, MARGIN):
        chance = tested.chance(difference, sd)
        found = simulate(tested, difference, sd, NUM_TRIALS)
        assert found.met == pytest.approx(chance, abs=found.error(chance))


@pytest.mark.parametrize("sd", SDS)
@pytest.mark.parametrize("sizes", [(3,), (8,), (3, 3), (5, 5)])
def test_the_smallest_difference_that_is_missed_is_so_in_four_trials_of_five(sizes: tuple[int, ...], sd: float) -> None:
    tested = gate(*sizes)
    missed = simulate(tested, tested.smallest_missed(sd), sd, NUM_TRIALS)
    assert missed.missed == pytest.approx(0.8, abs=missed.error(0.8))
    passing = simulate(tested, tested.largest_passing(sd), sd, NUM_TRIALS)
    assert passing.met == pytest.approx(0.8, abs=passing.error(0.8))


@pytest.mark.parametrize("wanted", [0.8, 0.9])
@pytest.mark.parametrize("sd", SDS)
def test_the_seeds_that_are_needed_suffice_and_one_less_does_not(sd: float, wanted: float) -> None:
    needed = seeds_for(MARGIN, sd, wanted)
    assert needed is not None
    enough = simulate(gate(needed), 0.0, sd, NUM_TRIALS)
    assert enough.met >= wanted - enough.error(wanted)
    fewer = simulate(gate(needed - 1), 0.0, sd, NUM_TRIALS)
    assert fewer.met < wanted + fewer.error(wanted)
    assert fewer.met < enough.met


@pytest.mark.parametrize("sizes", [(3,), (6,), (3, 3)])
@pytest.mark.parametrize("wanted", [0.8, 0.9])
def test_the_largest_spread_that_is_borne_is_borne(sizes: tuple[int, ...], wanted: float) -> None:
    tested = gate(*sizes)
    found = simulate(tested, 0.0, tested.largest_sd(wanted), NUM_TRIALS)
    assert found.met == pytest.approx(wanted, abs=found.error(wanted))
