"""The evidence of each candidate, rebuilt from the attempts: nothing chosen, nothing left out, nothing written over."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from . import columns, names, rows
from .closing import closed_by
from .facts import Candidate, Entry, Facts
from .findings import Check
from .strict import Node

IDENTITY = "identity.json"
_MEMO = "evidence"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """The evidence of one candidate as its last report must have read it."""

    files: Mapping[str, bytes]
    """By name, identity.json included."""
    sha256: str
    """As a verdict's ``evidence_sha256``."""


def check(facts: Facts, check: Check) -> None:
    """Rebuild the evidence of every candidate that was reported on and compare it with what lies in its evaluation.

    Args:
        facts: Everything up to the sealed attempts is known.
        check: Where findings go.
    """
    if not facts.candidates:
        check.incomplete(names.CANDIDATES, "no candidate has been frozen: there is nothing to judge")
    for candidate in facts.candidates.values():
        with check.each():
            _check_candidate(facts, check, candidate)


def rebuilt(facts: Facts) -> dict[str, Rebuilt]:
    """Return the evidence behind the last report on each candidate, as far as it was found right."""
    found: dict[str, Rebuilt] = facts.memo.setdefault(_MEMO, {})
    return found


def last_report(facts: Facts, candidate: str) -> Entry | None:
    """Return the last act ``reported`` about a candidate; None if there was none."""
    acts = (one for one in reversed(facts.entries) if one.act == "reported")
    return next((one for one in acts if one.data.get("candidate") == candidate), None)


def missing(facts: Facts, check: Check, where: str, what: str) -> None:
    """Say that something a report left is gone: a report that is made again removes it for a while."""
    if closed_by(facts) is not None:
        check.tampered(where, f"{what}, and the campaign is closed")
    else:
        check.incomplete(where, f"{what}: campaign report")


# --- one candidate ----------------------------------------------------------------------------------------------------


def _check_candidate(facts: Facts, check: Check, candidate: Candidate) -> None:
    act, folder = last_report(facts, candidate.id), names.evidence(candidate.id)
    if act is None:
        check.incomplete(names.evaluation(candidate.id), "no report on this candidate yet: campaign report")
    known = rows.attempts_at(facts, act.seq if act is not None else None)
    for where, what in known.faults:
        check.tampered(where, what)
    if known.faults or known.damaged:
        _check_recorded(facts, check, candidate, act)
        check.not_checked(f"{folder}: attempts that it must hold are not whole, so that it cannot be rebuilt")
        return
    built = _build(facts, candidate, known)
    if act is not None:
        recorded = Node(act.data, f"{names.LEDGER}:{act.seq}")["evidence_sha256"].as_digest()
        if built.sha256 != recorded:
            what = f"reports on evidence with the digest {recorded}, the attempts give {built.sha256}"
            check.tampered(f"{names.LEDGER}:{act.seq}", what)
        rebuilt(facts)[candidate.id] = built
    if not facts.digests.is_folder(folder):
        if act is not None:
            missing(facts, check, folder, "is not there")
        return
    newer = _build(facts, candidate, rows.attempts_at(facts)) if act is not None else built
    _check_folder(facts, check, folder, built, newer)
    if act is not None and newer.files != built.files:
        check.incomplete(names.verdict(candidate.id), "older than the attempts that there are now: campaign report")


def _check_folder(facts: Facts, check: Check, folder: str, built: Rebuilt, newer: Rebuilt) -> None:
    """Compare an evidence folder with what the last report read, or with what a report that was cut short wrote."""
    for name in facts.digests.names(folder):
        if name not in built.files and not names.is_leftover(name):
            check.tampered(f"{folder}/{name}", "no table of the protocol: added")
    for name, data in built.files.items():
        path = f"{folder}/{name}"
        if facts.digests.get(path) is None:
            missing(facts, check, path, "is not there")
        elif facts.digests.sha256(path) not in {_sha256(data), _sha256(newer.files[name])}:
            check.tampered(path, _difference(facts, path, data))


