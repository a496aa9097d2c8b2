"""Running a side so that nothing of it can outlive it: a keeper process stands between the parent and the worker.

The keeper is forked from the parent, leads a session of its own and adopts whatever its descendants leave behind, those
included that made a session of their own. It kills all of them when the worker ends, when it is told to, and when the
parent dies; the worker dies with the keeper. It reports how the worker ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from ..common.strict import Fields, compact_json, parse_json
from .lineage import is_below, read_stat
from .signals import ignore_signals

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_KILL_S = 10.0
"""How long killed processes may take to go: one that waits for a broken file system never does."""
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a worker ended."""

    exit_code: int | None = None
    signal: int | None = None
    cpu_s: float = 0.0
    """Processor time of the worker and of all other processes of the side."""
    max_rss_bytes: int = 0
    strays: int = 0
    """Processes of the side that were alive after its worker had ended."""
    survivors: int = 0
    """Processes that could not be killed."""
    failure: str = ""
    """Why the worker could not be started, or why nobody knows how it ended."""

    def describe(self) -> str:
        """Return how it ended, in words."""
        if self.failure:
            return self.failure
        if self.signal is not None:
            hint = " (out of memory?)" if self.signal == signal.SIGKILL else ""
            return f"killed by {_signal_name(self.signal)}{hint}"
        return f"exit code {self.exit_code}"

    def as_json(self) -> dict[str, Any]:
        """Return it as `parse_exit` reads it."""
        return {name: getattr(self, name) for name in Exit.__slots__}


def parse_exit(value: Any) -> Exit:
    """Parse how a worker ended, as one part of the harness told another.

    Raises:
        ValueError: It is not that.
    """
    fields = Fields(value, "exit")
    found = Exit(
        exit_code=fields.optional_count("exit_code"),
        signal=fields.optional_count("signal"),
        cpu_s=fields.number("cpu_s"),
        max_rss_bytes=fields.count("max_rss_bytes"),
        strays=fields.count("strays"),
        survivors=fields.count("survivors"),
        failure=fields.text("failure"),
    )
    fields.done()
    return found


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def become_subreaper() -> None:
    """Adopt the orphans among this process's descendants."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def shield() -> None:
    """Let no other process of this user trace this one or read its memory."""
    _prctl(_PR_SET_DUMPABLE, 0)


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent dies."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


# --- descendants ------------------------------------------------------------------------------------------------------


def is_descendant(pid: int, ancestor: int) -> bool:
    """Return whether a living process is below another one; as `descendants` would, by its own line alone."""
    stat = read_stat(pid)
    return stat is not None and not stat.has_ended and is_below(pid, ancestor) is True


def _parents() -> dict[int, int]:
    """Return the parent of every living process that can be seen; zombies are left out."""
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - one call for thousands of processes
        if name.isdecimal() and (stat := read_stat(name)) is not None and not stat.has_ended:
            found[int(name)] = stat.parent
    return found


def descendants(pid: int, spared: Collection[int] = ()) -> set[int]:
    """Return the living processes below one, but not the spared ones nor what is below them."""
    children: dict[int, list[int]] = {}
    for child, parent in _parents().items():
        children.setdefault(parent, []).append(child)
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found and child not in spared:
                found.add(child)
                waiting.append(child)
    return found


def _reap() -> None:
    """Take away the children that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def kill_descendants(spared: Collection[int] = (), pause: float = 0.005) -> int:
    """Kill everything below this process and wait until it is gone; return how many could not be killed.

    Args:
        spared: Children that are left alone, with everything below them.
        pause: Seconds between two looks.
    """
    deadline = time.monotonic() + _KILL_S
    while True:
        _reap()
        if not _has_children():
            return 0
        living = descendants(os.getpid(), spared)
        if spared and not living:
            return 0
        if time.monotonic() > deadline:
            return len(living)
        # None living, and yet a child: it is just ending, and its processor time counts once it was taken away.
        for pid in living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(pause)


# --- the keeper's own process -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to run as a worker."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    working: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class _WorkerEnds:
    """File descriptors of the keeper and the worker."""

    command_fd: int
    answer_fd: int
    log_fd: int
    control_fd: int
    report_fd: int


def _spawn(command: Command, ends: _WorkerEnds) -> int:
    argv = [*command.argv, str(ends.command_fd), str(ends.answer_fd)]
    worker = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=ends.log_fd,
        stderr=ends.log_fd,
        env=dict(command.environment),
        cwd=command.working,
        pass_fds=(ends.command_fd, ends.answer_fd),
        start_new_session=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - the keeper has one thread
    )
    return worker.pid


