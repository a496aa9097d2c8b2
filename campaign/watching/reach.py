"""Whether the candidate can still pass: not once a slot can no longer be completed, or once a gate was missed for good.

What an amendment makes void is measured again. Short of one, evidence that was judged stays as it is: a gate that the
last report found to be missed on all of its evidence is missed in every later report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from campaign.errors import EvidenceError, InfrastructureError
from campaign.files import parse_json, read_if_there, sha256_bytes
from campaign.paths import HomePaths
from campaign.submission.acts import History
from campaign.watching.gates import Gate
from campaign.watching.state import OUT_OF_REACH, SlotStatus

ATTEMPTS_GATE = "evidence/attempts.csv"
"""The gate that every slot without an attempt that counts turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why a pass can no longer be reached."""

    slot: str
    """The slot that can no longer be completed; empty where a report found a gate to be missed."""
    gates: tuple[str, ...]
    """The gates that cannot be passed because of it."""
    reason: str

    @property
    def text(self) -> str:
        """The same in one line."""
        return f"{self.slot or self.gates[0]}: {self.reason}"

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON value."""
        return {"slot": self.slot or None, "gates": list(self.gates), "reason": self.reason}


def _of_slots(slots: Mapping[str, SlotStatus], out_of_reach: tuple[Gate, ...]) -> list[Obstacle]:
    gates: dict[str, list[str]] = {}
    for one in out_of_reach:
        gates.setdefault(one.slot, []).append(one.gate)
    lost = []
    for name, status in slots.items():
        if status.state not in OUT_OF_REACH:
            continue
        last = status.attempts[-1]
        ending = last.ending.value if last.ending is not None else status.state.value
        said = f"{ending}: {last.reason}" if last.reason else ending
        reason = f"can no longer be completed, last {said}"
        lost.append(Obstacle(slot=name, gates=tuple(gates.get(name, [ATTEMPTS_GATE])), reason=reason))
    return lost


def parse_missed(verdict: Any) -> list[Obstacle]:
    """Return the gates that a verdict says are missed.

    Raises:
        EvidenceError: It is no verdict that acceptance writes.
    """
    try:
        gates = [(str(gate["id"]), gate["finding"], str(gate["reason"])) for gate in verdict["gates"]]
    except (KeyError, TypeError) as error:
        raise EvidenceError("its gates are not those of a verdict", where="verdict.json") from error
    return [
        Obstacle(slot="", gates=(name,), reason=f"missed in the last report{f': {reason}' if reason else ''}")
        for name, finding, reason in gates
        if finding == "missed"
    ]


def _read_missed(paths: HomePaths, candidate: str, history: History) -> list[Obstacle]:
    """Return what the last report on a candidate found missed; nothing where that does not hold for certain."""
    said = history.reported.get(candidate, "")
    amended_later = any(number > history.reported_at.get(candidate, 0) for number in history.amendments)
    if not said or amended_later:
        return []
    path = paths.evaluation(candidate).verdict
    try:
        data = read_if_there(path)
        if data is None or sha256_bytes(data) != said:
            return []
        return parse_missed(parse_json(data, where=str(path)))
    except (EvidenceError, InfrastructureError):
        return []  # the commands that judge say what is wrong with it


def read_obstacles(
    paths: HomePaths, candidate: str, history: History, slots: Mapping[str, SlotStatus], out_of_reach: tuple[Gate, ...]
) -> tuple[Obstacle, ...]:
    """Return why a pass can no longer be reached; nothing as long as it can.

    Args:
        paths: The home.
        candidate: Id of the candidate; empty for none.
        history: What the ledger says.
        slots: The state of the slots of the baseline and of the candidate.
        out_of_reach: The gates that need a slot which can no longer be completed.
    """
    return (*_of_slots(slots, out_of_reach), *_read_missed(paths, candidate, history))
