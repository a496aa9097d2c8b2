"""Sides of several processes on several nodes of the real cluster."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.cluster import Cluster, wait_until
from tests.support.cli import expect, expect_json
from tests.support.ranks import write_ranked_campaign
from tests.support.tinylm import write_scaling_campaign

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


@pytest.mark.usefixtures("slurm_cluster")
def test_the_example_trains_data_parallel_over_two_nodes(tmp_path: Path) -> None:
    config, home = write_scaling_campaign(tmp_path), tmp_path / "home"
    text = config.read_text().replace("axes.processes = [1, 2]", "axes.processes = [2]\naxes.nodes = [2]")
    config.write_text(text.replace('production = ["tiny-p1", "tiny-p2"]', 'production = ["tiny-p2"]'))
    expect(0, "freeze", config, "--home", home)
    expect(0, "freeze", "--candidate", "--config", config, "--home", home)
    expect(0, "submit", "--home", home, "--cluster", "slurm", "--wait", "--yes")
    (pair,) = receipts(home, "c*/pair/tiny-p2/r1/1")
    assert (pair["ending"], pair["reason"]) == ("completed", "")
    for side in pair["sides"]:
        assert side["topology"] == {"processes": 2, "nodes": 2}
        first, second = (rank["node"] for rank in side["ranks"])
        assert first != second
        for when in ("before", "after"):
            assert [look["node"] for look in side["conditions"][when]["further"]] == [second]
        assert all(rank["affinity_after"] for rank in side["ranks"])
        assert side["engaged"]["exchange"] == "gloo"
        assert side["engaged"]["exchanges"] == side["engaged"]["updates"]
    expect(0, "report", "--home", home, "--exit-zero")
    assert expect_json(0, "verify", home)


def processes_of(home: Path, program: str) -> list[int]:
    """Return the numbers of a campaign's processes that run one of the harness's programs, by their command lines."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        environment = path.with_name("environ").read_bytes() if program in words else b""
        is_other = Path(words[0]).name == "srun"
        if program in words and not is_other and str(home).encode() in (" ".join(words).encode() + environment):
            found.append(int(path.parent.name))
    return found


def hold_pairs(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Freeze a campaign whose ranks wait in their first update as long as a folder is there; run its pilots."""
    config, hold, home = write_ranked_campaign(tmp_path, processes=4, nodes=2), tmp_path / "hold", tmp_path / "home"
    source = config.parent / "source" / "adapter.py"
    waiting = f"        while os.path.isdir({str(hold)!r}):\n            time.sleep(0.02)\n        for _ in range(n):"
    source.write_text(source.read_text().replace("        for _ in range(n):", waiting))
    text = config.read_text().replace('python = "', f'environment = {{ HELD_BY = "{home}" }}\npython = "')
    config.write_text(text)
    expect(0, "freeze", config, "--home", home)
    expect(0, "freeze", "--candidate", "--config", config, "--home", home)
    submit = ("submit", "--home", home, "--cluster", "slurm", "--only", "*/spread*", "--yes")
    expect(0, *submit, "--phase", "pilot", "--wait")
    hold.mkdir()
    expect(0, *submit)
    return home, hold, config


def end_the_first_pair(home: Path, hold: Path, cluster: Cluster, end: Callable[[], object]) -> dict[str, Any]:
    """End a pair while all its ranks are in their first update; return its receipt once nothing of it lives."""
    wait_until("all ranks", lambda: len(processes_of(home, "worker")) == 4, cluster.log("slurmctld"), seconds=60)
    wait_until(
        "the side", lambda: bool(list(home.glob("attempts/c*/pair/spread/r1/1/start.json"))), cluster.log("slurmctld")
    )
    end()
    sealed = "attempts/c*/pair/spread/r1/1/receipt.json"
    wait_until("the receipt", lambda: bool(list(home.glob(sealed))), cluster.log("slurmctld"), seconds=60)
    wait_until("their end", lambda: not processes_of(home, "worker"), cluster.log("slurmctld"), seconds=30)
    wait_until("the outposts' end", lambda: not processes_of(home, "node"), cluster.log("slurmctld"), seconds=30)
    (receipt,) = receipts(home, "c*/pair/spread/r1/1")
    hold.rmdir()
    return receipt


def test_a_cancelled_job_leaves_no_rank_on_any_node_and_is_measured_again(
    slurm_cluster: Cluster, tmp_path: Path
) -> None:
    home, hold, _ = hold_pairs(tmp_path)
    receipt = end_the_first_pair(home, hold, slurm_cluster, lambda: expect(0, "cancel", "--home", home, "--yes"))
    assert receipt["ending"] == "cancelled"
    expect(0, "submit", "--home", home, "--cluster", "slurm", "--only", "*/spread*", "--wait", "--yes")
    (again,) = receipts(home, "c*/pair/spread/r1/2")
    assert again["ending"] == "completed"


def test_a_lost_outpost_ends_the_pair_and_leaves_no_rank_on_any_node(slurm_cluster: Cluster, tmp_path: Path) -> None:
    home, hold, _ = hold_pairs(tmp_path)

    def kill() -> None:
        for number in processes_of(home, "node"):
            os.kill(number, signal.SIGKILL)

    receipt = end_the_first_pair(home, hold, slurm_cluster, kill)
    assert receipt["ending"] == "node_fail"
    assert receipt["reason"].startswith("node n")
    expect(0, "submit", "--home", home, "--cluster", "slurm", "--only", "*/spread*", "--wait", "--yes")
    (again,) = receipts(home, "c*/pair/spread/r1/2")
    assert again["ending"] == "completed"
