"""From what was read of an attempt to what is stored of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from acceptance import formats
from campaign import documents
from campaign.collection.database import AttemptRecord, SegmentRecord, StoredFile
from campaign.collection.sealed import SealedAttempt
from campaign.collection.tries import Try
from campaign.errors import EvidenceError
from campaign.submission import acts
from campaign.watching.state import reason_of


def _paths_of(sealed: SealedAttempt | None) -> dict[str, str]:
    sides = sealed.receipt.sides if sealed is not None else ()
    engaged = {"baseline_path" if side.side == "baseline" else "candidate_path": side.path for side in sides}
    return {"baseline_path": "", "candidate_path": "", **engaged}


def _attempt_row(fields: Mapping[str, object], where: str, known_line: str = "") -> formats.Row:
    """Return the line of attempts.csv for some values, through the same reader as every other line.

    Args:
        fields: The values.
        where: What they are about, for messages.
        known_line: A line that was read before, which need not be read again.
    """
    table = formats.ATTEMPTS
    line = ",".join([str(fields[name]) for name in _HEADER])
    if line == known_line:
        return formats.Rows(table=table, lines=(line,))[0]
    rows, faults = formats.parse_table(table, f"{','.join(_HEADER)}\n{line}\n".encode(), where)
    if faults or len(rows) != 1:
        raise EvidenceError(
            f"cannot be a line of {table.file}: {'; '.join(fault.what for fault in faults)}", where=where
        )
    return rows[0]


_HEADER = formats.ATTEMPTS.header


def _start_of(one: Try) -> documents.Start | None:
    return one.sealed.start if one.sealed is not None else one.start


def _ended(one: Try) -> acts.EndedAttempt:
    """Return the ledger's word on a try that left no receipt."""
    if one.attempt.ended is None:
        raise EvidenceError("it has no ending", where=str(one.folder.root))
    return one.attempt.ended


def _ending_of(one: Try) -> tuple[formats.Ending, str]:
    """Return how a try ended, and why, as `campaign show` says it; of one without a receipt the ledger's word."""
    if one.sealed is not None:
        return one.sealed.receipt.ending, reason_of(one.sealed.receipt, one.allocation)
    ended = _ended(one)
    return ended.ending, ended.reason


def _row_of(one: Try, ending: formats.Ending, known_line: str = "") -> formats.Row:
    start = _start_of(one)
    fields = {
        "slot": one.attempt.slot,
        "attempt": one.attempt.attempt,
        "allocation": one.attempt.allocation,
        "node": start.host.node if start is not None else "",
        "device": start.device if start is not None else "",
        **_paths_of(one.sealed),
        "ending": ending.value,
        "sealed": "true" if one.sealed is not None else "false",
    }
    where = str(one.folder.receipt if one.sealed is not None else one.folder.root)
    return _attempt_row(fields, where, known_line)


def _made_void(record: AttemptRecord, one: Try) -> AttemptRecord:
    """Return what is stored of an attempt once an amendment has made it void."""
    return replace(record, row=_row_of(one, formats.Ending.VOID), before=record.row)


def _files_of(one: Try) -> tuple[StoredFile, ...]:
    sealed = one.sealed.receipt.files if one.sealed is not None else ()
    return tuple(StoredFile(name=file.name, bytes=file.bytes, sha256=file.sha256) for file in sealed)


def record_of(one: Try, *, is_void: bool, known_line: str = "") -> AttemptRecord:
    """Return what is stored of an attempt that is no run.

    Of one without a receipt only the scheduler knows the ending; nothing that it measured is taken.

    Args:
        one: The attempt, found right; it has an ending.
        is_void: Whether an amendment made it void.
        known_line: The line of attempts.csv that the cache has of it; empty if it has none.

    Raises:
        EvidenceError: It cannot be a line of attempts.csv.
    """
    ending, reason = _ending_of(one)
    row, sealed = _row_of(one, ending, known_line), one.sealed
    if sealed is None:
        record = AttemptRecord(row=row, reason=reason, tables={})
    else:
        record = AttemptRecord(
            row=row,
            reason=reason,
            receipt_sha256=sealed.receipt_sha256,
            start_sha256=sealed.start_sha256,
            kind=sealed.receipt.kind,
            files=() if sealed.is_stored else _files_of(one),
            tables=sealed.tables,
            is_stored=sealed.is_stored,
        )
    return _made_void(record, one) if is_void else record


def segment_of(one: Try) -> SegmentRecord:
    """Return what is stored of one segment that has an ending."""
    start, (ending, reason) = _start_of(one), _ending_of(one)
    run = one.sealed.receipt.run if one.sealed is not None else None
    return SegmentRecord(
        segment=one.attempt.segment,
        allocation=one.attempt.allocation,
        node=start.host.node if start is not None else "",
        device=start.device if start is not None else "",
        ending=ending,
        reason=reason,
        receipt_sha256=one.sealed.receipt_sha256 if one.sealed is not None else "",
        start_sha256=one.sealed.start_sha256 if one.sealed is not None else "",
        resumed=one.attempt.resume,
        first_update=run.first_update if run is not None else None,
        update=run.update if run is not None else None,
        files=_files_of(one),
    )


def run_record(segments: Sequence[Try], deciding: Try, *, is_void: bool) -> AttemptRecord:
    """Return what is stored of an attempt at a run.

    Args:
        segments: Its segments that have an ending, in order, each found right.
        deciding: The one whose ending is the attempt's.
        is_void: Whether an amendment made the attempt void.

    Raises:
        EvidenceError: It cannot be a line of attempts.csv.
    """
    ending, reason = _ending_of(deciding)
    record = AttemptRecord(
        row=_row_of(deciding, ending),
        reason=reason,
        tables=deciding.sealed.tables if deciding.sealed is not None else {},
        segments=tuple(segment_of(one) for one in segments),
    )
    return _made_void(record, deciding) if is_void else record
