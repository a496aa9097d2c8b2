from __future__ import annotations

import pytest

from jobs.allocation import gpus

SMI = "0, GPU-aaaa, NVIDIA H200, 143771, 580.1\n1, GPU-bbbb, NVIDIA H200, 143771, 580.1\n"


def read_smi() -> list[gpus.Gpu]:
    return gpus.parse_smi(SMI)


def no_library() -> list[gpus.Gpu]:
    raise ImportError("No module named 'pynvml'")


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [(None, ["GPU-aaaa", "GPU-bbbb"]), ("1", ["GPU-bbbb"]), ("1,0", ["GPU-bbbb", "GPU-aaaa"]), ("GPU-a", ["GPU-aaaa"])],
)
def test_the_devices_are_those_that_the_scheduler_shows(visible: str | None, uuids: list[str]) -> None:
    found, reason = gpus.read_gpus(visible, (no_library, read_smi))
    assert ([gpu["uuid"] for gpu in found], reason) == (uuids, "")
    assert {gpu["memory_bytes"] for gpu in found} == {143771 << 20}


def test_devices_that_nobody_can_name_are_unknown_with_the_reasons() -> None:
    found, reason = gpus.read_gpus("7", (no_library, read_smi))
    assert found == []
    assert "No module named 'pynvml'" in reason
    assert "names 7, which is none of the 2 devices" in reason


def test_a_part_of_a_device_is_known_by_its_own_identity() -> None:
    assert gpus.read_gpus("MIG-1234", (no_library,))[0][0]["uuid"] == "MIG-1234"
