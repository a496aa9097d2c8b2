"""Being told to stop: the parent alone hears it, and says what it means for the attempt."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
from collections.abc import Callable, Mapping
from types import FrameType

from .endings import Ending, InterruptedAttemptError

HEARD = (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT, signal.SIGHUP)
_NEAR_END_S = 180.0
"""A warning signal comes at most so long before the end of the time limit (submitit asks for 90 s)."""
_SCONTROL_S = 5.0
"""Slurm kills 30 s after SIGTERM by default; the receipt must be sealed by then."""


class Signals:
    """Hears the signals of `HEARD`. The first one counts; it is never forgotten."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._explain: Callable[[signal.Signals], tuple[Ending, str]] = explain_locally
        self._meaning: tuple[Ending, str] | None = None
        self.fd, self._write_fd = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write_fd, False)

    def install(self, explain: Callable[[signal.Signals], tuple[Ending, str]]) -> None:
        """Take the signals over.

        Args:
            explain: What a signal means: an ending and its reason.
        """
        self._explain = explain
        # A byte arrives on `fd` with each signal, so that a wait for anything else ends at once.
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        for number in HEARD:
            signal.signal(number, self._hear)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if self.received is None:
            self.received = signal.Signals(number)

    def check(self) -> None:
        """Raise if a signal was heard.

        Raises:
            InterruptedAttemptError: One was.
        """
        if self.received is not None:
            raise InterruptedAttemptError(self.received.name)

    def wait(self, seconds: float) -> None:
        """Wait for a signal, but not longer."""
        if self.received is None:
            select.select([self.fd], [], [], seconds)

    def meaning(self) -> tuple[Ending, str]:
        """Return what the signal means for an attempt; may ask the scheduler, once."""
        if self._meaning is None:
            self._meaning = self._explain(self.received or signal.SIGTERM)
        return self._meaning


def ignore_signals() -> None:
    """Let the signals pass: for the keeper of a side, which ends when the parent does."""
    signal.set_wakeup_fd(-1)
    for number in HEARD:
        signal.signal(number, signal.SIG_IGN)


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
    if state in ("TIMEOUT", "DEADLINE"):
        return Ending.TIME_LIMIT, told
    if state == "PREEMPTED" or job.get("PreemptTime", "None") not in ("None", "N/A", ""):
        return Ending.PREEMPTED, told
    if state == "CANCELLED":
        return Ending.CANCELLED, told
    if left_s is not None and left_s <= _NEAR_END_S:
        return Ending.TIME_LIMIT, f"{told}, {left_s:.0f} s before the time limit"
    if number is signal.SIGUSR2:
        return Ending.PREEMPTED, told
    return Ending.CANCELLED, told


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
) -> Callable[[signal.Signals], tuple[Ending, str]]:
    """Return what explains a signal within one Slurm job.

    Args:
        environment: The job's environment.
        now: Seconds since the epoch.
        ask: Returns Slurm's fields of a job.
    """

    def explain(number: signal.Signals) -> tuple[Ending, str]:
        end = environment.get("SLURM_JOB_END_TIME", "")
        left_s = float(end) - now() if end.isdecimal() else None
        return explain_slurm(number, ask(environment["SLURM_JOB_ID"]), left_s=left_s)

    return explain
