"""What the ledger says of submissions and attempts, folded into records.

Nothing is looked at on the disk. An entry that cannot be understood, or that cannot follow the ones before it, is a
fault with its line, and the others are folded all the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from . import names
from .facts import Entry, Facts, Planned
from .findings import EvidenceError
from .strict import Node

DETACHED = "detached"
CLUSTERS = ("slurm", "local", DETACHED)
_MEMO = "history"


class Ended(NamedTuple):
    """The ledger's word on an attempt, or a segment, that left no receipt."""

    seq: int
    ending: str
    allocation: str


class Seen(NamedTuple):
    """A receipt that an act of the ledger named for the first time."""

    seq: int
    sha256: str
    act: str


class Submitted(NamedTuple):
    """A job that a scheduler has."""

    seq: int
    cluster: str
    job: str
    is_array: bool


class Ingested(NamedTuple):
    """What came back of a bundle, as an act of the ledger has it."""

    seq: int
    receipts: Mapping[str, str]
    begun: tuple[str, ...]
    records: Mapping[str, str]
    """SHA-256 of what the harness says of its allocations, by path."""
    left: Mapping[str, tuple[str, int]]
    """SHA-256 and bytes of what stayed on the machine, by path."""
    complete: bool


class Voiding(NamedTuple):
    """What is void of one slot from an amendment on: its first attempts, so many."""

    seq: int
    attempts: int


@dataclass(slots=True, kw_only=True)
class Submission:
    """One submission: all that was intended, and what became of it."""

    key: str
    intents: list[Entry] = field(default_factory=list)
    allocations: list[str] = field(default_factory=list)
    """In the order of the job array."""
    on_slurm: int = 0
    """How often Slurm was asked to take it."""
    submitted: list[Submitted] = field(default_factory=list)
    not_submitted: list[int] = field(default_factory=list)
    """The ledger's numbers of the acts."""

    @property
    def bundle(self) -> str:
        """Id of the bundle that it is; empty where it is none."""
        return next((one.job for one in self.submitted if one.cluster == DETACHED), "")

    @property
    def is_open(self) -> bool:
        """Whether the last intent has no outcome yet."""
        outcomes = [one.seq for one in self.submitted] + self.not_submitted
        return max(outcomes, default=0) < self.intents[-1].seq

    @property
    def was_refused(self) -> bool:
        """Whether no scheduler has it, by the last word."""
        last = max((one.seq for one in self.submitted), default=0)
        return bool(self.not_submitted) and self.not_submitted[-1] > max(last, self.intents[-1].seq)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """One allocation that was intended."""

    id: str
    submission: str
    index: int
    """Place in the submission, and so its array index."""
    plan_sha256: str
    planned: tuple[str, ...]
    """Names of its attempts and segments, in order."""
    seq: int
    """The ledger's number of the first intent that names it."""
    at: float
    """When that was, in seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amendment:
    """One act ``amended``."""

    entry: Entry
    void: tuple[str, ...]
    """Names of the slots."""
    voided_attempts: Mapping[str, int]
    """How many attempts at each slot had been made, by its name: all of them are void."""
    is_platform: bool
    """Whether it declares another platform."""


@dataclass(slots=True, kw_only=True)
class History:
    """All of it."""

    submissions: dict[str, Submission] = field(default_factory=dict)
    allocations: dict[str, Allocation] = field(default_factory=dict)
    planned: dict[str, Planned] = field(default_factory=dict)
    ended: dict[str, Ended] = field(default_factory=dict)
    seen: dict[str, Seen] = field(default_factory=dict)
    cancelled: dict[str, int] = field(default_factory=dict)
    """By allocation, the ledger's number of the first act."""
    ingested: dict[str, Ingested] = field(default_factory=dict)
    """What came back of each bundle, by the key of its submission: as the last act has it."""
    amendments: list[Amendment] = field(default_factory=list)
    voidings: dict[str, list[Voiding]] = field(default_factory=dict)
    """What the amendments made void, by slot, in the ledger's order: never fewer attempts than before."""
    accounted: list[Entry] = field(default_factory=list)
    pruned: list[Entry] = field(default_factory=list)
    decided: list[Entry] = field(default_factory=list)
    fallbacks: list[Entry] = field(default_factory=list)
    """Acts ``fallback_tried``."""
    candidates: dict[str, int] = field(default_factory=dict)
    """By id, the ledger's number of the freeze."""
    reports: dict[str, list[int]] = field(default_factory=dict)
    """By candidate, the ledger's numbers of the reports, in order."""
    closed: Entry | None = None
    faults: list[tuple[str, str]] = field(default_factory=list)
    """Place and reason of everything that cannot be."""

    def voided(self, slot: str, before: int | None = None) -> int:
        """Return how many attempts at a slot are void: its first ones.

        Args:
            slot: The slot.
            before: The ledger's number of an act: what was amended after it does not count. None for all.
        """
        made = self.voidings.get(slot, [])
        number = len(made) if before is None else bisect_left(made, before, key=_seq_of)
        return made[number - 1].attempts if number else 0

    def known_from(self, name: str) -> int:
        """Return the ledger's number of the first act that says how an attempt or a segment ended; 0 until then.

        Args:
            name: Its name in the ledger.
        """
        return min((one.seq for one in (self.seen.get(name), self.ended.get(name)) if one is not None), default=0)

    def given_up(self, submission: Submission) -> int:
        """Return the ledger's number of the act that abandoned a bundle; 0 if none did."""
        return next((self.cancelled[name] for name in submission.allocations if name in self.cancelled), 0)

    def slots(self) -> dict[str, list[Planned]]:
        """Return what was planned at each slot, in the ledger's order."""
        found: dict[str, list[Planned]] = {}
        for planned in self.planned.values():
            found.setdefault(planned.slot, []).append(planned)
        return found


