"""Tensors of a pass in safetensors files, one a worker, and passes that read them back.

The layout is that of docs/formats.md: a length, a header padded to a multiple of eight bytes, the values without gaps.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..common.endings import EndedError, Ending
from ..common.verified import VerifiedFile, verify
from ..processes.steps import Step
from .catalog import Catalog, Tensor
from .dtypes import SAFETENSORS
from .lockstep import Chunk
from .reading import read_pieces
from .staging_files import StageFile

_LENGTH_BYTES = 8


def header_bytes(tensors: Sequence[Tensor]) -> bytes:
    """Return what stands before the values of a file.

    Args:
        tensors: The tensors in the order of their values, each with a name of its own.
    """
    header: dict[str, object] = {}
    offset = 0
    for tensor in tensors:
        end = offset + tensor.num_bytes
        header[tensor.name] = {
            "dtype": SAFETENSORS[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")
    text += b" " * (-len(text) % _LENGTH_BYTES)
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFile:
    """A file that was written."""

    worker: int
    path: Path
    num_bytes: int
    sha256: str


class _Writer:
    """One file that is being written, value after value."""

    def __init__(self, path: Path, tensors: Sequence[Tensor], *, is_kept: bool) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self.path = path
        mode = 0o644 if is_kept else 0o600
        self._stream: BinaryIO = os.fdopen(os.open(path, flags, mode), "wb", buffering=0)
        self._is_kept = is_kept
        self._digest = hashlib.sha256()
        self._num_bytes = 0
        header = header_bytes(tensors)
        self._expected_bytes = len(header) + sum(tensor.num_bytes for tensor in tensors)
        self.write(memoryview(header))

    def write(self, data: memoryview) -> None:
        self._digest.update(data)
        self._num_bytes += len(data)
        while data:
            data = data[self._stream.write(data) or 0 :]

    def finish(self, worker: int) -> TensorFile:
        if self._num_bytes != self._expected_bytes:
            raise ValueError(f"{self.path}: {self._num_bytes} bytes were written, not {self._expected_bytes}")
        if self._is_kept:
            os.fsync(self._stream.fileno())
        self._stream.close()
        return TensorFile(worker=worker, path=self.path, num_bytes=self._num_bytes, sha256=self._digest.hexdigest())

    def abandon(self) -> None:
        self._stream.close()
        self.path.unlink(missing_ok=True)


class Recorder:
    """Takes the pieces of a pass from the halves of a staging file, in order, and writes a file for each worker.

    Args:
        tensors: What the pass offers.
        stage: Where its pieces are.
        name: Returns the path of a worker's file.
        is_kept: Whether the files are to be kept: made durable, and read by others of the group as all of a home is.
    """

    def __init__(
        self, tensors: Sequence[Tensor], stage: StageFile, name: Callable[[int], Path], *, is_kept: bool = False
    ) -> None:
        self._tensors = tensors
        self._stage = stage
        self._writers: dict[int, _Writer] = {}
        workers = sorted({tensor.worker for tensor in tensors})
        try:
            for worker in workers:
                own = [tensor for tensor in tensors if tensor.worker == worker]
                self._writers[worker] = _Writer(name(worker), own, is_kept=is_kept)
        except BaseException:
            self.abandon()
            raise

    def spool(self, half: int, chunk: Chunk) -> None:
        """Write the pieces of a half."""
        data = self._stage.half(half)
        for piece in chunk:
            writer = self._writers[self._tensors[piece.index].worker]
            writer.write(data[piece.offset : piece.offset + piece.num_bytes])

    def finish(self) -> list[TensorFile]:
        """Close the files and return them, by worker."""
        return [writer.finish(worker) for worker, writer in self._writers.items()]

    def abandon(self) -> None:
        """Remove the files."""
        for writer in self._writers.values():
            with contextlib.suppress(OSError):
                writer.abandon()


def unused_name(folder: Path, stem: str) -> Path:
    """Return a name for a file that is being written: nobody takes it for a finished one."""
    return folder / f".{stem}.{os.getpid()}.{secrets.token_hex(8)}.tmp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A pass that was recorded."""

    what: str
    catalog: Catalog
    files: tuple[TensorFile, ...]

    def verified(self) -> list[tuple[int, VerifiedFile]]:
        """Return worker and file, all hashed again.

        Raises:
            EndedError: One is not what was recorded.
        """
        return [(file.worker, _verify(file)) for file in self.files]

    def remove(self) -> None:
        """Remove its files."""
        for file in self.files:
            file.path.unlink(missing_ok=True)


def _verify(file: TensorFile) -> VerifiedFile:
    try:
        found = verify(file.path)
    except OSError as error:
        raise EndedError(Ending.INTERFERENCE, f"what was recorded in {file.path} cannot be read: {error}") from error
    if found.sha256 != file.sha256:
        text = f"{file.path} has the SHA-256 {found.sha256}, not that of what was recorded in it, {file.sha256}"
        raise EndedError(Ending.INTERFERENCE, text)
    return found


class RecordedSource:
    """Fills halves with what was recorded, in place of a side.

    Args:
        recording: What was recorded.
        stage: Where its pieces go.
    """

    def __init__(self, recording: Recording, stage: StageFile) -> None:
        self._stage = stage
        self._catalog = recording.catalog
        self._maps: dict[int, mmap.mmap] = {}
        self._offsets: dict[tuple[int, str], int] = {}
        self._files = recording.verified()
        for worker, file in self._files:
            with file.path.open("rb") as stream:
                mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            self._maps[worker] = mapped
            for piece in read_pieces(mapped, str(file.path)):
                self._offsets[worker, piece.name] = piece.offset

    def fill(self, half: int, pieces: Chunk) -> Step[None]:
        """Copy the pieces to a half."""
        data = self._stage.half(half)
        for piece in pieces:
            tensor = self._catalog.tensors[piece.index]
            begin = self._offsets[tensor.key] + piece.start * tensor.item_bytes
            mapped = memoryview(self._maps[tensor.worker])
            data[piece.offset : piece.offset + piece.num_bytes] = mapped[begin : begin + piece.num_bytes]
            mapped.release()
        yield

    def finish(self) -> None:
        """Look whether the files are still what they were.

        Raises:
            EndedError: One was touched.
        """
        for _, file in self._files:
            if touch := file.find_touch():
                raise EndedError(Ending.INTERFERENCE, f"while a recording was compared, {touch}")

    def close(self) -> None:
        """Let go of the files."""
        for mapped in self._maps.values():
            mapped.close()
