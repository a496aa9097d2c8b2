"""The convergence gates: the published table, the edges of the rule, and whatever shows nothing."""

from __future__ import annotations

import csv
import math
import random
import time
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from acceptance import convergence
from tests.support.evidence import CANDIDATE_SHA256, Campaign, make_campaign
from tests.support.runs import (
    CLOSE,
    PUBLISHED,
    RECIPE,
    WIDE,
    finding_of,
    gates_of,
    make_runs,
    observed,
    paired,
    run_rows,
    set_loss,
)

EXACT = "2.9199855803537242"
"""t(0.95, 2)."""

TABLE = {
    "sync-production": ("3.561927", "3.563907", "+0.001980", "+0.011131", "inconclusive"),
    "packed4-production": ("3.582629", "3.576025", "-0.006605", "+0.006294", "inconclusive"),
    "packed8-production": ("3.589794", "3.590999", "+0.001204", "+0.005291", "inconclusive"),
    "sync-b16-c512": ("3.562178", "3.562470", "+0.000292", "+0.001456", "met"),
    "packed4-b32-c512": ("3.562264", "3.564476", "+0.002211", "+0.004884", "met"),
}
"""Mean of each side, mean difference and upper bound to six decimals, as published; and the finding."""

LOWER = {
    "sync-production": -0.007171,
    "packed4-production": -0.019504,
    "packed8-production": -0.002883,
    "sync-b16-c512": -0.000872,
    "packed4-b32-c512": -0.000462,
}


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return make_runs(tmp_path)


def with_differences(folder: Path, *differences: str, **rules: Any) -> Campaign:
    return make_runs(folder, {RECIPE: paired("3.5", differences)}, **rules)


# --- the published table ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quantile", ["2.920", EXACT])
def test_the_published_table_comes_out_in_every_column(tmp_path: Path, quantile: str) -> None:
    campaign = make_runs(tmp_path, PUBLISHED, quantile=quantile)
    gates = gates_of(campaign)
    for recipe, row in TABLE.items():
        seen, gate = observed(campaign, recipe), gates[recipe]
        shown = [f"{seen[name]:.6f}" for name in ("baseline_mean", "candidate_mean")]
        shown += [f"{seen[name]:+.6f}" for name in ("mean_difference", "upper")]
        assert (*shown, gate["finding"]) == row
        assert gate["outcome"] == ("pass" if row[4] == "met" else "not_qualified")
        assert (gate["value"], gate["lower"]) == (gate["upper"], pytest.approx(LOWER[recipe], abs=1e-6))
        assert (gate["upper"], gate["lower"]) == (seen["upper"], seen["lower"])
        assert (gate["threshold"], gate["comparison"], gate["statistic"]) == (0.005, "<", "upper_95_one_sided")
        assert (gate["n"], gate["subject"], gate["family"]) == (3, recipe, "convergence")
        assert gate["margin"] == pytest.approx(0.005 - gate["upper"], abs=1e-15)


def test_the_published_table_blocks_for_want_of_evidence_and_shows_no_miss(tmp_path: Path) -> None:
    campaign = make_runs(tmp_path, PUBLISHED)
    verdict = campaign.verdict()
    assert (verdict["outcome"], campaign.evaluate().exit_code) == ("not_qualified", 4)
    assert verdict["families"]["convergence"] == {"outcome": "not_qualified", "passed": 2, "total": 5}
    assert verdict["families"]["evidence"]["outcome"] == "pass"


def test_the_literal_quantile_moves_no_bound_by_more_than_the_eighth_decimal(tmp_path: Path) -> None:
    literal, exact = (gates_of(make_runs(tmp_path, PUBLISHED, quantile=quantile)) for quantile in ("2.920", EXACT))
    for recipe in TABLE:
        assert 0 < literal[recipe]["upper"] - exact[recipe]["upper"] < 6.5e-8


def test_better_on_average_and_yet_inconclusive(tmp_path: Path) -> None:
    campaign = make_runs(tmp_path, {"packed4-production": PUBLISHED["packed4-production"]})
    assert observed(campaign, "packed4-production")["mean_difference"] < 0
    gate = gates_of(campaign)["packed4-production"]
    assert (gate["finding"], gate["outcome"]) == ("inconclusive", "not_qualified")
    assert "the margin lies between the bounds" in gate["reason"]


