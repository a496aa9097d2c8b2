"""The ratio gates: just inside, just outside, and against a second computation from the CSV alone."""

from __future__ import annotations

import csv
import io
import math
import random
import statistics
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acceptance import throughput
from tests.support.evidence import PUBLISHED, Campaign, make_campaign


def findings(campaign: Campaign, part: str = "throughput/") -> dict[str, str]:
    return {gate["id"]: gate["finding"] for gate in campaign.verdict()["gates"] if gate["id"].startswith(part)}


def gate(campaign: Campaign, name: str) -> dict[str, Any]:
    (found,) = [gate for gate in campaign.verdict()["gates"] if gate["id"] == name]
    return dict(found)


def one(tmp_path: Path, *ratios: str, production: str = "1", **rules: Any) -> Campaign:
    """A campaign with one repeat: one category with a workload for each ratio, and one production workload."""
    names = {f"c{index}": (ratio,) for index, ratio in enumerate(ratios)}
    campaign = make_campaign(
        tmp_path, ratios=names, production={"p": (production,)}, workloads_per_category=1, repeats=1, **rules
    )
    return merge_categories(campaign)


def merge_categories(campaign: Campaign) -> Campaign:
    """Put all categories' workloads into one category called all."""
    value = campaign.protocol.to_json()
    names = [workload["name"] for workload in value["workloads"] if workload["category"]]
    value["categories"] = ({"name": "all", "workloads": tuple(names)},)
    for workload in value["workloads"]:
        workload["category"] = "all" if workload["category"] else ""
    first = names[0]
    value["slots"] = tuple(s for s in value["slots"] if s["kind"] != "control_pair" or s["workload"] == first)
    slots = {slot["slot"] for slot in value["slots"]}
    tables = dict(campaign.tables)
    tables["attempts.csv"] = [
        r for r in tables["attempts.csv"] if not r["slot"].startswith("baseline") or r["slot"] in slots
    ]
    for file in ("pairs.csv", "baseline.csv", "windows.csv"):
        tables[file] = [r for r in tables[file] if r.get("comparison") != "control" or r["workload"] == first]
        for row in tables[file]:
            if row.get("category"):
                row["category"] = "all"
    merged = Campaign(
        folder=campaign.folder,
        protocol=type(campaign.protocol).of(value),
        tables=tables,
        identity=campaign.identity,
    )
    return merged.write()


@pytest.mark.parametrize(
    ("ratio", "finding"),
    [
        ("1.05", "met"),
        ("1.050001", "met"),
        ("1.049999", "missed"),
        ("1.0499999999", "missed"),
        ("3", "met"),
        ("0.2", "missed"),
    ],
)
def test_a_category_gate_just_inside_and_just_outside(tmp_path: Path, ratio: str, finding: str) -> None:
    campaign = one(tmp_path, ratio)
    found = gate(campaign, "throughput/all/repeat-1")
    assert (found["finding"], found["outcome"]) == (finding, "pass" if finding == "met" else "not_qualified")
    assert found["value"] == pytest.approx(float(ratio), rel=1e-12)
    assert (found["threshold"], found["comparison"], found["statistic"]) == (1.05, ">=", "median_ratio")
    assert (found["lower"], found["upper"], found["n"], found["subject"]) == (None, None, 1, "all")
    assert campaign.evaluate().exit_code == (0 if finding == "met" else 3)


@pytest.mark.parametrize(
    ("ratio", "finding"), [("0.98", "met"), ("0.980001", "met"), ("0.979999", "missed"), ("0.9799999999", "missed")]
)
def test_a_production_gate_just_inside_and_just_outside(tmp_path: Path, ratio: str, finding: str) -> None:
    campaign = one(tmp_path, "1.2", production=ratio)
    found = gate(campaign, "throughput/production/p/repeat-1")
    assert found["finding"] == finding
    assert (found["threshold"], found["statistic"], found["subject"]) == (0.98, "ratio", "p")
    assert campaign.evaluate().exit_code == (0 if finding == "met" else 3)


