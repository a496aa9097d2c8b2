"""What the ledger says about submissions: the data of its acts, and their history folded into records.

The order of acts for one submission is ``intent``, then ``submitted`` or ``not_submitted``; after ``not_submitted`` the
same submission may be intended again, with the same key, allocations and attempt numbers, or smaller ones with parts of
its allocations, each with the same attempts.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from acceptance.formats import Ending
from campaign.documents import Amended, CheckpointName, Document, Entry, Natural, Positive
from campaign.errors import EvidenceError
from campaign.keys import AttemptKey

Cluster: TypeAlias = Literal["slurm", "local", "detached"]


class IntendedAttempt(Document):
    """One attempt of an intended allocation."""

    slot: str
    attempt: Positive
    updates: Natural
    """Updates per window; 0 for a pilot and for a case."""
    inputs_sha256: str = ""
    """Digest of the canonical inputs of a case; empty for everything else."""
    examples_sha256: str = ""
    """Of the examples that the baseline's pilot took, for the candidate's of several processes; else empty."""
    segment: Natural = 0
    """Which segment of a run; 0 for everything else."""
    resume: CheckpointName | None = None
    """What the segment starts from; None for the beginning."""


class IntendedAllocation(Document):
    """One allocation that is about to be submitted."""

    allocation: str
    minutes: Positive
    """Time limit asked of the scheduler."""
    plan_sha256: str
    """Digest of its allocation.json."""
    attempts: tuple[IntendedAttempt, ...]


class Intent(Document):
    """Data of ``intent``: written before anything reaches a scheduler."""

    submission: str
    cluster: Cluster
    host: str
    boot_id: str
    candidate: str
    """Id of the candidate whose slots are among the attempts; empty for the baseline alone."""
    allocations: tuple[IntendedAllocation, ...]
    cluster_name: str = ""
    """Name of the Slurm cluster that is asked; empty for a local job, and where the controller does not tell."""
    excluded: dict[str, str] = {}  # noqa: RUF012 - msgspec gives each document a copy of its own
    """Nodes that it avoids because they failed, with the reasons; what the configuration excludes is not among them."""


class Submitted(Document):
    """Data of ``submitted``: the scheduler has the job."""

    submission: str
    cluster: Cluster
    job: str
    """Slurm's job id (of the array, if it is one), the local controller's process id, or a bundle's id."""
    array: bool
    host: str
    boot_id: str
    process_start: int
    """Start time of a local controller in clock ticks since boot; 0 on Slurm."""
    source: str
    """How it is known: ``transport``, ``bundle``, or what a later reconciliation found it by."""
    cluster_name: str = ""
    """Name of the Slurm cluster that has it; empty for a local job, and where the controller did not tell."""
    place: str = ""
    """Where a bundle was written; empty for every job."""


class NotSubmitted(Document):
    """Data of ``not_submitted``: the scheduler surely does not have it."""

    submission: str
    reason: str


class Cancelled(Document):
    """Data of ``cancelled``: a person asked for the end of these allocations."""

    allocations: tuple[str, ...]
    reason: str


class EndedAttempt(Document):
    """Data of ``ended``: an attempt that left no receipt, with the ending that the scheduler's record gives it."""

    slot: str
    attempt: Positive
    segment: Natural = 0
    """Which segment of a run; 0 for everything else."""
    allocation: str
    ending: Ending
    reason: str
    source: str
    node: str = ""
    """Where it ran, as far as anything tells; empty if nothing does."""


class SeenReceipts(Document):
    """Data of ``sealed``: receipts that were there when a command looked, and must be there from then on."""

    receipts: dict[str, str]
    """SHA-256 by name; only those that no earlier act names."""


