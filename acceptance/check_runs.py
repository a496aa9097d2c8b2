"""Checks of convergence.csv and curves.csv."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from acceptance.convergence_rules import ConvergenceRules, Recipe
from acceptance.formats import CONVERGENCE, CURVES
from acceptance.gates import Finding, Problem
from acceptance.plan import Plan
from acceptance.protocol import Slot
from acceptance.rows import AttemptRow, CurveRow, RunRow
from acceptance.selection import Selection

_HEX_64 = re.compile(r"[0-9a-f]{64}")

_Say = Callable[[Finding, str, Iterable[str]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The counted attempt at a run."""

    slot: Slot
    recipe: Recipe
    row: RunRow
    curve: tuple[CurveRow, ...]
    """Its evaluations in the order of updates; empty where curves.csv is absent, which blocks the slot elsewhere."""


Runs = dict[str, Run]
"""Runs by slot."""


def check(
    plan: Plan,
    *,
    selections: Mapping[str, Selection],
    attempts: Sequence[AttemptRow],
    rows: Sequence[RunRow],
    curves: Sequence[CurveRow] | None,
) -> tuple[Runs, list[Problem]]:
    """Check the rows of every run, and that no other row is there.

    A run of an extension need not be there; `check_extension` says where it must or must not.

    Args:
        plan: What is expected.
        selections: The attempt that counts, by slot.
        attempts: All rows of attempts.csv.
        rows: All rows of convergence.csv.
        curves: All rows of curves.csv; None if it is absent.

    Returns:
        The runs whose counted attempt has one row, by slot, and the problems.
    """
    problems: list[Problem] = []
    rules = plan.protocol.convergence
    if rules is None:
        return _without_rules(rows, curves or ())
    say, say_of_curves = _saying(problems, CONVERGENCE.file), _saying(problems, CURVES.file)
    by_attempt = _group(plan, attempts, rows, say)
    _check_rows(plan, rules, by_attempt, say)
    points = _check_points(plan, attempts, curves or (), say_of_curves)
    runs = _counted(plan, selections, by_attempt, points, say)
    if curves is not None:
        for run in runs.values():
            _check_curve(run, say_of_curves)
    _check_checkpoints(runs, say)
    return runs, problems


def _counted(
    plan: Plan,
    selections: Mapping[str, Selection],
    by_attempt: Mapping[tuple[str, int], Sequence[RunRow]],
    points: Mapping[tuple[str, int], Sequence[CurveRow]],
    say: _Say,
) -> Runs:
    """Return the counted attempt of every run with its curve."""
    runs: Runs = {}
    for slot in plan.runs.values():
        chosen = selections[slot.slot].attempt
        if chosen is None:
            if slot.slot not in plan.extending:
                say(Finding.MISSING, f"{slot.slot}: no attempt counts, so there is no run", [slot.slot])
            continue
        own = by_attempt.get((slot.slot, chosen.attempt), [])
        if not own:
            say(Finding.MISSING, f"{slot.slot} attempt {chosen.attempt}: no row", [slot.slot])
        elif len(own) == 1:
            curve = sorted(points.get((slot.slot, chosen.attempt), []), key=lambda point: point.update)
            runs[slot.slot] = Run(slot=slot, recipe=plan.recipes[slot.workload], row=own[0], curve=tuple(curve))
    return runs


def _saying(problems: list[Problem], file: str) -> _Say:
    def say(finding: Finding, reason: str, slots: Iterable[str]) -> None:
        problems.append(Problem(file=file, finding=finding, reason=reason, slots=tuple(slots)))

    return say


def describe(row: RunRow | CurveRow) -> str:
    """Name the attempt of a row by its key."""
    return f"{row.recipe} seed {row.seed} {row.side} attempt {row.attempt}"


def _without_rules(rows: Sequence[RunRow], curves: Sequence[CurveRow]) -> tuple[Runs, list[Problem]]:
    found = [(CONVERGENCE.file, row) for row in rows] + [(CURVES.file, row) for row in curves]
    reasons = {(file, f"{describe(row)}: no such run in the protocol") for file, row in found}
    return {}, [Problem(file=file, finding=Finding.INVALID, reason=reason) for file, reason in sorted(reasons)]


def _owner(plan: Plan, sealed: Mapping[tuple[str, int], bool], row: RunRow | CurveRow, say: _Say) -> str:
    """Return the slot of a row; say why it has none, and return an empty name.

    A run of a known recipe that nobody planned blocks the recipe: it may be one that should have taken another's place.
    """
    slot = plan.runs.get((row.recipe, row.seed, row.side))
    if slot is None:
        block = [own.slot for own in plan.runs.values() if own.workload == row.recipe]
        say(Finding.INVALID, f"{describe(row)}: no such run in the protocol", block)
        return ""
    if not sealed.get((slot.slot, row.attempt), False):
        say(Finding.INVALID, f"{describe(row)}: the attempt is not in attempts.csv, or not sealed", [slot.slot])
        return ""
    return slot.slot


