"""Measuring one side once: warm-up, then windows, or the calibration of a pilot."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeAlias

from ..processes.sidelog import SideLog
from ..processes.signals import Signals
from ..processes.steps import alone
from .blocks import Block, Measurement, calibrate, check_loss, check_sums, check_window
from .session import Session, Setting, SideRecord, running

if TYPE_CHECKING:
    from .crew import Crew  # only where a side has several processes

Recorder = Callable[[Session], bytes]
"""Records the canonical inputs of a workload from a side that has just been built, or has just warmed up."""
Look: TypeAlias = Callable[[], dict[str, Any]]
"""Looks at the conditions under which a side is measured."""


def measure_side(
    running_side: AbstractContextManager[Session | Crew],
    record: SideRecord,
    signals: Signals,
    *,
    updates: int,
    look: Look,
) -> None:
    """Measure one side and fill its record.

    Args:
        running_side: Starts the side's processes, and ends them.
        record: Filled as far as the run goes, whatever happens.
        signals: Ends the run.
        updates: Updates per window.
        look: Called outside of all clocks, before the side is built and once its windows are done.

    Raises:
        EndedError: The attempt ends here.
        InterruptedAttemptError: A signal came.
    """
    with signals.watching(), running_side as session:
        alone(session.start())
        record.before = look()
        began_s = alone(session.build())
        warm, warm_s = alone(session.warm_up())
        windows = _windows(session, updates, record.windows)
        result = alone(session.result())
        record.after, record.affinity = look(), session.affinity()
        check_loss(result.loss)
        record.measurement = Measurement(
            warmup_updates=warm.updates,
            windows=windows,
            startup_s=warm_s - began_s,
            elapsed_s=result.answered_s - began_s,
            peak_allocated_bytes=result.peaks[0],
            peak_reserved_bytes=result.peaks[1],
        )
        alone(session.leave())


def run_pilot(
    setting: Setting, record: SideRecord, log: SideLog, signals: Signals, *, recorder: Recorder | None = None
) -> None:
    """Calibrate one side, prove that its adapter is complete, and fill its record.

    Args:
        setting: What to run.
        record: Filled as far as the run goes, whatever happens.
        log: Takes what the side prints.
        signals: Ends the run.
        recorder: Records the canonical inputs; None where nobody needs them.

    Raises:
        EndedError: The attempt ends here.
        InterruptedAttemptError: A signal came.
    """
    numerical = setting.protocol.numerical
    with signals.watching(), running(setting, record, log, signals) as session:
        alone(session.start())
        began_s = alone(session.build())
        built_s = time.monotonic()
        if numerical is not None:
            needed = numerical.needed_methods(record.side)
            session.refuse_missing([name for name in needed if name not in record.offers])
            if recorder is not None and numerical.moments == "fresh":
                record.inputs = recorder(session)
        recorded_s = time.monotonic()
        _, warm_s = alone(session.warm_up())
        if numerical is not None and recorder is not None and numerical.moments == "warm":
            record.inputs = recorder(session)
        # What recording takes is no part of what a measurement takes to start.
        startup_s = (warm_s - recorded_s) + (built_s - began_s)
        record.calibration = calibrate(lambda updates: _block(session, updates), setting.protocol.rules, startup_s)
        check_loss(alone(session.result()).loss)
        alone(session.leave())


def run_ranked_pilot(
    running_side: AbstractContextManager[Crew],
    record: SideRecord,
    signals: Signals,
    *,
    needed: Sequence[str],
    ask: Callable[[Crew], None],
) -> None:
    """Calibrate a side of several processes, prove that its adapter is complete, and fill its record.

    Args:
        running_side: Starts the side's processes, and ends them.
        record: Filled as far as the run goes, whatever happens.
        signals: Ends the run.
        needed: Methods that the adapter must offer beside the required ones.
        ask: Asks for more, once everything that has a clock is over.

    Raises:
        EndedError: The attempt ends here.
        InterruptedAttemptError: A signal came.
    """
    with signals.watching(), running_side as crew:
        alone(crew.start())
        began_s = alone(crew.build())
        crew.refuse_missing([name for name in needed if name not in record.offers])
        _, warm_s = alone(crew.warm_up())
        record.calibration = calibrate(
            lambda updates: _block(crew, updates), crew.setting.protocol.rules, warm_s - began_s
        )
        alone(crew.result())
        ask(crew)
        alone(crew.leave())


def _block(session: Session | Crew, updates: int) -> Block:
    return alone(session.updates(updates, f"block of {updates} updates"))[0]


def _windows(session: Session | Crew, updates: int, found: list[Block]) -> tuple[Block, ...]:
    """Measure all windows; what is found so far stands in a list, whatever happens to the rest."""
    rules = session.setting.protocol.rules
    for number in range(1, rules.windows + 1):
        block, _ = alone(session.updates(updates, f"window {number}"))
        found.append(block)
        check_window(block, number, rules)
    check_sums(found)
    return tuple(found)
