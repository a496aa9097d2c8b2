"""What came of a bundle, as it is brought: the bundle's own folder, or an archive that `run.py --pack` wrote.

Nothing is taken on trust: names, kinds, sizes and digests are checked before or while files are copied, and nothing is
written anywhere but below the folder that is named, in which no link is ever made.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias

from campaign import files
from campaign.collection.sealed import Finding, TamperedError
from campaign.detached import run
from campaign.documents import Bundle, Results
from campaign.errors import CampaignError, EvidenceError, InfrastructureError, StateError
from campaign.paths import BundlePaths

Listing: TypeAlias = Mapping[str, tuple[str, int]]
"""SHA-256 and bytes, by path in the home."""
_MOST_DOCUMENT_BYTES = 1 << 28
_CHUNK_BYTES = 1 << 20
_TOP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_HINT = "bring it again, as run.py left or packed it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """What came back, before any of it was looked into."""

    bundle: Bundle
    files: Listing
    left: Listing
    """What stayed on the machine."""

    @property
    def source_sha256(self) -> str:
        """One digest for all of it: the same for a folder and for an archive of it, if nothing was left."""
        value = {"files": dict(self.files), "left": dict(self.left)}
        return files.sha256_bytes(files.dump_json(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Something that was brought, open for copying."""

    brought: Brought
    _copy: _Copier

    def copy_to(self, path: str, target: Path) -> None:
        """Copy one of the files durably into a new one.

        Args:
            path: Its path in the home.
            target: The new file, whose folder is there.

        Raises:
            EvidenceError: It is not what the list says of it.
            OSError: It cannot be written.
        """
        with self._copy.opened(path) as stream:
            _write(stream, target, self.brought.files[path], path)


@contextmanager
def opened(path: Path) -> Iterator[Source]:
    """Open what was brought; a bundle's folder stays locked meanwhile, so that nothing runs in it.

    Args:
        path: The bundle's folder, or an archive.

    Raises:
        StateError: It is neither, or the bundle is being run.
        EvidenceError: It is not what it says it is.
    """
    if path.is_dir():
        with _locked(path):
            yield _open_folder(path)
    elif path.is_file():
        try:
            # Not compressed: what is unpacked can be no larger than what was given.
            with path.open("rb") as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
                yield _open_archive(tar, path)
        except (tarfile.TarError, UnicodeError, RecursionError) as error:
            raise EvidenceError(f"no archive of results: {error}", where=str(path), hint=_HINT) from error
    else:
        raise StateError("neither a bundle nor results of one", where=str(path), hint="campaign bundle ingest PATH")


