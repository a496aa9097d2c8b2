"""What was attempted and what came of it: nothing that went wrong is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from acceptance.formats import Ending
from reports.numbers import count, decimal_of, plural, significant
from reports.status import Mark
from reports.view import Cell, Table, code, columns, number, text

_MEASURED = "Measured until then"
_TITLES = ("Slot", "Attempt", "Ending", "Reason", "Allocation", "Node", "Device", "Sealed")


def _ending(ending: str, ended: str | None = None) -> Cell:
    if ending == Ending.VOID:
        return Cell(text="void", note=f"had ended {ended.replace('_', ' ')}" if ended else "")
    mark = None if ending == Ending.COMPLETED else Mark.MISSED
    return Cell(text=ending.replace("_", " "), mark=mark)


def _row(attempt: Mapping[str, Any]) -> tuple[Cell, ...]:
    return (
        code(attempt["slot"]),
        number(count(attempt["attempt"]), attempt["attempt"]),
        _ending(attempt["ending"], attempt.get("ended")),
        text(attempt["reason"]),
        code(attempt["allocation"]),
        code(attempt["node"]),
        code(attempt["device"]),
        text("yes" if attempt["sealed"] else "no"),
    )


def _table(name: str, caption: str, attempts: Sequence[Mapping[str, Any]], *, empty: str, long: bool) -> Table:
    return Table(
        name=name,
        caption=caption,
        columns=columns(*_TITLES, numeric=("Attempt",)),
        rows=tuple(_row(attempt) for attempt in attempts),
        empty=empty,
        long=long,
        file="attempts.csv",
    )


def _sorted(provenance: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return sorted(provenance["attempts"], key=lambda attempt: (attempt["slot"], attempt["attempt"]))


def attempt_table(provenance: Mapping[str, Any]) -> Table:
    """Return every attempt, whatever its ending."""
    return _table("attempts", "Every attempt", _sorted(provenance), empty="Nothing was attempted.", long=True)


def failed_table(provenance: Mapping[str, Any]) -> Table:
    """Return the attempts that do not count: those that did not complete, and any after one that did."""
    first: dict[str, int] = {}
    for attempt in _sorted(provenance):
        if attempt["ending"] == Ending.COMPLETED:
            first.setdefault(attempt["slot"], attempt["attempt"])
    apart = [attempt for attempt in _sorted(provenance) if first.get(attempt["slot"]) != attempt["attempt"]]
    caption = "Attempts that do not count: failed, tried again, or void"
    table = _table(
        "failed", caption, apart, empty="There is none: every attempt completed, and no slot has two.", long=False
    )
    if not any(attempt.get("measured") for attempt in apart):
        return table
    # What was seen before an attempt ended may be why it was ended: whoever reads the others shall see it as well.
    rows = tuple((*row, text(_measured(attempt))) for row, attempt in zip(table.rows, apart, strict=True))
    return replace(table, columns=(*table.columns, *columns(_MEASURED)), rows=rows)


def _measured(attempt: Mapping[str, Any]) -> str:
    """Return what an attempt had measured when it ended: windows and rate of each side, and the ratio of both."""
    if Ending.COMPLETED in (attempt["ending"], attempt.get("ended")):
        return "all of it: see its rows"
    sides = [(one, _rate(one)) for one in attempt.get("measured", ())]
    parts = [
        f"{one['side']} {plural(one['windows'], 'window')}, {significant(rate, digits=6)} tokens/s"
        for one, rate in sides
    ]
    rates = [rate for _, rate in sorted(sides, key=lambda pair: str(pair[0]["side"]) != "baseline")]
    if len(rates) == 2 and rates[0] and rates[1]:
        parts.append(f"ratio {significant(rates[1] / rates[0], digits=5)}")
    return "; ".join(parts) or "nothing"


def _rate(side: Mapping[str, Any]) -> Decimal | None:
    """Return the tokens in a second of what was measured of one side; None where it took no time."""
    seconds = decimal_of(side["seconds"])
    return decimal_of(side["tokens"]) / seconds if seconds > 0 else None


_SEGMENT_TITLES = ("Run", "Attempt", "Segment", "From update", "To update", *_TITLES[2:])


def segment_table(provenance: Mapping[str, Any]) -> Table | None:
    """Return every segment of every attempt at a run; None where no run was attempted."""
    attempts = [attempt for attempt in _sorted(provenance) if attempt.get("segments")]
    if not attempts:
        return None
    return Table(
        name="segments",
        caption="Every segment of every run",
        columns=columns(*_SEGMENT_TITLES, numeric=_SEGMENT_TITLES[1:5]),
        rows=tuple(_segment_row(attempt, segment) for attempt in attempts for segment in attempt["segments"]),
        long=True,
        file="provenance.json",
    )


def _segment_row(attempt: Mapping[str, Any], segment: Mapping[str, Any]) -> tuple[Cell, ...]:
    slot, numbered, *rest = _row({**segment, "slot": attempt["slot"], "attempt": attempt["attempt"]})
    update = segment["update"]
    return (
        slot,
        numbered,
        number(count(segment["segment"]), segment["segment"]),
        number(count(segment["resumed_update"]), segment["resumed_update"]),
        text("not known") if update is None else number(count(update), update),
        *rest,
    )


def missing_table(provenance: Mapping[str, Any]) -> Table:
    """Return the slots of the frozen matrix without an attempt that ended."""
    return Table(
        name="missing",
        caption="Slots of the frozen matrix that were never attempted to an end",
        columns=columns("Slot"),
        rows=tuple((code(_name(slot)),) for slot in sorted(provenance["missing_slots"], key=_name)),
        empty="Every slot of the frozen matrix was attempted.",
    )


def _name(slot: Any) -> str:
    return str(slot["slot"]) if isinstance(slot, Mapping) else str(slot)