# --- the edges of the rule --------------------------------------------------------------------------------------------

EDGES = [
    (["0.006", "0.0065", "0.007"], "missed", 0.007343, 0.005657),
    (WIDE, "inconclusive", 0.006686, 0.003314),
    (CLOSE, "met", 0.001686, -0.001686),
    (["0.0023", "0.0033", "0.0043"], "met", 0.004986, 0.001614),
    (["0.0024", "0.0034", "0.0044"], "inconclusive", 0.005086, 0.001714),
    (["0.0057", "0.0067", "0.0077"], "missed", 0.008386, 0.005014),
    (["0.0056", "0.0066", "0.0076"], "inconclusive", 0.008286, 0.004914),
    (["-1", "-1.001", "-0.999"], "met", -0.998314, -1.001686),
    (["0", "0", "0.003"], "met", 0.003920, -0.001920),
]


@pytest.mark.parametrize(("differences", "finding", "upper", "lower"), EDGES)
def test_a_gate_just_inside_and_just_outside(
    tmp_path: Path, differences: list[str], finding: str, upper: float, lower: float
) -> None:
    campaign = with_differences(tmp_path, *differences)
    gate = gates_of(campaign)[RECIPE]
    assert gate["finding"] == finding
    assert (gate["upper"], gate["lower"]) == pytest.approx((upper, lower), abs=1e-6)
    assert campaign.evaluate().exit_code == {"met": 0, "missed": 3, "inconclusive": 4}[finding]


def test_the_bound_must_be_strictly_below_the_margin_and_the_lower_one_may_equal_it(tmp_path: Path) -> None:
    # With q = 2.92 and s = 0.003 / sqrt(3) the half width is 2.92 * 0.001.
    differences = ["0.001", "0.001", "-0.002"]
    upper = gates_of(with_differences(tmp_path, *differences))[RECIPE]["upper"]
    assert upper == 0.00292
    for margin, finding in (("0.00292", "inconclusive"), ("0.0029200000000001", "met")):
        assert finding_of(with_differences(tmp_path, *differences, margin=margin)) == finding
    raised = [str(Decimal(text) + Decimal("0.01")) for text in differences]
    for margin, finding in (("0.00708", "missed"), ("0.0070800000000001", "inconclusive")):
        assert finding_of(with_differences(tmp_path, *raised, margin=margin)) == finding


def test_differences_are_taken_from_the_text_and_not_from_doubles(tmp_path: Path) -> None:
    """A difference far below the resolution of a double is seen, and so is that there is none."""
    tiny = "0." + "0" * 30 + "1"
    campaign = make_runs(tmp_path, {RECIPE: [("3.5", f"3.5{'0' * 30}1"), ("3.4", "3.4"), ("3.6", "3.60")]})
    seen = observed(campaign)
    assert [own["difference"] for own in seen["differences"]] == [float(tiny) / 10, 0.0, 0.0]
    assert seen["sd_difference_ddof1"] > 0
    assert gates_of(campaign)[RECIPE]["finding"] == "met"


def test_losses_beyond_any_double_in_difference_are_invalid_and_stop_nothing_else(tmp_path: Path) -> None:
    huge = [("1.7e308", "-1.7e308"), ("3.4", "3.4"), ("3.6", "3.6")]
    campaign = make_runs(tmp_path, {RECIPE: paired("3.5", CLOSE), "other": huge})
    gates = gates_of(campaign)
    assert (gates["other"]["finding"], gates["other"]["value"]) == ("invalid", None)
    assert gates[RECIPE]["finding"] == "met"
    assert observed(campaign, "other")["upper"] is None


# --- differences without variance -------------------------------------------------------------------------------------


def test_all_zero_is_met_for_different_snapshots_with_checkpoints_of_their_own(tmp_path: Path) -> None:
    campaign = with_differences(tmp_path, "0", "0", "0")
    gate = gates_of(campaign)[RECIPE]
    assert (gate["finding"], gate["upper"], gate["lower"]) == ("met", 0.0, 0.0)
    assert campaign.evaluate().exit_code == 0


