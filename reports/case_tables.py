"""Tables of the numerical family: the worst of each quantity and where, workloads, flags and isolated checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from reports.matched import GATED, MOMENTS, Case, Family, Flag, Quantity, Worst, passes
from reports.numbers import ABSENT, count, listed, near, plural
from reports.status import Mark, severity
from reports.verdict import Gate, Number
from reports.view import Cell, Table, code, columns, number, text

TIMES = "\u00d7"

MOST_FLAGS = 100
"""Flags beyond these are counted and left to the verdict: a broken candidate has one for each case and quantity."""
_MOST_OPEN = 20
"""Longer tables of what does not block are folded."""

_FIRST = ("parameters", "gradients", "updates", "moments", "loss", "optimizer", "consensus")
"""Order of the table of the worst."""
_SHOWN = ("loss", "gradients", "parameters", "updates", "moments", "optimizer", "consensus")
"""Order of the columns of a workload, as the comparison goes through it."""

NOT_FINITE = "not finite"


def value_cell(value: Number, threshold: str | None, *, mark: Mark | None = None, note: str = "") -> Cell:
    """Return a cell with a relative error; nothing is not finite."""
    if value is None:
        return Cell(text=NOT_FINITE, mark=Mark.MISSED, note=note)
    return Cell(text=near(value, threshold), value=str(value), mark=mark, note=note)


# --- the worst of each quantity ---------------------------------------------------------------------------------------


def worst_table(family: Family) -> Table:
    """Return the worst of each quantity, candidate beside control."""
    # What is flagged stands in front: on a narrow screen the rest is scrolled to.
    numeric = ("Candidate / control", "Candidate", "Control")
    seen = [name for name in _FIRST if family.quantity(name) is not None]
    return Table(
        name="numerical-worst",
        caption=(
            "Worst relative L2 of each quantity over all workloads, updates and workers, candidate beside control; "
            "loss, optimizer and consensus as a share of what is allowed"
        ),
        columns=columns("Quantity", *numeric, "Gate", "Workloads", numeric=numeric),
        rows=(
            *(_worst_row(family, name) for name in seen),
            *(_tensor_row(family, name) for name in family.rules["gated_tensors"]),
        ),
        empty="The verdict observes nothing of the matched updates.",
    )


def _worst_row(family: Family, name: str) -> tuple[Cell, ...]:
    seen = family.quantity(name)
    threshold = family.threshold(name)
    gates = family.gates_of(name)
    note = "the worse of exp_avg and exp_avg_sq" if name == "moments" else ""
    gated = seen is not None and seen.gated
    return (
        Cell(text=name, note=note),
        _ratio_cell(seen, factor=_factor(family)),
        _side_cell(seen.candidate if seen else None, threshold),
        _side_cell(seen.control if seen else None, threshold),
        text((gates[0].rule if gates else f"{threshold}") if gated else "not gated"),
        _standing_cell(gates) if gated else text("no say"),
    )


def _tensor_row(family: Family, name: str) -> tuple[Cell, ...]:
    """Return the row of the rule for single tensors, where it gates."""
    gates = family.gates_of(name, per_tensor=True)
    values = [gate.value for gate in gates if gate.value is not None]
    threshold = str(family.rules[f"tensor_{name}"])
    return (
        Cell(text=f"{name}, per tensor", note="the largest error of a single tensor"),
        text(None),
        value_cell(max(values), threshold) if values else text(None),
        text(None),
        text(gates[0].rule if gates else threshold),
        _standing_cell(gates),
    )


def _factor(family: Family) -> str:
    return str(family.rules["control_factor"])


def _side_cell(worst: Worst | None, threshold: str | None) -> Cell:
    return text(None) if worst is None else value_cell(worst.value, threshold)


def _ratio_cell(seen: Quantity | None, *, factor: str) -> Cell:
    if seen is None:
        return text(None)
    if seen.is_exact:  # one sentence says it of all of them: a mark at each would hide the flags that tell something
        return text("control is exact")
    mark = Mark.FLAGGED if seen.flagged else None
    if seen.ratio is None:
        return Cell(text="flagged", mark=mark) if seen.flagged else text(None)
    shown = f"{near(seen.ratio, factor, digits=3)}{TIMES}"
    return Cell(text=f"{shown} flagged" if seen.flagged else shown, value=str(seen.ratio), mark=mark)


def _standing_cell(gates: Sequence[Gate]) -> Cell:
    """Return how many gates pass, and how the others stand."""
    if not gates:
        return Cell(text="no gate", mark=Mark.MISSING)
    kinds = Counter(gate.mark for gate in gates)
    worst = min(kinds, key=severity)
    others = [f"{count(kinds[mark])} {mark.word}" for mark in sorted(kinds, key=severity) if mark is not Mark.PASS]
    return Cell(text=f"{count(kinds[Mark.PASS])} of {count(len(gates))} pass", mark=worst, note=listed(others))


def place_table(family: Family) -> Table:
    """Return where the worst of each quantity was reached."""
    numeric = ("Worst", "Update", "Worker", "Its own error")
    seen = [name for name in (*_FIRST, *MOMENTS) if name != "moments"]
    found = [
        (name, side, worst)
        for name in seen
        if (quantity := family.quantity(name)) is not None
        for side, worst in (("candidate", quantity.candidate), ("control", quantity.control))
        if worst is not None and worst.value != 0
    ]
    return Table(
        name="numerical-places",
        caption=(
            "Where the worst was reached, if anything differs, and the tensor with the largest error relative to "
            "itself there (of an isolated check: its step or round, and the tensor with the largest error)"
        ),
        columns=columns(
            "Quantity",
            "Comparison",
            "Worst",
            "Workload",
            "Update",
            "Worker",
            "Tensor",
            "Its own error",
            numeric=numeric,
        ),
        rows=tuple(
            (
                text(name),
                text(side),
                value_cell(worst.value, family.threshold(name)),
                code(worst.workload),
                number(count(worst.update), worst.update),
                number(count(worst.worker), worst.worker),
                code(worst.tensor),
                number(near(worst.tensor_value, family.rules.get(f"tensor_{name}")), worst.tensor_value),
            )
            for name, side, worst in found
        ),
        empty="Nothing was observed to differ.",
    )


# --- workloads --------------------------------------------------------------------------------------------------------

_CASE_TITLES = ("Workload", *(name.capitalize() for name in _SHOWN), "Workers", "Executor")
_CASE_NUMBERS = _CASE_TITLES[1:-1]


def _executor_cell(case: Case | None) -> Cell:
    if case is None:
        return text(None)
    weaker = case.executor == "shared" or case.serialized
    note = "serialised" if case.serialized else ""
    return Cell(text=case.executor, mark=Mark.FLAGGED if weaker else None, note=note)


def _case_cell(family: Family, case: Case | None, workload: str, quantity: str, *, gated: bool) -> Cell:
    gate = family.gate(workload, quantity) if gated else None
    tensors = family.tensor_gates(workload, quantity) if gated else {}
    failing = [one.mark for one in (gate, *tensors.values()) if one is not None and one.mark is not Mark.PASS]
    mark = min(failing, key=severity, default=None)
    values = case.values(quantity) if case is not None else ()
    finite = [value for value in values if value is not None]
    if mark is Mark.NOT_EVALUATED or not values or (not finite and mark is not None):
        return Cell(text=mark.word, mark=mark) if mark is not None else text(None)
    # The worst that is known, and whether there is worse: one value that is not finite is worse than any.
    value = max(finite) if len(finite) == len(values) else None
    return value_cell(value, family.threshold(quantity), mark=mark, note=_tensors_note(quantity, tensors))


def _tensors_note(quantity: str, tensors: Mapping[str, Gate]) -> str:
    """Return which gates of single tensors are missed: the number of the whole does not show it."""
    return listed(
        [
            f"one tensor{'' if name == quantity else f' of {name}'}: "
            + (NOT_FINITE if gate.value is None else near(gate.value, gate.threshold))
            for name, gate in tensors.items()
            if gate.mark is Mark.MISSED
        ]
    )


def _workers_cell(family: Family, workload: str) -> Cell:
    """Return the number of workers; a single one is marked where others of the category have several."""
    own = family.workers.get(workload)
    if own is None:
        return text(None)
    category = next(numbers for numbers in family.by_category.values() if workload in numbers)
    mark = Mark.FLAGGED if own == 1 and max(category.values()) > 1 else None
    return Cell(text=count(own), value=str(own), mark=mark)


def _case_row(family: Family, workload: str, case: Case | None, *, gated: bool) -> tuple[Cell, ...]:
    return (
        code(workload),
        *(_case_cell(family, case, workload, quantity, gated=gated) for quantity in _SHOWN),
        _workers_cell(family, workload),
        _executor_cell(case),
    )


def _case_rows(family: Family, comparison: str, workloads: Sequence[str]) -> tuple[tuple[Cell, ...], ...]:
    cases = {case.workload: case for case in family.cases(comparison)}
    return tuple(_case_row(family, name, cases.get(name), gated=comparison == "candidate") for name in workloads)


def _cases(name: str, caption: str, rows: tuple[tuple[Cell, ...], ...], *, empty: str, long: bool) -> Table:
    return Table(
        name=name,
        caption=caption,
        columns=columns(*_CASE_TITLES, numeric=_CASE_NUMBERS),
        rows=rows,
        empty=empty,
        long=long,
        file="numerical-cases.csv",
    )


def failed_table(family: Family) -> Table | None:
    """Return the workloads that do not pass; None if there are none."""
    failed = [name for name in family.workloads if not passes(family.gates_about(name))]
    if not failed:
        return None
    rows = _case_rows(family, "candidate", failed)
    caption = "Workloads that do not pass: the worst over updates and workers of each quantity"
    return _cases("numerical-failed", caption, rows, empty="", long=False)


def case_table(family: Family) -> Table:
    """Return the workloads that pass."""
    passing = [name for name in family.workloads if passes(family.gates_about(name))]
    rows = _case_rows(family, "candidate", passing)
    caption = "Workloads that pass: the worst over updates and workers of each quantity"
    return _cases("numerical-passed", caption, rows, empty="No workload passes.", long=len(rows) > _MOST_OPEN)


def control_table(family: Family) -> Table:
    """Return the same of the controls."""
    names = [case.workload for case in family.cases("control")]
    rows = _case_rows(family, "control", names)
    caption = "Controls, the baseline against itself: the worst over updates and workers of each quantity"
    return _cases("numerical-controls", caption, rows, empty="No control counts.", long=True)


# --- flags ------------------------------------------------------------------------------------------------------------

_FLAG_NUMBERS = ("Value", "Limit", "Update", "Worker")
_FLAG_TITLES = (*_FLAG_NUMBERS, "Tensor", "Rows above")
_ROWS_ABOVE = "the largest first, each with the number of rows above the limit (a row is an update of a worker)"


def _excess(flag: Flag) -> tuple[int, float]:
    """Return how far above its limit it is: not finite is furthest, then what is above a limit of zero."""
    if flag.value is None:
        return 2, 0.0
    return (0, float(flag.value) / float(flag.limit)) if flag.limit else (1, float(flag.value))


def _flag_cells(family: Family, flag: Flag) -> tuple[Cell, ...]:
    """Return value and limit; beside its limit a value has the gate of its quantity, if it is one of all tensors."""
    gate = family.threshold(flag.quantity) if flag.kind == "control_factor" else None
    value = Cell(text=NOT_FINITE) if flag.value is None else number(near(flag.value, flag.limit, gate), flag.value)
    return (value, number(near(flag.limit) if flag.kind == "control_factor" else str(flag.limit), flag.limit))


def _place_cells(flag: Flag) -> tuple[Cell, ...]:
    """Return update, worker, tensor and number of rows; a flag on a whole case has no update."""
    update = number(count(flag.update), flag.update) if flag.update else text(None)
    worker = number(count(flag.worker), flag.worker) if flag.update else text(None)
    rows = text(None) if flag.rows is None else number(count(flag.rows), flag.rows)
    return (update, worker, code(flag.tensor), rows)


def factor_table(family: Family) -> Table:
    """Return what is flagged against a workload's own control; where that is exact, a sentence says it of all."""
    all_flags = [flag for flag in family.observed.flags if flag.kind == "control_factor"]
    flags = sorted((flag for flag in all_flags if not flag.is_exact), key=_excess, reverse=True)
    factor = family.rules["control_factor"]
    caption = f"Quantities of workloads that are above {factor} times their own control's worst, {_ROWS_ABOVE}"
    left_out = len(all_flags) - len(flags)
    but = f", but for {count(left_out)} whose control is exact" if left_out else ""
    return Table(
        name="numerical-factors",
        caption=caption + _cut(len(flags)),
        columns=columns("Workload", "Quantity", *_FLAG_TITLES, numeric=(*_FLAG_NUMBERS, _FLAG_TITLES[-1])),
        rows=tuple(
            (code(flag.workload), text(flag.quantity), *_flag_cells(family, flag), *_place_cells(flag))
            for flag in flags[:MOST_FLAGS]
        ),
        empty=f"No quantity of a workload is above {factor} times its own control's worst{but}.",
        long=len(flags) > _MOST_OPEN,
        file="verdict.json",
    )


