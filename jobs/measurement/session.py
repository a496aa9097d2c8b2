"""A side's process and the steps that every run of a side has: import, build, warm-up, result, inspection, close."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..common.endings import EndedError, Ending
from ..common.plan import Limits, Protocol, Runnable
from ..common.strict import MOST_COUNT, Fields, compact_json, plain_unicode
from ..processes import opened, origins
from ..processes.affinity import list_cpus, parse_cpus, read_affinity
from ..processes.channel import Answer, Channel, Ears
from ..processes.keeper import Command, Exit, Keeper, descendants, is_descendant
from ..processes.sidelog import Output
from ..processes.steps import Step
from .blocks import Block, Calibration, Measurement, check_block, check_processor_time

if TYPE_CHECKING:
    from ..processes.ranks import Rank  # only where a side has several processes

T = TypeVar("T")
MOST_ENGAGED_BYTES = 1 << 16
"""Of what ``engaged`` returns, as JSON: receipts repeat it."""


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
    undeclared: tuple[str, ...] = ()
    interpreter: dict[str, str] | None = None
    """Path, version and SHA-256; None before the side's process has said."""
    environment_sha256: str = ""
    has_other_user: bool = False
    """Whether the side's processes run as another user than the harness."""
    windows: list[Block] = field(default_factory=list)
    """What was measured so far, a window that is too short included."""
    measurement: Measurement | None = None
    calibration: Calibration | None = None
    inputs: bytes | None = None
    """The canonical inputs that a pilot recorded, as a document."""
    container_sha256: str = ""
    """Of the image that the side runs in, as it was found here; empty where none was declared."""
    before: dict[str, Any] | None = None
    """Under what conditions the side was measured, as its process had begun; None where nothing is compared by time."""
    after: dict[str, Any] | None = None
    """The same once its windows were done."""
    topology: tuple[int, int] = (1, 1)
    """Processes and nodes."""
    ranks: tuple[dict[str, Any], ...] = ()
    """An entry for each of its processes; none where it has one."""
    ranks_rss_bytes: int = 0
    """Sum of the peak resident memory of its processes; 0 where it has one."""
    examples: tuple[str, ...] = ()
    """Of each step that was asked for, the digest of the examples that its processes take together."""
    affinity: str = ""
    """The processors of the side's own process at the end of its windows: it may have left some that it was given."""

    def ended(self, found: Exit, wall_s: float) -> None:
        """Take down how a process of the side ended; where a case makes a side of several, they count together."""
        before = self.exit or Exit()
        self.exit = replace(found, cpu_s=before.cpu_s + found.cpu_s, strays=before.strays + found.strays)
        self.wall_s += wall_s

    def share(self, other: SideRecord) -> None:
        """Take over what another side's process said, which is this side's as well; its time stays the other's."""
        self.exit = Exit(exit_code=other.exit.exit_code, signal=other.exit.signal) if other.exit else None
        self.engaged, self.versions, self.bytecode = other.engaged, other.versions, other.bytecode
        self.offers, self.missing, self.foreign = other.offers, other.missing, other.foreign
        self.undeclared, self.has_other_user = other.undeclared, other.has_other_user
        self.interpreter, self.environment_sha256 = other.interpreter, other.environment_sha256
        self.container_sha256 = other.container_sha256

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
            # The folders of compiled code are made for this run alone: see processes/environment.py.
            "caches": {"compile": "private, cold", "bytecode": self.bytecode} if self.bytecode else None,
            "offers": list(self.offers),
            "missing": list(self.missing),
            "foreign": list(self.foreign),
            "undeclared": list(self.undeclared),
            "interpreter": self.interpreter,
            "environment_sha256": self.environment_sha256,
            "container_sha256": self.container_sha256,
            "conditions": self._conditions(),
            "windows": [{"updates": one.updates, "tokens": one.tokens, "seconds": one.seconds} for one in self.windows],
            "topology": {"processes": self.topology[0], "nodes": self.topology[1]},
            "ranks": list(self.ranks),
            "examples": list(self.examples),
        }

    def _conditions(self) -> dict[str, Any] | None:
        if self.before is None:
            return None
        return {"before": self.before, "after": self.after, "affinity": self.affinity}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Everything that one run of a side needs."""

    runnable: Runnable
    config: dict[str, Any]
    """What the adapter is called with."""
    seed: int
    protocol: Protocol
    tree: Path
    """The private copy of the snapshot."""
    launcher: Path
    """launch.py of the private copy of the harness."""
    environment: dict[str, str]
    working: Path
    bytecode: Path
    private: tuple[str, ...]
    """Real paths of the folders that the side's code may come from, beside its interpreter's."""
    declared: tuple[str, ...]
    """Files and folders that the side may read besides: declared data, and what its configuration names."""
    opened: Path
    """Where processes that its worker forks note what they open."""
    is_full: Callable[[], bool]
    """Whether the disk of the private folders is."""
    is_matched: bool = True
    """Whether the side is asked for state and for updates on given inputs."""
    container_sha256: str = ""
    """Of the image that the side runs in; empty where none was declared."""
    rank: Rank | None = None
    """Which of the side's processes this is; None where it has one."""

    @property
    def device(self) -> str:
        """The adapter's ``device``."""
        return self.protocol.device if self.rank is None else self.rank.device(self.protocol.device)

    @property
    def limits(self) -> Limits:
        """The protocol's limits."""
        return self.protocol.limits

    def command(self) -> Command:
        """Return what to run."""
        python = [self.runnable.python, "-P", "-s", "-X", f"pycache_prefix={self.bytecode}"]
        argv = [*self.runnable.launch, *python, str(self.launcher), "worker"]
        return Command(argv=argv, environment=self.environment, working=self.working)


