"""The chain of segments of one attempt at a run: does each go on from the state that the one before it left?

A segment says what it did; this holds the segments to one another, so that no result can rest on a state that was
chosen among several, or that is not there any more. docs/audit.md says what that proves and what it does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from acceptance.formats import Ending
from campaign import documents
from campaign.collection import runs
from campaign.collection.checkpoints import Owner, Saved, check_growth
from campaign.collection.sealed import Finding, SealedAttempt
from campaign.frozen import Frozen
from campaign.paths import AttemptPaths
from campaign.submission import acts
from campaign.watching.state import CUTS, deciding

UNSEEN_S = 300.0
"""How long before a segment was planned a checkpoint may say that it was written and still have been unseen: another
host's clock, and a shared file system that shows a folder late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One segment of a chain."""

    attempt: acts.Attempt
    """What the ledger says of it."""
    planned_at: float
    """When the ledger first intended it, in seconds since the epoch."""
    folder: AttemptPaths
    sealed: SealedAttempt | None
    """None where there is no receipt."""
    checkpoints: Mapping[int, Saved]
    """Those that it wrote, by update; empty while it is under way."""

    @property
    def segment(self) -> int:
        """Its number."""
        return self.attempt.segment

    @property
    def ending(self) -> Ending | None:
        """How it ended: the receipt's word, else the ledger's; None while it is under way."""
        if self.sealed is not None:
            return self.sealed.receipt.ending
        return self.attempt.ended.ending if self.attempt.ended is not None else None

    @property
    def given_up_as(self) -> Ending | None:
        """The ending by which it was known when a next one could be planned: the ledger's, if it was pronounced."""
        return self.attempt.ended.ending if self.attempt.ended is not None else self.ending


def owner_of(frozen: Frozen, recipe: documents.Recipe, slot: documents.Slot, attempt: acts.Attempt) -> Owner:
    """Return what every checkpoint of a segment must say.

    Args:
        frozen: The frozen documents.
        recipe: What is trained.
        slot: The slot, as the protocol has it.
        attempt: The segment, as the ledger has it.
    """
    fields: dict[str, object] = {
        "manifest_sha256": frozen.manifest_sha256,
        "slot": attempt.slot,
        "attempt": attempt.attempt,
        "segment": attempt.segment,
        "allocation": attempt.allocation,
        "side": slot.side,
        "snapshot_sha256": frozen.snapshots(attempt.slot.partition("/")[0]).get(slot.side),
        "recipe": recipe.name,
        "config_sha256": recipe.config_sha256,
        "seed": documents.seed_of_run(slot.slot),
        "previous": attempt.resume,
    }
    return Owner(fields=fields, recipe=recipe)


def check_chain(chain: Sequence[Link], recipe: documents.Recipe, max_segments: int) -> Iterator[Finding]:
    """Yield everything in which the segments of one attempt do not go on from one another.

    Args:
        chain: All segments that were planned, in order; each by itself was found right.
        recipe: What is trained.
        max_segments: Most segments of an attempt.
    """
    yield from _check_numbers(chain, max_segments)
    for index, link in enumerate(chain):
        yield from _check_start(chain[:index], link)
        yield from _check_account(chain[:index], link, recipe)
        if link.sealed is not None:
            yield from runs.check_listed(link.sealed.receipt.run, link.checkpoints, link.folder)
    yield from _check_paths(chain)
    yield from _check_result(chain, recipe)


def check_next_attempt(chain: Sequence[Link], max_segments: int) -> Iterator[Finding]:
    """Yield a finding where a run was begun anew although an attempt at it could still go on, or a person ended it.

    Args:
        chain: The segments of an attempt that another one followed.
        max_segments: Most segments of an attempt.
    """
    last = chain[-1]
    known = last.given_up_as
    if known is None or known is Ending.CANCELLED or (known in CUTS and last.segment < max_segments):
        goes_on = "no other is made" if last.segment >= max_segments else "the same attempt goes on"
        state = f"ended {known}, after which {goes_on}" if known is not None else "has no ending"
        what = f"attempt {last.attempt.attempt + 1} was planned, although segment {last.segment} {state}"
        yield Finding(where=str(last.folder.root), what=what)


# --- the order of segments --------------------------------------------------------------------------------------------


