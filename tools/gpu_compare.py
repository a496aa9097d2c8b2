"""How fast two processes' tensors are compared end to end, beside a pinned copy of the same bytes to the host.

For a machine with a GPU; with --device cpu a rehearsal. It needs nothing but the standard library and torch, and drives
the harness's own worker and comparer processes as a case does: both sides fill one half of their staging memory while
the other half is compared. Each side holds the four kinds of state of some workers of about 98 million parameters.

    python3 tools/gpu_compare.py --out gpu_compare.json
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

LAUNCHER = Path(__file__).resolve().parent.parent / "jobs" / "launch.py"
QUANTITIES = ("parameters", "gradients", "updates", "exp_avg", "exp_avg_sq")
HALF_MIB = {"host": 64, "device": 128}
MOST_PIECES = 1024
ALIGNMENT = 64
NOISE = 1e-3
COPY_BYTES = 1 << 30
REPEATS = 3
ADAPTER = """
import torch


class Holder:
    def __init__(self, config, seed, device):
        self.tensors = {}
        generator = torch.Generator(device).manual_seed(seed)
        noise = torch.Generator(device).manual_seed(seed + 1)
        for quantity in ("parameters", "gradients", "exp_avg", "exp_avg_sq"):
            self.tensors[quantity] = []
            for worker in range(config["workers"]):
                for name, shape in config["shapes"]:
                    tensor = torch.randn(shape, device=device, generator=generator)
                    if config["noise"]:
                        tensor += config["noise"] * torch.randn(shape, device=device, generator=noise)
                    self.tensors[quantity].append((worker, name, tensor))
        self.step = config["step"]

    def updates(self, n):
        return n, n, 0, n

    def sync(self):
        pass

    def state(self, quantity):
        return iter(self.tensors[quantity])

    def update_on(self, batch):
        for _, _, tensor in self.tensors["parameters"]:
            tensor += self.step
        return [1.0]


def build(config, *, seed, device):
    return Holder(config, seed, device)
"""


def shapes(scale: int) -> list[tuple[str, list[int]]]:
    """Return the tensors of one worker: twelve layers of width 768 and an embedding, divided by a scale."""
    width = 768 // scale
    found = [("embedding", [16384 // scale, width])]
    for layer in range(12):
        for name, shape in (
            ("attention", [3 * width, width]),
            ("output", [width, width]),
            ("up", [4 * width, width]),
            ("down", [width, 4 * width]),
            ("norm1", [width]),
            ("norm2", [width]),
        ):
            found.append((f"layer{layer}.{name}", shape))
    return found


class Process:
    """A worker or comparer, driven line by line."""

    def __init__(self, role: str, folder: Path) -> None:
        command_fd, self._commands = os.pipe()
        answers, answer_fd = os.pipe()
        options = ["-P", "-s", "-X", f"pycache_prefix={folder / 'bytecode'}"]
        argv = [sys.executable, *options, str(LAUNCHER), role, str(command_fd), str(answer_fd)]
        # Sides that wait for each other's OpenMP threads on few cores would be all that is measured.
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(argv, cwd=folder, env=environment, pass_fds=(command_fd, answer_fd))
        os.close(command_fd)
        os.close(answer_fd)
        self._answers = os.fdopen(answers, "rb")
        self._number = 0
        self.receive()

    def send(self, do: str, **fields: Any) -> None:
        """Send a command."""
        self._number += 1
        os.write(self._commands, json.dumps({"id": self._number, "do": do, **fields}).encode() + b"\n")

    def receive(self) -> Any:
        """Wait for the answer."""
        reply = json.loads(self._answers.readline() or b'{"error": {"text": "the process died"}}')
        if "error" in reply:
            raise RuntimeError(reply["error"]["text"])
        return reply["ok"]

    def ask(self, do: str, **fields: Any) -> Any:
        """Send a command and wait for its answer."""
        self.send(do, **fields)
        return self.receive()

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


def plan(tensors: list[Any], half_bytes: int) -> Iterator[list[list[int]]]:
    """Cut fp32 tensors into chunks of pieces: index, first element, number of elements, and byte in the half."""
    chunk: list[list[int]] = []
    offset = 0
    for index, (_, _, _, shape) in enumerate(tensors):
        numel, start = math.prod(shape), 0
        while start < numel:
            room = (half_bytes - offset) // 4
            if room <= 0 or len(chunk) == MOST_PIECES:
                yield chunk
                chunk, offset = [], 0
                continue
            count = min(room, numel - start)
            chunk.append([index, start, count, offset])
            start += count
            offset = -(-(offset + 4 * count) // ALIGNMENT) * ALIGNMENT
    if chunk:
        yield chunk


class Stopwatch:
    """Seconds by what they went into."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def time(self, name: str, work: Callable[[], Any]) -> Any:
        """Do some work and count its seconds."""
        began = time.perf_counter()
        try:
            return work()
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began


