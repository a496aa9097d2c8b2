"""Where a training's time and memory go: three lines in any training loop, and one file, run.json.

    mon = monitor.start("run.json", device="cuda", recipe={"precision": "bf16", "accumulation_count": 4})
    for batch in loader:
        ...                                                     # one update
        mon.update(targets=4096, padded=4608, microbatches=4)
        if time_to_evaluate:
            with mon.phase("evaluation"):
                ...

This file needs nothing but Python, and PyTorch where the device is a GPU: copy it, as it is, beside your own code. It
waits for the device where a phase begins or ends and nowhere else. Everything between two phases is training, after the
first update, which is `compile`: what compiles, captures and allocates lazily does it there. `mon.close()`, or `with`
around the loop, ends the session; a process that just exits ends it too, and one that is killed leaves what was written
last.

    python monitor.py summarize run.json --leave-out 1

adds up what was logged, says which windows it took, and checks counters and sums.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import difflib
import hashlib
import json
import math
import operator
import os
import platform
import shutil
import subprocess
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeAlias

FORMAT = "run/1"
STATE_FORMAT = "run-state/1"
SUMMARY_FORMAT = "run-summary/1"

PHASES = ("compile", "train", "evaluation", "checkpoint", "report", "profile", "idle")
UPDATING = ("compile", "train", "profile")
"""Phases in which updates are made; those of `train` alone make the training rate."""
BEFORE = ("data_preparation", "model_setup")
"""What is done before a session, and is no part of it."""

RECIPE = (
    "model_revision",
    "tokenizer_revision",
    "trainable_modules",
    "data_manifest_sha256",
    "data_order_sha256",
    "max_sequence_length",
    "truncation_policy",
    "microbatch_size",
    "accumulation_count",
    "precision",
    "optimizer",
    "seed",
    "checkpoint_policy",
    "evaluation_interval",
)
ENVIRONMENT = (
    "node",
    "python",
    "device_name",
    "device_memory_bytes",
    "device_capability",
    "driver",
    "framework",
    "cuda_runtime",
    "toolkit",
    "compiler",
    "settings",
)
COUNTERS = ("updates", "skipped", "microbatches", "targets", "padded")
MEMORY = (
    "cuda_allocated_bytes",
    "cuda_reserved_bytes",
    "cuda_peak_allocated_bytes",
    "cuda_peak_reserved_bytes",
    "cuda_device_used_bytes",
    "cuda_num_alloc_retries",
    "cuda_num_ooms",
    "host_rss_bytes",
    "host_peak_rss_bytes",
)
PEAKS = ("cuda_peak_allocated_bytes", "cuda_peak_reserved_bytes", "host_peak_rss_bytes")
RATES = ("train_tokens_per_second", "train_padded_per_second", "tokens_per_second", "padded_per_second")
ENDINGS = ("closed", "raised", "exited")

SAMPLING = (
    "Read where phases end, at most ten times a second for one phase. Peaks of the allocator are set back once, when "
    "the session begins, and count this process's own allocations; replays of a graph do not move them. Device-wide "
    "use and host_rss_bytes are what they were at those moments: what came and went between two of them is not seen. "
    "host_peak_rss_bytes is the kernel's, since the process began."
)
"""What the memory readings can and cannot show; stands in every run.json."""

MOST_UNATTRIBUTED = 0.01
"""The share of a session that may belong to no phase."""
STALL_FACTOR = 10.0
"""An update that takes so many times the median is told of."""
_BIN = math.log(1.01)
_SMALLEST_S = 1e-9
_SAMPLE_EVERY_S = 0.1
_WRITE_SHARE = 0.005
"""Of the time, what writing run.json at the ends of phases may take."""
_HARVEST = 256
_NOTED = "_noted_by_monitor"
"""Attribute of an exception: which monitor has it already."""
_COMMAND_LIMIT_S = 10.0

Clock: TypeAlias = Callable[[], float]
Synchronize: TypeAlias = Callable[[], None]


class MonitorError(Exception):
    """The monitor was used wrongly, or a file is not what it should be; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """In place of a value of the recipe: nobody knows it, for this reason."""

    reason: str


# --- distributions ----------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Spread:
    """Times of updates: how many, their sum, the extremes, and counts in bins of 1% (quantiles to within 0.5%)."""

    count: int = 0
    total_s: float = 0.0
    min_s: float = math.inf
    max_s: float = 0.0
    bins: dict[int, int] = field(default_factory=dict)

    def add(self, seconds: float, num: int = 1) -> None:
        """Take the mean time of `num` updates."""
        self.count += num
        self.total_s += seconds * num
        self.min_s = min(self.min_s, seconds)
        self.max_s = max(self.max_s, seconds)
        key = round(math.log(max(seconds, _SMALLEST_S)) / _BIN)
        self.bins[key] = self.bins.get(key, 0) + num

    def merge(self, other: Spread) -> None:
        """Take everything that another one has."""
        self.count += other.count
        self.total_s += other.total_s
        self.min_s = min(self.min_s, other.min_s)
        self.max_s = max(self.max_s, other.max_s)
        for key, num in other.bins.items():
            self.bins[key] = self.bins.get(key, 0) + num

    def quantile(self, share: float) -> float | None:
        """The time that at least this share of the updates does not exceed; None without any."""
        wanted, seen = math.ceil(share * self.count), 0
        for key in sorted(self.bins):
            seen += self.bins[key]
            if seen >= wanted:
                return min(max(math.exp(key * _BIN), self.min_s), self.max_s)
        return None

    def as_json(self) -> dict[str, Any] | None:
        """None where nothing was timed."""
        if not self.count:
            return None
        bins = [[key, self.bins[key]] for key in sorted(self.bins)]
        found = {"count": self.count, "total_s": self.total_s, "min_s": self.min_s, "max_s": self.max_s, "bins": bins}
        return found | {"p50_s": self.quantile(0.5), "p95_s": self.quantile(0.95)}


# --- the device -------------------------------------------------------------------------------------------------------


class Marks(Protocol):
    """Moments in the device's own order of work, which can be read later without having waited."""

    on_device: bool
    """Whether the device works by itself while the host goes on."""

    def record(self) -> Any:
        """Put a mark behind all work that was handed over so far."""

    def is_done(self, mark: Any) -> bool:
        """Whether the device has come to a mark; never waits."""

    def seconds(self, first: Any, second: Any) -> float:
        """The time between two marks that are done."""


class HostMarks:
    """The host does the work itself, so that its clock is the device's."""

    on_device = False

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def record(self) -> float:
        """Now."""
        return self._clock()

    def is_done(self, mark: float) -> bool:
        """Always."""
        return mark <= self._clock()

    def seconds(self, first: float, second: float) -> float:
        """The difference."""
        return second - first


class CudaMarks:
    """Events on the current stream of a CUDA device."""

    on_device = True

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch = torch
        self._device = device

    def record(self) -> Any:
        """An event behind everything on the current stream."""
        event = self._torch.cuda.Event(enable_timing=True)
        event.record(self._torch.cuda.current_stream(self._device))
        return event

    def is_done(self, mark: Any) -> bool:
        """Asks, and does not wait."""
        return bool(mark.query())

    def seconds(self, first: Any, second: Any) -> float:
        """Between two events."""
        return float(first.elapsed_time(second)) / 1000


class Memory(Protocol):
    """Reads how much memory is in use."""

    def reset(self) -> None:
        """Forget the peaks so far."""

    def read(self) -> dict[str, int | None]:
        """The readings by the names in MEMORY; None for what this machine does not tell."""


class HostMemory:
    """What the kernel says of this process; nothing of a device."""

    def reset(self) -> None:
        """The kernel's peak counts from the beginning of the process."""

    def read(self) -> dict[str, int | None]:
        """Resident bytes, now and at most."""
        found: dict[str, int | None] = dict.fromkeys(MEMORY)
        with contextlib.suppress(OSError, ValueError):
            for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
                name, _, text = line.partition(":")
                if name in ("VmRSS", "VmHWM"):
                    key = "host_rss_bytes" if name == "VmRSS" else "host_peak_rss_bytes"
                    found[key] = int(text.split()[0]) * 1024
        return found


