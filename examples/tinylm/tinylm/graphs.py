"""How the stages of an update are run: by calling them, or as CUDA graphs that were captured from them.

A stage is a function without arguments and result. It reads and writes tensors that live as long as the training, so
that a graph captured from it once does the same work whenever it is replayed. Nothing that differs from update to
update may be a Python value there: a graph would keep what it was.
"""

import gc
from collections.abc import Callable
from typing import Protocol

import torch
from torch import cuda

EAGER_UPDATES = 3
"""Updates whose stages are called before the next one is captured: kernels are compiled and libraries wake up there."""


class CaptureError(RuntimeError):
    """A stage that could not be captured. The memory it took is lost until the process ends, so nothing goes on."""


class Runner(Protocol):
    """Runs the stages of updates."""

    def begin(self) -> None:
        """Another update begins."""

    def run(self, name: str, stage: Callable[[], None]) -> None:
        """Run a stage; `name` always stands for the same one."""

    def path(self) -> str:
        """How stages are run, in words."""

    def counts(self) -> dict[str, int]:
        """How often they were."""


class Direct:
    """Calls every stage."""

    def begin(self) -> None:
        """Nothing to count."""

    def run(self, name: str, stage: Callable[[], None]) -> None:  # noqa: ARG002  # a graph would be looked up by it
        """Call it."""
        stage()

    def path(self) -> str:
        """How stages are run, in words."""
        return "none"

    def counts(self) -> dict[str, int]:
        """There is nothing to count."""
        return {}


class Captured:
    """Calls the stages of the first updates, which are real ones, then captures each once and replays it.

    What is called runs on the stream that captures, since libraries keep what they prepare for each stream. All graphs
    share one pool of memory: whatever outlives a stage is allocated outside of it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._pool = cuda.graph_pool_handle()
        self._graphs: dict[str, cuda.CUDAGraph] = {}
        self._failed: CaptureError | None = None
        self._updates = 0
        self._calls = 0
        self._replays = 0
        self._compiled_before = 0

    def begin(self) -> None:
        """Count the update."""
        self._updates += 1

    def run(self, name: str, stage: Callable[[], None]) -> None:
        """Call the stage, or replay its graph.

        Raises:
            CaptureError: if it cannot be captured, and at every later call.
        """
        if self._failed:
            raise self._failed
        if name not in self._graphs and self._updates <= EAGER_UPDATES:
            self._call(stage)
            return
        if name not in self._graphs:
            self._graphs[name] = self._capture(name, stage)
        self._graphs[name].replay()
        self._replays += 1

    def path(self) -> str:
        """How stages are run, in words."""
        return f"captured after {EAGER_UPDATES} updates"

    def counts(self) -> dict[str, int]:
        """Stages called, graphs captured and replayed, and what the compiler has made, at all and since then."""
        compiled = _num_compiled()
        return {
            "stages_called": self._calls,
            "graphs": len(self._graphs),
            "graph_replays": self._replays,
            "regions_compiled": compiled,
            "recompiles": compiled - self._compiled_before if self._graphs else 0,
        }

    def _call(self, stage: Callable[[], None]) -> None:
        current = cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with cuda.stream(self._stream):
            stage()
        current.wait_stream(self._stream)
        self._calls += 1

    def _capture(self, name: str, stage: Callable[[], None]) -> cuda.CUDAGraph:
        cuda.synchronize(self._device)
        gc.collect()
        cuda.empty_cache()  # what the first updates took for their activations
        graph = cuda.CUDAGraph()
        # Other threads may ask for memory meanwhile: that which runs the backward pass, and that which watches NCCL.
        capture = cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local")
        try:
            with capture:
                stage()
        except Exception as error:
            self._failed = CaptureError(
                f"the stage {name!r} could not be captured as a CUDA graph at update {self._updates} of this process: "
                f"{type(error).__name__}: {error}"
            )
            raise self._failed from error
        self._compiled_before = _num_compiled()
        return graph


def make_runner(device: torch.device) -> Runner:
    """Graphs on CUDA, calls elsewhere."""
    return Captured(device) if device.type == "cuda" else Direct()


def _num_compiled() -> int:
    """How many graphs torch.compile has made in this process."""
    from torch._dynamo.utils import counters  # noqa: PLC0415  # costs seconds, which a process without it does not pay

    return int(counters["stats"]["unique_graphs"])
