"""Measurements whose sides ran differently, although they were given the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.numbers import count
from reports.view import Table, code, columns, number, text


def condition_table(provenance: Mapping[str, Any]) -> Table | None:
    """Return what was not alike, by measurement; None where nothing was, or for provenance that does not tell."""
    found = provenance.get("conditions") or ()
    if not found:
        return None
    return Table(
        name="conditions",
        caption="Measurements whose sides, given the same, did not run alike; gates nothing",
        columns=columns("Slot", "Attempt", "What differs", numeric=("Attempt",)),
        rows=tuple(
            (code(one["slot"]), number(count(one["attempt"]), one["attempt"]), text("; ".join(one["what"])))
            for one in found
        ),
        empty="",
    )
