"""Which attempt at a slot counts.

Attempts are numbered from 1 without a gap and are at most as many as the protocol allows. The lowest-numbered completed
one counts, and only if every earlier one ended in a way that allows another: with an ending of ``again``, or, once per
slot, with one of ``again_once``. A slot that may still be tried is missing; any other slot without such an attempt is
invalid.

A run goes on in another segment where a pair or case starts anew, so that one whose segments are used up does not start
again from nothing: `time_limit` allows no other attempt. Neither does `cancelled`, since whoever stops a run may have
seen its curve. A run that nobody completed has no result, right or wrong, so that it is missing.

Attempts that an amendment made void are numbered like all others and count for nothing, neither as a result nor among
those that the protocol allows. An amendment makes the whole past of a slot void: a void attempt after one that is not
cannot be.
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
        rows: All rows of attempts.csv with this slot, in any order, void ones included.
        rules: The retry rule.
        is_run: Whether the slot is a training run.
    """
    if is_run:
        only_others = {Ending.TIME_LIMIT.value, Ending.WINDOW_SHORT.value, Ending.CANCELLED.value}
        rules = replace(rules, again=rules.again - only_others, again_once=rules.again_once - only_others)
    ordered = sorted(rows, key=lambda row: row.attempt)
    if not ordered:
        return _refused("no attempt", Finding.MISSING)
    if reason := _misnumbered(ordered):
        return _refused(reason)
    valid = [row for row in ordered if row.ending != Ending.VOID]
    if not valid:
        return _refused(f"all attempts so far ({len(ordered)}) are void, and no other was made", Finding.MISSING)
    if len(valid) > rules.max_attempts:
        return _refused(f"{len(valid)} attempts, and the protocol allows {rules.max_attempts}")
    found = _first_completed(valid, rules)
    if is_run and all(row.ending != Ending.COMPLETED for row in valid):
        return replace(found, finding=Finding.MISSING)
    return found


def _misnumbered(ordered: Sequence[AttemptRow]) -> str:
    """Return why attempts in order of their numbers cannot be all there are at a slot; empty if they can."""
    numbers = [row.attempt for row in ordered]
    if numbers != list(range(1, len(ordered) + 1)):
        return f"attempts {', '.join(str(number) for number in numbers)} are not numbered from 1 without a gap"
    is_void = [row.ending == Ending.VOID for row in ordered]
    if sorted(is_void, reverse=True) != is_void:
        return f"attempt {1 + is_void.index(False)} is not void, and a later one is"
    return ""


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
    return _refused(f"attempt {ordered[-1].attempt} ended {earlier[-1]} and no other was made", Finding.MISSING)


def _completed(row: AttemptRow, *, doubled: bool) -> Selection:
    if not row.sealed:
        return _refused(f"attempt {row.attempt} completed, but no receipt seals it")
    if not row.node or not row.device:
        return _refused(f"attempt {row.attempt} completed, but names no node or no device")
    return Selection(attempt=row, finding=Finding.MET, reason="", doubled=doubled)
