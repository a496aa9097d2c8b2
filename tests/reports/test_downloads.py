from __future__ import annotations

import csv
import io
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from reports.downloads import guarded
from reports.junit import junit_xml
from tests.reports.evaluations import crash_one_pair, make_evaluation, report_of, write_evaluation
from tests.reports.test_verdict import make_gate
from tests.support.evidence import make_campaign

FORMULA = "=cmd|' /C calc'!A0"


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "  =1"])
def test_no_text_cell_is_a_formula(cell: str) -> None:
    assert guarded(cell) == f"'{cell}"


@pytest.mark.parametrize("cell", ["", "20m-sync", "node1", "a=b"])
def test_other_text_cells_are_left_alone(cell: str) -> None:
    assert guarded(cell) == cell


def test_downloads_hold_the_evidence_whatever_its_row_order(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path / "a", ratios={"sync": ("1.06", "1.06", "1.06")})
    shown = report_of(write_evaluation(campaign))
    expected = {
        file: (shown / name).read_bytes()
        for file, name in (("pairs.csv", "performance-pairs.csv"), ("windows.csv", "windows.csv"))
    }
    for rows in campaign.tables.values():
        rows.reverse()
    again = report_of(write_evaluation(campaign))
    assert (again / "performance-pairs.csv").read_bytes() == expected["pairs.csv"]
    assert (again / "windows.csv").read_bytes() == expected["windows.csv"]
    lines = (tmp_path / "a" / "evidence" / "pairs.csv").read_text().splitlines()
    assert sorted(lines) == sorted(expected["pairs.csv"].decode().splitlines())


def test_formulas_in_evidence_are_guarded_and_numbers_are_not(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, ratios={"sync": ("1.06", "1.06", "1.06")})
    for row in [*campaign.tables["pairs.csv"], *campaign.tables["attempts.csv"]]:
        row["node"] = FORMULA
    report = report_of(write_evaluation(campaign))
    with (report / "performance-pairs.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {row["node"] for row in rows} == {f"'{FORMULA}"}
    assert all(float(row["train_s"]) > 0 for row in rows)


def test_gate_results_are_unrounded_and_their_reasons_quoted(tmp_path: Path) -> None:
    evaluation = write_evaluation(crash_one_pair(make_campaign(tmp_path)))
    rows = list(csv.DictReader(io.StringIO((report_of(evaluation) / "gates.csv").read_text())))
    by_id = {row["id"]: row for row in rows}
    assert by_id["throughput/packed8/repeat-2"]["value"] == "1.047"
    assert by_id["throughput/sync/repeat-2"]["finding"] == "invalid"
    assert "ended crash, which" in by_id["throughput/sync/repeat-2"]["reason"]


def test_verdict_and_provenance_are_copied_byte_for_byte(tmp_path: Path) -> None:
    evaluation = make_evaluation(tmp_path)
    report = report_of(evaluation)
    for name in ("verdict.json", "provenance.json"):
        assert (report / name).read_bytes() == (evaluation / name).read_bytes()


def test_junit_has_one_case_per_gate_and_failures_say_why() -> None:
    gates = [
        make_gate("throughput/sync/repeat-1"),
        make_gate("throughput/sync/repeat-2", "missed", reason="the median ratio is below the threshold"),
        make_gate("throughput/sync/repeat-3", "not_evaluated", reason="not offered"),
        make_gate("evidence/pairs.csv", "missing", family="evidence", reason="<b>\x00 & \"'"),
    ]
    root = ET.fromstring(junit_xml("demo", gates))  # noqa: S314 - made here
    suites = {suite.attrib["name"]: suite.attrib for suite in root.iter("testsuite")}
    assert [case.attrib["name"] for case in root.iter("testcase")] == [gate.id for gate in gates]
    assert suites["throughput"] == {
        "name": "throughput",
        "tests": "3",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
    }
    messages = {failure.attrib["type"]: failure.attrib["message"] for failure in root.iter("failure")}
    assert messages == {
        "missed": "missed: the median ratio is below the threshold",
        "missing": "missing: <b>\ufffd & \"'",
    }
