"""Collecting: from what the attempts left to checked rows in the cache, and one act in the ledger.

Every sealed attempt is read and checked again each time, so that a byte which changes after it was sealed, or a cache
that was edited, is found by the next collection. Attempts that cannot be taken never keep the others out.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from acceptance import formats
from campaign import database, documents, files
from campaign.cases import CaseBook, check_attempt
from campaign.database import AttemptRecord, Stored
from campaign.errors import EvidenceError
from campaign.frozen import Frozen, check_recorded, read_frozen
from campaign.inputs import check_folder
from campaign.ledger import Ledger
from campaign.paths import AttemptPaths, HomePaths
from campaign.sealed import Finding, SealedAttempt, TamperedError, check_job, expect, is_leftover, read_attempt
from campaign.submission import acts

Key = tuple[str, int]


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
    """``slot/attempt`` to the SHA-256 of its receipt."""
    findings: tuple[Finding, ...]
    """Why attempts could not be taken."""
    records: tuple[AttemptRecord, ...]
    """What was read, by slot and attempt."""
    receipts_read: Mapping[Key, documents.Receipt]
    """The receipts among it."""
    starts_read: Mapping[Key, documents.Start]
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

    records: list[AttemptRecord] = field(default_factory=list)
    receipts: dict[Key, documents.Receipt] = field(default_factory=dict)
    starts: dict[Key, documents.Start] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    running: int = 0
    refused: set[Key] = field(default_factory=set)
    """Attempts with a finding of their own."""
    book: CaseBook = field(default_factory=CaseBook)
    """What the attempts of the numerical family say of their inputs."""


def receipt_name(key: Key) -> str:
    """Return the name under which the ledger lists an attempt's receipt."""
    return f"{key[0]}/{key[1]}"


def known_receipts(entries: Iterable[documents.Entry]) -> dict[str, str]:
    """Return the receipts that earlier collections recorded: ``slot/attempt`` to SHA-256."""
    found: dict[str, str] = {}
    for entry in entries:
        if entry.act == "collected":
            for name, digest in entry.data.get("receipts", {}).items():
                found.setdefault(name, digest)
    return found


# --- one attempt ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plans:
    """What was asked for, after checking that the ledger, the allocations and the protocol agree on it."""

    paths: HomePaths
    history: acts.History
    slots: Mapping[str, documents.Slot]
    known: Mapping[str, str]
    """Receipts that earlier collections recorded."""
    read: dict[str, documents.AllocationPlan] = field(default_factory=dict)
    """Plans by allocation, each read and checked once."""

    def allocation(self, allocation: str) -> documents.AllocationPlan:
        """Return the plan of an allocation.

        Raises:
            EvidenceError: It is not the one that the ledger's intent names.
        """
        if allocation not in self.read:
            where = self.paths.allocation(allocation).plan
            known = self.history.allocations[allocation]
            intended = self.history.submissions[known.submission].intent.allocations[known.index].plan_sha256
            data = files.read_regular(where)
            if files.sha256_bytes(data) != intended:
                why = f"its SHA-256 is {files.sha256_bytes(data)}, the ledger's intent says {intended}"
                raise EvidenceError("changed after it was intended", where=str(where), why=why)
            self.read[allocation] = documents.AllocationPlan.parse(data, where=str(where))
        return self.read[allocation]

    def attempt(self, attempt: acts.Attempt) -> documents.PlannedAttempt:
        """Return what was planned of one attempt.

        Raises:
            EvidenceError: Its allocation does not plan it, or not as the protocol does.
        """
        key = (attempt.slot, attempt.attempt)
        where = str(self.paths.allocation(attempt.allocation).plan)
        slot = self.slots.get(attempt.slot)
        if slot is None:
            raise EvidenceError(f"{attempt.slot} is not a slot of the protocol", where=where)
        found = [one for one in self.allocation(attempt.allocation).attempts if (one.slot, one.attempt) == key]
        if len(found) != 1:
            raise EvidenceError(f"plans {receipt_name(key)} {len(found)} times", where=where)
        planned = found[0]
        wanted = (slot.kind, slot.workload, slot.repeat, slot.pair, slot.order)
        if (planned.kind, planned.workload, planned.repeat, planned.pair, planned.order) != wanted:
            raise EvidenceError(f"{attempt.slot} is planned otherwise than in the protocol", where=where)
        return planned


