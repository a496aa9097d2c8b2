from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acceptance import rollup
from acceptance.gates import Finding, Gate
from campaign.documents import ThroughputRules
from tests.support.evidence import Campaign, make_campaign, make_protocol

OTHER = ("device",)


def gate(finding: Finding) -> Gate:
    return Gate(
        id="x",
        family="throughput",
        subject="x",
        statistic="ratio",
        value=None,
        threshold=None,
        comparison=">=",
        margin=None,
        n=0,
        finding=finding,
        reason="",
    )


@pytest.mark.parametrize("finding", Finding)
def test_only_a_met_gate_passes(finding: Finding) -> None:
    assert gate(finding).outcome == ("pass" if finding is Finding.MET else "not_qualified")


def test_nothing_is_not_a_pass() -> None:
    assert rollup.roll_up([]).outcome == "not_qualified"
    assert rollup.roll_up([gate(Finding.NOT_EVALUATED)]).outcome == "not_qualified"


@pytest.mark.parametrize("finding", [item for item in Finding if item not in {Finding.MET, Finding.NOT_EVALUATED}])
def test_one_gate_that_does_not_pass_blocks_its_family(finding: Finding) -> None:
    found = rollup.roll_up([gate(Finding.MET), gate(finding), gate(Finding.MET)])
    assert (found.outcome, found.passed, found.total) == ("not_qualified", 2, 3)


def test_what_was_not_evaluated_does_not_count() -> None:
    found = rollup.roll_up([gate(Finding.MET), gate(Finding.NOT_EVALUATED)])
    assert (found.outcome, found.passed, found.total) == ("pass", 1, 1)


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        (["met"], 0),
        (["met", "missed"], 3),
        (["missing", "missed", "invalid"], 3),
        (["missing"], 4),
        (["invalid"], 4),
        (["inconclusive"], 4),
        (["not_evaluated"], 4),
    ],
)
def test_a_shown_miss_is_told_from_a_want_of_evidence(findings: list[str], code: int) -> None:
    outcome = "pass" if findings == ["met"] else "not_qualified"
    assert rollup.exit_code(outcome, [gate(Finding(finding)) for finding in findings]) == code


@pytest.mark.parametrize("family", OTHER)
def test_a_declared_family_that_cannot_be_evaluated_blocks(tmp_path: Path, family: str) -> None:
    campaign = make_campaign(tmp_path, ratios={"a": ("1.2",) * 3}, families=("throughput", family))
    verdict = campaign.verdict()
    assert verdict["families"][family] == {"outcome": "not_qualified", "passed": 0, "total": 1}
    assert verdict["families"]["throughput"]["outcome"] == "pass"
    (found,) = [gate for gate in verdict["gates"] if gate["family"] == family]
    assert (found["id"], found["finding"], found["outcome"]) == (f"{family}/family", "missing", "not_qualified")
    assert verdict["outcome"] == "not_qualified"
    assert campaign.evaluate().exit_code == 4


def test_an_undeclared_family_is_absent(tmp_path: Path) -> None:
    verdict = make_campaign(tmp_path, ratios={"a": ("1.2",) * 3}).verdict()
    assert set(verdict["families"]) == {"throughput/category", "throughput/production", "throughput", "evidence"}


def replace_protocol(campaign: Campaign, protocol: Any) -> Campaign:
    tables: dict[str, Any] = {name: [] for name in campaign.tables}
    return Campaign(folder=campaign.folder, protocol=protocol, tables=tables, identity=campaign.identity).write()


def test_a_protocol_without_any_family_never_passes(tmp_path: Path) -> None:
    campaign = replace_protocol(make_campaign(tmp_path), make_protocol([], families=()))
    verdict = campaign.verdict()
    assert verdict["outcome"] == "not_qualified"
    assert set(verdict["families"]) == {"evidence"}
    assert campaign.evaluate().exit_code == 4


@pytest.mark.parametrize("names", [[], [("", "idle")]])
def test_a_throughput_family_without_a_gate_never_passes(tmp_path: Path, names: list[tuple[str, str]]) -> None:
    protocol = make_protocol(names, ThroughputRules(solo=False))
    quiet = protocol.replace(workloads=tuple(item.replace(production=False) for item in protocol.workloads))
    campaign = replace_protocol(make_campaign(tmp_path), quiet)
    verdict = campaign.verdict()
    (found,) = [gate for gate in verdict["gates"] if gate["family"] == "throughput"]
    assert (found["id"], found["finding"]) == ("throughput/family", "missing")
    assert verdict["families"]["throughput"]["outcome"] == "not_qualified"
    assert verdict["outcome"] == "not_qualified"
    assert campaign.evaluate().exit_code == 4


def test_without_production_workloads_that_part_is_absent(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, ratios={"a": ("1.2",) * 3}, production={})
    assert set(campaign.verdict()["families"]) == {"throughput/category", "throughput", "evidence"}
    assert campaign.evaluate().exit_code == 0


def test_an_extra_row_alone_blocks_the_whole(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, ratios={"a": ("1.2",) * 3})
    row = dict(campaign.tables["pairs.csv"][0])
    campaign.tables["pairs.csv"].append({**row, "workload": "unknown"})
    verdict = campaign.write().verdict()
    assert verdict["families"]["throughput"]["outcome"] == "pass"
    assert verdict["families"]["evidence"]["outcome"] == "not_qualified"
    assert verdict["outcome"] == "not_qualified"