def compare_all(sides: list[Process], comparer: Process, what: str, half_bytes: int) -> dict[str, Any]:
    """Compare one quantity of both sides; return its bytes, seconds and relative L2 norm."""
    watch = Stopwatch()
    began = time.perf_counter()
    for side in sides:
        side.send("open", what=what)
    tensors = watch.time("open", lambda: [side.receive() for side in sides])[0]["tensors"]
    chunks = list(plan(tensors, half_bytes))
    sums: list[Any] = []
    waiting = False
    for number, chunk in enumerate(chunks):
        for side in sides:
            side.send("fill", half=number % 2, pieces=chunk)
        watch.time("waiting for sides", lambda: [side.receive() for side in sides])
        if waiting:
            sums += watch.time("waiting for comparer", comparer.receive)["sums"]
        pieces = [["float32", count, offset] for _, _, count, offset in chunk]
        comparer.send("compare", half=number % 2, pieces=pieces, signs=False, roll=False)
        waiting = True
    sums += watch.time("waiting for comparer", comparer.receive)["sums"]
    seconds = time.perf_counter() - began
    num_bytes = 2 * 4 * sum(math.prod(shape) for _, _, _, shape in tensors)
    rel_l2 = math.sqrt(math.fsum(one[1] for one in sums) / math.fsum(one[0] for one in sums))
    return {
        "what": what, "bytes": num_bytes, "seconds": seconds, "gb_per_s": num_bytes / seconds / 1e9,
        "tensors": len(tensors), "chunks": len(chunks), "rel_l2": rel_l2, "parts": watch.seconds,
    }  # fmt: skip


def shared_folder(other: Path) -> Path:
    """Return the host's shared memory, or another folder where that has no room."""
    shared = Path("/dev/shm")  # noqa: S108 - the host's; names in it are made by tempfile
    if not shared.is_dir():
        return other
    found = os.statvfs(shared)
    return shared if found.f_bavail * found.f_frsize > 8 * HALF_MIB["host"] << 20 else other


def run_transport(transport: str, sides: list[Process], folder: Path, threads: int) -> dict[str, Any]:
    """Compare every quantity through one kind of staging memory, several times."""
    half_bytes = HALF_MIB[transport] << 20
    comparer = Process("compare", folder)
    with tempfile.TemporaryDirectory(dir=shared_folder(folder)) as temporary, contextlib.ExitStack() as stack:
        stack.callback(comparer.end)
        sources = []
        began = time.perf_counter()
        for number, side in enumerate(sides):
            path = Path(temporary) / f"side{number}"
            if transport == "host":
                with path.open("wb") as stream:
                    os.posix_fallocate(stream.fileno(), 0, 2 * half_bytes)
            answer = side.ask("stage", path=str(path), half_bytes=half_bytes, transport=transport)
            sources.append({"kind": transport, "path": str(path), "handle": answer["handle"], "half_bytes": half_bytes})
        comparer.ask("stage", sources=sources, further=False, threads=threads)
        stage_s = time.perf_counter() - began
        passes = [[compare_all(sides, comparer, what, half_bytes) for what in QUANTITIES] for _ in range(REPEATS)]
        comparer.ask("close")
    return {"half_bytes": half_bytes, "threads": threads, "stage_s": stage_s, "passes": passes, **summarize(passes)}


