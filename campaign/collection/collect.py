"""Collecting: from what the attempts left to checked rows in the cache, and one act in the ledger.

Every sealed attempt is looked at again each time, so that a file which changes after it was sealed, or a cache that was
edited, is found by the next collection; `campaign.collection.reuse` says what need not be read again. Attempts that
cannot be taken never keep the others out.

A *try* is what has one receipt: an attempt, or one segment of an attempt at a run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from acceptance.formats import Ending
from campaign import documents, files
from campaign.collection import bulk, chains, database
from campaign.collection.cases import CaseBook, records_inputs
from campaign.collection.chains import Link
from campaign.collection.checkpoints import check_files, read_checkpoints
from campaign.collection.containers import check_containers
from campaign.collection.database import AttemptRecord, Loader, Stored
from campaign.collection.inputs import check_folder
from campaign.collection.interpreters import Sealed, check_interpreters
from campaign.collection.left import LeftBehind
from campaign.collection.reading import Whole, fault, read_tries, unreadable
from campaign.collection.records import record_of, run_record, segment_of
from campaign.collection.reuse import Care, Memory, Remembered, is_settled
from campaign.collection.sealed import Finding, TamperedError, is_leftover
from campaign.collection.tries import Plans, Try
from campaign.errors import EvidenceError
from campaign.frozen import Frozen, check_recorded, read_frozen
from campaign.keys import AttemptKey
from campaign.paths import HomePaths
from campaign.record import accounting
from campaign.record.ledger import Ledger, closed_entry
from campaign.submission import acts
from campaign.watching.state import deciding


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """What a collection found. A failed attempt is evidence like any other; a running one is not yet."""

    attempts: int
    """Attempts that have an ending."""
    sealed: int
    """Those of them with a receipt."""
    running: int
    """Attempts that were intended and have no ending yet."""
    rows: int
    """Rows that attempts measured."""
    rows_sha256: str
    """Over every collected line."""
    receipts: Mapping[str, str]
    """SHA-256 of every receipt by its name."""
    findings: tuple[Finding, ...]
    """Why attempts could not be taken."""
    records: tuple[AttemptRecord, ...]
    """What was read, by slot and attempt."""
    receipts_read: Mapping[AttemptKey, documents.Receipt]
    """The receipts among it."""
    starts_read: Mapping[AttemptKey, documents.Start]
    """The start records among it, those of attempts without a receipt included."""

    def act(self, known: Mapping[str, str]) -> dict[str, Any]:
        """Return the data of the ledger's act.

        Args:
            known: Receipts that earlier acts name; only new ones are named again.
        """
        return {
            "attempts": self.attempts,
            "sealed": self.sealed,
            "running": self.running,
            "rows": self.rows,
            "rows_sha256": self.rows_sha256,
            "findings": len(self.findings),
            "receipts": {name: digest for name, digest in self.receipts.items() if known.get(name) != digest},
        }


@dataclass(slots=True, kw_only=True)
class _Found:
    """What the files say, attempt by attempt."""

    records: dict[Whole, AttemptRecord] = field(default_factory=dict)
    """Those that have an ending."""
    going: dict[Whole, dict[int, tuple[str, str]]] = field(default_factory=dict)
    """Ending and receipt of the segments so far of those that go on, as `AttemptRecord.endings`."""
    taken: dict[AttemptKey, Try] = field(default_factory=dict)
    """Every try with an ending that was found right."""
    chains: dict[Whole, tuple[Link, ...]] = field(default_factory=dict)
    """The chains whose checkpoints are there."""
    findings: list[Finding] = field(default_factory=list)
    running: int = 0
    refused: set[Whole] = field(default_factory=set)
    """Attempts with a finding of their own."""
    book: CaseBook = field(default_factory=CaseBook)
    """What the attempts of the numerical family say of their inputs."""
    loader: Loader | None = None
    """Where every attempt that is no run is stored as it is read; None where the cache holds some already."""

    def refuse(self, whole: Whole, findings: Iterable[Finding]) -> None:
        """Take an attempt back, with all its segments."""
        self.findings.extend(findings)
        self.refused.add(whole)
        self.records.pop(whole, None)
        self.going.pop(whole, None)
        self.chains.pop(whole, None)
        for key in [key for key in self.taken if (key.slot, key.attempt) == whole]:
            del self.taken[key]

    @property
    def receipts(self) -> dict[AttemptKey, str]:
        """SHA-256 of the receipt of every try that has one."""
        return {key: one.sealed.receipt_sha256 for key, one in self.taken.items() if one.sealed is not None}


def known_receipts(entries: Iterable[documents.Entry]) -> dict[str, str]:
    """Return the receipts that earlier collections recorded: SHA-256 by name."""
    found: dict[str, str] = {}
    for entry in entries:
        if entry.act == "collected":
            for name, digest in entry.data.get("receipts", {}).items():
                found.setdefault(name, digest)
    return found


# --- one attempt ------------------------------------------------------------------------------------------------------


def _judge_attempt(plans: Plans, whole: Whole, read: Sequence[Try | Finding], found: _Found) -> None:
    """Judge one attempt, of a run with all its segments, from what its tries left."""
    tries = [one for one in read if isinstance(one, Try)]
    faults = [one for one in read if isinstance(one, Finding)]
    if findings := [*faults, *(finding for one in tries for finding in one.findings)]:
        found.refuse(whole, findings)
        return
    try:
        _take(plans, whole, tries, found)
    except EvidenceError as error:
        found.refuse(whole, [fault(error)])
    except OSError as error:
        found.refuse(whole, [unreadable(error, tries[0].folder.root)])


def _take(plans: Plans, whole: Whole, tries: Sequence[Try], found: _Found) -> None:
    """Take an attempt whose tries were each found right."""
    (first, *_) = tries
    if first.key.segment:
        _take_run(plans, whole, tries, found)
        return
    if first.is_open:
        found.running += 1
    else:
        remembered = plans.memory.tries.get(first.key)
        known_line = remembered.line if remembered is not None else ""
        record = record_of(first, is_void=plans.history.is_void(*whole), known_line=known_line)
        found.records[whole], found.taken[first.key] = _loaded(record, first, found.loader)
    protocol = plans.frozen.protocol
    if first.sealed is not None and first.slot is not None:
        is_void = plans.history.is_void(*whole)
        found.book.note(first.sealed, first.slot, protocol, first.folder, is_void=is_void)
    else:
        slot = plans.slots.get(first.attempt.slot)
        found.book.is_open |= slot is not None and records_inputs(slot, protocol)


def _loaded(record: AttemptRecord, one: Try, loader: Loader | None) -> tuple[AttemptRecord, Try]:
    """Store an attempt while others are still being read, and return it without the rows that the cache then holds."""
    if loader is None:
        return record, one
    loader.add(record)
    if one.sealed is not None:
        one = replace(one, sealed=replace(one.sealed, tables={}, is_stored=True))
    return replace(record, tables={}, files=(), is_stored=True), one


def _take_run(plans: Plans, whole: Whole, tries: Sequence[Try], found: _Found) -> None:
    rules = plans.frozen.protocol.convergence
    slot = plans.slot(tries[0].attempt)
    recipe = plans.frozen.protocol.recipe(slot.workload)
    if rules is None or recipe is None:
        raise EvidenceError(
            f"{slot.slot} is a run, and the protocol has no recipe for it", where=str(plans.paths.protocol)
        )
    chain: list[Link] = []
    findings: list[Finding] = []
    for one in tries:
        owner = chains.owner_of(plans.frozen, recipe, slot, one.attempt)
        # What a segment that is under way writes is looked at once it has ended.
        saved, faults = ({}, ()) if one.is_open else read_checkpoints(one.folder, owner, plans.left)
        findings += faults
        at = plans.planned_at[one.attempt.allocation]
        link = Link(attempt=one.attempt, planned_at=at, folder=one.folder, sealed=one.sealed, checkpoints=saved)
        chain.append(link)
    findings += [] if findings else chains.check_chain(chain, recipe, rules.max_segments)
    if findings:
        found.refuse(whole, findings)
        return
    ended = [one for one in tries if not one.is_open]
    last = deciding(chain)
    found.chains[whole] = tuple(chain)
    found.taken.update({one.key: one for one in ended})
    if last.ending is None:
        found.running += 1
        segments = [segment_of(one) for one in ended]
        found.going[whole] = {one.segment: (one.ending.value, one.receipt_sha256) for one in segments}
        return
    decided = next(one for one in tries if one.key == last.attempt.key)
    found.records[whole] = run_record(ended, decided, is_void=plans.history.is_void(*whole))


# --- the whole home ---------------------------------------------------------------------------------------------------


def _intended(history: acts.History) -> Iterator[acts.Attempt]:
    for slot in sorted(history.slots):
        yield from history.attempts(slot)


def _strangers(paths: HomePaths, history: acts.History) -> Iterator[Finding]:
    """Yield a finding for everything below attempts/ that no intent of the ledger accounts for."""
    known = {str(paths.attempt(one.slot, one.attempt, one.segment).root) for one in _intended(history)}
    above = _above(known, str(paths.root))
    pending = [str(paths.attempts)] if paths.attempts.is_dir() else []
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(folder) as listed:
                entries = sorted(listed, key=lambda item: item.name)
        except OSError as error:
            yield unreadable(error, Path(folder))
            continue
        for entry in entries:
            path = f"{folder}/{entry.name}"
            if path in known:
                continue
            if path in above and entry.is_dir(follow_symlinks=False):
                pending.append(path)
            elif not is_leftover(entry.name):
                yield Finding(where=path, what="no intent of the ledger names it")


def _above(folders: Iterable[str], root: str) -> set[str]:
    """Return every folder between some folders and a root."""
    found: set[str] = set()
    for folder in folders:
        parent = folder.rpartition("/")[0]
        while parent not in found and len(parent) > len(root):
            found.add(parent)
            parent = parent.rpartition("/")[0]
    return found


def read_home(
    paths: HomePaths,
    frozen: Frozen,
    entries: Sequence[documents.Entry],
    known: Mapping[str, str],
    *,
    memory: Memory | None = None,
    history: acts.History | None = None,
    loader: Loader | None = None,
) -> _Found:
    """Read and check everything that the attempts left, but the files of checkpoints; touches nothing.

    Args:
        paths: The home.
        frozen: The frozen documents.
        entries: The ledger's.
        known: Receipts that earlier collections recorded.
        memory: What need not be read again; None for nothing.
        history: What follows from the entries, if that is known.
        loader: Where to store every attempt that is no run as it is read; None to store nothing.
    """
    found = _Found(loader=loader)
    history = history or acts.fold(entries)
    plans = Plans(
        paths=paths,
        frozen=frozen,
        history=history,
        slots=frozen.slots(),
        planned_at={name: entry.at for name, entry in acts.first_intents(entries).items()},
        known=known,
        memory=memory or Memory(),
        left=LeftBehind(root=paths.root, files=history.left),
    )
    intended = groupby(_intended(history), key=lambda one: (one.slot, one.attempt))
    wholes = [(whole, list(attempts)) for whole, attempts in intended]
    for whole, read in read_tries(plans, wholes, is_busy=loader is not None):
        _judge_attempt(plans, whole, read, found)
    _refuse_vanished(paths, found, history.sealed, known)
    _refuse_early(frozen, history, found)
    found.findings.extend(_strangers(paths, history))
    found.findings.extend(found.book.disagreements())
    found.findings.extend(check_interpreters(_sealed(found), entries))
    found.findings.extend(check_containers(_sealed(found), frozen.sides()))
    found.findings.extend(accounting.findings(paths, frozen, entries))
    return found


def _sealed(found: _Found) -> Iterator[Sealed]:
    for key, one in found.taken.items():
        if one.sealed is not None:
            yield Sealed(
                where=str(one.folder.receipt),
                owner=key.slot.partition("/")[0],
                allocation=one.attempt.allocation,
                receipt=one.sealed.receipt,
            )


def _key_of(name: str) -> AttemptKey:
    try:
        return AttemptKey.parse(name)
    except ValueError as error:
        raise EvidenceError(f"collected {error}", where="ledger.jsonl") from error


def _refuse_early(frozen: Frozen, history: acts.History, found: _Found) -> None:
    """Refuse every attempt at a run that was planned while the one before it could still go on.

    One that is void goes on no more, whatever it ended with.
    """
    rules = frozen.protocol.convergence
    for (slot, number), chain in list(found.chains.items()):
        following = (slot, number + 1)
        if history.is_void(slot, number):
            continue
        if rules is not None and any(key.attempt == number + 1 for key in history.slots[slot]):
            findings = list(chains.check_next_attempt(chain, rules.max_segments))
            if findings:
                found.refuse(following, findings)


def _refuse_vanished(paths: HomePaths, found: _Found, seen: Mapping[str, str], known: Mapping[str, str]) -> None:
    """Refuse every attempt of which a receipt that the ledger names is gone, or another one now."""
    receipts = found.receipts
    for name, digest in seen.items():
        key = _key_of(name)
        whole = (key.slot, key.attempt)
        if receipts.get(key, "") != digest and whole not in found.refused:
            now = receipts.get(key) or "there is none"
            where = str(paths.attempt(key.slot, key.attempt, key.segment).receipt)
            word = "collected" if name in known else "seen"
            found.refuse(whole, [Finding(where=where, what=f"{word} before with SHA-256 {digest}, now {now}")])


# --- the cache --------------------------------------------------------------------------------------------------------


def _check_checkpoints(paths: HomePaths, session: Session, found: _Found) -> None:
    """Check the files of all checkpoints; one that is as it was when its digest was found right is not hashed again."""
    known = database.stored_checkpoint_files(session, paths.root)
    right = {}
    for whole, chain in list(found.chains.items()):
        saved = [file for link in chain for one in link.checkpoints.values() for file in one.files]
        findings, hashed = check_files(saved, known)
        right.update(hashed)
        if findings:
            found.refuse(whole, findings)
    if right != known:
        database.store_checkpoint_files(session, paths.root, right)


def _lines(record: AttemptRecord) -> dict[str, tuple[tuple[int, str], ...]]:
    return {name: tuple((row.line, row.raw) for row in rows) for name, rows in record.tables.items() if rows}


def _conflict_of_endings(
    paths: HomePaths, whole: Whole, stored: Mapping[int, tuple[str, str]], now: Mapping[int, tuple[str, str]]
) -> Finding | None:
    """Return why the tries of a stored attempt cannot have become those that were read; None if they may have."""
    for segment, (ending, receipt_sha256) in stored.items():
        ending_now, receipt_now = now.get(segment, ("", ""))
        where = str(paths.attempt(*whole, segment).receipt)
        if receipt_sha256 and receipt_sha256 != receipt_now:
            what = f"collected before with SHA-256 {receipt_sha256}, now {receipt_now or 'no receipt'}"
            return Finding(where=where, what=what)
        if ending != ending_now and receipt_now == receipt_sha256:  # the same receipt cannot say something else
            return Finding(where=where, what=f"ended {ending} before, now {ending_now or 'it has no ending'}")
    return None


def _conflict(paths: HomePaths, session: Session, stored: Stored, record: AttemptRecord) -> Finding | None:
    """Return why a stored attempt cannot be the one that was read; None if it is the same or may follow it."""
    conflict = _conflict_of_endings(paths, record.key, stored.endings, record.endings)
    is_same = stored.endings == record.endings
    if conflict is None and is_same and (stored.raw != record.row.raw or not _has_rows(session, record)):
        what = "the cache holds other lines than the sealed files: campaign collect --rebuild"
        return Finding(where=str(paths.database), what=f"{_name(record.key)}: {what}")
    return conflict


def _has_rows(session: Session, record: AttemptRecord) -> bool:
    """Return whether the cache holds the rows of an attempt that it holds.

    Where they were not parsed again the digest of all that it holds has been found to be the ledger's.
    """
    return record.is_stored or database.stored_lines(session, record.key) == _lines(record)


def _as_stored(before: Stored, record: AttemptRecord) -> AttemptRecord:
    """Return what was read as it was before an amendment that the cache does not know of yet made it void."""
    if record.before is None or before.raw == record.row.raw:
        return record
    return replace(record, row=record.before, before=None)


def _name(whole: Whole) -> str:
    return AttemptKey(*whole).receipt_name


def _store(
    paths: HomePaths, session: Session, found: _Found, stored: Mapping[Whole, Stored], loader: Loader
) -> tuple[set[Whole], bool]:
    """Bring the cache up to what was read; return the attempts that are stored otherwise, and whether it changed."""
    conflicts: dict[Whole, Finding] = {}
    gone: list[Whole] = []
    for key in sorted(set(stored) - set(found.records) - found.refused):
        going = found.going.get(key)
        if going is None:
            what = f"the cache holds {_name(key)}, which left no ending: campaign collect --rebuild"
            found.findings.append(Finding(where=str(paths.database), what=what))
        elif conflict := _conflict_of_endings(paths, key, stored[key].endings, going):
            conflicts[key] = conflict
        else:
            gone.append(key)  # another segment of it was planned
    new: list[AttemptRecord] = []
    # Some were refused after they had been stored.
    gone += sorted(loader.loaded - found.records.keys())
    for record in found.records.values():
        if record.key in loader.loaded:
            continue
        before = stored.get(record.key)
        if before is None:
            new.append(record)
        elif conflict := _conflict(paths, session, before, _as_stored(before, record)):
            conflicts[record.key] = conflict
        elif before.endings != record.endings or before.raw != record.row.raw:
            # A receipt came late, or another segment, or it has become void.
            gone.append(record.key)
            new.append(record)
    loader.finish()
    for key in gone:
        database.delete_attempt(session, key)
    has_changed = bool(gone or new or loader.loaded)
    database.insert_attempts(session, new)
    found.findings.extend(conflicts.values())
    return set(conflicts), has_changed


def _remember(paths: HomePaths, session: Session, found: _Found, stored: Mapping[Whole, Stored]) -> None:
    """Remember what the file system says of the attempts whose every byte was found right."""
    stamps = {}
    for whole in found.records:
        one = found.taken.get(AttemptKey(*whole))
        if one is None or one.look is None or (whole in stored and stored[whole].stamp == one.look.stamp):
            continue
        if is_settled(one.look, paths.lock):
            stamps[whole] = one.look.stamp
    if stamps:
        database.store_attempt_stamps(session, stamps)


def _memory(
    ledger: Ledger, history: acts.History, stored: Mapping[Whole, Stored], digest: bulk.Digest, care: Care
) -> Memory:
    """Return what need not be read again: nothing unless the cache is as a whole what the ledger says."""
    if _last_act(ledger.entries).get("rows_sha256") != digest.sha256 or digest.orphans:
        return Memory()
    tries = {}
    for (slot, attempt), one in stored.items():
        ending, receipt_sha256 = one.endings.get(0, ("", ""))  # a run has its segments' alone, from 1 on
        # One that has become void since is stored anew, with all its rows.
        if receipt_sha256 and (ending == Ending.VOID) == history.is_void(slot, attempt):
            key = AttemptKey(slot, attempt)
            tries[key] = Remembered(receipt_sha256=receipt_sha256, stamp=one.stamp, line=one.raw)
    return Memory(care=care, tries=tries)


def _check_inputs(paths: HomePaths, frozen: Frozen, session: Session, found: _Found, left: LeftBehind) -> None:
    """Check the files below inputs/; one that is as it was when its digest was found right is not hashed again."""
    known = database.stored_stamps(session)
    protocol, slots = frozen.protocol, frozen.slots()
    # What a refused pilot listed is not known, and must not be blamed on whoever wrote it.
    refused = [slots[slot] for slot, _ in found.refused if slot in slots]
    is_open = found.book.is_open or any(records_inputs(slot, protocol) for slot in refused)
    is_open &= protocol.numerical is not None
    findings, stamps = check_folder(paths, found.book.pilots, known, is_open=is_open, left=left)
    found.findings.extend(findings)
    if stamps != known:
        database.store_stamps(session, stamps)


def _summarise(
    paths: HomePaths, found: _Found, conflicts: set[Whole], stored: Mapping[Whole, Stored], digest: bulk.Digest
) -> Collection:
    if digest.orphans:
        what = f"the cache holds {digest.orphans} rows of attempts that it does not hold: campaign collect --rebuild"
        found.findings.append(Finding(where=str(paths.database), what=what))
    receipts = {
        key.receipt_name: sha256
        for key, sha256 in sorted(found.receipts.items())
        if (key.slot, key.attempt) not in conflicts
    }
    sealed = {key: one.sealed for key, one in found.taken.items() if one.sealed is not None}
    starts = {key: one.start for key, one in found.taken.items() if one.start is not None}
    return Collection(
        attempts=len(stored),
        sealed=sum(own.is_sealed for own in stored.values()),
        running=found.running,
        rows=digest.rows,
        rows_sha256=digest.sha256,
        receipts=receipts,
        findings=tuple(found.findings),
        records=tuple(found.records.values()),
        receipts_read={key: one.receipt for key, one in sealed.items()},
        starts_read={**starts, **{key: one.start for key, one in sealed.items()}},
    )


def _last_act(entries: Iterable[documents.Entry]) -> dict[str, Any]:
    acts_of_collection = [entry.data for entry in entries if entry.act == "collected"]
    return acts_of_collection[-1] if acts_of_collection else {}


def _record_act(ledger: Ledger, collection: Collection, known: Mapping[str, str]) -> None:
    """Append the act, unless it would say what the last one said, or tell what happened to a closed campaign."""
    if collection.findings and closed_entry(ledger.entries) is not None:
        return
    act = collection.act(known)
    if act["receipts"] or {**_last_act(ledger.entries), "receipts": {}} != act:
        ledger.append("collected", act)


def collect(paths: HomePaths, ledger: Ledger, *, rebuild: bool = False, care: Care = Care.STAMPS) -> Collection:
    """Collect everything that has an ending into the cache and record it in the ledger.

    Args:
        paths: The home.
        ledger: Its ledger, open for writing: its lock makes this the only writer.
        rebuild: Build a new cache from the files and put it in the old one's place; then all is read and parsed.
        care: What is read again of attempts that an earlier collection found right.

    Returns:
        What was found, findings included: see `require_intact`.

    Raises:
        EvidenceError: The frozen documents or the ledger are not what they were.
        StateError: The cache cannot be used as it is.
    """
    frozen = read_frozen(paths)
    check_recorded(paths, frozen, ledger.entries)
    known = known_receipts(ledger.entries)
    target = paths.rebuilt_database if rebuild else paths.database
    if rebuild:
        database.require_file_or_nothing(paths.database)
        database.require_file_or_nothing(target)
        with files.writing(target):
            target.unlink(missing_ok=True)
    digests = {"manifest_sha256": frozen.manifest_sha256, "protocol_sha256": frozen.protocol_sha256}
    with database.open_database(target, **digests) as session:
        stored = database.stored_attempts(session)
        digest = database.digest(session, stored)
        history = acts.fold(ledger.entries)
        memory = _memory(ledger, history, stored, digest, care)
        loader = Loader(session)
        # What the cache holds already is compared with what was read once all of that is known.
        early = None if stored else loader
        found = read_home(paths, frozen, ledger.entries, known, memory=memory, history=history, loader=early)
        _check_checkpoints(paths, session, found)
        conflicts, has_changed = _store(paths, session, found, stored, loader)
        _remember(paths, session, found, {} if has_changed else stored)
        _check_inputs(paths, frozen, session, found, LeftBehind(root=paths.root, files=history.left))
        if has_changed:
            stored = database.stored_attempts(session)
            digest = database.digest(session, stored)
        collection = _summarise(paths, found, conflicts, stored, digest)
    if rebuild:
        with files.writing(paths.database):
            target.replace(paths.database)
            files.sync_folder(paths.root)
    _record_act(ledger, collection, known)
    return collection


def require_intact(collection: Collection) -> None:
    """Refuse to go on from a collection with findings.

    Raises:
        TamperedError: There are some; carries them all.
    """
    if collection.findings:
        hint = "campaign show SLOT; a home on a network file system may show new files late: collect again"
        raise TamperedError(collection.findings, hint=hint)