def _seq_of(voiding: Voiding) -> int:
    return voiding.seq


def history_of(facts: Facts) -> History:
    """Return what the ledger says, folded once."""
    found = facts.memo.get(_MEMO)
    if not isinstance(found, History):
        found = facts.memo[_MEMO] = fold(facts.entries)
    return found


def where_of(entry: Entry) -> str:
    """Return the place of a ledger's line."""
    return f"{names.LEDGER}:{entry.seq}"


def fold(entries: Any) -> History:
    """Fold the ledger's entries, in order."""
    history = History()
    for entry in entries:
        note = _NOTES.get(entry.act)
        if note is None:
            continue
        try:
            note(history, entry, Node(entry.data, where_of(entry)))
        except EvidenceError as error:
            history.faults.append((error.where, error.what))
    return history


# --- one act ----------------------------------------------------------------------------------------------------------


def _note_intent(history: History, entry: Entry, data: Node) -> None:
    key = data["submission"].as_text()
    cluster = data["cluster"].as_word(CLUSTERS)
    is_again = key in history.submissions
    submission = history.submissions.setdefault(key, Submission(key=key))
    if is_again:
        _check_again(submission, entry, data)
    submission.intents.append(entry)
    submission.on_slurm += cluster == "slurm"
    if not is_again:
        allocations = list(data["allocations"].items())
        if not allocations:
            raise data.wrong("intends no allocation")
        for index, node in enumerate(allocations):
            _note_allocation(history, submission, entry, node, index)
    elif any(history.allocations[name].submission != key for name in submission.allocations):
        raise data.wrong(f"intends {key} again, of which other submissions have allocations by now")


def _check_again(submission: Submission, entry: Entry, data: Node) -> None:
    """Refuse a second intent of one submission unless it is the first one, made again since nobody got it."""
    first = submission.intents[0]
    if not submission.was_refused:
        raise data.wrong(f"intends {submission.key} again, which no act says was not submitted")
    if first.data.get("allocations") != entry.data.get("allocations"):
        raise data.wrong(f"intends {submission.key} with other allocations than line {first.seq}")


def _note_allocation(history: History, submission: Submission, entry: Entry, node: Node, index: int) -> None:
    name = _part(node["allocation"])
    planned = [_planned(one, name, entry) for one in node["attempts"].items()]
    if not planned:
        raise node.wrong(f"allocation {name} has no attempts")
    if name in history.allocations:
        _move_allocation(history, submission, entry, planned, node, index=index)
        return
    for one in planned:
        if one.name in history.planned:
            raise node.wrong(f"{one.name} was planned before, in allocation {history.planned[one.name].allocation}")
        history.planned[one.name] = one
    submission.allocations.append(name)
    history.allocations[name] = Allocation(
        id=name,
        submission=submission.key,
        index=index,
        plan_sha256=node["plan_sha256"].as_digest(),
        planned=tuple(one.name for one in planned),
        seq=entry.seq,
        at=entry.at,
    )


