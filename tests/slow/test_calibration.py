"""The instrument itself: what it says of a candidate that is the baseline, of a slower one and of a faster one."""

from __future__ import annotations

import math
import statistics
import sys
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest

from tests.support.tinylm import run_to_verdict, write_campaign

pytestmark = [pytest.mark.slow, pytest.mark.alone]

Verdict = dict[str, Any]
RUNS = 5
RARE = 1e-3
RARE_QUANTILE = 8.61
"""t(1 - RARE / 2, RUNS - 1)."""


def gates(verdict: Verdict, prefix: str) -> list[Verdict]:
    found = [gate for gate in verdict["gates"] if gate["id"].startswith(prefix)]
    assert found
    return found


def observations(verdict: Verdict, kind: str) -> list[Verdict]:
    found = [entry for entry in verdict["observations"]["throughput"] if entry["kind"] == kind]
    assert found
    return found


def spread(verdicts: list[Verdict]) -> float:
    """Return the largest relative distance of two ratios of one workload, whichever runs they come from."""
    entries = [entry for verdict in verdicts for entry in observations(verdict, "production")]
    return max(
        max(float(entry["maximum_ratio"]) for entry in entries if entry["subject"] == subject)
        / min(float(entry["minimum_ratio"]) for entry in entries if entry["subject"] == subject)
        - 1.0
        for subject in {entry["subject"] for entry in entries}
    )


def measure(folder: Path, candidate: str, adapter: str, *, slowed_share: float | None = None) -> Verdict:
    """Measure one candidate more, with windows long enough to average over what else the machine does."""
    config = write_campaign(folder, candidate=candidate, adapter=adapter, window_s="0.3", slowed_share=slowed_share)
    return run_to_verdict(config)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for one campaign with all of the candidates."""
    return tmp_path_factory.mktemp("calibration")


@pytest.fixture(scope="module")
def same_against_same(folder: Path) -> list[Verdict]:
    return [measure(folder, f"run-{run}", "adapter:native") for run in range(RUNS)]


@pytest.mark.parametrize("category", ["sync", "packed4"])
def test_the_baseline_against_itself_passes_no_more_often_than_its_own_spread_explains(
    same_against_same: list[Verdict], category: str
) -> None:
    found = [gates(verdict, f"throughput/{category}/repeat-") for verdict in same_against_same]
    assert [len(repeats) for repeats in found] == [3] * RUNS
    passes = sum(all(gate["outcome"] == "pass" for gate in repeats) for repeats in found)
    logs = [[math.log(gate["value"]) for gate in repeats] for repeats in found]
    (threshold,) = {gate["threshold"] for repeats in found for gate in repeats}
    # As if one repeat decided: on a machine that others use, the three of a campaign are not independent.
    chance = NormalDist().cdf(-math.log(threshold) / statistics.stdev(value for own in logs for value in own))
    assert chance_of_at_least(passes, RUNS, chance) > RARE
    means = [statistics.fmean(own) for own in logs]
    assert abs(statistics.fmean(means)) <= RARE_QUANTILE * statistics.stdev(means) / math.sqrt(RUNS)


def chance_of_at_least(count: int, number: int, chance: float) -> float:
    """Return the chance of so many successes or more among some independent trials."""
    return sum(
        math.comb(number, found) * chance**found * (1 - chance) ** (number - found)
        for found in range(count, number + 1)
    )


@pytest.mark.parametrize(
    ("passes", "sd", "rare"), [(0, 0.01, False), (1, 0.04, False), (2, 0.02, True), (5, 0.05, True)]
)
def test_passes_that_the_spread_does_not_explain_are_rare(passes: int, sd: float, rare: bool) -> None:
    chance = NormalDist().cdf(-math.log(1.05) / sd)
    assert (chance_of_at_least(passes, RUNS, chance) <= RARE) is rare


def test_its_median_spread_and_order_effect_are_stated(
    same_against_same: list[Verdict], capsys: pytest.CaptureFixture[str]
) -> None:
    for verdict in same_against_same:
        for entry in observations(verdict, "category"):
            assert 0.5 < entry["median_ratio"] < 2.0
            numbers = (entry["sd_log_ratio_ddof1"], *(entry[f"order_effect{end}"] for end in ("", "_lower", "_upper")))
            assert all(math.isfinite(number) and number > 0 for number in numbers)
            spread, effect, lower, upper = numbers
            with capsys.disabled():
                sys.stdout.write(
                    f"\nsame against same, {entry['subject']}: median {entry['median_ratio']:.4f}, "
                    f"range {entry['minimum_ratio']:.4f} to {entry['maximum_ratio']:.4f}, "
                    f"SD of ln {spread:.4f}, order effect {effect:.4f} ({lower:.4f} to {upper:.4f})"
                )


def test_a_candidate_slower_than_the_noise_misses_every_production_gate(
    same_against_same: list[Verdict], folder: Path
) -> None:
    share = max(0.05, spread(same_against_same))
    assert math.isfinite(share)
    verdict = measure(folder, "slowed", "slowed:slowed", slowed_share=share)
    assert {gate["finding"] for gate in gates(verdict, "throughput/production/")} == {"missed"}
    assert verdict["outcome"] == "not_qualified"


def test_the_real_speed_up_of_packed_training_passes(folder: Path) -> None:
    verdict = measure(folder, "fast", "adapter:fast")
    assert {gate["finding"] for gate in gates(verdict, "throughput/packed4/")} == {"met"}
    assert {gate["finding"] for gate in gates(verdict, "throughput/production/tiny-packed4-b2/")} == {"met"}