def test_all_zero_is_invalid_for_one_snapshot(tmp_path: Path) -> None:
    campaign = with_differences(tmp_path, "0", "0", "0")
    campaign.identity["baseline_sha256"] = CANDIDATE_SHA256
    gate = gates_of(campaign)[RECIPE]
    assert (gate["finding"], gate["value"], gate["lower"], gate["upper"]) == ("invalid", None, None, None)
    assert "the same snapshot" in gate["reason"]
    assert campaign.evaluate().exit_code == 4


@pytest.mark.parametrize("seed", [45, 46, 47])
def test_all_zero_is_invalid_with_a_checkpoint_told_twice(tmp_path: Path, seed: int) -> None:
    campaign = with_differences(tmp_path, "0", "0", "0")
    baseline, candidate = (run_rows(campaign, seed=seed, side=side)[0] for side in ("baseline", "candidate"))
    candidate["checkpoint_sha256"] = baseline["checkpoint_sha256"]
    gate = gates_of(campaign)[RECIPE]
    assert gate["finding"] == "invalid"
    assert "one checkpoint" in gate["reason"]


def test_all_zero_is_invalid_without_a_seal(tmp_path: Path) -> None:
    campaign = with_differences(tmp_path, "0", "0", "0")
    campaign.rows("attempts.csv")[2]["sealed"] = "false"
    assert finding_of(campaign) == "invalid"


@pytest.mark.parametrize("difference", ["0.0049999", "0.005", "-0.001", "0.001", "7"])
def test_equal_differences_that_are_not_zero_are_invalid(tmp_path: Path, difference: str) -> None:
    gate = gates_of(with_differences(tmp_path, *[difference] * 3))[RECIPE]
    assert (gate["finding"], gate["outcome"], gate["value"]) == ("invalid", "not_qualified", None)
    assert "equal and not zero" in gate["reason"]


def test_the_same_snapshot_may_differ_by_noise(tmp_path: Path) -> None:
    campaign = make_runs(tmp_path)
    campaign.identity["baseline_sha256"] = CANDIDATE_SHA256
    assert finding_of(campaign) == "met"


# --- what is not there ------------------------------------------------------------------------------------------------


def test_fewer_seeds_are_missing_and_never_another_statistic(tmp_path: Path) -> None:
    campaign = make_runs(tmp_path, {RECIPE: paired("3.5", CLOSE)[:2], "other": paired("3.6", CLOSE)})
    gates = gates_of(campaign)
    assert (gates[RECIPE]["finding"], gates[RECIPE]["n"], gates[RECIPE]["value"]) == ("missing", 0, None)
    assert gates["other"]["finding"] == "met"
    assert campaign.evaluate().exit_code == 4


def test_more_seeds_are_what_the_protocol_says(tmp_path: Path) -> None:
    seeds = tuple(range(45, 53))
    losses = paired("3.5", [*CLOSE, "0.002", "0.003", "-0.002", "0.0005", "0.0015"])
    campaign = make_runs(tmp_path, {RECIPE: losses}, seeds=seeds, quantile="1.89458")
    gate = gates_of(campaign)[RECIPE]
    assert (gate["n"], gate["finding"]) == (8, "met")


def test_an_absent_table_is_missing_evidence(campaign: Campaign) -> None:
    for file in ("convergence.csv", "curves.csv"):
        spoilt = campaign.write()
        (spoilt.evidence_path / file).unlink()
        verdict = spoilt.verdict()
        findings = {gate["id"]: gate["finding"] for gate in verdict["gates"]}
        assert findings[f"evidence/{file}"] == "missing"
        assert findings[f"convergence/{RECIPE}"] == "missing"


def test_a_family_without_a_recipe_never_passes(tmp_path: Path) -> None:
    campaign = make_runs(tmp_path, {})
    verdict = campaign.verdict()
    (gate,) = [gate for gate in verdict["gates"] if gate["family"] == "convergence"]
    assert (gate["id"], gate["finding"], verdict["outcome"]) == ("convergence/family", "missing", "not_qualified")
    assert campaign.evaluate().exit_code == 4


