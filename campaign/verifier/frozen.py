"""Everything that was frozen: manifests, protocol, configuration, the three programs and the sides' trees."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from . import names, trees
from .digests import Kind
from .facts import Candidate, Facts
from .findings import Check, EvidenceError
from .strict import Node

PROGRAMS = {"acceptance_sha256": names.ACCEPTANCE, "harness_sha256": names.HARNESS, "verifier_sha256": names.VERIFIER}
"""What the manifest calls the digest of each program, and where the program lies."""
_MOST_SOURCE_BYTES = 1 << 26
"""More than any file of the three programs has. There is no list of their files that would name sizes."""
_ID = re.compile(r"c[0-9a-f]{12}")
_IN_FROZEN = frozenset(
    {names.CONFIG, names.ACCEPTANCE, names.HARNESS, names.VERIFIER, names.BASELINE, names.CANDIDATES}
)


def check(facts: Facts, check: Check) -> None:
    """Check what was frozen against its own digests; the ledger's word on the manifests is another check's.

    Fills the manifests and the protocol in `Facts`. A candidate whose documents are not right is left out.

    Args:
        facts: Nothing but the listing of the home is known.
        check: Where findings go.
    """
    manifest = _read_manifest(facts)
    with check.each():
        _check_protocol(facts, manifest)
    with check.each():
        _check_config(facts, manifest)
    for field, folder in PROGRAMS.items():
        with check.each():
            _check_program(facts, check, folder, manifest[field].as_digest())
    with check.each():
        _check_side(facts, check, names.BASELINE, manifest["baseline"])
    for name in facts.digests.names(names.CANDIDATES):
        if not names.is_leftover(name):
            with check.each():
                _check_candidate(facts, check, name)
    _check_strangers(facts, check)
    check.remark(f"the baseline and {len(facts.candidates)} candidate(s)")


# --- documents --------------------------------------------------------------------------------------------------------


def _read_manifest(facts: Facts) -> Node:
    manifest = facts.document(names.MANIFEST)
    manifest.format("manifest/1")
    manifest["campaign"].as_text()
    facts.manifest = manifest.as_fields()
    facts.manifest_sha256 = facts.digests.sha256(names.MANIFEST)
    return manifest


def _check_protocol(facts: Facts, manifest: Node) -> None:
    protocol = facts.document(names.PROTOCOL)
    sha256 = facts.digests.sha256(names.PROTOCOL)
    protocol.format("protocol/1")
    # Also where it is not the frozen one: what else is wrong is then told as well.
    facts.protocol, facts.protocol_sha256 = protocol.as_fields(), sha256
    frozen = manifest["protocol_sha256"].as_digest()
    if sha256 != frozen:
        raise EvidenceError(
            names.PROTOCOL, f"not the protocol that was frozen: its SHA-256 is {sha256}, {names.MANIFEST} says {frozen}"
        )
    protocol["campaign"].must_be(manifest["campaign"].as_text(), names.MANIFEST)


def _check_config(facts: Facts, manifest: Node) -> None:
    frozen = manifest["config_sha256"].as_digest()
    if contradiction := facts.digests.contradiction(names.CONFIG, None, frozen):
        raise EvidenceError(names.CONFIG, f"not the configuration that was frozen: {contradiction}")


# --- programs ---------------------------------------------------------------------------------------------------------


def _check_program(facts: Facts, check: Check, folder: str, frozen: str) -> None:
    """Hold a program to its tree digest. There is no list of its files: what cannot be one of them is named."""
    if not facts.digests.is_folder(folder):
        raise EvidenceError(folder, "is not there: removed")
    entries = trees.entries_on_disk(facts.digests, folder, check, {}, most_bytes=_MOST_SOURCE_BYTES)
    found = trees.tree_digest(entries)
    if found == frozen:
        return
    for entry in entries:
        path = os.fsdecode(entry.path)
        if entry.kind == "l" or (entry.kind == "f" and not path.endswith(".py")) or "__pycache__" in path.split("/"):
            check.tampered(trees.shown(f"{folder}/{path}"), "is no source of the program: added")
    if not _is_all_read(facts, folder, entries):
        return  # it has no digest, and why not was said
    raise EvidenceError(
        folder, f"not the program that was frozen: its tree digest is {found}, {names.MANIFEST} says {frozen}"
    )


# --- sides ------------------------------------------------------------------------------------------------------------


def _check_candidate(facts: Facts, check: Check, name: str) -> None:
    folder = names.candidate(name)
    path = names.candidate_manifest(name)
    if facts.digests.get(path) is None:
        raise EvidenceError(folder, "has no manifest: no candidate that was frozen")
    manifest = facts.document(path)
    manifest.format("candidate/1")
    side = manifest["candidate"]
    manifest["id"].must_be(name, "the folder's name")
    if _ID.fullmatch(name) is None or not side["snapshot_sha256"].as_digest().startswith(name[1:]):
        raise side["snapshot_sha256"].wrong(f"is not what the candidate's id, {name}, begins with")
    manifest["manifest_sha256"].must_be(facts.manifest_sha256, names.MANIFEST)
    # Its number and its place among the candidates come from the ledger.
    facts.candidates[name] = Candidate(id=name, seq=0, manifest=manifest.as_fields())
    _check_side(facts, check, folder, side)
    _check_names(facts, check, folder, ("tree", "files.json", "changes.patch", names.MANIFEST))


def _check_side(facts: Facts, check: Check, folder: str, side: Node) -> None:
    """Hold a side's list to the manifest, and its tree to both."""
    path = names.listing(folder)
    with check.each():
        if contradiction := facts.digests.contradiction(path, None, side["files_sha256"].as_digest()):
            check.tampered(path, f"not the list that was frozen: {contradiction}")
    path = names.patch(folder)
    with check.each():
        if contradiction := facts.digests.contradiction(path, None, side["changes_sha256"].as_digest()):
            check.tampered(path, f"not the changes that were frozen: {contradiction}")
    listed: dict[bytes, trees.Entry] = {}
    with check.each():
        listed = trees.read_listing(facts.document(names.listing(folder)))
    tree = names.tree(folder)
    if not facts.digests.is_folder(tree):
        raise EvidenceError(tree, "is not there: removed")
    found = {entry.path: entry for entry in trees.entries_on_disk(facts.digests, tree, check, listed)}
    for inner, what in trees.differences(listed, found) if listed else ():
        path = f"{tree}/{os.fsdecode(inner)}"
        if inner in found or facts.digests.hidden_in(path) is None:
            check.tampered(trees.shown(path), what)
    if not _is_all_read(facts, tree, found.values()):
        return  # the tree has no digest, and why not was said
    digest, frozen = trees.tree_digest(found.values()), side["snapshot_sha256"].as_digest()
    if digest != frozen:
        check.tampered(tree, f"not the tree that was frozen: its digest is {digest}, the manifest says {frozen}")


