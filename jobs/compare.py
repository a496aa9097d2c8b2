"""How far two runs of numbers are apart: sums in fp64, block by block, in one pass.

Every operand is cut into blocks of a fixed size, whatever the number of threads, and the blocks' sums are added exactly
(math.fsum): the same numbers give the same bits on the same kind of device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from .dtypes import FLOATS, dtype_name

BLOCK = 1 << 17
"""Elements of a block on the host: two of them in fp64 stay in a processor's cache."""
_COLUMNS = 4
"""Per block: squared reference, squared difference, smallest and largest difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """What is known of one run of numbers of the reference and the value beside it."""

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

    def as_json(self) -> list[Any]:
        """Return it as the parent reads it."""
        return [getattr(self, name) for name in self.__slots__]


class Comparer:
    """Compares runs of numbers with a fixed number of threads.

    Args:
        torch: PyTorch.
        threads: How many; the results do not depend on it.
    """

    def __init__(self, torch: Any, threads: int = 1) -> None:
        self._torch = torch
        self._threads = threads
        # Each block is one thread's work: PyTorch's own threads would only get into each other's way.
        torch.set_num_threads(1)
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._buffers: dict[Any, list[Any]] = {}

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def sums(self, reference: Any, value: Any, *, signs: bool = False, roll: bool = False) -> Sums:
        """Compare two flat tensors of one length and type.

        Args:
            reference: The baseline's numbers.
            value: The other side's.
            signs: Whether to count differing signs.
            roll: Whether to compare the reference with itself, rolled.
        """
        self._check(reference, value)
        ref_sq, diff_sq, largest = self._add(reference, value)
        rolled = self._rolled(reference) if roll else None
        if math.isfinite(ref_sq) and math.isfinite(diff_sq):
            flips = self._flips(reference, value) if signs else None
            return Sums(ref_sq=ref_sq, diff_sq=diff_sq, largest_error=largest, sign_flips=flips, roll_sq=rolled)
        return Sums(
            ref_sq=_finite(ref_sq),
            diff_sq=None,
            largest_error=None,
            nonfinite_ref=self._nonfinite(reference),
            nonfinite_value=self._nonfinite(value),
            roll_sq=rolled,
        )

    def worst_ratio(self, reference: Any, value: Any, *, rtol: float, atol: float) -> tuple[float | None, int]:
        """Return the largest |value - reference| / (atol + rtol |reference|), and how many are not finite.

        Args:
            reference: The baseline's numbers.
            value: The other side's.
            rtol: Relative part of the allowance.
            atol: Absolute part of the allowance, above 0.

        Returns:
            The ratio, None if a number on either side is not finite; and how many on both sides together are not.
        """
        self._check(reference, value)
        if not (atol > 0 and rtol >= 0):
            raise ValueError(f"an allowance of {atol} + {rtol} |reference| is none")
        nonfinite = self._nonfinite(reference) + self._nonfinite(value)
        if nonfinite:
            return None, nonfinite

        def worst(begin: int, end: int) -> float:
            expected = reference[begin:end].double()
            error = value[begin:end].to(expected).sub_(expected).abs_()
            return float(error.div_(expected.abs_().mul_(rtol).add_(atol)).max())

        return max(self._each_block(len(reference), worst), default=0.0), 0

    # --- the sums -----------------------------------------------------------------------------------------------------

    def _add(self, reference: Any, value: Any) -> tuple[float, float, float]:
        """Return both sums of squares and the largest absolute difference."""
        length = len(reference)
        if length == 0:
            return 0.0, 0.0, 0.0
        found = self._torch.empty((_blocks(length), _COLUMNS), dtype=self._torch.float64, device=reference.device)
        spans = _spans(_blocks(length), self._threads)
        self._map(lambda span: self._add_span(reference, value, found, span), spans)
        ref_sq, diff_sq, smallest, largest = found.t().tolist()
        return _exact_sum(ref_sq), _exact_sum(diff_sq), max(-min(smallest), *largest, 0.0)

    def _add_span(self, reference: Any, value: Any, found: Any, span: range) -> None:
        """Write the sums of some blocks, in buffers of their own."""
        torch = self._torch
        block = min(BLOCK, len(reference))
        expected, error = (torch.empty(block, dtype=torch.float64, device=reference.device) for _ in range(2))
        dot, extremes = torch.dot, torch.aminmax
        for index in span:
            begin = index * BLOCK
            end = min(begin + BLOCK, len(reference))
            if end - begin < block:
                expected, error = expected[: end - begin], error[: end - begin]
            expected.copy_(reference[begin:end])
            error.copy_(value[begin:end])
            error.sub_(expected)
            ref_sq, diff_sq, smallest, largest = found[index].unbind()
            dot(expected, expected, out=ref_sq)
            dot(error, error, out=diff_sq)
            extremes(error, out=(smallest, largest))

    def _rolled(self, reference: Any) -> float | None:
        """Return the sum of squares of a run rolled by half its length, less itself."""
        length = len(reference)
        if length < 2:
            return 0.0
        shift = length // 2
        # Rolled, element i is element i - shift: two runs, neither of which needs a copy.
        head = self._add(reference[:shift], reference[length - shift :])[1]
        tail = self._add(reference[shift:], reference[: length - shift])[1]
        return _finite(head + tail)

    def _flips(self, reference: Any, value: Any) -> int:
        def count(begin: int, end: int) -> int:
            return int((reference[begin:end].sign() != value[begin:end].sign()).sum())

        return sum(self._each_block(len(reference), count))

    def _nonfinite(self, numbers: Any) -> int:
        def count(begin: int, end: int) -> int:
            return end - begin - int(self._torch.isfinite(numbers[begin:end]).sum())

        return sum(self._each_block(len(numbers), count))

    # --- blocks and threads -------------------------------------------------------------------------------------------

    def _check(self, reference: Any, value: Any) -> None:
        if reference.dim() != 1 or value.shape != reference.shape or value.dtype != reference.dtype:
            raise ValueError(f"{_shown(value)} cannot be compared with {_shown(reference)}")
        if dtype_name(reference.dtype) not in FLOATS:
            raise ValueError(f"{_shown(reference)} is of a type that is not compared")

    def _each_block(self, length: int, work: Callable[[int, int], Any]) -> list[Any]:
        """Return what some work gives for each block, in order."""
        starts = range(0, length, BLOCK)
        return self._map(lambda begin: work(begin, min(begin + BLOCK, length)), starts)

    def _map(self, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        if self._pool is None or len(items) == 1:
            return [work(item) for item in items]
        return list(self._pool.map(work, items))


def _blocks(length: int) -> int:
    return -(-length // BLOCK)


def _spans(blocks: int, threads: int) -> list[range]:
    """Return each thread's share of the blocks."""
    cuts = [blocks * thread // threads for thread in range(threads + 1)]
    return [range(begin, end) for begin, end in pairwise(cuts) if begin < end]


def _exact_sum(values: Sequence[float]) -> float:
    """Return the sum, correctly rounded; not finite where a value or the sum is not."""
    if not all(map(math.isfinite, values)):
        return math.nan
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _shown(numbers: Any) -> str:
    return f"{dtype_name(numbers.dtype)}{list(numbers.shape)}"
