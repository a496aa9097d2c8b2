"""The identity of a data set: what its bytes are, wherever it lies."""

from __future__ import annotations

import os
from pathlib import Path

from campaign import files
from campaign.documents import DataIdentity
from campaign.errors import ConfigError, EvidenceError
from campaign.snapshot.digest import read_entries, tree_digest
from campaign.snapshot.entries import Entry, show


def read_identity(path: Path) -> DataIdentity:
    """Hash a data set: a file by its content, a folder by its tree digest.

    Args:
        path: A file or folder; a link is followed, links inside a folder are not.

    Raises:
        ConfigError: It is missing, unreadable or empty, or holds something whose bytes are elsewhere.
    """
    try:
        if path.is_file():
            return DataIdentity(path=str(path), sha256=files.sha256_file(path), bytes=path.stat().st_size, files=1)
        if path.is_dir():
            return _read_folder(path)
    except OSError as error:
        raise ConfigError(f"the data set cannot be read: {error}", where=str(path)) from error
    raise ConfigError("there is no such data set", where=str(path), hint="create it first, or correct its path")


def _read_folder(path: Path) -> DataIdentity:
    root = path.resolve()
    try:
        entries = list(read_entries(root))
    except EvidenceError as error:
        raise ConfigError(f"the data set holds what is {error.what}", where=error.where) from error
    held = [entry for entry in entries if entry.type == "f"]
    if not held:
        raise ConfigError("the data set is an empty folder", where=str(path), hint="fill it first, or correct its path")
    for entry in entries:
        _refuse_link_out(root, entry)
    num_bytes = sum(entry.num_bytes for entry in held)
    return DataIdentity(path=str(path), sha256=tree_digest(entries), bytes=num_bytes, files=len(held))


def _refuse_link_out(root: Path, entry: Entry) -> None:
    if entry.type == "l" and not Path(os.path.realpath(root / os.fsdecode(entry.path))).is_relative_to(root):
        raise ConfigError(
            "a link in the data set leads out of it",
            where=str(root / show(entry.path)),
            why="what it names is not covered by the digest",
            hint="name the folder that holds both, or copy the data",
        )
