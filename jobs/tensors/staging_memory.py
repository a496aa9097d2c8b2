"""Staging: memory in two halves that a side fills and the comparer reads, on the host or on the device.

While one half is compared the other is filled.
"""

from __future__ import annotations

import mmap
import os
import sys
from typing import Any

from . import cuda
from .dtypes import ITEM_BYTES

HALVES = 2


class Staging:
    """Two halves of some memory.

    Args:
        memory: A flat tensor of bytes, of both halves.
        half_bytes: Size of each.
        torch: PyTorch.
        device_memory: What holds the memory if it is the device's.
    """

    def __init__(
        self, memory: Any, half_bytes: int, torch: Any, *, device_memory: cuda.DeviceMemory | None = None
    ) -> None:
        self._memory = memory
        self._half_bytes = half_bytes
        self._torch = torch
        self._device_memory = device_memory
        self._is_pinned = False
        self._typed: dict[tuple[int, str], Any] = {}
        """Each half as a tensor of one type."""

    @property
    def is_on_device(self) -> bool:
        """Whether it is device memory."""
        return self._device_memory is not None

    def view(self, half: int, dtype: str, count: int, offset: int) -> Any:
        """Return a flat tensor over a part of a half.

        Args:
            half: Which.
            dtype: PyTorch's name of the element type.
            count: Number of elements.
            offset: Where they begin in the half, in bytes; a multiple of the element's size.

        Raises:
            ValueError: There is no such part.
        """
        item_bytes = ITEM_BYTES[dtype]
        end = offset + count * item_bytes
        if not 0 <= half < HALVES or not 0 <= offset <= end <= self._half_bytes or offset % item_bytes:
            raise ValueError(f"no {count} of {dtype} at byte {offset} of half {half} of {self._half_bytes} bytes")
        typed = self._typed.get((half, dtype))
        if typed is None:
            begin = half * self._half_bytes
            typed = self._memory[begin : begin + self._half_bytes].view(getattr(self._torch, dtype))
            self._typed[half, dtype] = typed
        return typed[offset // item_bytes : end // item_bytes]

    def handle(self) -> dict[str, Any] | None:
        """Return what the comparer opens device memory by; None for the host's."""
        return None if self._device_memory is None else self._device_memory.handle()

    def pin(self) -> None:
        """Lock host memory in place for the device, as far as this machine lets us: only speed depends on it."""
        try:
            cuda.pin(self._memory.data_ptr(), self._memory.numel())
            self._is_pinned = True
        except cuda.CudaError as error:
            print(f"staging memory stays pageable: {error}", file=sys.stderr)  # noqa: T201 - the side's log

    def close(self) -> None:
        """Let go of the memory; no view may be used afterwards."""
        if self._is_pinned:
            cuda.unpin(self._memory.data_ptr())
            self._is_pinned = False
        self._memory = None
        self._typed = {}
        if self._device_memory is not None:
            self._device_memory.close()


def map_host(path: str, half_bytes: int, torch: Any) -> Staging:
    """Map the file that the parent has made.

    Raises:
        ValueError: It has another size.
    """
    # Halves begin at whole pages, so that every element type is aligned in both.
    if half_bytes <= 0 or half_bytes % mmap.PAGESIZE:
        raise ValueError(f"a half of {half_bytes} bytes is no whole number of pages")
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        size = os.fstat(fd).st_size
        if size != HALVES * half_bytes:
            raise ValueError(f"{path} has {size} bytes, not {HALVES} halves of {half_bytes}")
        mapped = mmap.mmap(fd, size, access=mmap.ACCESS_WRITE)
    finally:
        os.close(fd)
    return Staging(torch.frombuffer(mapped, dtype=torch.uint8), half_bytes, torch)


def allocate_device(half_bytes: int, index: int, torch: Any) -> Staging:
    """Allocate it in device memory.

    Raises:
        CudaError: That is not to be had here; PyTorch raises others where it knows no device.
    """
    torch.cuda.init()
    memory = cuda.allocate(HALVES * half_bytes, index)
    return Staging(memory.tensor(), half_bytes, torch, device_memory=memory)


def open_device(handle: dict[str, Any], half_bytes: int, torch: Any) -> Staging:
    """Open what a side has allocated in device memory.

    Raises:
        CudaError: That cannot be opened here.
        ValueError: It has another size.
    """
    if handle["bytes"] != HALVES * half_bytes:
        raise ValueError(f"the handle is for {handle['bytes']} bytes, not {HALVES} halves of {half_bytes}")
    torch.cuda.init()
    memory = cuda.open_handle(handle)
    return Staging(memory.tensor(), half_bytes, torch, device_memory=memory)