def _paths_of(receipt: documents.Receipt) -> dict[str, str]:
    engaged = {"baseline_path" if side.side == "baseline" else "candidate_path": side.path for side in receipt.sides}
    return {"baseline_path": "", "candidate_path": "", **engaged}


def _attempt_row(fields: Mapping[str, object], where: str) -> formats.Row:
    """Return the line of attempts.csv for some values, through the same reader as every other line."""
    table = formats.ATTEMPTS
    text = "\n".join([",".join(table.header), ",".join(str(fields[name]) for name in table.header), ""])
    rows, faults = formats.parse_table(table, text.encode("utf-8"), where)
    if faults or len(rows) != 1:
        raise EvidenceError(
            f"cannot be a line of {table.file}: {'; '.join(fault.what for fault in faults)}", where=where
        )
    return rows[0]


def _sealed_record(sealed: SealedAttempt, where: str) -> AttemptRecord:
    receipt = sealed.receipt
    fields = {
        "slot": receipt.slot,
        "attempt": receipt.attempt,
        "allocation": receipt.allocation,
        "node": sealed.start.host.node,
        "device": sealed.start.device,
        **_paths_of(receipt),
        "ending": receipt.ending.value,
        "sealed": "true",
    }
    return AttemptRecord(
        row=_attempt_row(fields, where),
        receipt_sha256=sealed.receipt_sha256,
        start_sha256=sealed.start_sha256,
        kind=receipt.kind,
        reason=receipt.reason,
        files=tuple(database.StoredFile(name=f.name, bytes=f.bytes, sha256=f.sha256) for f in receipt.files),
        tables=sealed.tables,
    )


def _unsealed_record(folder: AttemptPaths, ended: acts.EndedAttempt, start: documents.Start | None) -> AttemptRecord:
    """Return the record of an attempt whose ending only the scheduler knows; nothing that it measured is read."""
    fields = {
        "slot": ended.slot,
        "attempt": ended.attempt,
        "allocation": ended.allocation,
        "node": start.host.node if start else "",
        "device": start.device if start else "",
        "baseline_path": "",
        "candidate_path": "",
        "ending": ended.ending.value,
        "sealed": "false",
    }
    return AttemptRecord(row=_attempt_row(fields, str(folder.root)), reason=ended.reason, tables={})


def _read_start(folder: AttemptPaths) -> documents.Start | None:
    if not folder.start.exists():
        return None
    return documents.Start.parse(files.read_regular(folder.start), where=str(folder.start))


def _check_ended(paths: HomePaths, attempt: acts.Attempt) -> None:
    """Check an attempt against what its allocation says that it wrote; a killed job says nothing.

    Raises:
        EvidenceError: A receipt is gone, another one, or not the harness's.
    """
    ended_path = paths.allocation(attempt.allocation).ended
    if not ended_path.exists() and not ended_path.is_symlink():
        return
    # Read before the receipt is looked for: every receipt that it names is there already.
    ended = documents.Ended.parse(files.read_regular(ended_path), where=str(ended_path))
    if ended.allocation != attempt.allocation:
        raise EvidenceError(f"is that of allocation {ended.allocation}", where=str(ended_path))
    receipt = paths.attempt(attempt.slot, attempt.attempt).receipt
    there = receipt.exists() or receipt.is_symlink()
    digest = files.sha256_bytes(files.read_regular(receipt)) if there else ""
    if contradiction := ended.contradiction(receipt_name((attempt.slot, attempt.attempt)), digest):
        raise EvidenceError(contradiction, where=str(receipt))


def _read_one(paths: HomePaths, frozen: Frozen, plans: _Plans, attempt: acts.Attempt, found: _Found) -> None:
    key = (attempt.slot, attempt.attempt)
    _check_ended(paths, attempt)
    folder = paths.attempt(*key)
    if not folder.receipt.exists() and not folder.receipt.is_symlink():
        found.book.is_open |= attempt.slot.startswith("baseline/pilot/")
        if attempt.ended is None:
            found.running += 1
        else:
            start = _read_start(folder)
            found.findings.extend(check_job(start, paths.allocation(attempt.allocation)) if start else ())
            found.records.append(_unsealed_record(folder, attempt.ended, start))
            found.starts.update({key: start} if start else {})
        return
    expected = expect(frozen, plans.attempt(attempt), attempt.allocation)
    sealed, findings = read_attempt(folder, expected)
    if sealed is not None:
        is_known = plans.known.get(receipt_name(key)) == sealed.receipt_sha256
        findings = (
            *check_job(sealed.start, paths.allocation(attempt.allocation)),
            *check_attempt(sealed, expected.planned, frozen.protocol, folder, is_known=is_known),
        )
    found.findings.extend(findings)
    if sealed is None or findings:
        found.refused.add(key)
    else:
        found.records.append(_sealed_record(sealed, str(folder.receipt)))
        found.receipts[key] = sealed.receipt
        found.starts[key] = sealed.start
        found.book.note(sealed, expected.planned, folder)


