"""Being told to stop: the parent alone hears it, and says what it means for the attempt."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias, TypeVar

from ..common.endings import EndedError, Ending, InterruptedAttemptError
from .lineage import is_below

T = TypeVar("T")
Explain: TypeAlias = Callable[[signal.Signals], tuple[Ending, str]]
"""Returns what a signal means for an attempt: an ending and its reason."""
HEARD = (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT, signal.SIGHUP)
_BLOCKED = (*HEARD, signal.SIGCONT)
"""Who was stopped hears that it shall go on, but not that it was stopped."""
STOPPED = "the job was stopped for a while and told to go on (SIGCONT), and the clocks ran meanwhile"
_SI_USER = 0
_SI_TKILL = -6
_SI_KERNEL = 0x80
_SIGNAL_SET_BYTES = 128
_NEAR_END_S = 180.0
"""A warning signal comes at most so long before the end of the time limit (submitit asks for 90 s)."""
_SCONTROL_S = 3.0
"""Slurm kills 30 s after SIGTERM by default, at some sites 5 s after it; the receipt must be sealed by then."""
_HEAR_S = 0.02
_MAY_FOLLOW = (Ending.CRASH, Ending.NO_RESULT)
"""How a side ends whose processes were told to stop by whoever told the parent."""
_BY_CLOCK = (Ending.HANG, Ending.CLOCK_DISAGREEMENT)
"""How a side seems to end if the job is stopped while its answer is awaited."""


class Signals:
    """Hears the signals of `HEARD`. The first one counts; it is never forgotten.

    They are kept from this process and fetched, since only so the kernel says who sent them: a side must not be able to
    end a measurement that it does not like as if the scheduler had done it.
    """

    def __init__(self) -> None:
        self._first: signal.Signals | None = None
        self._explain: Explain = explain_locally
        self._meaning: tuple[Ending, str] | None = None
        self._is_watching = False
        self._is_deferring = False
        self._interference = ""
        self._was_stopped = False
        self.fd = _open_signal_fd(_BLOCKED)
        """Readable while a signal waits to be fetched."""

    def install(self, explain: Explain) -> None:
        """Take the signals over.

        Args:
            explain: What a signal means: an ending and its reason.
        """
        self._explain = explain
        signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)

    @property
    def received(self) -> signal.Signals | None:
        """The first signal that came from outside."""
        self._fetch()
        return self._first

    def _fetch(self) -> None:
        while (info := signal.sigtimedwait(_BLOCKED, 0)) is not None:
            number = signal.Signals(info.si_signo)
            sender = _find_fault(info) if self._is_watching else ""
            if sender:
                self._interference = self._interference or f"{number.name} was sent to the harness by {sender}"
            elif number is signal.SIGCONT:
                self._was_stopped = True
            elif self._first is None:
                self._first = number

    def take_stop(self) -> bool:
        """Return whether the job was stopped for a while, as by a scheduler that suspends it, since this was asked."""
        self._fetch()
        found, self._was_stopped = self._was_stopped, False
        return found

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """While a side runs, tell its own signals from others.

        Raises:
            EndedError: It sent one. That comes before any other ending.
        """
        self._is_watching, self._interference = True, ""
        try:
            yield
        except EndedError as error:
            if error.ending in _BY_CLOCK and self.take_stop():
                raise EndedError(Ending.PREEMPTED, f"{STOPPED}; then {error}") from error
            raise
        finally:
            self._fetch()
            found = self._interference
            self._is_watching, self._interference = False, ""
            if found:
                raise EndedError(Ending.INTERFERENCE, found)

    @contextlib.contextmanager
    def deferring(self) -> Iterator[None]:
        """Let a signal from outside end no wait: who enters this looks at `received` between steps, and acts.

        Raises:
            InterruptedAttemptError: The side died after one was heard: whatever stops a job may stop a process of it.
        """
        self._is_deferring = True
        try:
            yield
        except EndedError as error:
            if error.ending in _MAY_FOLLOW and self.received is not None:
                raise InterruptedAttemptError(self.received.name, then=str(error)) from error
            raise
        finally:
            self._is_deferring = False

    def check(self) -> None:
        """Raise if a signal was heard, unless it was from outside and is deferred.

        Raises:
            InterruptedAttemptError: One was, from outside.
            EndedError: One was, from the side that runs.
        """
        received = self.received
        if self._interference:
            raise EndedError(Ending.INTERFERENCE, self._interference)
        if received is not None and not self._is_deferring:
            raise InterruptedAttemptError(received.name)

    def hear_during(self, work: Callable[[], T]) -> T:
        """Do work of the parent's own that takes long, and hear meanwhile: a sender may be gone when it is done."""
        from concurrent import futures  # noqa: PLC0415 - few jobs do such work, and loading it takes a while

        with futures.ThreadPoolExecutor(max_workers=1) as pool:
            future = pool.submit(work)
            while not futures.wait([future], timeout=_HEAR_S).done:
                self._fetch()
            return future.result()

    def wait(self, seconds: float) -> None:
        """Wait for a signal, but not longer."""
        if self._first is None:
            select.select([self.fd], [], [], seconds)

    def meaning(self) -> tuple[Ending, str]:
        """Return what the signal means for an attempt; may ask the scheduler, once."""
        if self._meaning is None:
            self._meaning = self._explain(self._first or signal.SIGTERM)
        return self._meaning


def ignore_signals() -> None:
    """Let the signals pass: for the keeper of a side, which ends when the parent does."""
    for number in HEARD:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)


# --- who sent a signal ------------------------------------------------------------------------------------------------


