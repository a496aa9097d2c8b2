"""Jobs that wait for what will not come: a closed list of the scheduler's reasons, each with what a person may do.

A reason that is not listed is one to wait for. A partition that is down or closed, a reservation, a licence, a limit on
what runs at the same time: each may end by itself.
"""

from __future__ import annotations

import re

_ASKS = "ask for less in [slurm], in a campaign frozen anew"
_HELD = "it is held: scontrol release JOB, or ask who holds it"
_DEPENDS = "what it waits for can no longer happen"

HOPELESS: dict[str, str] = {
    "PartitionTimeLimit": f"its time limit is over the partition's: {_ASKS}",
    "PartitionNodeLimit": f"it asks for more nodes than the partition gives a job: {_ASKS}",
    "BadConstraints": f"no node is as it asks for: {_ASKS}",
    "MaxMemPerLimit": f"it asks for more memory than a job may have: {_ASKS}",
    "InvalidAccount": "its account is none, or no longer",
    "InvalidQOS": "its QOS is none, or no longer",
    "AccountNotAllowed": "its account may not use the partition",
    "QOSNotAllowed": "its QOS may not be used by the association, or in the partition",
    "AssociationTimeLimit": f"its time limit is over the association's: {_ASKS}",
    "QOSTimeLimit": f"its time limit is over the QOS's: {_ASKS}",
    "AssocMaxWallDurationPerJobLimit": f"its time limit is over the association's: {_ASKS}",
    "QOSMaxWallDurationPerJobLimit": f"its time limit is over the QOS's: {_ASKS}",
    "DeadLine": "it cannot end before its deadline",
    "DependencyNeverSatisfied": _DEPENDS,
    "ReservationDeleted": "its reservation is gone",
    "JobHeldAdmin": _HELD,
    "JobHeldUser": _HELD,
    "JobHoldMaxRequeue": _HELD,
    "JobLaunchFailure": _HELD,
    "launch failed requeued held": _HELD,
}
"""What to know, by the reason as `squeue` gives it."""

_PER_JOB = re.compile(r"(Assoc|QOS)Max[A-Za-z/]+Per(Job|Node)(Limit)?|QOSMin[A-Za-z/]+(NotSatisfied)?")
"""Limits on a single job, such as AssocMaxCpuPerJobLimit, QOSMaxNodePerJobLimit, QOSMaxGRESPerJob, QOSMinMemory."""
_NODES = re.compile(r"ReqNodeNotAvail.*Unavailable(?:Nodes)?:([^\s)]+)")
DOWN = frozenset({"down", "drained", "fail", "error"})
"""States of a node from which only a person, or its own repair, brings it back."""


def nodes_wanted(reason: str) -> str:
    """Return the unavailable nodes that a job waits for, as the scheduler writes them; empty if it waits for none."""
    match = _NODES.match(reason)
    return match[1] if match else ""


def why_hopeless(reason: str, down: frozenset[str] = frozenset()) -> str:
    """Return why a waiting job will not start by itself; empty if it may.

    Args:
        reason: The scheduler's reason.
        down: Lists of nodes, as reasons name them, of which every node is known to be down.
    """
    word = reason.partition(",")[0].strip()
    if word in HOPELESS:
        return HOPELESS[word]
    if _PER_JOB.fullmatch(word):
        return f"one job may not have so much, or so little: {_ASKS}"
    nodes = nodes_wanted(reason)
    return f"every node that it could use is down: {nodes}" if nodes and nodes in down else ""
