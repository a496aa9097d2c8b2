"""Writing the archive: the same home gives the same bytes, whoever writes it, and when."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from campaign import files
from campaign.errors import EvidenceError, StateError
from campaign.exporting.choose import Contents, File
from campaign.paths import HomePaths
from campaign.verifier.archive import CRATE, HOME

Progress = Callable[[int, int], None]
"""Is told the bytes written so far, and in all."""
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """What was written."""

    path: Path
    num_bytes: int
    sha256: str


def dump_listing(campaign: str, manifest_sha256: str, head: str, contents: Contents, crate: bytes | None) -> bytes:
    """Return export.json.

    Args:
        campaign: The campaign's name.
        manifest_sha256: Digest of its manifest.
        head: The head line; empty if it is not closed.
        contents: What goes into the archive.
        crate: The RO-Crate's metadata, where they are asked for.
    """
    held = [_listed(f"{HOME}/{file.path}", file) for file in contents.files]
    if crate is not None:
        held.append({"path": CRATE, "bytes": len(crate), "sha256": files.sha256_bytes(crate), "executable": False})
    value = {
        "format": "export/1",
        "campaign": campaign,
        "manifest_sha256": manifest_sha256,
        "head": head,
        "files": sorted(held, key=lambda item: os.fsencode(item["path"])),
        "folders": [f"{HOME}/{path}" for path in contents.folders],
        "links": [{"path": f"{HOME}/{path}", "target": target} for path, target in contents.links],
        "withheld": [{"path": file.path, "bytes": file.num_bytes, "sha256": file.sha256} for file in contents.withheld],
    }
    return files.dump_json(value)


def _listed(path: str, file: File) -> dict[str, Any]:
    return {"path": path, "bytes": file.num_bytes, "sha256": file.sha256, "executable": file.is_executable}


def write_archive(
    paths: HomePaths,
    contents: Contents,
    own: Mapping[str, bytes],
    out: Path,
    *,
    top: str,
    progress: Progress = lambda _done, _all: None,
) -> Archive:
    """Write an archive beside its place and put it there when it is complete.

    Args:
        paths: The home.
        contents: What of it goes in.
        own: Files of the archive's own, by name: export.json first.
        out: The archive; there must be nothing of this name.
        top: Name of the one folder in the archive.
        progress: Is told how far it is.

    Raises:
        StateError: There is something of this name.
        EvidenceError: A file changed meanwhile.
        InfrastructureError: It cannot be written.
    """
    in_all = sum(file.num_bytes for file in contents.files)
    aside = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    with files.writing(out):
        try:
            with aside.open("xb") as stream:
                hashing = _Hashing(stream)
                with tarfile.open(fileobj=hashing, mode="w", format=tarfile.PAX_FORMAT) as tar:
                    for name, data in own.items():
                        tar.addfile(_info(f"{top}/{name}", len(data), executable=False), io.BytesIO(data))
                    done = 0
                    for file in contents.files:
                        _add(tar, paths.root / file.path, f"{top}/{HOME}/{file.path}", file)
                        done += file.num_bytes
                        progress(done, in_all)
                    _add_rest(tar, contents, f"{top}/{HOME}")
                stream.flush()
                os.fsync(stream.fileno())
            _publish(aside, out)
        finally:
            aside.unlink(missing_ok=True)
    return Archive(path=out, num_bytes=hashing.num_bytes, sha256=hashing.digest.hexdigest())


def _publish(aside: Path, out: Path) -> None:
    """Let the archive appear, but never over something that is there."""
    try:
        os.link(aside, out)
    except FileExistsError as error:
        raise StateError("there is something already", where=str(out), hint="name another one: --out FILE") from error
    files.sync_folder(out.parent)


class _Hashing(io.RawIOBase):
    """Hashes what is written through it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()
        self.num_bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._stream.write(data)
        self.digest.update(data)
        self.num_bytes += len(data)
        return len(data)

    def tell(self) -> int:
        return self.num_bytes


def _info(name: str, num_bytes: int, *, executable: bool) -> tarfile.TarInfo:
    """Return a member that says nothing of the machine or the time."""
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = num_bytes, 0o755 if executable else 0o644, 0
    return info


def _add(tar: tarfile.TarFile, path: Path, name: str, file: File) -> None:
    with path.open("rb") as stream:
        reader = _Reader(stream)
        try:
            tar.addfile(_info(name, file.num_bytes, executable=file.is_executable), reader)
        except OSError as error:
            if error.errno is not None:
                raise
            raise EvidenceError("changed while it was exported", where=str(path)) from error  # shorter than it was
        if reader.digest.hexdigest() != file.sha256 or stream.read(1):
            raise EvidenceError("changed while it was exported", where=str(path), hint="export again")


class _Reader(io.RawIOBase):
    """Hashes what is read through it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.digest.update(data)
        return data


def _add_rest(tar: tarfile.TarFile, contents: Contents, top: str) -> None:
    for path in contents.folders:
        info = tarfile.TarInfo(f"{top}/{path}")
        info.type, info.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(info)
    for path, target in contents.links:
        info = tarfile.TarInfo(f"{top}/{path}")
        info.type, info.mode, info.linkname = tarfile.SYMTYPE, 0o777, target
        tar.addfile(info)
