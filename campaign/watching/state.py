"""The state of every attempt and slot, from the ledger, the files of the jobs and the scheduler's records.

Evidence counts in this order: a sealed receipt, an ending in the ledger, the queue, the accounting database, and last
what the controller shows of a job by its number. What none of them tells is unknown, and unknown is neither success nor
failure: nothing is submitted again because of it. A job that the scheduler no longer knows becomes lost once it gave no
sign of life for a deadline.

An attempt at a run is a chain of segments, each of which is looked at like an attempt of its own. Its ending is that of
its last segment, and what decides about another attempt sees that one alone.

What an amendment made void is as if it had not been, but for its number: a slot whose attempts are all void is planned.
"""

from __future__ import annotations

import enum
import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from acceptance.formats import Ending
from campaign.documents import Ended, Protocol, Receipt, Retries, Slot, Started, slot_for
from campaign.keys import AttemptKey
from campaign.submission.acts import Allocation, Attempt, History


class AttemptState(enum.StrEnum):
    """Where one attempt stands."""

    INTERRUPTED = "interrupted"
    """Intended, but whether a scheduler got it has yet to be found out."""
    PENDING = "pending"
    RUNNING = "running"
    UNKNOWN = "unknown"
    AWAY = "away"
    """In a bundle that was written and of which it has not come back."""
    ENDED = "ended"


class SlotState(enum.StrEnum):
    """Where one slot stands."""

    PLANNED = "planned"
    INTERRUPTED = "interrupted"
    PENDING = "pending"
    RUNNING = "running"
    UNKNOWN = "unknown"
    AWAY = "away"
    """Its attempt is in a bundle, and has not come back."""
    COMPLETED = "completed"
    CUT = "cut"
    """A run whose last segment was cut off, and that goes on in another one, which is not yet submitted."""
    RETRYABLE = "retryable"
    """Ended in a way that allows another attempt, which is not yet submitted."""
    EXHAUSTED = "exhausted"
    """Ended in such a way, but the retry rule grants no further attempt."""
    FAILED = "failed"
    """Ended in a way that is final."""
    NOT_DUE = "not due"
    """A run of an extension that no verdict asks for."""


CUTS = frozenset(
    {Ending.TIME_LIMIT, Ending.PREEMPTED, Ending.NODE_FAIL, Ending.LOST, Ending.CANCELLED, Ending.NO_SPACE}
)
"""Endings of a segment after which the same attempt at a run goes on in another one."""
MISSING = frozenset({SlotState.PLANNED, SlotState.CUT, SlotState.RETRYABLE})
"""States in which a slot may be submitted."""
ACTIVE = frozenset({SlotState.INTERRUPTED, SlotState.PENDING, SlotState.RUNNING, SlotState.UNKNOWN})
"""States that will change without a new attempt."""
OPEN = ACTIVE | {SlotState.AWAY}
"""States in which an attempt has not ended: those, and what only a person can bring back or give up."""
OUT_OF_REACH = frozenset({SlotState.EXHAUSTED, SlotState.FAILED})
"""States in which a slot can no longer be completed."""


class JobStage(enum.Enum):
    """What is known of an allocation's job."""

    NONE = "none"
    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"
    AWAY = "away"
    """It is a bundle, of which no scheduler knows anything."""
    ABSENT = "absent"
    """The scheduler answered, and does not know the job or knows only an outdated state."""
    UNKNOWN = "unknown"
    """The scheduler did not answer, or in a word that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """An allocation's job, as far as its scheduler told."""

    job: str
    stage: JobStage
    state: str = ""
    reason: str = ""
    node: str = ""
    ended_at: float = 0.0
    source: str = ""
    hopeless: str = ""
    """Why a pending job will not start by itself; empty if it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationFacts:
    """What one allocation left on disk so far, and what its scheduler says."""

    started: Started | None
    ended: Ended | None
    job: Job
    last_sign_at: float
    """The latest time at which something of it is known to have lived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFacts:
    """What one attempt left on disk so far."""

    began: bool
    node: str
    receipt: Receipt | None
    receipt_sha256: str = ""
    """Empty where there is no receipt, or none that can be used."""
    problem: str
    """Why the receipt that is there cannot be used; empty otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long silence is no ending, in seconds."""

    absent_s: float = 600.0
    """For a job that its scheduler does not know."""
    visible_s: float = 15.0
    """For the files of a job that has ended, on a shared file system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStatus:
    """The state of one attempt, or of one segment of an attempt at a run."""

    slot: str
    attempt: int
    segment: int = 0
    """Which segment of a run; 0 for everything else."""
    allocation: str
    job: str
    state: AttemptState
    ending: Ending | None
    reason: str
    node: str
    source: str
    """What tells: ``receipt``, ``ledger``, ``squeue``, ``sacct``, ``scontrol``, ``process``, ``files``, ``bundle``."""
    receipt: Receipt | None
    receipt_sha256: str = ""
    """Empty where there is no receipt."""
    hopeless: str = ""
    """Why it waits for what will not come; empty if it does not."""

    @property
    def key(self) -> AttemptKey:
        """What names it."""
        return AttemptKey(self.slot, self.attempt, self.segment)


Chain: TypeAlias = tuple[AttemptStatus, ...]
"""The segments of one attempt at a run, in order; a single one for everything else."""


def chains_of(attempts: Sequence[AttemptStatus]) -> tuple[Chain, ...]:
    """Return a slot's attempts as chains of segments, in the order given."""
    chains: dict[int, list[AttemptStatus]] = {}
    for one in attempts:
        chains.setdefault(one.attempt, []).append(one)
    return tuple(tuple(chain) for chain in chains.values())


