"""Reading what one try left, an attempt or a segment of one: does it agree with the plan, the ledger and its own seal?

Nothing is stored here; `campaign.collection.collect` does that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from acceptance.formats import Ending
from campaign import documents, files
from campaign.collection import runs
from campaign.collection.cases import check_attempt
from campaign.collection.left import NOTHING, LeftBehind
from campaign.collection.reuse import Care, Look, Memory, look_at
from campaign.collection.sealed import Finding, SealedAttempt, check_job, expect, read_attempt, read_unchanged
from campaign.errors import EvidenceError
from campaign.frozen import Frozen
from campaign.keys import AttemptKey
from campaign.paths import AllocationPaths, AttemptPaths, HomePaths
from campaign.submission import acts


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    """What was asked for, after checking that the ledger, the allocations and the protocol agree on it."""

    paths: HomePaths
    frozen: Frozen
    history: acts.History
    slots: Mapping[str, documents.Slot]
    """Every slot of the protocol under its name in this home."""
    planned_at: Mapping[str, float]
    """When each allocation was first intended, in seconds since the epoch."""
    known: Mapping[str, str]
    """Receipts that earlier collections recorded, by name."""
    read: dict[str, documents.AllocationPlan] = field(default_factory=dict)
    """Plans by allocation, each read and checked once."""
    places: dict[str, AllocationPaths] = field(default_factory=dict)
    """Where each allocation's own files are, by its id."""
    memory: Memory = field(default_factory=Memory)
    """What an earlier collection found right."""
    left: LeftBehind = NOTHING
    """What bundles left behind."""

    def place(self, allocation: str) -> AllocationPaths:
        """Return where an allocation's own files are."""
        found = self.places.get(allocation)
        if found is None:
            found = self.places[allocation] = self.paths.allocation(allocation)
        return found

    def slot(self, attempt: acts.Attempt) -> documents.Slot:
        """Return the slot of a try.

        Raises:
            EvidenceError: The protocol has none of this name.
        """
        slot = self.slots.get(attempt.slot)
        if slot is None:
            where = str(self.paths.allocation(attempt.allocation).plan)
            raise EvidenceError(f"{attempt.slot} is not a slot of the protocol", where=where)
        return slot

    def allocation(self, allocation: str) -> documents.AllocationPlan:
        """Return the plan of an allocation.

        Raises:
            EvidenceError: It is not the one that the ledger's intent names.
        """
        if allocation not in self.read:
            where = self.place(allocation).plan
            known = self.history.allocations[allocation]
            intended = self.history.submissions[known.submission].intent.allocations[known.index].plan_sha256
            data = files.read_regular(where)
            if files.sha256_bytes(data) != intended:
                why = f"its SHA-256 is {files.sha256_bytes(data)}, the ledger's intent says {intended}"
                raise EvidenceError("changed after it was intended", where=str(where), why=why)
            self.read[allocation] = documents.AllocationPlan.parse(data, where=str(where))
        return self.read[allocation]

    def attempt(self, attempt: acts.Attempt) -> documents.PlannedAttempt:
        """Return what was planned of one try.

        Raises:
            EvidenceError: Its allocation does not plan it, or not as the protocol and the ledger's intent do.
        """
        where = str(self.place(attempt.allocation).plan)
        slot = self.slot(attempt)
        found = [
            one
            for one in self.allocation(attempt.allocation).attempts
            if AttemptKey(one.slot, one.attempt, one.segment) == attempt.key
        ]
        if len(found) != 1:
            raise EvidenceError(f"plans {attempt.key.receipt_name} {len(found)} times", where=where)
        planned = found[0]
        wanted = (slot.kind, slot.workload, slot.repeat, slot.pair, slot.order)
        if (planned.kind, planned.workload, planned.repeat, planned.pair, planned.order) != wanted:
            raise EvidenceError(f"{attempt.slot} is planned otherwise than in the protocol", where=where)
        if planned.resume != attempt.resume:
            raise EvidenceError(f"{attempt.key.text} is planned otherwise than in the ledger's intent", where=where)
        return planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """What one try left."""

    attempt: acts.Attempt
    """What the ledger says of it."""
    allocation: acts.Allocation
    """What the ledger says of its allocation."""
    folder: AttemptPaths
    slot: documents.Slot | None = None
    """None where there is no receipt."""
    sealed: SealedAttempt | None = None
    """None where there is no receipt, or where it cannot be taken."""
    start: documents.Start | None = None
    """Of a try without a receipt that has an ending, if it began."""
    findings: tuple[Finding, ...] = ()
    """Why it cannot be taken."""
    look: Look | None = None
    """What the file system said before any of it was read; None where there is no receipt."""

    @property
    def key(self) -> AttemptKey:
        """What names it."""
        return self.attempt.key

    @property
    def is_open(self) -> bool:
        """Whether it has no ending yet."""
        return self.slot is None and self.attempt.ended is None


def _read_ended(place: AllocationPaths, attempt: acts.Attempt) -> documents.Ended | None:
    """Return what a try's allocation says that it wrote; None where it says nothing, as that of a killed job.

    Raises:
        EvidenceError: It is not the harness's, or another allocation's.
    """
    data = files.read_if_there(place.ended)
    if data is None:
        return None
    ended = documents.Ended.parse(data, where=str(place.ended))
    if ended.allocation != attempt.allocation:
        raise EvidenceError(f"is that of allocation {ended.allocation}", where=str(place.ended))
    return ended


