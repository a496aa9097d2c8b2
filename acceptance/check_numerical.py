"""Checks of numerical.csv."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from acceptance import arithmetic
from acceptance.check_rows import RELATIVE
from acceptance.formats import COMPARISONS, GLOBAL_QUANTITIES, ISOLATED_QUANTITIES, NUMERICAL
from acceptance.gates import Finding, Problem
from acceptance.numerical_rules import NumericalRules
from acceptance.plan import Plan
from acceptance.protocol import Slot
from acceptance.rows import AttemptRow, NumericalRow
from acceptance.selection import Selection

MATCHED = ("loss", *GLOBAL_QUANTITIES)
"""The quantities that every matched update has."""

_SLACK = Decimal("0.999999")
"""What rounding may take from a bound."""

_Place = tuple[int, int, str]
"""Update, worker, quantity."""

_Say = Callable[[Finding, str, Iterable[str]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The rows of a case's counted attempt."""

    slot: Slot
    comparison: str
    attempt: int
    workers: int
    rows: dict[str, tuple[NumericalRow, ...]]
    """Rows by quantity, in the order of update and worker."""


Cases = dict[str, Case]
"""Cases by slot."""


def check(
    plan: Plan,
    *,
    selections: Mapping[str, Selection],
    attempts: Sequence[AttemptRow],
    rows: Sequence[NumericalRow],
) -> tuple[Cases, list[Problem]]:
    """Check the rows of every case, and that no other row is there.

    Args:
        plan: What is expected.
        selections: The attempt that counts, by slot.
        attempts: All rows of attempts.csv.
        rows: All rows of numerical.csv.

    Returns:
        The cases whose rows are complete, by slot, and the problems.
    """
    problems: list[Problem] = []

    def say(finding: Finding, reason: str, slots: Iterable[str] = ()) -> None:
        problems.append(Problem(file=NUMERICAL.file, finding=finding, reason=reason, slots=tuple(slots)))

    rules = plan.protocol.numerical
    by_attempt = _group(plan, attempts, rows, say)
    cases: Cases = {}
    if rules is None:
        return cases, problems
    for (name, attempt), group in by_attempt.items():
        for row in group:
            for reason in _row_faults(rules, row):
                say(Finding.INVALID, f"{name} attempt {attempt}: {describe(row)}: {reason}", [name])
    for comparison, slot in [(name, slot) for name in COMPARISONS for slot in plan.cases_of(name)]:
        chosen = selections[slot.slot].attempt
        if chosen is None:
            say(Finding.MISSING, f"{slot.slot}: no attempt counts, so there is no comparison", [slot.slot])
            continue
        own = by_attempt.get((slot.slot, chosen.attempt), [])
        found = _faults(rules, own)
        for finding, reason in found:
            say(finding, f"{slot.slot} attempt {chosen.attempt}: {reason}", [slot.slot])
        if not found:
            cases[slot.slot] = _case(slot, comparison, chosen.attempt, own)
    _check_controls(plan, cases, say)
    return cases, problems


def describe(row: NumericalRow) -> str:
    """Name a row within its attempt."""
    return _name((row.update, row.worker, row.quantity))


def _name(place: _Place) -> str:
    update, worker, quantity = place
    return f"{quantity} of update {update}, worker {worker}"


def _group(
    plan: Plan, attempts: Sequence[AttemptRow], rows: Sequence[NumericalRow], say: _Say
) -> dict[tuple[str, int], list[NumericalRow]]:
    """Group the rows by attempt and report those that belong to none."""
    sealed = {(row.slot, row.attempt): row.sealed for row in attempts}
    groups: dict[tuple[str, int], list[NumericalRow]] = defaultdict(list)
    for row in rows:
        slot = plan.cases.get((row.comparison, row.workload))
        name = f"{row.workload} {row.comparison} attempt {row.attempt}: {describe(row)}"
        if slot is None:
            say(Finding.INVALID, f"{name}: no such case in the protocol", ())
        elif not sealed.get((slot.slot, row.attempt), False):
            say(Finding.INVALID, f"{name}: the attempt is not in attempts.csv, or not sealed", [slot.slot])
        else:
            groups[slot.slot, row.attempt].append(row)
    return groups


# --- one row by itself ------------------------------------------------------------------------------------------------


def _row_faults(rules: NumericalRules, row: NumericalRow) -> list[str]:
    """Return what is wrong with one row, whichever attempt it belongs to."""
    faults: list[str] = []
    if row.executor != rules.executor_of(row.workload, row.comparison):
        faults.append(f"the executor is {row.executor}, and the protocol says otherwise")
    if row.serialized != rules.is_serialized(row.workload):
        faults.append(
            f"the sides {'took' if row.serialized else 'did not take'} turns, and the protocol says otherwise"
        )
    if row.quantity == "loss":
        return faults + _loss_faults(rules, row)
    numbers = (row.reference, row.value, row.rel_l2, row.worst_rel_l2)
    if any(number is not None and not (number >= 0) for number in numbers):
        faults.append("a number is negative")
    if row.quantity in ISOLATED_QUANTITIES:
        return faults + _isolated_faults(rules, row)
    return faults + _tensor_faults(rules, row)


def _update_faults(row: NumericalRow, most: int) -> list[str]:
    return [f"the protocol has {most} of them"] if row.update > most else []


def _loss_faults(rules: NumericalRules, row: NumericalRow) -> list[str]:
    faults = _update_faults(row, rules.updates)
    if row.rel_l2 is not None or row.worst_tensor or row.worst_rel_l2 is not None:
        faults.append("a loss has neither rel_l2 nor a tensor")
    if row.nonfinite != (row.reference is None) + (row.value is None):
        faults.append("nonfinite is not the number of losses that are absent")
    return faults


