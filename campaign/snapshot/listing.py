"""files.json: the list of a tree's entries, one a line."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from campaign.documents import Document, Natural
from campaign.errors import EvidenceError
from campaign.snapshot.entries import Entry, EntryType, Mode, Origin


class _Item(Document):
    path: str | None = None
    path_b64: str | None = None
    type: EntryType
    mode: Mode
    bytes: Natural
    sha256: str
    origin: Origin


class _Listing(Document):
    format: Literal["files/1"] = "files/1"
    entries: tuple[_Item, ...]


def dump_listing(entries: Iterable[Entry]) -> bytes:
    """Return the bytes of files.json: entries in byte order of their paths, one a line."""
    lines = [
        json.dumps(_fields(entry), sort_keys=True, ensure_ascii=True)
        for entry in sorted(entries, key=lambda item: item.path)
    ]
    return ('{"entries": [\n' + ",\n".join(lines) + '\n], "format": "files/1"}\n').encode("ascii")


def parse_listing(data: bytes, *, where: str) -> tuple[Entry, ...]:
    """Parse the bytes of files.json.

    Raises:
        EvidenceError: They are not such a document, or name one path twice or one that leaves the tree.
    """
    entries = tuple(_entry(item, where) for item in _Listing.parse(data, where=where).entries)
    paths = [entry.path for entry in entries]
    if paths != sorted(set(paths)):
        raise EvidenceError("a path stands twice, or the paths are not in byte order", where=where)
    return entries


def read_listing(path: Path) -> tuple[Entry, ...]:
    """Read files.json; see `parse_listing`."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise EvidenceError(f"cannot be read: {error.strerror}", where=str(path)) from error
    return parse_listing(data, where=str(path))


def _fields(entry: Entry) -> dict[str, str | int]:
    fields: dict[str, str | int] = {
        "type": entry.type,
        "mode": entry.mode,
        "bytes": entry.num_bytes,
        "sha256": entry.sha256,
        "origin": entry.origin.value,
    }
    try:
        fields["path"] = entry.path.decode("utf-8")
    except UnicodeDecodeError:
        fields["path_b64"] = base64.b64encode(entry.path).decode("ascii")
    return fields


def _entry(item: _Item, where: str) -> Entry:
    return Entry(
        path=_path(item, where),
        type=item.type,
        mode=item.mode,
        num_bytes=item.bytes,
        sha256=item.sha256,
        origin=item.origin,
    )


def _path(item: _Item, where: str) -> bytes:
    if (item.path is None) == (item.path_b64 is None):
        raise EvidenceError("an entry has either path or path_b64", where=where)
    try:
        path = base64.b64decode(item.path_b64, validate=True) if item.path is None else item.path.encode("utf-8")  # type: ignore[arg-type]  # one of the two is not None
    except ValueError as error:
        raise EvidenceError(f"a path does not decode: {error}", where=where) from error
    if not path or b"\0" in path or any(part in (b"", b".", b"..") for part in path.split(b"/")):
        raise EvidenceError(f"a path leaves the tree: {path!r}", where=where)
    return path


__all__ = ["dump_listing", "parse_listing", "read_listing"]
