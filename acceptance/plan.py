"""The protocol's slots, found by name and by place, for one candidate."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from acceptance.convergence_rules import Recipe, slot_name
from acceptance.formats import RUN_SIDES
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
    runs: dict[tuple[str, int, str], Slot]
    """The runs, those of an extension included, by recipe, seed and side."""
    extending: frozenset[str]
    """The slots of the extension's runs, which must have evidence only where it is due."""
    recipes: dict[str, Recipe]

    @property
    def evidenced(self) -> list[Slot]:
        """Return every slot that must have evidence whatever the rest shows, in the order of their names."""
        slots = [*self.measured.values(), *self.cases.values(), *self.runs.values()]
        return sorted((slot for slot in slots if slot.slot not in self.extending), key=lambda slot: slot.slot)

    @property
    def checked(self) -> list[Slot]:
        """Return every slot whose evidence is looked at where it is there, in the order of their names."""
        slots = [*self.measured.values(), *self.cases.values(), *self.runs.values()]
        return sorted(slots, key=lambda slot: slot.slot)

    def runs_of(self, recipe: str, seeds: Sequence[int]) -> list[Slot]:
        """Return the runs of both sides of a recipe with these seeds."""
        return [self.runs[recipe, seed, side] for seed in seeds for side in RUN_SIDES]

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
    rules = protocol.convergence
    runs = {
        (recipe.name, seed, side): slot_for(slot_name(side, recipe.name, seed), candidate)
        for recipe in (rules.recipes if rules else ())
        for seed in (rules.all_seeds if rules else ())
        for side in RUN_SIDES
    }
    first_seeds = rules.seeds if rules else ()
    slots = [dataclasses.replace(slot, slot=slot_for(slot.slot, candidate)) for slot in protocol.slots]
    by_name = {slot.slot: slot for slot in slots}
    return Plan(
        protocol=protocol,
        slots=by_name,
        measured={
            (COMPARISON_OF[slot.kind], slot.workload, slot.repeat, slot.pair): slot
            for slot in slots
            if slot.kind in MEASURED_KINDS
        },
        cases={(COMPARISON_OF[slot.kind], slot.workload): slot for slot in slots if slot.kind in CASE_KINDS},
        workloads={workload.name: workload for workload in protocol.workloads},
        runs={place: by_name[name] for place, name in runs.items()},
        extending=frozenset(name for (_, seed, _), name in runs.items() if seed not in first_seeds),
        recipes={recipe.name: recipe for recipe in (rules.recipes if rules else ())},
    )
