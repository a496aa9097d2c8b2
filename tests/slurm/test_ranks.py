"""Sides of several processes on several nodes of the real cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import expect, expect_json
from tests.support.ranks import write_ranked_campaign

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


def receipts(home: Path, pattern: str) -> list[dict[str, Any]]:
    found = [json.loads(path.read_bytes()) for path in sorted(home.glob(f"attempts/{pattern}/receipt.json"))]
    assert found
    return found


@pytest.mark.usefixtures("slurm_cluster")
def test_two_processes_on_each_of_two_nodes_are_measured_as_one_side(tmp_path: Path) -> None:
    config = write_ranked_campaign(tmp_path, processes=4, nodes=2)
    home = tmp_path / "home"
    expect(0, "freeze", config, "--home", home)
    expect(0, "freeze", "--candidate", "--config", config, "--home", home)
    expect(0, "submit", "--home", home, "--cluster", "slurm", "--wait", "--yes")
    pairs = receipts(home, "c*/pair/spread/*/*")
    assert [(pair["ending"], pair["reason"]) for pair in pairs] == [("completed", "")]
    for side in (side for pair in pairs for side in pair["sides"]):
        assert side["topology"] == {"processes": 4, "nodes": 2}
        nodes = [rank["node"] for rank in side["ranks"]]
        assert len(set(nodes)) == 2
        assert nodes[0] == nodes[1]
        assert nodes[2] == nodes[3]
        assert side["engaged"]["sum"] == 4 * 5
    (baseline,), (candidate,) = receipts(home, "baseline/pilot/spread/*"), receipts(home, "c*/pilot/spread/*")
    assert len(baseline["sides"][0]["examples"]) == 8
    assert baseline["sides"][0]["examples"] == candidate["sides"][0]["examples"]
    assert receipts(home, "c*/pair/alone/*/*")[0]["sides"][0]["topology"] == {"processes": 1, "nodes": 1}
    expect(0, "report", "--home", home, "--exit-zero")
    verified = expect_json(0, "verify", home)
    assert verified
