"""Which GPUs this allocation has: by nvidia-ml-py where it is installed, else nvidia-smi, else unknown with reasons."""

from __future__ import annotations

import csv
import importlib
import subprocess
from collections.abc import Callable
from typing import Any

_QUERY = "index,uuid,name,memory.total,driver_version"
_TIMEOUT_S = 60
Gpu = dict[str, Any]


def as_text(value: str | bytes) -> str:
    """Return what the library says as a text: some versions of it say bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _gpu(name: str, uuid: str, memory_bytes: int, driver: str) -> Gpu:
    return {"kind": "cuda", "name": name, "uuid": uuid, "memory_bytes": memory_bytes, "driver": driver}


def _from_nvml() -> list[Gpu]:
    nvml = importlib.import_module("pynvml")
    nvml.nvmlInit()
    try:
        driver = as_text(nvml.nvmlSystemGetDriverVersion())
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        return [
            _gpu(
                as_text(nvml.nvmlDeviceGetName(handle)),
                as_text(nvml.nvmlDeviceGetUUID(handle)),
                int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
                driver,
            )
            for handle in handles
        ]
    finally:
        nvml.nvmlShutdown()


def query_smi(query: str, timeout_s: float) -> str:
    """Return nvidia-smi's table of all devices, without header and units.

    Args:
        query: What it is asked of each.
        timeout_s: How long it may take.

    Raises:
        OSError, subprocess.SubprocessError: It does not answer.
    """
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=timeout_s).stdout


def split_smi(text: str) -> list[list[str]]:
    """Return the fields of each line of such a table."""
    return [[field.strip() for field in row] for row in csv.reader(text.splitlines()) if row]


def parse_smi(text: str) -> list[Gpu]:
    """Parse nvidia-smi's table of the query above (memory in MiB)."""
    return [_gpu(name, uuid, int(mib) << 20, driver) for _, uuid, name, mib, driver in split_smi(text)]


def _from_smi() -> list[Gpu]:
    return parse_smi(query_smi(_QUERY, _TIMEOUT_S))


def select_visible(found: list[Gpu], visible: str | None) -> list[Gpu]:
    """Return the devices that CUDA_VISIBLE_DEVICES names, in its order.

    Args:
        found: All devices, in the order of the bus.
        visible: The variable's value; None if it is not set, which shows all.

    Raises:
        ValueError: An item names no device that is known, a part of a partitioned one for example.
    """
    if visible is None:
        return found
    chosen = []
    for item in filter(None, (part.strip() for part in visible.split(","))):
        if item.isdecimal() and int(item) < len(found):
            chosen.append(found[int(item)])
            continue
        matching = [gpu for gpu in found if gpu["uuid"].startswith(item)]
        if len(matching) != 1:
            raise ValueError(f"CUDA_VISIBLE_DEVICES names {item}, which is none of the {len(found)} devices")
        chosen.append(matching[0])
    return chosen


def _partition(item: str) -> Gpu | None:
    """Return a part of a partitioned device: its own UUID is its identity; the rest is not asked for."""
    return _gpu("MIG device", item, 0, "") if item.startswith("MIG-") else None


def read_gpus(
    visible: str | None, sources: tuple[Callable[[], list[Gpu]], ...] = (_from_nvml, _from_smi)
) -> tuple[list[Gpu], str]:
    """Return the devices of this allocation, or none and the reason.

    Args:
        visible: CUDA_VISIBLE_DEVICES, None if it is not set.
        sources: What to ask, in turn, for all devices of the host.
    """
    parts = [_partition(item.strip()) for item in (visible or "").split(",") if item.strip()]
    if parts and all(parts):
        return [part for part in parts if part is not None], ""
    reasons = []
    for source in sources:
        try:
            found = select_visible(source(), visible)
        except Exception as error:  # noqa: BLE001 - drivers raise their own kinds, and none of them is fatal here
            reasons.append(f"{type(error).__name__}: {error}")
            continue
        if found:
            return found, ""
        reasons.append("no device is visible")
    return [], "; ".join(reasons)
