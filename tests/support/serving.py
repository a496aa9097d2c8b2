"""A worker or comparer of the real harness, driven line by line as its parent does."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jobs
from jobs.tensors.dtypes import ITEM_BYTES, SAFETENSORS, dtype_name

LAUNCHER = Path(jobs.__file__).with_name("launch.py")
HALF_BYTES = 4 * mmap.PAGESIZE


class RefusedError(Exception):
    """A command was answered by an error."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.text = text


class Served:
    """A process of the harness.

    Args:
        role: ``worker`` or ``compare``.
        folder: Its working directory, for bytecode as well.
    """

    def __init__(self, role: str, folder: Path) -> None:
        command_fd, self._commands = os.pipe()
        self._answers_fd, answer_fd = os.pipe()
        options = ["-P", "-s", "-X", f"pycache_prefix={folder / 'bytecode'}"]
        self.process = subprocess.Popen(
            [sys.executable, *options, str(LAUNCHER), role, str(command_fd), str(answer_fd)],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"},
            pass_fds=(command_fd, answer_fd),
            stderr=subprocess.DEVNULL,
        )
        os.close(command_fd)
        os.close(answer_fd)
        self._answers = os.fdopen(self._answers_fd, "rb")
        self._number = 0
        self.ready = self._receive()

    def ask(self, do: str, **fields: Any) -> Any:
        """Send a command and return its answer."""
        self._number += 1
        os.write(self._commands, json.dumps({"id": self._number, "do": do, **fields}).encode() + b"\n")
        return self._receive()

    def end(self) -> None:
        """End the process, whatever it does."""
        os.close(self._commands)
        self.process.kill()
        self.process.wait()
        self._answers.close()

    def _receive(self) -> Any:
        reply = json.loads(self._answers.readline())
        assert reply["id"] == self._number
        if "error" in reply:
            raise RefusedError(**reply["error"])
        return reply["ok"]


class Stage:
    """The parent's end of staging memory on the host."""

    def __init__(self, path: Path, half_bytes: int = HALF_BYTES) -> None:
        self.path = path
        self.half_bytes = half_bytes
        path.write_bytes(bytes(2 * half_bytes))

    def write(self, half: int, data: bytes, offset: int = 0) -> None:
        """Put bytes into a half."""
        with self.path.open("r+b") as stream:
            stream.seek(half * self.half_bytes + offset)
            stream.write(data)

    def read(self, half: int, count: int, offset: int = 0) -> bytes:
        """Return bytes of a half."""
        begin = half * self.half_bytes + offset
        return self.path.read_bytes()[begin : begin + count]


def raw_bytes(tensor: Any) -> bytes:
    """Return the bytes of a tensor's elements, in order."""
    import torch  # noqa: PLC0415 - for the tests that have tensors

    return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist())


def write_tensors(path: Path, tensors: Mapping[str, Any]) -> Path:
    """Write a safetensors file."""
    header: dict[str, Any] = {}
    begin = 0
    for name, tensor in tensors.items():
        dtype = dtype_name(tensor.dtype)
        end = begin + tensor.numel() * ITEM_BYTES[dtype]
        header[name] = {"dtype": SAFETENSORS[dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(map(raw_bytes, tensors.values())))
    return path


def pieces(tensors: Sequence[Sequence[Any]]) -> list[list[int]]:
    """Return the pieces that put whole tensors one after the other into a half."""
    found: list[list[int]] = []
    offset = 0
    for index, (_, _, dtype, shape) in enumerate(tensors):
        count = 1
        for size in shape:
            count *= size
        offset += -offset % 8
        found.append([index, 0, count, offset])
        offset += count * ITEM_BYTES[dtype]
    return found
