"""What is shown beside the convergence gates."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest

from acceptance import convergence_observations
from tests.support.evidence import Campaign
from tests.support.runs import CLOSE, RECIPE, WIDE, finding_of, make_runs, observed, paired, run_rows, set_loss

LOSSES = [("3.50", "3.503"), ("3.40", "3.398"), ("3.47", "3.471")]


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return make_runs(tmp_path, {RECIPE: LOSSES})


def curve(campaign: Campaign, *losses: str, seed: int = 46, side: str = "candidate") -> None:
    """Give a run another curve, at 15360, 30720 and 40960 targets, and the final loss at its end."""
    for row, loss in zip(run_rows(campaign, "curves.csv", seed=seed, side=side), losses, strict=True):
        row["validation_loss"] = loss
    set_loss(campaign, losses[-1], seed=seed, side=side)


def cost(campaign: Campaign, seed: int = 46, kind: str = "cost") -> dict[str, Any]:
    found: dict[str, Any] = next(own for own in observed(campaign)[kind]["seeds"] if own["seed"] == seed)
    return found


def test_every_difference_stands_beside_what_is_made_of_them(campaign: Campaign) -> None:
    seen = observed(campaign)
    assert [(own["seed"], own["baseline"], own["candidate"], own["difference"]) for own in seen["differences"]] == [
        (45, 3.5, 3.503, 0.003), (46, 3.4, 3.398, -0.002), (47, 3.47, 3.471, 0.001),
    ]  # fmt: skip
    own, other = [3.5, 3.4, 3.47], [3.503, 3.398, 3.471]
    differences = [0.003, -0.002, 0.001]
    expected = {
        "baseline_mean": statistics.mean(own),
        "candidate_mean": statistics.mean(other),
        "baseline_sd_ddof1": statistics.stdev(own),
        "candidate_sd_ddof1": statistics.stdev(other),
        "correlation": statistics.correlation(own, other),
        "mean_difference": statistics.mean(differences),
        "sd_difference_ddof1": statistics.stdev(differences),
        "largest_difference": 0.003,
        "quantile": 2.92,
    }
    assert {name: seen[name] for name in expected} == pytest.approx(expected)
    assert (seen["targets"], seen["validation_targets"], seen["updates"]) == (40960, 8192, 40)
    assert seen["scored"] == "the mean of the workers, after the last consensus"
    assert (seen["look"], seen["extension"], seen["seeds"]) == (1, "undeclared", [45, 46, 47])


def test_without_variation_there_is_no_correlation(tmp_path: Path) -> None:
    seen = observed(make_runs(tmp_path, {RECIPE: [("3.5", "3.501"), ("3.5", "3.5"), ("3.5", "3.499")]}))
    assert (seen["correlation"], seen["baseline_sd_ddof1"], seen["candidate_sd_ddof1"]) == (None, 0.0, 0.001)


def test_without_all_seeds_there_are_differences_and_no_bound(campaign: Campaign) -> None:
    run_rows(campaign, seed=46)[0]["validation_tokens"] = "1"
    seen = observed(campaign)
    assert [own["seed"] for own in seen["differences"]] == [45, 47]
    statistic = ("quantile", "mean_difference", "sd_difference_ddof1", "lower", "upper", "largest_difference")
    assert {seen[name] for name in statistic} == {None}
    assert seen["baseline_mean"] == pytest.approx((3.5 + 3.47) / 2)
    assert finding_of(campaign) == "invalid"


def test_without_any_run_there_is_nothing_to_say(tmp_path: Path) -> None:
    seen = observed(make_runs(tmp_path, {RECIPE: []}))
    assert (seen["differences"], seen["cost"]["seeds"], seen["cost"]["targets_ratio"]) == ([], [], None)
    assert seen["baseline_mean"] is seen["candidate_sd_ddof1"] is seen["correlation"] is None


# --- cost to the baseline's final quality -----------------------------------------------------------------------------


def test_the_cost_is_read_between_two_points_of_the_curve(campaign: Campaign) -> None:
    """Half way down from 3.45 to 3.35 the candidate is at the baseline's 3.40: at 23040 of 40960 targets."""
    curve(campaign, "3.45", "3.35", "3.30")
    found = cost(campaign)
    assert found["quality"] == 3.4
    assert found["candidate"] == {"targets": 23040.0, "seconds": 50 * 23040 / 40960}
    assert found["baseline"] == {"targets": 40960.0, "seconds": 80.0}


def test_the_baselines_own_cost_is_where_its_curve_first_gets_there(campaign: Campaign) -> None:
    curve(campaign, "3.6", "3.4", "3.4", side="baseline")
    assert cost(campaign)["baseline"] == {"targets": 30720.0, "seconds": 60.0}
    curve(campaign, "3.6", "3.2", "3.4", side="baseline")
    assert cost(campaign)["baseline"] == {"targets": 23040.0, "seconds": 45.0}


def test_what_happened_before_the_first_point_is_not_guessed(campaign: Campaign) -> None:
    curve(campaign, "3.1", "3.0", "2.9")
    assert cost(campaign)["candidate"] == {"targets": 15360.0, "seconds": 18.75}


