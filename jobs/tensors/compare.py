"""How far two runs of numbers are apart: sums in fp64, block by block, in one pass over the operands.

Every run is cut into blocks of a fixed size, whatever the number of threads, and the sums of its blocks are added
exactly (math.fsum): the same numbers give the same bits on the same kind of device. On the host a block is small enough
to stay in a processor's cache, so that main memory is read once. On a device all runs are gone through together.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import Any

from .dtypes import FLOATS, dtype_name
from .packed import Columns, Packer, Pair
from .sums import Sums, exact_sum

HOST_BLOCK = 1 << 17
"""Elements of a block on the host: two buffers of 1 MiB in fp64."""
DEVICE_BLOCK = 1 << 23
"""Elements of a block on a device, where numbers that are not finite are counted."""


class Prepared:
    """Pairs that may be compared more than once.

    Args:
        pairs: The pairs.
        packer: What goes through them on their device; None on the host.
    """

    def __init__(self, pairs: Sequence[Pair], packer: Packer | None) -> None:
        self.pairs = pairs
        self.packed = None if packer is None else (packer, packer.plan(pairs))

    @cached_property
    def rolled(self) -> Prepared:
        """The references beside themselves, rolled by half their length: two parts each, neither of them a copy.

        Rolled, element i is element i - half. Of an even number of elements the parts differ in sign alone: then there
        is but one.
        """
        pairs: list[Pair] = []
        for run, _ in self.pairs:
            half, odd = divmod(run.numel(), 2)
            pairs.append((run[:half], run[half + odd :]))
            if odd:
                pairs.append((run[half:], run[: half + 1]))
        return Prepared(pairs, None if self.packed is None else self.packed[0])


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
        self._buffers: dict[int, Pair] = {}
        self._packers: dict[str, Packer] = {}

    def peak_device_bytes(self) -> int:
        """Return how much of a device's memory buffers and temporaries took at most; 0 where no device was used."""
        cuda = self._torch.cuda
        if not (cuda.is_available() and cuda.is_initialized()):
            return 0
        return sum(int(cuda.max_memory_reserved(index)) for index in range(cuda.device_count()))

    def close(self) -> None:
        """End the threads and drop the buffers."""
        self._pool.shutdown()
        self._buffers = {}
        self._packers = {}

    def prepare(self, pairs: Sequence[Pair]) -> Prepared:
        """Return pairs as they may be compared again and again.

        Raises:
            ValueError: They cannot be compared.
        """
        for reference, value in pairs:
            if reference.dim() != 1 or value.shape != reference.shape or value.dtype != reference.dtype:
                raise ValueError(f"{_shown(value)} cannot be compared with {_shown(reference)}")
            if dtype_name(reference.dtype) not in FLOATS:
                raise ValueError(f"{_shown(reference)} is of a type that is not compared")
        return Prepared(pairs, self._packer(pairs))

    def sums(self, pairs: Sequence[Pair] | Prepared, *, signs: bool = False, roll: bool = False) -> list[Sums]:
        """Compare pairs.

        Args:
            pairs: What to compare.
            signs: Whether to count differing signs.
            roll: Whether to compare each reference with itself, rolled.
        """
        prepared = pairs if isinstance(pairs, Prepared) else self.prepare(pairs)
        found = self._add(prepared, signs=signs)
        if roll:
            rolled = self._roll(prepared)
            found = [replace(one, roll_sq=roll_sq) for one, roll_sq in zip(found, rolled, strict=True)]
        return [self._complete(one, pair, signs=signs) for one, pair in zip(found, prepared.pairs, strict=True)]

    def worst_ratios(
        self, pairs: Sequence[Pair] | Prepared, *, rtol: float, atol: float
    ) -> list[tuple[float | None, int]]:
        """Return the largest |value - reference| / (atol + rtol |reference|) of each pair.

        Args:
            pairs: What to compare.
            rtol: Relative part of the allowance.
            atol: Absolute part of the allowance, above 0.

        Returns:
            The ratio, and how many numbers on both sides together are not finite. The ratio is None if any is not, or
            if it is itself beyond a double, which counts as one.
        """
        prepared = pairs if isinstance(pairs, Prepared) else self.prepare(pairs)
        if not (atol > 0 and rtol >= 0 and math.isfinite(atol + rtol)):
            raise ValueError(f"an allowance of {atol} + {rtol} |reference| is none")

        def worst(reference: Any, value: Any) -> float:
            # Numbers that are fp64 already are the operands themselves: nothing is written to them.
            expected = reference.double()
            error = (value.double() - expected).abs_()
            return float(error.div_(expected.abs().mul_(rtol).add_(atol)).max())

        if prepared.packed is None:
            ratios = [_largest(self._each(pair, worst)) for pair in prepared.pairs]
        else:
            packer, plan = prepared.packed
            ratios = [_largest(own.most) for own in packer.ratios(plan, rtol=rtol, atol=atol)]
        return [self._judge(ratio, pair) for ratio, pair in zip(ratios, prepared.pairs, strict=True)]

    def _judge(self, ratio: float, pair: Pair) -> tuple[float | None, int]:
        """Return a ratio, unless it is none because of numbers that are not finite, and their number."""
        # Any of them makes the ratio one that is not finite.
        return (ratio, 0) if math.isfinite(ratio) else (None, max(1, sum(map(self._nonfinite, pair))))

    # --- the sums -----------------------------------------------------------------------------------------------------

    def _add(self, prepared: Prepared, *, signs: bool = False) -> list[Sums]:
        """Return the sums and the largest difference of each pair; flips of the sign where they come with it."""
        if prepared.packed is not None:
            packer, plan = prepared.packed
            return _packed_sums(packer.sums(plan, signs=signs), signs=signs)
        pairs = prepared.pairs
        counts = [_num_blocks(pair) for pair in pairs]
        blocks = [block for pair in pairs for block in _blocks(pair)]
        if not blocks:
            return [_sums((), (), 0.0) for _ in pairs]
        columns = self._torch.empty((3, len(blocks)), dtype=self._torch.float64)
        # Whoever is free takes the next block; where its sums go does not depend on who that is.
        waiting = deque(zip(blocks, *(row.unbind() for row in columns), strict=True))
        buffers = [self._buffer(share) for share in range(self._num_shares(blocks))]
        self._map(lambda own: self._add_blocks(waiting, *own), buffers)
        ref_sq, diff_sq, most = columns.tolist()
        own = [slice(end - count, end) for end, count in zip(accumulate(counts), counts, strict=True)]
        # The root of a rounded square is the number itself, as long as the square is within the range of fp64.
        return [_sums(ref_sq[one], diff_sq[one], math.sqrt(_largest(most[one]))) for one in own]

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

    def _buffer(self, share: int) -> Pair:
        if share not in self._buffers:
            self._buffers[share] = self._torch.empty((2, HOST_BLOCK), dtype=self._torch.float64).unbind()
        return self._buffers[share]

    def _packer(self, pairs: Sequence[Pair]) -> Packer | None:
        """Return what goes through pairs on their device; None on the host."""
        if not pairs or pairs[0][0].device.type == "cpu":
            return None
        device = pairs[0][0].device
        if str(device) not in self._packers:
            self._packers[str(device)] = Packer(self._torch, device)
        return self._packers[str(device)]

    def _roll(self, prepared: Prepared) -> list[float | None]:
        """Return the sum of squares of each reference rolled by half its length, less itself."""
        parts = iter(self._differences(prepared.rolled))
        found: list[float | None] = []
        for run, _ in prepared.pairs:
            head = next(parts)
            tail = next(parts) if run.numel() % 2 else head
            found.append(None if head is None or tail is None else exact_sum((head, tail)))
        return found

    def _differences(self, prepared: Prepared) -> list[float | None]:
        if prepared.packed is None:
            return [one.difference_sq for one in self._add(prepared)]
        packer, plan = prepared.packed
        return [exact_sum(own.diff_sq) for own in packer.differences(plan)]

    # --- the second pass ----------------------------------------------------------------------------------------------

    def _complete(self, found: Sums, pair: Pair, *, signs: bool) -> Sums:
        if not found.is_finite:
            return replace(
                found, nonfinite_reference=self._nonfinite(pair[0]), nonfinite_value=self._nonfinite(pair[1])
            )
        if signs and found.sign_flips is None:
            return replace(found, sign_flips=sum(self._each(pair, _count_flips)))
        return found

    def _nonfinite(self, numbers: Any) -> int:
        def count(block: Any, _same: Any) -> int:
            return len(block) - int(self._torch.isfinite(block).sum())

        return sum(self._each((numbers, numbers), count))

    # --- blocks and threads -------------------------------------------------------------------------------------------

    def _num_shares(self, blocks: Sequence[Pair]) -> int:
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


def _sums(ref_sq: Sequence[float], diff_sq: Sequence[float], largest: float) -> Sums:
    """Put the sums of the blocks of a pair together."""
    reference, difference = exact_sum(ref_sq), exact_sum(diff_sq)
    return Sums(reference_sq=reference, difference_sq=difference, largest_error=None if difference is None else largest)


def _packed_sums(found: Sequence[Columns], *, signs: bool) -> list[Sums]:
    """Put the sums of the groups of each pair together."""
    together = [(_sums(own.ref_sq, own.diff_sq, _largest(own.most)), own.flips) for own in found]
    return [replace(one, sign_flips=int(sum(flips))) if signs and one.is_finite else one for one, flips in together]


def _largest(values: Sequence[float]) -> float:
    """Return the largest value; NaN if there is one, and 0 of none."""
    return math.nan if any(map(math.isnan, values)) else max(values, default=0.0)


def _shown(numbers: Any) -> str:
    return f"{dtype_name(numbers.dtype)}{list(numbers.shape)}"
