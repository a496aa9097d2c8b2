"""The most that an allocation can take."""

from __future__ import annotations

import math

import pytest

from campaign import documents
from campaign.planning.bounds import most_seconds, num_devices
from tests.support.home import SMALL, make_protocol

LIMITS = documents.Limits(import_s=1, startup_s=20, stall_s=300)
SLOTS = make_protocol(SMALL[:1], repeats=1).slots
PILOT = next(slot for slot in SLOTS if slot.kind == "pilot")
PAIR = next(slot for slot in SLOTS if slot.kind == "pair")


def test_each_side_may_use_its_whole_time_for_everything() -> None:
    assert most_seconds([PILOT], LIMITS, 4) == 1 + 20 + 5 * 300
    assert most_seconds([PILOT, PAIR], LIMITS, 4) == 3 * (1 + 20 + 5 * 300)


def test_the_time_limit_of_the_job_bounds_the_sum() -> None:
    assert most_seconds([PAIR], LIMITS, 4, minutes=10) == 600.0
    assert most_seconds([PILOT], LIMITS, 4, minutes=1000) == 1 + 20 + 5 * 300


def test_where_nothing_bounds_it_it_is_infinite() -> None:
    run = documents.Slot.of({**PILOT.to_json(), "kind": "run"})
    assert most_seconds([PILOT, run], LIMITS, 4) == math.inf
    assert most_seconds([PILOT, run], LIMITS, 4, minutes=2) == 120.0


@pytest.mark.parametrize(
    ("gres", "number"), [(None, 1), ("", 1), ("gpu", 1), ("gpu:2", 2), ("gpu:h100:4,lic:9", 4), ("gpu:0", 1)]
)
def test_the_devices_are_those_that_gres_asks_for(gres: str | None, number: int) -> None:
    assert num_devices(gres) == number