class CudaMemory(HostMemory):
    """What PyTorch's allocator and the driver say of one device, and the kernel of this process."""

    def __init__(self, torch: Any, device: Any) -> None:
        self._cuda = torch.cuda
        self._device = device
        self._events_before = (0, 0)

    def reset(self) -> None:
        """Set the allocator's peaks back."""
        self._cuda.reset_peak_memory_stats(self._device)
        self._events_before = self._events()

    def read(self) -> dict[str, int | None]:
        """All of it."""
        free, total = self._cuda.mem_get_info(self._device)
        retries, ooms = self._events()
        return super().read() | {
            "cuda_allocated_bytes": int(self._cuda.memory_allocated(self._device)),
            "cuda_reserved_bytes": int(self._cuda.memory_reserved(self._device)),
            "cuda_peak_allocated_bytes": int(self._cuda.max_memory_allocated(self._device)),
            "cuda_peak_reserved_bytes": int(self._cuda.max_memory_reserved(self._device)),
            "cuda_device_used_bytes": int(total - free),
            "cuda_num_alloc_retries": retries - self._events_before[0],
            "cuda_num_ooms": ooms - self._events_before[1],
        }

    def _events(self) -> tuple[int, int]:
        stats = self._cuda.memory_stats(self._device)
        return int(stats.get("num_alloc_retries", 0)), int(stats.get("num_ooms", 0))


# --- what the session runs on -----------------------------------------------------------------------------------------

SETTINGS = (
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TORCH_COMPILE_DISABLE",
)
"""Variables of the environment that change how a training is executed."""


