"""Which attempt at a slot counts.

Attempts are numbered from 1 without a gap and are at most as many as the protocol allows. The lowest-numbered completed
one counts, and only if every earlier one ended in a way that allows another: with an ending of ``again``, or, once per
slot, with one of ``again_once``. A slot that may still be tried is missing; any other slot without such an attempt is
invalid.

A run goes on in another segment where a pair or case starts anew, so that one whose segments are used up does not start
again from nothing: `time_limit` allows no other attempt. Neither does `cancelled`, since whoever stops a run may have
seen its curve. A run that nobody completed has no result, right or wrong, so that it is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from acceptance.formats import Ending
from acceptance.gates import Finding
from acceptance.protocol import Retries
from acceptance.rows import AttemptRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The attempt that counts for one slot, or why there is none."""

    attempt: AttemptRow | None
    finding: Finding
    """MET if an attempt counts, else MISSING or INVALID."""
    reason: str
    doubled: bool = False
    """Whether an earlier attempt ended ``window_short``: the counted one measured twice the updates."""


NOTHING = Selection(attempt=None, finding=Finding.INVALID, reason="not known")
"""What stands for a selection that could not be made."""


def _refused(reason: str, finding: Finding = Finding.INVALID) -> Selection:
    return Selection(attempt=None, finding=finding, reason=reason)


def select(rows: Sequence[AttemptRow], rules: Retries, *, is_run: bool = False) -> Selection:
    """Choose among the attempts at one slot.

    Args:
        rows: All rows of attempts.csv with this slot, in any order.
        rules: The retry rule.
        is_run: Whether the slot is a training run.
    """
    if is_run:
        only_others = {Ending.TIME_LIMIT.value, Ending.WINDOW_SHORT.value, Ending.CANCELLED.value}
        rules = replace(rules, again=rules.again - only_others, again_once=rules.again_once - only_others)
    ordered = sorted(rows, key=lambda row: row.attempt)
    numbers = [row.attempt for row in ordered]
    if not ordered:
        return _refused("no attempt", Finding.MISSING)
    if numbers != list(range(1, len(ordered) + 1)):
        listed = ", ".join(str(number) for number in numbers)
        return _refused(f"attempts {listed} are not numbered from 1 without a gap")
    if len(ordered) > rules.max_attempts:
        return _refused(f"{len(ordered)} attempts, and the protocol allows {rules.max_attempts}")
    found = _first_completed(ordered, rules)
    if is_run and all(row.ending != Ending.COMPLETED for row in ordered):
        return replace(found, finding=Finding.MISSING)
    return found


def _first_completed(ordered: Sequence[AttemptRow], rules: Retries) -> Selection:
    earlier: list[str] = []
    for row in ordered:
        if row.ending == Ending.COMPLETED:
            return _completed(row, doubled=Ending.WINDOW_SHORT in earlier)
        if row.ending in rules.again_once and row.ending in earlier:
            return _refused(f"attempt {row.attempt} ended {row.ending}, which allows another only once")
        if row.ending not in rules.again | rules.again_once:
            return _refused(f"attempt {row.attempt} ended {row.ending}, which allows no other")
        earlier.append(row.ending)
    if len(ordered) == rules.max_attempts:
        return _refused(f"all {len(ordered)} attempts ended without a result, the last one {earlier[-1]}")
    return _refused(f"attempt {len(ordered)} ended {earlier[-1]} and no other was made", Finding.MISSING)


def _completed(row: AttemptRow, *, doubled: bool) -> Selection:
    if not row.sealed:
        return _refused(f"attempt {row.attempt} completed, but no receipt seals it")
    if not row.node or not row.device:
        return _refused(f"attempt {row.attempt} completed, but names no node or no device")
    return Selection(attempt=row, finding=Finding.MET, reason="", doubled=doubled)
