from __future__ import annotations

import hashlib
import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.cluster import NODES, Cluster, wait_until
from tests.support.cli import expect, expect_json
from tests.support.matching import write_matching_campaign
from tests.support.tinylm import run_to_verdict, write_campaign

pytestmark = pytest.mark.slurm


def plans(home: Path) -> list[dict[str, Any]]:
    found = [json.loads(path.read_bytes()) for path in sorted(home.glob("allocations/*/allocation.json"))]
    assert found
    return found


def receipts(home: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return start and receipt of every attempt."""
    found = [
        (json.loads(path.with_name("start.json").read_bytes()), json.loads(path.read_bytes()))
        for path in sorted(home.glob("attempts/**/receipt.json"))
    ]
    assert found
    return found


def accounted_jobs() -> dict[str, str]:
    """Return state by job id of every job in accounting, array tasks by their own ids."""
    query = ["sacct", "-X", "-n", "-P", "-D", "-S", "now-1days", "-o", "JobID,State"]
    lines = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    return dict(line.split("|") for line in lines)


def assert_every_allocation_is_accounted(home: Path, cluster: Cluster) -> None:
    jobs = set()
    for start, _ in receipts(home):
        job = start["job"]
        assert job["scheduler"] == "slurm"
        jobs.add(f"{job['array_job_id']}_{job['array_task_id']}" if job["array_task_id"] else job["job_id"])
    assert len(jobs) == len(plans(home))

    def are_complete() -> bool:
        accounted = accounted_jobs()
        return all(accounted.get(job) == "COMPLETED" for job in jobs)

    wait_until("the accounting of every job", are_complete, cluster.log("slurmdbd"), seconds=30)


def assert_every_case_ran_on_its_pilots_inputs(home: Path) -> None:
    """The inputs that one node recorded are those that other nodes compared on."""
    cases = [(start, receipt) for start, receipt in receipts(home) if receipt["case"] is not None]
    assert len(cases) == 2 * 2
    for _, receipt in cases:
        (recorded,) = home.glob(f"attempts/baseline/pilot/{receipt['slot'].split('/')[-1]}/*/inputs.json")
        assert receipt["case"]["inputs_sha256"] == hashlib.sha256(recorded.read_bytes()).hexdigest()


def gate_ids(verdict: dict[str, Any]) -> list[str]:
    ids = [gate["id"] for gate in verdict["gates"]]
    assert ids
    return ids


def test_a_campaign_runs_on_three_nodes_from_freeze_to_verdict(slurm_cluster: Cluster, tmp_path: Path) -> None:
    config = write_matching_campaign(tmp_path, modes=("plain", "packed"), baseline_first=True, repeats=2)
    home = tmp_path / "home"
    expect(0, "freeze", config, "--home", home)
    expect(0, "submit", "--home", home, "--cluster", "slurm", "--phase", "baseline", "--wait", "--yes")
    expect(0, "freeze", "--candidate", "--config", config, "--home", home)
    expect(0, "submit", "--home", home, "--cluster", "slurm", "--wait", "--yes")
    planned = [plan["allocation"] for plan in plans(home)]
    again = expect_json(0, "submit", "--home", home, "--cluster", "slurm", "--yes")
    assert (again["jobs"], set(again["slots"])) == ([], {"completed"})
    assert [plan["allocation"] for plan in plans(home)] == planned
    expect(0, "report", "--home", home, "--exit-zero")
    assert_every_allocation_is_accounted(home, slurm_cluster)
    assert {start["host"]["node"] for start, _ in receipts(home)} == set(NODES)
    assert {receipt["ending"] for _, receipt in receipts(home)} == {"completed"}
    (path,) = home.glob("evaluations/*/verdict.json")
    verdict = json.loads(path.read_bytes())
    assert {gate["finding"] for gate in verdict["gates"]} <= {"met", "missed"}
    numerical = verdict["families"]["numerical"]
    assert (numerical["outcome"], numerical["passed"]) == ("pass", 2 * 6)
    assert_every_case_ran_on_its_pilots_inputs(home)


@pytest.mark.slow
def test_tinylm_has_the_same_gates_on_slurm_and_on_this_machine(slurm_cluster: Cluster, tmp_path: Path) -> None:
    # Its ratios say nothing: windows may be short, far above their minimum, and clocks apart, whatever runs beside.
    short = partial(write_campaign, window_s="0.03", window_margin="8", clock_absolute_s="10")
    write = partial(short, adapter="adapter:fast", controls=True)
    here = run_to_verdict(write(tmp_path / "here"))
    config = write(tmp_path / "there")
    there = run_to_verdict(config, cluster="slurm")
    assert gate_ids(there) == gate_ids(here)
    assert set(there["families"]) == set(here["families"])
    assert_every_allocation_is_accounted(config.parent / "home", slurm_cluster)
    assert {start["host"]["node"] for start, _ in receipts(config.parent / "home")} == set(NODES)
