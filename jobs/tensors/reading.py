"""Reading safetensors files: the values stay where they are, mapped, so that no file is ever held in memory twice."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..common.strict import Fields, parse_json
from ..common.verified import find_difference, identify
from .dtypes import ITEM_BYTES, TORCH

_LENGTH_BYTES = 8
_MOST_HEADER_BYTES = 100 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Where one tensor stands in a file."""

    name: str
    dtype: str
    """PyTorch's name."""
    shape: tuple[int, ...]
    offset: int
    """Bytes from the beginning of the file."""

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        """Size of the values."""
        return self.numel * ITEM_BYTES[self.dtype]


def read_pieces(data: Any, where: str) -> list[Piece]:
    """Read the header of a file; the pieces are in the order of their values.

    Args:
        data: The file's bytes, or a mapping of them.
        where: What to call it in an error.

    Raises:
        ValueError: It is no such file, or has gaps, or its values do not end where it does.
    """
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    begin = _LENGTH_BYTES + length
    if len(data) < _LENGTH_BYTES or not length <= _MOST_HEADER_BYTES or begin > len(data):
        raise ValueError(f"{where}: no safetensors file: its header would end at byte {begin} of {len(data)}")
    header = parse_json(bytes(data[_LENGTH_BYTES:begin]))
    if type(header) is not dict:
        raise ValueError(f"{where}: its header is no object")
    header.pop("__metadata__", None)
    pieces = sorted((_read_piece(name, header[name], where, begin) for name in header), key=_place)
    _check_contiguous(pieces, begin, len(data), where)
    return pieces


class OtherFileError(Exception):
    """A file is not the one that was verified."""


def map_tensors(path: str, torch: Any, identity: Sequence[int] | None = None) -> dict[str, Any]:
    """Map a file and return its tensors by name, in the order of their values.

    What is written to them stays in this process.

    Args:
        path: The file.
        torch: PyTorch.
        identity: Of the file that was verified; None to take any.

    Raises:
        OtherFileError: It is another one.
        ValueError: It is no such file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if identity is not None and (other := find_difference(identity, identify(os.fstat(fd)))):
            raise OtherFileError(f"{path} is not the file that was verified: its {other} changed")
        # A private copy of each page that is written to: torch knows no read-only tensors.
        mapped = mmap.mmap(fd, 0, access=mmap.ACCESS_COPY)
    finally:
        os.close(fd)
    return {piece.name: _tensor(mapped, piece, torch) for piece in read_pieces(mapped, path)}


def _place(piece: Piece) -> tuple[int, int]:
    return piece.offset, piece.num_bytes


def _read_piece(name: str, value: Any, where: str, begin: int) -> Piece:
    fields = Fields(value, f"{where}: {name}")
    short = fields.text("dtype")
    shape, offsets = fields.items("shape"), fields.items("data_offsets")
    fields.done()
    counts = [*shape, *offsets]
    if short not in TORCH or len(offsets) != 2 or any(type(count) is not int or count < 0 for count in counts):
        raise ValueError(f"{where}: {name}: not a tensor: {value!r:.200}")
    piece = Piece(name=name, dtype=TORCH[short], shape=tuple(shape), offset=begin + offsets[0])
    if offsets[1] - offsets[0] != piece.num_bytes:
        raise ValueError(f"{where}: {name}: {offsets[1] - offsets[0]} bytes for {piece.numel} of {piece.dtype}")
    return piece


def _check_contiguous(pieces: list[Piece], begin: int, end: int, where: str) -> None:
    expected = begin
    for piece in pieces:
        if piece.offset != expected:
            raise ValueError(f"{where}: {piece.name} begins at byte {piece.offset}, not {expected}")
        expected += piece.num_bytes
    if expected != end:
        raise ValueError(f"{where}: its values end at byte {expected}, the file at {end}")


def _tensor(mapped: mmap.mmap, piece: Piece, torch: Any) -> Any:
    dtype = getattr(torch, piece.dtype)
    if piece.numel == 0:
        return torch.empty(piece.shape, dtype=dtype)
    if piece.offset % ITEM_BYTES[piece.dtype]:
        raw = torch.frombuffer(mapped, dtype=torch.uint8, count=piece.num_bytes, offset=piece.offset)
        return raw.clone().view(dtype).reshape(piece.shape)
    return torch.frombuffer(mapped, dtype=dtype, count=piece.numel, offset=piece.offset).reshape(piece.shape)
