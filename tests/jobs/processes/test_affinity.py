from __future__ import annotations

import pytest

from jobs.processes.affinity import list_cpus, parse_cpus


@pytest.mark.parametrize(("text", "cpus"), [("", set()), ("3", {3}), ("0-2,8,10-11", {0, 1, 2, 8, 10, 11})])
def test_processors_are_read_as_they_are_listed(text: str, cpus: set[int]) -> None:
    assert parse_cpus(text) == cpus
    assert list_cpus(cpus) == text
