"""What the gates can see at all: their readings for faults that were computed from the baseline alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from acceptance.formats import MUTATIONS
from reports.matched import GATED, Family, Vacuity
from reports.numbers import count, listed, near, plural
from reports.status import Mark
from reports.view import Cell, Table, code, columns, number, text

_WORDS = {
    "no_update": "no update",
    "negated": "negated update",
    "shuffled": "shuffled tensors",
    "previous_batch": "previous batch",
}
_MOST_OPEN = 30
"""A longer table of gates that see nothing is folded: the sentence and the summary name them by quantity."""


def _seen_by(entries: Iterable[Vacuity], mutation: str) -> tuple[int, int]:
    """Return how many gates see a fault, and of how many it was tried on."""
    tried = [entry for entry in entries if mutation in entry.seen or mutation in entry.unseen]
    return sum(mutation in entry.seen for entry in tried), len(tried)


def _without_sight(family: Family) -> list[Vacuity]:
    return [entry for entry in family.observed.vacuity if not entry.discriminating]


def sentence(family: Family) -> str:
    """Return how many gates would have seen nothing."""
    entries = family.observed.vacuity
    if not entries:
        return "There are no readings, so that it is not known which faults the gates would have seen."
    blind = _without_sight(family)
    partly = [entry for entry in entries if entry.discriminating and entry.unseen]
    what = (
        "A gate that passes says something only if it would not have passed a faulty candidate. For each case the "
        "gates' readings were computed for four faults, from the baseline alone: no update, a negated update, shuffled "
        "tensors, and the previous batch used again. They gate nothing. "
    )
    if not blind and not partly:
        return f"{what}All {plural(len(entries), 'gate')} would have seen every fault tried on them."
    return what + _blind_text(entries, blind, partly)


def _blind_text(entries: Sequence[Vacuity], blind: Sequence[Vacuity], partly: Sequence[Vacuity]) -> str:
    by_quantity = Counter(entry.quantity for entry in blind)
    named = listed([f"{quantity} of {plural(number, 'workload')}" for quantity, number in by_quantity.items()])
    first = (
        f"Of {plural(len(entries), 'gate')}, {len(blind)} would have seen none of the faults tried on them and "
        f"{'does' if len(blind) == 1 else 'do'} not discriminate: {named}. A pass of theirs says nothing."
        if blind
        else f"Each of {plural(len(entries), 'gate')} would have seen at least one fault."
    )
    second = (
        f" {len(partly)} more would have missed at least one."
        if blind
        else f" {len(partly)} would have missed at least one."
    )
    return first + (second if partly else "")


def summary_table(family: Family) -> Table:
    """Return by quantity which faults its gates would have seen."""
    entries = family.observed.vacuity
    quantities = [quantity for quantity in GATED if any(entry.quantity == quantity for entry in entries)]
    quantities += sorted({entry.quantity for entry in entries} - set(quantities))
    titles = [_WORDS[mutation].capitalize() for mutation in MUTATIONS]
    return Table(
        name="numerical-vacuity",
        caption="Which fault would have been seen, as gates of all that it was tried on, with the range of readings",
        columns=columns("Quantity", "Gate", *titles, "Sees none", numeric=("Sees none",)),
        rows=tuple(_summary_row(family, quantity) for quantity in quantities),
        empty="There are no readings.",
        file="vacuity.csv",
    )


def _summary_row(family: Family, quantity: str) -> tuple[Cell, ...]:
    entries = [entry for entry in family.observed.vacuity if entry.quantity == quantity]
    blind = sum(not entry.discriminating for entry in entries)
    gates = family.gates_of(quantity)
    return (
        text(quantity),
        text(gates[0].rule if gates else family.threshold(quantity)),
        *(_sight_cell(family, quantity, entries, mutation) for mutation in MUTATIONS),
        Cell(text=count(blind), value=str(blind), mark=Mark.FLAGGED if blind else None),
    )


def _sight_cell(family: Family, quantity: str, entries: Sequence[Vacuity], mutation: str) -> Cell:
    seen, tried = _seen_by(entries, mutation)
    if not tried:
        return Cell(text="not tried")
    mark = Mark.PASS if seen == tried else Mark.FLAGGED
    word = "seen" if seen else "unseen"
    shown = f"{word}: {count(seen)} of {count(tried)}"
    return Cell(text=shown, mark=mark, note=_range(family.threshold(quantity), entries, mutation))


def _range(threshold: str | None, entries: Sequence[Vacuity], mutation: str) -> str:
    found = [entry.readings.get(mutation) for entry in entries if mutation in (*entry.seen, *entry.unseen)]
    finite = [value for value in found if value is not None]
    parts = []
    if finite:
        low, high = near(min(finite), threshold, digits=2), near(max(finite), threshold, digits=2)
        parts.append(f"reads {low}" if low == high else f"reads {low} to {high}")
    if len(finite) < len(found):
        parts.append(f"{len(found) - len(finite)} not finite")
    return ", ".join(parts)


def _reading_cell(entry: Vacuity, mutation: str, threshold: str | None) -> Cell:
    if mutation not in (*entry.seen, *entry.unseen):
        return text("not tried")
    value = entry.readings.get(mutation)
    shown = number("not finite" if value is None else near(value, threshold, digits=3), value)
    return Cell(text=shown.text, value=shown.value, mark=Mark.PASS if mutation in entry.seen else Mark.FLAGGED)


def _readings(name: str, caption: str, entries: Sequence[Vacuity], family: Family, *, long: bool) -> Table:
    titles = [_WORDS[mutation].capitalize() for mutation in MUTATIONS]
    return Table(
        name=name,
        caption=caption,
        columns=columns("Workload", "Quantity", *titles, numeric=titles),
        rows=tuple(
            (
                code(entry.workload),
                text(entry.quantity),
                *(_reading_cell(entry, mutation, family.threshold(entry.quantity)) for mutation in MUTATIONS),
            )
            for entry in entries
        ),
        long=long,
        file="vacuity.csv",
    )


def blind_table(family: Family) -> Table | None:
    """Return the gates that would have seen no fault; None if there are none."""
    entries = _without_sight(family)
    if not entries:
        return None
    caption = "Gates that do not discriminate: they would have seen none of the faults tried on them"
    return _readings("numerical-blind", caption, entries, family, long=len(entries) > _MOST_OPEN)


def partly_blind_table(family: Family) -> Table | None:
    """Return the gates that would have seen some faults only; None if there are none."""
    entries = [entry for entry in family.observed.vacuity if entry.discriminating and entry.unseen]
    if not entries:
        return None
    caption = "Gates that would have missed some of the faults tried on them"
    return _readings("numerical-partly-blind", caption, entries, family, long=True)