def _has_ended(pid: int) -> bool:
    """Return whether the worker has ended, without taking its status away."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _await_end(pid: int, control_fd: int, wakeup_fd: int) -> None:
    """Wait until the worker has ended, or the parent closes its end of the control pipe, as it does when it dies."""
    while not _has_ended(pid):
        ready, _, _ = select.select([control_fd, wakeup_fd], [], [])
        if control_fd in ready:
            return
        if wakeup_fd in ready:
            os.read(wakeup_fd, 4096)


def _end(pid: int) -> Exit:
    """Kill the worker's group and every other descendant; return how the worker ended."""
    ended_by_itself = _has_ended(pid)
    strays = len(descendants(os.getpid()) - {pid}) if ended_by_itself else 0
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    survivors = kill_descendants()
    # Everything that this keeper took away: the worker, what the worker waited for, and what both left behind.
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Exit(
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        cpu_s=spent.ru_utime + spent.ru_stime,
        max_rss_bytes=usage.ru_maxrss << 10,
        strays=strays,
        survivors=survivors,
    )


def _keep(command: Command, ends: _WorkerEnds) -> Exit:
    ignore_signals()
    os.setsid()
    become_subreaper()
    wakeup_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    try:
        pid = _spawn(command, ends)
    except (OSError, subprocess.SubprocessError) as error:
        return Exit(failure=f"could not be started: {error}")
    for fd in (ends.command_fd, ends.answer_fd, ends.log_fd):
        os.close(fd)
    _await_end(pid, ends.control_fd, wakeup_fd)
    return _end(pid)


def _keeper_main(command: Command, ends: _WorkerEnds) -> NoReturn:
    code = 1
    try:
        os.write(ends.report_fd, compact_json(_keep(command, ends).as_json()))
        code = 0
    except BaseException as error:  # noqa: BLE001 - a fork must never return into the parent's code
        with contextlib.suppress(OSError):
            failed = Exit(failure=f"its keeper failed: {type(error).__name__}: {error}")
            os.write(ends.report_fd, compact_json(failed.as_json()))
    finally:
        os._exit(code)


# --- the parent's handle ----------------------------------------------------------------------------------------------


_running: list[Keeper] = []
"""The keepers that this process has started and not yet waited for: none may hold or kill what is another one's."""


class Keeper:
    """A running side, as the parent holds it.

    Args:
        command: What to run as the worker. Two file descriptor numbers are added: for commands and for answers.
    """

    def __init__(self, command: Command) -> None:
        command_fd, self.command_fd = os.pipe()
        self.answer_fd, answer_fd = os.pipe()
        self.log_fd, log_fd = os.pipe()
        control_fd, self._control_fd = os.pipe()
        self.report_fd, report_fd = os.pipe()
        ends = _WorkerEnds(
            command_fd=command_fd, answer_fd=answer_fd, log_fd=log_fd, control_fd=control_fd, report_fd=report_fd
        )
        own = (self.command_fd, self.answer_fd, self.log_fd, self._control_fd, self.report_fd)
        self._exit: Exit | None = None
        self.pid = os.fork()
        if self.pid == 0:
            # With the control pipes of other keepers open here, those would not notice the parent's end.
            for fd in (*own, *(fd for keeper in _running for fd in keeper._descriptors())):  # noqa: SLF001 - its own class
                os.close(fd)
            _keeper_main(command, ends)
        _running.append(self)
        for fd in (command_fd, answer_fd, log_fd, control_fd, report_fd):
            os.close(fd)
        for fd in own:
            os.set_blocking(fd, False)

    def _descriptors(self) -> list[int]:
        """Return the parent's open ends of the pipes."""
        found = (self.command_fd, self.answer_fd, self.log_fd, self._control_fd, self.report_fd)
        return [fd for fd in found if fd >= 0]

    def hang_up(self) -> None:
        """Let the worker's commands end, so that it ends by itself."""
        if self.command_fd >= 0:
            os.close(self.command_fd)
            self.command_fd = -1

    def kill(self) -> None:
        """Tell the keeper to kill the side."""
        if self._control_fd >= 0:
            os.close(self._control_fd)
            self._control_fd = -1

    def wait(self) -> Exit:
        """Wait until nothing of the side is left, killing what does not end; return how its worker ended."""
        if self._exit is not None:
            return self._exit
        ready, _, _ = select.select([self.report_fd], [], [], 2 * _KILL_S)
        data = os.read(self.report_fd, 65536) if ready else b""
        self.kill()
        if not data:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        found = parse_exit(parse_json(data)) if data else Exit(failure="its keeper was killed")
        _running.remove(self)
        # A keeper that was killed left its charges to this process.
        survivors = kill_descendants(spared=[keeper.pid for keeper in _running])
        self._exit = replace(found, survivors=found.survivors + survivors)
        return self._exit

    def close(self) -> None:
        """Release the file descriptors, after `wait`."""
        for fd in self._descriptors():
            os.close(fd)
