"""What runs now: which attempt, on which node, which of its sides, and for how long."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from campaign.documents import Slot, Start
from campaign.errors import EvidenceError
from campaign.keys import AttemptKey
from campaign.paths import AttemptPaths, HomePaths
from campaign.planning.calibration import CASE_KINDS
from campaign.watching.durations import duration
from campaign.watching.state import AttemptState, SlotStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """An attempt that has begun and has not ended."""

    slot: str
    attempt: int
    segment: int
    """Of a run; 0 for everything else."""
    allocation: str
    node: str
    side: str
    """What runs of it: one side of a measurement, all of a case; empty before the first one starts."""
    elapsed_s: float | None
    """Seconds since it began; None where its start cannot be read."""

    @property
    def text(self) -> str:
        """The same in one line."""
        key = AttemptKey(self.slot, self.attempt, self.segment).text
        since = f" for {duration(self.elapsed_s)}" if self.elapsed_s is not None else ""
        return f"{key}: {self.side or 'setting up'} on {self.node or 'a node that is not known'}{since}"

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON value; only a run's has a segment."""
        segment = {"segment": self.segment} if self.segment else {}
        elapsed_s = None if self.elapsed_s is None else round(self.elapsed_s, 1)
        return {
            "slot": self.slot,
            "attempt": self.attempt,
            **segment,
            "node": self.node,
            "side": self.side,
            "elapsed_s": elapsed_s,
        }


def _read_begun_at(folder: AttemptPaths) -> float | None:
    try:
        return Start.read(folder.start).at
    except (EvidenceError, OSError):
        return None


def _read_side(folder: AttemptPaths, slot: Slot) -> str:
    """Return the side that runs: the harness opens a side's log when it starts it."""
    begun = [side for side in slot.order if folder.side_log(side).exists()]
    if slot.kind in CASE_KINDS:
        return " and ".join(begun)
    return begun[-1] if begun else ""


def read_running(paths: HomePaths, slots: Iterable[SlotStatus], now: float) -> tuple[Running, ...]:
    """Read what runs now, in the order of the protocol.

    Args:
        paths: The home.
        slots: The state of the slots.
        now: Seconds since the epoch.
    """
    found = []
    for status in slots:
        for one in status.attempts:
            if one.state is not AttemptState.RUNNING:
                continue
            folder = paths.attempt(one.slot, one.attempt, one.segment)
            begun_at = _read_begun_at(folder)
            found.append(
                Running(
                    slot=one.slot,
                    attempt=one.attempt,
                    segment=one.segment,
                    allocation=one.allocation,
                    node=one.node,
                    side=_read_side(folder, status.slot),
                    # The clocks of two hosts may differ: nothing began in the future.
                    elapsed_s=max(0.0, now - begun_at) if begun_at is not None else None,
                )
            )
    return tuple(found)
