"""Engaged paths of the numerical cases; those of the measurements stand in test_checks.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cases import gates_of, make_cases
from tests.support.evidence import CANDIDATE, Campaign, make_campaign

OTHER_PATH = "d" * 12


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return make_campaign(tmp_path, ratios={"a": ("1.2",) * 3}, families=("throughput", "numerical"))


def set_path(campaign: Campaign, column: str, value: str, start: str) -> None:
    rows = [row for row in campaign.tables["attempts.csv"] if row["slot"].startswith(start)]
    assert rows
    for row in rows:
        row[column] = value


CASE, CONTROL = f"{CANDIDATE}/case/20m-a-b2", "baseline/control-case/20m-a-b2"


@pytest.mark.parametrize("value", [OTHER_PATH, ""])
@pytest.mark.parametrize(
    ("column", "slot", "side"),
    [
        ("candidate_path", CASE, "candidate"),
        ("baseline_path", CASE, "baseline"),
        ("baseline_path", CONTROL, "baseline"),
        ("candidate_path", CONTROL, "baseline"),
    ],
)
def test_a_case_on_another_path_than_the_measurements_is_the_only_one_that_is_invalid(
    campaign: Campaign, column: str, slot: str, side: str, value: str
) -> None:
    set_path(campaign, column, value, slot)
    gates = gates_of(campaign)
    spoilt = {name for name, gate in gates.items() if gate["finding"] != "met"}
    assert spoilt == {
        "evidence/attempts.csv",
        f"evidence/engaged/{side}",
        *(
            f"20m-a-b2/{quantity}"
            for quantity in ("loss", "gradients", "parameters", "updates", "optimizer", "consensus")
        ),
    }
    assert {gates[name]["finding"] for name in spoilt} == {"invalid"}
    assert f"20m-a-b2: the {side} engaged {value!r} in a case" in gates[f"evidence/engaged/{side}"]["reason"]


def test_measurements_that_disagree_leave_no_path_for_the_case(campaign: Campaign) -> None:
    set_path(campaign, "candidate_path", OTHER_PATH, f"{CANDIDATE}/pair/20m-a-b2/r3")
    gates = gates_of(campaign)
    assert gates["20m-a-b2/loss"]["finding"] == gates["throughput/a/repeat-3"]["finding"] == "invalid"
    assert gates["20m-a-b1/loss"]["finding"] == "met"


@pytest.mark.parametrize(
    ("column", "slot"), [("baseline_path", f"{CANDIDATE}/case/v"), ("candidate_path", "baseline/control-case/v")]
)
def test_where_nothing_is_measured_the_cases_are_compared_among_themselves(
    tmp_path: Path, column: str, slot: str
) -> None:
    campaign = make_cases(tmp_path, "v", "w")
    assert gates_of(campaign)["evidence/engaged/baseline"]["finding"] == "met"
    set_path(campaign, column, OTHER_PATH, slot)
    gates = gates_of(campaign)
    assert "v: the baseline engaged different paths" in gates["evidence/engaged/baseline"]["reason"]
    assert (gates["v/loss"]["finding"], gates["w/loss"]["finding"]) == ("invalid", "met")


def test_a_side_that_names_no_path_anywhere_is_not_evaluated(tmp_path: Path) -> None:
    campaign = make_cases(tmp_path, "v", "w")
    set_path(campaign, "candidate_path", "", CANDIDATE)
    gates = gates_of(campaign)
    assert gates["evidence/engaged/candidate"]["finding"] == "not_evaluated"
    assert campaign.evaluate().exit_code == 0
    set_path(campaign, "candidate_path", OTHER_PATH, f"{CANDIDATE}/case/v")
    gates = gates_of(campaign)
    assert (gates["v/loss"]["finding"], gates["w/loss"]["finding"]) == ("met", "invalid")


def test_a_case_s_path_is_twelve_hex_digits(tmp_path: Path) -> None:
    campaign = make_cases(tmp_path)
    set_path(campaign, "candidate_path", "native", CANDIDATE)
    gates = gates_of(campaign)
    assert "12 lower-case hex digits" in gates["evidence/engaged/candidate"]["reason"]
    assert gates["w/loss"]["finding"] == "invalid"


def test_the_gate_counts_the_paths_of_cases_too(campaign: Campaign) -> None:
    gates = gates_of(campaign)
    assert gates["evidence/engaged/candidate"]["n"] == 4 * 3 + 4
    assert gates["evidence/engaged/baseline"]["n"] == 4 * 3 * 2 + 2 * 3 + 4 * 3
