"""Whether the data sets are still the ones that were frozen."""

from __future__ import annotations

from collections.abc import Mapping

from ..common.plan import DataIdentity
from ..common.storage import sha256_file
from .snapshot import Entry, TreeError, read_tree, tree_digest


def _measure(identity: DataIdentity) -> tuple[str, int, int]:
    """Return digest, bytes and number of files: of a file its SHA-256, of a folder its tree digest."""
    path = identity.path.resolve(strict=True)
    if path.is_dir():
        entries: list[Entry] = read_tree(path)
        files = [entry for entry in entries if entry.type == "f"]
        return tree_digest(entries), sum(entry.num_bytes for entry in files), len(files)
    return sha256_file(path), path.stat().st_size, 1


def _difference(name: str, identity: DataIdentity) -> str:
    try:
        sha256, num_bytes, num_files = _measure(identity)
    except (OSError, TreeError) as error:
        return f"data {name}: {error}"
    if (sha256, num_bytes, num_files) == (identity.sha256, identity.num_bytes, identity.num_files):
        return ""
    frozen = f"{identity.sha256}, {identity.num_bytes} bytes in {identity.num_files} files"
    return f"data {name} at {identity.path}: now {sha256}, {num_bytes} bytes in {num_files} files; frozen was {frozen}"


def find_changes(data: Mapping[str, DataIdentity]) -> list[str]:
    """Return one sentence for each data set that is not what was frozen."""
    found = [_difference(name, identity) for name, identity in data.items()]
    return [text for text in found if text]
