"""The protocol's slots, found by name and by place, for one candidate."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from acceptance.identity import slot_for
from acceptance.protocol import CASE_KINDS, MEASURED_KINDS, Protocol, Slot, Workload

COMPARISON_OF = {
    "pair": "candidate",
    "control_pair": "control",
    "solo": "solo",
    "case": "candidate",
    "control_case": "control",
}
"""What a kind of slot is called in the column ``comparison``."""

Place = tuple[str, str, int, int]
"""Comparison, workload, repeat, pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What evidence is expected."""

    protocol: Protocol
    slots: dict[str, Slot]
    """Every slot by its name, the candidate's id in place."""
    measured: dict[Place, Slot]
    """The slots whose measurements are checked, by place."""
    cases: dict[tuple[str, str], Slot]
    """The numerical cases, by comparison and workload."""
    workloads: dict[str, Workload]

    @property
    def evidenced(self) -> list[Slot]:
        """Return every slot that must have evidence, in the order of their names."""
        return sorted([*self.measured.values(), *self.cases.values()], key=lambda slot: slot.slot)

    def cases_of(self, comparison: str) -> list[Slot]:
        """Return the numerical cases of one comparison, in the order of their names."""
        found = (slot for (name, _), slot in self.cases.items() if name == comparison)
        return sorted(found, key=lambda slot: slot.slot)

    def of_comparison(self, comparison: str) -> list[Slot]:
        """Return the measured slots of one comparison, in the order of their names."""
        found = (slot for place, slot in self.measured.items() if place[0] == comparison)
        return sorted(found, key=lambda slot: slot.slot)


def build(protocol: Protocol, candidate: str) -> Plan:
    """Put the candidate's id into the protocol's slots.

    Args:
        protocol: The frozen rules.
        candidate: The candidate's id.
    """
    slots = [dataclasses.replace(slot, slot=slot_for(slot.slot, candidate)) for slot in protocol.slots]
    return Plan(
        protocol=protocol,
        slots={slot.slot: slot for slot in slots},
        measured={
            (COMPARISON_OF[slot.kind], slot.workload, slot.repeat, slot.pair): slot
            for slot in slots
            if slot.kind in MEASURED_KINDS
        },
        cases={(COMPARISON_OF[slot.kind], slot.workload): slot for slot in slots if slot.kind in CASE_KINDS},
        workloads={workload.name: workload for workload in protocol.workloads},
    )