class _Segment(typing.Protocol):
    """What is known of one segment: of the ledger's records and of the files alike."""

    @property
    def ending(self) -> Ending | None:
        """How it ended; None while it is under way."""


_SegmentT = TypeVar("_SegmentT", bound=_Segment)


def deciding(chain: Sequence[_SegmentT]) -> _SegmentT:
    """Return the segment whose ending is the attempt's: the last one.

    A segment that was given up and sealed another ending after all, which allowed no further one, ended the attempt
    then: what came after it is surplus.
    """
    return next((one for one in chain if one.ending is not None and one.ending not in CUTS), chain[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotStatus:
    """The state of one slot, with all its attempts."""

    slot: Slot
    name: str
    """The slot's name with the candidate's id."""
    state: SlotState
    attempts: tuple[AttemptStatus, ...]
    """Those that count, in order; of a run every segment of every attempt."""
    void: tuple[AttemptStatus, ...] = ()
    """Those before them, which an amendment made void: the slot is as if they had not been."""

    @property
    def num_numbered(self) -> int:
        """The number of the last attempt so far, void ones included; 0 if there is none."""
        return max((one.attempt for one in (*self.void, *self.attempts)), default=0)

    @property
    def chains(self) -> tuple[Chain, ...]:
        """The attempts, each as its segments."""
        return chains_of(self.attempts)

    @property
    def reason(self) -> str:
        """Why the last attempt stands as it does."""
        return self.attempts[-1].reason if self.attempts else ""

    @property
    def endings(self) -> tuple[Ending, ...]:
        """The endings of the attempts that have ended, in order."""
        return _endings(self.chains)

    @property
    def completed(self) -> AttemptStatus | None:
        """The lowest-numbered completed attempt; of a run its last segment."""
        return next((one for one in map(deciding, self.chains) if one.ending is Ending.COMPLETED), None)


def _endings(chains: Sequence[Chain]) -> tuple[Ending, ...]:
    return tuple(one.ending for one in map(deciding, chains) if one.ending is not None)


_ENDING_OF_STATE = {
    "CANCELLED": Ending.CANCELLED,
    "REVOKED": Ending.CANCELLED,
    "TIMEOUT": Ending.TIME_LIMIT,
    "DEADLINE": Ending.TIME_LIMIT,
    "NODE_FAIL": Ending.NODE_FAIL,
    "BOOT_FAIL": Ending.NODE_FAIL,
    "LAUNCH_FAILED": Ending.NODE_FAIL,
    "PREEMPTED": Ending.PREEMPTED,
}


_REASONS = frozenset(ending.value for ending in Ending) - {Ending.COMPLETED.value, Ending.VOID.value}
"""Reasons of ended.json that are also the ending of the attempts which were not made."""


def ending_of_state(state: str, *, began: bool) -> Ending:
    """Return the ending of an attempt without a receipt, from its job's final state.

    Running out of memory is the side's own doing only if the side had begun.
    """
    if state == "OUT_OF_MEMORY" and began:
        return Ending.CRASH
    return _ENDING_OF_STATE.get(state, Ending.LOST)


def rule_of_runs(retries: Retries) -> Retries:
    """Return what of the retry rule holds for runs: one whose segments are used up does not start again from nothing.

    Nor does one that a person stopped: whoever stops may have seen the curve. The other endings, and how many attempts
    there may be, are as for everything else. Acceptance, which knows no person's wish, does the same but for that.
    """
    never = (Ending.TIME_LIMIT, Ending.WINDOW_SHORT, Ending.CANCELLED)
    return retries.replace(
        again=tuple(one for one in retries.again if one not in never),
        again_once=tuple(one for one in retries.again_once if one not in never),
    )


def allows_another(retries: Retries, endings: Sequence[Ending]) -> bool:
    """Return whether the retry rule grants another attempt after these endings."""
    if len(endings) >= retries.max_attempts:
        return False
    return all(
        ending in retries.again or (ending in retries.again_once and endings[: index + 1].count(ending) == 1)
        for index, ending in enumerate(endings)
    )


def _ended_without_receipt(facts: AttemptFacts, allocation: Allocation, where: AllocationFacts) -> tuple[Ending, str]:
    job = where.job
    if where.ended is not None and where.ended.reason in _REASONS:
        said = f": {where.ended.detail}" if where.ended.detail else ""
        return Ending(where.ended.reason), f"its allocation ended before it was made: {where.ended.reason}{said}"
    ending = ending_of_state(job.state, began=facts.began)
    if ending in (Ending.LOST, Ending.CANCELLED) and allocation.cancelled is not None:
        return Ending.CANCELLED, f"campaign cancel: {allocation.cancelled.reason}"
    return ending, f"its job {job.job} ended as {job.state or 'gone'} without a receipt"


_Judged: TypeAlias = tuple[AttemptState, Ending | None, str]


def _without_job(allocation: Allocation, job: Job) -> _Judged:
    if allocation.cancelled is None:
        return AttemptState.INTERRUPTED, None, job.reason or "its submission was interrupted"
    return AttemptState.ENDED, Ending.CANCELLED, f"cancelled before it was submitted: {allocation.cancelled.reason}"


def _while_running(facts: AttemptFacts, where: AllocationFacts) -> _Judged:
    if facts.began:
        return AttemptState.RUNNING, None, ""
    return AttemptState.PENDING, None, "its allocation runs" if where.started is not None else "its job runs"


def _why_wait(where: AllocationFacts, now: float, patience: Patience) -> str:
    """Return why an attempt whose job is no longer seen to run may still leave a receipt; empty if it may not."""
    job = where.job
    if job.stage is JobStage.ENDED and now - job.ended_at < patience.visible_s:
        return "its job has ended; its files may not be visible yet"
    if job.stage is JobStage.ABSENT and not (now - where.last_sign_at > patience.absent_s):
        return job.reason or "the scheduler does not know its job"
    return ""


def _from_bundle(facts: AttemptFacts, allocation: Allocation, where: AllocationFacts) -> _Judged:
    """Return the state of an attempt without a receipt that was written into a bundle; nothing times out by itself."""
    if allocation.cancelled is not None:
        return AttemptState.ENDED, Ending.CANCELLED, f"campaign bundle abandon: {allocation.cancelled.reason}"
    if where.ended is not None and not facts.began and where.ended.reason in _REASONS:
        return AttemptState.ENDED, *_ended_without_receipt(facts, allocation, where)
    if facts.began:
        return AttemptState.ENDED, Ending.LOST, f"begun in {where.job.reason}, and it left no receipt"
    if where.ended is not None:
        return AttemptState.ENDED, Ending.LOST, f"never begun in {where.job.reason}, which is at its end"
    return AttemptState.AWAY, None, where.job.reason


def _from_job(
    facts: AttemptFacts, allocation: Allocation, where: AllocationFacts, now: float, patience: Patience
) -> _Judged:
    job = where.job
    if job.stage is JobStage.NONE:
        return _without_job(allocation, job)
    if job.stage is JobStage.PENDING:
        return AttemptState.PENDING, None, f"{job.reason}: {job.hopeless}" if job.hopeless else job.reason
    if job.stage is JobStage.UNKNOWN:
        return AttemptState.UNKNOWN, None, job.reason
    # The harness seals all receipts before it writes that the allocation ended: then nothing more will come.
    if where.ended is None:
        if job.stage is JobStage.RUNNING:
            return _while_running(facts, where)
        if why := _why_wait(where, now, patience):
            return AttemptState.UNKNOWN, None, why
    return AttemptState.ENDED, *_ended_without_receipt(facts, allocation, where)


def reason_of(receipt: Receipt, allocation: Allocation) -> str:
    """Return why a sealed attempt ended so, with the operator's reason where `campaign cancel` gave one.

    The harness knows no more than that it was told to stop; the ledger says why.

    Args:
        receipt: What the attempt sealed.
        allocation: Its allocation as the ledger knows it.
    """
    if receipt.ending is not Ending.CANCELLED or allocation.cancelled is None:
        return receipt.reason
    return "; ".join(filter(None, [f"campaign cancel: {allocation.cancelled.reason}", receipt.reason]))


def resolve_attempt(
    attempt: Attempt,
    allocation: Allocation,
    facts: AttemptFacts,
    where: AllocationFacts,
    *,
    now: float,
    patience: Patience,
) -> AttemptStatus:
    """Return the state of one attempt.

    Args:
        attempt: The attempt as the ledger knows it.
        allocation: Its allocation as the ledger knows it.
        facts: What the attempt left on disk.
        where: What is known of its allocation.
        now: Seconds since the epoch.
        patience: How long silence is no ending.
    """
    ending: Ending | None
    if facts.receipt is not None:
        state, ending, reason = AttemptState.ENDED, facts.receipt.ending, reason_of(facts.receipt, allocation)
        source = "receipt"
    elif facts.problem:
        state, ending, reason, source = AttemptState.UNKNOWN, None, facts.problem, "files"
    elif attempt.ended is not None:
        state, ending, reason, source = AttemptState.ENDED, attempt.ended.ending, attempt.ended.reason, "ledger"
    else:
        is_away = where.job.stage is JobStage.AWAY
        state, ending, reason = (
            _from_bundle(facts, allocation, where) if is_away else _from_job(facts, allocation, where, now, patience)
        )
        source = where.job.source
    return AttemptStatus(
        slot=attempt.slot,
        attempt=attempt.attempt,
        segment=attempt.segment,
        allocation=attempt.allocation,
        job=where.job.job,
        state=state,
        ending=ending,
        reason=reason,
        node=facts.node or where.job.node or (attempt.ended.node if attempt.ended is not None else ""),
        source=source,
        receipt=facts.receipt,
        receipt_sha256=facts.receipt_sha256,
        hopeless=where.job.hopeless if state is AttemptState.PENDING else "",
    )


_SLOT_STATE = {
    AttemptState.INTERRUPTED: SlotState.INTERRUPTED,
    AttemptState.PENDING: SlotState.PENDING,
    AttemptState.RUNNING: SlotState.RUNNING,
    AttemptState.UNKNOWN: SlotState.UNKNOWN,
    AttemptState.AWAY: SlotState.AWAY,
}


def resolve_slot(attempts: Sequence[AttemptStatus], retries: Retries, *, max_segments: int = 0) -> SlotState:
    """Return the state of a slot from its attempts, in order of their numbers.

    Args:
        attempts: Its attempts; of a run every segment.
        retries: The retry rule.
        max_segments: Most segments of an attempt at a run; 0 for everything else.
    """
    if not attempts:
        return SlotState.PLANNED
    for attempt in attempts:
        if attempt.state is not AttemptState.ENDED:
            return _SLOT_STATE[attempt.state]
    rule = rule_of_runs(retries) if max_segments else retries
    chains = chains_of(attempts)
    endings = _endings(chains)
    if Ending.COMPLETED in endings:
        before = endings[: endings.index(Ending.COMPLETED)]
        # A completed attempt counts only if every earlier one ended in a way that allowed it.
        return SlotState.COMPLETED if allows_another(rule, before) else SlotState.FAILED
    is_cut = max_segments > 0 and endings[-1] in CUTS
    if is_cut and chains[-1][-1].segment < max_segments and allows_another(rule, endings[:-1]):
        return SlotState.CUT
    if allows_another(rule, endings):
        return SlotState.RETRYABLE
    return SlotState.EXHAUSTED if is_cut or endings[-1] in (*rule.again, *rule.again_once) else SlotState.FAILED


def resolve_slots(
    protocol: Protocol,
    candidate: str,
    history: History,
    attempts: Mapping[AttemptKey, AttemptStatus],
    due: Collection[str] = (),
) -> dict[str, SlotStatus]:
    """Return the state of every slot, by name, in the order of the protocol.

    Args:
        protocol: The frozen protocol.
        candidate: Id of the candidate; empty for the baseline's slots alone.
        history: What the ledger says.
        attempts: The state of every attempt, segment by segment.
        due: The recipes whose extension is due for this candidate.
    """
    states: dict[str, SlotStatus] = {}
    added = protocol.extension_runs()
    max_segments = protocol.convergence.max_segments if protocol.convergence is not None else 0
    for slot in protocol.slots:
        if slot.side == "candidate" and not candidate:
            continue
        name = slot_for(slot.slot, candidate)
        made = [attempts[one.key] for one in history.attempts(name)]
        own = tuple(one for one in made if not history.is_void(one.slot, one.attempt))
        void = tuple(one for one in made if history.is_void(one.slot, one.attempt))
        state = resolve_slot(own, protocol.retries, max_segments=max_segments if slot.kind == "run" else 0)
        if slot.slot in added and slot.workload not in due and state not in (SlotState.COMPLETED, *ACTIVE):
            state = SlotState.NOT_DUE
        states[name] = SlotStatus(slot=slot, name=name, state=state, attempts=own, void=void)
    return states
