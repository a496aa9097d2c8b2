"""The instrument itself: what it says of a candidate that is the baseline, of a slower one and of a faster one."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.tinylm import run_to_verdict, write_campaign

pytestmark = pytest.mark.slow

Verdict = dict[str, Any]
RUNS = 5


def gates(verdict: Verdict, prefix: str) -> list[Verdict]:
    found = [gate for gate in verdict["gates"] if gate["id"].startswith(prefix)]
    assert found
    return found


def observations(verdict: Verdict, kind: str) -> list[Verdict]:
    found = [entry for entry in verdict["observations"]["throughput"] if entry["kind"] == kind]
    assert found
    return found


def spread(verdict: Verdict) -> float:
    """Return the largest relative distance of two ratios of one workload."""
    ranges = [(entry["minimum_ratio"], entry["maximum_ratio"]) for entry in observations(verdict, "production")]
    return max(float(highest) / float(lowest) - 1.0 for lowest, highest in ranges)


@pytest.fixture(scope="module")
def same_against_same(tmp_path_factory: pytest.TempPathFactory) -> list[Verdict]:
    folder = tmp_path_factory.mktemp("same")
    return [run_to_verdict(write_campaign(folder / f"run-{run}", adapter="adapter:native")) for run in range(RUNS)]


def test_the_baseline_against_itself_passes_no_category(same_against_same: list[Verdict]) -> None:
    for verdict in same_against_same:
        assert all(
            family["outcome"] == "not_qualified"
            for name, family in verdict["families"].items()
            if name == "throughput/category"
        )
        for category in ("sync", "packed4"):
            repeats = gates(verdict, f"throughput/{category}/repeat-")
            assert len(repeats) == 3
            assert any(gate["outcome"] == "not_qualified" for gate in repeats)


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
    same_against_same: list[Verdict], tmp_path: Path
) -> None:
    share = max(0.05, *(spread(verdict) for verdict in same_against_same))
    assert math.isfinite(share)
    verdict = run_to_verdict(write_campaign(tmp_path / "slowed", adapter="slowed:slowed", slowed_share=share))
    assert {gate["finding"] for gate in gates(verdict, "throughput/production/")} == {"missed"}
    assert verdict["outcome"] == "not_qualified"


def test_the_real_speed_up_of_packed_training_passes(tmp_path: Path) -> None:
    verdict = run_to_verdict(write_campaign(tmp_path / "fast", adapter="adapter:fast"))
    assert {gate["finding"] for gate in gates(verdict, "throughput/packed4/")} == {"met"}
    assert {gate["finding"] for gate in gates(verdict, "throughput/production/tiny-packed4-b2/")} == {"met"}
