"""What a side may read that nobody hashes stands under provenance."""

from __future__ import annotations

import json
from pathlib import Path

from reports.identity import reads_table
from tests.reports.evaluations import report_of, write_evaluation
from tests.support.evidence import make_campaign


def test_declared_reads_stand_by_side_and_path_and_older_provenance_has_none() -> None:
    assert reads_table({"baseline": {}, "candidate": {"reads": ["/a"]}}) is None
    table = reads_table({"baseline": {"reads": ["/a", "/b"]}, "candidate": {"reads": ["/a"]}})
    assert table is not None
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["baseline", "/a"],
        ["baseline", "/b"],
        ["candidate", "/a"],
    ]


def test_they_are_escaped_and_in_both_pages(tmp_path: Path) -> None:
    evaluation = write_evaluation(make_campaign(tmp_path))
    path = evaluation / "provenance.json"
    value = json.loads(path.read_bytes())
    value["baseline"]["reads"], value["candidate"]["reads"] = [], ["/data/<b>x</b>"]
    path.write_text(json.dumps(value))
    report = report_of(evaluation)
    assert "What a side may read besides" in (report / "report.md").read_text()
    page = (report / "report.html").read_text()
    assert "/data/&lt;b&gt;x" in page.replace("<wbr>", "")
    assert "<b>x</b>" not in page


def test_that_nothing_was_declared_is_said(tmp_path: Path) -> None:
    evaluation = write_evaluation(make_campaign(tmp_path))
    path = evaluation / "provenance.json"
    value = json.loads(path.read_bytes())
    value["baseline"]["reads"] = value["candidate"]["reads"] = []
    path.write_text(json.dumps(value))
    assert "Neither side declares such files or folders." in (report_of(evaluation) / "report.html").read_text()
