"""What closing a campaign says of it: the list of every file, the counts, and the line that is kept elsewhere."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from . import names, trees
from .digests import Found, Kind
from .facts import Entry, Facts
from .findings import Check, EvidenceError
from .history import history_of
from .strict import Node

HEAD = "campaign-head/1"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_COUNTED = ("slots", "attempts", "receipts", "candidates")
_COUNTS = (*_COUNTED, "allocations", "files")


@dataclass(frozen=True, slots=True)
class Head:
    """The line that was kept elsewhere, as far as it was given.

    Attributes:
        sha256: Digest of the ledger's line ``closed``.
        line: The whole line; empty where the digest alone was given.
    """

    sha256: str
    line: str = ""


def parse_head(text: str) -> Head:
    """Return what was given as the head: 64 hex digits, or the whole line.

    Raises:
        ValueError: It is neither.
    """
    words = text.split()
    if len(words) == 1 and _DIGEST.fullmatch(words[0].lower()):
        return Head(words[0].lower())
    if len(words) == 4 + len(_COUNTED) and words[0] == HEAD and _DIGEST.fullmatch(words[2]):
        return Head(words[2], " ".join(words))
    raise ValueError(f"not a head: 64 hex digits, or a line that begins with {HEAD}")


def head_line(facts: Facts) -> str:
    """Return the head line of a closed campaign; empty if it is open.

    Raises:
        EvidenceError: The act ``closed`` cannot be one.
    """
    entry = closed_by(facts)
    if entry is None:
        return ""
    counts = Node(entry.data, f"{names.LEDGER}:{entry.seq}")["counts"]
    numbers = " ".join(f"{name}={counts[name].as_whole()}" for name in _COUNTED)
    return f"{HEAD} {facts.manifest.get('campaign')} {entry.sha256} {numbers} entries={entry.seq}"


def closed_by(facts: Facts) -> Entry | None:
    """Return the act that closed the campaign; None if it is open."""
    return next((entry for entry in facts.entries if entry.act == "closed"), None)


def check(facts: Facts, check: Check) -> None:
    """Hold the whole home to the list with which it was closed, and the act to what it counts.

    Args:
        facts: Manifests and ledger are known.
        check: Where findings go.
    """
    entry = closed_by(facts)
    if entry is None:
        if facts.digests.get(names.SEAL) is not None:
            check.incomplete(
                names.SEAL, "no act of the ledger names this list: closing was killed, or the act was removed"
            )
        check.incomplete(names.LEDGER, "the campaign is not closed: nothing shows that its last acts are all there")
        return
    closed = Node(entry.data, f"{names.LEDGER}:{entry.seq}")
    with check.each():
        closed["manifest_sha256"].must_be(facts.manifest_sha256, names.MANIFEST)
    sealed = closed["seal_sha256"].as_digest()
    if contradiction := facts.digests.contradiction(names.SEAL, None, sealed):
        # The list is read all the same: it may tell what else was changed.
        check.tampered(names.SEAL, f"not the list with which the campaign was closed: {contradiction}")
    listed = _read_seal(facts)
    for where, what in _differences(facts, entry, listed):
        check.tampered(where, what)
    with check.each():
        _check_counts(facts, closed["counts"], len(listed))
    check.remark(f"{len(listed)} files listed at closing")
    later = [one.act for one in facts.entries if one.seq > entry.seq]
    if later:
        check.remark(f"{len(later)} acts after it, which no head line covers: {', '.join(dict.fromkeys(later))}")


def check_head(facts: Facts, check: Check) -> None:
    """Compare the ledger with the head that was kept elsewhere.

    Args:
        facts: The ledger is known.
        check: Where findings go.
    """
    head = parse_head(facts.options.head)
    entry = closed_by(facts)
    if entry is not None and entry.sha256 == head.sha256:
        if head.line and head.line != head_line(facts):
            check.tampered(f"{names.LEDGER}:{entry.seq}", f"its head line is {head_line(facts)}, given was {head.line}")
        return
    other = next((one for one in facts.entries if one.sha256 == head.sha256), None)
    if other is not None:
        check.not_checked(f"the head given is that of line {other.seq}, {other.act}: what follows it is not anchored")
    elif entry is None:
        check.tampered(names.LEDGER, f"no line has the digest given, {head.sha256}: lines were removed or rewritten")
    else:
        what = f"its digest is {entry.sha256}, given was {head.sha256}: this is another campaign, or it was rewritten"
        check.tampered(f"{names.LEDGER}:{entry.seq}", what)


# --- the list ---------------------------------------------------------------------------------------------------------


def _read_seal(facts: Facts) -> dict[bytes, trees.Entry]:
    """Return what the list has, by path; its entries have no mode."""
    seal = facts.document(names.SEAL)
    seal.format("seal/1")
    seal.only(("format", "campaign", "manifest_sha256", "files", "data"))
    seal["campaign"].must_be(facts.manifest.get("campaign"), names.MANIFEST)
    seal["manifest_sha256"].must_be(facts.manifest_sha256, names.MANIFEST)
    found: dict[bytes, trees.Entry] = {}
    for node in seal["files"].items():
        node.only(("path", "path_b64", "type", "bytes", "sha256"))
        path = trees.read_path(node)
        if path in found:
            raise node.wrong(f"{trees.shown(path)} stands twice")
        kind = node["type"].as_word(("f", "l"))
        found[path] = trees.Entry(path, kind, "", node["bytes"].as_whole(), node["sha256"].as_digest())
    return found


def is_listed(path: str) -> bool:
    """Return whether the list of a closed campaign names a file of this path; docs/formats.md has the exceptions."""
    if any(names.is_leftover(name) for name in path.split("/")):
        return False
    first = path.partition("/")[0]
    if first in (names.LEDGER, names.LOCK, names.SEAL, names.TRANSPORT) or names.is_torn(first):
        return False
    return not first.removeprefix(".").startswith(names.DATABASE)


def _differences(facts: Facts, closed: Entry, listed: Mapping[bytes, trees.Entry]) -> Iterator[tuple[str, str]]:
    later = _reported_later(facts, closed)
    found = _files(facts)
    for path in sorted({*listed, *found, *map(os.fsencode, later)}):
        text = os.fsdecode(path)
        sha256, line = later.get(text, ("", closed.seq))
        expected = trees.Entry(path, "f", "", -1, sha256) if sha256 else listed.get(path)
        if expected is not None and not sha256 and _is_of_replaced_report(text, later):
            expected = None
        if expected is None and path not in found:
            continue
        try:
            what = _difference(facts, text, found.get(path), expected)
        except EvidenceError as error:  # it cannot be read
            yield trees.shown(error.where), error.what
            continue
        if what and not (expected is None and _is_of_new_report(text, later)):
            yield trees.shown(text), f"{what} (line {line} of the ledger)"


def _files(facts: Facts) -> dict[bytes, Kind]:
    return {
        os.fsencode(one.path): one.kind
        for one in facts.digests.below("")
        if one.kind is not Kind.FOLDER and is_listed(one.path) and not _is_left(facts, one)
    }


def _is_left(facts: Facts, found: Found) -> bool:
    """Return whether a file was left behind on a bundle's machine: it was never here, and so is in no list."""
    return found.withheld and found.path not in facts.withheld