def _isolated_faults(rules: NumericalRules, row: NumericalRow) -> list[str]:
    faults = _update_faults(row, rules.isolated_steps)
    if row.quantity == "optimizer" and row.update < rules.isolated_steps:
        faults.append(f"the optimizer is compared after {rules.isolated_steps} steps")
    if row.reference is not None or row.rel_l2 is not None or row.worst_rel_l2 is not None:
        faults.append("an isolated check has a value alone")
    if row.value is not None and row.nonfinite:
        faults.append("a value although some numbers were not finite")
    if row.value is not None and not row.worst_tensor:
        faults.append("a value without the tensor that has it")
    if row.value is None and not row.nonfinite and row.worst_tensor:
        faults.append("a tensor although the check was not offered")
    return faults


def _tensor_faults(rules: NumericalRules, row: NumericalRow) -> list[str]:
    faults = _update_faults(row, rules.updates)
    if not row.worst_tensor:
        faults.append("no tensor is named")
    if row.nonfinite:
        if (row.value, row.rel_l2, row.worst_rel_l2) != (None, None, None):
            faults.append("a difference although some numbers were not finite")
        return faults
    if row.reference is None or row.value is None:
        return [*faults, "a norm is absent although all numbers were finite"]
    return faults + _ratio_faults(rules, row, row.reference, row.value)


def _ratio_faults(rules: NumericalRules, row: NumericalRow, reference: Decimal, value: Decimal) -> list[str]:
    """Check rel_l2 = value / reference, and that the worst tensor is not better than all of them together.

    With error_i <= w max(|ref_i|, kappa |ref| sqrt(n_i / N)) for every tensor, the sum of squares gives
    value^2 <= w^2 |ref|^2 (1 + kappa^2).
    """
    if reference == 0 and value > 0:
        present = row.rel_l2 is not None or row.worst_rel_l2 is not None
        return ["a ratio to a reference of zero"] if present else []
    if row.rel_l2 is None or row.worst_rel_l2 is None:
        return ["a ratio is absent although both norms are there"]
    expected = Decimal(0) if value == 0 else arithmetic.divide(value, reference)
    if arithmetic.differs(row.rel_l2, expected, RELATIVE):
        return ["rel_l2 is not value / reference"]
    allowed = arithmetic.multiply(row.worst_rel_l2, arithmetic.hypotenuse(Decimal(1), rules.tensor_floor))
    if not (arithmetic.multiply(row.rel_l2, _SLACK) <= allowed):
        return ["worst_rel_l2 is smaller than rel_l2 leaves room for"]
    return []


# --- the counted attempt as a whole -----------------------------------------------------------------------------------


def _faults(rules: NumericalRules, rows: Sequence[NumericalRow]) -> list[tuple[Finding, str]]:
    """Return which rows of the counted attempt are missing or too many."""
    if not rows:
        return [(Finding.MISSING, "no rows")]
    places = Counter((row.update, row.worker, row.quantity) for row in rows)
    workers = len({worker for _, worker, _ in places})
    if {worker for _, worker, _ in places} != set(range(workers)):
        return [(Finding.INVALID, "the workers are not numbered 0, 1, ... without a gap")]
    expected = _expected(rules, workers)
    faults = [(Finding.MISSING, f"no row for the {_name(place)}") for place in sorted(expected - set(places))]
    faults += [(Finding.INVALID, f"{_name(place)}: not asked for") for place in sorted(set(places) - expected)]
    faults += [(Finding.INVALID, f"{_name(place)}: {n} rows") for place, n in sorted(places.items()) if n > 1]
    for quantity in ISOLATED_QUANTITIES:
        states = {(row.value is None, row.nonfinite > 0) for row in rows if row.quantity == quantity}
        if (True, False) in states and len(states) > 1:
            faults.append((Finding.INVALID, f"{quantity}: offered and not offered"))
    return faults


def _expected(rules: NumericalRules, workers: int) -> set[_Place]:
    updates, rounds = range(1, rules.updates + 1), range(1, rules.isolated_steps + 1)
    return {
        *((update, worker, quantity) for update in updates for worker in range(workers) for quantity in MATCHED),
        *((rules.isolated_steps, worker, "optimizer") for worker in range(workers)),
        *((number, worker, "consensus") for number in rounds for worker in range(workers) if workers > 1),
    }


def _case(slot: Slot, comparison: str, attempt: int, rows: Sequence[NumericalRow]) -> Case:
    by_quantity: dict[str, list[NumericalRow]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row.update, row.worker)):
        by_quantity[row.quantity].append(row)
    return Case(
        slot=slot,
        comparison=comparison,
        attempt=attempt,
        workers=1 + max(row.worker for row in rows),
        rows={quantity: tuple(found) for quantity, found in by_quantity.items()},
    )


def _check_controls(plan: Plan, cases: Cases, say: _Say) -> None:
    """Compare each case with its control: neither can lose a worker, or the control a check, in silence."""
    for slot in plan.cases_of("candidate"):
        planned = plan.cases.get(("control", slot.workload))
        case, control = cases.get(slot.slot), cases.get(planned.slot) if planned else None
        if case is None or control is None:
            continue
        both = (case.slot.slot, control.slot.slot)
        if case.workers != control.workers:
            reason = f"{slot.workload}: {case.workers} workers in the case and {control.workers} in its control"
            say(Finding.INVALID, reason, both)
            continue
        for quantity in ISOLATED_QUANTITIES:
            if _offers(case, quantity) and not _offers(control, quantity):
                reason = f"{slot.workload}: the baseline offers {quantity} in the case and not in its control"
                say(Finding.INVALID, reason, both)


def _offers(case: Case, quantity: str) -> bool:
    return any(row.value is not None or row.nonfinite for row in case.rows.get(quantity, ()))