# --- a folder ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _OfFolder:
    root: Path

    @contextmanager
    def opened(self, path: str) -> Iterator[IO[bytes]]:
        whole = self.root / path
        try:
            descriptor = os.open(whole, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise _unread(error, whole) from error
        with os.fdopen(descriptor, "rb") as stream:
            yield stream


def _unread(error: OSError, path: Path | str) -> CampaignError:
    """Return what to say of something that cannot be read: of a file that does not let itself be read nobody knows."""
    if error.errno in run.UNREADABLE:
        return files.refusal(error, path, "cannot be read")
    return EvidenceError(f"cannot be looked at: {error.strerror}", where=str(path))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock that whoever runs the bundle holds; where nobody can write, nobody runs it.

    Raises:
        StateError: Somebody runs it.
    """
    lock = run.locked(folder)
    try:
        lock.__enter__()
    except run.BundleError as trouble:
        raise StateError(
            "the bundle is being run, or cannot be held",
            where=str(folder),
            why=trouble.lines[0],
            hint="ingest it when run.py has ended, or what run.py --pack wrote",
        ) from trouble
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES):
            raise files.refusal(error, folder, "cannot be locked") from error
        yield
        return
    try:
        yield
    finally:
        lock.__exit__(None, None, None)


def _open_folder(folder: Path) -> Source:
    paths = BundlePaths(folder)
    for place in (paths.home.root, *(paths.home.root / top for top in run.OF_RESULTS)):
        if place.is_symlink():
            raise EvidenceError("a link where a folder should be", where=str(place), hint=_HINT)
    try:
        own = run.read_bundle(folder)
        bundle = _parse_bundle(files.read_regular(paths.document), str(paths.document))
        made = run.find_results(folder, own)
        _require_as_written(folder, own)
    except run.BundleError as trouble:
        kind = InfrastructureError if trouble.code == run.MACHINE else EvidenceError
        raise kind(trouble.lines[0], where=str(folder), why="; ".join(trouble.lines[1:])) from trouble
    except OSError as error:
        raise _unread(error, error.filename or folder) from error
    for path in made:
        _safe(path, str(folder))
    brought = Brought(bundle=bundle, files=made, left={})
    return Source(brought=brought, _copy=_OfFolder(paths.home.root))


def _require_as_written(folder: Path, bundle: Mapping[str, object]) -> None:
    """Refuse results of a bundle whose own files are no longer what was written: the harness among them.

    Raises:
        TamperedError: They are not.
    """
    if found := run.find_differences(folder, bundle):
        raise TamperedError(
            tuple(Finding(where=str(folder), what=one) for one in found), what="the bundle is not what was written"
        )


def _parse_bundle(data: bytes, where: str) -> Bundle:
    bundle = Bundle.parse(data, where=where)
    found = run.bundle_id(bundle.to_json())
    if found != bundle.id:
        raise EvidenceError(f"its content has the id {found}, it says {bundle.id}", where=where, hint=_HINT)
    return bundle


# --- an archive -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _OfArchive:
    tar: tarfile.TarFile
    members: Mapping[str, tarfile.TarInfo]

    @contextmanager
    def opened(self, path: str) -> Iterator[IO[bytes]]:
        with _content(self.tar, self.members[path]) as stream:
            yield stream


_Copier: TypeAlias = _OfFolder | _OfArchive


def _open_archive(tar: tarfile.TarFile, path: Path) -> Source:
    members = _members(tar, str(path))
    bundle_path, results_path, prefix = run.BUNDLE, run.RESULTS, f"{run.HOME}/"
    for name in (bundle_path, results_path):
        if name not in members:
            raise EvidenceError(f"holds no {name}", where=str(path), hint=_HINT)
    bundle = _parse_bundle(_read(tar, members.pop(bundle_path), str(path)), f"{path}: {bundle_path}")
    results = Results.parse(_read(tar, members.pop(results_path), str(path)), where=f"{path}: {results_path}")
    if results.bundle != bundle.id:
        raise EvidenceError(
            f"{results_path} is of bundle {results.bundle}, {bundle_path} of {bundle.id}", where=str(path)
        )
    strange = sorted(name for name in members if name.removeprefix(prefix) not in results.files or "/" not in name)
    if strange:
        raise EvidenceError(
            f"{strange[0]!a} is in it, and {results_path} does not list it", where=str(path), hint=_HINT
        )
    held = {name.removeprefix(prefix): member for name, member in members.items() if name.startswith(prefix)}
    for name, (_, num_bytes) in results.files.items():
        _safe(name, str(path))
        if name not in held or held[name].size != num_bytes:
            found = f"has {held[name].size}" if name in held else "is not in it"
            raise EvidenceError(f"{name}: {found}, and {num_bytes} bytes are listed", where=str(path), hint=_HINT)
    for name in results.left:
        _safe(name, str(path))
        if name in results.files or not run.may_be_left(name):
            raise EvidenceError(f"{name} cannot have been left behind", where=str(path), hint=_HINT)
    brought = Brought(bundle=bundle, files=results.files, left=results.left)
    return Source(brought=brought, _copy=_OfArchive(tar, held))


def _members(tar: tarfile.TarFile, where: str) -> dict[str, tarfile.TarInfo]:
    """Return the files of an archive by their name below its one folder.

    Raises:
        EvidenceError: It holds anything else, or something twice.
    """
    found: dict[str, tarfile.TarInfo] = {}
    first = ""
    for member in tar:
        top, _, name = member.name.partition("/")
        first = first or top
        if not member.isreg() or member.issparse():
            raise EvidenceError(f"{member.name!a} is no plain file", where=where, hint=_HINT)
        if top != first or _TOP.fullmatch(top) is None:
            raise EvidenceError(f"{member.name!a} does not lie in the archive's one folder", where=where, hint=_HINT)
        if found.setdefault(_safe(name, where), member) is not member:
            raise EvidenceError(f"{member.name!a} is in it twice", where=where, hint=_HINT)
    return found


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    stream = tar.extractfile(member)
    if stream is None:
        raise EvidenceError(f"{member.name!a} has no content", hint=_HINT)
    return stream


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo, where: str) -> bytes:
    if member.size > _MOST_DOCUMENT_BYTES:
        raise EvidenceError(f"{member.name!a} has {member.size} bytes: too many for a document", where=where)
    with _content(tar, member) as stream:
        return stream.read()


# --- both -------------------------------------------------------------------------------------------------------------


def _safe(path: str, where: str) -> str:
    """Return a path that stays below its folder.

    Raises:
        EvidenceError: It does not.
    """
    parts = path.split("/")
    is_text = path.isprintable() and path.isascii()
    if not path or not is_text or path.startswith("/") or any(part in ("", ".", "..") for part in parts):
        raise EvidenceError(f"the name {path!a} leads elsewhere, or nowhere", where=where, hint=_HINT)
    return path


def _write(stream: IO[bytes], target: Path, listed: tuple[str, int], path: str) -> None:
    """Write a new file durably, hashing what is written."""
    digest, size = hashlib.sha256(), 0
    # O_EXCL, O_NOFOLLOW: nothing that is there already is written to.
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(descriptor, "wb") as written:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
            written.write(chunk)
        written.flush()
        os.fsync(written.fileno())
    if (digest.hexdigest(), size) != listed:
        what = f"{size} bytes with SHA-256 {digest.hexdigest()}, listed are {listed[1]} with {listed[0]}"
        raise EvidenceError(what, where=path, hint=_HINT)
