"""Running one side once: spawn, import, build, warm-up, windows, result, inspection, close."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import origins
from .channel import Answer, Channel
from .endings import EndedError, Ending
from .keeper import Command, Exit, Keeper, descendants
from .measure import (
    Block,
    Calibration,
    Measurement,
    calibrate,
    check_block,
    check_loss,
    check_processor_time,
    check_sums,
    check_window,
)
from .plan import Limits, Protocol, Runnable, Workload
from .sidelog import SideLog
from .signals import Signals
from .strict import MOST_COUNT, Fields, compact_json


@dataclass(slots=True, kw_only=True)
class SideRecord:
    """What is known of one run of a side; filled as it goes, so that a failure leaves what came before."""

    side: str
    position: int
    exit: Exit | None = None
    wall_s: float = 0.0
    peak_rss_bytes: int = 0
    """Peak resident memory of the worker itself, from outside; 0 if it could not be read."""
    output_bytes: int = 0
    output_truncated: bool = False
    engaged: dict[str, int | str] | None = None
    versions: dict[str, str] = field(default_factory=dict)
    bytecode: str = ""
    """Where the bytecode of installed packages comes from, ``installed`` or ``private``; empty before it is known."""
    offers: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    measurement: Measurement | None = None
    calibration: Calibration | None = None

    @property
    def path(self) -> str:
        """Twelve digits that stand for the execution path: over the text entries of ``engaged()``, numbers left out."""
        if self.engaged is None:
            return ""
        texts = {key: value for key, value in self.engaged.items() if isinstance(value, str)}
        return hashlib.sha256(compact_json(texts)).hexdigest()[:12]

    def as_json(self) -> dict[str, Any]:
        """Return the side's entry of a receipt."""
        found = self.exit or Exit()
        return {
            "side": self.side,
            "position": self.position,
            "exit_code": found.exit_code,
            "signal": found.signal,
            "wall_s": self.wall_s,
            "cpu_s": found.cpu_s,
            "max_rss_bytes": max(found.max_rss_bytes, self.peak_rss_bytes),
            "output_bytes": self.output_bytes,
            "output_truncated": self.output_truncated,
            "engaged": self.engaged,
            "path": self.path,
            "versions": self.versions,
            # The folders of compiled code are made for this run alone: see environment.py.
            "caches": {"compile": "private, cold", "bytecode": self.bytecode} if self.bytecode else None,
            "offers": list(self.offers),
            "missing": list(self.missing),
            "foreign": list(self.foreign),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Everything that one run of a side needs."""

    runnable: Runnable
    workload: Workload
    protocol: Protocol
    updates: int
    """Updates per window; 0 for a pilot."""
    tree: Path
    """The private copy of the snapshot."""
    launcher: Path
    """launch.py of the private copy of the harness."""
    environment: dict[str, str]
    working: Path
    bytecode: Path
    private: tuple[str, ...]
    """Real paths of the folders that the side's code may come from, beside its interpreter's."""
    is_full: Callable[[], bool]
    """Whether the disk of the private folders is."""

    @property
    def limits(self) -> Limits:
        """The protocol's limits."""
        return self.protocol.limits

    def command(self) -> Command:
        """Return what to run."""
        python = [self.runnable.python, "-P", "-s", "-X", f"pycache_prefix={self.bytecode}"]
        argv = [*self.runnable.launch, *python, str(self.launcher), "worker"]
        return Command(argv=argv, environment=self.environment, working=self.working)


def run_side(setting: Setting, record: SideRecord, log: SideLog, signals: Signals) -> None:
    """Run one side once and fill its record.

    Args:
        setting: What to run.
        record: Filled as far as the run goes, whatever happens.
        log: Takes what the side prints.
        signals: Ends the run.

    Raises:
        EndedError: The attempt ends here.
        InterruptedAttemptError: A signal came.
    """
    began = time.monotonic()
    keeper = Keeper(setting.command())
    channel = Channel(keeper, log, signals)
    try:
        with signals.watching():
            try:
                _measure(setting, record, channel, keeper)
            finally:
                record.exit = keeper.wait()
                record.wall_s = time.monotonic() - began
    finally:
        with contextlib.suppress(EndedError):
            channel.drain()
        record.output_bytes, record.output_truncated = log.output_bytes, log.is_truncated
        channel.close()
        keeper.close()
    _check_exit(record.exit, log)
    if setting.protocol.device == "cpu":
        check_processor_time(record.exit.cpu_s, record.wall_s, setting.protocol.threads)


def _measure(setting: Setting, record: SideRecord, channel: Channel, keeper: Keeper) -> None:
    """Measure a running side; kill it if that fails."""
    try:
        _Run(setting, record, channel, keeper.pid).measure()
    except EndedError as error:
        # Asked before the side's death frees what it held.
        is_excuse = error.ending is Ending.NO_SPACE and not setting.is_full()
        keeper.kill()
        if is_excuse:
            raise EndedError(Ending.CRASH, f"says that a disk is full, but its own is not: {error.reason}") from error
        raise
    except BaseException:
        keeper.kill()
        raise


def _check_exit(found: Exit, log: SideLog) -> None:
    if log.is_truncated:
        raise EndedError(Ending.OUTPUT_FLOOD, "the side printed more than it may while it left")
    if found.exit_code != 0:
        raise EndedError(Ending.CRASH, f"leaving: {found.describe()}; last lines:\n{log.tail()}")
    if found.survivors:
        raise EndedError(Ending.HARNESS_ERROR, f"{found.survivors} processes of the side could not be killed")


class _Run:
    """The steps of one run, in order."""

    def __init__(self, setting: Setting, record: SideRecord, channel: Channel, keeper_pid: int) -> None:
        self._setting = setting
        self._record = record
        self._channel = channel
        self._keeper_pid = keeper_pid
        self._worker_pid = 0
        self._roots: dict[str, tuple[str, ...]] = {}

    def measure(self) -> None:
        """Run all steps."""
        self._start()
        began_s = self._build()
        warm = self._updates(self._setting.protocol.rules.warmup_updates, "warm-up", self._setting.limits.startup_s)
        startup_s = warm[1].answered_s - began_s
        windows: tuple[Block, ...] = ()
        if self._setting.updates:
            windows = self._windows()
        else:
            self._record.calibration = calibrate(self._block, self._setting.protocol.rules, startup_s)
        peaks, ended_s = self._finish()
        if windows:
            self._record.measurement = Measurement(
                warmup_updates=warm[0].updates,
                windows=windows,
                startup_s=startup_s,
                elapsed_s=ended_s - began_s,
                peak_allocated_bytes=peaks[0],
                peak_reserved_bytes=peaks[1],
            )
        self._inspect()
        self._channel.ask({"do": "close"}, "close", self._setting.limits.stall_s).fields.done()
        self._channel.await_exit(self._setting.limits.stall_s)

    def _take(self, answer: Answer, what: str, read: Callable[[Fields], Any]) -> Any:
        """Read an answer's fields; what is missing, of another type or too much is rubbish."""
        try:
            found = read(answer.fields)
            answer.fields.done()
        except ValueError as error:
            raise EndedError(Ending.RUBBISH, f"{what}: {error}") from error
        return found

    # --- before the clocks --------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Wait for the worker and let it import the adapter."""
        limit_s = self._setting.limits.import_s
        ready = self._channel.receive("start", limit_s)
        self._worker_pid, self._roots, self._record.bytecode = self._take(ready, "start", _read_ready)
        command = {
            "do": "import",
            "adapter": self._setting.runnable.adapter,
            "paths": [str(self._setting.tree / folder) for folder in self._setting.runnable.python_path],
            "private": list(self._setting.private),
        }
        answer = self._channel.ask(command, "import", limit_s)
        self._refuse_foreign(self._take(answer, "import", lambda fields: fields.texts("foreign")))

    def _refuse_foreign(self, foreign: Sequence[str]) -> None:
        self._record.foreign = tuple(dict.fromkeys((*self._record.foreign, *foreign)))
        if self._record.foreign:
            shown = "\n".join(self._record.foreign[:5])
            text = f"{len(self._record.foreign)} origins outside the snapshot and the interpreter, among them:\n{shown}"
            raise EndedError(Ending.FOREIGN_IMPORT, text)

    # --- within the clocks --------------------------------------------------------------------------------------------

    def _build(self) -> float:
        """Let the adapter build its object; return when that began."""
        rules = self._setting.protocol.rules
        command = {
            "do": "build",
            "config": self._setting.workload.config,
            "seed": rules.seed,
            "device": self._setting.protocol.device,
        }
        answer = self._channel.ask(command, "build", self._setting.limits.startup_s)
        read = self._take(answer, "build", lambda fields: (fields.texts("offers"), fields.texts("missing")))
        self._record.offers, self._record.missing = read
        if self._record.missing:
            text = f"the adapter's object does not offer {', '.join(self._record.missing)}"
            raise EndedError(Ending.ADAPTER_INCOMPLETE, text)
        return answer.asked_s

    def _updates(self, updates: int, what: str, limit_s: float) -> tuple[Block, Answer]:
        answer = self._channel.ask({"do": "updates", "n": updates}, what, limit_s)
        rules = self._setting.protocol.rules
        block = self._take(answer, what, lambda fields: check_block(fields, updates, answer.seconds, rules, what))
        return block, answer

    def _block(self, updates: int) -> Block:
        return self._updates(updates, f"block of {updates} updates", self._setting.limits.stall_s)[0]

    def _windows(self) -> tuple[Block, ...]:
        rules = self._setting.protocol.rules
        found: list[Block] = []
        for number in range(1, rules.windows + 1):
            block, _ = self._updates(self._setting.updates, f"window {number}", self._setting.limits.stall_s)
            check_window(block, number, rules)
            found.append(block)
        check_sums(found)
        return tuple(found)

    def _finish(self) -> tuple[tuple[int, int], float]:
        """Collect the result; return the peaks of memory and when the result was there."""
        answer = self._channel.ask({"do": "finish"}, "result", self._setting.limits.stall_s)
        loss, engaged, peaks = self._take(answer, "result", _read_result)
        self._record.engaged = engaged
        self._record.peak_rss_bytes = self._peak_rss_bytes()
        if loss is not None:
            check_loss(loss)
        if peaks is None:
            peaks = (self._record.peak_rss_bytes, self._record.peak_rss_bytes)
        return peaks, answer.answered_s

    # --- after the clocks ---------------------------------------------------------------------------------------------

    def _inspect(self) -> None:
        answer = self._channel.ask({"do": "inspect"}, "inspection", self._setting.limits.stall_s)
        read = self._take(answer, "inspection", lambda fields: (fields.texts("foreign"), fields.text_table("versions")))
        foreign, self._record.versions = read
        self._refuse_foreign((*foreign, *self._foreign_libraries()))

    def _side_pids(self) -> set[int]:
        return descendants(self._keeper_pid)

    def _peak_rss_bytes(self) -> int:
        """Return the peak resident memory that the kernel counted for the worker since it was started.

        Within a container the worker's own number means nothing here; then the largest of the side's processes stands
        for it.
        """
        pids = self._side_pids()
        chosen = {self._worker_pid} if self._worker_pid in pids else pids
        return max([_high_water_bytes(pid) for pid in chosen], default=0)

    def _foreign_libraries(self) -> list[str]:
        declared = self._setting.environment.get("LD_LIBRARY_PATH", "").split(":")
        roots = [path for name in ("standard", "packages", "libraries") for path in self._roots[name]]
        allowed = [os.path.realpath(path) for path in (*roots, *filter(None, declared))]
        found: dict[str, None] = {}
        for pid in sorted(self._side_pids()):
            with contextlib.suppress(OSError):
                maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
                found.update(dict.fromkeys(origins.find_foreign_libraries(maps, (*self._setting.private, *allowed))))
        return [f"shared library: {path}" for path in found]


def _read_ready(fields: Fields) -> tuple[int, dict[str, tuple[str, ...]], str]:
    roots = fields.fields("roots")
    found = {name: roots.texts(name) for name in ("standard", "packages", "libraries")}
    roots.done()
    return fields.count("pid"), found, "installed" if fields.flag("installed_bytecode") else "private"


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= MOST_COUNT


def _is_engaged(value: object) -> bool:
    return type(value) is str or (type(value) is int and abs(value) <= MOST_COUNT)


def _read_result(fields: Fields) -> tuple[str | None, dict[str, int | str] | None, tuple[int, int] | None]:
    loss = fields.optional("loss", str)
    if loss is not None:
        float(loss)
    engaged = fields.optional("engaged", dict)
    if engaged is not None and not all(map(_is_engaged, engaged.values())):
        raise ValueError("engaged holds something else than int and str, or too large a number")
    peaks = fields.optional("peaks", list)
    if peaks is not None and (len(peaks) != 2 or not all(map(_is_count, peaks))):
        raise ValueError(f"peaks are not two counts: {peaks!r:.100}")
    return loss, engaged, None if peaks is None else (peaks[0], peaks[1])


def _high_water_bytes(pid: int) -> int:
    """Return a process's peak resident memory; 0 if it cannot be read."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return 0
