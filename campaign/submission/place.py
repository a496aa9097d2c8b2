"""Where the jobs of a campaign may run: which nodes are up, and how long a job may ask for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from campaign.errors import InfrastructureError
from campaign.submission.nodes import Place
from campaign.watching.scheduler import Slurm

SINFO_FORMAT = "%N|%P|%l|%T|%f|%G"
_DOWN = ("down", "drained", "draining", "drain", "fail", "failing", "future", "inval", "unknown", "power_down")
"""States of nodes that take no jobs, and may not come back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """One node of one partition."""

    name: str
    partition: str
    is_default: bool
    limit_minutes: int | None
    is_up: bool
    features: frozenset[str]
    gres: str


def read_place(slurm: Slurm, table: Mapping[str, Any]) -> Place:
    """Ask which nodes the campaign's jobs may use, and for how long; nothing is known where nobody answers.

    Args:
        slurm: Slurm's commands.
        table: The frozen ``[slurm]`` table.
    """
    partition = table.get("partition") or ""
    chosen = f"--partition={partition}" if partition else "--all"  # sinfo takes one of them alone
    try:
        text = slurm.ask(["sinfo", "--noheader", "--Node", chosen, f"--format={SINFO_FORMAT}"])
        nodes = [_parse(line) for line in text.splitlines()]
        if not partition:
            nodes = [node for node in nodes if node.is_default]
        avoided = _hostnames(slurm, table.get("exclude") or "")
    except InfrastructureError as error:
        return Place(unknown=f"which nodes there are is not known: {error.what}")
    limits = [node.limit_minutes for node in nodes]
    most = max((limit for limit in limits if limit is not None), default=None) if None not in limits else None
    if reason := _why_unknown(table):
        return Place(unknown=reason, limit_minutes=most)
    fitting = {node.name for node in nodes if node.is_up and _fits(node, table)}
    return Place(nodes=frozenset(fitting - avoided), limit_minutes=most)


def _why_unknown(table: Mapping[str, Any]) -> str:
    """Return why the configuration does not let tell which nodes fit; empty if it does."""
    if table.get("nodelist"):
        return "[slurm] nodelist names the nodes"
    if table.get("reservation"):
        return "[slurm] reservation names the nodes"
    if not re.fullmatch(r"[\w.&-]*", table.get("constraint") or ""):
        return f"which nodes fit [slurm] constraint {table['constraint']!r} is not known"
    return ""


def _fits(node: _Node, table: Mapping[str, Any]) -> bool:
    features = {feature for feature in (table.get("constraint") or "").split("&") if feature}
    kinds = [one.partition(":")[0] for one in (table.get("gres") or "").split(",") if one]
    return features <= node.features and all(re.search(rf"(^|,){re.escape(kind)}\b", node.gres) for kind in kinds)


def _parse(line: str) -> _Node:
    fields = line.split("|")
    if len(fields) != 6:
        raise InfrastructureError("sinfo answered in a form that is not understood", why=line)
    name, partition, limit, state, features, gres = (field.strip() for field in fields)
    return _Node(
        name=name,
        partition=partition.rstrip("*"),
        is_default=partition.endswith("*"),
        limit_minutes=parse_minutes(limit),
        is_up=not state.rstrip("*~#!%$@^-+").lower().startswith(_DOWN) and not state.endswith("*"),
        features=frozenset(features.split(",")),
        gres=gres,
    )


def parse_minutes(text: str) -> int | None:
    """Return a time limit of Slurm's in whole minutes, as ``days-hours:minutes:seconds`` or less; None for none."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+)", text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return max(1, days * 1440 + hours * 60 + minutes + seconds // 60)


def _hostnames(slurm: Slurm, nodes: str) -> set[str]:
    """Return the nodes that a list of Slurm's such as ``n[1-3],n7`` stands for."""
    return set(slurm.ask(["scontrol", "show", "hostnames", nodes]).split()) if nodes else set()


def smallest(limits: Iterable[int | None]) -> int | None:
    """Return the smallest of some limits; None where there is none."""
    return min((limit for limit in limits if limit is not None), default=None)
