"""The evidence checks: parsed rows against the protocol and against each other.

Each check returns problems. A problem belongs to one file, whose gate `evidence/<file>` it turns; and to the slots
whose evidence cannot be used any more, whose gates are then not computed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from acceptance import check_extension, check_numerical, check_paths, check_rows, check_runs, check_windows, vacuity
from acceptance.check_numerical import Cases
from acceptance.check_runs import Runs
from acceptance.formats import (
    ATTEMPTS,
    BASELINE,
    CONVERGENCE,
    CURVES,
    NUMERICAL,
    PAIRS,
    TABLES,
    VACUITY,
    WINDOWS,
)
from acceptance.gates import Finding, Gate, Problem, evidence_gate, join_reasons, worst
from acceptance.identity import FILE as IDENTITY
from acceptance.identity import Identity
from acceptance.plan import Plan
from acceptance.protocol import RUN_KIND
from acceptance.rows import AttemptRow, Evidence, Measurement
from acceptance.selection import NOTHING, Selection, select
from acceptance.vacuity import Vacuities

Counted = dict[str, tuple[Measurement, ...]]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The evidence after all checks."""

    gates: tuple[Gate, ...]
    problems: dict[str, tuple[Problem, ...]]
    """The problems that make a slot unusable, by slot."""
    counted: Counted
    """The measurements of each slot's counted attempt, in the order of their positions."""
    cases: Cases
    """The numerical cases whose rows are complete, by slot."""
    vacuities: Vacuities
    """The complete readings for faulty candidates, by the control's slot."""
    runs: Runs
    """The trainings with one row, by slot."""
    extended: frozenset[str]
    """The recipes whose first look is inconclusive, so that the protocol's extension is due."""
    snapshots_differ: bool
    """Whether baseline and candidate are different snapshots."""

    def blocking(self, slots: Iterable[str]) -> list[Problem]:
        """Return the problems that make any of these slots unusable."""
        return [problem for slot in slots for problem in self.problems.get(slot, ())]