def test_an_undeclared_family_is_absent_and_its_rows_are_invalid(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, ratios={"a": ("1.2",) * 3})
    verdict = campaign.verdict()
    assert "convergence" not in verdict["families"]
    assert verdict["observations"]["convergence"] is None
    assert "evidence/convergence.csv" not in {gate["id"] for gate in verdict["gates"]}
    trained = make_runs(tmp_path / "trained")
    for file in ("convergence.csv", "curves.csv"):
        campaign.tables[file] = trained.tables[file]
    findings = {gate["id"]: gate["finding"] for gate in campaign.write().verdict()["gates"]}
    assert findings["evidence/convergence.csv"] == findings["evidence/curves.csv"] == "invalid"
    assert campaign.evaluate().exit_code == 4


def test_all_families_are_judged_side_by_side(tmp_path: Path) -> None:
    campaign = make_runs(
        tmp_path,
        families=("throughput", "numerical", "convergence"),
        throughput={"ratios": {"a": ("1.2",) * 3}, "production": {}},
    )
    verdict = campaign.verdict()
    assert verdict["outcome"] == "pass"
    assert verdict["families"]["convergence"] == {"outcome": "pass", "passed": 1, "total": 1}
    set_loss(campaign, "3.6")
    verdict = campaign.write().verdict()
    assert (verdict["families"]["throughput"]["outcome"], verdict["outcome"]) == ("pass", "not_qualified")


def test_an_exception_inside_a_gate_is_invalid_and_never_a_pass(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object, **_named: object) -> Any:
        raise ArithmeticError("unforeseen")

    monkeypatch.setattr(convergence, "look_at", fail)
    gate = gates_of(campaign)[RECIPE]
    assert (gate["finding"], gate["outcome"]) == ("invalid", "not_qualified")
    assert "ArithmeticError: unforeseen" in gate["reason"]
    assert campaign.evaluate().exit_code == 4


# --- properties -------------------------------------------------------------------------------------------------------

difference = st.decimals("-0.02", "0.02", places=6)
triples = st.lists(difference, min_size=3, max_size=3)


def put(campaign: Campaign, differences: list[Decimal], baseline: str = "3.5", sign: int = 1) -> dict[str, Any]:
    """Put differences into the campaign's runs and return the gate; with sign -1 the sides change places."""
    for seed, own in zip((45, 46, 47), differences, strict=True):
        losses = [Decimal(baseline), Decimal(baseline) + own]
        for side, loss in zip(("baseline", "candidate"), losses[::sign], strict=True):
            set_loss(campaign, f"{loss:f}", seed=seed, side=side)
    return gates_of(campaign)[RECIPE]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(triples)
def test_scipy_agrees_with_the_bound_and_with_the_decision(campaign: Campaign, differences: list[Decimal]) -> None:
    assume(len(set(differences)) > 1)
    gate = put(campaign, differences)
    doubles = [float(own) for own in differences]
    upper = stats.t.interval(0.90, 2, loc=math.fsum(doubles) / 3, scale=stats.sem(doubles))[1]
    assert gate["upper"] == pytest.approx(float(upper), abs=3e-7)
    tests = (stats.ttest_1samp(doubles, 0.005, alternative=side) for side in ("less", "greater"))
    close, worse = (float(np.asarray(test.pvalue)) for test in tests)
    assume(min(abs(close - 0.05), abs(worse - 0.05)) > 1e-5)  # 2.920 is not the quantile to the last digit
    assert gate["finding"] == ("met" if close < 0.05 else "missed" if worse < 0.05 else "inconclusive")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(triples)
def test_swapping_the_sides_turns_the_bounds_about_zero(campaign: Campaign, differences: list[Decimal]) -> None:
    assume(len(set(differences)) > 1)
    gate, turned = put(campaign, differences), put(campaign, differences, sign=-1)
    assert (turned["upper"], turned["lower"]) == (-gate["lower"], -gate["upper"])
    assert (gate["finding"], turned["finding"]) != ("missed", "missed")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(triples, st.decimals("-5", "5", places=6), st.permutations([0, 1, 2]))