def _cut(number_of_rows: int) -> str:
    more = number_of_rows - MOST_FLAGS
    return f"; {count(more)} more are in verdict.json" if more > 0 else ""


def tensor_sentence(family: Family) -> str:
    """Return what the rule for single tensors is, and whether it gates."""
    rules = family.rules
    gated = list(rules["gated_tensors"])
    limits = listed([f"{name} {rules[f'tensor_{name}']}" for name in ("gradients", "parameters", "updates", *MOMENTS)])
    return (
        "A whole that agrees can hide one tensor that does not. A tensor's error is therefore also measured against "
        f"its own norm, or against {rules['tensor_floor']} of the norm that a tensor of its size has on average, "
        f"where that is larger. Above these limits it is flagged: {limits}. "
        + (f"The rule gates {listed(gated)} in this protocol." if gated else "The rule gates nothing in this protocol.")
    )


def tensor_table(family: Family) -> Table:
    """Return the flagged tensors: the worst of each workload and quantity."""
    flags = sorted((flag for flag in family.observed.flags if flag.kind == "tensor"), key=_excess, reverse=True)
    flags.sort(key=lambda flag: flag.comparison)
    return Table(
        name="numerical-tensors",
        caption=f"Flagged tensors: the worst of each case and quantity, {_ROWS_ABOVE}" + _cut(len(flags)),
        columns=columns(
            "Workload", "Comparison", "Quantity", *_FLAG_TITLES, numeric=(*_FLAG_NUMBERS, _FLAG_TITLES[-1])
        ),
        rows=tuple(
            (
                code(flag.workload),
                text(flag.comparison),
                text(flag.quantity),
                *_flag_cells(family, flag),
                *_place_cells(flag),
            )
            for flag in flags[:MOST_FLAGS]
        ),
        empty="No tensor is flagged.",
        long=len(flags) > _MOST_OPEN,
        file="verdict.json",
    )


