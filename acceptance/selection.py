"""Which attempt at a slot counts.

Attempts are numbered from 1 without a gap and are at most as many as the protocol allows. The lowest-numbered completed one
counts, and only if every earlier one ended in a way that allows another: with an ending of ``again``, or, once per slot,
with one of ``again_once``. A slot that may still be tried is missing; any other slot without such an attempt is invalid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


def _refused(reason: str, finding: Finding = Finding.INVALID) -> Selection:
    return Selection(attempt=None, finding=finding, reason=reason)


def select(rows: Sequence[AttemptRow], rules: Retries) -> Selection:
    """Choose among the attempts at one slot.

    Args:
        rows: All rows of attempts.csv with this slot, in any order.
        rules: The retry rule.
    """
    ordered = sorted(rows, key=lambda row: row.attempt)
    if not ordered:
        return _refused("no attempt", Finding.MISSING)
    if [row.attempt for row in ordered] != list(range(1, len(ordered) + 1)):
        return _refused(
            f"attempts {', '.join(str(row.attempt) for row in ordered)} are not numbered from 1 without a gap"
        )
    if len(ordered) > rules.max_attempts:
        return _refused(f"{len(ordered)} attempts, and the protocol allows {rules.max_attempts}")
    used_once = 0
    for row in ordered:
        if row.ending == Ending.COMPLETED:
            earlier = ordered[: row.attempt - 1]
            return _completed(row, doubled=any(other.ending == Ending.WINDOW_SHORT for other in earlier))
        used_once += row.ending in rules.again_once
        if row.ending not in rules.again | rules.again_once:
            return _refused(f"attempt {row.attempt} ended {row.ending}, which allows no other")
        if used_once > 1:
            return _refused(f"attempt {row.attempt} ended {row.ending}, which allows another only once")
    if len(ordered) == rules.max_attempts:
        return _refused(f"all {len(ordered)} attempts ended without a result, the last one {ordered[-1].ending}")
    return _refused(f"attempt {len(ordered)} ended {ordered[-1].ending} and no other was made", Finding.MISSING)


def _completed(row: AttemptRow, *, doubled: bool) -> Selection:
    if not row.sealed:
        return _refused(f"attempt {row.attempt} completed, but no receipt seals it")
    if not row.node or not row.device:
        return _refused(f"attempt {row.attempt} completed, but names no node or no device")
    return Selection(attempt=row, finding=Finding.MET, reason="", doubled=doubled)