def test_the_threshold_is_the_protocols(tmp_path: Path) -> None:
    campaign = one(tmp_path, "1.2", production="1", category_threshold="1.2", production_threshold="1.000001")
    assert list(findings(campaign).values()) == ["met", "missed"]


@pytest.mark.parametrize(
    ("ratios", "median"),
    [
        (["1.3", "0.8", "1.2", "1"], 1.1),
        (["1.06", "1.06", "1.06", "0.5", "0.4"], 1.06),
        (["1", "1.1"], 1.05),
        (["1.04", "1.07", "1.05"], 1.05),
    ],
)
def test_a_category_takes_the_median_of_its_workloads_ratios(tmp_path: Path, ratios: list[str], median: float) -> None:
    campaign = one(tmp_path, *ratios)
    found = gate(campaign, "throughput/all/repeat-1")
    assert (found["value"], found["finding"], found["n"]) == (median, "met", len(ratios))


def test_a_hidden_regression_is_shown_beside_a_median_that_passes(tmp_path: Path) -> None:
    campaign = one(tmp_path, "1.06", "1.06", "1.06", "0.5", "0.4")
    (seen,) = [entry for entry in campaign.verdict()["observations"]["throughput"] if entry["kind"] == "category"]
    assert (seen["below_one"], seen["minimum_ratio"], seen["pairs"]) == (2, 0.4, 5)


def test_the_margin_is_positive_inside_and_negative_outside(tmp_path: Path) -> None:
    campaign = one(tmp_path, "1.837", production="0.97")
    assert gate(campaign, "throughput/all/repeat-1")["margin"] == 0.787
    assert gate(campaign, "throughput/production/p/repeat-1")["margin"] == -0.01


@pytest.mark.parametrize(
    ("first", "second", "finding"), [("1.05", "1.05", "met"), ("1", "1.1025", "met"), ("1", "1.1024", "missed")]
)
def test_two_pairs_of_a_repeat_count_as_the_exponential_of_their_mean_log_ratio(
    tmp_path: Path, first: str, second: str, finding: str
) -> None:
    campaign = make_campaign(
        tmp_path,
        ratios={"all": (first,)},
        production={"p": ("1",)},
        workloads_per_category=1,
        repeats=1,
        pairs_per_repeat=2,
    )
    other = make_campaign(
        tmp_path / "other",
        ratios={"all": (second,)},
        production={"p": ("1",)},
        workloads_per_category=1,
        repeats=1,
        pairs_per_repeat=2,
    )
    for file in ("pairs.csv", "windows.csv"):
        keep = [row for row in campaign.tables[file] if row["pair"] == "1"]
        campaign.tables[file][:] = keep + [row for row in other.tables[file] if row["pair"] == "2"]
    found = gate(campaign.write(), "throughput/all/repeat-1")
    assert found["finding"] == finding
    assert found["value"] == pytest.approx(math.sqrt(float(first) * float(second)), rel=1e-12)


def test_a_repeat_lacking_one_of_its_two_pairs_is_missing(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, ratios={"all": ("1.2",) * 3}, pairs_per_repeat=2)
    assert campaign.evaluate().exit_code == 0
    (row,) = campaign.rows(
        "pairs.csv", workload="20m-all-b1", comparison="candidate", repeat=1, pair=2, side="candidate"
    )
    campaign.tables["pairs.csv"].remove(row)
    assert findings(campaign.write())["throughput/all/repeat-1"] == "missing"


def test_the_published_table_gives_the_published_verdict(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path)
    found = findings(campaign)
    for category, expected in {
        "sync": ["met"] * 3,
        "packed4": ["met"] * 3,
        "packed8": ["met", "missed", "met"],
    }.items():
        names = [f"throughput/{category}/repeat-{repeat}" for repeat in (1, 2, 3)]
        assert [found[name] for name in names] == expected
        assert [str(gate(campaign, name)["value"]) for name in names] == list(PUBLISHED[category])
    families = campaign.verdict()["families"]
    assert families["throughput/category"] == {"outcome": "not_qualified", "passed": 8, "total": 9}
    assert families["throughput/production"] == {"outcome": "pass", "passed": 3, "total": 3}
    assert families["throughput"] == {"outcome": "not_qualified", "passed": 11, "total": 12}