class Ingested(Document):
    """Data of ``ingested``: what came back of a bundle, all that came before included."""

    submission: str
    bundle: str
    receipts: dict[str, str]
    """SHA-256 by name, of every attempt that sealed one."""
    begun: tuple[str, ...]
    """Names of the attempts, and segments, that were begun, left no receipt and surely run no more."""
    records: dict[str, str]
    """SHA-256 of what the harness says of its allocations, by path in the home: started.json, the calls, ended.json."""
    left: dict[str, tuple[str, Natural]]
    """SHA-256 and bytes of the files that were left behind, by path in the home: they count as there."""
    complete: bool
    """Whether nothing more can come."""
    source_sha256: str
    """Digest of the list of all files that were taken or left, by path: what came, whatever it came in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt, or one segment of an attempt at a run, as the ledger knows it."""

    slot: str
    attempt: int
    segment: int = 0
    """Which segment of a run; 0 for everything else."""
    updates: int
    resume: CheckpointName | None = None
    """What the segment starts from; None for the beginning."""
    allocation: str
    ended: EndedAttempt | None

    @property
    def key(self) -> AttemptKey:
        """What names it."""
        return AttemptKey(self.slot, self.attempt, self.segment)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """One allocation as the ledger knows it."""

    allocation: str
    submission: str
    index: int
    """Place in the submission, and so its array index."""
    minutes: int
    plan_sha256: str
    attempts: tuple[IntendedAttempt, ...]
    cancelled: Cancelled | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One submission as the ledger knows it."""

    intent: Intent
    intended_at: float
    submitted: Submitted | None
    submitted_at: float
    not_submitted: NotSubmitted | None

    @property
    def key(self) -> str:
        """The key that its job carries as name and comment."""
        return self.intent.submission

    @property
    def is_open(self) -> bool:
        """Whether it still has to be submitted, or it is not known whether it was."""
        return self.submitted is None

    @property
    def is_detached(self) -> bool:
        """Whether it is a bundle that was written, and that no scheduler knows."""
        return self.submitted is not None and self.submitted.cluster == "detached"

    def job_of(self, index: int) -> str:
        """Return the job id of the allocation with this index; empty while there is none."""
        if self.submitted is None:
            return ""
        return f"{self.submitted.job}_{index}" if self.submitted.array else self.submitted.job


@dataclass(slots=True)
class History:
    """All submissions of a campaign, folded from the ledger."""

    submissions: dict[str, Submission] = field(default_factory=dict)
    allocations: dict[str, Allocation] = field(default_factory=dict)
    slots: dict[str, dict[AttemptKey, Attempt]] = field(default_factory=dict)
    """Every attempt, a run's segment by segment, by the slot's name."""
    superseded: dict[str, set[str]] = field(default_factory=dict)
    """SHA-256 of the plans that allocations had in submissions that were refused and cut into smaller ones."""
    sealed: dict[str, str] = field(default_factory=dict)
    """SHA-256 of every receipt that a command has seen, by name."""
    reported: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the verdict of the last report on each candidate."""
    reported_at: dict[str, int] = field(default_factory=dict)
    """The ledger's number of that report."""
    candidates: list[str] = field(default_factory=list)
    """Ids of the frozen candidates, oldest first."""
    ingested: dict[str, Ingested] = field(default_factory=dict)
    """What came back of each bundle, by the key of its submission: as the last act has it."""
    amendments: dict[int, Amended] = field(default_factory=dict)
    """By the ledger's number, oldest first."""
    voided: dict[str, int] = field(default_factory=dict)
    """Number of the last attempt that is void, by slot: it and all before it are."""
    _voidings: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """By slot, the last attempt that each amendment made void and the ledger's number of it: both only grow."""
    _last: dict[str, int] = field(default_factory=dict)
    """Greatest number of an attempt, by slot."""

    def attempts(self, slot: str) -> list[Attempt]:
        """Return a slot's attempts in order of their numbers, each of a run segment by segment."""
        known = self.slots.get(slot, {})
        return [known[key] for key in sorted(known)]

    def attempt(self, key: AttemptKey) -> Attempt:
        """Return one attempt, or one segment of an attempt at a run; KeyError if it was never intended."""
        return self.slots[key.slot][key]

    @property
    def left(self) -> dict[str, tuple[str, int]]:
        """SHA-256 and bytes of every file that a bundle left behind, by path in the home."""
        return {path: about for one in self.ingested.values() for path, about in one.left.items()}

    def is_detached(self, allocation: str) -> bool:
        """Return whether an allocation was written into a bundle."""
        return self.submissions[self.allocations[allocation].submission].is_detached

    def is_returned(self, key: AttemptKey) -> bool:
        """Return whether what an attempt of a bundle left has come back, its receipt if it sealed one."""
        attempt = self.attempt(key)
        found = self.ingested.get(self.allocations[attempt.allocation].submission)
        return found is not None and (key.receipt_name in found.receipts or key.receipt_name in found.begun)

    def unseen(self) -> History:
        """Return the same without the attempts whose receipts a command has seen: nothing more can become of them."""
        slots = {
            slot: {key: one for key, one in own.items() if key.receipt_name not in self.sealed}
            for slot, own in self.slots.items()
        }
        names = {one.allocation for own in slots.values() for one in own.values()}
        allocations = {name: one for name, one in self.allocations.items() if name in names}
        return replace(self, slots=slots, allocations=allocations)

    def is_void(self, slot: str, attempt: int) -> bool:
        """Return whether an amendment made an attempt void."""
        return attempt <= self.voided.get(slot, 0)

    def voided_by(self, slot: str, attempt: int) -> int | None:
        """Return the ledger's number of the amendment that made an attempt void; None if it is not void."""
        made = self._voidings.get(slot, [])
        number = bisect_left(made, (attempt, 0))
        return made[number][1] if number < len(made) else None

    def note_attempt(self, attempt: Attempt) -> None:
        """Add an attempt that was intended."""
        self.slots.setdefault(attempt.slot, {})[attempt.key] = attempt
        self._last[attempt.slot] = max(attempt.attempt, self.last_attempt(attempt.slot))

    def last_attempt(self, slot: str) -> int:
        """Return the greatest number of an attempt at a slot; 0 if there is none."""
        return self._last.get(slot, 0)

    def note_amended(self, seq: int, amended: Amended) -> None:
        """Add an amendment, whose attempts must be all that had been made."""
        self.amendments[seq] = amended
        self.voided |= amended.voided_attempts
        for slot, number in amended.voided_attempts.items():
            self._voidings.setdefault(slot, []).append((number, seq))

    def open_submissions(self) -> list[Submission]:
        """Return the submissions that were intended but have no job, in order.

        Not those that a person gave up, nor those of which other submissions have all allocations by now.
        """
        return [
            one for one in self.submissions.values() if one.is_open and self.left_of(one) and not self.is_given_up(one)
        ]

    def left_of(self, submission: Submission) -> tuple[IntendedAllocation, ...]:
        """Return the allocations that no later submission has: one that was refused may be cut into smaller ones."""
        owners = {name: one.submission for name, one in self.allocations.items()}
        return tuple(one for one in submission.intent.allocations if owners.get(one.allocation) == submission.key)

    def is_given_up(self, submission: Submission) -> bool:
        """Return whether a submission surely has no job and all its allocations were cancelled."""
        names = [planned.allocation for planned in self.left_of(submission)]
        cancelled = all(self.allocations[name].cancelled is not None for name in names)
        return submission.not_submitted is not None and submission.submitted is None and cancelled