def _check_recorded(facts: Facts, check: Check, candidate: Candidate, act: Entry | None) -> None:
    """Compare an evidence folder with the digest in the ledger alone."""
    folder = names.evidence(candidate.id)
    present = [file for file in _files(facts) if facts.digests.get(f"{folder}/{file}") is not None]
    if act is None or not present:
        return
    found: dict[str, Sequence[str]] = {}
    for file in present:
        path = f"{folder}/{file}"
        found[file] = columns.lines_of(file, facts.digests.read(path), path)
    digest = _digest(facts.digests.read(names.identity(candidate.id)), found)
    recorded = act.data.get("evidence_sha256")
    if digest != recorded:
        check.tampered(folder, f"its digest is {digest}, the ledger's line {act.seq} reported on {recorded}")


# --- rebuilding -------------------------------------------------------------------------------------------------------


def _files(facts: Facts) -> list[str]:
    """Return the names of the protocol's tables, each with the header that is known here."""
    headers = Node(facts.protocol, names.PROTOCOL)["headers"]
    for file, header in headers.fields():
        header.must_be(list(columns.known(file).columns), "this verifier")
    return [file for file, _ in headers.fields()]


def _build(facts: Facts, candidate: Candidate, known: rows.Known) -> Rebuilt:
    found: dict[str, list[str]] = {file: [] for file in _files(facts)}
    for (slot, _), attempt in known.attempts.items():
        if slot.partition("/")[0] not in ("baseline", candidate.id):
            continue
        found[columns.ATTEMPTS].append(attempt.line)
        if attempt.deciding.sealed is not None:
            for file, lines in rows.lines_of(facts, attempt.deciding.sealed).items():
                found[file].extend(lines)
    identity = _identity(facts, candidate)
    built = {file: columns.to_bytes(file, columns.sort_lines(file, lines)) for file, lines in found.items()}
    return Rebuilt(files={IDENTITY: identity, **built}, sha256=_digest(identity, found))


def _identity(facts: Facts, candidate: Candidate) -> bytes:
    own = names.candidate_manifest(candidate.id)
    value = {
        "format": "identity/1",
        "manifest_sha256": facts.manifest_sha256,
        "baseline_sha256": Node(facts.manifest, names.MANIFEST)["baseline"]["snapshot_sha256"].as_digest(),
        "candidate": candidate.id,
        "candidate_sha256": Node(candidate.manifest, own)["candidate"]["snapshot_sha256"].as_digest(),
    }
    return f"{json.dumps(value, indent=2, sort_keys=True)}\n".encode("ascii")


def _digest(identity: bytes, found: Mapping[str, Sequence[str]]) -> str:
    """Return the digest of some evidence, as docs/formats.md has it for ``evidence_sha256``."""
    parts = {IDENTITY: [identity]}
    for file, lines in found.items():
        parts[file] = [
            columns.TABLES[file].header.encode(),
            *(line.encode() for line in columns.sort_for_digest(file, lines)),
        ]
    digest = hashlib.sha256(b"campaign-evidence/1\n")
    for name in sorted(parts):
        for part in (name.encode(), b"%d" % len(parts[name]), *parts[name]):
            digest.update(b"%d:%s," % (len(part), part))
    return digest.hexdigest()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# --- saying where -----------------------------------------------------------------------------------------------------


def _difference(facts: Facts, path: str, wanted: bytes) -> str:
    """Return in what a file of the evidence differs from what the attempts give."""
    if facts.digests.require_file(path).withheld:
        return "its digest is not that of what the attempts give"
    try:
        found = facts.digests.read(path).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        return f"is not UTF-8: {error}"
    right = wanted.decode("utf-8").split("\n")
    added, lost = Counter(found) - Counter(right), Counter(right) - Counter(found)
    said = [
        *_count(added, "that no attempt left"),
        *_count(lost, "fewer than the attempts left"),
    ]
    if not said:
        first = next(number for number, (one, other) in enumerate(zip(found, right, strict=True), 1) if one != other)
        return f"its lines are in another order, from line {first} on"
    return "; ".join(said)


def _count(lines: Counter[str], what: str) -> list[str]:
    if not lines:
        return []
    number = lines.total()
    return [f"{number} {'line' if number == 1 else 'lines'} {what}, as {min(lines)[:160]!r}"]