# --- isolated checks --------------------------------------------------------------------------------------------------

_NAMES = {"optimizer": "Optimizer, supplied gradients", "consensus": "Consensus, mixing alone"}
_ISOLATED_NUMBERS = ("Worst error / allowance", "Control")


def isolated_table(family: Family) -> Table:
    """Return how the isolated checks stand."""
    return Table(
        name="numerical-isolated",
        caption="Isolated checks",
        columns=columns("Check", "Workloads", *_ISOLATED_NUMBERS, "Where", numeric=_ISOLATED_NUMBERS),
        rows=tuple(_isolated_row(family, quantity) for quantity in GATED if quantity in _NAMES),
    )


def _isolated_row(family: Family, quantity: str) -> tuple[Cell, ...]:
    gates, seen = family.gates_of(quantity), family.quantity(quantity)
    candidate = seen.candidate if seen else None
    return (
        text(_NAMES[quantity]),
        _isolated_standing(gates),
        _side_cell(candidate, "1"),
        _side_cell(seen.control if seen else None, "1"),
        Cell(text=ABSENT)
        if candidate is None
        else Cell(text=candidate.workload, code=True, note=_tensor_note(candidate)),
    )


def _tensor_note(worst: Worst) -> str:
    return f"{worst.tensor}, worker {worst.worker}" if worst.tensor else f"worker {worst.worker}"


def _isolated_standing(gates: Sequence[Gate]) -> Cell:
    if not gates:
        return Cell(text="no workload has it")
    if all(gate.mark is Mark.NOT_EVALUATED for gate in gates):
        reasons = "; ".join(sorted({gate.reason for gate in gates}))
        return Cell(text=f"not evaluated: {plural(len(gates), 'workload')}", mark=Mark.NOT_EVALUATED, note=reasons)
    return _standing_cell(gates)
