"""Measuring one side once: warm-up, then windows, or the calibration of a pilot."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..processes.sidelog import SideLog
from ..processes.signals import Signals
from ..processes.steps import alone
from .blocks import Block, Measurement, calibrate, check_loss, check_sums, check_window
from .session import Session, Setting, SideRecord, running

Recorder = Callable[[Session], bytes]
"""Records the canonical inputs of a workload from a side that has just been built, or has just warmed up."""


def measure_side(setting: Setting, record: SideRecord, log: SideLog, signals: Signals, *, updates: int) -> None:
    """Measure one side and fill its record.

    Args:
        setting: What to run.
        record: Filled as far as the run goes, whatever happens.
        log: Takes what the side prints.
        signals: Ends the run.
        updates: Updates per window.

    Raises:
        EndedError: The attempt ends here.
        InterruptedAttemptError: A signal came.
    """
    with signals.watching(), running(setting, record, log, signals) as session:
        alone(session.start())
        began_s = alone(session.build())
        warm, warm_s = alone(session.warm_up())
        windows = _windows(session, updates)
        result = alone(session.result())
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


def _block(session: Session, updates: int) -> Block:
    return alone(session.updates(updates, f"block of {updates} updates"))[0]


def _windows(session: Session, updates: int) -> tuple[Block, ...]:
    rules = session.setting.protocol.rules
    found: list[Block] = []
    for number in range(1, rules.windows + 1):
        block, _ = alone(session.updates(updates, f"window {number}"))
        check_window(block, number, rules)
        found.append(block)
    check_sums(found)
    return tuple(found)