def _is_all_read(facts: Facts, tree: str, entries: Iterable[trees.Entry]) -> bool:
    """Return whether every file of a tree was read, and every folder of it listed."""
    if any(folder == tree or folder.startswith(f"{tree}/") for folder in facts.digests.unreadable):
        return False
    return all(entry.kind != "f" or entry.sha256 for entry in entries)


# --- what else there is -----------------------------------------------------------------------------------------------


def _check_strangers(facts: Facts, check: Check) -> None:
    for name in facts.digests.names(names.FROZEN):
        path = f"{names.FROZEN}/{name}"
        if path not in _IN_FROZEN and not names.is_leftover(name):
            check.tampered(trees.shown(path), "was not frozen: added")
    _check_names(facts, check, names.BASELINE, ("tree", "files.json", "changes.patch"))
    if facts.digests.is_folder(names.STAGING):
        check.incomplete(names.STAGING, "a freeze is under way, or was killed: repeat it, it removes or completes this")
    for path in (names.FROZEN, *sorted(_IN_FROZEN)):
        found = facts.digests.get(path)
        wanted = Kind.FILE if path == names.CONFIG else Kind.FOLDER
        if found is not None and found.kind is not wanted:
            check.tampered(path, f"is {found.word} where {'a file' if wanted is Kind.FILE else 'a folder'} should be")


def _check_names(facts: Facts, check: Check, folder: str, allowed: Iterable[str]) -> None:
    for name in facts.digests.names(folder):
        if name not in allowed and not names.is_leftover(name):
            check.tampered(trees.shown(f"{folder}/{name}"), "was not frozen: added")