def _check_numbers(chain: Sequence[Link], max_segments: int) -> Iterator[Finding]:
    where = str(chain[0].folder.root.parent)
    numbers = [link.segment for link in chain]
    if numbers != list(range(1, len(chain) + 1)):
        listed = ", ".join(map(str, numbers))
        yield Finding(where=where, what=f"segments {listed} were planned, which are not numbered from 1 without a gap")
    if numbers[-1] > max_segments:
        yield Finding(where=where, what=f"{numbers[-1]} segments were planned, the protocol allows {max_segments}")
    for earlier, later in pairwise(chain):
        known = earlier.given_up_as
        if known is None:
            what = f"it has no ending, and segment {later.segment} was planned after it"
            yield Finding(where=str(earlier.folder.root), what=what)
        elif known not in CUTS:
            what = f"segment {earlier.segment} ended {known}, after which no segment goes on"
            yield Finding(where=str(later.folder.root), what=what)


# --- what a segment starts from ---------------------------------------------------------------------------------------


def _find(earlier: Sequence[Link], name: documents.CheckpointName) -> Saved | None:
    return next((link.checkpoints.get(name.update) for link in earlier if link.segment == name.segment), None)


def _text(name: documents.CheckpointName | None) -> str:
    return "the beginning" if name is None else f"update {name.update} of segment {name.segment}"


def _check_start(earlier: Sequence[Link], link: Link) -> Iterator[Finding]:
    """Yield a finding unless a segment starts from the newest state that there was when it was planned."""
    resume = link.attempt.resume
    if resume is not None:
        saved = _find(earlier, resume)
        if saved is None:
            where = link.folder.root
            what = f"it was planned from {_text(resume)}, which is not there"
            yield Finding(where=str(where), what=what)
        elif saved.sha256 != resume.sha256:
            what = f"it was planned from {_text(resume)} with the SHA-256 {resume.sha256}, there is {saved.sha256}"
            yield Finding(where=str(link.folder.root), what=what)
    started = (0, 0) if resume is None else (resume.segment, resume.update)
    newer = [(one, update) for one in earlier for update in one.checkpoints if (one.segment, update) > started]
    for one, update in newer:
        if not _was_unseen(one, update, link):
            there = documents.CheckpointName(segment=one.segment, update=update, sha256="")
            what = f"it was planned from {_text(resume)}, although there was {_text(there)}"
            yield Finding(where=str(link.folder.root), what=what)


def _was_unseen(earlier: Link, update: int, link: Link) -> bool:
    """Return whether a checkpoint may have been written, or become visible, after a later segment was planned.

    Only a segment that was given up without its receipt could go on writing meanwhile.
    """
    written_at = earlier.checkpoints[update].document.at
    return earlier.attempt.ended is not None and written_at > link.planned_at - UNSEEN_S


# --- the account ------------------------------------------------------------------------------------------------------


def _check_account(earlier: Sequence[Link], link: Link, recipe: documents.Recipe) -> Iterator[Finding]:
    """Yield a finding where a checkpoint's account does not go on from the state before it."""
    resume = link.attempt.resume
    start = _find(earlier, resume) if resume is not None else None
    states = [*([start] if start is not None else []), *link.checkpoints.values()]
    for before, after in pairwise(states):
        where = str(link.folder.checkpoint(after.document.update).document)
        for what in check_growth(before.document, after.document, recipe.updates):
            yield Finding(where=where, what=what)


def _check_paths(chain: Sequence[Link]) -> Iterator[Finding]:
    """Yield a finding where the segments of a run did not engage one path; one that was ended for it says so itself."""
    first = ""
    for link in chain:
        is_whole = link.sealed is not None and link.ending in {*CUTS, Ending.COMPLETED}
        said = [side.path for side in link.sealed.receipt.sides] if link.sealed is not None and is_whole else []
        for path in filter(None, [*said, *(saved.document.path for saved in link.checkpoints.values())]):
            first = first or path
            if path != first:
                what = f"it engaged the path {path}, the run began with {first}"
                yield Finding(where=str(link.folder.root), what=what)
                break


# --- the result -------------------------------------------------------------------------------------------------------


def _check_result(chain: Sequence[Link], recipe: documents.Recipe) -> Iterator[Finding]:
    last = deciding(chain)
    if last.sealed is None:
        return
    resume = last.attempt.resume
    start = _find(chain, resume) if resume is not None else None
    newest = [start, *last.checkpoints.values()][-1]
    if newest is not None:
        yield from runs.check_curve(last.sealed, newest.document, last.folder)
    if last.ending is not Ending.COMPLETED:
        return
    final = last.checkpoints.get(recipe.updates)
    if final is None:
        what = f"completed, but it left no checkpoint after the last update, {recipe.updates}"
        yield Finding(where=str(last.folder.receipt), what=what)
        return
    yield from runs.check_result(last.sealed, final, last.segment, last.folder)