def _move_allocation(
    history: History, submission: Submission, entry: Entry, planned: list[Planned], node: Node, *, index: int
) -> None:
    """Give an allocation of a submission that nobody got to another one, which is smaller; all else stays as it was."""
    before = history.allocations[planned[0].allocation]
    earlier = history.submissions[before.submission]
    if earlier is submission or earlier.submitted or not earlier.was_refused:
        raise node.wrong(f"allocation {before.id} was intended before, by {before.submission}")
    known = [history.planned[name] for name in before.planned]
    if [replace(one, intent=entry) for one in planned] != [replace(one, intent=entry) for one in known]:
        raise node.wrong(f"allocation {before.id} was intended before with other attempts, by {before.submission}")
    submission.allocations.append(before.id)
    history.allocations[before.id] = replace(
        before, submission=submission.key, index=index, plan_sha256=node["plan_sha256"].as_digest()
    )


def _part(node: Node) -> str:
    """Return a text that can be one part of a path."""
    text = node.as_text()
    if not text or "/" in text or "\0" in text or text in {".", ".."}:
        raise node.wrong(f"{text!r} cannot be the name of a folder")
    return text


def _planned(node: Node, allocation: str, entry: Entry) -> Planned:
    slot = node["slot"].as_text()
    if any(part in {"", ".", ".."} or "\0" in part for part in slot.split("/")):
        raise node.wrong(f"{slot!r} cannot be the name of a slot")
    resume, inputs, segment = node.get("resume"), node.get("inputs_sha256"), node.get("segment")
    examples = node.get("examples_sha256")
    return Planned(
        slot=slot,
        attempt=node["attempt"].as_whole(1),
        segment=segment.as_whole() if segment is not None else 0,
        updates=node["updates"].as_whole(),
        inputs_sha256=inputs.as_text() if inputs is not None else "",
        examples_sha256=examples.as_text() if examples is not None else "",
        resume=_checkpoint_name(resume) if resume is not None else None,
        allocation=allocation,
        intent=entry,
    )


def _checkpoint_name(node: Node) -> Mapping[str, Any]:
    node["segment"].as_whole(1)
    node["update"].as_whole(1)
    node["sha256"].as_digest()
    return node.as_fields()


def _submission(history: History, data: Node) -> Submission:
    key = data["submission"].as_text()
    if key not in history.submissions:
        raise data.wrong(f"names the submission {key}, which was never intended")
    submission = history.submissions[key]
    if not submission.is_open:
        raise data.wrong(f"says a second time what became of {key}")
    return submission


def _note_submitted(history: History, entry: Entry, data: Node) -> None:
    submission = _submission(history, data)
    submission.submitted.append(
        Submitted(entry.seq, data["cluster"].as_word(CLUSTERS), data["job"].as_text(), data["array"].as_flag())
    )


def _note_not_submitted(history: History, entry: Entry, data: Node) -> None:
    _submission(history, data).not_submitted.append(entry.seq)


def _note_cancelled(history: History, entry: Entry, data: Node) -> None:
    for name in data["allocations"].as_texts():
        if name not in history.allocations:
            raise data.wrong(f"names the allocation {name}, which was never intended")
        history.cancelled.setdefault(name, entry.seq)


def _note_ended(history: History, entry: Entry, data: Node) -> None:
    segment = data.get("segment")
    number = segment.as_whole() if segment is not None else 0
    end = f"/{number}" if number else ""
    name = f"{data['slot'].as_text()}/{data['attempt'].as_whole(1)}{end}"
    planned = history.planned.get(name)
    if planned is None:
        raise data.wrong(f"names {name}, which was never planned")
    ended = Ended(entry.seq, data["ending"].as_text(), data["allocation"].as_text())
    if ended.allocation != planned.allocation:
        raise data.wrong(f"puts {name} into allocation {ended.allocation}, it was planned in {planned.allocation}")
    if ended.ending in {"completed", "void"}:
        raise data.wrong(f"says that {name} ended {ended.ending}, which only a receipt can say")
    if name in history.ended:
        raise data.wrong(f"says a second time how {name} ended")
    if name in history.seen:
        seen = history.seen[name]
        raise data.wrong(f"says that {name} left no receipt, and line {seen.seq} names one")
    history.ended[name] = ended


def _note_seen(history: History, entry: Entry, data: Node) -> None:
    for name, digest in data["receipts"].fields():
        sha256 = digest.as_digest()
        seen = history.seen.get(name)
        if name not in history.planned:
            history.faults.append((where_of(entry), f"names a receipt of {name}, which was never planned"))
        elif seen is None:
            history.seen[name] = Seen(entry.seq, sha256, entry.act)
        elif seen.sha256 != sha256:
            what = f"names a receipt of {name} with the SHA-256 {sha256}, line {seen.seq} says {seen.sha256}"
            history.faults.append((where_of(entry), what))


