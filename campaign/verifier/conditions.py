"""Under what conditions a receipt says that its sides were measured: what they were given must have been the same.

The harness ended what did not keep to that. Receipts of earlier releases say nothing of it, and are asked nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from . import names
from .facts import Sealed
from .strict import Node

MEASURED = ("solo", "pair", "control_pair")
_CGROUP = ("cpus", "mems", "cpu_quota", "cpu_weight", "memory_bytes", "swap_bytes")
_GPU = ("driver", "power_limit_mw", "ecc")
_UNKNOWN = "unknown"
Look = tuple[str, dict[str, str]]
"""Which one it is, in words, and what was given by name."""


def faults(sealed: Sealed) -> Iterator[tuple[str, str]]:
    """Yield what two sides, or two moments of one, do not have in common, with the place.

    Args:
        sealed: A completed measurement.

    Raises:
        EvidenceError: The receipt does not say what it must.
    """
    where = names.receipt(sealed.folder)
    sides = list(Node(sealed.receipt, where)["sides"].items())
    told = [side for side in sides if side.get("conditions") is not None]
    if not told:
        return
    if len(told) != len(sides):
        yield where, f"{len(told)} of {len(sides)} sides say under what conditions they were measured"
        return
    looks = [look for side in told for look in _looks(side)]
    if len(looks) != 2 * len(told):
        yield where, "a completed side does not say under what conditions its windows ended"
    first, expected = looks[0]
    for when, found in looks[1:]:
        for name in sorted({*expected, *found}):
            before, now = expected.get(name, "absent"), found.get(name, "absent")
            if before != now:
                yield where, f"conditions changed: {name} was {before} {first}, {now} {when}"
    yield from _faults_of_start(sealed, expected)
    for side in told:
        for what in _faults_of_processors(side):
            yield where, f"{side.key}: {what}"


def _faults_of_processors(side: Node) -> Iterator[str]:
    """Yield which processes of a side ended their windows on processors that the side was not given."""
    conditions = side["conditions"]
    if (after := conditions.get("after")) is None:
        return
    own = {one["node"].as_text(): one["affinity"] for one in _further(after)}
    used = [("", conditions["affinity"], after["affinity"])]
    for rank in side["ranks"].items() if side.has("ranks") else ():
        if (found := rank.get("affinity_after")) is not None:
            allowed = own.get(rank["node"].as_text(), after["affinity"])
            used.append((f"rank {rank['rank'].as_whole()} ", found, allowed))
    for who, affinity, allowed in used:
        if taken := _numbers(affinity) - _numbers(allowed):
            yield f"{who}ran on the processors {_listed(sorted(taken))}, which it was not given"


def _further(state: Node) -> list[Node]:
    return list(state["further"].items()) if state.has("further") else []


def _looks(side: Node) -> Iterator[Look]:
    conditions, name = side["conditions"], side["side"].as_text()
    yield f"before {name}'s windows", _given(conditions["before"])
    if (after := conditions.get("after")) is not None:
        yield f"after {name}'s windows", _given(after)


def _given(state: Node) -> dict[str, str]:
    """Return what a side was given at one moment, as texts by name; that of further nodes with their names."""
    found = _given_here(state)
    for further in _further(state):
        node = further["node"].as_text()
        found |= {f"{node}: {name}": value for name, value in _given_here(further).items()}
    return found


def _given_here(state: Node) -> dict[str, str]:
    """Return what a side was given on one node."""
    unknown = set(state["unknown"].as_fields())
    gpus = list(state["gpus"].items())
    found = {"affinity": state["affinity"].as_text()}
    found |= {f"cgroup.{name}": _shown(state["cgroup"][name]) for name in _CGROUP}
    found["processors.governor"] = _shown(state["processors"]["governor"])
    found["gpus"] = " ".join(gpu["uuid"].as_text() for gpu in gpus) or "none"
    for gpu in gpus:
        found |= {f"{name} of {gpu['uuid'].as_text()}": _shown(gpu[name]) for name in _GPU}
    return {name: _UNKNOWN if name in unknown else text for name, text in found.items()}


def _shown(node: Node) -> str:
    return "none" if node.value is None else str(node.value)


def _faults_of_start(sealed: Sealed, given: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield where start.json, which was written before either side ran, says otherwise."""
    where = names.start(sealed.folder)
    start = Node(sealed.start, where)
    if start["job"]["restart_count"].as_whole() != 0:
        yield where, "measured in a job that its scheduler had restarted"
    numbers = sorted(one.as_whole() for one in start["host"]["affinity"].items())
    if _listed(numbers) != given["affinity"]:
        yield where, f"the processors are {_listed(numbers)}, the receipt says {given['affinity']}"
    uuids = " ".join(one["uuid"].as_text() for one in start["devices"].items() if one["kind"].as_text() == "cuda")
    if given["gpus"] not in (_UNKNOWN, uuids or "none"):
        yield where, f"the devices are {uuids or 'none'}, the receipt says {given['gpus']}"


def _numbers(node: Node) -> set[int]:
    """Return the processors of a list as `_listed` writes it.

    Raises:
        EvidenceError: It is none.
    """
    found: set[int] = set()
    for part in filter(None, node.as_text().split(",")):
        match = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", part)
        if match is None:
            raise node.wrong(f"is {node.as_text()[:80]!r} where a list of processors should be")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return found


def _listed(numbers: list[int]) -> str:
    """Return processors as the kernel lists them: ``0-3,8``."""
    parts: list[str] = []
    first = 0
    for place, number in enumerate(numbers):
        if place + 1 < len(numbers) and numbers[place + 1] == number + 1:
            continue
        parts.append(str(number) if first == place else f"{numbers[first]}-{number}")
        first = place + 1
    return ",".join(parts)