def _difference(facts: Facts, path: str, kind: Kind | None, listed: trees.Entry | None) -> str:
    if listed is None:
        return "is no file of the campaign as it was closed: added"
    if kind is None:
        facts.digests.get(path)  # which says where nobody knows
        return "is not there: removed after the campaign was closed"
    if kind.value != listed.kind:
        return "is of another kind than when the campaign was closed"
    if kind is Kind.LINK:
        found = facts.digests.get(path)
        target = os.fsencode(found.target) if found is not None else b""
        return "" if hashlib.sha256(target).hexdigest() == listed.sha256 else "leads elsewhere than at closing"
    num_bytes = None if listed.num_bytes < 0 else listed.num_bytes
    contradiction = facts.digests.contradiction(path, num_bytes, listed.sha256)
    return f"changed after it was listed: {contradiction}" if contradiction else ""


def _reported_later(facts: Facts, closed: Entry) -> dict[str, tuple[str, int]]:
    """Return the files of reports made after closing: their digest, and the line that names it."""
    found: dict[str, tuple[str, int]] = {}
    for entry in facts.entries:
        if entry.act != "reported" or entry.seq < closed.seq:
            continue
        said = Node(entry.data, f"{names.LEDGER}:{entry.seq}")
        candidate = said["candidate"].as_text()
        folder = f"{names.evaluation(candidate)}/"
        found = {path: one for path, one in found.items() if not path.startswith(folder)}
        found[names.verdict(candidate)] = (said["verdict_sha256"].as_digest(), entry.seq)
        found[names.provenance(candidate)] = (said["provenance_sha256"].as_digest(), entry.seq)
        for name, node in said["files"].fields():
            found[f"{names.report(candidate)}/{name}"] = (node.as_digest(), entry.seq)
    return found


def _is_of_new_report(path: str, later: Mapping[str, tuple[str, int]]) -> bool:
    """Return whether a file is evidence of a candidate that was reported on after closing: rebuilt by another check."""
    parts = path.split("/")
    return len(parts) == 4 and path.startswith(f"{names.evidence(parts[1])}/") and names.verdict(parts[1]) in later


def _is_of_replaced_report(path: str, later: Mapping[str, tuple[str, int]]) -> bool:
    """Return whether a file belonged to a report in whose place a later one was put."""
    parts = path.split("/")
    return len(parts) > 3 and path.startswith(f"{names.report(parts[1])}/") and names.verdict(parts[1]) in later


# --- the counts -------------------------------------------------------------------------------------------------------


def _check_counts(facts: Facts, said: Node, num_files: int) -> None:
    """Count again what the act counts, from protocol and ledger."""
    history = history_of(facts)
    counted = {
        "attempts": len({(one.slot, one.attempt) for one in history.planned.values()}),
        "allocations": len(history.allocations),
        "receipts": len(history.seen),
        "candidates": len(history.candidates),
        "files": num_files,
    }
    protocol = Node(facts.protocol, names.PROTOCOL)
    sides = [slot["side"].as_text() for slot in protocol["slots"].items()]
    counted["slots"] = sides.count("baseline") + sides.count("candidate") * counted["candidates"]
    said.only(_COUNTS)
    for name in _COUNTS:
        said[name].must_be(counted[name], "counting again")
