"""What is remarked of sides that were given the same and did not run alike."""

from __future__ import annotations

from typing import Any

import pytest

from campaign.judging.conditions import HELD_NS, remarks_of
from campaign.keys import AttemptKey
from tests.support.bare import make_receipt, make_side

GPU: dict[str, Any] = {
    "uuid": "GPU-a",
    "driver": "580.1",
    "power_limit_mw": 700000,
    "power_mw": 1,
    "sm_mhz": 1980,
    "memory_mhz": 2619,
    "temperature_c": 40,
    "reasons": ["gpu_idle"],
    "power_held_ns": 1000,
    "thermal_held_ns": 0,
    "ecc": True,
    "ecc_corrected": 2,
    "ecc_uncorrected": 0,
}
LIMITS = dict.fromkeys(("cpus", "mems", "cpu_quota", "cpu_weight", "memory_bytes", "swap_bytes"))


def look(*, throttled: int | None = 5, **gpu: Any) -> dict[str, Any]:
    processors = {"governor": None, "frequency_khz": None, "throttled": throttled}
    return {"affinity": "0-3", "cgroup": LIMITS, "processors": processors, "gpus": [{**GPU, **gpu}], "unknown": {}}


def remarks(
    first: dict[str, Any], second: dict[str, Any], *, affinity: str = "0-3", segment: int = 0
) -> dict[str, tuple[str, ...]]:
    """Return what is remarked of a pair whose sides began alike and ended like this."""
    sides = [
        make_side(
            side,
            place,
            conditions={"before": look(), "after": after, "affinity": affinity if place == 2 else "0-3"},
        )
        for place, (side, after) in enumerate((("baseline", first), ("candidate", second)), start=1)
    ]
    receipt = make_receipt(sides)
    return {one.slot: one.what for one in remarks_of({AttemptKey("c0/pair/w/r1", 1, segment): receipt})}


def test_sides_that_ran_alike_are_no_news_whatever_else_moved() -> None:
    warm: dict[str, Any] = {"temperature_c": 70, "sm_mhz": 1500, "power_mw": 600000, "reasons": []}
    assert remarks(look(), look()) == {}
    assert remarks(look(power_held_ns=5000), look(**warm, power_held_ns=5000 + HELD_NS - 1)) == {}


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (look(throttled=8), "times that processors were throttled: 0 for baseline, 3 for candidate"),
        (look(throttled=None), "0 for baseline, unknown for candidate"),
        (look(reasons=["gpu_idle", "sw_power_cap"]), "nothing for baseline, sw_power_cap for candidate"),
        (look(power_held_ns=1000 + 2 * HELD_NS), "seconds that power held clocks back: 0.0 for baseline, 0.2 for"),
        (look(thermal_held_ns=10 * HELD_NS), "seconds that heat held clocks back: 0.0 for baseline, 1.0 for candidate"),
        (look(ecc_corrected=9), "GPU-a: corrected errors of memory: 0 for baseline, 7 for candidate"),
        (look(ecc_uncorrected=1), "uncorrected errors of memory: 0 for baseline, 1 for candidate"),
    ],
)
def test_what_one_side_met_and_the_other_did_not_is_named_with_both_numbers(second: dict[str, Any], words: str) -> None:
    ((slot, what),) = remarks(look(), second).items()
    assert slot == "c0/pair/w/r1"
    assert len(what) == 1
    assert words in what[0]


def test_a_side_that_left_processors_by_itself_is_named() -> None:
    (what,) = remarks(look(), look(), affinity="0").values()
    assert what == ("candidate kept to the processors 0 of 0-3",)


def test_processors_that_nobody_could_see_are_named_and_not_taken_for_those_that_were_given() -> None:
    (what,) = remarks(look(), look(), affinity="").values()
    assert what == ("candidate: on which processors it ran is not known",)


def test_devices_that_are_not_known_of_either_side_are_named() -> None:
    unknown = {**look(), "gpus": [], "unknown": {"gpus": "nvidia-smi does not answer"}}
    sides = [
        make_side(side, place, conditions={"before": unknown, "after": unknown, "affinity": "0-3"})
        for place, side in enumerate(("baseline", "candidate"), start=1)
    ]
    (found,) = remarks_of({AttemptKey("c0/pair/w/r1", 1, 0): make_receipt(sides)})
    assert found.what == tuple(
        f"{side}: its devices are not known: nvidia-smi does not answer" for side in ("baseline", "candidate")
    )


def test_what_happened_on_a_further_node_is_told_with_its_name() -> None:
    def on_two(there: dict[str, Any]) -> dict[str, Any]:
        return {**look(), "further": [{**there, "node": "n2"}]}

    sides = [
        make_side(side, place, conditions={"before": on_two(look()), "after": on_two(after), "affinity": "0-3"})
        for place, (side, after) in enumerate((("baseline", look()), ("candidate", look(throttled=8))), start=1)
    ]
    (found,) = remarks_of({AttemptKey("c0/pair/w/r1", 1, 0): make_receipt(sides)})
    assert found.what == ("n2: times that processors were throttled: 0 for baseline, 3 for candidate",)
