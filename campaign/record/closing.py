"""Closing a campaign: everything in the home is listed, the ledger names the list, and one short line says it all.

Whoever keeps that line elsewhere, in a ticket or signed, can later show that nothing was changed, added or dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from campaign import files
from campaign.collection.collect import Collection, collect, require_intact
from campaign.collection.reuse import Care
from campaign.collection.sealed import Finding, TamperedError
from campaign.documents import Entry
from campaign.errors import EvidenceError, StateError
from campaign.frozen import Frozen, check_recorded, read_frozen
from campaign.judging.evidence import Evidence, read_evidence
from campaign.judging.provenance import frozen_candidates
from campaign.paths import EvaluationPaths, HomePaths
from campaign.record.head import Closed, Counts, Head, read_head
from campaign.record.inventory import DataNow, dump_seal, list_files, read_data
from campaign.record.ledger import Ledger, closed_entry, last_reports
from campaign.submission import acts
from campaign.verifier.facts import Options
from campaign.verifier.findings import FAULTS
from campaign.verifier.text import plain
from campaign.verifier.verify import verifying


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """What closing found, or what there was when it had been closed before."""

    head: Head
    is_new: bool
    """Whether it was closed just now."""
    data: Mapping[str, DataNow]
    """What each declared data set is; nothing where it was closed before."""
    notes: tuple[str, ...] = ()


# --- what stands in the way -------------------------------------------------------------------------------------------


def _require_ended(paths: HomePaths, collection: Collection) -> None:
    if paths.staging.is_dir():
        raise StateError("a freeze was killed, or is under way", where=str(paths.staging), hint="repeat it first")
    if collection.running:
        raise StateError(
            f"{collection.running} attempt(s) have not ended",
            why="what they leave would belong to no closed campaign",
            hint="campaign status; wait for them, or: campaign cancel; of a bundle: campaign bundle ingest, or abandon",
        )


def _require_reports(paths: HomePaths, frozen: Frozen, entries: Sequence[Entry]) -> None:
    """Refuse to close while a candidate has no report, or one that is not about the evidence that there is now."""
    reports = last_reports(entries)
    for candidate in frozen_candidates(entries):
        evidence = read_evidence(paths, frozen, candidate)
        if why := _why_outdated(paths.evaluation(candidate), reports.get(candidate), evidence):
            raise StateError(
                f"candidate {candidate} has no report on what there is now",
                why=why,
                hint=f"campaign report --candidate {candidate}",
            )


def _why_outdated(folder: EvaluationPaths, report: Entry | None, evidence: Evidence) -> str:
    """Return why a candidate's last report is not current; empty if it is."""
    if report is None:
        return "none was ever made"
    reported = report.data
    for name, data in evidence.files.items():
        if _digest(folder.evidence / name) != files.sha256_bytes(data):
            return f"evidence/{name} is not what was collected last"
    said = {folder.verdict: reported["verdict_sha256"]}
    if "provenance_sha256" in reported:
        said[folder.provenance] = reported["provenance_sha256"]
    said |= {folder.report / name: sha256 for name, sha256 in reported.get("files", {}).items()}
    changed = [path for path, sha256 in said.items() if _digest(path) != sha256]
    return f"{changed[0]} is not the one that was reported" if changed else ""


def _require_verified(paths: HomePaths) -> None:
    """Refuse to close what a verification will find fault with ever after: no amendment can put it right any more.

    The acceptance is not run again: every report that was just looked at holds what it said of this evidence.
    """
    with verifying(paths.root, Options(execute=False)) as verification:
        found = [one for one in verification.checks.findings if one.state in FAULTS]
    if found:
        raise TamperedError(
            tuple(Finding(where=plain(one.where or one.check), what=plain(one.what)) for one in found),
            what="verification finds fault with the campaign, which therefore stays open",
            hint="campaign verify; put it right, or declare what changed and measure again: campaign amend -h",
        )


def _digest(path: Path) -> str:
    try:
        return files.sha256_regular(path)
    except EvidenceError:
        return ""


