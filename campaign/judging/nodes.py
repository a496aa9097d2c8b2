"""What became of the attempts on every node, and which nodes got no more jobs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from acceptance.formats import Ending
from campaign import documents
from campaign.keys import AttemptKey
from campaign.submission.acts import History


@dataclass(slots=True, kw_only=True)
class _Node:
    """What is counted of one node."""

    allocations: set[str] = field(default_factory=set)
    endings: Counter[str] = field(default_factory=Counter)


def node_summaries(
    attempts: Sequence[Mapping[str, Any]], history: History, entries: Iterable[documents.Entry]
) -> list[documents.NodeSummary]:
    """Return every node on which an attempt is known to have ended, or that submissions avoided, by name.

    Args:
        attempts: The attempts as provenance lists them, each of a run with its segments.
        history: What the ledger says.
        entries: The ledger.
    """
    found: dict[str, _Node] = {}
    for key, one in _each(attempts):
        node = one["node"] or _recorded(history, key)
        if node:
            record = found.setdefault(node, _Node())
            record.allocations.add(str(one["allocation"]))
            record.endings[str(one.get("ended") or one["ending"])] += 1
    excluded = _excluded(entries)
    return [
        documents.NodeSummary(
            node=node,
            allocations=len(one.allocations),
            completed=one.endings[Ending.COMPLETED.value],
            endings={name: number for name, number in sorted(one.endings.items()) if name != Ending.COMPLETED.value},
            excluded=excluded.get(node, (0, ""))[1],
            excluded_seq=excluded.get(node, (0, ""))[0],
        )
        for node in sorted({*found, *excluded})
        for one in (found.get(node, _Node()),)
    ]


def _each(attempts: Iterable[Mapping[str, Any]]) -> Iterator[tuple[AttemptKey, Mapping[str, Any]]]:
    """Yield the attempts, and of runs the segments."""
    for attempt in attempts:
        slot, number = str(attempt["slot"]), int(attempt["attempt"])
        for segment in attempt["segments"]:
            yield AttemptKey(slot, number, int(segment["segment"])), segment
        if not attempt["segments"]:
            yield AttemptKey(slot, number), attempt


def _recorded(history: History, key: AttemptKey) -> str:
    """Return the node that the ledger names for an attempt without a receipt; empty if it names none."""
    known = history.slots.get(key.slot, {}).get(key)
    return known.ended.node if known is not None and known.ended is not None else ""


def _excluded(entries: Iterable[documents.Entry]) -> dict[str, tuple[int, str]]:
    """Return the nodes that submissions avoided, with the ledger's number of the first one and its reason."""
    found: dict[str, tuple[int, str]] = {}
    for entry in entries:
        if entry.act == "intent":
            for node, reason in entry.data.get("excluded", {}).items():
                found.setdefault(str(node), (entry.seq, str(reason)))
    return found