def _sealed(attempts: Sequence[AttemptRow]) -> dict[tuple[str, int], bool]:
    return {(row.slot, row.attempt): row.sealed for row in attempts}


def _group(
    plan: Plan, attempts: Sequence[AttemptRow], rows: Sequence[RunRow], say: _Say
) -> dict[tuple[str, int], list[RunRow]]:
    """Group the rows by attempt and report those that belong to none."""
    sealed = _sealed(attempts)
    groups: dict[tuple[str, int], list[RunRow]] = defaultdict(list)
    for row in rows:
        name = _owner(plan, sealed, row, say)
        if name:
            groups[name, row.attempt].append(row)
    return groups


# --- convergence.csv --------------------------------------------------------------------------------------------------


def _check_rows(
    plan: Plan, rules: ConvergenceRules, by_attempt: Mapping[tuple[str, int], Sequence[RunRow]], say: _Say
) -> None:
    """Check each row by itself, whichever attempt it belongs to."""
    for (name, attempt), group in by_attempt.items():
        for row in group:
            for reason in _row_faults(rules, plan.recipes[row.recipe], row):
                say(Finding.INVALID, f"{name} attempt {attempt}: {reason}", [name])
        if len(group) > 1:
            say(Finding.INVALID, f"{name} attempt {attempt}: {len(group)} rows", [name])


def _row_faults(rules: ConvergenceRules, recipe: Recipe, row: RunRow) -> list[str]:
    """Return what is wrong with one row, whichever attempt it belongs to."""
    planned = {
        "target_tokens": recipe.targets,
        "validation_tokens": recipe.validation_targets,
        "updates": recipe.updates,
    }
    faults = [
        f"{getattr(row, name)} {name}, and the protocol asks for {count}"
        for name, count in planned.items()
        if getattr(row, name) != count
    ]
    if not (1 <= row.segments <= rules.max_segments):
        faults.append(f"{row.segments} segments, and the protocol allows {rules.max_segments}")
    if not (row.train_s > 0):
        faults.append("train_s must be above zero")
    if not (row.elapsed_s >= row.train_s):
        faults.append("elapsed_s is less than train_s")
    if _HEX_64.fullmatch(row.checkpoint_sha256) is None:
        faults.append("the checkpoint's digest is not 64 lower-case hex digits")
    return faults


def _check_checkpoints(runs: Runs, say: _Say) -> None:
    """Every run has a checkpoint of its own: two with one digest are one training told twice."""
    users: dict[str, list[str]] = defaultdict(list)
    for name, run in runs.items():
        users[run.row.checkpoint_sha256].append(name)
    for digest, names in sorted(users.items()):
        if len(names) > 1:
            say(Finding.INVALID, f"{', '.join(sorted(names))}: one checkpoint {digest[:12]} for all", names)


# --- curves.csv -------------------------------------------------------------------------------------------------------


def _check_points(
    plan: Plan, attempts: Sequence[AttemptRow], curves: Sequence[CurveRow], say: _Say
) -> dict[tuple[str, int], list[CurveRow]]:
    """Group the points by attempt; report those that belong to none, and those that no curve has."""
    sealed = _sealed(attempts)
    groups: dict[tuple[str, int], list[CurveRow]] = defaultdict(list)
    for row in curves:
        name = _owner(plan, sealed, row, say)
        if name:
            groups[name, row.attempt].append(row)
    for (name, attempt), group in groups.items():
        recipe = plan.recipes[group[0].recipe]
        planned = frozenset(recipe.points)
        for update, count in sorted(Counter(point.update for point in group).items()):
            where = f"{name} attempt {attempt}: update {update}"
            if update not in planned:
                say(Finding.INVALID, f"{where}: no point of the curve is planned there", [name])
            if count > 1:
                say(Finding.INVALID, f"{where}: {count} rows", [name])
    return groups


def _check_curve(run: Run, say: _Say) -> None:
    """Check the curve of a counted attempt as a whole."""
    name = run.slot.slot
    where = f"{name} attempt {run.row.attempt}"
    absent = sorted(set(run.recipe.points) - {point.update for point in run.curve})
    if absent:
        listed = ", ".join(str(update) for update in absent[:5]) + (", ..." if len(absent) > 5 else "")
        say(Finding.MISSING, f"{where}: no point after update {listed} ({len(absent)} absent)", [name])
    tokens = [0, *(point.tokens for point in run.curve)]
    if any(not (earlier < later) for earlier, later in pairwise(tokens)):
        say(Finding.INVALID, f"{where}: the tokens of the curve do not increase from point to point", [name])
    if not run.curve or run.curve[-1].update != run.recipe.updates:
        return
    if run.curve[-1].tokens != run.recipe.targets:
        say(Finding.INVALID, f"{where}: the curve does not end at the recipe's {run.recipe.targets} targets", [name])
    if run.curve[-1].validation_loss != run.row.final_loss:
        say(Finding.INVALID, f"{where}: the last point of the curve is not the final loss", [name])
