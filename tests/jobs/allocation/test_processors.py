from __future__ import annotations

from pathlib import Path

import pytest

from jobs.allocation.processors import MOST_ASKED, read_processors, spread


def write(root: Path, number: int, file: str, text: str) -> None:
    path = root / f"cpu{number}" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def test_governor_frequencies_and_throttling_are_those_of_the_own_processors(tmp_path: Path) -> None:
    for number, khz in enumerate(("3000000", "2000000", "9000000")):
        write(tmp_path, number, "cpufreq/scaling_governor", "performance")
        write(tmp_path, number, "cpufreq/scaling_cur_freq", khz)
        write(tmp_path, number, "thermal_throttle/core_throttle_count", "4")
    state, unknown = read_processors({0, 1}, tmp_path)
    assert state == {"governor": "performance", "frequency_khz": [2000000, 3000000], "throttled": 8}
    assert unknown == {}
    write(tmp_path, 1, "cpufreq/scaling_governor", "powersave")
    assert read_processors({0, 1}, tmp_path)[0]["governor"] == "performance+powersave"


def test_what_no_processor_says_is_unknown_with_the_file_that_is_not_there(tmp_path: Path) -> None:
    write(tmp_path, 0, "cpufreq/scaling_cur_freq", "<unknown>")
    state, unknown = read_processors({0}, tmp_path)
    assert set(state.values()) == {None}
    assert set(unknown) == set(state)
    assert "scaling_governor" in unknown["governor"]


@pytest.mark.parametrize("count", [1, 15, 16, 17, 288])
def test_of_many_processors_a_bounded_number_is_asked_from_first_to_last(count: int) -> None:
    chosen = spread(range(count), MOST_ASKED)
    assert len(chosen) == len(set(chosen)) == min(count, MOST_ASKED)
    assert chosen[0] == 0
    assert count - chosen[-1] <= count / MOST_ASKED + 1
