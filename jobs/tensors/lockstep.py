"""Tensors of two sides compared in lock-step: how a pass is cut into bounded pieces, and the pass itself.

While the comparer works on one half of the staging memory, both sides fill the other one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ..processes.steps import Begun, Step
from .catalog import Tensor

T = TypeVar("T")
MOST_PIECES = 512
"""Of one chunk, so that a command is shorter than a pipe."""
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive elements of one tensor, and where they stand in a half."""

    index: int
    start: int
    count: int
    offset: int
    """In bytes."""
    dtype: str
    num_bytes: int

    def fill(self) -> list[int]:
        """Return it as a side is asked for it."""
        return [self.index, self.start, self.count, self.offset]

    def compare(self) -> list[str | int]:
        """Return it as the comparer is asked about it."""
        return [self.dtype, self.count, self.offset]


Chunk = tuple[Piece, ...]


def plan_chunks(tensors: Sequence[Tensor], half_bytes: int) -> Iterator[Chunk]:
    """Cut tensors into chunks that each fit into a half, in order; a tensor without elements has no piece.

    Args:
        tensors: What is offered.
        half_bytes: Size of a half.
    """
    chunk: list[Piece] = []
    offset = 0
    for index, tensor in enumerate(tensors):
        start = 0
        while start < tensor.numel:
            room = (half_bytes - offset) // tensor.item_bytes
            if room <= 0 or len(chunk) == MOST_PIECES:
                yield tuple(chunk)
                chunk, offset = [], 0
                continue
            count = min(room, tensor.numel - start)
            num_bytes = count * tensor.item_bytes
            chunk.append(Piece(index, start, count, offset, tensor.dtype, num_bytes))
            start += count
            offset = -(-(offset + num_bytes) // _ALIGNMENT) * _ALIGNMENT
    if chunk:
        yield tuple(chunk)


class Source(Protocol):
    """What fills one side's halves with the pieces of the pass that is open."""

    def fill(self, half: int, pieces: Chunk) -> Step[None]:
        """Fill a half; it is complete when the step has ended."""


Judge = Callable[[int, Chunk], Step[list[T]]]
"""Finds something of each piece in a half of both sides."""
Spool = Callable[[int, Chunk], None]
"""Takes the pieces away from a half that has been filled."""


def run_pass(
    chunks: Sequence[Chunk], sources: Sequence[Source], judge: Judge[T] | None, spool: Spool | None
) -> dict[int, list[T]]:
    """Go through a pass.

    Args:
        chunks: What to go through.
        sources: Fill the halves, side by side.
        judge: Compares what was filled; None where it is only recorded.
        spool: Records what was filled; None where it is only compared.

    Returns:
        What was found, by the index of the tensor and in the order of its pieces; one without elements has nothing.
    """
    found: dict[int, list[T]] = {}
    judged: Begun[list[T]] | None = None
    filled = _fill(sources, 0, chunks)
    for number, chunk in enumerate(chunks):
        for one in filled:
            one.finish()
        if judged is not None:
            _take(found, chunks[number - 1], judged.finish())
        # The other half is free now.
        judged = None if judge is None else Begun(judge(number % 2, chunk))
        filled = _fill(sources, number + 1, chunks)
        if spool is not None:
            spool(number % 2, chunk)
    if judged is not None:
        _take(found, chunks[-1], judged.finish())
    return found


def _fill(sources: Sequence[Source], number: int, chunks: Sequence[Chunk]) -> list[Begun[None]]:
    if number >= len(chunks):
        return []
    return [Begun(source.fill(number % 2, chunks[number])) for source in sources]


def _take(found: dict[int, list[T]], chunk: Chunk, values: Sequence[T]) -> None:
    for piece, value in zip(chunk, values, strict=True):
        found.setdefault(piece.index, []).append(value)