def _note_intent(history: History, entry: Entry) -> None:
    intent = entry.parse_data(Intent)
    history.submissions[intent.submission] = Submission(
        intent=intent, intended_at=entry.at, submitted=None, submitted_at=0.0, not_submitted=None
    )
    for index, planned in enumerate(intent.allocations):
        before = history.allocations.get(planned.allocation)
        if before is not None and before.submission != intent.submission:
            history.superseded.setdefault(planned.allocation, set()).add(before.plan_sha256)
        history.allocations[planned.allocation] = Allocation(
            allocation=planned.allocation,
            submission=intent.submission,
            index=index,
            minutes=planned.minutes,
            plan_sha256=planned.plan_sha256,
            attempts=planned.attempts,
            cancelled=None,
        )
        for one in planned.attempts:
            attempt = Attempt(
                slot=one.slot,
                attempt=one.attempt,
                segment=one.segment,
                updates=one.updates,
                resume=one.resume,
                allocation=planned.allocation,
                ended=None,
            )
            history.note_attempt(attempt)


def _submission(history: History, key: str, entry: Entry) -> Submission:
    if key not in history.submissions:
        raise EvidenceError(f"{entry.act} names an unknown submission {key!r}", where=entry.where)
    return history.submissions[key]


def _note_submitted(history: History, entry: Entry) -> None:
    data = entry.parse_data(Submitted)
    known = _submission(history, data.submission, entry)
    history.submissions[data.submission] = replace(known, submitted=data, submitted_at=entry.at)


def _note_not_submitted(history: History, entry: Entry) -> None:
    data = entry.parse_data(NotSubmitted)
    known = _submission(history, data.submission, entry)
    history.submissions[data.submission] = replace(known, not_submitted=data)


