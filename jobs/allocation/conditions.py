"""Under what conditions the parent runs, and every side that it starts; a process of the same user can change them."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from . import cgroups

Condition: TypeAlias = tuple[int, ...]

_LIMITS = {
    name: getattr(resource, name)
    for name in sorted(dir(resource))
    if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE"  # an older name of RLIMIT_NOFILE
}


def read_conditions() -> dict[str, Condition]:
    """Return niceness, processors, scheduling policy and limits of this process, by name."""
    found: dict[str, Condition] = {}
    for name, number in _LIMITS.items():
        # Some names stand for limits that this kernel does not have.
        with contextlib.suppress(ValueError, OSError):
            found[name] = resource.getrlimit(number)
    # In this order they are restored: whether niceness may be set depends on a limit.
    found["policy"] = (os.sched_getscheduler(0), os.sched_getparam(0).sched_priority)
    found["cpus"] = tuple(sorted(os.sched_getaffinity(0)))
    found["nice"] = (os.getpriority(os.PRIO_PROCESS, 0),)
    return found


def _set(name: str, wanted: Condition) -> None:
    if name == "nice":
        os.setpriority(os.PRIO_PROCESS, 0, wanted[0])
    elif name == "cpus":
        os.sched_setaffinity(0, wanted)
    elif name == "policy":
        os.sched_setscheduler(0, wanted[0], os.sched_param(wanted[1]))
    else:
        _set_limit(_LIMITS[name], wanted[0], wanted[1])


def _set_limit(number: int, soft: int, hard: int) -> None:
    try:
        resource.setrlimit(number, (soft, hard))
    except (OSError, ValueError):
        # Only root raises a hard limit. Up to what is left of it, the parent can at least write down what happened.
        left = resource.getrlimit(number)[1]
        resource.setrlimit(number, (left, left))


@dataclass(frozen=True, slots=True)
class Conditions:
    """What they were when the job began."""

    wanted: dict[str, Condition]
    cpuset: str | None = None
    """The processors of the job's control group; None where they are not shown."""
    read_cpuset: Callable[[], str | None] = cgroups.read_cpuset

    @classmethod
    def now(cls) -> Conditions:
        """Return the present ones."""
        return cls(read_conditions(), cgroups.read_cpuset())

    def find_move(self) -> str:
        """Return how the processors of the whole job changed, in words; empty if they did not.

        That is whoever runs the machine, not a side: the kernel then changes those of every process itself.
        """
        now = self.read_cpuset()
        if now == self.cpuset:
            return ""
        return f"the processors of this job were {self.cpuset or 'unknown'}, and are {now or 'unknown'} now"

    def changes(self) -> list[str]:
        """Return what is no longer as it was, in words; not the processors that the whole job lost or got."""
        found = read_conditions()
        if "cpus" in self.wanted and self.find_move():
            found["cpus"] = self.wanted["cpus"]
        return [
            f"{name} was {_shown(wanted)}, is {_shown(found.get(name, ()))}"
            for name, wanted in self.wanted.items()
            if found.get(name, ()) != wanted
        ]

    def restore(self) -> None:
        """Set them back as far as this process may; `changes` says whether that was far enough."""
        found = read_conditions()
        for name, wanted in self.wanted.items():
            if found.get(name, ()) != wanted:
                with contextlib.suppress(OSError, ValueError):
                    _set(name, wanted)


def _shown(value: Condition) -> str:
    return "/".join(map(str, value)) or "unknown"
