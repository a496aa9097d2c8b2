"""What is made of the evidence before there is a verdict changes nothing of the report."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from reports import downloads, measures, source
from reports.ahead import prepare
from reports.errors import ReportError
from tests.reports.evaluations import report_of, write_evaluation
from tests.support.evidence import make_campaign
from tests.support.runs import make_runs

FAMILIES = ("throughput", "numerical", "convergence")


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_prepared_report_is_the_same_and_makes_nothing_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluation = write_evaluation(make_runs(tmp_path, families=FAMILIES, throughput={"ratios": {"a": ("1.2",) * 3}}))
    expected = content(report_of(evaluation))
    shutil.rmtree(evaluation / "report")
    prepare(evaluation / "evidence")
    monkeypatch.setattr(source, "parse_rows", None)  # would be called for what is not remembered, as those below
    monkeypatch.setattr(downloads, "_made_csv", None)
    monkeypatch.setattr(measures, "_counted", None)
    monkeypatch.setattr(measures, "_costs_of", None)
    assert content(report_of(evaluation)) == expected


def test_what_was_prepared_of_other_evidence_is_not_taken(tmp_path: Path) -> None:
    ours, other = (
        write_evaluation(make_campaign(tmp_path / name, ratios={"a": (ratio,) * 3}))
        for name, ratio in (("ours", "1.2"), ("other", "1.3"))
    )
    expected = content(report_of(ours))
    shutil.rmtree(ours / "report")
    prepare(other / "evidence")
    assert content(report_of(ours)) == expected


def test_what_is_wrong_with_the_evidence_is_for_the_report_to_say(tmp_path: Path) -> None:
    evaluation = write_evaluation(make_campaign(tmp_path))
    (evaluation / "evidence" / "windows.csv").write_bytes(b"no header\n")
    (evaluation / "evidence" / "pairs.csv").unlink()
    prepare(evaluation / "evidence")
    with pytest.raises(ReportError):
        report_of(evaluation)