def check(plan: Plan, identity: Identity, evidence: Evidence) -> Checked:
    """Run every evidence check.

    Args:
        plan: What is expected.
        identity: The parsed identity.json.
        evidence: The parsed rows.
    """
    guard = _Guard(slots=tuple(slot.slot for slot in plan.checked))
    guard.problems.extend([*_check_identity(identity), *_check_absent(plan, evidence)])
    selections = guard.run(
        ATTEMPTS.file, lambda: check_attempts(plan, evidence.attempts), dict.fromkeys(guard.slots, NOTHING)
    )
    counted = _check_measurements(plan, evidence, selections, guard)
    cases, vacuities = _check_cases(plan, evidence, selections, guard)
    runs = _check_runs(plan, evidence, selections, guard)
    no_gates: list[Gate] = []
    gates = guard.run(ATTEMPTS.file, lambda: check_paths.check(plan, selections), no_gates)
    snapshots_differ = identity.baseline_sha256 != identity.candidate_sha256
    extend = partial(
        check_extension.check,
        plan,
        selections=selections,
        attempts=evidence.attempts or (),
        runs=runs,
        blocked=guard.blocked,
        snapshots_differ=snapshots_differ,
    )
    nothing_due: frozenset[str] = frozenset()
    extended = guard.run(CONVERGENCE.file, extend, nothing_due)
    ordered = sorted(guard.problems, key=lambda item: (item.file, item.finding, item.reason))
    by_slot: dict[str, list[Problem]] = defaultdict(list)
    for problem in ordered:
        for slot in problem.slots:
            by_slot[slot].append(problem)
    return Checked(
        gates=(*_file_gates(plan, evidence, ordered), *gates),
        problems={slot: tuple(found) for slot, found in by_slot.items()},
        counted=counted,
        cases=cases,
        vacuities=vacuities,
        runs=runs,
        extended=extended,
        snapshots_differ=snapshots_differ,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Guard:
    """Collects problems. Whatever goes wrong inside a check becomes one that makes every slot unusable."""

    slots: tuple[str, ...]
    problems: list[Problem] = field(default_factory=list)

    @property
    def blocked(self) -> frozenset[str]:
        """Return the slots that some problem has made unusable so far."""
        return frozenset(slot for problem in self.problems for slot in problem.slots)

    def run(self, file: str, compute: Callable[[], tuple[_T, list[Problem]]], otherwise: _T) -> _T:
        """Return what a check found out, or `otherwise` if it failed."""
        try:
            result, found = compute()
        except Exception as error:  # noqa: BLE001 - an unforeseen exception must block, whatever it is
            reason = f"the check failed: {type(error).__name__}: {error}"
            found = [Problem(file=file, finding=Finding.INVALID, reason=reason, slots=self.slots)]
            result = otherwise
        self.problems.extend(found)
        return result


def _check_measurements(plan: Plan, evidence: Evidence, selections: dict[str, Selection], guard: _Guard) -> Counted:
    attempts, windows = evidence.attempts or (), evidence.windows
    rows = partial(check_rows.check, plan, selections=selections, attempts=attempts)
    counted: Counted = {}
    empty: Counted = {}
    if evidence.pairs is not None:
        pairs = partial(rows, PAIRS, comparisons=("candidate", "control"), rows=evidence.pairs)
        counted |= guard.run(PAIRS.file, pairs, empty)
    if evidence.baseline is not None:
        solos = partial(rows, BASELINE, comparisons=("solo",), rows=evidence.baseline)
        counted |= guard.run(BASELINE.file, solos, empty)
    if windows is not None:
        guard.run(WINDOWS.file, lambda: (None, check_windows.check(plan, attempts, counted, windows)), None)
    return counted


def _check_cases(
    plan: Plan, evidence: Evidence, selections: dict[str, Selection], guard: _Guard
) -> tuple[Cases, Vacuities]:
    attempts, rows, readings = evidence.attempts or (), evidence.numerical, evidence.vacuity
    cases: Cases = {}
    vacuities: Vacuities = {}
    if rows is not None:
        compute = partial(check_numerical.check, plan, selections=selections, attempts=attempts, rows=rows)
        cases = guard.run(NUMERICAL.file, compute, cases)
    if readings is not None:
        look = partial(vacuity.check, plan, attempts=attempts, cases=cases, rows=readings)
        vacuities = guard.run(VACUITY.file, look, vacuities)
    return cases, vacuities


def _check_runs(plan: Plan, evidence: Evidence, selections: dict[str, Selection], guard: _Guard) -> Runs:
    runs: Runs = {}
    if evidence.convergence is not None or evidence.curves is not None:
        compute = partial(
            check_runs.check,
            plan,
            selections=selections,
            attempts=evidence.attempts or (),
            rows=evidence.convergence or (),
            curves=evidence.curves,
        )
        runs = guard.run(CONVERGENCE.file, compute, runs)
    return runs


def check_attempts(plan: Plan, rows: Sequence[AttemptRow] | None) -> tuple[dict[str, Selection], list[Problem]]:
    """Check attempts.csv and choose the attempt that counts for every slot with evidence.

    Args:
        plan: What is expected.
        rows: All rows of attempts.csv; None if it is absent.

    Returns:
        The selection by slot, and the problems; none if the file is absent, which is a problem of its own.
    """
    problems: list[Problem] = []
    by_slot: dict[str, list[AttemptRow]] = defaultdict(list)
    for row in rows or ():
        by_slot[row.slot].append(row)
    rules = plan.protocol.retries
    selections = {slot.slot: select(by_slot[slot.slot], rules, is_run=slot.kind == RUN_KIND) for slot in plan.checked}
    if rows is None:
        return selections, problems
    for (slot, attempt), count in Counter((row.slot, row.attempt) for row in rows).items():
        if count > 1:
            reason = f"{slot} attempt {attempt}: {count} rows"
            problems.append(Problem(file=ATTEMPTS.file, finding=Finding.INVALID, reason=reason, slots=(slot,)))
    for slot in sorted(set(by_slot) - set(plan.slots)):
        reason = f"{slot}: no such slot in the protocol"
        problems.append(Problem(file=ATTEMPTS.file, finding=Finding.INVALID, reason=reason))
    for name, selection in selections.items():
        if selection.attempt is None and name not in plan.extending:
            reason = f"{name}: {selection.reason}"
            problems.append(Problem(file=ATTEMPTS.file, finding=selection.finding, reason=reason, slots=(name,)))
    return selections, problems


def _check_identity(identity: Identity) -> list[Problem]:
    if identity.candidate == f"c{identity.candidate_sha256[:12]}":
        return []
    reason = f"the candidate {identity.candidate} is not named after its snapshot digest"
    return [Problem(file=IDENTITY, finding=Finding.INVALID, reason=reason)]


def _expected_files(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Return the slots that each file must have evidence of."""
    pairs = tuple(slot.slot for name in ("candidate", "control") for slot in plan.of_comparison(name))
    solos = tuple(slot.slot for slot in plan.of_comparison("solo"))
    controls = tuple(slot.slot for slot in plan.cases_of("control"))
    cases = tuple(slot.slot for slot in plan.cases_of("candidate")) + controls
    runs = tuple(slot.slot for slot in plan.evidenced if slot.kind == RUN_KIND)
    return {
        ATTEMPTS.file: pairs + solos + cases + runs,
        PAIRS.file: pairs,
        WINDOWS.file: pairs,
        BASELINE.file: solos,
        NUMERICAL.file: cases,
        VACUITY.file: controls,
        CONVERGENCE.file: runs,
        CURVES.file: runs,
    }


def _check_absent(plan: Plan, evidence: Evidence) -> list[Problem]:
    problems = [
        Problem(
            file=file,
            finding=Finding.MISSING,
            reason="the file is absent",
            slots=() if file == VACUITY.file else slots,  # no gate reads it
        )
        for file, slots in _expected_files(plan).items()
        if slots and file not in evidence.raw
    ]
    return problems + [
        Problem(file="folder", finding=Finding.INVALID, reason=f"{name!a} is no evidence of this protocol")
        for name in evidence.foreign
    ]


def _file_gates(plan: Plan, evidence: Evidence, problems: Sequence[Problem]) -> list[Gate]:
    expected = _expected_files(plan)
    gates: list[Gate] = []
    for file in (IDENTITY, *sorted(TABLES), "folder"):
        found = [problem for problem in problems if problem.file == file]
        required = file in {IDENTITY, "folder"} or bool(expected.get(file))
        if required or found:
            finding = worst(found) if found else Finding.MET
            reason = join_reasons(problem.reason for problem in found)
            n = {IDENTITY: 1, "folder": 1 + len(evidence.raw)}.get(file, len(evidence.raw.get(file, ())))
            gates.append(evidence_gate(file, len(found), n, finding, reason))
    return gates