def summarize(passes: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the fastest repeat after the first, which also warms up."""
    chosen = min(passes[1:] or passes, key=lambda one: sum(part["seconds"] for part in one))
    num_bytes, seconds = sum(part["bytes"] for part in chosen), sum(part["seconds"] for part in chosen)
    return {"bytes": num_bytes, "seconds": seconds, "gb_per_s": num_bytes / seconds / 1e9}


def measure_pinned_copy(device: str) -> dict[str, float]:
    """Return GB/s of a copy to pinned host memory, and of one between two places of the device."""
    is_cuda = device != "cpu"
    source = torch.ones(COPY_BYTES, dtype=torch.uint8, device=device)
    other = torch.empty_like(source)
    pinned = torch.empty(COPY_BYTES, dtype=torch.uint8, pin_memory=is_cuda)
    found = {}
    for name, target in (("pinned_gb_per_s", pinned), ("device_copy_gb_per_s", other)):
        best = math.inf
        for _ in range(6):
            began = time.perf_counter()
            target.copy_(source, non_blocking=True)
            if is_cuda:
                torch.cuda.synchronize()
            best = min(best, time.perf_counter() - began)
        found[name] = COPY_BYTES / best / 1e9
    return found


def start_sides(folder: Path, options: argparse.Namespace) -> list[Process]:
    """Start both sides, each with its tensors, and let each make an update."""
    (folder / "adapter.py").write_text(ADAPTER)
    header = b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    header += b" " * (-len(header) % 8)
    (folder / "batch").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    sides = []
    for noise in (0.0, NOISE):
        config = {"workers": options.workers, "shapes": shapes(options.scale), "noise": noise, "step": 0.5 + noise}
        side = Process("worker", folder)
        side.ask(
            "import",
            adapter="adapter:build",
            paths=[str(folder)],
            private=[str(folder)],
            matched=True,
            declared=[],
            log="",
        )
        side.ask("build", config=config, seed=1, device=options.device)
        side.ask("update", path=str(folder / "batch"))
        sides.append(side)
    return sides


def describe_machine(device: str) -> dict[str, Any]:
    """Return what this runs on."""
    name = torch.cuda.get_device_name() if device != "cpu" else "cpu"
    return {"device": name, "cores": os.cpu_count(), "torch": torch.__version__, "python": sys.version.split()[0]}


def measure(options: argparse.Namespace, report: dict[str, Any]) -> None:
    """Fill the report as far as it goes."""
    report["machine"] = describe_machine(options.device)
    report["copy"] = measure_pinned_copy(options.device)
    if options.device != "cpu":
        torch.cuda.empty_cache()
    for transport in ("host", "device"):
        with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
            try:
                sides = start_sides(Path(temporary), options)
                for side in sides:
                    stack.callback(side.end)
                report[transport] = run_transport(transport, sides, Path(temporary), options.threads)
                pinned_s = report[transport]["bytes"] / report["copy"]["pinned_gb_per_s"] / 1e9
                report[transport]["times_pinned_copy"] = report[transport]["seconds"] / pinned_s
            except Exception as error:  # noqa: BLE001 - one transport's failure must not hide the other's figures
                traceback.print_exc()
                report[transport] = {"error": str(error)}
        print(transport, json.dumps({key: value for key, value in report[transport].items() if key != "passes"}))


def main() -> int:
    """Print a line for each transport and write everything as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where the JSON goes")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=8, help="of 0.39 GB each")
    parser.add_argument("--scale", type=int, default=1, help="divides the widths, for a rehearsal")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of the comparer, on the host")
    options = parser.parse_args()
    report: dict[str, Any] = {"options": {**vars(options), "out": options.out.name}}
    try:
        measure(options, report)
    finally:
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report["copy"]))
    return int(any("error" in report[transport] for transport in ("host", "device")))


if __name__ == "__main__":
    sys.exit(main())