def _note_cancelled(history: History, entry: Entry) -> None:
    data = entry.parse_data(Cancelled)
    for name in data.allocations:
        if name in history.allocations:
            history.allocations[name] = replace(history.allocations[name], cancelled=data)


def _note_ended(history: History, entry: Entry) -> None:
    data = entry.parse_data(EndedAttempt)
    key = AttemptKey(data.slot, data.attempt, data.segment)
    known = history.slots.get(data.slot, {}).get(key)
    if known is None:
        raise EvidenceError(f"ended names an unknown attempt: {key.text}", where=entry.where)
    if data.ending is Ending.VOID:
        raise EvidenceError(f"{key.text} cannot end void by itself", where=entry.where)
    history.slots[data.slot][key] = replace(known, ended=data)


def _note_sealed(history: History, entry: Entry) -> None:
    receipts = entry.data.get("receipts")
    if not isinstance(receipts, dict) or not all(isinstance(digest, str) for digest in receipts.values()):
        raise EvidenceError(f"{entry.act} names no receipts", where=entry.where)
    for name, digest in receipts.items():
        history.sealed.setdefault(name, digest)


def _note_ingested(history: History, entry: Entry) -> None:
    data = entry.parse_data(Ingested)
    known = _submission(history, data.submission, entry)
    if known.submitted is None or (known.submitted.cluster, known.submitted.job) != ("detached", data.bundle):
        raise EvidenceError(f"ingested names bundle {data.bundle}, which {data.submission} is not", where=entry.where)
    history.ingested[data.submission] = data
    _note_sealed(history, entry)


def _note_candidate(history: History, entry: Entry) -> None:
    candidate = entry.data.get("candidate")
    if not isinstance(candidate, str):
        raise EvidenceError("froze_candidate names no candidate", where=entry.where)
    if candidate not in history.candidates:
        history.candidates.append(candidate)


def _note_reported(history: History, entry: Entry) -> None:
    candidate, verdict = entry.data.get("candidate"), entry.data.get("verdict_sha256")
    if not isinstance(candidate, str) or not isinstance(verdict, str):
        raise EvidenceError("reported names no candidate, or no verdict", where=entry.where)
    history.reported[candidate] = verdict
    history.reported_at[candidate] = entry.seq


def _note_amended(history: History, entry: Entry) -> None:
    data = entry.parse_data(Amended)
    if not data.void or sorted(data.void) != sorted(data.voided_attempts):
        raise EvidenceError("amended does not say which attempts are void", where=entry.where)
    for slot, number in data.voided_attempts.items():
        so_far = history.last_attempt(slot)
        if number != so_far or history.is_void(slot, number):
            what = f"amended makes {number} attempt(s) at {slot} void, where {so_far} had been made"
            raise EvidenceError(what, where=entry.where)
    history.note_amended(entry.seq, data)


_NOTES: dict[str, Callable[[History, Entry], None]] = {
    "intent": _note_intent,
    "submitted": _note_submitted,
    "not_submitted": _note_not_submitted,
    "cancelled": _note_cancelled,
    "ended": _note_ended,
    "sealed": _note_sealed,
    "collected": _note_sealed,
    "ingested": _note_ingested,
    "froze_candidate": _note_candidate,
    "reported": _note_reported,
    "amended": _note_amended,
}


def fold(entries: Iterable[Entry]) -> History:
    """Fold the ledger's entries, in order, into the history of submissions, which nobody may change.

    Raises:
        EvidenceError: An entry about submissions does not parse, or names something never intended.
    """
    known = tuple(entries)
    # Several parts of one command ask for the history of the very same entries.
    if not (_LAST and len(_LAST[0][0]) == len(known) and all(map(operator.is_, _LAST[0][0], known))):
        history = History()
        for entry in known:
            note = _NOTES.get(entry.act)
            if note is not None:
                note(history, entry)
        _LAST[:] = [(known, history)]
    return _LAST[0][1]


_LAST: list[tuple[tuple[Entry, ...], History]] = []
"""The entries that were folded last, and what came out."""


def first_intents(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Return the act that first planned each allocation, by its id; an intent that reached nobody is made again."""
    found: dict[str, Entry] = {}
    for entry in entries:
        if entry.act == "intent":
            for planned in entry.data["allocations"]:
                found.setdefault(str(planned["allocation"]), entry)
    return found