def test_a_missed_gate_dominates_missing_evidence(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, ratios={"a": ("1.2", "1.2", "1"), "b": ("1.2", "1.2", "1.2")})
    (row,) = campaign.rows("attempts.csv", slot="baseline/solo/20m-b-b1/r1")
    campaign.tables["attempts.csv"].remove(row)
    found = campaign.write().verdict()
    assert {gate["finding"] for gate in found["gates"]} >= {"missed", "missing"}
    assert campaign.evaluate().exit_code == 3


def test_an_exception_inside_a_gate_is_invalid_and_never_a_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise ZeroDivisionError("unforeseen")

    campaign = make_campaign(tmp_path, ratios={"a": ("1.2", "1.2", "1.2")})
    monkeypatch.setattr(throughput, "workload_ratio", fail)
    assert set(findings(campaign).values()) == {"invalid"}
    assert "ZeroDivisionError: unforeseen" in gate(campaign, "throughput/a/repeat-1")["reason"]
    assert campaign.evaluate().exit_code == 4


def test_a_ratio_beyond_every_double_is_invalid(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, ratios={"a": ("1.2",)}, workloads_per_category=1, repeats=1, window_s="1e-9")
    for side, window_s in (("baseline", 1e305), ("candidate", 1e-9)):
        for row in campaign.rows("pairs.csv", comparison="candidate", workload="20m-a-b1", side=side):
            rate = repr(int(row["tokens"]) / (5 * window_s))
            row.update(train_s=repr(5 * window_s), elapsed_s="6e+305", tokens_per_s=rate)
        for row in campaign.rows("windows.csv", comparison="candidate", workload="20m-a-b1", side=side):
            row["seconds"] = repr(window_s)
    found = gate(campaign.write(), "throughput/a/repeat-1")
    assert found["finding"] == "invalid"
    assert "NotFiniteError" in found["reason"]
    assert campaign.evaluate().exit_code == 4


# --- a second, independent computation --------------------------------------------------------------------------------


def recompute(campaign: Campaign) -> dict[str, Fraction]:
    """Return every gate's value from the bytes of pairs.csv, with exact fractions and nothing of the program's."""
    seconds: dict[tuple[str, str, int], dict[str, Fraction]] = defaultdict(dict)
    production: dict[str, bool] = {}
    text = (campaign.evidence_path / "pairs.csv").read_text()
    for row in csv.DictReader(io.StringIO(text)):
        if row["comparison"] == "candidate":
            key = (row["category"], row["workload"], int(row["repeat"]))
            seconds[key][row["side"]] = Fraction(int(row["tokens"])) / Fraction(row["train_s"])
            production[row["workload"]] = row["production"] == "true"
    ratios = {key: sides["candidate"] / sides["baseline"] for key, sides in seconds.items()}
    values: dict[str, Fraction] = {}
    by_category: dict[str, list[Fraction]] = defaultdict(list)
    for (category, workload, repeat), ratio in ratios.items():
        if category:
            by_category[f"throughput/{category}/repeat-{repeat}"].append(ratio)
        if production[workload]:
            values[f"throughput/production/{workload}/repeat-{repeat}"] = ratio
    return values | {name: statistics.median(found) for name, found in by_category.items()}


