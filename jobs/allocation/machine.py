"""What ran the allocation: host, processor, memory, devices, and the scheduler's names for the job."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common.tables import plain_text
from . import cgroups, gpus

PROC = Path("/proc")
NO_JOB: Mapping[str, Any] = {
    "scheduler": "local",
    "cluster": "",
    "job_id": "",
    "array_job_id": "",
    "array_task_id": "",
    "restart_count": 0,
}
"""The scheduler's names for a job where there is no scheduler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What the sides compute on."""

    identity: str
    """Text that two runs share only if they used the same devices."""
    devices: tuple[dict[str, Any], ...]

    def of_rank(self, local_rank: int) -> str:
        """Return what one of several processes on this node computes on, as text that only the same device has."""
        uuid = self.devices[local_rank]["uuid"] if local_rank < len(self.devices) else ""
        return str(uuid) if uuid else self.identity


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def read_host_name() -> str:
    """Return what this machine calls itself."""
    return os.uname().nodename


def read_boot_id() -> str:
    """Return the id of the host's present boot."""
    return _read(PROC / "sys/kernel/random/boot_id").strip()


def find_cpu_model(cpuinfo: str) -> str:
    """Return the processor's name from the text of /proc/cpuinfo."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "cpu model", "cpu") and value.strip():
            return value.strip()
    return platform.processor() or platform.machine()


def read_memory_bytes() -> int:
    """Return the memory that this process may use: the host's, or the tightest limit of its cgroups."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = cgroups.read_limits().limits.memory_bytes
    return total if limit is None else min(total, limit)


def read_host(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the host as start.json has it; Slurm's own name for the node is preferred to the host's."""
    return {
        "node": plain_text(environment.get("SLURMD_NODENAME") or read_host_name()),
        "boot_id": read_boot_id(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": find_cpu_model(_read(PROC / "cpuinfo")),
        "memory_bytes": read_memory_bytes(),
        "affinity": sorted(os.sched_getaffinity(0)),
    }


def read_job(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the scheduler's names for this job, from the environment that it gives to its processes."""
    if "SLURM_JOB_ID" in environment and environment.get("SUBMITIT_EXECUTOR") != "local":
        restarts = environment.get("SLURM_RESTART_COUNT", "0")
        return {
            "scheduler": "slurm",
            "cluster": environment.get("SLURM_CLUSTER_NAME", ""),
            "job_id": environment["SLURM_JOB_ID"],
            "array_job_id": environment.get("SLURM_ARRAY_JOB_ID", ""),
            "array_task_id": environment.get("SLURM_ARRAY_TASK_ID", ""),
            "restart_count": int(restarts) if restarts.isdecimal() else 0,
        }
    return {**NO_JOB, "job_id": environment.get("SUBMITIT_LOCAL_JOB_ID") or str(os.getpid())}


def read_device(kind: str, environment: Mapping[str, str]) -> Device:
    """Return what the sides compute on.

    Args:
        kind: ``cpu`` or ``cuda``.
        environment: The parent's, which names the devices that the scheduler gave.
    """
    if kind == "cpu":
        model = find_cpu_model(_read(PROC / "cpuinfo"))
        entry = {"kind": "cpu", "name": model, "uuid": "", "memory_bytes": read_memory_bytes(), "driver": ""}
        return Device(identity=f"cpu:{plain_text(model)}", devices=(entry,))
    found, reason = gpus.read_gpus(environment.get("CUDA_VISIBLE_DEVICES"))
    if not found:
        return Device(identity=f"unknown:{plain_text(reason)}", devices=())
    return Device(identity="+".join(plain_text(str(entry["uuid"])) for entry in found), devices=tuple(found))
