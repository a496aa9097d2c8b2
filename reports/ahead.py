"""What of a report needs no verdict, made while the acceptance program is at work on the same evidence.

It is remembered for the very same bytes, or the very same rows, and taken once: a report comes out as without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from acceptance.formats import TABLES, Row

T = TypeVar("T")


class ByRows(Generic[T]):
    """Results of a function of rows that were asked for ahead."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._known: dict[int, tuple[Sequence[Row], T]] = {}

    def put(self, rows: Sequence[Row], result: T) -> None:
        """Remember the result for these very rows."""
        self._known[id(rows)] = (rows, result)

    def take(self, rows: Sequence[Row], make: Callable[[], T]) -> T:
        """Return what is remembered of these very rows, and forget it, else make it."""
        found = self._known.pop(id(rows), None)
        return found[1] if found is not None and found[0] is rows else make()


def prepare(evidence: Path) -> None:
    """Read and sort the evidence, and make of it what needs nothing else.

    Args:
        evidence: The folder of the evidence tables. What is wrong with it is for the report itself to say.
    """
    from reports import downloads, measures, source, svg, templating  # noqa: PLC0415 - they know this module

    for table in TABLES.values():
        rows = source.foresee(table, evidence / table.file)
        if rows is None:
            continue
        downloads.foresee(table, rows)
        if table.file == "windows.csv":
            measures.foresee(rows)
        if table.file == "pairs.csv":
            measures.foresee_costs(rows)
    svg.load()
    templating.load()
