"""Under what conditions a side is measured, before its windows and after them: what it was given, and how that ran.

What the sides of a pair were given must be the same, or their ratio compares the conditions as well. How it ran
(clocks, heat, what held them back) is written down beside it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..processes.affinity import list_cpus
from . import cgroups, processors
from .gpu_states import GpuReader

State: TypeAlias = dict[str, Any]
"""What stands in a receipt; see docs/formats.md."""
_UNKNOWN = "unknown"
GPU_GIVEN = ("driver", "power_limit_mw", "ecc")
"""What a device must have in common for both sides, beside being the same one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Looks at the conditions of this process, which every side that it starts has."""

    gpus: GpuReader
    limits: Callable[[], cgroups.Found] = cgroups.read_limits
    processors: Callable[[set[int]], tuple[State, dict[str, str]]] = processors.read_processors

    def read(self) -> State:
        """Return the conditions as they are now."""
        cpus = os.sched_getaffinity(0)
        found = self.limits()
        state, unsaid = self.processors(cpus)
        devices, reason = self.gpus.read()
        unknown = {f"cgroup.{name}": why for name, why in found.unknown.items()}
        unknown |= {f"processors.{name}": why for name, why in unsaid.items()}
        return {
            "affinity": list_cpus(cpus),
            "cgroup": found.limits.as_json(),
            "processors": state,
            "gpus": devices,
            "unknown": {**unknown, **({"gpus": reason} if reason else {})},
        }


def given(state: State) -> dict[str, str]:
    """Return what a side was given, as texts by what a person calls them: equal for both sides of a pair."""
    found = _given_here(state)
    for further in state.get("further", ()):
        found |= {f"{further['node']}: {name}": value for name, value in _given_here(further).items()}
    return found


def _given_here(state: State) -> dict[str, str]:
    """Return what a side was given on one node."""
    unknown = state["unknown"]
    values: dict[str, Any] = {"affinity": state["affinity"]}
    values |= {f"cgroup.{name}": value for name, value in state["cgroup"].items()}
    values["processors.governor"] = state["processors"]["governor"]
    values["gpus"] = _UNKNOWN if "gpus" in unknown else " ".join(one["uuid"] for one in state["gpus"]) or "none"
    for one in state["gpus"]:
        values |= {f"{name} of {one['uuid']}": one[name] for name in GPU_GIVEN}
    return {name: _UNKNOWN if name in unknown else _shown(value) for name, value in values.items()}


def find_differences(looks: Sequence[tuple[str, State]]) -> list[str]:
    """Return what was not the same at every look, in words.

    Args:
        looks: When each was, in words, and what it found; the first one is what the others are held to.
    """
    return list(_differences([(when, given(state)) for when, state in looks]))


def _differences(looks: Sequence[tuple[str, dict[str, str]]]) -> Iterator[str]:
    for when, found in looks[1:]:
        first, expected = looks[0]
        for name in sorted({*expected, *found}):
            before, now = expected.get(name, "absent"), found.get(name, "absent")
            if before != now:
                yield f"{name} was {before} {first}, {now} {when}"


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)
