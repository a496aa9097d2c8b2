"""What the worker asks of the device's library, if the side has loaded one: waiting, and peaks of memory."""

from __future__ import annotations

import sys
from typing import Any


def _torch(device: str) -> Any:
    """Return PyTorch if the side has loaded it and its CUDA part is in use; None otherwise. It is never loaded here."""
    torch = sys.modules.get("torch")
    if device == "cpu" or torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    return torch


def _used(torch: Any) -> list[int]:
    return [index for index in range(torch.cuda.device_count()) if torch.cuda.max_memory_reserved(index) > 0]


def reset_peaks(device: str) -> None:
    """Forget the peaks of memory so far: what imports allocated."""
    torch = _torch(device)
    if torch is not None:
        for index in _used(torch):
            torch.cuda.reset_peak_memory_stats(index)


def synchronize(device: str) -> None:
    """Wait until the devices that the side uses are idle, whatever the side's own ``sync`` did."""
    torch = _torch(device)
    if torch is not None:
        for index in _used(torch):
            torch.cuda.synchronize(index)


def read_peaks(device: str) -> list[int] | None:
    """Return the peaks of allocated and reserved bytes over all devices of the side; None if nobody counted them."""
    torch = _torch(device)
    if torch is None:
        return None
    used = _used(torch)
    allocated = sum(int(torch.cuda.max_memory_allocated(index)) for index in used)
    return [allocated, sum(int(torch.cuda.max_memory_reserved(index)) for index in used)]


def versions() -> dict[str, str]:
    """Return what PyTorch says it was built for, if it is loaded."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    found = {"cuda": getattr(torch.version, "cuda", None), "hip": getattr(torch.version, "hip", None)}
    if torch.cuda.is_available() and torch.backends.cudnn.is_available():
        found["cudnn"] = str(torch.backends.cudnn.version())
    return {name: str(value) for name, value in found.items() if value}
