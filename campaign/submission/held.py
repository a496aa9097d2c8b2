"""What a waiting submission leaves to a person: what somebody cancelled meanwhile, and runs that get nowhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from campaign.errors import EvidenceError
from campaign.paths import HomePaths
from campaign.submission.acts import History
from campaign.submission.resume import read_saved_updates
from campaign.watching.state import MISSING, AttemptStatus, SlotStatus

MOST_FRUITLESS = 2
"""Segments of a run in a row, all submitted by one wait, after which it stops if none of them left a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """What there was when a wait began."""

    allocations: frozenset[str]
    cancelled: frozenset[str]
    """Those of them whose end somebody had asked for already: whoever waits then wants to go on."""


def since(history: History) -> Since:
    """Return what there is now."""
    return Since(
        allocations=frozenset(history.allocations),
        cancelled=frozenset(name for name, one in history.allocations.items() if one.cancelled is not None),
    )


def find_held(paths: HomePaths, history: History, states: Mapping[str, SlotStatus], began: Since) -> dict[str, str]:
    """Return the slots that could be submitted and that the wait does not go on with by itself, and why.

    Args:
        paths: The home.
        history: What the ledger says.
        states: The state of every slot, by name.
        began: What there was when the wait began.
    """
    held = {}
    for name, status in states.items():
        if status.state not in MISSING or not status.attempts:
            continue
        if why := _was_cancelled(history, status.attempts[-1], began) or _gets_nowhere(paths, status, began):
            held[name] = why
    return held


def _was_cancelled(history: History, last: AttemptStatus, began: Since) -> str:
    cancelled = history.allocations[last.allocation].cancelled
    if cancelled is None or last.allocation in began.cancelled:
        return ""
    return f"cancelled while this command waited ({cancelled.reason}); to go on with it: campaign submit"


def _gets_nowhere(paths: HomePaths, status: SlotStatus, began: Since) -> str:
    tried = [one for one in status.attempts if one.allocation not in began.allocations][-MOST_FRUITLESS:]
    if status.slot.kind != "run" or len(tried) < MOST_FRUITLESS or not _is_fruitless(paths, tried):
        return ""
    last = tried[-1]
    said = f"{last.ending.value if last.ending is not None else last.state.value}: {last.reason or 'no reason given'}"
    return (
        f"its last {len(tried)} segments left no checkpoint, the last one ended {said}; "
        "mend the cause, then: campaign submit"
    )


def _is_fruitless(paths: HomePaths, tried: Sequence[AttemptStatus]) -> bool:
    try:
        return not any(read_saved_updates(paths.attempt(one.slot, one.attempt, one.segment)) for one in tried)
    except EvidenceError:
        return False  # submitting says what is wrong with the folder
