"""The minutes of each allocation, and of the machines that they are divided among. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from campaign.config.slices import is_named
from campaign.documents import Slot
from campaign.planning.assumed import Machine
from campaign.planning.calibration import CASE_KINDS, about_seconds
from campaign.planning.walltime import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRow:
    """The slots of one kind and repeat that a machine runs."""

    machine: str
    """Empty where no machine names them."""
    side: str
    kind: str
    repeat: int
    """0 for what has no repeats."""
    num_slots: int
    minutes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRow:
    """One machine."""

    name: str
    num_slots: int
    minutes: float
    """Of its slots, and of what each allocation takes beside them."""
    most_minutes: float

    @property
    def fits(self) -> bool:
        """Whether it is done in its time."""
        return self.minutes <= self.most_minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How long everything takes."""

    source: str
    rows: tuple[BudgetRow, ...]
    machines: tuple[MachineRow, ...]
    num_elsewhere: int
    """Slots that no machine names; 0 where there are no machines."""


def make_budget(source: str, slots: Sequence[Slot], case: Case, machines: Sequence[Machine]) -> Budget | None:
    """Return how long everything takes; None while that is not known of some slot.

    Args:
        source: Where the figures are from, in words.
        slots: All slots.
        case: The rules and what is known.
        machines: What they are divided among, if anything.
    """
    seconds = {slot.slot: _slot_seconds(case, slot) for slot in slots}
    if any(value is None for value in seconds.values()):
        return None
    known = {name: value for name, value in seconds.items() if value is not None}
    rows = tuple(_rows(slots, known, machines))
    return Budget(
        source=source,
        rows=rows,
        machines=tuple(_machine_row(machine, rows) for machine in machines),
        num_elsewhere=sum(row.num_slots for row in rows if not row.machine) if machines else 0,
    )


def _slot_seconds(case: Case, slot: Slot) -> float | None:
    """Return how long a slot takes, the start of its sides included; None while that is not known."""
    about_s = about_seconds(case.throughput, case.numerical, slot, case.known, trained=case.trained)
    if about_s is None:
        return None
    if slot.kind in CASE_KINDS and (slot.kind, slot.workload) in case.known.case_s:
        return about_s  # a case's own seconds are those of all of it
    starts = 2 if slot.kind == "pilot" and slot.workload in case.twice else 1
    return about_s + starts * case.known.besides(slot)


def _rows(slots: Sequence[Slot], seconds: dict[str, float], machines: Sequence[Machine]) -> Iterator[BudgetRow]:
    groups: dict[tuple[str, str, str, int], list[Slot]] = {}
    for slot in slots:
        groups.setdefault((machine_of(slot, machines), slot.side, slot.kind, slot.repeat), []).append(slot)
    order = {machine.name: number for number, machine in enumerate(machines)}
    for key in sorted(groups, key=lambda key: order.get(key[0], len(order))):
        machine, side, kind, repeat = key
        members = groups[key]
        yield BudgetRow(
            machine=machine,
            side=side,
            kind=kind,
            repeat=repeat,
            num_slots=len(members),
            minutes=sum(seconds[slot.slot] for slot in members) / 60,
        )


def machine_of(slot: Slot, machines: Sequence[Machine]) -> str:
    """Return the name of the first machine that names a slot; empty if none does."""
    return next((one.name for one in machines if is_named(slot.slot, one.slots)), "")


def _machine_row(machine: Machine, rows: Sequence[BudgetRow]) -> MachineRow:
    own = [row for row in rows if row.machine == machine.name]
    # Runs have an allocation each, everything else that is of one side, kind and repeat one together.
    allocations = sum(row.num_slots if row.kind == "run" else 1 for row in own)
    return MachineRow(
        name=machine.name,
        num_slots=sum(row.num_slots for row in own),
        minutes=sum(row.minutes for row in own) + allocations * machine.allocation_s / 60,
        most_minutes=machine.minutes,
    )
