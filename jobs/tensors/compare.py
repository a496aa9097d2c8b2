"""How far two runs of numbers are apart: sums in fp64, block by block, in one pass over the operands.

Every run is cut into blocks of a fixed size, whatever the number of threads, and the sums of its blocks are added
exactly (math.fsum): the same numbers give the same bits on the same kind of device. On the host a block is small enough
to stay in a processor's cache, so that main memory is read once.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from .dtypes import FLOATS, dtype_name

HOST_BLOCK = 1 << 17
"""Elements of a block on the host: two buffers of 1 MiB in fp64."""
DEVICE_BLOCK = 1 << 23
"""Elements of a block on a device: two buffers of 64 MiB."""
Pair = tuple[Any, Any]
"""A run of the reference and the run of the value beside it: flat tensors of one length and type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """What is known of one pair."""

    ref_sq: float | None
    """Sum of squares of the reference; None if it is not finite."""
    diff_sq: float | None
    """Sum of squares of value - reference; None if it is not finite."""
    largest_error: float | None
    """The largest absolute difference; None like `diff_sq`."""
    nonfinite_ref: int = 0
    nonfinite_value: int = 0
    sign_flips: int | None = None
    """Elements whose signs differ, zero being a sign of its own; None unless asked for, or not all finite."""
    roll_sq: float | None = None
    """Sum of squares of the reference rolled by half its length, less itself; None unless asked for, or not finite."""

    @property
    def is_finite(self) -> bool:
        """Whether there are no numbers in it that are not finite."""
        return self.ref_sq is not None and self.diff_sq is not None

    def as_json(self) -> list[Any]:
        """Return it as the parent reads it."""
        return [getattr(self, name) for name in self.__slots__]


