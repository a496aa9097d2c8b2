"""vacuity.csv: what the gates would have read for a faulty candidate. No gate reads it, and its rows are checked.

A reading is of a fault that is made in one update and seen at that update. A candidate that repeats it in every update
drifts away, since nothing is realigned: its gates may see later what a single update does not show.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from acceptance import arithmetic
from acceptance.check_numerical import Case, Cases
from acceptance.formats import GLOBAL_QUANTITIES, MUTATIONS, VACUITY
from acceptance.gates import Finding, PointRule, Problem
from acceptance.numerical_rules import NumericalRules
from acceptance.plan import Plan
from acceptance.readings import loss_error
from acceptance.rows import AttemptRow, VacuityRow

STALE_UPDATE = 2
"""The update in which the previous batch is used once more."""

_Key = tuple[str, int, int, str]
"""Mutation, update, worker, quantity."""

Vacuities = dict[str, tuple[VacuityRow, ...]]
"""The rows of each control's counted attempt, by slot."""


def quantities_of(mutation: str) -> tuple[str, ...]:
    """Return the quantities that a mutation has rows of."""
    return {
        "no_update": ("parameters", "updates"),
        "negated": ("parameters", "updates"),
        "shuffled": GLOBAL_QUANTITIES,
        "previous_batch": ("loss", *GLOBAL_QUANTITIES),
    }[mutation]


def updates_of(mutation: str, updates: int) -> tuple[int, ...]:
    """Return the updates that a mutation has rows of; a case of a single update has no previous batch."""
    every = tuple(range(1, updates + 1))
    return tuple(number for number in every if number == STALE_UPDATE) if mutation == "previous_batch" else every


def check(
    plan: Plan, *, attempts: Sequence[AttemptRow], cases: Cases, rows: Sequence[VacuityRow]
) -> tuple[Vacuities, list[Problem]]:
    """Check the rows of every control case, and that no other row is there.

    A disagreement turns this file's own gate and no other one: no gate reads these numbers.

    Args:
        plan: What is expected.
        attempts: All rows of attempts.csv.
        cases: The cases whose rows of numerical.csv are complete.
        rows: All rows of vacuity.csv.

    Returns:
        The rows of the controls that have all of theirs, and the problems.
    """
    problems: list[Problem] = []

    def say(finding: Finding, reason: str) -> None:
        problems.append(Problem(file=VACUITY.file, finding=finding, reason=reason))

    sealed = {(row.slot, row.attempt): row.sealed for row in attempts}
    groups: dict[tuple[str, int], list[VacuityRow]] = defaultdict(list)
    for row in rows:
        slot = plan.cases.get(("control", row.workload))
        name = f"{row.workload} attempt {row.attempt}: {_name(_key(row))}"
        if slot is None:
            say(Finding.INVALID, f"{name}: no such control in the protocol")
        elif not sealed.get((slot.slot, row.attempt), False):
            say(Finding.INVALID, f"{name}: the attempt is not in attempts.csv, or not sealed")
        elif row.rel_l2 is not None and not (row.rel_l2 >= 0):
            say(Finding.INVALID, f"{name}: the number is negative")
        else:
            groups[slot.slot, row.attempt].append(row)
    complete: Vacuities = {}
    for slot in plan.cases_of("control"):
        case = cases.get(slot.slot)
        if case is None:
            say(Finding.MISSING, f"{slot.slot}: no comparison counts, so no readings do")
            continue
        own = groups.get((slot.slot, case.attempt), [])
        faults = _faults(plan, case, own)
        for finding, reason in faults:
            say(finding, f"{slot.slot} attempt {case.attempt}: {reason}")
        if not faults:
            complete[slot.slot] = tuple(own)
    return complete, problems


def _key(row: VacuityRow) -> _Key:
    return row.mutation, row.update, row.worker, row.quantity


def _name(key: _Key) -> str:
    mutation, update, worker, quantity = key
    return f"{mutation}, {quantity} of update {update}, worker {worker}"


def _faults(plan: Plan, case: Case, rows: Sequence[VacuityRow]) -> list[tuple[Finding, str]]:
    """Return which rows of one control are missing or too many."""
    rules = plan.protocol.numerical
    if rules is None or not rows:
        return [(Finding.MISSING, "no rows")]
    expected = {
        (mutation, update, worker, quantity)
        for mutation in MUTATIONS
        for update in updates_of(mutation, rules.updates)
        for worker in range(case.workers)
        for quantity in quantities_of(mutation)
    }
    found = Counter(_key(row) for row in rows)
    faults = [(Finding.MISSING, f"no row for {_name(key)}") for key in sorted(expected - set(found))]
    faults += [(Finding.INVALID, f"{_name(key)}: not asked for") for key in sorted(set(found) - expected)]
    faults += [(Finding.INVALID, f"{_name(key)}: {n} rows") for key, n in sorted(found.items()) if n > 1]
    return faults


# --- what the gates would have read -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What one gate would have read for every mutation that its quantity has rows of.

    Only the gates of the loss and of all tensors together have readings, and not of every mutation.
    """

    quantity: str
    readings: dict[str, float | None]
    """The reading by mutation; None where it is not finite, or where the quantity has no rows of the mutation."""
    seen: tuple[str, ...]
    """The mutations that the gate would have stopped; whatever is not finite is among them."""
    unseen: tuple[str, ...]
    """The mutations for which the gate would have passed."""

    @property
    def discriminating(self) -> bool:
        """Return whether there is a mutation that the gate would have stopped; of few tried, that says little."""
        return bool(self.seen)


def sight(rules: NumericalRules, rule: PointRule, quantity: str, case: Case, rows: Sequence[VacuityRow]) -> Sight:
    """Return what a gate would have read: as the gate does, the worst over updates and workers.

    Args:
        rules: The rules of the family.
        rule: The gate's rule.
        quantity: What the gate is about.
        case: The control whose attempt the rows belong to.
        rows: The control's rows.
    """
    losses = {(row.update, row.worker): row.reference for row in case.rows["loss"]}
    readings: dict[str, float | None] = dict.fromkeys(MUTATIONS)
    stopped: dict[str, bool] = {}
    for mutation in MUTATIONS:
        own = [row for row in rows if (row.mutation, row.quantity) == (mutation, quantity)]
        values = [_reading(rules, losses.get((row.update, row.worker)), row) for row in own]
        finite = [value for value in values if value is not None and value <= arithmetic.LARGEST]
        if values:
            stopped[mutation] = len(finite) < len(values) or not all(rule.holds(value) for value in finite)
        if finite and len(finite) == len(values):
            readings[mutation] = arithmetic.to_double(max(finite))
    return Sight(
        quantity=quantity,
        readings=readings,
        seen=tuple(mutation for mutation, seen in stopped.items() if seen),
        unseen=tuple(mutation for mutation, seen in stopped.items() if not seen),
    )


def _reading(rules: NumericalRules, loss: Decimal | None, row: VacuityRow) -> Decimal | None:
    """Return a row's number in the gate's own units.

    A loss has |c - b| / |b|; its gate reads |c - b| / (atol + rtol |b|), with b the control's loss of the same update
    and worker.
    """
    if row.quantity != "loss" or row.rel_l2 is None:
        return row.rel_l2
    if loss is None:
        return None
    error = arithmetic.multiply(row.rel_l2, loss.copy_abs())
    return loss_error(rules, loss, arithmetic.add([loss, error]))
