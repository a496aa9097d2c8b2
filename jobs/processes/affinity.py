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


def read_affinity(pid: int) -> str:
    """Return the processors of a process; empty if it is gone or cannot be seen."""
    try:
        return list_cpus(os.sched_getaffinity(pid))
    except OSError:
        return ""