def test_a_curve_that_rises_again_was_there_all_the_same(campaign: Campaign) -> None:
    curve(campaign, "3.5", "3.39", "3.41")
    found = cost(campaign)["candidate"]
    assert found["targets"] == pytest.approx(15360 + 15360 * 0.1 / 0.11)


def test_a_quality_that_is_never_reached_costs_no_number(campaign: Campaign) -> None:
    curve(campaign, "3.6", "3.5", "3.4000001")
    assert cost(campaign)["candidate"] is None
    assert cost(campaign)["baseline"] is not None
    assert observed(campaign)["cost"]["targets_ratio"] is None
    assert observed(campaign)["cost"]["seconds_ratio"] is None


def test_the_ratios_are_of_the_sums_over_all_seeds(campaign: Campaign) -> None:
    for seed, quality in ((45, "3.50"), (46, "3.40"), (47, "3.47")):
        curve(campaign, "3.6", quality, "3.3", seed=seed)
    found = observed(campaign)["cost"]
    assert found["targets_ratio"] == pytest.approx(30720 / 40960)
    assert found["seconds_ratio"] == pytest.approx(30720 / 40960 * 50 / 80)


def test_seeds_that_get_there_are_counted_and_summed_apart(campaign: Campaign) -> None:
    for seed, losses in ((45, ("3.6", "3.50", "3.3")), (46, ("3.6", "3.40", "3.3")), (47, ("3.6", "3.5", "3.48"))):
        curve(campaign, *losses, seed=seed)
    found = observed(campaign)["cost"]
    assert (found["targets_ratio"], found["seconds_ratio"]) == (None, None)
    assert found["reached"] == {
        "seeds": 2,
        "targets_ratio": pytest.approx(30720 / 40960),
        "seconds_ratio": pytest.approx(30720 / 40960 * 50 / 80),
    }


def test_where_no_seed_gets_there_no_ratio_is_left(campaign: Campaign) -> None:
    for seed in (45, 46, 47):
        curve(campaign, "3.7", "3.65", "3.6", seed=seed)
    for kind in ("cost", "cost_at_margin"):
        assert observed(campaign)[kind]["reached"] == {"seeds": 0, "targets_ratio": None, "seconds_ratio": None}


def test_where_all_seeds_get_there_both_ratios_are_the_same(campaign: Campaign) -> None:
    found = observed(campaign)["cost_at_margin"]
    assert found["targets_ratio"] is not None
    assert found["reached"] == {"seeds": 3, **{name: found[name] for name in ("targets_ratio", "seconds_ratio")}}


def test_the_margin_is_added_to_the_quality_exactly(campaign: Campaign) -> None:
    """Between 3.45 and 3.385 the candidate is at 3.405, the baseline's 3.40 and the margin, after 9/13 of the way."""
    curve(campaign, "3.45", "3.385", "3.30")
    found = cost(campaign, kind="cost_at_margin")
    assert found["quality"] == 3.405
    assert found["candidate"]["targets"] == pytest.approx(15360 + 15360 * 9 / 13, rel=1e-15)
    curve(campaign, "3.6", "3.5", "3.405")
    assert cost(campaign, kind="cost_at_margin")["candidate"]["targets"] == 40960.0
    curve(campaign, "3.6", "3.5", "3.40500000000000001")
    assert cost(campaign, kind="cost_at_margin")["candidate"] is None


@pytest.mark.parametrize(
    "differences", [CLOSE, ["0", "0", "0.0038"], ["-0.0005", "-0.0005", "0.0036"], ["0.00499", "0.00499", "0.004991"]]
)
def test_a_candidate_that_passes_with_three_seeds_reaches_what_the_margin_allows(
    tmp_path: Path, differences: list[str]
) -> None:
    campaign = make_runs(tmp_path, {RECIPE: paired("3.5", differences)})
    assert finding_of(campaign) == "met"
    assert observed(campaign)["cost_at_margin"]["reached"]["seeds"] == 3


# --- what only shows --------------------------------------------------------------------------------------------------


def test_observations_that_fail_cost_no_verdict(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> Any:
        raise ArithmeticError("unforeseen")

    expected = campaign.verdict()
    monkeypatch.setattr(convergence_observations, "_cost", fail)
    verdict = campaign.verdict()
    assert (verdict["outcome"], verdict["gates"]) == ("pass", expected["gates"])
    assert verdict["observations"]["convergence"] is None
    assert verdict["observations"]["error"] == "ArithmeticError: unforeseen"


def test_the_margin_and_every_recipe_stand_there_in_the_order_of_the_protocol(tmp_path: Path) -> None:
    campaign = make_runs(tmp_path, {"z": paired("3.5", CLOSE), "a": paired("3.5", WIDE)}, margin="0.25")
    found = campaign.verdict()["observations"]["convergence"]
    assert (found["margin"], found["max_segments"]) == (0.25, 20)
    assert [own["recipe"] for own in found["recipes"]] == ["z", "a"]
