"""Trees: the digest of one, the list of its entries, and what differs between the list and the disk."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from .digests import Digests, Found, Kind
from .findings import Check, EvidenceError
from .strict import Node

DOMAIN = b"campaign-tree/1\n"
_ORIGINS = ("tracked", "modified", "untracked", "included", "plain")
_MODES = {"f": ("644", "755"), "d": ("755",), "l": ("777",)}


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, folder or link of a tree, as its digest counts it.

    Attributes:
        path: Below the tree's root.
        kind: ``f``, ``d`` or ``l``.
        mode: ``644``, ``755`` or ``777``.
        num_bytes: Size of the content; of a link, of its target; 0 for a folder.
        sha256: Of the content; of a link, of its target; empty for a folder, and for a file that was not read.
    """

    path: bytes
    kind: str
    mode: str
    num_bytes: int
    sha256: str


def tree_digest(entries: Iterable[Entry]) -> str:
    """Return the digest of a tree; docs/formats.md has the definition."""
    digest = hashlib.sha256(DOMAIN)
    for entry in sorted(entries, key=lambda one: one.path):
        texts = (entry.kind, entry.mode, str(entry.num_bytes), entry.sha256)
        kind, mode, size, sha256 = (text.encode("ascii") for text in texts)
        for field in (kind, mode, entry.path, size, sha256):
            digest.update(b"%d:%s," % (len(field), field))
    return digest.hexdigest()


def shown(path: bytes | str) -> str:
    """Return a path as printable text: for messages, never for opening it."""
    text = os.fsdecode(path) if isinstance(path, bytes) else path
    if text.isprintable():
        return text
    return text.encode("unicode_escape", "backslashreplace").decode("ascii")


# --- what is there ----------------------------------------------------------------------------------------------------


def entries_on_disk(
    digests: Digests, folder: str, check: Check, listed: Mapping[bytes, Entry], *, most_bytes: int | None = None
) -> list[Entry]:
    """Return what lies below a folder; what cannot be an entry is a finding. A file that is not read has no digest.

    Args:
        digests: What lies in the home.
        folder: The tree's root, relative to the home; ``""`` for the home itself.
        check: Where findings go.
        listed: What should be there: of a file that was withheld it is the only word on the mode, and a file of another
            size need not be read, of which there may be any amount.
        most_bytes: Of a tree without a list: a larger file than this is a finding, and is not read.
    """
    cut = len(folder) + 1 if folder else 0
    found = []
    for one in digests.below(folder):
        path = os.fsencode(one.path[cut:])
        try:
            if most_bytes is not None and one.num_bytes > most_bytes:
                check.tampered(shown(one.path), f"has {one.num_bytes} bytes: too many for a file of it")
                found.append(Entry(path, "f", one.mode, one.num_bytes, ""))
                continue
            found.append(_entry(digests, one, path, listed))
        except EvidenceError as error:
            check.tampered(shown(error.where), error.what)
            if error.is_unread:
                found.append(Entry(path, "f", _mode(one, listed.get(path)), one.num_bytes, ""))
    return found


def _entry(digests: Digests, found: Found, path: bytes, listed: Mapping[bytes, Entry]) -> Entry:
    if found.kind is Kind.FOLDER:
        return Entry(path, "d", "755", 0, "")
    if found.kind is Kind.LINK:
        target = os.fsencode(found.target)
        return Entry(path, "l", "777", len(target), hashlib.sha256(target).hexdigest())
    known = listed.get(path)
    if known is not None and known.kind == "f" and known.num_bytes != found.num_bytes:
        return Entry(path, "f", found.mode, found.num_bytes, "")
    return Entry(path, "f", _mode(found, known), found.num_bytes, digests.sha256(found.path))


def _mode(found: Found, known: Entry | None) -> str:
    return known.mode if found.withheld and known is not None else found.mode


# --- what is listed ---------------------------------------------------------------------------------------------------


def read_listing(document: Node) -> dict[bytes, Entry]:
    """Return the entries that a files.json lists.

    Raises:
        EvidenceError: It cannot be such a list: a path stands twice, leaves the tree, or has no folder in the list.
    """
    document.format("files/1")
    document.only(("format", "entries"))
    found: dict[bytes, Entry] = {}
    last = b""
    for node in document["entries"].items():
        entry = _read_entry(node)
        if found and not entry.path > last:
            raise node.wrong(f"{shown(entry.path)} stands twice, or is not in byte order")
        folder = entry.path.rpartition(b"/")[0]
        if folder and (folder not in found or found[folder].kind != "d"):
            raise node.wrong(f"{shown(entry.path)} lies in a folder that is not listed")
        found[entry.path] = entry
        last = entry.path
    return found


def _read_entry(node: Node) -> Entry:
    node.only(("path", "path_b64", "type", "mode", "bytes", "sha256", "origin"))
    kind = node["type"].as_word(_MODES)
    node["origin"].as_word(_ORIGINS)
    path = read_path(node)
    sha256 = node["sha256"]
    if kind == "d":
        sha256.must_be("", "its type")
        node["bytes"].must_be(0, "its type")
    else:
        sha256.as_digest()
    return Entry(path, kind, node["mode"].as_word(_MODES[kind]), node["bytes"].as_whole(), sha256.as_text())


def read_path(node: Node) -> bytes:
    """Return the path that an item of a list has as ``path`` or, where it is not UTF-8, as ``path_b64``.

    Raises:
        EvidenceError: It has neither or both, or the path leads elsewhere.
    """
    plain, packed = node.get("path"), node.get("path_b64")
    if (plain is None) == (packed is None):
        raise node.wrong("has either path or path_b64")
    try:
        if plain is not None:
            path = plain.as_text().encode("utf-8")
        else:
            path = base64.b64decode(node["path_b64"].as_text(), validate=True)
    except (UnicodeEncodeError, binascii.Error, ValueError) as error:
        raise node.wrong(f"its path does not decode: {error}") from error
    if not path or b"\0" in path or any(part in (b"", b".", b"..") for part in path.split(b"/")):
        raise node.wrong(f"its path leads elsewhere: {shown(path)}")
    return path


# --- the two together -------------------------------------------------------------------------------------------------


def differences(listed: Mapping[bytes, Entry], found: Mapping[bytes, Entry]) -> Iterator[tuple[bytes, str]]:
    """Yield every path at which a tree is not as it is listed, and how.

    Args:
        listed: What should be there.
        found: What is there. What has no digest could not be read, which was said.
    """
    for path in sorted({*listed, *found}):
        here, there = found.get(path), listed.get(path)
        if here is None:
            yield path, "is not there: removed"
        elif there is None:
            yield path, "is not listed: added"
        elif here != there and (what := _difference(here, there)):
            yield path, what


_KINDS = {"f": "a file", "d": "a folder", "l": "a symbolic link"}


def _difference(found: Entry, listed: Entry) -> str:
    if found.kind != listed.kind:
        return f"is {_KINDS[found.kind]} where {_KINDS[listed.kind]} was"
    word = "leads elsewhere" if found.kind == "l" else "changed"
    if found.num_bytes != listed.num_bytes:
        return f"{word}: its size is {found.num_bytes} bytes, listed are {listed.num_bytes}"
    if found.sha256 and found.sha256 != listed.sha256:
        return f"{word}: its SHA-256 is {found.sha256}, listed is {listed.sha256}"
    return f"has another mode: {found.mode}, listed is {listed.mode}" if found.mode != listed.mode else ""
