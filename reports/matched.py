"""What the verdict says of the matched updates: gates by workload and quantity, and what was observed beside them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from acceptance.formats import QUANTITIES
from reports.status import Mark
from reports.verdict import Gate, Number

PLOTTED = ("loss", "gradients", "parameters", "updates")
"""Quantities with a gate over the matched updates."""
GATED = (*PLOTTED, "optimizer", "consensus")
MOMENTS = ("exp_avg", "exp_avg_sq")

_PLACE = re.compile(rf"numerical/(?P<workload>.+)/(?P<quantity>{'|'.join(QUANTITIES)})(?P<tensors>/tensors)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a numerical gate is about."""

    workload: str
    quantity: str
    per_tensor: bool

    @property
    def label(self) -> str:
        """Return the quantity in words."""
        return f"{self.quantity}, per tensor" if self.per_tensor else self.quantity


def place_of(gate: Gate) -> Place | None:
    """Return what a gate is about; None if it is no gate of a workload's matched updates."""
    found = _PLACE.fullmatch(gate.id) if gate.family == "numerical" else None
    if found is None:
        return None
    return Place(workload=found["workload"], quantity=found["quantity"], per_tensor=bool(found["tensors"]))


# --- observations -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Worst:
    """Where a quantity was furthest off."""

    value: Number
    """None: not finite."""
    workload: str
    update: int
    worker: int
    tensor: str
    """The tensor with the largest error of its own; empty where there is none."""
    tensor_value: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """The worst of one quantity over all cases."""

    quantity: str
    gated: bool
    threshold: Number
    candidate: Worst | None
    control: Worst | None
    ratio: Number
    flagged: bool

    @property
    def is_exact(self) -> bool:
        """Return whether it is flagged only because its control does not differ at all."""
        control, candidate = self.control, self.candidate
        return (
            self.flagged
            and control is not None
            and control.value == 0
            and candidate is not None
            and candidate.value is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case that counts."""

    workload: str
    comparison: str
    attempt: int
    executor: str
    serialized: bool
    workers: int
    curves: Mapping[str, tuple[Number, ...]]
    """Quantity to the worst over the workers, by update; None where a value is not finite."""

    def values(self, quantity: str) -> tuple[Number, ...]:
        """Return a quantity's values over the updates; `moments` has those of both."""
        names = MOMENTS if quantity == "moments" else (quantity,)
        return tuple(value for name in names for value in self.curves.get(name, ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """Something above a limit that decides nothing."""

    kind: str
    workload: str
    comparison: str
    quantity: str
    update: int
    worker: int
    tensor: str
    value: Number
    """None: not finite."""
    limit: Number
    rows: int | None
    """How many updates and workers are above the limit; None in verdicts that do not count them."""

    @property
    def is_exact(self) -> bool:
        """Return whether it says no more than that a candidate differs where its control does not."""
        return self.kind == "control_factor" and self.limit == 0 and self.value is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuity:
    """What one gate would have read for faults that are made in one update each."""

    workload: str
    quantity: str
    readings: Mapping[str, Number]
    """Fault to reading; None: not finite."""
    seen: tuple[str, ...]
    unseen: tuple[str, ...]
    discriminating: bool

    @property
    def tried(self) -> tuple[str, ...]:
        """Return the faults that there is a reading of."""
        return (*self.seen, *self.unseen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """All that the verdict observes of the matched updates."""

    quantities: tuple[Quantity, ...] = ()
    cases: tuple[Case, ...] = ()
    flags: tuple[Flag, ...] = ()
    vacuity: tuple[Vacuity, ...] = ()


def _fields(kind: type[Any], value: Mapping[str, Any], *, without: Sequence[str] = ()) -> dict[str, Any]:
    return {name: value[name] for name in kind.__dataclass_fields__ if name not in without}


def _worst(value: Mapping[str, Any] | None) -> Worst | None:
    return None if value is None else Worst(**_fields(Worst, value))


def _quantity(value: Mapping[str, Any]) -> Quantity:
    plain = _fields(Quantity, value, without=("candidate", "control"))
    return Quantity(**plain, candidate=_worst(value["candidate"]), control=_worst(value["control"]))


def _case(value: Mapping[str, Any]) -> Case:
    curves = {quantity: tuple(values) for quantity, values in value["curves"].items()}
    return Case(**_fields(Case, value, without=("curves",)), curves=curves)


def _flag(value: Mapping[str, Any]) -> Flag:
    return Flag(**_fields(Flag, value, without=("rows",)), rows=value.get("rows"))


def _vacuity(value: Mapping[str, Any]) -> Vacuity:
    plain = _fields(Vacuity, value, without=("seen", "unseen"))
    return Vacuity(**plain, seen=tuple(value["seen"]), unseen=tuple(value["unseen"]))


def parse_observed(verdict: Mapping[str, Any]) -> Observed:
    """Return what the verdict observes of the matched updates; nothing where it could not be computed."""
    found = verdict.get("observations", {}).get("numerical")
    if found is None:
        return Observed()
    return Observed(
        quantities=tuple(map(_quantity, found["quantities"])),
        cases=tuple(map(_case, found["cases"])),
        flags=tuple(map(_flag, found["flags"])),
        vacuity=tuple(map(_vacuity, found["vacuity"])),
    )


# --- the family -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What the report's numerical pages are derived from."""

    protocol: Mapping[str, Any]
    gates: tuple[Gate, ...]
    """All gates of the verdict."""
    observed: Observed
    costs: tuple[Mapping[str, Any], ...] = ()
    """``cases`` of provenance.json."""
    by_place: Mapping[Place, Gate] = field(init=False)

    def __post_init__(self) -> None:
        """Look the gates up once."""
        found = {place: gate for gate in self.gates if (place := place_of(gate)) is not None}
        object.__setattr__(self, "by_place", found)

    @property
    def rules(self) -> Mapping[str, Any]:
        """Return the family's frozen numbers."""
        rules: Mapping[str, Any] = self.protocol["numerical"]
        return rules

    @property
    def workloads(self) -> list[str]:
        """Return the names of all workloads that have cases, in the protocol's order."""
        return [workload["name"] for workload in self.protocol["workloads"] if workload.get("numerical", True)]

    @property
    def left_out(self) -> list[str]:
        """Return the names of those of several processes that have none, since the protocol leaves them out."""
        return [workload["name"] for workload in self.protocol["workloads"] if not workload.get("numerical", True)]

    def threshold(self, quantity: str) -> str | None:
        """Return what a quantity is compared with; None if it has no gate. A loss is measured by its allowance."""
        if quantity in ("loss", "optimizer", "consensus"):
            return "1"
        found = self.rules.get(f"{quantity}_threshold")
        return None if found is None else str(found)

    def gate(self, workload: str, quantity: str) -> Gate | None:
        """Return the gate of one quantity of one workload."""
        return self.by_place.get(Place(workload=workload, quantity=quantity, per_tensor=False))

    def gates_of(self, quantity: str, *, per_tensor: bool = False) -> list[Gate]:
        """Return the gates of one quantity, in the verdict's order."""
        wanted = (quantity, per_tensor)
        return [gate for place, gate in self.by_place.items() if (place.quantity, place.per_tensor) == wanted]

    def tensor_gates(self, workload: str, quantity: str) -> dict[str, Gate]:
        """Return the gates of single tensors by quantity; `moments` has those of both."""
        names = MOMENTS if quantity == "moments" else (quantity,)
        places = {name: Place(workload=workload, quantity=name, per_tensor=True) for name in names}
        return {name: self.by_place[place] for name, place in places.items() if place in self.by_place}

    def gates_about(self, workload: str) -> list[Gate]:
        """Return the gates of one workload."""
        return [gate for place, gate in self.by_place.items() if place.workload == workload]

    def cases(self, comparison: str) -> list[Case]:
        """Return the cases of one comparison in the protocol's order."""
        order = {name: index for index, name in enumerate(self.workloads)}
        chosen = [case for case in self.observed.cases if case.comparison == comparison]
        return sorted(chosen, key=lambda case: (order.get(case.workload, len(order)), case.workload))

    @property
    def workers(self) -> dict[str, int]:
        """Return how many workers the cases of each workload have, in the protocol's order."""
        found = {case.workload: case.workers for side in ("control", "candidate") for case in self.cases(side)}
        return {name: found[name] for name in self.workloads if name in found}

    @property
    def by_category(self) -> dict[str, dict[str, int]]:
        """Return the same by category; that of workloads without one is empty."""
        category = {workload["name"]: workload["category"] for workload in self.protocol["workloads"]}
        grouped: dict[str, dict[str, int]] = {}
        for name, number in self.workers.items():
            grouped.setdefault(category[name], {})[name] = number
        return grouped

    def quantity(self, name: str) -> Quantity | None:
        """Return what was observed of a quantity."""
        return next((seen for seen in self.observed.quantities if seen.quantity == name), None)


def passes(gates: Iterable[Gate]) -> bool:
    """Return whether there is a gate that counts, and all that count pass."""
    counted = [gate for gate in gates if gate.counts]
    return bool(counted) and all(gate.mark is Mark.PASS for gate in counted)