@contextlib.contextmanager
def running(setting: Setting, record: SideRecord, log: Output, signals: Ears, *, name: str = "") -> Iterator[Session]:
    """Start a side's process; when the context is left nothing of it is alive, and its end has been judged.

    Args:
        setting: What to run.
        record: Filled as far as the run goes, whatever happens.
        log: Takes what the side prints.
        signals: End every wait.
        name: Stands before the reason of an ending.

    Raises:
        EndedError: The attempt ends here.
    """
    record.container_sha256 = setting.container_sha256
    began, began_ns = time.monotonic(), time.time_ns()
    keeper = Keeper(setting.command())
    channel = Channel(keeper, log, signals, name)
    try:
        try:
            with _killing(keeper, setting.is_full):
                yield Session(setting, record, channel, keeper.pid, began_ns)
        finally:
            found, wall_s = keeper.wait(), time.monotonic() - began
            record.ended(found, wall_s)
    finally:
        with contextlib.suppress(EndedError):
            channel.drain()
        record.output_bytes, record.output_truncated = log.output_bytes, log.is_truncated
        channel.close()
        keeper.close()
    _check_exit(found, log, name)
    if setting.protocol.device == "cpu":
        check_processor_time(found.cpu_s, wall_s, setting.protocol.threads, name)


@contextlib.contextmanager
def _killing(keeper: Keeper, is_full: Callable[[], bool]) -> Iterator[None]:
    """Kill the side if what is done with it fails."""
    try:
        yield
    except EndedError as error:
        # Asked before the side's death frees what it held.
        is_excuse = error.ending is Ending.NO_SPACE and not is_full()
        keeper.kill()
        if is_excuse:
            raise EndedError(Ending.CRASH, f"says that a disk is full, but its own is not: {error.reason}") from error
        raise
    except BaseException:
        keeper.kill()
        raise


