"""The tree digest: one SHA-256 for a whole tree. docs/formats.md defines it; nothing else in the driver computes it."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from campaign import files
from campaign.errors import EvidenceError
from campaign.snapshot.entries import Entry, Origin, file_mode, show

DOMAIN = b"campaign-tree/1\n"


def tree_digest(entries: Iterable[Entry]) -> str:
    """Return the digest of a tree as 64 hex digits.

    Args:
        entries: All entries of the tree, in any order; the root itself has none.
    """
    digest = hashlib.sha256(DOMAIN)
    for entry in sorted(entries, key=lambda item: item.path):
        fields = (
            entry.type.encode("ascii"),
            entry.mode.encode("ascii"),
            entry.path,
            str(entry.num_bytes).encode("ascii"),
            entry.sha256.encode("ascii"),
        )
        for field in fields:
            digest.update(b"%d:%s," % (len(field), field))
    return digest.hexdigest()


def read_entries(root: Path) -> Iterator[Entry]:
    """Yield an entry for everything below a folder, read from the disk as it is now, nothing left out.

    Raises:
        EvidenceError: There is something that is no file, folder or link.
    """
    yield from _read_folder(os.fsencode(root), b"")


def digest_folder(root: Path) -> str:
    """Return the tree digest of a folder as it is on disk; see `read_entries`."""
    return tree_digest(read_entries(root))


def _read_folder(folder: bytes, prefix: bytes) -> Iterator[Entry]:
    with os.scandir(folder) as found:
        children = list(found)
    for child in children:
        path = prefix + child.name
        mode = child.stat(follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            yield folder_entry(path, Origin.PLAIN)
            yield from _read_folder(child.path, path + b"/")
        elif stat.S_ISLNK(mode):
            yield link_entry(path, os.readlink(child.path), Origin.PLAIN)
        elif stat.S_ISREG(mode):
            file = Path(os.fsdecode(child.path))
            yield Entry(
                path=path,
                type="f",
                mode=file_mode(mode),
                num_bytes=file.stat().st_size,
                sha256=files.sha256_file(file),
                origin=Origin.PLAIN,
            )
        else:
            raise EvidenceError("neither a file, a folder nor a link", where=show(child.path))


def folder_entry(path: bytes, origin: Origin) -> Entry:
    """Return the entry of a folder."""
    return Entry(path=path, type="d", mode="755", num_bytes=0, sha256="", origin=origin)


def link_entry(path: bytes, target: bytes, origin: Origin) -> Entry:
    """Return the entry of a symbolic link: its content is its target."""
    sha256 = hashlib.sha256(target).hexdigest()
    return Entry(path=path, type="l", mode="777", num_bytes=len(target), sha256=sha256, origin=origin)
