from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from typing import Any

import pytest

from campaign import documents
from jobs.allocation import gpu_states
from jobs.allocation.gpu_states import NAMES, GpuReader, State, name_reasons, parse_smi

SMI = (
    "GPU-a, 580.1, 700.00, 75.12, 1980, 2619, 31, 0x0000000000000004, Enabled, 0, 1\n"
    "GPU-b, 580.1, [N/A], [Not Supported], 345, 2619, 30, 0x0000000000000201, [N/A], [N/A], [N/A]\n"
)
DEVICES = [{"kind": "cuda", "uuid": "GPU-b"}, {"kind": "cuda", "uuid": "GPU-a"}]


class Table:
    """A source that answers from nvidia-smi's text, and counts how often it was opened."""

    opened = 0

    def __init__(self) -> None:
        type(self).opened += 1

    def read(self, uuids: Sequence[str]) -> list[State]:
        return [parse_smi(SMI)[uuid] for uuid in uuids]


def absent() -> Table:
    raise ImportError("No module named 'pynvml'")


def test_a_table_of_nvidia_smi_becomes_numbers_names_and_unknowns() -> None:
    found = parse_smi(SMI)
    assert set(found["GPU-a"]) == {"uuid", *NAMES}
    first, second = (documents.GpuState.of(found[uuid]) for uuid in ("GPU-a", "GPU-b"))
    assert (first.power_limit_mw, first.power_mw, first.sm_mhz, first.temperature_c) == (700000, 75120, 1980, 31)
    assert (first.reasons, first.ecc, first.ecc_uncorrected) == (("sw_power_cap",), True, 1)
    assert (second.power_limit_mw, second.ecc, second.ecc_corrected) == (None, None, None)
    assert second.reasons == ("gpu_idle", "0x200")


def test_every_bit_of_what_holds_clocks_back_has_a_name_or_shows_as_it_is() -> None:
    assert name_reasons(0) == []
    assert name_reasons(0x68) == ["hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown"]
    assert name_reasons(0x1000) == ["0x1000"]


def test_whoever_answered_is_asked_again_in_the_order_of_the_allocations_devices() -> None:
    before = Table.opened
    reader = GpuReader(DEVICES, (absent, Table))
    for _ in range(3):
        states, reason = reader.read()
        assert ([one["uuid"] for one in states], reason) == (["GPU-b", "GPU-a"], "")
    assert Table.opened == before + 1


def test_where_nobody_answers_the_states_are_unknown_with_the_reasons() -> None:
    states, reason = GpuReader([{"kind": "cuda", "uuid": "GPU-x"}], (absent, Table)).read()
    assert states == []
    assert "No module named 'pynvml'" in reason
    assert "GPU-x" in reason
    assert GpuReader([{"kind": "cpu", "uuid": ""}], (absent,)).read() == ([], "")
    assert "partitioned" in GpuReader([{"kind": "cuda", "uuid": "MIG-1"}], (Table,)).read()[1]


class NvmlError(Exception):
    pass


def make_nvml(**answers: Any) -> types.ModuleType:
    """Return a library that knows one device and only some questions."""

    def refuse(*_arguments: object) -> None:
        raise NvmlError("not supported")

    module = types.ModuleType("pynvml")
    names = [
        "SystemGetDriverVersion",
        "DeviceGetEnforcedPowerLimit",
        "DeviceGetPowerUsage",
        "DeviceGetClockInfo",
        "DeviceGetTemperature",
        "DeviceGetCurrentClocksThrottleReasons",
        "DeviceGetViolationStatus",
        "DeviceGetEccMode",
    ]
    for name in names:
        found = answers.get(name, refuse)
        setattr(module, f"nvml{name}", found if callable(found) else lambda *_arguments, found=found: found)
    for number, name in enumerate(("CLOCK_SM", "CLOCK_MEM", "TEMPERATURE_GPU", "PERF_POLICY_POWER")):
        setattr(module, f"NVML_{name}", number)
    module.NVML_PERF_POLICY_THERMAL = 9  # type: ignore[attr-defined]
    module.NVML_MEMORY_ERROR_TYPE_CORRECTED = 0  # type: ignore[attr-defined]
    module.NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1  # type: ignore[attr-defined]
    module.NVMLError = NvmlError  # type: ignore[attr-defined]
    module.nvmlInit = lambda: None  # type: ignore[attr-defined]
    module.nvmlDeviceGetHandleByUUID = {"GPU-a": 5}.__getitem__  # type: ignore[attr-defined]
    return module


def test_the_library_answers_what_it_knows_and_nothing_where_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    module = make_nvml(
        SystemGetDriverVersion=b"580.1",
        DeviceGetEnforcedPowerLimit=700000,
        DeviceGetClockInfo=lambda _handle, kind: 1980 + kind,
        DeviceGetCurrentClocksThrottleReasons=4,
        DeviceGetViolationStatus=types.SimpleNamespace(violationTime=12),
        DeviceGetEccMode=[1, 0],
    )
    monkeypatch.setitem(sys.modules, "pynvml", module)
    states, reason = GpuReader([DEVICES[1]], (gpu_states._Nvml,)).read()
    assert reason == ""
    state = documents.GpuState.of(states[0])
    assert (state.driver, state.power_limit_mw, state.sm_mhz, state.memory_mhz) == ("580.1", 700000, 1980, 1981)
    assert (state.reasons, state.power_held_ns, state.thermal_held_ns) == (("sw_power_cap",), 12, 12)
    assert (state.ecc, state.power_mw, state.temperature_c, state.ecc_corrected) == (True, None, None, None)
    assert "KeyError" in GpuReader([{"kind": "cuda", "uuid": "GPU-z"}], (gpu_states._Nvml,)).read()[1]
