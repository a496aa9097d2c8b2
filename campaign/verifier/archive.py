"""Unpacking an exported campaign, and finding the home in what was unpacked.

Nothing is taken on trust: names, kinds, sizes and digests of all members are checked before or while they are written.
Nothing can be written outside of the new folder, since no link exists before the last file has been written.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from . import names, strict
from .findings import EvidenceError

EXPORT = "export.json"
"""What an archive holds, and what was withheld from it; its first member."""
HOME = "home"
"""The folder of the campaign home, beside it."""
CRATE = "ro-crate-metadata.json"
_TOP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_MOST_LISTING_BYTES = 1 << 30
_CHUNK_BYTES = 1 << 20
_FILE_MODES = (0o644, 0o755)
_OF_NAMES = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ)
"""Errors that names of an archive's own choice can cause."""
_PARTS_OF_A_HOME = (names.MANIFEST, names.PROTOCOL, names.LEDGER, names.FROZEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One file that an archive holds."""

    num_bytes: int
    sha256: str
    mode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What export.json says. Paths are relative to its folder; those of withheld files to the home."""

    files: Mapping[str, Member]
    folders: frozenset[str]
    links: Mapping[str, str]
    """Target by path."""
    withheld: Mapping[str, tuple[int, str]]
    """Bytes and SHA-256."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A home that can be verified."""

    root: Path
    withheld: Mapping[str, tuple[int, str]]
    """What an export left out, by path relative to the home: bytes and SHA-256."""


# --- what is asked for ------------------------------------------------------------------------------------------------


@contextmanager
def opened(path: Path) -> Iterator[Opened]:
    """Find the home at a path: a home, an unpacked export, or an archive, which is unpacked for the while.

    Args:
        path: What was named.

    Raises:
        EvidenceError: An archive, or what it says of itself, is not as it should be.
    """
    if path.is_dir():
        is_home = any(os.path.lexists(path / part) for part in _PARTS_OF_A_HOME)
        # A list that was put into a home must not lead the reader to another home below it.
        yield _unpacked(path) if not is_home and _is_own_file(path / EXPORT) else Opened(root=path, withheld={})
        return
    if path.exists() and not path.is_file():
        raise EvidenceError(path.name, "is neither a folder nor a file")  # a pipe would be waited for
    with tempfile.TemporaryDirectory(prefix="campaign-export-") as folder:
        yield _unpacked(extract(path, Path(folder) / "unpacked"))


def _is_own_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _unpacked(folder: Path) -> Opened:
    if (folder / EXPORT).stat().st_size > _MOST_LISTING_BYTES:
        raise EvidenceError(EXPORT, "is too large")
    if (folder / HOME).is_symlink():
        raise EvidenceError(HOME, "is a symbolic link where a folder should be")
    listing = parse_listing((folder / EXPORT).read_bytes())
    return Opened(root=folder / HOME, withheld=listing.withheld)


# --- the listing ------------------------------------------------------------------------------------------------------


def parse_listing(data: bytes) -> Listing:
    """Parse export.json.

    Raises:
        EvidenceError: It is none, or names a path twice, or one that leads elsewhere.
    """
    document = strict.read(data, EXPORT)
    document.format("export/1")
    files: dict[str, Member] = {}
    for item in document["files"].items():
        path = _safe(item["path"].as_text())
        mode = 0o755 if item["executable"].as_flag() else 0o644
        member = Member(num_bytes=item["bytes"].as_whole(), sha256=item["sha256"].as_digest(), mode=mode)
        if files.setdefault(path, member) is not member:
            raise EvidenceError(EXPORT, f"lists {path!a} twice")
    folders = [_safe(item.as_text()) for item in document["folders"].items()]
    pairs = [(_safe(item["path"].as_text()), item["target"].as_text()) for item in document["links"].items()]
    links = dict(pairs)
    listed = [*files, *folders, *(path for path, _ in pairs)]
    if len(set(listed)) != len(listed):
        raise EvidenceError(EXPORT, "lists a path twice")
    withheld: dict[str, tuple[int, str]] = {}
    for item in document["withheld"].items():
        path = _safe(item["path"].as_text())
        if path in withheld or f"{HOME}/{path}" in listed:
            raise EvidenceError(EXPORT, f"withholds {path!a}, which is listed elsewhere, too")
        withheld[path] = (item["bytes"].as_whole(), item["sha256"].as_digest())
    for path, target in links.items():
        _require_inside(path, target)
    return Listing(files=files, folders=frozenset(folders), links=links, withheld=withheld)


def _safe(path: str) -> str:
    """Return a path that stays below its folder.

    Raises:
        EvidenceError: It does not.
    """
    parts = path.split("/")
    if not path or path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise EvidenceError(EXPORT, f"the name {path!a} leads elsewhere, or nowhere")
    return path


def _require_inside(path: str, target: str) -> None:
    """Refuse a link that leads out of the source tree of a frozen side.

    Raises:
        EvidenceError: It does, or it lies somewhere else than in such a tree.
    """
    within = re.match(rf"{HOME}/(?:{names.BASELINE}|{names.CANDIDATES}/[^/]+)/tree/", path)
    if within is None:
        raise EvidenceError(EXPORT, f"{path!a} is a link where no source tree is")
    depth = path[within.end() :].count("/")
    if not target or target.startswith("/") or "\0" in target:
        raise EvidenceError(EXPORT, f"the link {path!a} leads to {target!a}")
    for part in target.split("/"):
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0:
            raise EvidenceError(EXPORT, f"the link {path!a} leads out of its source tree, to {target!a}")


# --- unpacking --------------------------------------------------------------------------------------------------------


def extract(archive: Path, into: Path) -> Path:
    """Unpack an archive that `campaign export` wrote, and nothing else.

    Args:
        archive: The archive.
        into: A folder that is not there yet.

    Returns:
        The folder, which holds export.json and the home.

    Raises:
        EvidenceError: It is no such archive, or not all of it, or holds something that its own listing does not; then
            nothing stays unpacked.
        OSError: It cannot be read, or not be written.
    """
    try:
        # Not compressed: what is unpacked can be no larger than what was given.
        with _whole(into), archive.open("rb") as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
            _extract(tar, into, archive.stat().st_size)
    except (tarfile.TarError, UnicodeError, RecursionError) as error:
        raise EvidenceError(archive.name, f"not an archive of an exported campaign: {error}") from error
    except OSError as error:
        if error.errno not in _OF_NAMES:
            raise
        raise EvidenceError(archive.name, f"holds what cannot be a file here: {error.strerror}") from error
    return into


@contextmanager
def _whole(folder: Path) -> Iterator[None]:
    """Make a folder, and remove it with all that is in it if what fills it fails: nobody shall take a part for all."""
    folder.mkdir(mode=0o755)
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _extract(tar: tarfile.TarFile, into: Path, archive_bytes: int) -> None:
    first = tar.next()
    top, _, name = (first.name if first else "").partition("/")
    if first is None or name != EXPORT or _TOP.fullmatch(top) is None or not first.isreg():
        raise EvidenceError(EXPORT, "is not the first member of the archive")
    if first.size > min(archive_bytes, _MOST_LISTING_BYTES):
        raise EvidenceError(EXPORT, f"claims to have {first.size} bytes")
    data = _opened_member(tar, first).read(first.size)
    listing = parse_listing(data)
    (into / EXPORT).write_bytes(data)
    pending = {**listing.files}
    links = {**listing.links}
    folders = set(listing.folders)
    for member in iter(tar.next, None):
        path = _path_of(member, top)
        if member.issparse():
            raise EvidenceError(path, "has holes: what is unpacked could be larger than the archive")
        if member.isreg() and path in pending:
            _write_file(tar, member, pending.pop(path), into / path)
        elif member.isdir() and path in folders:
            folders.remove(path)
            (into / path).mkdir(mode=0o755, parents=True, exist_ok=True)
        elif member.issym() and links.get(path) == member.linkname:
            del links[path]
        else:
            raise EvidenceError(path, "not listed in export.json, listed as something else, or there twice")
    if missing := [*pending, *folders, *links]:
        raise EvidenceError(missing[0], f"listed in export.json and not in the archive ({len(missing)} are missing)")
    for path, target in listing.links.items():
        (into / path).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        (into / path).symlink_to(target)


def _path_of(member: tarfile.TarInfo, top: str) -> str:
    beginning, _, path = member.name.partition("/")
    if beginning != top:
        raise EvidenceError(member.name, f"does not lie in {top}, as the rest of the archive does")
    return _safe(path)


def _opened_member(tar: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    stream = tar.extractfile(member)
    if stream is None:
        raise EvidenceError(member.name, "has no content")
    return stream


def _write_file(tar: tarfile.TarFile, member: tarfile.TarInfo, listed: Member, target: Path) -> None:
    """Write one file, hashing what is written."""
    if member.size != listed.num_bytes or member.mode not in _FILE_MODES:
        raise EvidenceError(
            member.name, f"{member.size} bytes with mode {member.mode:o}, listed are {listed.num_bytes}"
        )
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    digest = hashlib.sha256()
    source = _opened_member(tar, member)
    # O_EXCL, O_NOFOLLOW: nothing that is there already is written to.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(target, flags, listed.mode), "wb") as stream:
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            stream.write(chunk)
    target.chmod(listed.mode)
    if digest.hexdigest() != listed.sha256:
        raise EvidenceError(member.name, f"its SHA-256 is {digest.hexdigest()}, listed is {listed.sha256}")