def read_environment(device: str, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """What a session runs on, by the names in ENVIRONMENT; what cannot be found out is an Unknown."""
    torch = _imported_torch()
    cuda = torch if torch is not None and device.startswith("cuda") else None
    not_cuda = Unknown(f"the device is {device}")
    not_torch = Unknown("PyTorch is not imported")
    found: dict[str, Any] = {
        "node": platform.node() or Unknown("the host has no name"),
        "python": platform.python_version(),
        "driver": _read_driver() if cuda else not_cuda,
        "framework": not_torch if torch is None else f"torch {torch.__version__}",
        "cuda_runtime": (cuda.version.cuda or Unknown("this PyTorch was built without CUDA")) if cuda else not_cuda,
        "toolkit": _first_line(_nvcc(environ), "--version", last=True) if cuda else not_cuda,
        "compiler": _first_line(environ.get("CXX", "c++"), "--version"),
        "settings": _read_settings(torch, environ),
    }
    if cuda:
        facts = cuda.cuda.get_device_properties(device)
        found["device_name"] = str(facts.name)
        found["device_memory_bytes"] = int(facts.total_memory)
        found["device_capability"] = f"{facts.major}.{facts.minor}"
        return found
    capability = not_torch if torch is None else str(torch.backends.cpu.get_cpu_capability())
    return found | {
        "device_name": _read_named("/proc/cpuinfo", "model name") if device == "cpu" else not_cuda,
        "device_memory_bytes": _read_host_memory() if device == "cpu" else not_cuda,
        "device_capability": capability if device == "cpu" else not_cuda,
    }


def _imported_torch() -> Any:
    """PyTorch if the program has imported it; it is never loaded for what it would say."""
    return sys.modules.get("torch")


def _read_settings(torch: Any, environ: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {name: environ[name] for name in SETTINGS if name in environ}
    if torch is None:
        return found
    asked = {
        "deterministic_algorithms": "are_deterministic_algorithms_enabled",
        "float32_matmul_precision": "get_float32_matmul_precision",
        "cudnn_benchmark": "backends.cudnn.benchmark",
        "cudnn_deterministic": "backends.cudnn.deterministic",
        "num_threads": "get_num_threads",
        "num_interop_threads": "get_num_interop_threads",
    }
    for name, place in asked.items():
        try:
            value = operator.attrgetter(place)(torch)
            found[name] = value() if callable(value) else value
        except (AttributeError, RuntimeError) as error:
            # PyTorch refuses to answer where precision was set by two of its interfaces.
            found[name] = f"not told: {str(error).splitlines()[0][:200]}" if str(error) else "not told"
    return found


def _read_named(path: str, wanted: str) -> Any:
    with contextlib.suppress(OSError):
        for line in Path(path).read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, text = line.partition(":")
            if name.strip() == wanted and text.strip():
                return text.strip()
    return platform.processor() or platform.machine() or Unknown(f"{path} does not name it")


def _read_host_memory() -> Any:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return Unknown("this system does not tell its memory")


def _read_driver() -> Any:
    with contextlib.suppress(OSError):
        return Path("/sys/module/nvidia/version").read_text(encoding="ascii").strip()
    with contextlib.suppress(OSError):
        for word in Path("/proc/driver/nvidia/version").read_text(encoding="ascii").split():
            if word[:1].isdigit() and "." in word:
                return word
    return _first_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")


def _nvcc(environ: Mapping[str, str]) -> str:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if name in environ:
            return str(Path(environ[name]) / "bin" / "nvcc")
    return "nvcc"


def _first_line(program: str, *arguments: str, last: bool = False) -> Any:
    """The first or last line that a program prints, or why there is none."""
    found = shutil.which(program)
    if found is None:
        return Unknown(f"{program} is not installed")
    try:
        ended = subprocess.run(
            [found, *arguments], capture_output=True, text=True, timeout=_COMMAND_LIMIT_S, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Unknown(f"{program}: {error}")
    lines = [line.strip() for line in ended.stdout.splitlines() if line.strip()]
    if ended.returncode or not lines:
        return Unknown(f"{program} ended with {ended.returncode} and said nothing of use")
    return lines[-1 if last else 0]


def _read_process_s() -> Any:
    """Seconds since this process began, to a hundredth."""
    try:
        began = int(Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began / os.sysconf("SC_CLK_TCK")
    except (AttributeError, IndexError, OSError, ValueError):
        return Unknown("this system does not tell when a process began")


class Preparation:
    """Times what comes before a session: reading data, and building the model.

    with preparation.phase("model_setup"):
        ...
    """

    def __init__(self, *, clock: Clock = time.perf_counter, synchronize: Synchronize | None = None) -> None:
        self._clock = clock
        self._synchronize = synchronize or _nothing
        self._seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time one part; the same name may come again."""
        _check_name(name, BEFORE)
        began_s = self._clock()
        yield
        self._synchronize()
        self._seconds[name] = self._seconds.get(name, 0.0) + (self._clock() - began_s)

    def seconds(self) -> dict[str, float]:
        """What was timed."""
        return dict(self._seconds)


# --- the monitor ------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Counters:
    """What was done since the beginning of the run, or in one stretch of it."""

    updates: int = 0
    skipped: int = 0
    microbatches: int = 0
    targets: int = 0
    padded: int | None = 0
    """Positions that were computed, padding included; None where it was not always said."""

    def add(self, other: Counters) -> None:
        """Count on."""
        self.updates += other.updates
        self.skipped += other.skipped
        self.microbatches += other.microbatches
        self.targets += other.targets
        self.padded = None if self.padded is None or other.padded is None else self.padded + other.padded

    def as_json(self) -> dict[str, int | None]:
        """By name."""
        return {name: getattr(self, name) for name in COUNTERS}

    def copy(self) -> Counters:
        """One that does not change with this one."""
        return Counters(**{name: getattr(self, name) for name in COUNTERS})


@dataclass(slots=True, kw_only=True)
class Stretch:
    """A time without a change of phase. A *window* is one of `train` with at least one update."""

    phase: str
    began_s: float
    """Since the session began."""
    seconds: float = 0.0
    counters: Counters = field(default_factory=Counters)
    partial_updates: int = 0
    """Updates of fewer microbatches than the recipe's, of which that was said."""
    uneven_updates: int = 0
    """Updates of another number of microbatches than the recipe's, of which nothing was said."""
    drain_s: float = 0.0
    """How long the device still worked when the host had come to the end."""
    num_behind: int = 0
    """Updates at whose end the device had not done the one before."""
    step: Spread = field(default_factory=Spread)
    host: Spread = field(default_factory=Spread)

    @property
    def is_window(self) -> bool:
        """Whether it makes the training rate."""
        return self.phase == "train" and self.counters.updates > 0

    def as_json(self) -> dict[str, Any]:
        """As it stands in run.json."""
        found = {"phase": self.phase, "began_s": self.began_s, "seconds": self.seconds, **self.counters.as_json()}
        found |= {"partial_updates": self.partial_updates, "uneven_updates": self.uneven_updates}
        found |= {"drain_s": self.drain_s, "num_behind": self.num_behind}
        return found | {"step": self.step.as_json(), "host": self.host.as_json()}


def start(
    path: str | os.PathLike[str] | None,
    *,
    device: object = "cpu",
    recipe: Mapping[str, Any] | None = None,
    resume: Mapping[str, Any] | None = None,
    preparation: Preparation | None = None,
    settings: Mapping[str, Any] | None = None,
    compile_updates: int = 1,
    clock: Clock = time.perf_counter,
    wall: Clock = time.time,
    synchronize: Synchronize | None = None,
    marks: Marks | None = None,
    memory: Memory | None = None,
    environment: Mapping[str, Any] | None = None,
) -> TrainingMonitor:
    """Begin a session of a run: call it right before the training loop.

    Args:
        path: The run's file. It must not be there yet, unless the run is resumed. None keeps everything in memory.
        device: "cpu", "cuda", "cuda:1", or a torch.device; of several processes each has a file of its own.
        recipe: What is trained and how, by the names in RECIPE; anything else belongs into a mapping under "other".
            What is left out, or an Unknown, stands as null with its reason.
        resume: What `state_dict` returned when the checkpoint was saved that the training goes on from.
        preparation: What was timed before.
        settings: How the session executes, beside what is read: a backend, say. No part of the recipe.
        compile_updates: So many first updates are `compile`, not `train`.
        clock: Seconds on a clock that never goes back.
        wall: Seconds since the epoch.
        synchronize: Waits for the device; for other devices than the CPU and CUDA.
        marks: Times updates on such a device.
        memory: Reads memory.
        environment: What `read_environment` would find out.

    Raises:
        MonitorError: The file is there already, is not that of the resumed training, or a name is not known.
    """
    name = str(device)
    torch = _torch_for(name, is_needed=synchronize is None or marks is None or memory is None)
    if synchronize is None:
        synchronize = _nothing if torch is None else lambda: torch.cuda.synchronize(device)
    if marks is None:
        marks = HostMarks(clock) if torch is None else CudaMarks(torch, device)
    if memory is None:
        memory = HostMemory() if torch is None else CudaMemory(torch, device)
    if environment is None:
        environment = read_environment(name)
    file = None if path is None else Path(path)
    record = _open_record(file, _known_recipe(recipe or {}), resume)
    if settings and isinstance(environment["settings"], Mapping):
        environment = {**environment, "settings": {**environment["settings"], **settings}}
    facts, reasons = _separate(environment, ENVIRONMENT, "environment")
    before, unknown = _read_before(preparation)
    return TrainingMonitor(
        file,
        record,
        facts={"device": name, "environment": facts, "before": before, "reasons": reasons | unknown},
        resume=resume,
        compile_updates=_count("compile_updates", compile_updates),
        clock=clock,
        wall=wall,
        synchronize=synchronize,
        marks=marks,
        memory=memory,
    )


class TrainingMonitor:
    """One session of a run; made by `start`."""

    def __init__(
        self,
        path: Path | None,
        record: dict[str, Any],
        *,
        facts: Mapping[str, Any],
        resume: Mapping[str, Any] | None,
        compile_updates: int,
        clock: Clock,
        wall: Clock,
        synchronize: Synchronize,
        marks: Marks,
        memory: Memory,
    ) -> None:
        self._path = path
        self._record = record
        self._earlier = list(record["sessions"])
        self._facts = facts
        self._from = _origin(resume)
        self._clock, self._wall, self._synchronize, self._marks, self._memory = clock, wall, synchronize, marks, memory
        self._accumulation = record["recipe"]["accumulation_count"]
        self._compile_updates = compile_updates
        self._pid = os.getpid()
        self._counters = Counters(**{name: self._from["counters"][name] for name in COUNTERS})
        self._stretches: list[Stretch] = []
        self._saves: list[dict[str, Any]] = []
        self._errors: list[dict[str, Any]] = []
        self._memory_of: dict[str, dict[str, int | None]] = {}
        self._peak_phase: dict[str, str] = {}
        self._sampled_s: dict[str, float] = {}
        self._first_update_s: float | None = None
        self._ending: str | None = None
        self._write_after_s = 0.0
        self._pending: deque[tuple[Any, int]] = deque()
        self._phases = ["compile" if compile_updates else "train"]
        memory.reset()
        synchronize()
        self._began_at = wall()
        self._write()
        self._began_s = self._last_s = clock()
        self._open(self._phases[-1])
        atexit.register(self._exit)

    # --- what a loop calls --------------------------------------------------------------------------------------------

    def update(
        self,
        *,
        targets: int,
        padded: int | None = None,
        microbatches: int = 1,
        updates: int = 1,
        skipped: int = 0,
        partial: bool = False,
    ) -> None:
        """Say that one update has been handed to the device. Never waits, but where `compile` ends.

        Args:
            targets: Non-padding tokens that were predicted.
            padded: Positions that were computed, padding included.
            microbatches: Forward and backward passes.
            updates: More than one where they cannot be told apart; their times are then means.
            skipped: Updates that the loss scaler skipped, these or earlier ones; their targets count.
            partial: The last update of an epoch has fewer microbatches, and should.

        Raises:
            MonitorError: A number is none, or no updates belong into the phase.
        """
        phase = self._phases[-1]
        if self._ending is not None or phase not in UPDATING:
            raise MonitorError(f"an update in {phase if self._ending is None else 'a session that has ended'}")
        found = Counters(
            updates=_count("updates", updates, least=1),
            skipped=_count("skipped", skipped),
            microbatches=_count("microbatches", microbatches, least=1),
            targets=_count("targets", targets),
            padded=None if padded is None else _count("padded", padded, least=targets),
        )
        self._time(found.updates)
        self._stretch.counters.add(found)
        self._counters.add(found)
        if self._accumulation is not None and found.microbatches != self._accumulation * found.updates:
            is_declared = partial and found.microbatches < self._accumulation * found.updates
            self._stretch.partial_updates += is_declared
            self._stretch.uneven_updates += not is_declared
        num_own = self._counters.updates - self._from["counters"]["updates"]
        if self._phases == ["compile"] and num_own >= self._compile_updates:
            self._change(lambda: self._phases.__setitem__(0, "train"))

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge what is inside to another phase; phases may lie within each other, and each moment counts once."""
        _check_name(name, PHASES)
        self._check_open()
        self._change(lambda: self._phases.append(name))
        try:
            yield
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            self._leave()

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must hold for a session that goes on from it; call it while saving, in that phase."""
        self._check_open()
        if self._phases[-1] != "checkpoint":
            raise MonitorError('state_dict belongs into `with mon.phase("checkpoint")`, where a state is saved')
        number = len(self._saves) + 1
        save = {"save": number, "at_s": self._now() - self._began_s, "counters": self._counters.as_json()}
        self._saves.append(save)
        # Before any checkpoint names it: otherwise a session that goes on from there would be one from nowhere.
        self._write()
        own = {"format": STATE_FORMAT, "run": self._record["run"], "session": len(self._earlier) + 1}
        return own | {"save": number, "counters": self._counters.as_json()}

    def close(self, ending: str = "closed") -> None:
        """End the session and write run.json for the last time."""
        if self._ending is None:
            atexit.unregister(self._exit)
            try:
                self._shut()
            finally:
                self._ending = ending
                self._write()

    def __enter__(self) -> TrainingMonitor:  # noqa: PYI034 - Self in a generic place reads worse than the name
        """Nothing: the session has begun."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the session; say whether the loop raised."""
        if error is None:
            self.close()
            return
        self._fail(error)
        with contextlib.suppress(Exception):  # the loop's own exception says more than what a broken device adds
            self.close("raised")

    def record(self) -> dict[str, Any]:
        """What run.json would have, written now: all stretches that have ended."""
        return {**self._record, "sessions": [*self._earlier, self._session()]}

    @property
    def counters(self) -> dict[str, int | None]:
        """What was done since the run began, along the checkpoints that it went on from."""
        return self._counters.as_json()

    @property
    def window_tokens_per_second(self) -> float | None:
        """The training rate of the last window that has ended, for a line of a log; None before the first one."""
        for stretch in reversed(self._stretches):
            if stretch.is_window:
                return _ratio(stretch.counters.targets, stretch.seconds)
        return None

    # --- stretches ----------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._ending is not None:
            raise MonitorError("the session has ended; start another one")

    def _now(self) -> float:
        now = self._clock()
        if not now >= self._last_s:
            raise MonitorError(f"the clock went back from {self._last_s!r} to {now!r}; give start() a monotonic one")
        self._last_s = now
        return now

    def _change(self, change: Callable[[], object]) -> None:
        """End this stretch and begin the next one, which `change` decides."""
        try:
            self._shut()
        finally:
            change()
            self._open(self._phases[-1])

    def _open(self, phase: str) -> None:
        now = self._now()
        self._stretch = Stretch(phase=phase, began_s=now - self._began_s)
        self._host_s = now
        self._pending.clear()
        if phase in UPDATING:
            self._mark = self._marks.record()

    def _shut(self) -> None:
        """Wait for the device: what it still does belongs to the phase that handed it over."""
        stretch, called_s = self._stretch, self._now()
        try:
            self._synchronize()
        finally:
            now = self._now()
            stretch.seconds, stretch.drain_s = now - self._began_s - stretch.began_s, now - called_s
            self._stretches.append(stretch)
        self._harvest(is_idle=True)
        self._sample(stretch.phase, now)

    def _time(self, updates: int) -> None:
        if self._pending and not self._marks.is_done(self._pending[-1][0]):
            self._stretch.num_behind += 1
        self._pending.append((self._marks.record(), updates))
        if self._marks.on_device:
            now = self._now()
            self._stretch.host.add((now - self._host_s) / updates, updates)
            self._host_s = now
        if len(self._pending) >= _HARVEST:
            self._harvest(is_idle=False)

    def _harvest(self, *, is_idle: bool) -> None:
        """Read the marks that the device has come to; all of them where it is idle."""
        while self._pending and self._marks.is_done(self._mark) and self._marks.is_done(self._pending[0][0]):
            mark, updates = self._pending.popleft()
            # Marks of a loop that changes streams may lie in another order than they were made in.
            seconds = max(self._marks.seconds(self._mark, mark), 0.0)
            self._stretch.step.add(seconds / updates, updates)
            self._mark = mark
            if self._first_update_s is None:
                self._first_update_s = self._stretch.began_s + seconds
        if is_idle and self._pending:
            raise MonitorError(
                f"{len(self._pending)} updates are not done although `synchronize` has returned: it does not wait for "
                "the device, or for another one, and every time here would be that of handing work over"
            )

    def _sample(self, phase: str, now: float) -> None:
        if now - self._sampled_s.get(phase, -math.inf) < _SAMPLE_EVERY_S:
            return
        self._sampled_s[phase] = now
        largest = self._memory_of.setdefault(phase, dict.fromkeys(MEMORY))
        before = {name: self._largest(name) for name in PEAKS}
        for name, value in self._memory.read().items():
            if value is not None:
                largest[name] = max(value, largest[name] or 0)
                if name in PEAKS and value > before[name]:
                    self._peak_phase[name] = phase

    def _largest(self, name: str) -> int:
        return max((readings[name] or 0 for readings in self._memory_of.values()), default=0)

    def _fail(self, error: BaseException) -> None:
        """Note what was raised, once, where it was raised."""
        kind = type(error).__name__
        # Known by a mark on it: the id of one that is gone may be the next one's, and one that is kept keeps tensors.
        if vars(error).get(_NOTED) == id(self):
            return
        vars(error)[_NOTED] = id(self)
        self._errors.append(
            {
                "phase": self._phases[-1],
                "at_s": self._now() - self._began_s,
                "updates": self._counters.updates,
                "error": kind,
                "is_out_of_memory": kind == "OutOfMemoryError" or isinstance(error, MemoryError),
            }
        )

    # --- the file -----------------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Go back to the phase around this one; write in between, if little of the time so far went into that."""
        if self._path is None or self._clock() < self._write_after_s:
            self._change(self._phases.pop)
            return
        try:
            self._change(lambda: self._phases.__setitem__(-1, "report"))
            self._write()
        finally:
            self._change(self._phases.pop)

    def _write(self) -> None:
        if self._path is None:
            return
        began_s = self._clock()
        write_record(self._path, self.record())
        now = self._clock()
        self._write_after_s = now + (now - began_s) / _WRITE_SHARE

    def _exit(self) -> None:
        """Where the interpreter ends without `close`; not in a process that was forked."""
        if os.getpid() == self._pid:
            with contextlib.suppress(Exception):  # nobody is left to hear it
                self.close("exited")

    def _session(self) -> dict[str, Any]:
        """The session so far: up to the end of its last stretch."""
        last = self._stretches[-1] if self._stretches else None
        session_s = last.began_s + last.seconds if last else 0.0
        phases = {name: _total(self._stretches, name) for name in PHASES}
        counters = Counters(**{name: self._from["counters"][name] for name in COUNTERS})
        for stretch in self._stretches:
            counters.add(stretch.counters)
        found: dict[str, Any] = {
            "session": len(self._earlier) + 1,
            "began_at": self._began_at,
            "written_at": self._wall(),
            "ending": self._ending,
            "device": self._facts["device"],
            "environment": self._facts["environment"],
            "before": self._facts["before"],
            "from": self._from,
            "first_update_s": self._first_update_s,
            "counters": counters.as_json(),
            "session_s": session_s,
            "phases": phases,
            "unattributed_s": session_s - math.fsum(phase["seconds"] for phase in phases.values()),
            **_rates(self._stretches, session_s),
            "stretches": [stretch.as_json() for stretch in self._stretches],
            "saves": list(self._saves),
            "errors": list(self._errors),
            "memory": self._memory_json(),
        }
        return found | {"reasons": self._facts["reasons"] | self._own_reasons(found)}

    def _memory_json(self) -> dict[str, Any]:
        largest = {name: _largest(readings[name] for readings in self._memory_of.values()) for name in MEMORY}
        phases = {phase: dict(readings) for phase, readings in self._memory_of.items()}
        return {"sampling": SAMPLING, "largest": largest, "phases": phases, "peak_phase": dict(self._peak_phase)}

    def _own_reasons(self, found: Mapping[str, Any]) -> dict[str, str]:
        said = {
            "ending": "the session was not closed when this was written",
            "first_update_s": "no update was completed",
            "counters.padded": "padded was not given with every update",
            "train_tokens_per_second": "there was no update in train",
            "tokens_per_second": "no time has passed",
            "train_padded_per_second": "there was no update in train, or padded was not given with every one",
            "padded_per_second": "no time has passed, or padded was not given with every update",
        }
        reasons = {place: reason for place, reason in said.items() if _at(found, place) is None}
        for name, value in found["memory"]["largest"].items():
            if value is None:
                device = self._facts["device"]
                is_known = name.startswith("cuda") and not device.startswith("cuda")
                told = f"the device is {device}" if is_known else "this system does not tell it"
                reasons[f"memory.largest.{name}"] = told if self._memory_of else "no phase has ended yet"
        return reasons


def _total(stretches: Sequence[Stretch], phase: str) -> dict[str, Any]:
    of_phase = [stretch.seconds for stretch in stretches if stretch.phase == phase]
    return {"seconds": math.fsum(of_phase), "count": len(of_phase)}


def _rates(stretches: Sequence[Stretch], session_s: float) -> dict[str, float | None]:
    """Both rates, in targets, and in positions beside them."""
    trained, done = Counters(), Counters()
    for stretch in stretches:
        done.add(stretch.counters)
        if stretch.phase == "train":
            trained.add(stretch.counters)
    train_s = math.fsum(stretch.seconds for stretch in stretches if stretch.phase == "train")
    has_trained = trained.updates > 0
    return {
        "train_tokens_per_second": _ratio(trained.targets, train_s) if has_trained else None,
        "train_padded_per_second": _ratio(trained.padded, train_s) if has_trained else None,
        "tokens_per_second": _ratio(done.targets, session_s),
        "padded_per_second": _ratio(done.padded, session_s),
    }


def _ratio(number: int | None, seconds: float) -> float | None:
    return number / seconds if number is not None and seconds > 0 else None


def _largest(values: Iterator[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _at(found: Mapping[str, Any], place: str) -> Any:
    value: Any = found
    for name in place.split("."):
        value = value[name]
    return value


def _nothing() -> None:
    pass


def _torch_for(device: str, *, is_needed: bool) -> Any:
    """PyTorch where the device is CUDA and something must be asked of it; None for the CPU."""
    if not is_needed or device.partition(":")[0] == "cpu":
        return None
    if device.partition(":")[0] != "cuda":
        raise MonitorError(f"device {device}: give start() synchronize, marks and memory for it")
    import torch  # noqa: PLC0415 - only where the device is a GPU

    return torch


def _check_name(name: str, known: Sequence[str]) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        raise MonitorError(
            f"no phase {name!r}; {'did you mean ' + near[0] if near else 'known are ' + ', '.join(known)}"
        )


def _count(name: str, value: object, *, least: int = 0) -> int:
    if type(value) is not int or value < least:
        raise MonitorError(f"{name}: expected an int of at least {least}, got {value!r}; convert with int(...)")
    return value


def _separate(given: Mapping[str, Any], names: Sequence[str], where: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Values by name, null for what is unknown, and the reasons."""
    values: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for name in names:
        value = given.get(name, Unknown("not given"))
        value = Unknown("given as None") if value is None else value
        values[name] = None if isinstance(value, Unknown) else value
        if isinstance(value, Unknown):
            reasons[f"{where}.{name}"] = value.reason
    return values, reasons


def _known_recipe(given: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe, and its part of the record."""
    for name in given:
        if name not in (*RECIPE, "other"):
            near = difflib.get_close_matches(name, RECIPE, n=1)
            hint = f"did you mean {near[0]}?" if near else 'what has no name here belongs into "other"'
            raise MonitorError(f"recipe: unknown entry {name!r}; {hint}")
    values, reasons = _separate(given, RECIPE, "recipe")
    if values["accumulation_count"] is not None:
        _count("recipe.accumulation_count", values["accumulation_count"], least=1)
    recipe = values | {"other": dict(given.get("other", {}))}
    return {"recipe": recipe, "recipe_sha256": recipe_sha256(recipe), "reasons": reasons}


def recipe_sha256(recipe: Mapping[str, Any]) -> str:
    """The digest of a recipe: SHA-256 of its JSON with sorted keys and no spaces."""
    try:
        text = json.dumps(recipe, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise MonitorError(f"recipe: {error}; give numbers, texts, lists and mappings alone") from error
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _read_before(preparation: Preparation | None) -> tuple[dict[str, Any], dict[str, str]]:
    timed: dict[str, Any] = dict(preparation.seconds()) if preparation else {}
    given = {f"{name}_s": timed.get(name, Unknown("not timed; see Preparation")) for name in BEFORE}
    return _separate(given | {"process_s": _read_process_s()}, ("process_s", *given), "before")


def _origin(resume: Mapping[str, Any] | None) -> dict[str, Any]:
    """Where a session begins: at the beginning, or at what an earlier one saved."""
    if resume is None:
        return {"session": 0, "save": 0, "counters": Counters().as_json()}
    return {name: resume[name] for name in ("session", "save", "counters")}


def _open_record(path: Path | None, wanted: dict[str, Any], resume: Mapping[str, Any] | None) -> dict[str, Any]:
    """A new record, or that of the run that is resumed."""
    if resume is None:
        if path is not None and path.exists():
            raise MonitorError(f"{path}: there already; give start() the resume= of that run, or another path")
        return {"format": FORMAT, "run": uuid.uuid4().hex, **wanted, "sessions": []}
    if set(resume) != {"format", "run", "session", "save", "counters"} or resume["format"] != STATE_FORMAT:
        raise MonitorError("resume: not what state_dict() returned")
    if path is None or not path.exists():
        raise MonitorError(f"{path}: no such file, and a resumed run goes on in its own; bring it along")
    record = _read_json(path)
    run = parse_run(record, str(path))
    if run.run != resume["run"]:
        raise MonitorError(f"{path}: of run {run.run}, and the checkpoint is of run {resume['run']}")
    if run.recipe_sha256 != wanted["recipe_sha256"]:
        names = [name for name in (*RECIPE, "other") if run.recipe[name] != wanted["recipe"][name]]
        raise MonitorError(f"{path}: another recipe ({', '.join(names)}), so another run: give it a path of its own")
    if _saved(run.sessions, resume["session"], resume["save"]) != dict(resume["counters"]):
        raise MonitorError(
            f"{path}: save {resume['save']} of session {resume['session']} has other counters, or is not there"
        )
    return record


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Put the file in place of the earlier one, whole or not at all."""
    text = json.dumps(record, sort_keys=True, allow_nan=False)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with unfinished.open("w", encoding="ascii") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


# --- reading a run ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One session as its file has it."""

    session: int
    ending: str | None
    device: str
    environment: dict[str, Any]
    before: dict[str, float | None]
    start_session: int
    start_save: int
    start: Counters
    first_update_s: float | None
    counters: Counters
    session_s: float
    phases: dict[str, tuple[float, int]]
    """Seconds of each phase, and its number of stretches."""
    unattributed_s: float
    rates: dict[str, float | None]
    stretches: tuple[Stretch, ...]
    saves: dict[int, Counters]
    errors: tuple[dict[str, Any], ...]
    memory: dict[str, int | None]
    """The largest reading of each kind."""
    memory_of: dict[str, dict[str, int | None]]
    """The same for each phase."""
    peak_phase: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run as its file has it."""

    run: str
    recipe: dict[str, Any]
    recipe_sha256: str
    unknown: dict[str, str]
    """What is not known of the recipe, and why."""
    sessions: tuple[Session, ...]


def read_run(path: str | os.PathLike[str]) -> Run:
    """Read a run.json strictly: no field too few or too many, no null without a reason.

    Raises:
        MonitorError: The file is not there, or not such a file.
    """
    return parse_run(_read_json(Path(path)), str(path))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(
            path.read_text(encoding="ascii"), object_pairs_hook=_without_duplicates, parse_constant=_no_constant
        )
    except (OSError, ValueError, RecursionError) as error:
        raise MonitorError(f"{path}: {error}") from error
    if not isinstance(found, dict):
        raise MonitorError(f"{path}: expected an object")
    return found


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


class _Fields:
    """An object of a file, taken apart field by field."""

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise MonitorError(f"{where}: expected an object, got {value!r}")
        self._left = dict(value)
        self.where = where

    def take(self, name: str) -> Any:
        if name not in self._left:
            raise MonitorError(f"{self.where}: no field {name!r}")
        return self._left.pop(name)

    def text(self, name: str) -> str:
        value: str = self._checked(name, self.take(name), str)
        return value

    def count(self, name: str, *, least: int = 0) -> int:
        value: int = self._checked(name, self.take(name), int)
        if value < least:
            raise MonitorError(f"{self.where}: {name}: expected at least {least}, got {value}")
        return value

    def number(self, name: str) -> float:
        value = self._checked(name, self.take(name), int, float)
        if not math.isfinite(value):
            raise MonitorError(f"{self.where}: {name}: not a finite number")
        return float(value)

    def seconds(self, name: str) -> float:
        value = self.number(name)
        if not value >= 0:
            raise MonitorError(f"{self.where}: {name}: {value} is below 0")
        return value

    def optional(self, name: str, read: Callable[[str], Any]) -> Any:
        if name in self._left and self._left[name] is None:
            return self._left.pop(name)
        return read(name)

    def fields(self, name: str) -> _Fields:
        return _Fields(self.take(name), f"{self.where}: {name}")

    def items(self, name: str) -> list[Any]:
        found: list[Any] = self._checked(name, self.take(name), list)
        return found

    def names(self) -> list[str]:
        return list(self._left)

    def done(self) -> None:
        if self._left:
            raise MonitorError(f"{self.where}: unknown field {min(self._left)!r}")

    def _checked(self, name: str, value: Any, *kinds: type) -> Any:
        if type(value) not in kinds:
            raise MonitorError(f"{self.where}: {name}: expected {kinds[-1].__name__}, got {value!r}")
        return value


def parse_run(record: dict[str, Any], path: str = "record") -> Run:
    """The same of a record in memory; `path` is what messages call it."""
    fields = _Fields(record, path)
    if fields.text("format") != FORMAT:
        raise MonitorError(f"{path}: not a {FORMAT} file")
    recipe = fields.fields("recipe")
    values = {name: recipe.take(name) for name in (*RECIPE, "other")}
    recipe.done()
    unknown = _read_reasons(fields, {f"recipe.{name}": values[name] for name in RECIPE})
    found = Run(
        run=fields.text("run"),
        recipe=values,
        recipe_sha256=fields.text("recipe_sha256"),
        unknown=unknown,
        sessions=tuple(
            _read_session(_Fields(session, f"{path}: session {number}"), number)
            for number, session in enumerate(fields.items("sessions"), start=1)
        ),
    )
    fields.done()
    return found


def _read_reasons(fields: _Fields, values: Mapping[str, Any]) -> dict[str, str]:
    """The reasons for what is null, which must be exactly those."""
    own = fields.fields("reasons")
    reasons = {name: own.text(name) for name in own.names()}
    nulls = {name for name, value in values.items() if value is None}
    for name in sorted(nulls ^ reasons.keys()):
        raise MonitorError(
            f"{fields.where}: {name}: {'null without a reason' if name in nulls else 'a reason, not null'}"
        )
    return reasons


def _read_session(fields: _Fields, number: int) -> Session:
    if fields.count("session") != number:
        raise MonitorError(f"{fields.where}: has another number")
    fields.number("began_at"), fields.number("written_at")
    ending = fields.optional("ending", fields.text)
    if ending not in (None, *ENDINGS):
        raise MonitorError(f"{fields.where}: no ending {ending!r}")
    start, environment, before = fields.fields("from"), fields.fields("environment"), fields.fields("before")
    memory, phases = fields.fields("memory"), fields.fields("phases")
    memory.text("sampling")
    memory_of, peak_phase = memory.fields("phases"), memory.fields("peak_phase")
    found = Session(
        session=number,
        ending=ending,
        device=fields.text("device"),
        environment={name: environment.take(name) for name in ENVIRONMENT},
        before={
            name: before.optional(name, before.seconds) for name in ("process_s", *(f"{name}_s" for name in BEFORE))
        },
        start_session=start.count("session"),
        start_save=start.count("save"),
        start=_read_counters(start.fields("counters")),
        first_update_s=fields.optional("first_update_s", fields.seconds),
        counters=_read_counters(fields.fields("counters")),
        session_s=fields.seconds("session_s"),
        phases={name: _read_phase(phases.fields(name)) for name in PHASES},
        unattributed_s=fields.number("unattributed_s"),
        rates={name: fields.optional(name, fields.seconds) for name in RATES},
        stretches=tuple(
            _read_stretch(_Fields(stretch, f"{fields.where}: stretch {place}"))
            for place, stretch in enumerate(fields.items("stretches"), start=1)
        ),
        saves=_read_saves(fields),
        errors=tuple(_read_error(_Fields(error, f"{fields.where}: errors")) for error in fields.items("errors")),
        memory=_read_memory(memory.fields("largest")),
        memory_of={name: _read_memory(memory_of.fields(name)) for name in memory_of.names()},
        peak_phase={name: peak_phase.text(name) for name in peak_phase.names()},
    )
    _read_reasons(fields, _nullable(found))
    for part in (fields, start, environment, before, memory, phases, memory_of, peak_phase):
        part.done()
    return found


def _nullable(session: Session) -> dict[str, Any]:
    """What may be null in a session, by its place."""
    found = {f"environment.{name}": value for name, value in session.environment.items()}
    found |= {f"before.{name}": value for name, value in session.before.items()}
    found |= {f"memory.largest.{name}": value for name, value in session.memory.items()}
    found |= {"ending": session.ending, "first_update_s": session.first_update_s}
    return found | {"counters.padded": session.counters.padded} | session.rates


def _read_counters(fields: _Fields) -> Counters:
    found = _take_counters(fields)
    fields.done()
    return found


def _take_counters(fields: _Fields) -> Counters:
    counts = {name: fields.count(name) for name in COUNTERS if name != "padded"}
    return Counters(**counts, padded=fields.optional("padded", fields.count))


def _read_phase(fields: _Fields) -> tuple[float, int]:
    found = fields.seconds("seconds"), fields.count("count")
    fields.done()
    return found


def _read_stretch(fields: _Fields) -> Stretch:
    phase = fields.text("phase")
    _check_name(phase, PHASES)
    found = Stretch(
        phase=phase,
        began_s=fields.seconds("began_s"),
        seconds=fields.seconds("seconds"),
        counters=_take_counters(fields),
        partial_updates=fields.count("partial_updates"),
        uneven_updates=fields.count("uneven_updates"),
        drain_s=fields.seconds("drain_s"),
        num_behind=fields.count("num_behind"),
        step=_read_spread(fields, "step"),
        host=_read_spread(fields, "host"),
    )
    fields.done()
    return found


def _read_spread(fields: _Fields, name: str) -> Spread:
    own = fields.optional(name, fields.fields)
    if own is None:
        return Spread()
    bins: dict[int, int] = {}
    for entry in own.items("bins"):
        if not isinstance(entry, list) or [type(value) for value in entry] != [int, int] or entry[0] in bins:
            raise MonitorError(f"{own.where}: bins: expected pairs of whole numbers, each bin once")
        bins[entry[0]] = entry[1]
    found = Spread(
        count=own.count("count", least=1),
        total_s=own.seconds("total_s"),
        min_s=own.seconds("min_s"),
        max_s=own.seconds("max_s"),
        bins=bins,
    )
    if min(bins.values(), default=0) < 1 or sum(bins.values()) != found.count:
        raise MonitorError(f"{own.where}: the bins do not hold {found.count} updates")
    for quantile, share in (("p50_s", 0.5), ("p95_s", 0.95)):
        if not math.isclose(own.seconds(quantile), found.quantile(share) or 0.0, rel_tol=1e-9):
            raise MonitorError(f"{own.where}: {quantile}: not what the bins say")
    own.done()
    return found


def _read_saves(fields: _Fields) -> dict[int, Counters]:
    found: dict[int, Counters] = {}
    for save in fields.items("saves"):
        number, counters = _read_save(_Fields(save, f"{fields.where}: saves"))
        if number in found:
            raise MonitorError(f"{fields.where}: saves: save {number} stands twice")
        found[number] = counters
    return found


def _read_save(fields: _Fields) -> tuple[int, Counters]:
    number = fields.count("save", least=1)
    fields.seconds("at_s")
    found = _read_counters(fields.fields("counters"))
    fields.done()
    return number, found


def _read_error(fields: _Fields) -> dict[str, Any]:
    found = {"phase": fields.text("phase"), "at_s": fields.seconds("at_s"), "updates": fields.count("updates")}
    found |= {"error": fields.text("error"), "is_out_of_memory": fields.take("is_out_of_memory")}
    fields.done()
    if type(found["is_out_of_memory"]) is not bool:
        raise MonitorError(f"{fields.where}: is_out_of_memory: expected true or false")
    return found


def _read_memory(fields: _Fields) -> dict[str, int | None]:
    found = {name: fields.optional(name, fields.count) for name in MEMORY}
    fields.done()
    return found


def _saved(sessions: Sequence[Session], number: int, save: int) -> dict[str, int | None] | None:
    """The counters of a save; None where there is no such save."""
    found = sessions[number - 1].saves.get(save) if 0 < number <= len(sessions) else None
    return None if found is None else found.as_json()


# --- checks -----------------------------------------------------------------------------------------------------------


def check_run(run: Run) -> list[str]:
    """What does not fit together in the counters and sums of a run; each as a sentence."""
    found: list[str] = []
    if recipe_sha256(run.recipe) != run.recipe_sha256:
        found.append("recipe_sha256 is not the digest of the recipe")
    for session in run.sessions:
        checks = (_check_sums, _check_order, _check_counters, _check_rates, _check_stretches)
        wrong = [text for check in checks for text in check(session)]
        wrong += _check_start(run, session)
        found += [f"session {session.session}: {text}" for text in wrong]
    return found


def _close(first: float, second: float, scale: float) -> bool:
    """Whether two sums of seconds are the same but for rounding."""
    return abs(first - second) <= 1e-9 * max(scale, 1.0)


def _check_sums(session: Session) -> Iterator[str]:
    """Phases and the rest are the session, and each phase is its stretches."""
    total = math.fsum(seconds for seconds, _ in session.phases.values()) + session.unattributed_s
    if not _close(total, session.session_s, session.session_s):
        yield f"phases and unattributed time make {total:.6f} s, and the session has {session.session_s:.6f} s"
    if not -1e-9 * max(session.session_s, 1.0) <= session.unattributed_s:
        yield f"unattributed time is {session.unattributed_s:.6f} s: some time was counted twice"
    if not session.unattributed_s <= MOST_UNATTRIBUTED * session.session_s:
        yield f"unattributed time is {session.unattributed_s:.6f} s of {session.session_s:.6f} s, not under 1%"
    for phase, (seconds, count) in session.phases.items():
        own = _total(session.stretches, phase)
        if not _close(own["seconds"], seconds, session.session_s) or own["count"] != count:
            text = f"{seconds:.6f} s in {count} stretches, and they make {own['seconds']:.6f} s in {own['count']}"
            yield f"{phase} has {text}"


def _check_order(session: Session) -> Iterator[str]:
    """No moment belongs to two stretches."""
    end_s = 0.0
    for number, stretch in enumerate(session.stretches, start=1):
        if not stretch.began_s >= end_s - 1e-9 * max(end_s, 1.0):
            text = f"begins at {stretch.began_s:.6f} s, when the one before it has not ended"
            yield f"stretch {number} ({stretch.phase}) {text}: some time was counted twice"
        end_s = stretch.began_s + stretch.seconds
    if not _close(end_s, session.session_s, session.session_s):
        yield f"the last stretch ends at {end_s:.6f} s, and the session at {session.session_s:.6f} s"


def _check_counters(session: Session) -> Iterator[str]:
    """The counters are where the session began and what its stretches did."""
    total = session.start.copy()
    for stretch in session.stretches:
        total.add(stretch.counters)
    for name, value in total.as_json().items():
        if value != getattr(session.counters, name):
            yield f"{name} is {getattr(session.counters, name)}, and its beginning and stretches make {value}"
    if session.counters.microbatches < session.counters.updates or session.counters.skipped > session.counters.updates:
        yield "fewer microbatches than updates, or more skipped updates than updates"
    before = session.start
    for number, saved in sorted(session.saves.items()):
        if not before.updates <= saved.updates <= session.counters.updates:
            text = f"{saved.updates} updates, after {before.updates} and before {session.counters.updates}"
            yield f"save {number} has {text}"
        before = saved


def _check_rates(session: Session) -> Iterator[str]:
    for name, value in _rates(session.stretches, session.session_s).items():
        given = session.rates[name]
        if (value is None) != (given is None) or not math.isclose(value or 0.0, given or 0.0, rel_tol=1e-9):
            yield f"{name} is {given}, and counters and seconds make {value}"


def _check_stretches(session: Session) -> Iterator[str]:
    """What one stretch can show of itself."""
    windows = 0
    for number, stretch in enumerate(session.stretches, start=1):
        windows += stretch.is_window
        name = f"stretch {number} ({f'window {windows}' if stretch.is_window else stretch.phase})"
        updates = stretch.counters.updates
        if updates and stretch.phase not in UPDATING:
            yield f"{name}: updates in {stretch.phase}"
        if stretch.uneven_updates:
            text = "have another number of microbatches than accumulation_count, and are not said to be partial"
            yield f"{name}: {stretch.uneven_updates} of its {updates} updates {text}"
        if stretch.step.count > updates or not stretch.step.total_s <= stretch.seconds * 1.001 + 1e-3:
            text = f"{stretch.step.total_s:.6f} s for {stretch.step.count} of {updates} updates"
            yield f"{name}: the device's own times are {text} in {stretch.seconds:.6f} s: the clock did not wait for it"
        if stretch.counters.padded is not None and stretch.counters.padded < stretch.counters.targets:
            yield f"{name}: fewer positions than targets"


def _check_start(run: Run, session: Session) -> Iterator[str]:
    """A session begins with nothing done, or with what an earlier one saved."""
    begins = session.start.as_json()
    if session.session == 1 and session.start_session == 0:
        if begins != Counters().as_json():
            yield "the first one begins with something done"
    elif session.start_session >= session.session:
        yield f"goes on from session {session.start_session}, which is not earlier"
    elif begins != _saved(run.sessions, session.start_session, session.start_save):
        yield (
            f"begins with {session.start.updates} updates and {session.start.targets} targets, which is not what "
            f"save {session.start_save} of session {session.start_session} had: counters were lost"
        )


def remarks(run: Run) -> list[str]:
    """What is to be known of a run, and is no fault of its counters and sums."""
    found = [f"recipe: {name} is not known: {reason}" for name, reason in sorted(run.unknown.items())]
    for session in run.sessions:
        found += [f"session {session.session}: {text}" for text in _remarks(run, session)]
    return found


def _remarks(run: Run, session: Session) -> Iterator[str]:
    if session.ending is None:
        yield "was not closed, or still runs: its numbers are those of the last write"
    if session.start_session:
        earlier = run.sessions[session.start_session - 1 : session.session - 1]
        lost = max((other.counters.updates for other in earlier), default=0) - session.start.updates
        if lost > 0:
            yield f"{lost} updates were made again, after the save that it goes on from"
    for error in session.errors:
        what = "out of memory" if error["is_out_of_memory"] else error["error"]
        yield f"{what} in {error['phase']}, after {error['updates']} updates"
    middle = merged(session.stretches).step.quantile(0.5) or math.inf
    stalls = sum(stretch.step.max_s > STALL_FACTOR * middle for stretch in session.stretches if stretch.is_window)
    if stalls:
        text = f"have an update of over {STALL_FACTOR:g} times the median"
        yield f"{stalls} windows {text}; what is done outside of a phase counts as training"
    profiled = sum(stretch.counters.updates for stretch in session.stretches if stretch.phase == "profile")
    if profiled:
        yield f"{profiled} updates were profiled; they are in no training rate"


# --- adding up --------------------------------------------------------------------------------------------------------


def merged(stretches: Sequence[Stretch]) -> Stretch:
    """All windows of some stretches as one."""
    total = Stretch(phase="train", began_s=0.0)
    windows = [stretch for stretch in stretches if stretch.is_window]
    for stretch in windows:
        total.counters.add(stretch.counters)
        total.step.merge(stretch.step)
        total.host.merge(stretch.host)
        total.num_behind += stretch.num_behind
    total.seconds = math.fsum(stretch.seconds for stretch in windows)
    total.drain_s = math.fsum(stretch.drain_s for stretch in windows)
    return total


def bound_by(total: Stretch, num_windows: int) -> tuple[str, str]:
    """What the updates wait for, as far as times of host and device tell it without a profile.

    The host runs ahead of a device that is kept busy: when it comes to the end of a window, the device still has work
    of a good part of an update, or more. Of a device that waits for its host nothing is left to do then.

    Returns:
        "device", "host", "unclear" or "unknown", and what that means.
    """
    median = total.step.quantile(0.5)
    if not total.host.count or not median or not num_windows:
        return "unknown", "the device works in the host's own time"
    lead, behind = total.drain_s / num_windows / median, total.num_behind / total.counters.updates
    if lead >= 0.5 or behind >= 0.5:
        return "device", f"the host runs {lead:.2f} updates ahead: the device is kept busy"
    if lead < 0.1 and behind < 0.1:
        text = "launches, the loader, or code that waits for the device in every update"
        return "host", f"the host runs {lead:.2f} updates ahead: the device waits for {text}"
    return "unclear", f"the host runs {lead:.2f} updates ahead"


def summarize(run: Run, *, leave_out: int = 0) -> dict[str, Any]:
    """Add up the windows of a run.

    Args:
        run: The run.
        leave_out: So many first windows of each session do not enter the training rate and the times of updates.

    Returns:
        What `python monitor.py summarize --json` prints.
    """
    sessions = [_summary(session, leave_out) for session in run.sessions]
    included = [stretch for session in run.sessions for stretch in _steady(session, leave_out)[1]]
    wall_s = math.fsum(session.session_s for session in run.sessions)
    done = run.sessions[-1].counters if run.sessions else Counters()
    return {
        "format": SUMMARY_FORMAT,
        "run": run.run,
        "recipe_sha256": run.recipe_sha256,
        "leave_out": leave_out,
        "sessions": sessions,
        "train_tokens_per_second": _rates(included, 1.0)["train_tokens_per_second"],
        "tokens_per_second": _ratio(done.targets, wall_s),
        "counters": done.as_json(),
        "findings": check_run(run),
        "remarks": remarks(run),
    }


def _steady(session: Session, leave_out: int) -> tuple[int, list[Stretch]]:
    """The number of windows, and the stretches of train that follow the end of the last one that is left out."""
    seen, kept = 0, []
    for stretch in session.stretches:
        seen += stretch.is_window
        if stretch.phase == "train" and seen > leave_out:
            kept.append(stretch)
    return seen, kept


def _summary(session: Session, leave_out: int) -> dict[str, Any]:
    num_windows, kept = _steady(session, leave_out)
    total = merged(kept)
    num_kept = max(num_windows - leave_out, 0)
    bound, meaning = bound_by(total, num_kept)
    rates = _rates(kept, session.session_s)
    return {
        "session": session.session,
        "device": session.environment["device_name"],
        "windows": num_windows,
        "included": [leave_out + 1, num_windows] if num_kept else None,
        "train_tokens_per_second": rates["train_tokens_per_second"],
        "train_padded_per_second": rates["train_padded_per_second"],
        "tokens_per_second": session.rates["tokens_per_second"],
        "padded_per_second": session.rates["padded_per_second"],
        "session_s": session.session_s,
        "phases": {name: seconds for name, (seconds, _) in session.phases.items()},
        "unattributed_s": session.unattributed_s,
        "step": total.step.as_json(),
        "host": total.host.as_json(),
        "bound_by": bound,
        "bound_by_because": meaning,
        "memory": session.memory,
    }


def as_text(summary: Mapping[str, Any], path: str) -> str:
    """A summary for a person."""
    lines = [f"{path}: run {summary['run']}", f"  recipe {summary['recipe_sha256']}"]
    for session in summary["sessions"]:
        lines += _session_lines(session)
    if len(summary["sessions"]) > 1:
        lines.append(
            f"  all sessions: {_number(summary['train_tokens_per_second'])} targets/s in training, "
            f"{_number(summary['tokens_per_second'])} targets/s of what was kept over all their time"
        )
    lines += [f"  remark: {text}" for text in summary["remarks"]]
    lines += [f"  FINDING: {text}" for text in summary["findings"]]
    fit = "counters and sums fit together" if not summary["findings"] else "counters and sums do not fit together"
    lines.append(f"  {fit}; whether what was measured is physically possible is not judged here")
    return "\n".join(lines)


def _session_lines(session: Mapping[str, Any]) -> Iterator[str]:
    included = session["included"]
    which = f"windows {included[0]} to {included[1]} of {session['windows']}" if included else "no window is included"
    yield f"  session {session['session']} on {session['device']}: {which}"
    yield (
        f"    train_tokens_per_second {_number(session['train_tokens_per_second'])} "
        f"(padded {_number(session['train_padded_per_second'])}): these windows alone"
    )
    yield (
        f"    tokens_per_second       {_number(session['tokens_per_second'])} "
        f"(padded {_number(session['padded_per_second'])}): the whole session of {session['session_s']:.3f} s"
    )
    phases = ", ".join(f"{name} {seconds:.3f}" for name, seconds in session["phases"].items() if seconds)
    yield f"    seconds: {phases}, unattributed {session['unattributed_s']:.3f}"
    step = session["step"]
    if step:
        times = ", ".join(f"{name} {step[f'{name}_s'] * 1000:.3f}" for name in ("p50", "p95", "max"))
        yield f"    an update of {step['count']}, ms: {times}; bound by: {session['bound_by']}"
        yield f"      ({session['bound_by_because']})"
    memory = ", ".join(f"{name} {value}" for name, value in session["memory"].items() if value is not None)
    yield f"    largest readings: {memory or 'none'}"


def _number(value: float | None) -> str:
    return "not known" if value is None else f"{value:.1f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: 0 where all fits together, 4 where something does not, 5 for a file that is no run.json."""
    parser = argparse.ArgumentParser(prog="monitor.py", description="What a training's run.json says.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("summarize", help="add up logged windows; check counters and sums")
    command.add_argument("paths", nargs="+", metavar="RUN.json")
    command.add_argument(
        "--leave-out", type=int, default=0, metavar="N", help="first windows of each session to leave out"
    )
    command.add_argument("--json", action="store_true", help="print one JSON value")
    given = parser.parse_args(arguments)
    if given.leave_out < 0:
        parser.error("--leave-out: at least 0")
    try:
        summaries = [summarize(read_run(path), leave_out=given.leave_out) for path in given.paths]
    except MonitorError as error:
        sys.stderr.write(f"monitor: {error}\n")
        return 5
    texts = [as_text(summary, path) for summary, path in zip(summaries, given.paths, strict=True)]
    sys.stdout.write((json.dumps(summaries, sort_keys=True) if given.json else "\n".join(texts)) + "\n")
    return 4 if any(summary["findings"] for summary in summaries) else 0


if __name__ == "__main__":
    sys.exit(main())
