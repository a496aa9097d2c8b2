"""Which checkpoints a fallback trial goes on from: a sealed one of each side, of one recipe and seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from campaign import documents
from campaign.collection.chains import owner_of
from campaign.collection.checkpoints import check_files, read_checkpoints
from campaign.collection.sealed import Finding, TamperedError
from campaign.errors import EvidenceError, StateError
from campaign.frozen import Frozen
from campaign.paths import HomePaths
from campaign.watching.observation import View
from campaign.watching.state import AttemptStatus, SlotStatus

Side: TypeAlias = Literal["baseline", "candidate"]
SIDES: tuple[Side, Side] = ("baseline", "candidate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A checkpoint that both sides go on from."""

    owner: Side
    """Which side saved it."""
    status: AttemptStatus
    """The segment that wrote it."""
    slot: documents.Slot
    """Of the run, as the protocol has it."""
    sealed: documents.SealedCheckpoint
    """What the segment's receipt lists of it."""

    @property
    def update(self) -> int:
        """Updates behind it."""
        return self.sealed.update

    @property
    def name(self) -> documents.CheckpointName:
        """How a plan names it."""
        return documents.CheckpointName(
            segment=self.status.segment, update=self.sealed.update, sha256=self.sealed.sha256
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a trial is about."""

    candidate: str
    """Id."""
    recipe: documents.Recipe
    seed: int
    sources: tuple[Source, Source]
    """Of the baseline, then of the candidate."""

    def num_updates(self, wanted: int) -> int:
        """Return how many updates each stretch makes: no more than the recipe has left, but where it has none left."""
        left = [self.recipe.updates - source.update for source in self.sources]
        return min([wanted, *(one for one in left if one > 0)])

    def identity(self, side: Side) -> str:
        """Return how slots of a side begin."""
        return self.candidate if side == "candidate" else "baseline"


def choose_update(saved: Sequence[int], updates: int, last: int) -> int:
    """Return which checkpoint to go on from, by its place: the newest one with enough training left after it.

    Args:
        saved: Updates behind each, oldest first; not empty.
        updates: How many updates shall be made.
        last: The recipe's updates.
    """
    for left in (min(updates, last - 1), 1, 0):
        places = [place for place, update in enumerate(saved) if update + left <= last]
        if places:
            return places[-1]
    return len(saved) - 1


def _sealed_states(status: SlotStatus) -> list[tuple[AttemptStatus, documents.SealedCheckpoint]]:
    """Return the checkpoints of the attempt that counts, or of the last one, as receipts list them, oldest first."""
    completed = status.completed
    chains = [chain for chain in status.chains if completed is None or chain[0].attempt == completed.attempt]
    return [
        (one, sealed)
        for one in (chains[-1] if chains else ())
        if one.receipt is not None and one.receipt.run is not None
        for sealed in one.receipt.run.checkpoints
    ]


def find_subject(
    protocol: documents.Protocol, view: View, candidate: str, *, recipe: str, seed: int | None, updates: int
) -> Subject:
    """Return the recipe and the seed to try, and the checkpoints of both sides.

    Args:
        protocol: The frozen protocol.
        view: What is known of the slots.
        candidate: The candidate's id.
        recipe: Name of the recipe; empty for the first one of which both sides have a checkpoint.
        seed: The seed; None likewise.
        updates: How many updates each stretch shall make.

    Raises:
        StateError: There is no such recipe or seed, or a side has left no checkpoint of it.
    """
    rules = protocol.convergence
    if rules is None:
        why = "checkpoints are those of the convergence family, which this campaign does not declare"
        raise StateError("the campaign trains nothing", why=why, hint='families = ["convergence", ...] in the next one')
    _require_known(rules, recipe, seed)
    seeds = [*rules.seeds, *(rules.extension.seeds if rules.extension is not None else ())]
    wanted = [one for one in rules.recipes if recipe in ("", one.name)]
    for one in wanted:
        for number in seeds if seed is None else [seed]:
            slots = [documents.slot_for(documents.run_slot(side, one.name, number), candidate) for side in SIDES]
            pairs = zip(SIDES, slots, strict=True)
            sources = [_find_source(view, side, view.slots.get(slot), one, updates) for side, slot in pairs]
            if sources[0] is not None and sources[1] is not None:
                return Subject(candidate=candidate, recipe=one, seed=number, sources=(sources[0], sources[1]))
    about = "".join([f" of {recipe}" if recipe else "", f" with seed {seed}" if seed is not None else ""])
    why = f"no run{about} has a sealed segment with a checkpoint on both sides"
    raise StateError(
        "there is nothing to go on from", why=why, hint="campaign submit; when runs have ended: campaign fallback"
    )


def _require_known(rules: documents.ConvergenceRules, recipe: str, seed: int | None) -> None:
    names = [one.name for one in rules.recipes]
    if recipe and recipe not in names:
        raise StateError(f"no recipe {recipe!r}", why=f"the protocol has: {', '.join(names)}", hint="--recipe NAME")
    seeds = [*rules.seeds, *(rules.extension.seeds if rules.extension is not None else ())]
    if seed is not None and seed not in seeds:
        raise StateError(f"no seed {seed}", why=f"the protocol has: {', '.join(map(str, seeds))}", hint="--seed NUMBER")


def _find_source(
    view: View, side: Side, status: SlotStatus | None, recipe: documents.Recipe, updates: int
) -> Source | None:
    states = _sealed_states(status) if status is not None else []
    if status is None or not states:
        return None
    chosen, sealed = states[choose_update([one.update for _, one in states], updates, recipe.updates)]
    _require_seen(view, chosen)
    return Source(owner=side, status=chosen, slot=status.slot, sealed=sealed)


def _require_seen(view: View, status: AttemptStatus) -> None:
    """Refuse a receipt that the ledger does not name: whoever could write to the home might have put it there.

    Raises:
        StateError: It does not name it yet.
        EvidenceError: It names another one.
    """
    name, hint = status.key.receipt_name, "campaign collect"
    known = view.history.sealed.get(name)
    if known is None:
        raise StateError(f"the receipt of {status.key.text} is not in the ledger yet", hint=hint)
    if known != status.receipt_sha256:
        what = f"the receipt of {status.key.text} is not the one that was seen before"
        raise EvidenceError(what, why=f"its SHA-256 is {status.receipt_sha256}, the ledger names {known}", hint=hint)


def check_source(paths: HomePaths, frozen: Frozen, view: View, recipe: documents.Recipe, source: Source) -> None:
    """Hold a checkpoint to what its receipt sealed, byte by byte.

    Raises:
        TamperedError: It is not what was sealed.
    """
    key = source.status.key
    folder = paths.attempt(key.slot, key.attempt, key.segment)
    owner = owner_of(frozen, recipe, source.slot, view.history.attempt(key))
    saved, findings = read_checkpoints(folder, owner)
    where = folder.checkpoint(source.update)
    found = saved.get(source.update)
    if found is None:
        own = [one for one in findings if Path(one.where).is_relative_to(where.root)]
        absent = Finding(where=str(where.root), what="its segment's receipt lists it, and it is not there")
        raise TamperedError(tuple(own) or (absent,), hint="campaign collect")
    wrong, _ = check_files(found.files, {})
    if found.sha256 != source.sealed.sha256:
        what = f"its SHA-256 is {found.sha256}, its segment's receipt lists {source.sealed.sha256}"
        wrong = (Finding(where=str(where.document), what=what), *wrong)
    if wrong:
        raise TamperedError(wrong, hint="campaign collect")