def _open_signal_fd(numbers: Iterable[signal.Signals]) -> int:
    """Return a file descriptor that is readable while one of some blocked signals waits."""
    libc = ctypes.CDLL(None, use_errno=True)
    mask = ctypes.create_string_buffer(_SIGNAL_SET_BYTES)
    libc.sigemptyset(mask)
    for number in numbers:
        libc.sigaddset(mask, number)
    descriptor: int = libc.signalfd(-1, mask, os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "signalfd")
    return descriptor


def _find_fault(info: signal.struct_siginfo) -> str:
    """Return who sent a signal if that was a side, or may have been; empty if it was surely somebody else.

    Every descendant of the parent is a side's, whatever user it has become. One that ended before it could be looked at
    counts as one: whoever stops jobs for a living (a scheduler's daemon, the driver, a shell) outlives the sending. The
    kernel's own signals are a terminal's; others it sends for whoever asked it to, as for a file with another owner.
    """
    if info.si_code == _SI_KERNEL:
        return ""
    if info.si_code not in (_SI_USER, _SI_TKILL):
        return f"somebody who cannot be told: such a signal does not name its sender (si_code {info.si_code})"
    if info.si_pid == 0:
        return ""  # from outside this process namespace: a side is within it
    is_of_side = is_below(info.si_pid, os.getpid())
    if is_of_side is None and info.si_uid == 0 != os.getuid():
        return ""  # the administrator's: no side of another user becomes root
    if is_of_side is None:
        return f"process {info.si_pid}, which was gone at once, as one of a side would be"
    return f"process {info.si_pid} of the side" if is_of_side else ""


# --- what a signal means ----------------------------------------------------------------------------------------------


def explain_locally(number: signal.Signals) -> tuple[Ending, str]:
    """Return what a signal means without a scheduler: the transport warns of its time limit with SIGUSR2."""
    if number is signal.SIGUSR2:
        return Ending.TIME_LIMIT, "SIGUSR2: the job's time limit is near"
    return Ending.CANCELLED, f"{number.name}: somebody stopped the job"


def explain_slurm(number: signal.Signals, job: Mapping[str, str], *, left_s: float | None) -> tuple[Ending, str]:
    """Return what a signal means in a Slurm job.

    Args:
        number: The signal.
        job: Fields of ``scontrol show job``; empty if Slurm did not answer.
        left_s: Seconds until the job's time limit, None if unknown.
    """
    state = job.get("JobState", "")
    told = f"{number.name}, job state {state or 'unknown'}"
    # Slurm shows a job that it is ending as COMPLETING, whatever for: at its limit, or before it.
    is_over = state == "COMPLETING" and (job.get("Reason") == "TimeLimit" or (left_s is not None and left_s <= 0))
    if state in ("TIMEOUT", "DEADLINE") or is_over:
        return Ending.TIME_LIMIT, told
    if state == "PREEMPTED" or job.get("PreemptTime", "None") not in ("None", "N/A", ""):
        return Ending.PREEMPTED, told
    if state in ("CANCELLED", "COMPLETING"):
        return Ending.CANCELLED, told
    if left_s is not None and left_s <= _NEAR_END_S:
        return Ending.TIME_LIMIT, f"{told}, {left_s:.0f} s before the time limit"
    if number is signal.SIGUSR2:
        return Ending.PREEMPTED, told
    return Ending.CANCELLED, told


def _read_limit(text: str) -> float:
    """Return the seconds of a time limit as ``scontrol`` shows it: ``1-02:03:04``.

    Raises:
        ValueError: It is none, or is not understood.
    """
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)", text)
    if match is None:
        raise ValueError(text)
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _read_end(variable: str, job: Mapping[str, str]) -> float | None:
    """Return when a job's time limit ends, in seconds since the epoch; None if nobody says.

    Args:
        variable: What the job's environment says; empty before Slurm 23.02.
        job: Fields of ``scontrol``, with times in this host's local time. ``EndTime`` is that of the limit only while
            nobody ends the job.
    """
    from datetime import datetime  # noqa: PLC0415 - few jobs are told to stop

    if variable.isdecimal():
        return float(variable)
    with contextlib.suppress(ValueError, OverflowError):
        return datetime.fromisoformat(job.get("StartTime", "")).timestamp() + _read_limit(job.get("TimeLimit", ""))
    if job.get("JobState") == "COMPLETING":
        return None
    with contextlib.suppress(ValueError, OverflowError):
        return datetime.fromisoformat(job.get("EndTime", "")).timestamp()
    return None


def parse_scontrol(text: str) -> dict[str, str]:
    """Return the fields of one line of ``scontrol show job -o``."""
    return dict(re.findall(r"(\S+?)=(\S*)", text))


def ask_slurm(job_id: str) -> dict[str, str]:
    """Return what Slurm says of a job; nothing if it does not answer in time."""
    command = ["scontrol", "show", "job", "-o", job_id]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_SCONTROL_S)
    except (OSError, subprocess.SubprocessError):
        return {}
    return parse_scontrol(done.stdout)


def slurm_explainer(
    environment: Mapping[str, str],
    now: Callable[[], float],
    ask: Callable[[str], dict[str, str]] = ask_slurm,
) -> Explain:
    """Return what explains a signal within one Slurm job.

    Args:
        environment: The job's environment.
        now: Seconds since the epoch.
        ask: Returns Slurm's fields of a job.
    """

    def explain(number: signal.Signals) -> tuple[Ending, str]:
        job = ask(environment["SLURM_JOB_ID"])
        end_s = _read_end(environment.get("SLURM_JOB_END_TIME", ""), job)
        ending, told = explain_slurm(number, job, left_s=None if end_s is None else end_s - now())
        again = job.get("Restarts", "0") != environment.get("SLURM_RESTART_COUNT", "0")
        return ending, f"{told}, put back into the queue" if job and again else told

    return explain
