"""What the gates can see: their readings for faults that were computed from the baseline alone, one update at a time.

A reading is of one update in which the fault is made. A fault that persists is not realigned and can read far more, so
that an unseen one says nothing of it. Only the gates of the loss and of all tensors together have readings.
"""

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
_FEWEST_TRIED = 2
"""With fewer faults than these, a gate that saw none is not called one that does not discriminate."""

_WHAT = (
    "A gate that passes says something only if it would not have passed a faulty candidate. From the baseline alone it "
    "was computed what the gates read at an update in which one fault is made: no update, a negated update, shuffled "
    "tensors, or the previous batch used again. That is all that a reading is. Nothing is realigned, so that a fault "
    "which persists accumulates from update to update and shows in what follows: a gate can see it although it does "
    "not see one update of it. Readings gate nothing."
)


def _seen_by(entries: Iterable[Vacuity], mutation: str) -> tuple[int, int]:
    """Return how many gates see a fault, and of how many it was tried on."""
    tried = [entry for entry in entries if mutation in entry.tried]
    return sum(mutation in entry.seen for entry in tried), len(tried)


def without_sight(family: Family) -> list[Vacuity]:
    """Return the gates that were tried with several faults and would have seen none."""
    return [entry for entry in family.observed.vacuity if not entry.seen and len(entry.tried) >= _FEWEST_TRIED]


def _hardly_tried(family: Family) -> list[Vacuity]:
    """Return the gates that were tried with a single fault, and would not have seen it."""
    return [entry for entry in family.observed.vacuity if not entry.seen and len(entry.tried) == 1]


def _missing_one(family: Family) -> list[Vacuity]:
    return [entry for entry in family.observed.vacuity if entry.seen and entry.unseen]


def _without_readings(family: Family) -> dict[str, int]:
    """Return how many gates have no readings at all, by what they are about."""
    known = {(entry.workload, entry.quantity) for entry in family.observed.vacuity if entry.tried}
    places = [place for place in family.by_place if place.per_tensor or (place.workload, place.quantity) not in known]
    return dict(Counter(place.label for place in places))


def _by_quantity(entries: Iterable[Vacuity]) -> str:
    numbers = Counter(entry.quantity for entry in entries)
    return listed([f"{quantity} of {plural(number, 'workload')}" for quantity, number in numbers.items()])


def sentence(family: Family) -> str:
    """Return how many gates would have seen nothing."""
    entries = family.observed.vacuity
    if not any(entry.tried for entry in entries):
        return "There are no readings, so that it is not known which faults the gates would have seen."
    return " ".join(filter(None, [_WHAT, _tried_text(family), _sight_text(family)]))


def _tried_text(family: Family) -> str:
    """Return with how many faults each gate was tried, and which were not tried at all."""
    numbers = {entry.quantity: len(entry.tried) for entry in family.observed.vacuity if entry.tried}
    tried = [f"{quantity} with {number}" for quantity, number in numbers.items()]
    said = f"Of {len(MUTATIONS)} faults, a gate was tried with those that touch its quantity: {listed(tried)}."
    without = [f"{label} ({plural(number, 'gate')})" for label, number in _without_readings(family).items()]
    return f"{said} Without any reading: {listed(without)}." if without else said


def _sight_text(family: Family) -> str:
    entries = [entry for entry in family.observed.vacuity if entry.tried]
    partly = _missing_one(family)
    parts = [blind_sentence(family), _hardly_tried_text(family)]
    if not any(parts) and not partly:
        return f"All {plural(len(entries), 'gate')} with readings would have seen every fault tried on them."
    if partly:
        parts.append(
            f"Of {plural(len(entries), 'gate')} with readings, {len(partly)} would have seen some of the faults tried "
            "on them and not the others."
        )
    return " ".join(filter(None, parts))


def blind_sentence(family: Family) -> str:
    """Return which gates would have seen none of several faults; empty if there are none."""
    blind = without_sight(family)
    if not blind:
        return ""
    tried = sum(bool(entry.tried) for entry in family.observed.vacuity)
    does = "does" if len(blind) == 1 else "do"
    return (
        f"Of {plural(tried, 'gate')} with readings, {len(blind)} would have seen none of the faults tried on "
        f"{'it' if len(blind) == 1 else 'them'}, each made in one update, and {does} not discriminate between them "
        f"and a correct candidate: {_by_quantity(blind)}."
    )


