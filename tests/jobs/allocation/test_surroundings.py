from __future__ import annotations

import copy
from typing import Any

import pytest

from campaign import documents
from jobs.allocation.gpu_states import NAMES, GpuReader
from jobs.allocation.surroundings import State, Surroundings, find_differences

GPU = {"uuid": "GPU-a", **dict.fromkeys(NAMES), "driver": "580.1", "power_limit_mw": 700000, "ecc": True}
STATE: State = {
    "affinity": "0-1",
    "cgroup": {
        "cpus": "0-1",
        "mems": "0",
        "cpu_quota": 2.0,
        "cpu_weight": 100,
        "memory_bytes": None,
        "swap_bytes": None,
    },
    "processors": {"governor": "performance", "frequency_khz": [1, 2], "throttled": 0},
    "gpus": [GPU],
    "unknown": {},
}


def changed(*path: Any, value: Any) -> State:
    state = copy.deepcopy(STATE)
    part: Any = state
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    return state


def test_what_is_looked_at_here_can_stand_in_a_receipt_and_says_why_the_rest_is_unknown() -> None:
    state = Surroundings(gpus=GpuReader([])).read()
    found = documents.Surroundings.of(state)
    assert found.affinity
    for part in ("cgroup", "processors"):
        assert {f"{part}.{name}" for name in state[part]} >= {name for name in found.unknown if name.startswith(part)}
    assert all(found.unknown.values())
    assert find_differences([("then", state), ("now", Surroundings(gpus=GpuReader([])).read())]) == []


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("affinity",), "0", "affinity was 0-1 before, 0 after"),
        (("cgroup", "cpu_quota"), 1.0, "cgroup.cpu_quota was 2.0 before, 1.0 after"),
        (("cgroup", "cpu_quota"), None, "cgroup.cpu_quota was 2.0 before, none after"),
        (("cgroup", "memory_bytes"), 5, "cgroup.memory_bytes was none before, 5 after"),
        (("processors", "governor"), "powersave", "processors.governor was performance before, powersave after"),
        (("gpus", 0, "uuid"), "GPU-b", "gpus was GPU-a before, GPU-b after"),
        (("gpus", 0, "power_limit_mw"), 500000, "power_limit_mw of GPU-a was 700000 before, 500000 after"),
        (("gpus", 0, "driver"), "580.2", "driver of GPU-a was 580.1 before, 580.2 after"),
        (("gpus", 0, "ecc"), None, "ecc of GPU-a was True before, none after"),
        (("unknown",), {"cgroup.memory_bytes": "gone"}, "cgroup.memory_bytes was none before, unknown after"),
    ],
)
def test_what_was_given_must_be_the_same_at_every_look(path: tuple[Any, ...], value: Any, words: str) -> None:
    looks = [("before", STATE), ("between", copy.deepcopy(STATE)), ("after", changed(*path, value=value))]
    assert words in find_differences(looks)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("processors", "frequency_khz"), [1, 9]),
        (("processors", "throttled"), 7),
        (("gpus", 0, "sm_mhz"), 1200),
        (("gpus", 0, "reasons"), ["sw_power_cap"]),
        (("gpus", 0, "temperature_c"), 80),
    ],
)
def test_how_it_ran_may_differ(path: tuple[Any, ...], value: Any) -> None:
    assert find_differences([("before", STATE), ("after", changed(*path, value=value))]) == []


def test_devices_that_nobody_can_name_any_more_are_a_difference() -> None:
    lost = {**STATE, "gpus": [], "unknown": {"gpus": "GPU is lost"}}
    assert "gpus was GPU-a before, unknown after" in find_differences([("before", STATE), ("after", lost)])