ratio_text = st.decimals(min_value="0.2", max_value="5", places=5).map(str)
few = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
many = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@many
@given(st.lists(ratio_text, min_size=1, max_size=5), st.integers(1, 3), ratio_text)
def test_a_second_computation_agrees(tmp_path: Path, medians: list[str], count: int, single: str) -> None:
    campaign = make_campaign(
        tmp_path,
        ratios={"a": medians, "b": medians[::-1]},
        production={"p": [single] * len(medians)},
        control=["1"] * len(medians),
        workloads_per_category=count,
        repeats=len(medians),
    )
    expected = recompute(campaign)
    found = {gate["id"]: gate for gate in campaign.verdict()["gates"] if gate["family"] == "throughput"}
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert abs(Fraction(found[name]["value"]) / value - 1) < Fraction(1, 10**12)
        threshold = Fraction("0.98") if "/production/" in name else Fraction("1.05")
        assert (found[name]["finding"] == "met") == (value >= threshold)


@few
@given(ratio_text, st.sampled_from(["0.5", "3", "1000"]))
def test_a_change_of_scale_changes_no_ratio(tmp_path: Path, ratio: str, factor: str) -> None:
    """Both sides' seconds multiplied: same ratio, same finding."""
    campaign = one(tmp_path, ratio, production=ratio, window_s="0.001")
    before = [(found["id"], found["value"], found["finding"]) for found in campaign.verdict()["gates"]]
    scale = Fraction(factor)
    for file, columns in {"pairs.csv": ("startup_s", "train_s", "elapsed_s"), "windows.csv": ("seconds",)}.items():
        for row in campaign.tables[file]:
            for column in columns:
                row[column] = exact(Fraction(row[column]) * scale)
            if file == "pairs.csv":
                row["tokens_per_s"] = repr(float(int(row["tokens"]) / Fraction(row["train_s"])))
    after = [(found["id"], found["value"], found["finding"]) for found in campaign.write().verdict()["gates"]]
    assert after == before


def exact(value: Fraction) -> str:
    """Return a fraction whose denominator divides a power of ten as decimal text."""
    scaled = value * 10**20
    assert scaled.denominator == 1
    whole, rest = divmod(scaled.numerator, 10**20)
    return f"{whole}.{rest:020d}"


@few
@given(ratio_text)
def test_swapping_the_sides_gives_the_reciprocal(tmp_path: Path, ratio: str) -> None:
    campaign = one(tmp_path, ratio)
    before = gate(campaign, "throughput/all/repeat-1")["value"]
    swap = {"baseline": "candidate", "candidate": "baseline"}
    value = campaign.protocol.to_json()
    for slot in value["slots"]:
        if slot["kind"] == "pair":
            slot["order"] = slot["order"][::-1]
    for file in ("pairs.csv", "windows.csv"):
        for row in campaign.tables[file]:
            if row["comparison"] == "candidate":
                row["side"] = swap[row["side"]]
    swapped = Campaign(
        folder=campaign.folder,
        protocol=type(campaign.protocol).of(value),
        tables=campaign.tables,
        identity=campaign.identity,
    )
    assert gate(swapped.write(), "throughput/all/repeat-1")["value"] == pytest.approx(1 / before, rel=1e-12)


@few
@given(st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_no_byte(tmp_path: Path, shuffler: random.Random) -> None:
    campaign = make_campaign(tmp_path)
    before = campaign.evaluate().verdict
    for rows in campaign.tables.values():
        shuffler.shuffle(rows)
    assert campaign.write().evaluate().verdict == before


@many
@given(st.sampled_from(["attempts.csv", "pairs.csv", "windows.csv", "baseline.csv"]), st.integers(0, 10**6))
def test_no_row_can_be_deleted_or_doubled_unnoticed(tmp_path: Path, file: str, draw: int) -> None:
    for change in ("delete", "double"):
        campaign = make_campaign(tmp_path, ratios={"a": ("1.2", "1.2", "1.2")})
        assert campaign.evaluate().exit_code == 0
        rows = campaign.tables[file]
        row = rows[draw % len(rows)]
        rows.remove(row) if change == "delete" else rows.append(dict(row))
        found = {gate["id"]: gate["finding"] for gate in campaign.write().verdict()["gates"]}
        assert found[f"evidence/{file}"] in {"missing", "invalid"}
        assert campaign.evaluate().exit_code == 4
