"""Submitting workloads of several processes."""

from __future__ import annotations

from typing import Any

import pytest

from campaign.errors import StateError
from campaign.submission.transport import local_parameters, scale_gpus, slurm_parameters

TABLE: dict[str, Any] = {"minutes": 10, "cpus": 3, "max_running": 5, "gres": "gpu:h100:1,nvme:200", "mem_gb": 16}


def test_one_process_asks_for_what_it_always_did() -> None:
    found = slurm_parameters(TABLE, "key")
    assert (found["nodes"], found["ntasks_per_node"], found["cpus_per_task"]) == (1, 1, 3)
    assert (found["gres"], found["mem"]) == ("gpu:h100:1,nvme:200", "16GB")
    assert "srun_args" not in found


def test_each_process_of_a_node_gets_what_one_gets_and_one_harness_starts() -> None:
    found = slurm_parameters(TABLE, "key", (2, 8))
    assert (found["nodes"], found["ntasks_per_node"], found["cpus_per_task"]) == (2, 1, 12)
    assert (found["gres"], found["mem"]) == ("gpu:h100:4,nvme:200", "64GB")
    assert found["srun_args"] == ["--nodes=1", "--ntasks=1", "--cpus-per-task=12"]
    assert slurm_parameters(TABLE, "key", (1, 2))["srun_args"] == ["--cpus-per-task=6"]


@pytest.mark.parametrize(
    ("gres", "scaled"),
    [
        ("gpu", "gpu:3"),
        ("gpu:2", "gpu:6"),
        ("gpu:h100", "gpu:h100:3"),
        ("nvme:1", "nvme:1"),
        ("gpu:1,gpu:a:2", "gpu:3,gpu:a:6"),
    ],
)
def test_gpus_are_for_one_process(gres: str, scaled: str) -> None:
    assert scale_gpus(gres, 3) == scaled
    assert scale_gpus(gres, 1) == gres


def test_a_local_job_has_a_device_for_each_process() -> None:
    table = {"minutes": 10}
    found = local_parameters(table, device="cuda", visible="4,5,6", processes=2)
    assert (found["gpus_per_node"], found["visible_gpus"]) == (2, [4, 5])
    assert local_parameters(table, device="cuda", visible="", processes=2)["visible_gpus"] == [0, 1]
    assert local_parameters(table, device="cuda", visible="7")["visible_gpus"] == [7]
    with pytest.raises(StateError, match="3 processes need 3 devices, CUDA_VISIBLE_DEVICES=4,5 names 2"):
        local_parameters(table, device="cuda", visible="4,5", processes=3)
