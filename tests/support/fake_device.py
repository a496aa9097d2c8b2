"""A host and a device that works by itself, both on a clock that moves only as it is told to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from jobs import monitor

ENVIRONMENT: dict[str, Any] = dict.fromkeys(monitor.ENVIRONMENT, "fake") | {"settings": {}}
RECIPE: dict[str, Any] = {"accumulation_count": 4, "precision": "fp32", "seed": 1}


class FakeDevice:
    """Work is handed over at once and done later; the marks of a monitor lie in its order."""

    on_device = True

    def __init__(self) -> None:
        self.now_s = 100.0
        self.free_s = 0.0
        self.num_waits = 0
        self.readings: dict[str, int | None] = dict.fromkeys(monitor.MEMORY, 1)
        self.num_resets = 0
        self.reading_takes_s = 0.0

    def clock(self) -> float:
        return self.now_s

    def host(self, seconds: float) -> None:
        """The host does something."""
        self.now_s += seconds

    def launch(self, seconds: float) -> None:
        """Hand over work that takes the device so long."""
        self.free_s = max(self.free_s, self.now_s) + seconds

    def synchronize(self) -> None:
        self.num_waits += 1
        self.now_s = max(self.now_s, self.free_s)

    def record(self) -> float:
        return max(self.free_s, self.now_s)

    def is_done(self, mark: float) -> bool:
        return mark <= self.now_s

    def seconds(self, first: float, second: float) -> float:
        return second - first

    def reset(self) -> None:
        self.num_resets += 1

    def read(self) -> dict[str, int | None]:
        self.now_s += self.reading_takes_s
        return dict(self.readings)

    def start(self, path: Path | None, **changed: Any) -> monitor.TrainingMonitor:
        """A session on this device."""
        given: dict[str, Any] = {
            "device": "fake",
            "recipe": RECIPE,
            "clock": self.clock,
            "wall": lambda: 0.0,
            "synchronize": self.synchronize,
            "marks": self,
            "memory": self,
            "environment": ENVIRONMENT,
        }
        return monitor.start(path, **given | changed)


def train(
    device: FakeDevice,
    mon: monitor.TrainingMonitor,
    num: int,
    *,
    host_s: float = 0.01,
    device_s: float = 0.1,
    **counts: Any,
) -> None:
    """Make updates of four microbatches each."""
    for _ in range(num):
        device.host(host_s)
        device.launch(device_s)
        mon.update(**{"targets": 900, "padded": 1000, "microbatches": 4} | counts)


@contextmanager
def closing(mon: monitor.TrainingMonitor) -> Iterator[monitor.TrainingMonitor]:
    """Close whatever happens, so that nothing is left for the interpreter's exit."""
    try:
        yield mon
    finally:
        with suppress(monitor.MonitorError):
            mon.close()


def changed(record: Mapping[str, Any], session: int = 1, **fields: Any) -> dict[str, Any]:
    """A record with other fields in one of its sessions."""
    sessions = [dict(entry) for entry in record["sessions"]]
    sessions[session - 1] |= fields
    return {**record, "sessions": sessions}