def _read_receipt(place: AllocationPaths, attempt: acts.Attempt, folder: AttemptPaths) -> bytes | None:
    """Return a try's receipt, which must be the one that its allocation says that it wrote; None if there is none.

    Raises:
        EvidenceError: A receipt is gone, another one, or not the harness's.
    """
    # Read before the receipt is looked for: every receipt that it names is there already.
    ended = _read_ended(place, attempt)
    receipt = files.read_regular(folder.receipt) if os.path.lexists(folder.receipt) else None
    if ended is not None:
        digest = files.sha256_bytes(receipt) if receipt is not None else ""
        if contradiction := ended.contradiction(attempt.key.receipt_name, digest):
            raise EvidenceError(contradiction, where=str(folder.receipt))
    return receipt


def _require_returned(plans: Plans, attempt: acts.Attempt, folder: AttemptPaths) -> None:
    """Refuse what an attempt of a bundle cannot have left here by itself: an ingestion was killed, or it was put there.

    Raises:
        EvidenceError: The ledger does not say that it came back.
    """
    if not plans.history.is_detached(attempt.allocation) or plans.history.is_returned(attempt.key):
        return
    for path in (folder.receipt, folder.start):
        if os.path.lexists(path):
            hint = "campaign bundle ingest PATH, once more"
            raise EvidenceError("no act of the ledger says that it was ingested", where=str(path), hint=hint)


def _read_start(folder: AttemptPaths) -> documents.Start | None:
    if not folder.start.exists():
        return None
    return documents.Start.parse(files.read_regular(folder.start), where=str(folder.start))


def read_try(plans: Plans, attempt: acts.Attempt) -> Try:
    """Read and check what one try left, the checkpoints of a segment left out.

    Args:
        plans: What was asked for.
        attempt: The try, as the ledger knows it.

    Raises:
        EvidenceError: It is not what was asked for.
        OSError: It cannot be looked at.
    """
    folder = plans.paths.attempt(attempt.slot, attempt.attempt, attempt.segment)
    if (unchanged := _read_unchanged(plans, attempt, folder)) is not None:
        return unchanged
    allocation = plans.place(attempt.allocation)
    known_allocation = plans.history.allocations[attempt.allocation]
    receipt = _read_receipt(allocation, attempt, folder)
    _require_returned(plans, attempt, folder)
    if receipt is None:
        if seen := plans.history.sealed.get(attempt.key.receipt_name):
            word = "collected" if attempt.key.receipt_name in plans.known else "seen"
            raise EvidenceError(f"{word} before with SHA-256 {seen}, now there is none", where=str(folder.receipt))
        if attempt.ended is None:
            return Try(attempt=attempt, allocation=known_allocation, folder=folder)
        start = _read_start(folder)
        return Try(
            attempt=attempt,
            allocation=known_allocation,
            folder=folder,
            start=start,
            findings=tuple(check_job(start, allocation)) if start is not None else (),
        )
    look = look_at(folder, allocation)
    planned = plans.attempt(attempt)
    remembered = plans.memory.tries.get(attempt.key)
    stored_sha256 = remembered.receipt_sha256 if remembered is not None else ""
    expected = expect(plans.frozen, planned, attempt.allocation)
    sealed, findings = read_attempt(folder, expected, receipt=receipt, stored_sha256=stored_sha256, left=plans.left)
    if sealed is not None and sealed.receipt.ending is Ending.VOID:
        findings = (*findings, Finding(where=str(folder.receipt), what="no attempt can end void by itself"))
    elif sealed is not None:
        findings = (*check_job(sealed.start, allocation), *_check_kind(plans, attempt, sealed, planned, folder))
    return Try(
        attempt=attempt,
        allocation=known_allocation,
        folder=folder,
        slot=plans.slot(attempt),
        sealed=None if findings else sealed,
        findings=findings,
        look=look,
    )


def _check_kind(
    plans: Plans,
    attempt: acts.Attempt,
    sealed: SealedAttempt,
    planned: documents.PlannedAttempt,
    folder: AttemptPaths,
) -> Iterator[Finding]:
    """Yield what its family finds wrong with a try.

    All of it follows from sealed bytes, plan and protocol: where the rows are stored it followed from the same ones.
    """
    if sealed.is_stored:
        return
    protocol = plans.frozen.protocol
    is_known = plans.known.get(attempt.key.receipt_name) == sealed.receipt_sha256
    yield from check_attempt(sealed, planned, protocol, folder, is_known=is_known)
    yield from runs.check_attempt(sealed, planned, protocol, folder)


def _read_unchanged(plans: Plans, attempt: acts.Attempt, folder: AttemptPaths) -> Try | None:
    """Return a try of which the file system says that nothing changed since every byte of it was found right.

    None if it must be read: then everything is checked as if it had never been.
    """
    remembered = plans.memory.tries.get(attempt.key)
    if plans.memory.care is not Care.STAMPS or remembered is None or not remembered.stamp:
        return None
    try:
        look = look_at(folder, plans.place(attempt.allocation))
    except OSError:
        return None
    if look.stamp != remembered.stamp:
        return None
    sealed = read_unchanged(folder, remembered.receipt_sha256)
    if sealed is None:
        return None
    return Try(
        attempt=attempt,
        allocation=plans.history.allocations[attempt.allocation],
        folder=folder,
        slot=plans.slot(attempt),
        sealed=sealed,
        look=look,
    )
