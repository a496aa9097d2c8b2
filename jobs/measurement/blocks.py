"""The arithmetic of a measurement: what a block of updates must look like, and what follows from the blocks. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..common.endings import EndedError, Ending
from ..common.plan import Rules
from ..common.strict import MOST_COUNT, Fields

_MOST_PILOT_UPDATES = 1 << 30
_MOST_UPDATES = 4 * _MOST_PILOT_UPDATES
"""No bound: more than all blocks up to the largest one have."""
_THREADS_FACTOR = 1.1
_THREADS_SLACK_S = 1.0
"""What libraries do beside the threads that they were told to use, most of it while they are imported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A stretch of updates that ended with ``sync``."""

    updates: int
    microbatches: int
    skipped: int
    tokens: int
    seconds: float
    """On the parent's clock."""
    claimed_s: float
    """On the worker's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One side of a pair, or a solo measurement."""

    warmup_updates: int
    windows: tuple[Block, ...]
    startup_s: float
    elapsed_s: float
    peak_allocated_bytes: int
    peak_reserved_bytes: int

    @property
    def tokens(self) -> int:
        """Targets in all windows."""
        return sum(window.tokens for window in self.windows)

    @property
    def train_s(self) -> float:
        """The sum of the windows, in seconds."""
        return math.fsum(window.seconds for window in self.windows)

    @property
    def tokens_per_s(self) -> float:
        """``tokens / train_s``, in double arithmetic."""
        return self.tokens / self.train_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What a pilot found."""

    updates_per_s: float
    tokens_per_update: float
    startup_s: float
    updates: int
    evaluate_s: float | None = None
    """One evaluation of the whole validation split; None unless it is the pilot of a recipe."""
    checkpoint_bytes: int | None = None
    """One checkpoint; None as before."""
    save_s: float | None = None
    """Saving it, the copy into the home included; None as before."""


def check_clock(claimed_s: float, seconds: float, rules: Rules, what: str, *, steps: int = 1) -> None:
    """Refuse a worker's seconds that are not the parent's.

    Args:
        claimed_s: The worker's.
        seconds: The parent's.
        rules: The rules.
        what: What took so long.
        steps: How many steps that is the sum of: each may be held up by as much as one alone.

    Raises:
        EndedError: They differ by more than the rules allow.
    """
    tolerance_s = max(steps * rules.clock_absolute_s, rules.clock_relative * seconds)
    if not abs(claimed_s - seconds) <= tolerance_s:
        text = f"the side says {claimed_s:.6f} s, the parent's clock {seconds:.6f} s; allowed is {tolerance_s:.6f} s"
        raise EndedError(Ending.CLOCK_DISAGREEMENT, f"{what}: {text}")


def check_block(fields: Fields, asked: int, seconds: float, rules: Rules, what: str, *, is_timed: bool = True) -> Block:
    """Check a worker's answer to a command for updates.

    Args:
        fields: The answer.
        asked: How many updates were asked for.
        seconds: The parent's clock around the command.
        rules: The rules.
        what: What the updates were for.
        is_timed: Whether the two clocks must agree: not where the parent waited for something else meanwhile.

    Raises:
        ValueError: The answer is malformed.
        EndedError: It disagrees with what was asked, or with the parent's clock.
    """
    block = Block(
        updates=fields.count("updates"),
        microbatches=fields.count("microbatches"),
        skipped=fields.count("skipped"),
        tokens=fields.count("tokens"),
        seconds=seconds,
        claimed_s=fields.number("seconds"),
    )
    fields.done()
    problem = _count_problem(block, asked)
    if problem:
        raise EndedError(Ending.COUNT_DISAGREEMENT, f"{what}: {problem}")
    if is_timed:
        check_clock(block.claimed_s, seconds, rules, what)
    return block


def _count_problem(block: Block, asked: int) -> str:
    if block.updates != asked:
        return f"{block.updates} updates were done, {asked} were asked for"
    if asked and block.microbatches < 1:
        return f"{asked} updates without a microbatch"
    if block.skipped > block.updates:
        return f"{block.skipped} of {block.updates} updates skipped"
    if asked and block.tokens < 1:
        return f"{asked} updates without a token"
    return ""


def check_window(block: Block, number: int, rules: Rules) -> None:
    """Refuse a window that is too short to be scored.

    Raises:
        EndedError: It is.
    """
    if not block.seconds >= rules.window_s:
        text = f"window {number} lasted {block.seconds:.6f} s with {block.updates} updates, at least {rules.window_s} s"
        raise EndedError(Ending.WINDOW_SHORT, f"{text} are asked for")


def check_sums(windows: Sequence[Block]) -> None:
    """Refuse windows whose sums no table can hold.

    Raises:
        EndedError: They are such.
    """
    for name in ("tokens", "microbatches"):
        if sum(getattr(window, name) for window in windows) > MOST_COUNT:
            raise EndedError(Ending.RUBBISH, f"the {name} of all windows are above {MOST_COUNT}")


def check_processor_time(cpu_s: float, wall_s: float, threads: int, name: str = "") -> None:
    """Refuse a side that computed on more processors than the protocol gives it.

    Args:
        cpu_s: Processor time of all its processes.
        wall_s: How long they lived.
        threads: The protocol's number of threads.
        name: Stands before the reason, where it would not be clear whose it is.

    Raises:
        EndedError: It did.
    """
    most_s = threads * wall_s * _THREADS_FACTOR + _THREADS_SLACK_S
    if not cpu_s <= most_s:
        text = f"{cpu_s:.3f} s of processor time within {wall_s:.3f} s; {threads} threads may spend {most_s:.3f} s"
        raise EndedError(Ending.INTERFERENCE, f"{name}: {text}" if name else text)


def check_loss(text: str | None) -> None:
    """Refuse a loss that is not finite; None is that of an adapter which offers none.

    Raises:
        ValueError: The text is no number.
        EndedError: It is not finite.
    """
    if text is not None and not math.isfinite(float(text)):
        raise EndedError(Ending.NON_FINITE, f"the loss of the last update is {text}")


def calibrate(run: Callable[[int], Block], rules: Rules, startup_s: float, *, most: int = _MOST_UPDATES) -> Calibration:
    """Double the number of updates until a block lasts long enough to give a rate.

    Args:
        run: Runs a block of so many updates.
        rules: The rules.
        startup_s: Seconds from set-up to the end of the warm-up.
        most: Updates that may be made altogether; the rate is that of the last block before there would be more.

    Raises:
        EndedError: No number of updates takes any time.
    """
    updates, left = 1, most - 1
    while not (block := run(updates)).seconds >= rules.pilot_s and left >= 2 * updates:
        left -= 2 * updates
        if updates >= _MOST_PILOT_UPDATES:
            text = f"updates() returns without working: {updates} updates took {block.seconds:.6f} s"
            raise EndedError(Ending.RUBBISH, text)
        updates *= 2
    return Calibration(
        updates_per_s=block.updates / block.seconds,
        tokens_per_update=block.tokens / block.updates,
        startup_s=startup_s,
        updates=block.updates,
    )