def test_neither_a_common_level_nor_the_order_of_seeds_changes_anything(
    campaign: Campaign, differences: list[Decimal], level: Decimal, order: list[int]
) -> None:
    assume(len(set(differences)) > 1)
    expected = put(campaign, differences)
    assert put(campaign, [differences[index] for index in order], baseline=f"{level:f}") == expected


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(triples, st.integers(-20, 20))
def test_margin_and_losses_may_be_in_any_unit(tmp_path: Path, differences: list[Decimal], exponent: int) -> None:
    assume(len(set(differences)) > 1)
    scale = Decimal(10) ** exponent
    plain = gates_of(with_differences(tmp_path, *[f"{own:f}" for own in differences]))[RECIPE]
    losses = [(f"{Decimal('3.5') * scale:f}", f"{(Decimal('3.5') + own) * scale:f}") for own in differences]
    margin = str(Decimal("0.005") * scale).lower()
    assume(0 < Decimal(margin) <= 1000)
    scaled = gates_of(make_runs(tmp_path, {RECIPE: losses}, margin=margin))[RECIPE]
    assert scaled["finding"] == plain["finding"]
    assert scaled["upper"] == pytest.approx(plain["upper"] * float(scale), rel=1e-12)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(triples, st.decimals("0.000001", "0.01", places=6))
def test_a_candidate_that_is_worse_everywhere_is_never_judged_better(
    campaign: Campaign, differences: list[Decimal], loss: Decimal
) -> None:
    assume(len(set(differences)) > 1)
    rank = {"met": 0, "inconclusive": 1, "missed": 2}
    better, worse = put(campaign, differences), put(campaign, [own + loss for own in differences])
    assert rank[better["finding"]] <= rank[worse["finding"]]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_no_byte(campaign: Campaign, shuffler: random.Random) -> None:
    expected = campaign.write().evaluate().verdict
    for rows in campaign.tables.values():
        shuffler.shuffle(rows)
    assert campaign.write().evaluate().verdict == expected


def test_no_row_can_be_deleted_or_doubled_unnoticed(campaign: Campaign) -> None:
    for file in ("attempts.csv", "convergence.csv", "curves.csv"):
        rows = campaign.tables[file]
        clean = list(rows)
        for place, row in enumerate(clean):
            for spoilt in ([*clean, dict(row)], clean[:place] + clean[place + 1 :]):
                rows[:] = spoilt
                assert (finding_of(campaign), campaign.evaluate().exit_code) in {("missing", 4), ("invalid", 4)}
        rows[:] = clean


def test_a_second_computation_agrees(tmp_path: Path) -> None:
    """From the CSV alone, in fractions and doubles, without anything of the program."""
    chooser = random.Random(11)  # noqa: S311 - the same values in every run
    differences = [[chooser.gauss(0.002 + number % 3 / 300, 0.002) for _ in range(4)] for number in range(30)]
    losses = {f"r{number}": paired("3.5", [f"{d:.9f}" for d in own]) for number, own in enumerate(differences)}
    campaign = make_runs(tmp_path, losses, seeds=(3, 1, 4, 2), quantile="2.35336")
    with (campaign.evidence_path / "convergence.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    gates = gates_of(campaign)
    findings = set()
    for recipe in losses:
        own = {(row["seed"], row["side"]): Fraction(row["final_loss"]) for row in rows if row["recipe"] == recipe}
        found = [own[seed, "candidate"] - own[seed, "baseline"] for seed in "1234"]
        mean = sum(found) / 4
        half = 2.35336 * math.sqrt(sum((value - mean) ** 2 for value in found) / 3 / 4)
        gate = gates[recipe]
        assert (gate["upper"], gate["lower"]) == pytest.approx((float(mean) + half, float(mean) - half), abs=1e-14)
        upper, lower = float(mean) + half, float(mean) - half
        assert gate["finding"] == ("met" if upper < 0.005 else "missed" if lower >= 0.005 else "inconclusive")
        findings.add(gate["finding"])
    assert findings == {"met", "inconclusive", "missed"}


def test_many_long_curves_are_evaluated_fast(tmp_path: Path) -> None:
    campaign = make_runs(tmp_path, {f"r{number}": paired("3.5", CLOSE) for number in range(40)})
    before = time.process_time()
    assert campaign.evaluate().exit_code == 0
    assert time.process_time() - before < 20
