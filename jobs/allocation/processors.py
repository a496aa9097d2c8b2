"""How the processors of this process run: governor, frequencies, and how often they were throttled for their heat."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path("/sys/devices/system/cpu")
MOST_ASKED = 16
"""A node may have hundreds, and asking one for its frequency wakes it: so many are asked, evenly spread."""
State: TypeAlias = dict[str, Any]
NAMES = ("governor", "frequency_khz", "throttled")


def read_processors(cpus: Collection[int], root: Path = ROOT) -> tuple[State, dict[str, str]]:
    """Return what some processors say, and why what they do not say is unknown.

    Args:
        cpus: Those that this process may use.
        root: Where the kernel shows processors.
    """
    asked = spread(sorted(cpus), MOST_ASKED)
    state: State = dict.fromkeys(NAMES)
    unknown: dict[str, str] = {}
    readers: tuple[tuple[str, str, Callable[[list[str]], Any]], ...] = (
        ("governor", "cpufreq/scaling_governor", lambda found: "+".join(sorted(set(found)))),
        ("frequency_khz", "cpufreq/scaling_cur_freq", lambda found: [min(map(int, found)), max(map(int, found))]),
        ("throttled", "thermal_throttle/core_throttle_count", lambda found: sum(map(int, found))),
    )
    for name, file, combine in readers:
        found = [text for number in asked if (text := _text(root / f"cpu{number}" / file))]
        try:
            state[name] = combine(found) if found else None
        except ValueError as error:
            unknown[name] = f"{file}: {error}"
        if not found:
            unknown[name] = f"no processor has {file}"
    return state, unknown


def spread(numbers: Sequence[int], most: int) -> list[int]:
    """Return at most so many of some numbers, evenly spread, the first among them."""
    count = min(len(numbers), most)
    return [numbers[place * len(numbers) // count] for place in range(count)]


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="ascii", errors="replace").strip()
    return ""
