"""Which gates need which slots, and so can no longer be passed once one of these can no longer be completed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from campaign.documents import Protocol, Slot
from campaign.planning.calibration import CASE_KINDS
from campaign.watching.state import OUT_OF_REACH, SlotStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A gate that can no longer be passed, since a slot that it needs can no longer be completed."""

    gate: str
    slot: str


def _is_of_recipe(protocol: Protocol, slot: Slot) -> bool:
    """Return whether a slot is a run, or the pilot of such: workloads and recipes share no name."""
    recipes = protocol.convergence.recipes if protocol.convergence is not None else ()
    return slot.kind in ("pilot", "run") and slot.workload in [recipe.name for recipe in recipes]


def _convergence_gates(protocol: Protocol, slot: Slot) -> Iterator[str]:
    """Yield the gate that needs a run, or what a recipe's pilot stands for."""
    if _is_of_recipe(protocol, slot):
        yield f"convergence/{slot.workload}"


def _throughput_gates(protocol: Protocol, slot: Slot) -> Iterator[str]:
    """Yield the ratio gates that need a slot; a pilot stands for what needs it."""
    if slot.kind not in ("pilot", "pair") or _is_of_recipe(protocol, slot):
        return
    workload = protocol.workload(slot.workload)
    repeats = range(1, protocol.throughput.repeats + 1)
    for repeat in [slot.repeat] if slot.kind == "pair" else repeats:
        if workload.category:
            yield f"throughput/{workload.category}/repeat-{repeat}"
        if workload.production:
            yield f"throughput/production/{workload.name}/repeat-{repeat}"


def _numerical_gates(protocol: Protocol, slot: Slot) -> Iterator[str]:
    """Yield the gates of the numerical family that need a slot, but for checks that an adapter may not offer."""
    if protocol.numerical is None or slot.kind not in ("pilot", *CASE_KINDS) or _is_of_recipe(protocol, slot):
        return
    for quantity in ("loss", "gradients", "parameters", "updates"):
        yield f"numerical/{slot.workload}/{quantity}"
    for quantity in protocol.numerical.gated_tensors:
        yield f"numerical/{slot.workload}/{quantity}/tensors"


def gates_out_of_reach(protocol: Protocol, slots: Mapping[str, SlotStatus]) -> tuple[Gate, ...]:
    """Return the gates that need a slot which can no longer be completed; a pilot stands for what needs it."""
    gates: dict[str, str] = {}
    for name, status in slots.items():
        if status.state in OUT_OF_REACH:
            for gates_of in (_throughput_gates, _numerical_gates, _convergence_gates):
                for gate in gates_of(protocol, status.slot):
                    gates.setdefault(gate, name)
    return tuple(Gate(gate=gate, slot=slot) for gate, slot in gates.items())