_OF_INGESTED = ("submission", "bundle", "receipts", "begun", "records", "left", "complete", "source_sha256")


def _note_ingested(history: History, entry: Entry, data: Node) -> None:
    data.only(_OF_INGESTED)
    key = data["submission"].as_text()
    submission = history.submissions.get(key)
    if submission is None or not submission.bundle:
        raise data.wrong(f"says that something came back of {key}, which is no bundle")
    data["bundle"].must_be(submission.bundle, f"the ledger's line {submission.submitted[-1].seq}")
    if given_up := history.given_up(submission):
        raise data.wrong(f"takes in results of a bundle that was abandoned in line {given_up}")
    data["source_sha256"].as_digest()
    found = Ingested(
        seq=entry.seq,
        receipts={name: node.as_digest() for name, node in data["receipts"].fields()},
        begun=data["begun"].as_texts(),
        records={path: node.as_digest() for path, node in data["records"].fields()},
        left=dict(_left(data["left"])),
        complete=data["complete"].as_flag(),
    )
    own = {name for one in submission.allocations for name in history.allocations[one].planned}
    strange = sorted({*found.receipts, *found.begun} - own)
    if strange:
        raise data.wrong(f"names {strange[0]}, which was not planned in bundle {submission.bundle}")
    if (before := history.ingested.get(key)) is not None:
        _require_no_less(data, before, found)
    history.ingested[key] = found
    _note_seen(history, entry, data)


def _require_no_less(data: Node, before: Ingested, now: Ingested) -> None:
    """Refuse an act that does not name all that an earlier one of the same bundle does.

    Raises:
        EvidenceError: Something is gone from it, or another one.
    """
    for what, earlier, later in (
        ("receipts", before.receipts, now.receipts),
        ("records", before.records, now.records),
    ):
        if not earlier.items() <= later.items():
            raise data.wrong(f"has fewer or other {what} than line {before.seq}")
    if gone := sorted({*before.begun} - {*now.begun, *now.receipts}):
        raise data.wrong(f"does not name {gone[0]} any more, which line {before.seq} does")


def _left(node: Node) -> Iterator[tuple[str, tuple[str, int]]]:
    for path, about in node.fields():
        items = list(about.items())
        if len(items) != 2 or not names.can_be_left(path):
            raise about.wrong("cannot be a file that was left behind, with its SHA-256 and size")
        yield path, (items[0].as_digest(), items[1].as_whole())


def _note_candidate(history: History, entry: Entry, data: Node) -> None:
    history.candidates.setdefault(data["candidate"].as_text(), entry.seq)


def _note_reported(history: History, entry: Entry, data: Node) -> None:
    history.reports.setdefault(data["candidate"].as_text(), []).append(entry.seq)


def _note_amended(history: History, entry: Entry, data: Node) -> None:
    voided = {slot: number.as_whole(1) for slot, number in data["voided_attempts"].fields()}
    platform = data.get("platform")
    amendment = Amendment(
        entry=entry,
        void=data["void"].as_texts(),
        voided_attempts=voided,
        is_platform=platform.as_flag() if platform is not None else False,
    )
    history.amendments.append(amendment)
    for slot, number in voided.items():
        made = history.voidings.setdefault(slot, [])
        made.append(Voiding(entry.seq, max(number, made[-1].attempts if made else 0)))


def _note_accounted(history: History, entry: Entry, _data: Node) -> None:
    history.accounted.append(entry)


def _note_pruned(history: History, entry: Entry, data: Node) -> None:
    data["what"].as_texts()
    history.pruned.append(entry)


def _note_decided(history: History, entry: Entry, _data: Node) -> None:
    history.decided.append(entry)


def _note_fallback(history: History, entry: Entry, _data: Node) -> None:
    history.fallbacks.append(entry)


def _note_closed(history: History, entry: Entry, _data: Node) -> None:
    history.closed = history.closed or entry


_NOTES: dict[str, Callable[[History, Entry, Node], None]] = {
    "intent": _note_intent,
    "submitted": _note_submitted,
    "not_submitted": _note_not_submitted,
    "cancelled": _note_cancelled,
    "ended": _note_ended,
    "sealed": _note_seen,
    "collected": _note_seen,
    "ingested": _note_ingested,
    "froze_candidate": _note_candidate,
    "reported": _note_reported,
    "amended": _note_amended,
    "accounted": _note_accounted,
    "pruned": _note_pruned,
    "decided": _note_decided,
    "fallback_tried": _note_fallback,
    "closed": _note_closed,
}