# --- the whole home ---------------------------------------------------------------------------------------------------


def _intended(history: acts.History) -> Iterator[acts.Attempt]:
    for slot in sorted(history.slots):
        yield from history.attempts(slot)


def _unreadable(error: OSError, path: Path) -> Finding:
    """Return the finding about something that may hold evidence and cannot be looked at."""
    return Finding(where=str(error.filename or path), what=f"cannot be looked at: {error.strerror}")


def _strangers(paths: HomePaths, history: acts.History) -> Iterator[Finding]:
    """Yield a finding for everything below attempts/ that no intent of the ledger accounts for."""
    known = {paths.attempt(attempt.slot, attempt.attempt).root for attempt in _intended(history)}
    above = {parent for folder in known for parent in folder.parents}
    pending = [paths.attempts] if paths.attempts.is_dir() else []
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(folder) as listed:
                entries = sorted(listed, key=lambda item: item.name)
        except OSError as error:
            yield _unreadable(error, folder)
            continue
        for entry in entries:
            path = paths.root / os.path.relpath(entry.path, paths.root)
            if path in known:
                continue
            if path in above and entry.is_dir(follow_symlinks=False):
                pending.append(path)
            elif not is_leftover(entry.name):
                yield Finding(where=str(path), what="no intent of the ledger names it")


def read_home(paths: HomePaths, frozen: Frozen, history: acts.History, known: Mapping[str, str]) -> _Found:
    """Read and check everything that the attempts left; touches nothing."""
    found = _Found()
    plans = _Plans(paths=paths, history=history, slots=frozen.slots(), known=known)
    for attempt in _intended(history):
        try:
            _read_one(paths, frozen, plans, attempt, found)
        except EvidenceError as error:
            found.refused.add((attempt.slot, attempt.attempt))
            found.findings.append(Finding(where=error.where, what="; ".join(filter(None, [error.what, error.why]))))
        except OSError as error:
            found.refused.add((attempt.slot, attempt.attempt))
            found.findings.append(_unreadable(error, paths.attempt(attempt.slot, attempt.attempt).root))
    _refuse_vanished(paths, found, known)
    found.findings.extend(_strangers(paths, history))
    found.findings.extend(found.book.disagreements())
    return found


def _refuse_vanished(paths: HomePaths, found: _Found, known: Mapping[str, str]) -> None:
    """Refuse every attempt whose receipt of the ledger is gone, or another one now."""
    receipts = {record.key: record.receipt_sha256 for record in found.records}
    for name, digest in known.items():
        slot, _, number = name.rpartition("/")
        key = (slot, int(number))
        if receipts.get(key, "") != digest and key not in found.refused:
            now = receipts.get(key) or "there is none"
            where = str(paths.attempt(*key).receipt)
            found.findings.append(Finding(where=where, what=f"collected before with SHA-256 {digest}, now {now}"))
            found.refused.add(key)
            found.receipts.pop(key, None)
            found.starts.pop(key, None)
    found.records = [record for record in found.records if record.key not in found.refused]


def _lines(record: AttemptRecord) -> dict[str, tuple[tuple[int, str], ...]]:
    return {name: tuple((row.line, row.raw) for row in rows) for name, rows in record.tables.items() if rows}


def _conflict(paths: HomePaths, stored: Stored, record: AttemptRecord) -> Finding | None:
    """Return why a stored attempt cannot be the one that was read; None if it is the same or may follow it."""
    where = str(paths.attempt(*record.key).receipt)
    if stored.receipt_sha256 and stored.receipt_sha256 != record.receipt_sha256:
        now = record.receipt_sha256 or "no receipt"
        return Finding(where=where, what=f"collected before with SHA-256 {stored.receipt_sha256}, now {now}")
    if not record.receipt_sha256 and stored.ending != record.ending:
        return Finding(where=where, what=f"ended {stored.ending} before, now {record.ending}")
    if stored.receipt_sha256 and (stored.raw, stored.lines) != (record.row.raw, _lines(record)):
        what = "the cache holds other lines than the sealed files: campaign collect --rebuild"
        return Finding(where=str(paths.database), what=f"{receipt_name(record.key)}: {what}")
    return None


