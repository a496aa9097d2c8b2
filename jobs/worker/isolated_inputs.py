"""Inputs of the isolated checks: discrete normal values that are the same bits under every version of PyTorch.

A hash of integers, in exact 64-bit arithmetic, picks one of 65,536 quantiles of the normal distribution.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import Any

from ..tensors.catalog import Tensor

Key = tuple[int, str]
"""Worker and name."""
_LEVELS = 1 << 16
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_BLOCK = 1 << 20
"""Elements that are drawn at a time, to bound what the integers take."""
_DECIMALS = 6


@functools.cache
def quantiles() -> tuple[float, ...]:
    """Return the quantiles of the standard normal distribution, rounded, in the middles of equal shares."""
    normal = NormalDist()
    # Rounded: the last bits of a logarithm depend on the machine's mathematical library.
    half = [round(normal.inv_cdf((level + 0.5) / _LEVELS), _DECIMALS) for level in range(_LEVELS // 2)]
    return (*half, *(-value for value in reversed(half)))


def stream_key(seed: int, role: str, worker: int, index: int) -> int:
    """Return where the values of one tensor begin: 64 bits.

    Args:
        seed: The protocol's.
        role: What the tensor is, such as ``parameters`` or ``gradients/0``.
        worker: Whose.
        index: Its place among the worker's distinct tensors.
    """
    digest = hashlib.sha256(f"{seed}/{role}/{worker}/{index}".encode("ascii")).digest()
    return int.from_bytes(digest[:8], "little")


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _shifted(values: Any, bits: int) -> Any:
    """Shift right and fill with zeros: signed integers would be filled with their sign."""
    return (values >> bits) & ((1 << (64 - bits)) - 1)


def levels(key: int, begin: int, end: int, torch: Any, device: Any) -> Any:
    """Return the level of each element from `begin` to `end`: the top 16 bits of a SplitMix64 sequence."""
    mixed = torch.arange(begin + 1, end + 1, dtype=torch.int64, device=device)
    mixed.mul_(_signed(_GOLDEN)).add_(_signed(key))
    mixed.bitwise_xor_(_shifted(mixed, 30)).mul_(_signed(_FIRST))
    mixed.bitwise_xor_(_shifted(mixed, 27)).mul_(_signed(_SECOND))
    return _shifted(mixed.bitwise_xor_(_shifted(mixed, 31)), 48)


class Drawer:
    """Draws tensors on a device.

    Args:
        seed: The protocol's.
        sd: Standard deviation.
        torch: PyTorch.
        device: Where to.
    """

    def __init__(self, seed: int, sd: float, torch: Any, device: Any) -> None:
        self._seed = seed
        self._torch = torch
        self._device = device
        table = torch.tensor([value * sd for value in quantiles()], dtype=torch.float64)
        self._table = table.to(torch.float32).to(device)

    def draw(self, entry: Tensor, role: str, index: int) -> Any:
        """Return a new fp32 tensor.

        Args:
            entry: Whose shape it takes.
            role: What it is.
            index: Its place among the worker's distinct tensors.
        """
        key = stream_key(self._seed, role, entry.worker, index)
        drawn = self._torch.empty(entry.numel, dtype=self._torch.float32, device=self._device)
        for begin in range(0, entry.numel, _BLOCK):
            end = min(begin + _BLOCK, entry.numel)
            drawn[begin:end] = self._table[levels(key, begin, end, self._torch, self._device)]
        return drawn.reshape(entry.shape)


class Drawn(Mapping[Key, Any]):
    """Tensors by worker and name, drawn when they are asked for, of which none is kept.

    Args:
        entries: The distinct tensors, in canonical order.
        role: What they are.
        drawer: Draws them.
    """

    def __init__(self, entries: Sequence[Tensor], role: str, drawer: Drawer) -> None:
        self._places: dict[Key, tuple[Tensor, int]] = {}
        self._role = role
        self._drawer = drawer
        counts: dict[int, int] = {}
        for entry in entries:
            index = counts.setdefault(entry.worker, 0)
            counts[entry.worker] += 1
            self._places[entry.worker, entry.name] = (entry, index)

    def __getitem__(self, key: Key) -> Any:
        """Draw one."""
        entry, index = self._places[key]
        return self._drawer.draw(entry, self._role, index)

    def __iter__(self) -> Iterator[Key]:
        """Go through worker and name of all."""
        return iter(self._places)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._places)


class Gradients(Sequence[Drawn]):
    """The gradients of some steps, drawn when they are asked for.

    Args:
        entries: The distinct tensors, in canonical order.
        steps: How many.
        drawer: Draws them.
    """

    def __init__(self, entries: Sequence[Tensor], steps: int, drawer: Drawer) -> None:
        self._steps = [Drawn(entries, f"gradients/{step}", drawer) for step in range(steps)]

    def __getitem__(self, index: Any) -> Any:
        """Return those of a step."""
        return self._steps[index]

    def __len__(self) -> int:
        """Return how many steps there are."""
        return len(self._steps)
