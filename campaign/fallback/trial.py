"""Running a fallback trial: four stretches of a few updates, each in a fresh process of a side, by the frozen harness.

It happens in a folder of its own that is laid out like a home, as far as the harness looks; the home is only read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from acceptance.formats import Ending
from campaign import documents
from campaign.collection.sealed import SealedAttempt, TamperedError, expect, read_attempt
from campaign.errors import EvidenceError, InfrastructureError, StateError
from campaign.fallback.subject import SIDES, Side, Source, Subject
from campaign.frozen import Frozen
from campaign.paths import AttemptPaths, HomePaths
from campaign.scratch import make_scratch, run_harness
from campaign.submission.acts import IntendedAttempt
from campaign.submission.plans import build_plan

ALLOCATION = "fallback"
NO_TRIAL = frozenset(
    {
        Ending.CANCELLED,
        Ending.CHECKPOINT_REFUSED,
        Ending.DATA_CHANGED,
        Ending.LOST,
        Ending.NODE_FAIL,
        Ending.NO_SPACE,
        Ending.PREEMPTED,
        Ending.TIME_LIMIT,
    }
)
"""Endings of a stretch that say nothing of the side: the machine, the data or the home was not as it should be."""


def require_able(paths: HomePaths) -> None:
    """Refuse a home whose frozen harness cannot make a trial.

    Raises:
        StateError: It cannot.
    """
    if not paths.resumptions.is_file():
        raise StateError(
            "the harness of this campaign cannot try a fallback",
            where=str(paths.harness),
            why="it was frozen by an earlier release, and only what was frozen is ever run",
            hint="fallback stays 'from the last baseline checkpoint only' here; the next campaign can be tried",
        )


def stretches(subject: Subject) -> list[tuple[Source, Side]]:
    """Return who goes on from what, in the order in which they run: of each checkpoint its owner first."""
    return [(source, side) for source in subject.sources for side in sorted(SIDES, key=lambda one: one != source.owner)]


def plan_stretch(subject: Subject, source: Source, side: Side, updates: int) -> documents.PlannedAttempt:
    """Return what the harness is asked to do: one side from one checkpoint."""
    name = f"{subject.recipe.name}/s{subject.seed}/from-{subject.identity(source.owner)}"
    return documents.PlannedAttempt(
        slot=f"{subject.identity(side)}/resumption/{name}",
        attempt=source.status.attempt,
        kind="resumption",
        workload=subject.recipe.name,
        repeat=0,
        pair=0,
        order=(side,),
        updates=updates,
        resume=source.name,
    )


def build_trial(frozen: Frozen, paths: HomePaths, subject: Subject, updates: int) -> documents.AllocationPlan:
    """Return the allocation of a trial; its home is the campaign's own."""
    plans = [
        build_plan(
            frozen,
            paths,
            ALLOCATION,
            ALLOCATION,
            [IntendedAttempt(slot=one.status.slot, attempt=one.status.attempt, updates=0, segment=one.status.segment)],
        )
        for one in subject.sources
    ]
    attempts = tuple(plan_stretch(subject, source, side, updates) for source, side in stretches(subject))
    return plans[0].replace(sides={**plans[0].sides, **plans[1].sides}, attempts=attempts)


@contextlib.contextmanager
def scratch_home(paths: HomePaths, subject: Subject, parent: Path | None) -> Iterator[HomePaths]:
    """Provide a folder that looks like a home to the harness; it stays, whoever asked removes it.

    Args:
        paths: The campaign's home.
        subject: What is tried: the runs of both sides are seen there.
        parent: Where to create it; the folder for temporary files if None.

    Raises:
        StateError: It would lie in the home.
    """
    refusal, why = "no trial runs inside the home", "a trial is kept only once it has ended"
    scratch = make_scratch(paths, ALLOCATION, parent, refusal=refusal, why=why)
    for side in SIDES:
        seen = scratch.runs(subject.identity(side))
        seen.parent.mkdir(parents=True)
        seen.symlink_to(paths.runs(subject.identity(side)))
    yield scratch


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """One stretch that the harness made."""

    folder: AttemptPaths
    sealed: SealedAttempt
    resumption: documents.Resumption | None
    """None where it ended before the harness could write one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conducted:
    """A trial that the harness has made."""

    subject: Subject
    scratch: HomePaths
    made: tuple[Made, ...]
    """In the order of `stretches`."""


def run_trial(
    paths: HomePaths,
    frozen: Frozen,
    plan: documents.AllocationPlan,
    scratch: HomePaths,
    environment: Mapping[str, str],
) -> tuple[Made, ...]:
    """Let the frozen harness make all stretches.

    Args:
        paths: The campaign's home.
        frozen: The frozen documents.
        plan: From `build_trial`.
        scratch: From `scratch_home`.
        environment: What the harness is given.

    Raises:
        InfrastructureError: One was not made, or ended in a way that says nothing of a side.
        TamperedError: What one left is not what it sealed.
    """
    said = run_harness(paths, frozen, plan, scratch, environment)
    made: list[Made] = []
    for planned in plan.attempts:
        folder = scratch.attempt(planned.slot, planned.attempt)
        if not folder.receipt.exists():
            why = f"{planned.slot}: {said}"
            raise InfrastructureError("the harness did not make the whole trial", where=str(scratch.root), why=why)
        made.append(_read_made(frozen, planned, folder))
    return tuple(made)


def _read_made(frozen: Frozen, planned: documents.PlannedAttempt, folder: AttemptPaths) -> Made:
    sealed, findings = read_attempt(folder, expect(frozen, planned, ALLOCATION))
    if sealed is None:
        raise TamperedError(findings)
    receipt = sealed.receipt
    if receipt.ending in NO_TRIAL:
        why = f"{planned.slot}: {receipt.ending}: {receipt.reason}"
        hint = "see to the cause, then: campaign fallback"
        raise InfrastructureError("the trial did not run to its end", where=str(folder.root), why=why, hint=hint)
    found = None
    if any(one.name == folder.resumption.name for one in receipt.files):
        found = documents.Resumption.read(folder.resumption)
        _check_resumption(found, planned, str(folder.resumption), completed=receipt.ending is Ending.COMPLETED)
    elif receipt.ending is Ending.COMPLETED:
        raise EvidenceError("completed, but it does not say what the side did", where=str(folder.receipt))
    return Made(folder=folder, sealed=sealed, resumption=found)


def _check_resumption(
    found: documents.Resumption, planned: documents.PlannedAttempt, where: str, *, completed: bool
) -> None:
    resume = planned.resume
    said = (found.side, found.recipe, found.attempt, found.segment, found.update, found.sha256)
    wanted = (planned.order[0], planned.workload, planned.attempt)
    if resume is None or said != (*wanted, resume.segment, resume.update, resume.sha256):
        raise EvidenceError("it is about another checkpoint than the one that was planned", where=where)
    if len(found.losses) > planned.updates or (completed and len(found.losses) != planned.updates):
        raise EvidenceError(f"{len(found.losses)} losses of {planned.updates} updates", where=where)
