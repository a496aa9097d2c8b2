"""CUDA graphs on the CPU, as far as a trainer can tell: what is captured is recorded, not done, and replayed as it was.

A replay repeats the recorded operations on the recorded tensors. Python is not asked again, so that whatever was a
number, a branch or another tensor at capture stays what it was, as in a graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tinylm import graphs


class Tape:
    """One captured stage."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], list[tuple[Tensor, int]]]] = []

    def replay(self) -> None:
        with torch.no_grad():
            for function, args, kwargs, outputs in self.calls:
                results = pytree.tree_leaves(function(*args, **kwargs))
                for output, place in outputs:
                    output.copy_(results[place])


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Records what happens, and undoes it in the end for tensors that were there before."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self._tape = tape
        self._before: dict[int, tuple[Tensor, Tensor]] = {}
        self._made: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        written = [
            args[place] if place < len(args) else kwargs[argument.name]
            for place, argument in enumerate(func._schema.arguments)
            if argument.alias_info and argument.alias_info.is_write
        ]
        for tensor in pytree.tree_leaves(written):
            self._keep(tensor)
        results = func(*args, **kwargs)
        makes = not any(result.alias_info for result in func._schema.returns)
        leaves = pytree.tree_leaves(results)
        outputs = [(leaf, place) for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)] if makes else []
        self._made |= {output.untyped_storage().data_ptr() for output, _ in outputs}
        if makes or written:
            self._tape.calls.append((func, args, kwargs, outputs))
        return results

    def undo(self) -> None:
        for tensor, before in self._before.values():
            tensor.copy_(before)

    def _keep(self, tensor: Tensor) -> None:
        key = tensor.untyped_storage().data_ptr()
        if key in self._made or key in self._before:
            return
        whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
        self._before[key] = (whole, whole.clone())


class Stream:
    def wait_stream(self, other: Stream) -> None:
        pass


@contextlib.contextmanager
def capture(tape: Tape, *, pool: object, stream: Stream, capture_error_mode: str) -> Iterator[None]:
    assert (pool, capture_error_mode) == ("pool", "thread_local")
    assert isinstance(stream, Stream)
    recorder = Recorder(tape)
    with recorder:
        yield
    recorder.undo()


def pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let trainers on the CPU run their stages as graphs."""

    class Cuda:
        """What graphs.py uses of torch.cuda."""

        CUDAGraph = Tape
        graph = staticmethod(capture)
        Stream = staticmethod(lambda _device: Stream())
        current_stream = staticmethod(lambda _device: Stream())
        stream = staticmethod(lambda _stream: contextlib.nullcontext())
        graph_pool_handle = staticmethod(lambda: "pool")
        synchronize = staticmethod(lambda _device: None)
        empty_cache = staticmethod(lambda: None)

    monkeypatch.setattr(graphs, "cuda", Cuda)
    monkeypatch.setattr(graphs, "_num_compiled", lambda: 0)
    monkeypatch.setattr(graphs, "make_runner", graphs.Captured)