def _hardly_tried_text(family: Family) -> str:
    entries = _hardly_tried(family)
    if not entries:
        return ""
    were = "was" if len(entries) == 1 else "were"
    return (
        f"{plural(len(entries), 'gate')} {were} tried with a single fault and would not have seen it, which is too "
        f"little to call {'it' if len(entries) == 1 else 'them'} blind: {_by_quantity(entries)}."
    )


def summary_table(family: Family) -> Table:
    """Return by quantity which faults its gates would have seen."""
    entries = family.observed.vacuity
    quantities = [quantity for quantity in GATED if any(entry.quantity == quantity for entry in entries)]
    quantities += sorted({entry.quantity for entry in entries} - set(quantities))
    untried = [name for name in _without_readings(family) if name not in quantities]
    titles = [_WORDS[mutation].capitalize() for mutation in MUTATIONS]
    return Table(
        name="numerical-vacuity",
        caption=(
            "Which fault, made in one update, would have been seen at that update: as gates of all that it was tried "
            "on, with the range of readings"
        ),
        columns=columns("Quantity", "Gate", "Faults tried", *titles, "Sees none", numeric=("Sees none",)),
        rows=(
            *(_summary_row(family, quantity) for quantity in quantities),
            *(_untried_row(family, label) for label in untried if entries),
        ),
        empty="There are no readings.",
        file="vacuity.csv",
    )


def _summary_row(family: Family, quantity: str) -> tuple[Cell, ...]:
    entries = [entry for entry in family.observed.vacuity if entry.quantity == quantity]
    blind = sum(not entry.seen for entry in entries)
    tried = max(len(entry.tried) for entry in entries)
    gates = family.gates_of(quantity)
    return (
        text(quantity),
        text(gates[0].rule if gates else family.threshold(quantity)),
        text(_of_all(tried)),
        *(_sight_cell(family, quantity, entries, mutation) for mutation in MUTATIONS),
        Cell(text=count(blind), value=str(blind), mark=Mark.FLAGGED if blind and tried >= _FEWEST_TRIED else None),
    )


def _untried_row(family: Family, label: str) -> tuple[Cell, ...]:
    """Return the row of gates that no fault was tried on."""
    gates = [gate for place, gate in family.by_place.items() if place.label == label]
    return (text(label), text(gates[0].rule), text(_of_all(0)), *(text("not tried") for _ in MUTATIONS), text(None))


def _of_all(tried: int) -> str:
    return f"{tried} of {len(MUTATIONS)}"


def _sight_cell(family: Family, quantity: str, entries: Sequence[Vacuity], mutation: str) -> Cell:
    seen, tried = _seen_by(entries, mutation)
    if not tried:
        return Cell(text="not tried")
    mark = Mark.PASS if seen == tried else Mark.FLAGGED
    word = "seen" if seen else "unseen"
    shown = f"{word}: {count(seen)} of {count(tried)}"
    return Cell(text=shown, mark=mark, note=_range(family.threshold(quantity), entries, mutation))


def _range(threshold: str | None, entries: Sequence[Vacuity], mutation: str) -> str:
    found = [entry.readings.get(mutation) for entry in entries if mutation in entry.tried]
    finite = [value for value in found if value is not None]
    parts = []
    if finite:
        low, high = near(min(finite), threshold, digits=2), near(max(finite), threshold, digits=2)
        parts.append(f"reads {low}" if low == high else f"reads {low} to {high}")
    if len(finite) < len(found):
        parts.append(f"{len(found) - len(finite)} not finite")
    return ", ".join(parts)


def _reading_cell(entry: Vacuity, mutation: str, threshold: str | None) -> Cell:
    if mutation not in entry.tried:
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
    """Return the gates that would have seen none of several faults; None if there are none."""
    entries = without_sight(family)
    if not entries:
        return None
    caption = "Gates that do not discriminate: they would have seen none of the faults tried on them, one update each"
    return _readings("numerical-blind", caption, entries, family, long=len(entries) > _MOST_OPEN)


def partly_blind_table(family: Family) -> Table | None:
    """Return the other gates that would not have seen a fault; None if there are none."""
    entries = [*_hardly_tried(family), *_missing_one(family)]
    if not entries:
        return None
    caption = "Gates that would have missed some of the faults tried on them, or the only one, one update each"
    return _readings("numerical-partly-blind", caption, entries, family, long=True)
