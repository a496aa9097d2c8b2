"""How the tests are shared among workers, and what is said of their cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sharing import CLUSTER, LONG, order_of, unit_of
from tests.support.spent import SPENT, costs, table

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("name", LONG)
def test_what_is_begun_first_is_there(name: str) -> None:
    assert (ROOT / name).exists()


def test_the_tests_of_the_cluster_are_one_workers_and_others_go_by_file() -> None:
    cluster = {f"{CLUSTER}/test_{name}.py::test_x[{name}::y]" for name in "ab"}
    assert {unit_of(one) for one in cluster} == {CLUSTER}
    assert {order_of(one) for one in cluster} == {0}
    assert unit_of("tests/jobs/test_c.py::test_x[a::b]") == "tests/jobs/test_c.py"
    assert order_of("tests/jobs/test_c.py::test_x") == len(LONG)


def _report(file: str, when: str, duration: float, spent_s: float) -> pytest.TestReport:
    made = pytest.TestReport(f"{file}::test", (file, 1, "test"), {}, "passed", None, when, duration=duration)  # type: ignore[arg-type]
    made.user_properties.append((SPENT, spent_s))
    return made


def test_what_the_phases_took_is_summed_by_file_and_the_dearest_come_first() -> None:
    phases = [("a.py", "setup", 1.0, 0.5), ("a.py", "call", 2.0, 1.5), ("b.py", "call", 4.0, 0.25)]
    assert table(costs(_report(*phase) for phase in phases), 1) == [
        "      0.2       4.0  b.py (1)",
        "      2.2       7.0  all 2 files (2)",
    ]
