"""seal.json: every file of a home with its size and digest, and what the declared data are at closing."""

from __future__ import annotations

import base64
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from campaign import files
from campaign.collection.sealed import is_leftover
from campaign.documents import DataIdentity
from campaign.errors import ConfigError, EvidenceError
from campaign.freezing.data import read_identity
from campaign.paths import HomePaths

FORMAT = "seal/1"
MOST_THREADS = 8
DataState: TypeAlias = Literal["same", "changed", "not_here"]
_TORN = re.compile(r"ledger\.torn\.[1-9][0-9]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """One regular file, or one link, of a home."""

    path: bytes
    """Relative to the home."""
    type: Literal["f", "l"]
    num_bytes: int
    sha256: str
    """Of the content; of a link, of its target's text."""

    def to_json(self) -> dict[str, str | int]:
        """Return it as it stands in seal.json."""
        fields: dict[str, str | int] = {"type": self.type, "bytes": self.num_bytes, "sha256": self.sha256}
        try:
            return {"path": self.path.decode("utf-8"), **fields}
        except UnicodeDecodeError:
            return {"path_b64": base64.b64encode(self.path).decode("ascii"), **fields}


@dataclass(frozen=True, slots=True, kw_only=True)
class DataNow:
    """What a declared data set is when the campaign is closed."""

    state: DataState
    sha256: str
    num_bytes: int
    num_files: int
    reason: str
    """Why it is not here, or what is wrong with it."""

    def to_json(self) -> dict[str, str | int]:
        """Return it as it stands in seal.json."""
        numbers = {"bytes": self.num_bytes, "files": self.num_files}
        return {"state": self.state, "sha256": self.sha256, **numbers, "reason": self.reason}


# --- data -------------------------------------------------------------------------------------------------------------


def read_data(frozen: DataIdentity) -> DataNow:
    """Hash a declared data set again in full, and compare it with what was frozen."""
    path = Path(frozen.path)
    try:
        now = read_identity(path)
    except ConfigError as error:
        is_away = isinstance(error.__cause__, OSError) or not os.path.lexists(path)
        state: DataState = "not_here" if is_away else "changed"
        return DataNow(state=state, sha256="", num_bytes=0, num_files=0, reason=error.what)
    is_same = (now.sha256, now.bytes, now.files) == (frozen.sha256, frozen.bytes, frozen.files)
    return DataNow(
        state="same" if is_same else "changed",
        sha256=now.sha256,
        num_bytes=now.bytes,
        num_files=now.files,
        reason="" if is_same else f"its SHA-256 is {now.sha256}, {frozen.sha256} was frozen",
    )


# --- files ------------------------------------------------------------------------------------------------------------


def list_files(paths: HomePaths) -> list[ListedFile]:
    """Return every file that closing lists, by path, each read once.

    Raises:
        EvidenceError: Something is neither a file, a folder nor a link, or cannot be read.
    """
    found = sorted(_walk(paths, os.fsencode(paths.root), b""))
    threads = min(MOST_THREADS, os.cpu_count() or 1)
    with ThreadPoolExecutor(threads, thread_name_prefix="seal") as pool:
        return list(pool.map(lambda path: _read(paths.root, path), found))


def _is_left_out(paths: HomePaths, name: str) -> bool:
    """Return whether something directly in the home is not listed: the ledger closes over it, or it is no evidence."""
    own = {paths.ledger.name, paths.lock.name, paths.transport.name, paths.seal.name}
    is_cache = name.removeprefix(".").startswith(paths.database.name)
    return name in own or is_cache or _TORN.fullmatch(name) is not None


def _walk(paths: HomePaths, folder: bytes, prefix: bytes) -> Iterator[bytes]:
    """Yield every regular file and link below a folder."""
    try:
        with os.scandir(folder) as found:
            children = list(found)
    except OSError as error:
        raise EvidenceError(f"cannot be looked at: {error.strerror}", where=os.fsdecode(folder)) from error
    for child in children:
        name = os.fsdecode(child.name)
        if is_leftover(name) or (not prefix and _is_left_out(paths, name)):
            continue
        mode = child.stat(follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            yield from _walk(paths, child.path, prefix + child.name + b"/")
        elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            yield prefix + child.name
        else:
            raise EvidenceError("neither a file, a folder nor a link", where=os.fsdecode(child.path))


def _read(root: Path, path: bytes) -> ListedFile:
    whole = root / os.fsdecode(path)
    if whole.is_symlink():
        target = os.fsencode(os.readlink(whole))  # noqa: PTH115 - the text of the link, whatever it names
        return ListedFile(path=path, type="l", num_bytes=len(target), sha256=files.sha256_bytes(target))
    before = whole.lstat()
    sha256 = files.sha256_regular(whole)
    after = whole.lstat()
    if (before.st_size, before.st_mtime_ns, before.st_ino) != (after.st_size, after.st_mtime_ns, after.st_ino):
        raise EvidenceError("it was written to while it was read", where=str(whole))
    return ListedFile(path=path, type="f", num_bytes=after.st_size, sha256=sha256)


def dump_seal(campaign: str, manifest_sha256: str, listed: list[ListedFile], data: Mapping[str, DataNow]) -> bytes:
    """Return the bytes of seal.json: one file a line.

    Args:
        campaign: The campaign's name.
        manifest_sha256: Digest of its manifest.
        listed: Every file, by path.
        data: What each declared data set is.
    """
    lines = ",\n".join(json.dumps(one.to_json(), sort_keys=True, ensure_ascii=True) for one in listed)
    head = {
        "campaign": campaign,
        "data": {name: one.to_json() for name, one in sorted(data.items())},
    }
    tail = {"format": FORMAT, "manifest_sha256": manifest_sha256}
    opened = json.dumps(head, sort_keys=True, ensure_ascii=True)[:-1]
    closed = json.dumps(tail, sort_keys=True, ensure_ascii=True)[1:]
    return f'{opened}, "files": [\n{lines}\n], {closed}\n'.encode("ascii")
