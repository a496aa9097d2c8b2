"""The ledger: every line, its place in the chain, and what the acts of freezing say of the manifests.

What the acts of submission say is folded by `history`, and what closing says is held to the home by `closing`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from . import names, strict
from .closing import closed_by
from .facts import Candidate, Entry, Facts
from .findings import Check, EvidenceError
from .strict import Node

FIRST_PREVIOUS = "0" * 64
ACTS = frozenset(
    {
        "froze_baseline",
        "froze_candidate",
        "intent",
        "submitted",
        "not_submitted",
        "cancelled",
        "ended",
        "sealed",
        "ingested",
        "collected",
        "reported",
        "lock_taken_over",
        "torn_line",
        "unlocked",
        "accounted",
        "decided",
        "amended",
        "fallback_tried",
        "pruned",
        "closed",
    }
)
AFTER_CLOSED = frozenset({"reported", "decided", "lock_taken_over", "torn_line", "unlocked"})
"""What may follow the act `closed`: what says something about the campaign, or about the ledger itself."""
OF_THE_FILE = frozenset({"lock_taken_over", "torn_line", "unlocked"})
"""What may come before the first freeze: what says something about the ledger's file alone."""
_FROZEN_DIGESTS = ("protocol_sha256", "acceptance_sha256", "harness_sha256", "verifier_sha256")


def check(facts: Facts, check: Check) -> None:
    """Check the chain, and hold the manifests to the acts that froze them.

    Fills `Facts.entries`, and puts the candidates into the ledger's order; one that the ledger does not name is left
    out.

    Args:
        facts: The manifests are known.
        check: Where findings go.
    """
    data = facts.digests.read(names.LEDGER)
    facts.entries = _read_chain(data, check)
    closed = closed_by(facts)
    _check_torn(facts, check, data, is_closed=closed is not None)
    for where, what in _misplaced(facts.entries):
        check.tampered(where, what)
    with check.each():
        _check_baseline(facts)
    if not facts.is_short:
        _check_candidates(facts, check)
    check.remark(f"{len(facts.entries)} acts" + (f", closed by line {closed.seq}" if closed else ", not closed"))


# --- the chain --------------------------------------------------------------------------------------------------------


def _read_chain(data: bytes, check: Check) -> list[Entry]:
    """Return every line that is an entry, in order; what breaks the chain is a finding."""
    entries: list[Entry] = []
    previous = FIRST_PREVIOUS
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        with check.each():
            entry = _read_line(line, number, previous, check)
            entries.append(entry)
        previous = hashlib.sha256(line).hexdigest()
    if not entries:
        check.tampered(names.LEDGER, "is empty: the acts were removed")
    return entries


def _read_line(line: bytes, number: int, previous: str, check: Check) -> Entry:
    where = f"{names.LEDGER}:{number}"
    node = strict.read(line, where)
    node.only(("seq", "previous", "at", "act", "data"))
    seq = node["seq"].as_whole(1)
    if seq != number:
        check.tampered(where, f"the chain is broken: entry {seq} stands where {number} should")
    named = node["previous"].as_text()
    if named != previous:
        what = "the chain is broken: the line before it is not the one that was there when this was written"
        check.tampered(where, f"{what}: it names {named[:80]}, the line before it has {previous}")
    act = node["act"].as_text()
    if act not in ACTS:
        raise EvidenceError(
            where, f"records {act!r}, an act that this verifier does not know: use the release that made it"
        )
    return Entry(
        seq=number,
        at=node["at"].as_number(),
        act=act,
        data=node["data"].as_fields(),
        sha256=hashlib.sha256(line).hexdigest(),
    )


def _check_torn(facts: Facts, check: Check, data: bytes, *, is_closed: bool) -> None:
    torn = len(data) - (data.rfind(b"\n") + 1)
    if not torn:
        return
    what = f"its last line, {torn} bytes, has no end"
    if is_closed and facts.digests.get(names.LOCK) is None:
        check.tampered(names.LEDGER, f"{what}, and nobody is writing: added after the campaign was closed")
    else:
        check.incomplete(names.LEDGER, f"{what}: somebody is writing it, or was killed; the next command sets it aside")


# --- the order of acts ------------------------------------------------------------------------------------------------


