"""How far the runs have come: the updates that are safe, from the names of the checkpoints that are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from acceptance.formats import Ending
from campaign.documents import Protocol
from campaign.errors import EvidenceError
from campaign.paths import HomePaths
from campaign.submission.resume import read_saved_updates
from campaign.watching.observation import View
from campaign.watching.state import AttemptState, AttemptStatus, SlotState, SlotStatus

_MOST_CHECKPOINTS = 8
"""Most checkpoints of one segment that are listed for reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """How far one run has come that was ever submitted."""

    slot: str
    state: SlotState
    attempt: int
    segment: int
    """The last one."""
    max_segments: int
    update: int | None
    """Updates that are safe: behind its newest checkpoint, or all of them; None if that cannot be told."""
    updates: int
    """Of the whole run."""
    ending: str
    """Of the last segment; empty while it has none."""
    reason: str

    @property
    def text(self) -> str:
        """The same in one line."""
        reached = "?" if self.update is None else str(self.update)
        last = f"last {self.ending}" + (f": {self.reason}" if self.reason else "") if self.ending else self.reason
        where = f"segment {self.segment} of at most {self.max_segments}"
        attempt = f"attempt {self.attempt}, " if self.attempt > 1 else ""
        said = f"{self.slot}: {self.state.value}, update {reached} of {self.updates}, {attempt}{where}"
        return f"{said}, {last}" if last else said

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON value."""
        return {
            "slot": self.slot,
            "state": self.state.value,
            "attempt": self.attempt,
            "segment": self.segment,
            "max_segments": self.max_segments,
            "update": self.update,
            "updates": self.updates,
            "ending": self.ending or None,
            "reason": self.reason,
        }


def _read_segment_updates(paths: HomePaths, one: AttemptStatus) -> list[int] | None:
    """Return the updates behind each checkpoint of a segment; None if the folder cannot be looked at."""
    try:
        return read_saved_updates(paths.attempt(one.slot, one.attempt, one.segment))
    except EvidenceError:
        return None


def _read_safe(paths: HomePaths, segments: Sequence[AttemptStatus], updates: int) -> int | None:
    """Return the updates behind the newest checkpoint of the last segment that has any: the next one starts there.

    None where that cannot be told: a folder cannot be looked at, or the newest one is not the one that was sealed.
    """
    if any(one.ending is Ending.COMPLETED for one in segments):
        return updates
    for one in reversed(segments):
        saved = _read_segment_updates(paths, one)
        if saved is None:
            return None
        newest = max(saved, default=0)
        if one.receipt is not None and one.receipt.run is not None:
            sealed = max((each.update for each in one.receipt.run.checkpoints), default=0)
            if sealed != newest:
                return None
        if newest:
            return newest
    return 0


def read_runs(paths: HomePaths, protocol: Protocol, slots: Iterable[SlotStatus]) -> tuple[RunProgress, ...]:
    """Return how far every run has come that was ever submitted, in the order of the protocol.

    Args:
        paths: The home.
        protocol: The frozen protocol.
        slots: The state of the slots.
    """
    rules = protocol.convergence
    if rules is None:
        return ()
    updates = {recipe.name: recipe.updates for recipe in rules.recipes}
    found = []
    for status in slots:
        if status.slot.kind != "run" or not status.attempts:
            continue
        # The attempt that counts is told of, should there be a later one all the same.
        last = status.completed or status.attempts[-1]
        segments = [one for one in status.attempts if one.attempt == last.attempt]
        found.append(
            RunProgress(
                slot=status.name,
                state=status.state,
                attempt=last.attempt,
                segment=last.segment,
                max_segments=rules.max_segments,
                update=_read_safe(paths, segments, updates[status.slot.workload]),
                updates=updates[status.slot.workload],
                ending=last.ending.value if last.ending is not None else "",
                reason=last.reason,
            )
        )
    return tuple(found)


def segments_left(status: SlotStatus, max_segments: int) -> int:
    """Return how many segments an attempt at a run may still take, one that is under way included."""
    if status.state in (SlotState.PLANNED, SlotState.RETRYABLE) or not status.attempts:
        return max_segments
    last = status.attempts[-1]
    return max_segments - last.segment + (1 if last.state is not AttemptState.ENDED else 0)


def describe_segment(paths: HomePaths, view: View, one: AttemptStatus) -> dict[str, Any] | None:
    """Return what `show` says of one segment of a run beside what it says of every attempt; None if it is none."""
    if not one.segment:
        return None
    resume = view.history.attempt(one.key).resume
    sealed = one.receipt.run if one.receipt is not None else None
    sizes: Mapping[int, int] = {each.update: each.bytes for each in sealed.checkpoints} if sealed is not None else {}
    saved = _read_segment_updates(paths, one)
    return {
        "resumes": resume.to_json() if resume is not None else None,
        "from_update": resume.update if resume is not None else 0,
        "to_update": sealed.update if sealed is not None else None,
        "checkpoints": None
        if saved is None
        else [{"update": update, "bytes": sizes.get(update), "sealed": update in sizes} for update in saved],
        "train_s": sealed.train_s if sealed is not None else None,
        "evaluate_s": sealed.evaluate_s if sealed is not None else None,
        "save_s": sealed.save_s if sealed is not None else None,
        "load_s": sealed.load_s if sealed is not None else None,
    }


def segment_lines(segment: Mapping[str, Any]) -> list[str]:
    """Return the same for reading."""
    start = "from the beginning"
    if segment["resumes"] is not None:
        start = f"from update {segment['from_update']} (checkpoint of segment {segment['resumes']['segment']})"
    end = f"to update {segment['to_update']}" if segment["to_update"] is not None else "no receipt says how far"
    first = f"  run: {start}, {end}"
    if segment["train_s"] is not None:
        first += "; " + ", ".join(
            f"{name} {segment[f'{name}_s']:.3g} s" for name in ("train", "evaluate", "save", "load")
        )
    return [first, f"  checkpoints: {_checkpoints_text(segment['checkpoints'])}"]


def _checkpoints_text(saved: Sequence[Mapping[str, Any]] | None) -> str:
    if saved is None:
        return "cannot be looked at"
    if not saved:
        return "none"
    shown = saved[-_MOST_CHECKPOINTS:]
    listed = ", ".join(f"{one['update']}{'' if one['sealed'] else ' (not sealed)'}" for one in shown)
    more = f"{len(saved) - len(shown)} earlier ones, " if len(shown) < len(saved) else ""
    return f"after update {more}{listed}"
