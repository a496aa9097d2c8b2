"""Checks of the execution paths that the sides say they engaged.

Each side must have engaged one path per workload: the same in every pair, control and solo measurement, and in its
numerical cases; and one path in all runs of a recipe. A case on another path than the measurements is the only one that
cannot be used: it says nothing of what was measured, and the measurements do not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from acceptance.formats import ATTEMPTS
from acceptance.gates import Finding, Gate, Problem, evidence_gate, join_reasons, worst
from acceptance.plan import Plan
from acceptance.protocol import Slot
from acceptance.rows import AttemptRow
from acceptance.selection import Selection

_DIGITS = frozenset("0123456789abcdef")

_Seen = list[tuple[str, str]]
"""Slot and path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Paths:
    """The paths that one side engaged for one workload, or in the runs of one recipe."""

    workload: str
    """Name of the workload, or what the recipe is called."""
    measured: _Seen = field(default_factory=list)
    cases: _Seen = field(default_factory=list)

    @property
    def all(self) -> _Seen:
        return [*self.measured, *self.cases]


def check(plan: Plan, selections: dict[str, Selection]) -> tuple[list[Gate], list[Problem]]:
    """Check the paths of both sides.

    Args:
        plan: What is expected.
        selections: The attempt that counts, by slot.

    Returns:
        A gate for each side that has evidence, and the problems.
    """
    problems: list[Problem] = []
    gates: list[Gate] = []
    for side in ("baseline", "candidate"):
        if not any(side in slot.order for slot in plan.evidenced):
            continue
        paths = _paths_by_workload(plan, selections, side)
        found = _problems(side, paths)
        problems += found
        gates.append(_gate(side, paths, found))
    return gates, problems


def _paths_by_workload(plan: Plan, selections: dict[str, Selection], side: str) -> list[_Paths]:
    """Return one side's paths by workload; baseline_again is the baseline."""
    paths = {workload: _Paths(workload=workload) for workload in plan.workloads}
    for slots, name in ((plan.measured.values(), "measured"), (plan.cases.values(), "cases")):
        for slot in sorted(slots, key=lambda slot: slot.slot):
            row = selections[slot.slot].attempt
            if row is not None:
                seen: _Seen = getattr(paths[slot.workload], name)
                seen.extend((slot.slot, path) for path in _paths_of(slot, row, side))
    return [*paths.values(), *_paths_by_recipe(plan, selections, side)]


def _paths_by_recipe(plan: Plan, selections: dict[str, Selection], side: str) -> list[_Paths]:
    """Return one side's paths by recipe: all its trainings must have engaged one."""
    paths = {recipe: _Paths(workload=f"recipe {recipe}") for recipe in plan.recipes}
    for slot in sorted(plan.runs.values(), key=lambda slot: slot.slot):
        row = selections[slot.slot].attempt
        if row is not None:
            paths[slot.workload].measured.extend((slot.slot, path) for path in _paths_of(slot, row, side))
    return list(paths.values())


def _paths_of(slot: Slot, row: AttemptRow, side: str) -> Iterator[str]:
    """Yield what an attempt says of one side; the second column is that of whoever else runs."""
    if side == "baseline" and "baseline" in slot.order:
        yield row.baseline_path
    if {"baseline": "baseline_again", "candidate": "candidate"}[side] in slot.order:
        yield row.candidate_path


def _problems(side: str, paths: Sequence[_Paths]) -> list[Problem]:
    problems: list[Problem] = []

    def say(reason: str, seen: _Seen) -> None:
        slots = tuple(slot for slot, _ in seen)
        problems.append(Problem(file=ATTEMPTS.file, finding=Finding.INVALID, reason=reason, slots=slots))

    offered = any(path for own in paths for _, path in own.all)
    for own in paths:
        named, seen = f"{own.workload}: the {side}", own.measured or own.cases
        distinct = {path for _, path in seen}
        if len(distinct) > 1:
            say(f"{named} engaged different paths: {_listed(distinct)}", own.all)
        elif offered and distinct == {""}:
            say(f"{named} names no engaged path, but does so for other workloads", own.all)
        elif own.measured:
            for slot, path in own.cases:
                if path not in distinct:
                    other = f"{path!r} in a case, and {_listed(distinct)} where it was measured"
                    say(f"{named} engaged {other}", [(slot, path)])
        if any(path and (len(path) != 12 or not _DIGITS.issuperset(path)) for _, path in own.all):
            say(f"{named}'s engaged path is not 12 lower-case hex digits", own.all)
    return problems


def _listed(paths: set[str]) -> str:
    return ", ".join(sorted(map(repr, paths)))


def _gate(side: str, paths: Sequence[_Paths], problems: Sequence[Problem]) -> Gate:
    seen = [path for own in paths for _, path in own.all]
    finding, reason = Finding.MET, ""
    if problems:
        finding, reason = worst(problems), join_reasons(problem.reason for problem in problems)
    elif not seen:
        finding, reason = Finding.MISSING, "no attempt counts"
    elif not any(seen):
        finding, reason = Finding.NOT_EVALUATED, f"the {side}'s adapter does not offer engaged()"
    return evidence_gate(f"engaged/{side}", len(problems), len(seen), finding, reason)