def _misplaced(entries: list[Entry]) -> Iterator[tuple[str, str]]:
    """Yield the acts that cannot stand where they do."""
    closed: Entry | None = None
    is_frozen = False
    for entry in entries:
        where = f"{names.LEDGER}:{entry.seq}"
        if entry.act == "froze_baseline":
            is_frozen = True
        elif not is_frozen and entry.act not in OF_THE_FILE:
            yield where, f"{entry.act} before anything was frozen"
        if closed is not None and entry.act not in AFTER_CLOSED:
            yield where, f"{entry.act} after the campaign was closed by line {closed.seq}"
        if entry.act == "closed" and closed is None:
            closed = entry


# --- what was frozen --------------------------------------------------------------------------------------------------


def _check_baseline(facts: Facts) -> None:
    acts = [entry for entry in facts.entries if entry.act == "froze_baseline"]
    if not acts:
        raise EvidenceError(names.LEDGER, "does not say when the baseline was frozen: acts were removed")
    if len(acts) > 1:
        raise EvidenceError(f"{names.LEDGER}:{acts[1].seq}", f"freezes the baseline again, after line {acts[0].seq}")
    where = f"{names.LEDGER}:{acts[0].seq}"
    said, manifest = Node(acts[0].data, where), Node(facts.manifest, names.MANIFEST)
    if not facts.manifest_sha256:
        _require_readable(facts, names.MANIFEST)
    if said["manifest_sha256"].as_digest() != facts.manifest_sha256:
        raise EvidenceError(names.MANIFEST, _not_named("manifest", facts.manifest_sha256, said["manifest_sha256"]))
    for name in _FROZEN_DIGESTS:
        said[name].must_be(manifest[name].as_digest(), names.MANIFEST)
    said["snapshot_sha256"].must_be(manifest["baseline"]["snapshot_sha256"].as_digest(), names.MANIFEST)
    if said.get("power") is not None or manifest.get("power") is not None:
        said["power"].must_be(manifest["power"].value, names.MANIFEST)


def _check_candidates(facts: Facts, check: Check) -> None:
    known: dict[str, Candidate] = {}
    for entry in facts.entries:
        if entry.act == "froze_candidate":
            with check.each():
                found = _read_candidate(facts, entry)
                known.setdefault(found.id, found)
    named = {str(entry.data.get("candidate")) for entry in facts.entries if entry.act == "froze_candidate"}
    for name in set(facts.candidates) - named:
        what = "the ledger does not say that this candidate was frozen"
        if facts.digests.is_folder(names.STAGING):
            check.incomplete(names.candidate(name), f"{what}: its freeze is under way, or was killed")
        else:
            check.tampered(names.candidate(name), f"{what}: added")
    facts.candidates = known


def _read_candidate(facts: Facts, entry: Entry) -> Candidate:
    """Return the candidate that an act froze, held to its manifest."""
    said = Node(entry.data, f"{names.LEDGER}:{entry.seq}")
    name = said["candidate"].as_text()
    candidate = facts.candidates.get(name)
    path = names.candidate_manifest(name)
    if candidate is None:
        _require_readable(facts, path)
        raise EvidenceError(path, f"line {entry.seq} of the ledger freezes this candidate, and it is not here whole")
    sha256 = facts.digests.sha256(path)
    if said["manifest_sha256"].as_digest() != sha256:
        raise EvidenceError(path, _not_named("manifest", sha256, said["manifest_sha256"]))
    snapshot = Node(candidate.manifest, path)["candidate"]["snapshot_sha256"]
    said["snapshot_sha256"].must_be(snapshot.as_digest(), path)
    return Candidate(id=name, seq=entry.seq, manifest=candidate.manifest)


def _require_readable(facts: Facts, path: str) -> None:
    """Say that a manifest cannot be read, and not that it is not whole. What rests on it has no ground."""
    try:
        if facts.digests.get(path) is not None:
            facts.digests.sha256(path)
    except EvidenceError as error:
        facts.is_short |= error.is_unread
        raise


def _not_named(what: str, sha256: str, said: Node) -> str:
    return f"not the {what} that the ledger names: its SHA-256 is {sha256}, {said.where} says {said.as_text()}"
