"""What lies outside the home and is within reach: declared data, and what is installed for each side.

Somebody else's machine may have other files at the same paths. So what is installed is held against the campaign only
where the interpreter is the very one that was frozen; declared data wherever something lies at its path.
"""

from __future__ import annotations

import base64
import binascii
import csv
import io
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from . import environments, names, trees
from .digests import Digests, Kind, hash_outside, size_outside
from .facts import Facts
from .findings import Check, EvidenceError, Unread, unread
from .strict import Node

_PACKAGES = ("site-packages", "dist-packages")
_METADATA = (".dist-info", ".egg-info")
_SHARED = "/usr/lib/python3/dist-packages"
"""Where Debian keeps the packages of its own interpreter, whatever its version."""


# --- declared data ----------------------------------------------------------------------------------------------------


def check_data(facts: Facts, check: Check) -> None:
    """Hash all declared data again, where it lies at its path.

    Args:
        facts: The manifest and the ledger are known.
        check: Where findings go.
    """
    for name, declared in Node(facts.manifest, names.MANIFEST)["data"].fields():
        with check.each():
            _check_data_set(facts, check, name, declared)


def _check_data_set(facts: Facts, check: Check, name: str, declared: Node) -> None:
    path, frozen = declared["path"].as_text(), declared["sha256"].as_digest()
    if not os.path.lexists(path):
        check.not_checked(f"data set {name} is not here: {path}")
        return
    changed = _change_of(path, declared["bytes"].as_whole(), frozen, check)
    if not changed:
        check.remark(f"data set {name} is what was frozen")
        return
    what = f"data set {name} is not what was frozen: {changed}"
    if _is_amended(facts, "data"):
        check.remark(f"{what}; an amendment says that data changed")
    else:
        check.tampered(path, what)


def _change_of(path: str, num_bytes: int, frozen: str, check: Check) -> str:
    """Return how a data set differs from what was frozen; empty if it does not. What has another size is not read.

    The digest of a file is its content's, that of a folder the tree digest.
    """
    whole = os.path.realpath(path)
    if not os.path.isdir(whole):  # noqa: PTH112 - paths are texts here
        size = size_outside(whole)
        found = hash_outside(whole)[1] if size == num_bytes else ""
    else:
        size, found = _measure_folder(path, whole, num_bytes, check)
    if size != num_bytes:
        return f"it has {size} bytes, {names.MANIFEST} says {num_bytes}"
    return f"its digest is {found}, {names.MANIFEST} says {frozen}" if found != frozen else ""


def _measure_folder(path: str, whole: str, num_bytes: int, check: Check) -> tuple[int, str]:
    """Return how many bytes the files of a folder have, and its tree digest if it is so many."""
    with Digests(whole) as digests:
        for folder, why in digests.unreadable.items():
            raise EvidenceError(f"{path}/{folder}".rstrip("/"), why)
        size = sum(one.num_bytes for one in digests.below("") if one.kind is Kind.FILE)
        if size != num_bytes:
            return size, ""
        digests.hash_ahead()
        inside = Check(name=check.name, title=check.title)
        found = trees.tree_digest(trees.entries_on_disk(digests, "", inside, {}))
    for finding in inside.findings:
        check.tampered(f"{path}/{finding.where}", finding.what)
    return size, found


def _is_amended(facts: Facts, what: str) -> bool:
    return any(entry.act == "amended" and entry.data.get("what") == what for entry in facts.entries)


# --- environments -----------------------------------------------------------------------------------------------------


def check_environment(facts: Facts, check: Check) -> None:
    """Hash what is installed for each side again, by the lists that the distributions brought.

    Args:
        facts: The manifests are known.
        check: Where findings go.
    """
    sides = {"baseline": Node(facts.manifest, names.MANIFEST)["baseline"]}
    for candidate in facts.candidates.values():
        sides[candidate.id] = Node(candidate.manifest, names.candidate_manifest(candidate.id))["candidate"]
    seen: dict[str, str] = {}
    for name, side in sides.items():
        with check.each():
            identity = side.get("interpreter")
            if identity is None:
                check.not_checked(f"{name}: the manifest does not say what was installed")
                continue
            key = identity["environment_sha256"].as_text() + side["python"].as_text()
            if key in seen:
                check.remark(f"{name}: the environment of {seen[key]}")
                continue
            seen[key] = name
            _check_side(facts, check, name, side["python"].as_text(), identity)