def _check_exit(found: Exit, log: Output, name: str = "") -> None:
    prefix = f"{name}: " if name else ""
    if log.is_truncated:
        raise EndedError(Ending.OUTPUT_FLOOD, f"{prefix}the side printed more than it may while it left")
    if found.exit_code != 0:
        raise EndedError(Ending.CRASH, f"{prefix}leaving: {found.describe()}; last lines:\n{log.tail()}")
    if found.survivors:
        raise EndedError(Ending.HARNESS_ERROR, f"{prefix}{found.survivors} processes of the side could not be killed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a side answers when everything is done."""

    peaks: tuple[int, int]
    """Of allocated and of reserved memory, in bytes."""
    loss: str | None
    """Of the last update; None where the adapter offers none."""
    answered_s: float


class Session:
    """A running side. Its methods are the steps of a run; those that take time can go on beside another side's.

    Args:
        setting: What runs.
        record: Filled as far as the run goes.
        channel: The conversation with the worker.
        keeper_pid: Every process of the side descends from this one.
        began_ns: When it was started, in nanoseconds since the epoch.
    """

    def __init__(self, setting: Setting, record: SideRecord, channel: Channel, keeper_pid: int, began_ns: int) -> None:
        self.setting = setting
        self.record = record
        self._keeper_pid = keeper_pid
        self._began_ns = began_ns
        self._handed: dict[str, None] = {}
        self.channel = channel
        self.worker_pid = 0
        """The worker's number as it says it itself; 0 before it has."""
        self._roots: dict[str, tuple[str, ...]] = {}

    def ask(
        self, command: dict[str, Any], what: str, read: Callable[[Fields, Answer], T], limit_s: float | None = None
    ) -> Step[T]:
        """Send a command and take its answer.

        Args:
            command: The command.
            what: What it is for, for the reason of an ending.
            read: Takes the answer's fields.
            limit_s: How long the answer may take; ``limits.stall_s`` if None.
        """
        self._handed.update(dict.fromkeys(map(os.path.realpath, _named_files(command))))
        return self.channel.request(command, what, read, limit_s or self.setting.limits.stall_s)

    # --- before the clocks --------------------------------------------------------------------------------------------

    def start(self) -> Step[None]:
        """Wait for the worker and let it import the adapter."""
        limit_s = self.setting.limits.import_s
        yield
        ready = self.channel.receive("start", limit_s)
        self.worker_pid, self._roots, self.record.bytecode = self.channel.take(ready, "start", _read_ready)
        self.record.has_other_user = self._has_other_user()
        if self.record.interpreter is None:
            identity = yield from self.ask({"do": "identify"}, "identification", _read_identity, limit_s)
            self.record.interpreter, self.record.environment_sha256 = identity
        command = {
            "do": "import",
            "adapter": self.setting.runnable.adapter,
            "matched": self.setting.is_matched,
            "paths": [str(self.setting.tree / folder) for folder in self.setting.runnable.python_path],
            "private": list(self.setting.private),
            "declared": list(self._declared()),
            "log": str(self.setting.opened),
        }
        foreign, files = yield from self.ask(command, "import", _read_origins, limit_s)
        self._refuse_foreign(foreign)
        self._refuse_undeclared(files)

    def _declared(self) -> tuple[str, ...]:
        """Return what the side may read besides, as it is spelled and by its real path."""
        spelled = (*self.setting.declared, *_declared_libraries(self.setting.environment))
        return tuple(dict.fromkeys((*spelled, *map(os.path.realpath, spelled))))

    def _refuse_foreign(self, foreign: Sequence[str]) -> None:
        self.record.foreign = tuple(dict.fromkeys((*self.record.foreign, *foreign)))
        if self.record.foreign:
            shown = "\n".join(self.record.foreign[:5])
            text = f"{len(self.record.foreign)} origins outside the snapshot and the interpreter, among them:\n{shown}"
            raise EndedError(Ending.FOREIGN_IMPORT, self.channel.named(text))

    def _refuse_undeclared(self, files: Iterable[str]) -> None:
        """End the attempt if the side has read what is neither frozen nor declared; a worker only names them."""
        roots = [path for name in ("packages", "libraries", "further") for path in self._roots[name]]
        allowed = (*self.setting.private, *self._declared(), *self._handed, *roots)
        found = opened.find_undeclared(files, allowed)
        self.record.undeclared = tuple(found[: opened.MOST_LISTED])
        if found:
            shown = "\n".join(found[:5])
            text = f"{len(found)} files were read that are neither frozen nor declared, among them:\n{shown}"
            raise EndedError(Ending.UNDECLARED_INPUT, self.channel.named(text))

    # --- within the clocks --------------------------------------------------------------------------------------------

    def build(self) -> Step[float]:
        """Let the adapter build its object; return when that began, on the parent's clock."""
        command = {
            "do": "build",
            "config": self.setting.config,
            "seed": self.setting.seed,
            "device": self.setting.device,
        }
        offers, missing, asked_s = yield from self.ask(command, "build", _read_offers, self.setting.limits.startup_s)
        self.record.offers = offers
        self.refuse_missing(missing)
        return asked_s

    def refuse_missing(self, missing: Sequence[str]) -> None:
        """End the attempt if methods are missing, and say so in the record."""
        self.record.missing = tuple(missing)
        if missing:
            text = f"the adapter's object does not offer {', '.join(missing)}"
            raise EndedError(Ending.ADAPTER_INCOMPLETE, self.channel.named(text))

    def warm_up(self, *, is_timed: bool = True) -> Step[tuple[Block, float]]:
        """Do the warm-up; return it, and when it was done.

        Args:
            is_timed: False if another side is waited for meanwhile: the parent's clock would count that, too.
        """
        rules, limits = self.setting.protocol.rules, self.setting.limits
        return (yield from self.updates(rules.warmup_updates, "warm-up", limits.startup_s, is_timed=is_timed))

    def updates(
        self, updates: int, what: str, limit_s: float | None = None, *, is_timed: bool = True
    ) -> Step[tuple[Block, float]]:
        """Do updates on the production path; return them, and when they were done."""
        rules, name = self.setting.protocol.rules, self.channel.named(what)

        def read(fields: Fields, answer: Answer) -> tuple[Block, float]:
            return check_block(fields, updates, answer.seconds, rules, name, is_timed=is_timed), answer.answered_s

        return (yield from self.ask({"do": "updates", "n": updates}, what, read, limit_s))

    def result(self, *, has_loss: bool = True) -> Step[Result]:
        """Collect loss, execution path and peaks of memory.

        Args:
            has_loss: Whether this process has made an update, whose loss it can say.
        """
        command = {"do": "finish", "loss": has_loss}
        loss, engaged, peaks, answered_s = yield from self.ask(command, "result", _read_result)
        self.record.engaged = engaged
        self.record.peak_rss_bytes = max(self.record.peak_rss_bytes, self._peak_rss_bytes())
        resident = (self.record.peak_rss_bytes, self.record.peak_rss_bytes)
        return Result(peaks=resident if peaks is None else peaks, loss=loss, answered_s=answered_s)

    def examples(self, step: int) -> Step[tuple[int, ...]]:
        """Ask which examples this process takes in one update."""
        return self.ask({"do": "examples", "step": step}, f"examples of step {step}", _read_examples)

    def engaged_path(self) -> Step[str]:
        """Ask for the execution path alone."""
        self.record.engaged = yield from self.ask({"do": "engaged"}, "engaged", read_engaged)
        return self.record.path

    # --- after the clocks ---------------------------------------------------------------------------------------------

    def leave(self) -> Step[None]:
        """Look where the side's code came from, let it close, and wait until its worker has ended."""
        command = {"do": "inspect"}
        foreign, files, self.record.versions = yield from self.ask(command, "inspection", _read_inspection)
        maps = {pid: _maps(pid) for pid in sorted(self._side_pids())}
        self._refuse_foreign((*foreign, *self._foreign_libraries(maps)))
        self._refuse_undeclared((*files, *self._held_files(maps)))
        yield from self.ask({"do": "close"}, "close", lambda _fields, _answer: None)
        self.channel.await_exit(self.setting.limits.stall_s)

    def affinity(self) -> str:
        """Return the processors of the worker; empty where no process of the side can be seen.

        Within a container the worker's own number means nothing here; then all processes of the side stand for it.
        """
        if self._is_worker_seen():
            return read_affinity(self.worker_pid)
        return list_cpus(set().union(*(parse_cpus(read_affinity(pid)) for pid in self._side_pids())))

    def _is_worker_seen(self) -> bool:
        """Return whether the number that the worker says is its own is that of a process of the side here."""
        return self.worker_pid > 0 and is_descendant(self.worker_pid, self._keeper_pid)

    def _side_pids(self) -> set[int]:
        return descendants(self._keeper_pid)

    def _peak_rss_bytes(self) -> int:
        """Return the peak resident memory that the kernel counted for the worker since it was started.

        Within a container the worker's own number means nothing here; then the largest of the side's processes stands
        for it.
        """
        chosen = {self.worker_pid} if self._is_worker_seen() else self._side_pids()
        return max([_high_water_bytes(pid) for pid in chosen], default=0)

    def _has_other_user(self) -> bool:
        """Return whether every process of the side runs as another user than this one."""
        if self._is_worker_seen() and _user_of(self.worker_pid) == os.getuid():
            return False
        users = set()
        for pid in self._side_pids():
            if (user := _user_of(pid)) is not None:
                users.add(user)
        return bool(users) and os.getuid() not in users

    def _held_files(self, maps: Mapping[int, str]) -> list[str]:
        """Return what the side's processes hold open or mapped, and that was there before they were.

        Behind a launch prefix these are also files of a container's own, which is not looked into.
        """
        found: set[str] = set()
        for pid, text in () if self.setting.runnable.launch else maps.items():
            found |= opened.mapped_files(text)
            with contextlib.suppress(OSError):
                found |= opened.open_files(pid)
        return sorted(plain_unicode(path) for path in opened.older_than(found, self._began_ns))

    def _foreign_libraries(self, maps: Mapping[int, str]) -> list[str]:
        declared = self.setting.environment.get("LD_LIBRARY_PATH", "").split(":")
        roots = [path for name in ("standard", "packages", "libraries") for path in self._roots[name]]
        allowed = [os.path.realpath(path) for path in (*roots, *filter(None, declared))]
        found: dict[str, None] = {}
        for text in maps.values():
            found.update(dict.fromkeys(origins.find_foreign_libraries(text, (*self.setting.private, *allowed))))
        return [f"shared library: {path}" for path in found]


def _user_of(pid: int) -> int | None:
    """Return the user of a process; None if it is gone."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None


def _maps(pid: int) -> str:
    """Return what a process has mapped; nothing of one that is gone, or cannot be looked at."""
    try:
        return Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _named_files(command: dict[str, Any]) -> Iterator[str]:
    """Yield the files and folders that a command hands to the side."""
    yield from (command[name] for name in ("path", "folder") if name in command)
    yield from (path for _quantity, _worker, path, _identity in command.get("files", ()))


_LIBRARY_FOLDERS = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")
"""Variables by which a side names folders of libraries."""


def _declared_libraries(environment: dict[str, str]) -> list[str]:
    return [path for name in _LIBRARY_FOLDERS for path in environment.get(name, "").split(":") if path]


def _read_origins(fields: Fields, _answer: Answer) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return fields.texts("foreign"), fields.texts("opened")


def _read_identity(fields: Fields, _answer: Answer) -> tuple[dict[str, str], str]:
    return {name: fields.text(name) for name in ("path", "version", "sha256")}, fields.text("environment_sha256")


def _read_offers(fields: Fields, answer: Answer) -> tuple[tuple[str, ...], tuple[str, ...], float]:
    return fields.texts("offers"), fields.texts("missing"), answer.asked_s


def _read_inspection(fields: Fields, _answer: Answer) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, str]]:
    return fields.texts("foreign"), fields.texts("opened"), fields.text_table("versions")


def _read_ready(fields: Fields, _answer: Answer) -> tuple[int, dict[str, tuple[str, ...]], str]:
    roots = fields.fields("roots")
    found = {name: roots.texts(name) for name in ("standard", "packages", "libraries", "further")}
    roots.done()
    return fields.count("pid"), found, "installed" if fields.flag("installed_bytecode") else "private"


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= MOST_COUNT


def _read_examples(fields: Fields, _answer: Answer) -> tuple[int, ...]:
    found = fields.items("examples")
    if not all(type(item) is int and abs(item) <= MOST_COUNT for item in found):
        raise ValueError("examples hold something else than whole numbers, or too large ones")
    return tuple(found)


def _is_engaged(value: object) -> bool:
    return type(value) is str or (type(value) is int and abs(value) <= MOST_COUNT)


def read_engaged(fields: Fields, _answer: Answer | None = None) -> dict[str, int | str] | None:
    """Read what an adapter says it engages; None where it does not offer that.

    Raises:
        ValueError: It is not that.
    """
    engaged: dict[str, int | str] | None = fields.optional("engaged", dict)
    if engaged is not None and not all(map(_is_engaged, engaged.values())):
        raise ValueError("engaged holds something else than int and str, or too large a number")
    if engaged is not None and len(compact_json(engaged)) > MOST_ENGAGED_BYTES:
        raise ValueError(f"engaged() returned more than {MOST_ENGAGED_BYTES} bytes")
    return engaged


def _read_result(
    fields: Fields, answer: Answer
) -> tuple[str | None, dict[str, int | str] | None, tuple[int, int] | None, float]:
    loss = fields.optional("loss", str)
    if loss is not None:
        float(loss)
    engaged = read_engaged(fields, answer)
    peaks = fields.optional("peaks", list)
    if peaks is not None and (len(peaks) != 2 or not all(map(_is_count, peaks))):
        raise ValueError(f"peaks are not two counts: {peaks!r:.100}")
    return loss, engaged, None if peaks is None else (peaks[0], peaks[1]), answer.answered_s


def _high_water_bytes(pid: int) -> int:
    """Return a process's peak resident memory; 0 if it cannot be read."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return 0
