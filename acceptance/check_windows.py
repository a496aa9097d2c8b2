"""Checks of windows.csv."""

from __future__ import annotations

import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from acceptance import arithmetic
from acceptance.check_rows import RELATIVE
from acceptance.formats import WINDOWS
from acceptance.gates import Finding, Problem
from acceptance.plan import Plan
from acceptance.rows import AttemptRow, Measurement, WindowRow

_Key = tuple[str, int, str]
"""Slot, attempt, side."""

_Say = Callable[..., None]


def check(
    plan: Plan,
    attempts: Sequence[AttemptRow],
    counted: Mapping[str, tuple[Measurement, ...]],
    rows: Sequence[WindowRow],
) -> list[Problem]:
    """Check the windows of every counted pair, and that no other window is there.

    Args:
        plan: What is expected.
        attempts: All rows of attempts.csv.
        counted: The measurements of every slot's counted attempt.
        rows: All rows of windows.csv.
    """
    problems: list[Problem] = []

    def say(finding: Finding, reason: str, *slots: str) -> None:
        problems.append(Problem(file=WINDOWS.file, finding=finding, reason=reason, slots=slots))

    by_measurement = _group(plan, attempts, rows, say)
    for (name, attempt, side), group in by_measurement.items():
        numbers = [row.window for row in group]
        for window, count in Counter(numbers).items() if len(set(numbers)) < len(numbers) else ():
            if count > 1:
                say(Finding.INVALID, f"{name} attempt {attempt} {side} window {window}: {count} rows", name)
    for slot in [*plan.of_comparison("candidate"), *plan.of_comparison("control")]:
        if slot.slot not in counted:
            say(Finding.MISSING, f"{slot.slot}: no measurement counts, so no windows do", slot.slot)
        rows_of = {
            row: by_measurement.get((slot.slot, row.attempt, row.side), []) for row in counted.get(slot.slot, ())
        }
        for measured, own in rows_of.items():
            for finding, reason in _measurement_faults(plan, measured, own):
                say(finding, f"{slot.slot} attempt {measured.attempt} {measured.side}: {reason}", slot.slot)
        for reason in _pair_faults(rows_of):
            say(Finding.INVALID, f"{slot.slot}: {reason}", slot.slot)
    return problems


def _group(
    plan: Plan, attempts: Sequence[AttemptRow], rows: Sequence[WindowRow], say: _Say
) -> dict[_Key, list[WindowRow]]:
    """Group the windows by measurement and report those that belong to none."""
    sealed = {(row.slot, row.attempt): row.sealed for row in attempts}
    by_measurement: dict[_Key, list[WindowRow]] = defaultdict(list)
    # As they are collected, the rows of a measurement follow each other: one look at the plan for all of them.
    for (workload, comparison, repeat, pair, side, attempt), group in groupby(rows, key=_MEASUREMENT):
        slot = plan.measured.get((comparison, workload, repeat, pair))
        if slot is None or side not in slot.order:
            for row in group:
                say(Finding.INVALID, f"{_describe(row)}: no such measurement in the protocol")
        elif not sealed.get((slot.slot, attempt), False):
            for row in group:
                say(Finding.INVALID, f"{_describe(row)}: the attempt is not in attempts.csv, or not sealed", slot.slot)
        else:
            by_measurement[slot.slot, attempt, side].extend(group)
    return by_measurement


_MEASUREMENT = operator.attrgetter("workload", "comparison", "repeat", "pair", "side", "attempt")


def _describe(row: WindowRow) -> str:
    place = f"{row.workload} {row.comparison} repeat {row.repeat} pair {row.pair} {row.side}"
    return f"{place} attempt {row.attempt} window {row.window}"


def _measurement_faults(plan: Plan, row: Measurement, windows: Sequence[WindowRow]) -> list[tuple[Finding, str]]:
    """Return what is wrong with the windows of one measurement."""
    rules = plan.protocol.throughput
    if not windows:
        return [(Finding.MISSING, "no windows")]
    numbers, planned = {window.window for window in windows}, set(range(1, rules.windows + 1))
    reasons = [f"window {number} has no row" for number in sorted(planned - numbers)]
    reasons += [f"window {number}, and the protocol has {rules.windows}" for number in sorted(numbers - planned)]
    for window in windows:
        if not (window.seconds >= rules.window_s):
            reasons.append(f"window {window.window} is shorter than {rules.window_s} s")
        if window.updates != row.updates:
            reasons.append(f"window {window.window} has another number of updates than the pair's row")
        if not (window.skipped_updates < window.updates):
            reasons.append(f"every update of window {window.window} was skipped")
    if not reasons and sum(window.tokens for window in windows) != row.tokens:
        reasons.append("the windows' tokens do not sum to the pair's")
    seconds = arithmetic.add([window.seconds for window in windows])
    if not reasons and arithmetic.differs(seconds, row.train_s, RELATIVE):
        reasons.append("the windows' seconds do not sum to the pair's train_s")
    return [(Finding.INVALID, reason) for reason in reasons]


def _pair_faults(pair: Mapping[Measurement, Sequence[WindowRow]]) -> list[str]:
    """Return what is wrong with the windows of both sides taken together.

    A skipped update is cheaper than one that is applied: a side that skips more would be faster for doing less.
    """
    skipped = {row.side: sum(window.skipped_updates for window in own) for row, own in pair.items()}
    if not all(pair.values()) or len(set(skipped.values())) < 2:
        return []
    shown = ", ".join(f"{side} {count}" for side, count in skipped.items())
    return [f"the sides differ in skipped updates: {shown}"]
