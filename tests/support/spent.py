"""What each test file costs, in seconds of the processors and on the clock.

The former are what counts where others use the machine as well. Those of a process that left its parent, as a job of
the local executor does, are in nobody's sum.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from dataclasses import dataclass

import pytest

SPENT = "spent_s"
"""Name of the property of a report: seconds of the processors, own and of children that were waited for."""


@dataclass(slots=True)
class Cost:
    """Of one file."""

    tests: int = 0
    processor_s: float = 0.0
    wall_s: float = 0.0


def _processor_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Spending:
    """Notes with every report what its phase has spent, and sums it up at the end."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._last_s = _processor_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note what the phase has spent since the last one ended."""
        report = yield
        now_s = _processor_s()
        report.user_properties.append((SPENT, now_s - self._last_s))
        self._last_s = now_s
        return report

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the files that took most."""
        reports = [
            one for kind in terminalreporter.stats.values() for one in kind if isinstance(one, pytest.TestReport)
        ]
        terminalreporter.section("seconds of the processors, and on the clock, by file")
        for line in table(costs(reports), self._most):
            terminalreporter.write_line(line)


def costs(reports: Iterable[pytest.TestReport]) -> dict[str, Cost]:
    """Return what the tests of each file took."""
    found: dict[str, Cost] = {}
    for report in reports:
        cost = found.setdefault(report.nodeid.partition("::")[0], Cost())
        cost.tests += int(report.when == "call")
        cost.processor_s += sum(
            value for name, value in report.user_properties if name == SPENT and isinstance(value, float)
        )
        cost.wall_s += report.duration
    return found


def table(found: dict[str, Cost], most: int) -> list[str]:
    """Return lines about the dearest files, and about all."""
    dearest = sorted(found.items(), key=lambda item: (-item[1].wall_s, item[0]))[:most]
    every = Cost(
        tests=sum(one.tests for one in found.values()),
        processor_s=sum(one.processor_s for one in found.values()),
        wall_s=sum(one.wall_s for one in found.values()),
    )
    rows = [*dearest, (f"all {len(found)} files", every)]
    return [f"{cost.processor_s:9.1f} {cost.wall_s:9.1f}  {name} ({cost.tests})" for name, cost in rows]
