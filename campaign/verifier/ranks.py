"""Sides of several processes: as many as planned, where planned, the same of both sides, and on the same examples."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256

from . import names, tables
from .facts import Facts, Sealed, Slot
from .receipts import COMPLETED
from .strict import Node


def faults(facts: Facts, sealed: Sealed, slot: Slot) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the processes of a completed attempt.

    Args:
        facts: What has a receipt is known.
        sealed: The attempt.
        slot: Its slot.
    """
    where = names.receipt(sealed.folder)
    processes, nodes = topology(facts, slot.workload)
    sides = list(Node(sealed.receipt, where)["sides"].items())
    for side in sides:
        for what in _faults_of_side(side, processes, nodes):
            yield where, f"{side.key}: {what}"
    places = [_places(side) for side in sides]
    if any(own != places[0] for own in places[1:]):
        yield where, "the ranks of both sides are not on the same nodes, devices and processors"
    if slot.kind == "pilot":
        for what in _faults_of_examples(facts, sealed, slot, processes > 1):
            yield where, what


def topology(facts: Facts, workload: str) -> tuple[int, int]:
    """Return the processes and nodes that a workload asks for; one of each for a recipe."""
    fields = tables.workloads(facts).get(workload, {})
    node = Node({name: fields.get(name, 1) for name in ("processes", "nodes")}, names.PROTOCOL)
    return node["processes"].as_whole(1), node["nodes"].as_whole(1)


def _faults_of_side(side: Node, processes: int, nodes: int) -> Iterator[str]:
    said = side.get("topology")
    found = (said["processes"].as_whole(1), said["nodes"].as_whole(1)) if said is not None else (1, 1)
    if found != (processes, nodes):
        yield f"ran as {found[0]} processes on {found[1]} nodes, planned were {processes} on {nodes}"
        return
    ranks = list(side["ranks"].items()) if side.has("ranks") else []
    if len(ranks) != (processes if processes > 1 else 0):
        yield f"{len(ranks)} entries of {processes} processes"
        return
    per_node = processes // nodes
    for number, rank in enumerate(ranks):
        rank["rank"].must_be(number, "its place")
        rank["local_rank"].must_be(number % per_node, "its place")
        if rank["exit_code"].value != 0:
            yield f"completed, and rank {number} did not end with exit code 0"
    hosts = [rank["node"].as_text() for rank in ranks]
    groups = [set(hosts[start : start + per_node]) for start in range(0, len(hosts), per_node)]
    if any(len(group) != 1 for group in groups) or len(set(hosts)) != len(groups):
        yield f"its ranks ran on {', '.join(hosts)}, where {per_node} belong on each of {nodes} nodes"


def _places(side: Node) -> list[tuple[str, str, str]]:
    ranks = list(side["ranks"].items()) if side.has("ranks") else []
    return [(one["node"].as_text(), one["device"].as_text(), one["affinity"].as_text()) for one in ranks]


def _faults_of_examples(facts: Facts, sealed: Sealed, slot: Slot, is_several: bool) -> Iterator[str]:
    """Yield where a pilot does not name the examples that its ranks took, or took others than the baseline's did."""
    digests = _examples(sealed)
    if bool(digests) != is_several:
        yield f"names the examples of {len(digests)} steps, of {'several processes' if is_several else 'one process'}"
    if slot.side != "candidate" or not is_several:
        return
    own = _digest(digests)
    if own != sealed.planned.examples_sha256:
        yield f"its ranks took the examples {own}, planned were {sealed.planned.examples_sha256 or 'none'}"
    firsts = [one for one in facts.sealed.values() if _is_first(facts, one, slot.workload)]
    if own not in {_digest(_examples(one)) for one in firsts}:
        yield "no completed pilot of the baseline took the same examples"


def _is_first(facts: Facts, sealed: Sealed, workload: str) -> bool:
    slot = facts.slots[sealed.planned.slot]
    is_pilot = (slot.kind, slot.side, slot.workload) == ("pilot", "baseline", workload)
    return is_pilot and sealed.receipt["ending"] == COMPLETED


def _examples(sealed: Sealed) -> list[str]:
    (side,) = Node(sealed.receipt, names.receipt(sealed.folder))["sides"].items()
    return [item.as_digest() for item in side["examples"].items()] if side.has("examples") else []


def _digest(digests: list[str]) -> str:
    return sha256(json.dumps(digests, separators=(",", ":")).encode("ascii")).hexdigest()
