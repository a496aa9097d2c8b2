from __future__ import annotations

from pathlib import Path

from reports.conditions import condition_table
from tests.reports.evaluations import report_of, write_evaluation
from tests.support.evidence import make_campaign

REMARK = {"slot": "c0/pair/w/r1", "attempt": 2, "what": ["GPU-a: heat", "more"]}


def test_measurements_that_ran_alike_and_older_provenance_have_no_table() -> None:
    assert condition_table({}) is None
    assert condition_table({"conditions": []}) is None


def test_both_pages_show_what_was_not_alike(tmp_path: Path) -> None:
    table = condition_table({"conditions": [REMARK]})
    assert table is not None
    assert [cell.text for cell in table.rows[0]] == ["c0/pair/w/r1", "2", "GPU-a: heat; more"]
    report = report_of(write_evaluation(make_campaign(tmp_path), conditions=[REMARK]))
    for name in ("report.html", "report.md"):
        assert "GPU-a: heat; more" in (report / name).read_text()
