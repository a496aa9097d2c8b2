from __future__ import annotations

import subprocess

import pytest

from tests.slurm.cluster import NODES, Cluster, num_idle, wait_until

pytestmark = pytest.mark.slurm


def test_three_nodes_run_a_step_each(slurm_cluster: Cluster) -> None:
    done = subprocess.run(
        ["srun", "-N3", "--label", "printenv", "SLURMD_NODENAME"], capture_output=True, text=True, check=True
    )
    assert sorted(line.split(": ")[1] for line in done.stdout.split("\n") if line) == list(NODES)
    assert num_idle(slurm_cluster) <= len(NODES)


def test_accounting_keeps_the_comment_of_a_job(slurm_cluster: Cluster) -> None:
    submitted = subprocess.run(
        ["sbatch", "--wait", "--parsable", "--comment=key-1", "--output=/dev/null", "--wrap=true"],
        capture_output=True,
        text=True,
        check=True,
    )
    job_id = submitted.stdout.strip()
    expected = f"{job_id}|COMPLETED|key-1"

    def is_accounted() -> bool:
        query = ["sacct", "-X", "-n", "-P", "-j", job_id, "-o", "JobID,State,Comment"]
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip() == expected

    wait_until(f"the accounting record {expected}", is_accounted, slurm_cluster.log("slurmdbd"), seconds=20)