def _require_data(data: Mapping[str, DataNow], frozen: Frozen, data_changed: str) -> None:
    changed = [name for name, one in data.items() if one.state == "changed"]
    if changed and not data_changed:
        name = changed[0]
        raise EvidenceError(
            f"data set {name} is not what was frozen",
            where=frozen.manifest.data[name].path,
            why=data[name].reason,
            hint='restore it; or close all the same, and say why: campaign seal --data-changed "..."',
        )


# --- closing ----------------------------------------------------------------------------------------------------------


def close(paths: HomePaths, ledger: Ledger, *, data_changed: str = "") -> Closing:
    """Close a campaign; one that is closed stays as it is.

    Args:
        paths: The home.
        ledger: Its ledger, open for writing.
        data_changed: Why it may be closed although declared data changed; empty for nobody having said so.

    Raises:
        StateError: Something is open, or a report is missing.
        EvidenceError: Something is not what was frozen, sealed or recorded, or verification finds fault with it.
    """
    frozen = read_frozen(paths)
    check_recorded(paths, frozen, ledger.entries)
    campaign = frozen.manifest.campaign
    known = read_head(campaign, ledger.entries, ledger.head)
    if known is not None:
        _require_same_seal(paths, ledger.entries)
        return Closing(head=known, is_new=False, data={})
    collection = collect(paths, ledger, care=Care.BYTES)
    require_intact(collection)
    _require_ended(paths, collection)
    _require_reports(paths, frozen, ledger.entries)
    _require_verified(paths)
    data = {name: read_data(one) for name, one in frozen.manifest.data.items()}
    _require_data(data, frozen, data_changed)
    listed, history = list_files(paths), acts.fold(ledger.entries)
    said = {name: _with_reason(one, data_changed) for name, one in data.items()}
    seal = dump_seal(campaign, frozen.manifest_sha256, listed, said)
    files.replace(paths.seal, seal)  # over what a killed command left: no act names it yet
    closed = Closed(
        seal_sha256=files.sha256_bytes(seal),
        manifest_sha256=frozen.manifest_sha256,
        counts=Counts(
            slots=len(frozen.slots()),
            attempts=sum(len({key.attempt for key in own}) for own in history.slots.values()),
            receipts=len(history.sealed),
            allocations=len(history.allocations),
            candidates=len(frozen_candidates(ledger.entries)),
            files=len(listed),
        ),
    )
    ledger.append("closed", closed.to_json())
    head = read_head(campaign, ledger.entries, ledger.head)
    if head is None:
        raise ValueError("closed just now")
    return Closing(head=head, is_new=True, data=data, notes=_notes(data, frozen, history))


def _with_reason(one: DataNow, data_changed: str) -> DataNow:
    if one.state != "changed":
        return one
    return DataNow(
        state=one.state,
        sha256=one.sha256,
        num_bytes=one.num_bytes,
        num_files=one.num_files,
        reason=data_changed,
    )


def _notes(data: Mapping[str, DataNow], frozen: Frozen, history: acts.History) -> tuple[str, ...]:
    notes = [f"data set {name} was not hashed again: {one.reason}" for name, one in data.items() if not one.sha256]
    if not frozen.candidates:
        notes.append("no candidate was ever frozen: there is no verdict")
    if untried := [name for name in frozen.slots() if not history.slots.get(name)]:
        notes.append(f"{len(untried)} slot(s) were never attempted, such as {untried[0]}")
    return tuple(notes)


def _require_same_seal(paths: HomePaths, entries: Sequence[Entry]) -> None:
    entry = closed_entry(entries)
    if entry is None:
        return
    found = files.sha256_regular(paths.seal)
    if found != entry.data.get("seal_sha256"):
        raise EvidenceError(
            "not the list with which the campaign was closed",
            where=str(paths.seal),
            why=f"its SHA-256 is {found}, entry {entry.seq} of the ledger says {entry.data.get('seal_sha256')}",
            hint="campaign verify lists what else changed; restore it from a copy of the home",
        )