class Comparer:
    """Compares runs of numbers with a fixed number of threads, one at a time per block.

    Args:
        torch: PyTorch.
        threads: How many work on the host; the results do not depend on it.
    """

    def __init__(self, torch: Any, threads: int = 1) -> None:
        self._torch = torch
        self._threads = threads
        # PyTorch's own threads would share each block, at a cost for every operation.
        torch.set_num_threads(1)
        self._pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
        self._buffers: dict[Any, Pair] = {}

    def close(self) -> None:
        """End the threads and drop the buffers."""
        self._pool.shutdown()
        self._buffers = {}

    def sums(self, pairs: Sequence[Pair], *, signs: bool = False, roll: bool = False) -> list[Sums]:
        """Compare pairs.

        Args:
            pairs: What to compare.
            signs: Whether to count differing signs.
            roll: Whether to compare each reference with itself, rolled.
        """
        self._check(pairs)
        found = self._add(pairs)
        if roll:
            rolled = self._roll([reference for reference, _ in pairs])
            found = [replace(one, roll_sq=roll_sq) for one, roll_sq in zip(found, rolled, strict=True)]
        return [self._complete(one, pair, signs=signs) for one, pair in zip(found, pairs, strict=True)]

    def worst_ratios(self, pairs: Sequence[Pair], *, rtol: float, atol: float) -> list[tuple[float | None, int]]:
        """Return the largest |value - reference| / (atol + rtol |reference|) of each pair.

        Args:
            pairs: What to compare.
            rtol: Relative part of the allowance.
            atol: Absolute part of the allowance, above 0.

        Returns:
            The ratio, None if a number on either side is not finite; and how many on both sides together are not.
        """
        self._check(pairs)
        if not (atol > 0 and rtol >= 0 and math.isfinite(atol + rtol)):
            raise ValueError(f"an allowance of {atol} + {rtol} |reference| is none")

        def worst(reference: Any, value: Any) -> float:
            # Numbers that are fp64 already are the operands themselves: nothing is written to them.
            expected = reference.double()
            error = (value.double() - expected).abs_()
            return float(error.div_(expected.abs().mul_(rtol).add_(atol)).max())

        found: list[tuple[float | None, int]] = []
        for pair in pairs:
            nonfinite = sum(map(self._nonfinite, pair))
            found.append((None, nonfinite) if nonfinite else (max(self._each(pair, worst), default=0.0), 0))
        return found

    # --- the sums -----------------------------------------------------------------------------------------------------

    def _add(self, pairs: Sequence[Pair]) -> list[Sums]:
        """Return the sums and the largest difference of each pair."""
        counts = [_num_blocks(pair) for pair in pairs]
        blocks = [block for pair in pairs for block in _blocks(pair)]
        if not blocks:
            return [_sums((), (), ()) for _ in pairs]
        columns = self._torch.empty((3, len(blocks)), dtype=self._torch.float64, device=blocks[0][0].device)
        # Whoever is free takes the next block; where its sums go does not depend on who that is.
        waiting = deque(zip(blocks, *(row.unbind() for row in columns), strict=True))
        buffers = [self._buffer(share, columns.device) for share in range(self._num_shares(blocks))]
        self._map(lambda own: self._add_blocks(waiting, *own), buffers)
        found = columns.tolist()
        return [
            _sums(*(column[end - count : end] for column in found))
            for end, count in zip(accumulate(counts), counts, strict=True)
        ]

    def _add_blocks(self, waiting: deque[Any], expected_buffer: Any, error_buffer: Any) -> None:
        """Write sum of squares, sum of squared differences and the largest of these of blocks, until none is left.

        Args:
            waiting: A block with the places of its three results each.
            expected_buffer: For the reference in fp64; nobody else's.
            error_buffer: For the differences; nobody else's.
        """
        torch = self._torch
        dot, total, largest, squared_error = torch.dot, torch.sum, torch.amax, torch.ops.aten.mse_loss.out
        while waiting:
            try:
                (reference, value), ref_sq, diff_sq, most = waiting.popleft()
            except IndexError:
                return
            length = reference.numel()
            expected, error = expected_buffer[:length], error_buffer[:length]
            expected.copy_(reference)
            error.copy_(value)
            dot(expected, expected, out=ref_sq)
            squared_error(error, expected, 0, out=error)
            total(error, 0, out=diff_sq)
            largest(error, 0, out=most)

    def _buffer(self, share: int, device: Any) -> Pair:
        key = (share, str(device))
        if key not in self._buffers:
            shape = (2, _block_elements(device))
            self._buffers[key] = self._torch.empty(shape, dtype=self._torch.float64, device=device).unbind()
        return self._buffers[key]

    def _roll(self, references: Sequence[Any]) -> list[float | None]:
        """Return the sum of squares of each run rolled by half its length, less itself."""
        pairs: list[Pair] = []
        for run in references:
            shift = len(run) // 2
            # Rolled, element i is element i - shift: two parts, neither of which needs a copy.
            pairs += [(run[:shift], run[len(run) - shift :]), (run[shift:], run[: len(run) - shift])]
        parts = [one.diff_sq for one in self._add(pairs)]
        return [
            None if head is None or tail is None else head + tail
            for head, tail in zip(parts[::2], parts[1::2], strict=True)
        ]

    # --- the second pass ----------------------------------------------------------------------------------------------

    def _complete(self, found: Sums, pair: Pair, *, signs: bool) -> Sums:
        if not found.is_finite:
            return replace(found, nonfinite_ref=self._nonfinite(pair[0]), nonfinite_value=self._nonfinite(pair[1]))
        return replace(found, sign_flips=sum(self._each(pair, _count_flips))) if signs else found

    def _nonfinite(self, numbers: Any) -> int:
        def count(block: Any, _same: Any) -> int:
            return len(block) - int(self._torch.isfinite(block).sum())

        return sum(self._each((numbers, numbers), count))

    # --- blocks and threads -------------------------------------------------------------------------------------------

    def _check(self, pairs: Sequence[Pair]) -> None:
        for reference, value in pairs:
            if reference.dim() != 1 or value.shape != reference.shape or value.dtype != reference.dtype:
                raise ValueError(f"{_shown(value)} cannot be compared with {_shown(reference)}")
            if dtype_name(reference.dtype) not in FLOATS:
                raise ValueError(f"{_shown(reference)} is of a type that is not compared")

    def _num_shares(self, blocks: Sequence[Pair]) -> int:
        if blocks[0][0].device.type != "cpu":
            return 1
        # Threads that have little to do wait for each other: each operation takes the interpreter's lock.
        num_full = -(-sum(reference.numel() for reference, _ in blocks) // HOST_BLOCK)
        return min(self._threads, len(blocks), int(num_full))

    def _each(self, pair: Pair, work: Callable[[Any, Any], Any]) -> list[Any]:
        """Return what some work gives for each block, in order."""
        return self._map(lambda block: work(*block), list(_blocks(pair)))

    def _map(self, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        if len(items) == 1 or self._threads == 1:
            return [work(item) for item in items]
        return list(self._pool.map(work, items))


def _block_elements(device: Any) -> int:
    return HOST_BLOCK if device.type == "cpu" else DEVICE_BLOCK


def _num_blocks(pair: Pair) -> int:
    return -(-int(pair[0].numel()) // _block_elements(pair[0].device))


def _blocks(pair: Pair) -> Iterator[Pair]:
    """Yield the blocks of a pair; none of an empty one."""
    reference, value = pair
    length, size = reference.numel(), _block_elements(reference.device)
    if length > size:
        yield from zip(reference.split(size), value.split(size), strict=True)
    elif length:
        yield pair


def _count_flips(reference: Any, value: Any) -> int:
    return int((reference.sign() != value.sign()).sum())


def _sums(ref_sq: Sequence[float], diff_sq: Sequence[float], most: Sequence[float]) -> Sums:
    """Put the sums of the blocks of a pair together."""
    reference, difference = _exact_sum(ref_sq), _exact_sum(diff_sq)
    if difference is None:
        return Sums(ref_sq=reference, diff_sq=None, largest_error=None)
    # The root of a rounded square is the number itself, as long as the square is within the range of fp64.
    return Sums(ref_sq=reference, diff_sq=difference, largest_error=math.sqrt(max(most, default=0.0)))


def _exact_sum(values: Sequence[float]) -> float | None:
    """Return the sum, correctly rounded; None where a value or the sum is not finite."""
    if not all(map(math.isfinite, values)):
        return None
    try:
        return math.fsum(values)
    except OverflowError:
        return None


def _shown(numbers: Any) -> str:
    return f"{dtype_name(numbers.dtype)}{list(numbers.shape)}"
