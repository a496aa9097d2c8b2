from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from campaign.verifier import attempts, matrix, platform
from campaign.verifier.findings import State
from tests.support.home import SMALL
from tests.support.lifelike import LifelikeHome, freeze_lifelike
from tests.support.verifying import edit_document, edit_ledger, make_checks, reseal, tampered

SLOTS = ("baseline/solo/sync-b4/r1", "baseline/solo/sync-b4/r2")


@pytest.fixture
def begun(tmp_path: Path) -> LifelikeHome:
    """A home with two measurements, between which something may happen."""
    made = freeze_lifelike(tmp_path / "home", SMALL[:1], repeats=2)
    made.attempt(made.slot(SLOTS[0]))
    return made


def go_on(made: LifelikeHome, **host: Any) -> None:
    """Make the second measurement on a host that differs in something."""
    made.attempt(made.slot(SLOTS[1]))
    made.collect()
    edit_document(made.folder(SLOTS[1]).start, lambda start: start["host"].update(host))
    rows = made.folder(SLOTS[1]).table("baseline.csv")
    rows.write_bytes(rows.read_bytes().replace(b",node1,", f",{host.get('node', 'node1')},".encode()))
    reseal(made.paths.root)


def check(made: LifelikeHome) -> tuple[list[str], list[str]]:
    checks = make_checks(made.paths.root, matrix.check, attempts.check, platform.check)
    return [one.what for one in tampered(checks)], checks.made[-1].remarks


def amend(made: LifelikeHome, void: dict[str, int], *, is_platform: bool) -> None:
    words = {"what": "platform", "changed": "kernel", "by": "A", "reason": "B", "keep_reason": "C"}
    made.append("amended", {**words, "void": [*void], "voided_attempts": void, "platform": is_platform})


def test_one_platform_is_intact(whole_home: Path) -> None:
    assert make_checks(whole_home, matrix.check, attempts.check, platform.check).state is State.INTACT


@pytest.mark.parametrize(
    "host",
    [
        {"node": "node2"},
        {"boot_id": "0000"},
        {"memory_bytes": (1 << 30) + (1 << 20)},
        {"affinity": [7]},
    ],
)
def test_another_node_of_the_same_kind_is_the_same_platform(begun: LifelikeHome, host: dict[str, Any]) -> None:
    go_on(begun, **host)
    faults, remarks = check(begun)
    assert faults == []
    assert remarks == ["2 attempts on Synthetic Processor, kernel 6.1"]


@pytest.mark.parametrize(
    ("host", "what"),
    [
        ({"cpu": "Other"}, "processor is 'Other', before it was 'Synthetic Processor'"),
        ({"kernel": "6.2"}, "kernel is '6.2'"),
        ({"machine": "aarch64"}, "machine is"),
        ({"affinity": [0, 1]}, "number of processors is 2"),
        ({"memory_bytes": 1 << 31}, "memory of the host in bytes is 2147483648"),
    ],
)
def test_another_platform_is_found(begun: LifelikeHome, host: dict[str, Any], what: str) -> None:
    go_on(begun, **host)
    (fault,), _ = check(begun)
    assert what in fault
    assert fault.startswith("1 attempts, of which this is the first, ran on another platform")


def test_another_platform_that_was_declared_before_it_is_a_stratum(begun: LifelikeHome) -> None:
    amend(begun, {}, is_platform=True)
    go_on(begun, kernel="6.2")
    faults, (remark,) = check(begun)
    assert faults == []
    assert remark.count("kernel") == 2


def test_an_amendment_after_the_first_attempt_declares_nothing(begun: LifelikeHome) -> None:
    go_on(begun, kernel="6.2")
    amend(begun, {}, is_platform=True)
    assert len(check(begun)[0]) == 1


def test_an_amendment_of_something_else_declares_no_platform(begun: LifelikeHome) -> None:
    amend(begun, {}, is_platform=False)
    go_on(begun, kernel="6.2")
    assert len(check(begun)[0]) == 1


def test_a_void_attempt_is_of_no_platform(begun: LifelikeHome) -> None:
    go_on(begun, kernel="6.2")
    amend(begun, {SLOTS[1]: 1}, is_platform=False)
    assert check(begun)[0] == []


# --- interpreters -----------------------------------------------------------------------------------------------------


def change_interpreter(made: LifelikeHome, what: str) -> list[str]:
    """Amend something, and run what follows with other packages."""
    amend(made, {}, is_platform=False)
    edit_ledger(made.paths.root, lambda entries: entries[-1]["data"].update(what=what))
    made.num_lines = 0
    made.attempt(made.slot(SLOTS[1]))
    made.collect()
    edit_document(
        made.folder(SLOTS[1]).receipt, lambda receipt: receipt["sides"][0].update(environment_sha256="9" * 64)
    )
    reseal(made.paths.root)
    return check(made)[0]


def test_other_packages_than_a_sides_first_attempt_had_are_found(begun: LifelikeHome) -> None:
    (fault,) = change_interpreter(begun, "node")
    assert fault.startswith("baseline ran on another interpreter, or with other packages, than in attempts/")
    assert f"environment_sha256 is {'9' * 64}, there {'7' * 64}" in fault


def test_other_packages_that_were_amended_before_are_right(begun: LifelikeHome) -> None:
    assert change_interpreter(begun, "interpreter") == []
