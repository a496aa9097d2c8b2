"""Which processors a process may use, as a text."""

from __future__ import annotations

import os
from collections.abc import Iterable


def list_cpus(cpus: Iterable[int]) -> str:
    """Return processors the way the kernel lists them: ``0-3,8``."""
    runs: list[list[int]] = []
    for number in sorted(cpus):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def parse_cpus(text: str) -> set[int]:
    """Return the processors of a list as `list_cpus` writes it."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def read_affinity(pid: int) -> str:
    """Return the processors of a process; empty if it is gone or cannot be seen."""
    try:
        return list_cpus(os.sched_getaffinity(pid))
    except OSError:
        return ""
