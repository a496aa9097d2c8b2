"""Many runs of numbers on a device at once: packed into rows of one size, each row reduced to a few numbers in fp64.

A device takes about as long to begin an operation as to go through a million elements, so all runs share their
operations, whatever their number. What is found of a run depends neither on the others nor on where it lies: its rows
begin with it, the last one is filled up with zeros, and their sums are added in groups of a fixed size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

Pair = tuple[Any, Any]
"""A run of the reference and the run of the value beside it: flat tensors of one length and type."""
ROW = 1 << 10
"""Elements of a row."""
GROUP = 1 << 6
"""Rows that are added on the device; the sums of groups are the caller's."""
STRIP_ROWS = 1 << 13
"""Rows that are worked on at once: two buffers of 64 MiB."""
_NORMS = 2
"""Columns of a row that are norms, until they are squared."""
_SUMMED = 3
"""Columns of a row that are added; of the one after them the largest counts."""


class Columns(NamedTuple):
    """What is kept of each row, or of each group of rows."""

    ref_sq: Any
    diff_sq: Any
    flips: Any
    most: Any
    """The largest of something that is not negative."""


Work = Callable[[Any, Any, Columns], None]
"""Writes to columns what it finds in the rows of reference and value in fp64; it may write to both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """Runs that fill the buffers together."""

    rows: slice
    """Which of all rows these are."""
    references: list[Any]
    values: list[Any]
    expected: list[Any]
    """Where the references go in the one buffer."""
    error: list[Any]
    """Where the values go in the other one."""
    gaps: list[Any]
    """What is left of their last rows, in both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How pairs are gone through; of use as often as they are compared, since making it is a good part of the work."""

    strips: list[Strip]
    num_rows: int
    places: Any
    """The rows of all groups."""
    groups: list[slice]
    """Which groups belong to each pair."""


class Packer:
    """Reduces runs on one device.

    Args:
        torch: PyTorch.
        device: The device.
    """

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch = torch
        self._device = device
        self._buffers = torch.empty((2, STRIP_ROWS, ROW), dtype=torch.float64, device=device).unbind()

    def plan(self, pairs: Sequence[Pair]) -> Plan:
        """Return how to go through pairs."""
        num_rows = [_num_rows(reference) for reference, _ in pairs]
        ends = list(accumulate(num_rows))
        groups = [range(end - rows, end, GROUP) for end, rows in zip(ends, num_rows, strict=True)]
        stops = accumulate(map(len, groups))
        return Plan(
            strips=list(self._strips(pairs)),
            num_rows=sum(num_rows),
            places=self._places(groups),
            groups=[slice(stop - len(own), stop) for stop, own in zip(stops, groups, strict=True)],
        )

    def sums(self, plan: Plan, *, signs: bool) -> list[Columns]:
        """Return sums of squares, flips of the sign if asked for, and the largest difference, by group of each pair."""
        torch = self._torch
        norm = torch.linalg.vector_norm

        def work(expected: Any, error: Any, columns: Columns) -> None:
            if signs:
                torch.sum(expected.sign().ne_(error.sign()), 1, out=columns.flips)
            # A norm squares as it reads; what its root and the square of that cost is the last bit of a row.
            norm(expected, 2, 1, out=columns.ref_sq)
            error.sub_(expected)
            norm(error, 2, 1, out=columns.diff_sq)
            norm(error, math.inf, 1, out=columns.most)

        return self._reduce(plan, work)

    def differences(self, plan: Plan) -> list[Columns]:
        """Return sums of squares of the difference alone."""
        norm = self._torch.linalg.vector_norm

        def work(expected: Any, error: Any, columns: Columns) -> None:
            norm(error.sub_(expected), 2, 1, out=columns.diff_sq)

        return self._reduce(plan, work)

    def ratios(self, plan: Plan, *, rtol: float, atol: float) -> list[Columns]:
        """Return the largest |value - reference| / (atol + rtol |reference|)."""
        amax = self._torch.amax

        def work(expected: Any, error: Any, columns: Columns) -> None:
            error.sub_(expected).abs_()
            amax(error.div_(expected.abs_().mul_(rtol).add_(atol)), 1, out=columns.most)

        return self._reduce(plan, work)

    def _reduce(self, plan: Plan, work: Work) -> list[Columns]:
        torch = self._torch
        # The last row belongs to nobody: groups that are not full take it for those that they lack.
        shape = (len(Columns._fields), plan.num_rows + 1)
        columns = torch.zeros(shape, dtype=torch.float64, device=self._device)
        for strip in plan.strips:
            # PyTorch's optimizers are built on these operations: public in all but name.
            torch._foreach_copy_(strip.expected, strip.references)
            torch._foreach_copy_(strip.error, strip.values)
            if strip.gaps:
                torch._foreach_zero_(strip.gaps)
            count = strip.rows.stop - strip.rows.start
            expected, error = (buffer[:count] for buffer in self._buffers)
            work(expected, error, Columns(*columns[:, strip.rows].unbind()))
        found = self._add_groups(columns, plan.places)
        return [Columns(*(column[own] for column in found)) for own in plan.groups]

    def _add_groups(self, columns: Any, places: Any) -> list[list[float]]:
        columns[:_NORMS].square_()
        taken = columns.index_select(1, places).unflatten(1, (len(places) // GROUP, GROUP))
        found = self._torch.cat((taken[:_SUMMED].sum(2), taken[_SUMMED:].amax(2)))
        return found.tolist()  # type: ignore[no-any-return]  # PyTorch is not imported here

    def _places(self, groups: Sequence[range]) -> Any:
        """Return the rows of each group, one group after the other."""
        starts = [start for own in groups for start in own]
        stops = [own.stop for own in groups for _ in own]
        starts_stops = self._torch.tensor([starts, stops], dtype=self._torch.int64).unsqueeze(2)
        rows = starts_stops[0] + self._torch.arange(GROUP)
        end = groups[-1].stop if groups else 0
        return self._torch.where(rows < starts_stops[1], rows, end).flatten().to(self._device)

    def _strips(self, pairs: Sequence[Pair]) -> Iterator[Strip]:
        first = 0
        for cut, rows in _cut(pairs):
            sizes = [size for reference, _ in cut for size in (reference.numel(), -reference.numel() % ROW)]
            expected, error = (buffer.view(-1)[: rows * ROW].split(sizes) for buffer in self._buffers)
            yield Strip(
                rows=slice(first, first + rows),
                references=[reference for reference, _ in cut],
                values=[value for _, value in cut],
                expected=list(expected[::2]),
                error=list(error[::2]),
                gaps=[gap for gap in (*expected[1::2], *error[1::2]) if gap.numel()],
            )
            first += rows


def _num_rows(run: Any) -> int:
    return -(-int(run.numel()) // ROW)


def _cut(pairs: Sequence[Pair]) -> Iterator[tuple[list[Pair], int]]:
    """Yield as many pairs as fill the buffers, cut between rows where need be, with the number of their rows."""
    cut: list[Pair] = []
    rows = 0
    for reference, value in pairs:
        length, start = int(reference.numel()), 0
        while start < length:
            stop = min(length, start + (STRIP_ROWS - rows) * ROW)
            cut.append((reference[start:stop], value[start:stop]))
            rows += -(-(stop - start) // ROW)
            start = stop
            if rows == STRIP_ROWS:
                yield cut, rows
                cut, rows = [], 0
    if cut:
        yield cut, rows
