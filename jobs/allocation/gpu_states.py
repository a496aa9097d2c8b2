"""How the GPUs of this allocation run at a moment: clocks, what holds them back, heat, power, errors of memory.

By nvidia-ml-py where it is installed, which takes about a millisecond, else by nvidia-smi, else unknown with reasons.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from .gpus import as_text, query_smi, split_smi

State: TypeAlias = dict[str, Any]
NAMES = (
    "driver",
    "power_limit_mw",
    "power_mw",
    "sm_mhz",
    "memory_mhz",
    "temperature_c",
    "reasons",
    "power_held_ns",
    "thermal_held_ns",
    "ecc",
    "ecc_corrected",
    "ecc_uncorrected",
)
"""What is asked of each. What it does not say is None."""
_SMI_TIMEOUT_S = 20
_SMI = (
    ("driver", "driver_version"),
    ("power_limit_mw", "power.limit"),
    ("power_mw", "power.draw"),
    ("sm_mhz", "clocks.sm"),
    ("memory_mhz", "clocks.mem"),
    ("temperature_c", "temperature.gpu"),
    ("reasons", "clocks_throttle_reasons.active"),
    ("ecc", "ecc.mode.current"),
    ("ecc_corrected", "ecc.errors.corrected.volatile.total"),
    ("ecc_uncorrected", "ecc.errors.uncorrected.volatile.total"),
)
_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}


def name_reasons(bits: int) -> list[str]:
    """Return the names of what holds the clocks back, by the bits that the driver says."""
    known = [name for bit, name in _REASONS.items() if bits & bit]
    rest = bits & ~sum(_REASONS)
    return [*known, *([f"{rest:#x}"] if rest else [])]


class Source(Protocol):
    """Whoever knows the state of devices."""

    def read(self, uuids: Sequence[str]) -> list[State]:
        """Return the state of each device, by its UUID."""


# --- nvidia-ml-py -----------------------------------------------------------------------------------------------------


class _Nvml:
    """The library, opened once for a job: opening it takes longer than all that it is asked."""

    def __init__(self) -> None:
        self._nvml = importlib.import_module("pynvml")
        self._nvml.nvmlInit()

    def read(self, uuids: Sequence[str]) -> list[State]:
        """Return the state of each device."""
        return [self._one(uuid) for uuid in uuids]

    def _one(self, uuid: str) -> State:
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        corrected, uncorrected = nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
        questions: dict[str, Callable[[], Any]] = {
            "driver": lambda: as_text(nvml.nvmlSystemGetDriverVersion()),
            "power_limit_mw": lambda: int(nvml.nvmlDeviceGetEnforcedPowerLimit(handle)),
            "power_mw": lambda: int(nvml.nvmlDeviceGetPowerUsage(handle)),
            "sm_mhz": lambda: int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            "memory_mhz": lambda: int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            "temperature_c": lambda: int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            "reasons": lambda: name_reasons(int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))),
            "power_held_ns": lambda: self._held_ns(handle, nvml.NVML_PERF_POLICY_POWER),
            "thermal_held_ns": lambda: self._held_ns(handle, nvml.NVML_PERF_POLICY_THERMAL),
            "ecc": lambda: bool(nvml.nvmlDeviceGetEccMode(handle)[0]),
            "ecc_corrected": lambda: self._ecc_errors(handle, corrected),
            "ecc_uncorrected": lambda: self._ecc_errors(handle, uncorrected),
        }
        return {"uuid": uuid, **{name: self._ask(question) for name, question in questions.items()}}

    def _ask(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except (self._nvml.NVMLError, AttributeError):
            return None  # not every device and driver knows every question

    def _held_ns(self, handle: Any, policy: int) -> int:
        return int(self._nvml.nvmlDeviceGetViolationStatus(handle, policy).violationTime)

    def _ecc_errors(self, handle: Any, kind: int) -> int:
        return int(self._nvml.nvmlDeviceGetTotalEccErrors(handle, kind, self._nvml.NVML_VOLATILE_ECC))


# --- nvidia-smi -------------------------------------------------------------------------------------------------------


class _Smi:
    """The program, started at every look."""

    def read(self, uuids: Sequence[str]) -> list[State]:
        """Return the state of each device."""
        names = ",".join(("uuid", *(query for _, query in _SMI)))
        found = parse_smi(query_smi(names, _SMI_TIMEOUT_S))
        if missing := [uuid for uuid in uuids if uuid not in found]:
            raise ValueError(f"nvidia-smi does not know {', '.join(missing)}")
        return [found[uuid] for uuid in uuids]


def parse_smi(text: str) -> dict[str, State]:
    """Return the state of every device by its UUID, from nvidia-smi's table of the query above."""
    found = {}
    for uuid, *values in split_smi(text):
        state: State = dict.fromkeys(NAMES)
        for (name, _), value in zip(_SMI, values, strict=True):
            state[name] = _smi_value(name, value)
        found[uuid] = {"uuid": uuid, **state}
    return found


def _smi_value(name: str, text: str) -> Any:
    if text.startswith("[") or text in ("N/A", ""):
        return None
    if name == "driver":
        return text
    if name == "reasons":
        return name_reasons(int(text, 16))
    if name == "ecc":
        return text == "Enabled"
    return round(float(text) * 1000) if name.endswith("_mw") else int(text)


# --- whoever answers --------------------------------------------------------------------------------------------------


def _again(source: Source) -> Source:
    return source


class GpuReader:
    """Asks for the state of devices, of whom answered the last time.

    Args:
        devices: The devices of the allocation, as start.json has them.
        sources: Open what is asked, in turn.
    """

    def __init__(
        self,
        devices: Sequence[Mapping[str, Any]],
        sources: Sequence[Callable[[], Source]] = (_Nvml, _Smi),
    ) -> None:
        self._uuids = [str(one["uuid"]) for one in devices if one["kind"] == "cuda"]
        self._sources = tuple(sources)

    def read(self) -> tuple[list[State], str]:
        """Return the state of every device, and why none is known where that is so."""
        if not self._uuids:
            return [], ""
        if any(uuid.startswith("MIG-") for uuid in self._uuids):
            return [], "parts of a partitioned device have no state of their own"
        reasons = []
        for opened in self._sources:
            try:
                source = opened()
                states = source.read(self._uuids)
            except Exception as error:  # noqa: BLE001 - drivers raise their own kinds, and none of them is fatal here
                reasons.append(f"{type(error).__name__}: {error}")
                continue
            self._sources = (functools.partial(_again, source),)
            return states, ""
        return [], "; ".join(reasons)
