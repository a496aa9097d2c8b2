"""Whether the extension of a recipe is due, and whether its runs are where they must be, and only there.

The extension is due if and only if the first look at the recipe is inconclusive. Then every run of it must be there.
Otherwise the candidate must have none: seeds that are added at will would let a candidate try until it passes. The
baseline may have its own all the same, since they are trained for all candidates and say nothing of any.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from acceptance import looks
from acceptance.check_runs import Runs
from acceptance.convergence_rules import ConvergenceRules
from acceptance.formats import ATTEMPTS, CONVERGENCE, Ending
from acceptance.gates import Finding, Problem
from acceptance.looks import Look, Paired
from acceptance.plan import Plan
from acceptance.protocol import Slot
from acceptance.rows import AttemptRow
from acceptance.selection import Selection


def look_at(
    plan: Plan, rules: ConvergenceRules, runs: Runs, recipe: str, *, look: int, snapshots_differ: bool
) -> Look | None:
    """Take one look at a recipe; None where a number is too large to be shown.

    Raises:
        KeyError: A run is not there.
    """
    seeds = rules.seeds_of(look)
    losses = {
        side: [runs[plan.runs[recipe, seed, side].slot].row.final_loss for seed in seeds]
        for side in ("baseline", "candidate")
    }
    return looks.take(
        [
            Paired(seed=seed, baseline=baseline, candidate=candidate)
            for seed, baseline, candidate in zip(seeds, losses["baseline"], losses["candidate"], strict=True)
        ],
        number=look,
        quantile=rules.quantile_of(look),
        margin=rules.margin,
        snapshots_differ=snapshots_differ,
    )


def check(
    plan: Plan,
    *,
    selections: Mapping[str, Selection],
    attempts: Sequence[AttemptRow],
    runs: Runs,
    blocked: Collection[str],
    snapshots_differ: bool,
) -> tuple[frozenset[str], list[Problem]]:
    """Find the recipes whose extension is due, and check its runs.

    Args:
        plan: What is expected.
        selections: The attempt that counts, by slot.
        attempts: All rows of attempts.csv.
        runs: The runs that are there.
        blocked: The slots whose evidence cannot be used.
        snapshots_differ: Whether the sides' snapshots do.

    Returns:
        The names of the recipes whose extension is due, and the problems.
    """
    rules = plan.protocol.convergence
    due: set[str] = set()
    problems: list[Problem] = []
    if rules is None or rules.extension is None:
        return frozenset(), problems
    tried = {row.slot for row in attempts if row.ending != Ending.VOID}
    for recipe in rules.recipes:
        first = plan.runs_of(recipe.name, rules.seeds)
        added = plan.runs_of(recipe.name, rules.extension.seeds)
        if all(slot.slot in runs and slot.slot not in blocked for slot in first):
            look = look_at(plan, rules, runs, recipe.name, look=1, snapshots_differ=snapshots_differ)
            if look is not None and look.finding is Finding.INCONCLUSIVE:
                due.add(recipe.name)
                problems += _absent(added, selections)
                continue
        problems += _extra(added, tried, first)
    return frozenset(due), problems


def _absent(added: Sequence[Slot], selections: Mapping[str, Selection]) -> list[Problem]:
    problems: list[Problem] = []
    for slot in added:
        selection = selections[slot.slot]
        if selection.attempt is None:
            why = f"{slot.slot}: {selection.reason}"
            what = f"{slot.slot}: the first look is inconclusive, and no attempt at the extension's run counts"
            problems += [
                Problem(file=ATTEMPTS.file, finding=selection.finding, reason=why, slots=(slot.slot,)),
                Problem(file=CONVERGENCE.file, finding=Finding.MISSING, reason=what, slots=(slot.slot,)),
            ]
    return problems


def _extra(added: Sequence[Slot], tried: Collection[str], first: Sequence[Slot]) -> list[Problem]:
    reason = "a run of the extension, which the first look does not ask for"
    return [
        Problem(
            file=ATTEMPTS.file,
            finding=Finding.INVALID,
            reason=f"{slot.slot}: {reason}",
            slots=tuple(own.slot for own in first),
        )
        for slot in added
        if slot.side == "candidate" and slot.slot in tried
    ]
