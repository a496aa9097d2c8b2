"""Results on stdout, everything else on stderr; ``--json`` puts exactly one JSON value on stdout."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class Output:
    """Where a command puts what it has to say."""

    as_json: bool

    def result(self, text: str, value: Any) -> None:
        """Print the command's result: `text` for a person, or `value` as JSON."""
        click.echo(json.dumps(value, sort_keys=True, allow_nan=False) if self.as_json else text)

    def note(self, text: str) -> None:
        """Say something that is not the result, on stderr."""
        click.echo(text, err=True)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a plain-text table with left-aligned columns.

    Args:
        header: Column titles.
        rows: One sequence of cells per row, as many as titles.
    """
    cells = [list(header), *[list(row) for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join(lines)