def _store(paths: HomePaths, session: Session, found: _Found) -> None:
    """Bring the cache up to what was read."""
    stored = database.stored_attempts(session)
    for key in sorted(set(stored) - {record.key for record in found.records} - found.refused):
        what = f"the cache holds {receipt_name(key)}, which left no ending: campaign collect --rebuild"
        found.findings.append(Finding(where=str(paths.database), what=what))
    new: list[AttemptRecord] = []
    for record in found.records:
        before = stored.get(record.key)
        conflict = _conflict(paths, before, record) if before else None
        if conflict is not None:
            found.findings.append(conflict)
        elif before is None:
            new.append(record)
        elif (before.raw, before.receipt_sha256) != (record.row.raw, record.receipt_sha256):
            database.delete_attempt(session, record.key)  # it was without a receipt, and now it has one
            new.append(record)
    database.insert_attempts(session, new)


def _check_inputs(paths: HomePaths, protocol: documents.Protocol, session: Session, found: _Found) -> None:
    """Check the files below inputs/; one that is as it was when its digest was found right is not hashed again."""
    known = database.stored_stamps(session)
    # What a refused pilot listed is not known, and must not be blamed on whoever wrote it.
    is_open = found.book.is_open or any(slot.startswith("baseline/pilot/") for slot, _ in found.refused)
    is_open &= protocol.numerical is not None
    findings, stamps = check_folder(paths, found.book.pilots, known, is_open=is_open)
    found.findings.extend(findings)
    if stamps != known:
        database.store_stamps(session, stamps)


def _summarise(session: Session, found: _Found) -> Collection:
    stored = database.stored_attempts(session)
    digest = hashlib.sha256(b"campaign-rows/1\n")
    rows = 0
    for key in sorted(stored):
        lines = [("attempts.csv", stored[key].raw)]
        lines += [(name, raw) for name, own in sorted(stored[key].lines.items()) for _, raw in own]
        rows += len(lines) - 1
        for part in (text for line in lines for text in line):
            data = part.encode("utf-8")
            digest.update(b"%d:%s," % (len(data), data))
    receipts = {receipt_name(key): own.receipt_sha256 for key, own in sorted(stored.items()) if own.receipt_sha256}
    return Collection(
        attempts=len(stored),
        sealed=len(receipts),
        running=found.running,
        rows=rows,
        rows_sha256=digest.hexdigest(),
        receipts=receipts,
        findings=tuple(found.findings),
        records=tuple(found.records),
        receipts_read=found.receipts,
        starts_read=found.starts,
    )


def _last_act(entries: Iterable[documents.Entry]) -> dict[str, Any]:
    acts_of_collection = [entry.data for entry in entries if entry.act == "collected"]
    return acts_of_collection[-1] if acts_of_collection else {}


def _record_act(ledger: Ledger, collection: Collection, known: Mapping[str, str]) -> None:
    """Append the act, unless it would say what the last one said."""
    act = collection.act(known)
    if act["receipts"] or {**_last_act(ledger.entries), "receipts": {}} != act:
        ledger.append("collected", act)


def collect(paths: HomePaths, ledger: Ledger, *, rebuild: bool = False) -> Collection:
    """Collect everything that has an ending into the cache and record it in the ledger.

    Args:
        paths: The home.
        ledger: Its ledger, open for writing: its lock makes this the only writer.
        rebuild: Build a new cache from the files and put it in the old one's place.

    Returns:
        What was found, findings included: see `require_intact`.

    Raises:
        EvidenceError: The frozen documents or the ledger are not what they were.
        StateError: The cache cannot be used as it is.
    """
    frozen = read_frozen(paths)
    check_recorded(paths, frozen, ledger.entries)
    known = known_receipts(ledger.entries)
    found = read_home(paths, frozen, acts.fold(ledger.entries), known)
    target = paths.rebuilt_database if rebuild else paths.database
    if rebuild:
        database.require_file_or_nothing(paths.database)
        database.require_file_or_nothing(target)
        with files.writing(target):
            target.unlink(missing_ok=True)
    digests = {"manifest_sha256": frozen.manifest_sha256, "protocol_sha256": frozen.protocol_sha256}
    with database.open_database(target, **digests) as session:
        _store(paths, session, found)
        _check_inputs(paths, frozen.protocol, session, found)
        collection = _summarise(session, found)
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
