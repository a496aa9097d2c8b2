from __future__ import annotations

import math
import statistics
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from acceptance import observations
from tests.support.evidence import Campaign, make_campaign


def seen(campaign: Campaign, kind: str, subject: str) -> dict[str, Any]:
    entries = campaign.verdict()["observations"]["throughput"]
    (found,) = [entry for entry in entries if (entry["kind"], entry["subject"]) == (kind, subject)]
    return dict(found)


def test_every_category_production_workload_and_control_is_observed(tmp_path: Path) -> None:
    entries = make_campaign(tmp_path).verdict()["observations"]["throughput"]
    assert [(entry["kind"], entry["subject"]) for entry in entries] == [
        ("category", "sync"),
        ("category", "packed4"),
        ("category", "packed8"),
        ("production", "production"),
        ("control", "20m-sync-b1"),
        ("control", "20m-packed4-b1"),
        ("control", "20m-packed8-b1"),
    ]


def test_the_spread_is_that_of_all_pairs(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path)
    found = seen(campaign, "category", "packed8")
    ratios = [
        entry["ratio"]
        for entry in campaign.verdict()["observations"]["ratios"]
        if "packed8" in entry["workload"] and entry["comparison"] == "candidate"
    ]
    assert found["pairs"] == len(ratios) == 9
    assert found["median_ratio"] == statistics.median(ratios)
    assert (found["minimum_ratio"], found["maximum_ratio"]) == (min(ratios), max(ratios))
    assert found["below_one"] == 0
    assert found["sd_log_ratio_ddof1"] == pytest.approx(statistics.stdev(map(math.log, ratios)), rel=1e-9)
    assert [repeat["ratio"] for repeat in found["repeats"]] == [1.057, 1.047, 1.055]
    assert found["mean_ratio"] == pytest.approx(1.052991, abs=1e-6)
    assert found["mean_ratio_lower"] < found["mean_ratio"] < found["mean_ratio_upper"]


def test_a_control_is_the_baseline_against_itself(tmp_path: Path) -> None:
    found = seen(make_campaign(tmp_path, control=("1.01", "0.99", "1")), "control", "20m-sync-b1")
    assert [repeat["ratio"] for repeat in found["repeats"]] == [1.01, 0.99, 1.0]
    assert found["below_one"] == 1


def apply_order_effect(campaign: Campaign, effect: str) -> None:
    """Multiply the ratio of every pair by the effect where the baseline ran first, divide it elsewhere."""
    planned = {(s.workload, s.repeat): s.order for s in campaign.protocol.slots if s.kind == "pair"}
    for file in ("pairs.csv", "windows.csv"):
        for row in campaign.tables[file]:
            if row["comparison"] == "candidate" and row["side"] == "baseline":
                first = planned[row["workload"], int(row["repeat"])][0] == "baseline"
                factor = Decimal(effect) if first else 1 / Decimal(effect)
                for column in ("train_s", "seconds"):
                    if column in row:
                        row[column] = str(Decimal(row[column]) * factor)
                if file == "pairs.csv":
                    row["elapsed_s"] = str(Decimal(row["train_s"]) + 4)
                    row["tokens_per_s"] = repr(float(int(row["tokens"]) / Decimal(row["train_s"])))


def test_the_order_effect_is_recovered_whatever_the_workloads_own_ratios(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, ratios={"a": ("1.1",) * 3}, production={"p": ("2",) * 3})
    assert seen(campaign, "category", "a")["order_effect"] == pytest.approx(1, abs=1e-12)
    apply_order_effect(campaign, "1.02")
    found = seen(campaign.write(), "category", "a")
    for subject in (found, seen(campaign, "production", "p")):
        assert subject["order_effect"] == pytest.approx(1.02, rel=1e-12)
        assert subject["order_effect_lower"] <= subject["order_effect"] <= subject["order_effect_upper"]


def test_with_a_single_repeat_there_is_no_order_effect_to_see(tmp_path: Path) -> None:
    found = seen(make_campaign(tmp_path, ratios={"a": ("1.1",)}, production={}, repeats=1), "category", "a")
    assert (found["order_effect"], found["order_effect_lower"]) == (None, None)
    assert (found["mean_ratio"], found["mean_ratio_lower"]) == (1.1, None)


def test_the_interval_of_a_median_needs_six_workloads(tmp_path: Path) -> None:
    for count, bounds in ((5, (None, None)), (6, (0.9, 1.1))):
        campaign = make_campaign(tmp_path, ratios={"a": ("1",)}, production={}, repeats=1, workloads_per_category=count)
        (repeat,) = seen(campaign, "category", "a")["repeats"]
        assert (repeat["lower"], repeat["upper"], repeat["workloads"]) == (*bounds, count)


def test_a_subject_without_a_usable_pair_shows_nothing(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, ratios={"a": ("1.1",) * 3}, production={"p": ("1",) * 3})
    for row in campaign.rows("pairs.csv", workload="p"):
        row["tokens_per_s"] = "1"
    found = seen(campaign.write(), "production", "p")
    assert (found["pairs"], found["median_ratio"], found["repeats"]) == (0, None, [])
    assert (found["sd_log_ratio_ddof1"], found["order_effect"], found["mean_ratio"]) == (None, None, None)


def test_a_failure_to_observe_costs_no_verdict_and_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> None:
        raise ArithmeticError("unforeseen")

    campaign = make_campaign(tmp_path)
    expected = campaign.verdict()
    monkeypatch.setattr(observations, "observe", fail)
    found = campaign.verdict()
    error = "ArithmeticError: unforeseen"
    nothing: dict[str, Any] = {"throughput": [], "ratios": [], "numerical": None, "convergence": None}
    assert found["observations"] == {**nothing, "error": error}
    assert found["gates"] == expected["gates"]
