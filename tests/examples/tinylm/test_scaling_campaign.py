"""One configuration measured with one process and with two, from freeze to the report's table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reports.scaling import table
from reports.source import read_source
from tests.support.cli import expect, expect_json
from tests.support.tinylm import write_scaling_campaign

pytestmark = pytest.mark.slow


def test_two_processes_are_measured_beside_one_and_the_report_has_their_efficiency(tmp_path: Path) -> None:
    config, home = write_scaling_campaign(tmp_path), tmp_path / "home"
    expect(0, "freeze", config, "--home", home)
    expect(0, "freeze", "--candidate", "--config", config, "--home", home)
    expect(0, "submit", "--home", home, "--cluster", "local", "--wait", "--yes")
    expect(0, "report", "--home", home, "--exit-zero")
    (evaluation,) = home.glob("evaluations/*")
    found = table(read_source(protocol_path=home / "protocol.json", evaluation=evaluation))
    assert found is not None
    exchanged = ["gloo", "after last microbatch", "1,024", "1"]
    assert [[cell.text for cell in row[:7]] for row in found.rows] == [
        ["tiny-p1", "baseline", "1 process", "none", "none", "1,024", "1"],
        ["tiny-p2", "baseline", "2 processes on 1 node", *exchanged],
        ["tiny-p1", "candidate", "1 process", "none", "none", "1,024", "1"],
        ["tiny-p2", "candidate", "2 processes on 1 node", *exchanged],
    ]
    for row in found.rows:
        efficiencies = [float(cell.value or "nan") for cell in (row[8], row[10])]
        # How much two processes gain on shared processors is the machine's affair.
        assert efficiencies == [1.0, 1.0] if row[2].text == "1 process" else min(efficiencies) > 0
    assert "2 processes on 1 node" in (evaluation / "report" / "report.html").read_text()
    _check_ranks(home)
    assert [finding["check"] for finding in expect_json(0, "verify", home)["findings"]] == ["closing"]


def _check_ranks(home: Path) -> None:
    (path,) = home.glob("attempts/*/pair/tiny-p2/r1/1/receipt.json")
    for side in json.loads(path.read_bytes())["sides"]:
        assert [rank["rank"] for rank in side["ranks"]] == [0, 1]
        # Two microbatches an update, and yet one exchange.
        assert side["engaged"]["exchanges"] == side["engaged"]["updates"]
