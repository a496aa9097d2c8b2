from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acceptance.formats import TABLES
from reports.errors import ReportError
from reports.source import read_source
from tests.reports.evaluations import make_evaluation


@pytest.fixture
def evaluation(tmp_path: Path) -> Path:
    return make_evaluation(tmp_path / "evaluation", ratios={"sync": ("1.06", "1.06", "1.06")}, workloads_per_category=1)


def read(evaluation: Path) -> Any:
    return read_source(protocol_path=evaluation / "protocol.json", evaluation=evaluation)


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    value = json.loads(path.read_bytes())
    change(value)
    path.write_text(json.dumps(value))


def test_an_intact_evaluation_is_read(evaluation: Path) -> None:
    source = read(evaluation)
    assert source.verdict["outcome"] == "pass"
    assert set(source.tables) == set(TABLES)


@pytest.mark.parametrize("name", ["protocol.json", "verdict.json", "provenance.json", "evidence/identity.json"])
def test_a_missing_file_is_named(evaluation: Path, name: str) -> None:
    (evaluation / name).unlink()
    with pytest.raises(ReportError, match=f"{name}.*cannot be read"):
        read(evaluation)


@pytest.mark.parametrize("name", ["protocol.json", "verdict.json", "provenance.json", "evidence/identity.json"])
@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b'{"format": "other/1"}', b'{"format": NaN}'])
def test_a_file_of_another_format_is_refused(evaluation: Path, name: str, data: bytes) -> None:
    (evaluation / name).write_bytes(data)
    with pytest.raises(ReportError, match=name):
        read(evaluation)


def test_a_row_that_does_not_parse_is_named_by_its_line(evaluation: Path) -> None:
    path = evaluation / "evidence" / "pairs.csv"
    path.write_bytes(path.read_bytes() + b"half a line")
    with pytest.raises(ReportError, match=r"pairs\.csv:[0-9]+"):
        read(evaluation)


@pytest.mark.parametrize("field", ["protocol_sha256", "manifest_sha256", "baseline_sha256", "candidate_sha256"])
def test_a_verdict_on_something_else_is_refused(evaluation: Path, field: str) -> None:
    edit(evaluation / "verdict.json", lambda verdict: verdict.update({field: "0" * 64}))
    with pytest.raises(ReportError, match="do not belong together"):
        read(evaluation)


def test_provenance_of_another_campaign_is_refused(evaluation: Path) -> None:
    edit(evaluation / "provenance.json", lambda provenance: provenance.update({"manifest_sha256": "0" * 64}))
    with pytest.raises(ReportError, match="do not belong together"):
        read(evaluation)


@pytest.mark.parametrize("finding", ["missed", "missing", "invalid", "inconclusive"])
def test_a_pass_with_a_failed_gate_is_refused(evaluation: Path, finding: str) -> None:
    def fail(verdict: dict[str, Any]) -> None:
        verdict["gates"][0].update({"outcome": "not_qualified", "finding": finding})

    edit(evaluation / "verdict.json", fail)
    with pytest.raises(ReportError, match="not every gate passes"):
        read(evaluation)


def test_a_pass_without_gates_is_refused(evaluation: Path) -> None:
    edit(evaluation / "verdict.json", lambda verdict: verdict.update({"gates": []}))
    with pytest.raises(ReportError, match="not every gate passes"):
        read(evaluation)
