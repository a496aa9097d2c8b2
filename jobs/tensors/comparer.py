"""The comparer: a process beside both sides that compares what they offer in memory which it shares with each.

It runs on the harness's own interpreter and never executes or unpickles anything of a side's: it reads numbers.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from ..processes import bytecode, origins
from ..processes.serving import SideError, serve
from .compare import Comparer, Prepared
from .staging_memory import Staging, map_host, open_device

REFERENCE, VALUE = 0, 1
"""The places of the two sources."""
_MOST_PIECES = 8192
"""That are kept prepared: each pass of a case has the same ones again."""


class ComparerServer:
    """Answers the parent's commands."""

    def __init__(self) -> None:
        bytecode.use_installed_bytecode(origins.read_roots().packages)
        self._sources: list[Staging] = []
        self._comparer: Comparer | None = None
        self._prepared: dict[tuple[Any, ...], Prepared] = {}
        self.is_closed = False

    def ready(self) -> dict[str, Any]:
        """Say who this is."""
        return {"pid": os.getpid()}

    def do_stage(self, command: dict[str, Any]) -> dict[str, Any]:
        """Take the memory of both sides."""
        torch = _load_torch()
        if not command["further"]:
            self._release()
        if self._comparer is None:
            self._comparer = Comparer(torch, command["threads"])
        try:
            for source in command["sources"]:
                self._sources.append(_open(source, torch))
            self._load_kernels()
        except Exception:
            # A side that frees device memory must not find it open here.
            self._release()
            raise
        return {}

    def do_compare(self, command: dict[str, Any]) -> dict[str, Any]:
        """Compare pieces of a half."""
        comparer, prepared = self._prepare(command)
        found = comparer.sums(prepared, signs=command["signs"], roll=command["roll"])
        return {"sums": [one.as_json() for one in found]}

    def do_ratio(self, command: dict[str, Any]) -> dict[str, Any]:
        """Compare pieces of a half with an allowance."""
        comparer, prepared = self._prepare(command)
        found = comparer.worst_ratios(prepared, rtol=float(command["rtol"]), atol=float(command["atol"]))
        return {"ratios": [list(one) for one in found]}

    def do_close(self, _command: dict[str, Any]) -> dict[str, Any]:
        """Let go of the memory; say how much of a device's it reserved at most, beside the staging memory."""
        peak_bytes = 0 if self._comparer is None else self._comparer.peak_device_bytes()
        self._release()
        self.is_closed = True
        return {"peak_bytes": peak_bytes}

    def _prepare(self, command: dict[str, Any]) -> tuple[Comparer, Prepared]:
        if self._comparer is None:
            raise ValueError("there is no staging memory")
        half, pieces = command["half"], command["pieces"]
        key = (half, *map(tuple, pieces))
        prepared = self._prepared.get(key)
        if prepared is None:
            reference, value = self._sources
            prepared = self._comparer.prepare(
                [(reference.view(half, *piece), value.view(half, *piece)) for piece in pieces]
            )
            if sum(map(len, self._prepared)) > _MOST_PIECES:
                self._prepared = {}
            self._prepared[key] = prepared
        return self._comparer, prepared

    def _load_kernels(self) -> None:
        """Compare something: a device loads its code when it is first used, which is no part of any comparison."""
        if self._comparer is None or len(self._sources) <= VALUE or not self._sources[0].is_on_device:
            return
        reference, value = (source.view(0, "float32", 3, 0) for source in self._sources)
        prepared = self._comparer.prepare([(reference, value)])
        self._comparer.sums(prepared, signs=True, roll=True)
        self._comparer.worst_ratios(prepared, rtol=0.0, atol=1.0)

    def _release(self) -> None:
        if self._comparer is not None:
            self._comparer.close()
        self._comparer = None
        # What is prepared looks at the memory.
        self._prepared = {}
        while self._sources:
            self._sources.pop().close()


def _load_torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        text = (
            f"the harness's Python {sys.executable} has no PyTorch, which comparing needs: {error}; "
            "name another one as python of [harness]"
        )
        raise SideError("crash", text) from error


def _open(source: dict[str, Any], torch: Any) -> Staging:
    if source["kind"] == "device":
        return open_device(source["handle"], source["half_bytes"], torch)
    return map_host(source["path"], source["half_bytes"], torch)


def main(command_fd: int, answer_fd: int) -> int:
    """Serve the parent until it has closed this process, or is gone.

    Args:
        command_fd: Where commands come from.
        answer_fd: Where answers go.
    """
    return serve(ComparerServer, command_fd, answer_fd)