def _check_side(facts: Facts, check: Check, name: str, python: str, identity: Node) -> None:
    executable, frozen = identity["path"].as_text(), identity["sha256"].as_text()
    try:
        found = hash_outside(python)[1]
    except EvidenceError as error:
        check.not_checked(f"{name}: its interpreter is not here: {python} {error.what}")
        return
    if found != frozen:
        check.not_checked(f"{name}: {python} is another interpreter than the one that was frozen, {executable}")
        return
    version = ".".join(identity["version"].as_text().split(".")[:2])
    folders = list(_package_folders(python, executable, version))
    listed: dict[str, dict[str, str]] = {}
    for stem, distribution in identity["installed"].fields():
        with check.each():
            for path, digest in _listed_by(check, stem, distribution, folders):
                listed.setdefault(path, {})[digest] = stem
    _hash_installed(check, listed)
    check.remark(f"{name}: {len(listed)} installed files hashed")
    changed = _environment_changed(identity, folders)
    if not changed:
        check.remark(f"{name}: environment_sha256 computed again, and the same")
    elif _is_amended(facts, "interpreter"):
        check.remark(f"{name}: {changed}; an amendment says that interpreters changed")
    else:
        check.tampered(python, f"not what was installed when the side was frozen: {changed}")


def _environment_changed(identity: Node, folders: list[str]) -> str:
    """Return how what is installed differs from what the digest of the whole environment was taken of; empty if not."""
    installed = list(identity["installed"].as_fields())
    version, sha256 = identity["version"].as_text(), identity["sha256"].as_text()
    frozen = identity["environment_sha256"].as_text()
    found = [environments.read_folder(folder) for folder in folders]
    others = ""
    for path in environments.paths_with(found, installed):
        other = environments.digest(version, sha256, path)
        if other == frozen:
            return ""
        others = others or other
    if more := environments.added(found, installed):
        return f"{len(more)} distributions are installed besides, such as {more[0]}"
    if not others:
        return "the distributions near the interpreter are not those that the manifest lists"
    return (
        f"the environment's digest is {others}, {names.MANIFEST} says {frozen}, although the distributions are the "
        "same: the size of an installed file is another, or a *.pth was changed, added or removed"
    )


def _hash_installed(check: Check, listed: Mapping[str, Mapping[str, str]]) -> None:
    """Hash files that distributions list.

    Args:
        check: Where findings go.
        listed: The distribution, by path and by the digest that it lists. Where several list one path, the last to be
            installed wrote over the others.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, found in zip(listed, pool.map(_outcome, listed), strict=True):
            if found in listed[path]:
                continue
            if isinstance(found, Unread):
                check.tampered(trees.shown(path), found)
                continue
            digest, stem = next(iter(listed[path].items()))
            is_digest = len(found) == len(digest)
            what = (
                f"changed: its SHA-256 is {found}, {stem} lists {digest}" if is_digest else f"{found}; {stem} lists it"
            )
            check.tampered(trees.shown(path), what)


def _outcome(path: str) -> str:
    """Return the digest of a file, or why there is none."""
    try:
        return hash_outside(path)[1]
    except EvidenceError as error:
        return error.what


def _package_folders(python: str, executable: str, version: str) -> Iterator[str]:
    """Yield the folders in which an interpreter finds what is installed, those of its virtual environment first."""
    for program in dict.fromkeys((python, executable)):
        prefix = os.path.dirname(os.path.dirname(program))  # noqa: PTH120 - paths are texts here
        for lib in ("lib", "lib64", "local/lib"):
            for kind in _PACKAGES:
                folder = f"{prefix}/{lib}/python{version}/{kind}"
                if os.path.isdir(folder):  # noqa: PTH112 - paths are texts here
                    yield folder
    if os.path.isdir(_SHARED):  # noqa: PTH112 - paths are texts here
        yield _SHARED


def _listed_by(check: Check, stem: str, frozen: Node, folders: list[str]) -> list[tuple[str, str]]:
    """Return path and digest of every file that a distribution lists with one, from the list that was frozen."""
    places = [(folder, f"{folder}/{stem}{end}") for folder in folders for end in _METADATA]
    there = [(folder, place) for folder, place in places if os.path.lexists(place)]
    if not there:
        raise EvidenceError(stem, "was installed when the side was frozen, and is not any more")
    sealed = frozen["record_sha256"].as_text()
    if not sealed:
        check.not_checked(f"{stem} has no list of its files")
        return []
    folder, record = there[0][0], f"{there[0][1]}/RECORD"
    digest = hash_outside(record)[1]
    if digest != sealed:
        raise EvidenceError(record, f"is not the list that was frozen: its SHA-256 is {digest}, frozen is {sealed}")
    return [(os.path.normpath(f"{folder}/{path}"), digest) for path, digest in _read_record(record).items()]


def _read_record(record: str) -> Mapping[str, str]:
    """Return the digest of every file that a RECORD lists with one."""
    try:
        with open(record, "rb") as stream:  # noqa: PTH123 - paths are texts here
            text = os.fsdecode(stream.read())
    except OSError as error:
        raise EvidenceError(record, unread(error)) from error
    found = {}
    for row in csv.reader(io.StringIO(text)):
        if len(row) == 3 and row[1].startswith("sha256="):
            coded = row[1].removeprefix("sha256=")
            try:
                found[row[0]] = base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4)).hex()
            except (binascii.Error, ValueError) as error:
                raise EvidenceError(record, f"lists {row[0]} with what is no digest: {error}") from error
    return found
