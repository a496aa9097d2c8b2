"""Which nodes get no more jobs of a campaign, since those that they had failed. Pure.

What counts follows from the ledger and the attempts alone: the allocations whose attempts ended on a node in a way that
a broken node explains, since the last one of which an attempt completed there. Failures that follow a campaign to every
node that it uses are no node's fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from acceptance.formats import Ending
from campaign.submission.acts import History
from campaign.watching.state import AttemptStatus

FAULTS = frozenset({Ending.NODE_FAIL, Ending.LOST, Ending.NO_SPACE, Ending.HARNESS_ERROR})
"""Endings that a broken node explains, and no side."""
_QUOTA = "Disk quota exceeded"
EXCLUDE_AFTER = 2
"""Allocations that have to fail where a campaign's configuration does not say, as in homes of earlier builds."""
HOME_IS_FULL = "the disk of the home is full"
"""How the harness ends the reason of ``no_space`` where that is so, which is no node's fault."""
_MOST_NAMED = 3
_NAMED = re.compile(r"node (?P<node>[^\s:]+): ")
"""How the harness begins a reason that concerns one of several nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What is known of where the jobs of a campaign may run."""

    nodes: frozenset[str] | None = None
    """Nodes that are up and may be used; None where that is not known, or settled by the configuration."""
    unknown: str = ""
    """Why it is not known."""
    limit_minutes: int | None = None
    """The longest that a job may ask for; None for no limit, or where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """Which nodes get no more jobs."""

    nodes: Mapping[str, str] = field(default_factory=dict)
    """Name of the node to the reason."""
    note: str = ""
    """Why nodes that failed get jobs all the same; empty if there are none."""


@dataclass(slots=True, kw_only=True)
class _Record:
    """What one node did, by the numbers of allocations."""

    failed: dict[int, list[AttemptStatus]] = field(default_factory=dict)
    completed: int = -1
    """The last allocation of which an attempt completed there."""

    def faults(self) -> dict[int, list[AttemptStatus]]:
        """Return what failed since then; of the same allocation, too: a node may die in the middle."""
        return {number: own for number, own in self.failed.items() if number >= self.completed}


def find_failing(history: History, attempts: Iterable[AttemptStatus], after: int) -> Exclusion:
    """Return the nodes on which so many allocations failed, with nothing completed there since.

    Args:
        history: What the ledger says: the order of the allocations is that in which they were intended.
        attempts: Every attempt and segment; one whose node is not known, that had several, or that is void, does not
            count.
        after: How many allocations have to fail; 0 for a rule that is switched off.
    """
    if after == 0:
        return Exclusion()
    records = _records(history, attempts)
    failing = {node: found for node, one in records.items() if len(found := one.faults()) >= after}
    healthy = [node for node, one in records.items() if not one.faults()]
    if len(failing) > 1 and not healthy:
        names = _listed(sorted(failing))
        return Exclusion(note=f"attempts failed on every node that was used ({names}): that is no node's fault")
    names_of = list(history.allocations)
    return Exclusion(nodes={node: _reason(failing[node], names_of) for node in sorted(failing)})


def exclude(failing: Exclusion, place: Place, needed: int) -> Exclusion:
    """Return which of the failing nodes get no more jobs: none where too few others would be left.

    Args:
        failing: From `find_failing`.
        place: Where jobs may run.
        needed: Nodes that one allocation needs at most.
    """
    if not failing.nodes:
        return failing
    names = _listed(list(failing.nodes))
    if place.nodes is None:
        return Exclusion(note=f"{names} failed repeatedly, and gets jobs all the same: {place.unknown}")
    left = place.nodes - failing.nodes.keys()
    if len(left) < needed:
        why = f"{len(left)} of {len(place.nodes)} usable nodes would be left, and an allocation needs {needed}"
        return Exclusion(note=f"{names} failed repeatedly, and gets jobs all the same: {why}")
    return failing


def joined(configured: str | None, nodes: Iterable[str]) -> str:
    """Return the nodes that a job shall avoid, as Slurm takes them: those of the configuration, and others."""
    return ",".join([*([configured] if configured else []), *sorted(nodes)])


def excluded_so_far(history: History) -> dict[str, str]:
    """Return every node that a submission avoided because it had failed, with the first reason, as recorded."""
    found: dict[str, str] = {}
    for submission in history.submissions.values():
        for node, reason in submission.intent.excluded.items():
            found.setdefault(node, reason)
    return found


def _records(history: History, attempts: Iterable[AttemptStatus]) -> dict[str, _Record]:
    order = {name: number for number, name in enumerate(history.allocations)}
    records: dict[str, _Record] = {}
    for one in attempts:
        if one.ending is None or history.is_void(one.slot, one.attempt):
            continue
        number = order[one.allocation]
        for node in _nodes_of(one):
            record = records.setdefault(node, _Record())
            if one.ending is Ending.COMPLETED:
                record.completed = max(record.completed, number)
            elif _is_fault(one):
                record.failed.setdefault(number, []).append(one)
    return records


def _is_fault(attempt: AttemptStatus) -> bool:
    """Return whether a broken node explains how an attempt ended. All nodes share a home that is full, or a quota."""
    is_homes = attempt.ending is Ending.NO_SPACE and (HOME_IS_FULL in attempt.reason or _QUOTA in attempt.reason)
    return attempt.ending in FAULTS and not is_homes


def _nodes_of(attempt: AttemptStatus) -> list[str]:
    """Return the nodes for which an attempt counts: all that it used if it completed, else the one that failed.

    Of several nodes that is the one with which the reason begins; none where it names none.
    """
    sides = attempt.receipt.sides if attempt.receipt is not None else ()
    used = list(dict.fromkeys(rank.node for side in sides for rank in side.ranks)) or [attempt.node]
    named = _NAMED.match(attempt.reason)
    if attempt.ending is not Ending.COMPLETED and (named or len(used) > 1):
        used = [named["node"]] if named else []
    return [node for node in used if _is_one_node(node)]


def _is_one_node(name: str) -> bool:
    return bool(name) and not set(name) & set("[],")


def _reason(faults: Mapping[int, Sequence[AttemptStatus]], names: Sequence[str]) -> str:
    """Return what happened on a node, in one sentence."""
    parts = []
    for number in sorted(faults)[:_MOST_NAMED]:
        endings = dict.fromkeys(one.ending.value for one in faults[number] if one.ending is not None)
        parts.append(f"{names[number]} {'/'.join(endings)}")
    more = f" and {len(faults) - _MOST_NAMED} more" if len(faults) > _MOST_NAMED else ""
    return f"{len(faults)} allocations failed there and nothing completed since: {', '.join(parts)}{more}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"
