from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from campaign.verifier import attempts, matrix, pairs
from campaign.verifier.findings import State
from tests.support.verifying import edit_document, make_checks, reseal, tampered

PAIR = "attempts/ccccccccccccc/pair/sync-b4/r1/1"
CASE = "attempts/ccccccccccccc/case/sync-b4/1"
SOLO = "attempts/baseline/solo/sync-b4/r1/1"


def found(root: Path) -> list[str]:
    checks = make_checks(root, matrix.check, attempts.check, pairs.check)
    return [f"{one.where}: {one.what}" for one in tampered(checks)]


def test_a_home_in_which_nothing_is_wrong_is_intact(whole_home: Path) -> None:
    checks = make_checks(whole_home, matrix.check, attempts.check, pairs.check)
    assert checks.state is State.INTACT
    assert checks.made[-1].remarks == ["6 completed pairs and cases"]


def edit_table(folder: str, name: str, *changes: tuple[bytes, bytes]) -> Callable[[Path], None]:
    def edit(root: Path) -> None:
        data = (root / folder / name).read_bytes()
        for old, new in changes:
            assert old in data
            data = data.replace(old, new)
        (root / folder / name).write_bytes(data)

    return edit


def edit_start(folder: str, edit: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    return lambda root: edit_document(root / folder / "start.json", edit)


def edit_caches(folder: str, index: int, **changes: str) -> Callable[[Path], None]:
    def edit(receipt: dict[str, Any]) -> None:
        receipt["sides"][index]["caches"].update(changes)

    return lambda root: edit_document(root / folder / "receipt.json", edit)


def drop_row(folder: str, name: str) -> Callable[[Path], None]:
    def drop(root: Path) -> None:
        lines = (root / folder / name).read_bytes().splitlines(keepends=True)
        (root / folder / name).write_bytes(b"".join(lines[:-1]))

    return drop


def double_row(root: Path) -> None:
    lines = (root / SOLO / "baseline.csv").read_bytes().splitlines(keepends=True)
    (root / SOLO / "baseline.csv").write_bytes(b"".join([*lines, lines[-1]]))


def swap_sides(root: Path) -> None:
    swap = ((b",baseline,", b",other,"), (b",candidate,1,", b",baseline,1,"), (b",other,1,", b",candidate,1,"))
    edit_table(PAIR, "windows.csv", (b"candidate,1,1,", b"candidate,1,1,"))(root)
    edit_table(PAIR, "pairs.csv", *swap)(root)


STATE: dict[str, Any] = {
    "affinity": "0",
    "cgroup": {
        "cpus": "0",
        "mems": "0",
        "cpu_quota": 1.0,
        "cpu_weight": None,
        "memory_bytes": None,
        "swap_bytes": None,
    },
    "processors": {"governor": "performance", "frequency_khz": [1, 2], "throttled": 3},
    "gpus": [],
    "unknown": {"cgroup.swap_bytes": "not shown"},
}


def edit_sides(folder: str, edit: Callable[[list[dict[str, Any]]], object]) -> Callable[[Path], None]:
    return lambda root: edit_document(root / folder / "receipt.json", lambda receipt: edit(receipt["sides"]))


def say_conditions(sides: list[dict[str, Any]]) -> None:
    for side in sides:
        looks = {"before": copy.deepcopy(STATE), "after": copy.deepcopy(STATE)}
        side.update(conditions={**looks, "affinity": "0"}, container_sha256="")


def said(sides: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return sides that say their conditions."""
    say_conditions(sides)
    return sides


def say_device(sides: list[dict[str, Any]], **changed: Any) -> None:
    """Let all looks name a device, of which the last one says something else."""
    say_conditions(sides)
    for side in sides:
        for when in ("before", "after"):
            side["conditions"][when]["gpus"] = [{"uuid": "G", "driver": "1", "power_limit_mw": 1, "ecc": True}]
    sides[-1]["conditions"]["after"]["gpus"][0].update(changed)


def unlike(index: int, when: str, *path: Any, value: Any) -> Callable[[Path], None]:
    """Return what lets a pair say its conditions, one of which is another."""

    def edit(sides: list[dict[str, Any]]) -> None:
        say_conditions(sides)
        part: Any = sides[index]["conditions"][when]
        for name in path[:-1]:
            part = part[name]
        part[path[-1]] = value

    return edit_sides(PAIR, edit)


def both(*edits: Callable[[Path], None]) -> Callable[[Path], None]:
    def edit(root: Path) -> None:
        for one in edits:
            one(root)

    return edit


def restart(root: Path) -> None:
    """Let the pair's job be one that its scheduler restarted before it began."""
    allocation = json.loads((root / PAIR / "start.json").read_bytes())["allocation"]
    for path in (root / PAIR / "start.json", root / "allocations" / allocation / "started.json"):
        edit_document(path, lambda document: document["job"].update(restart_count=1))


FORGED = {
    "another quota": (
        unlike(1, "before", "cgroup", "cpu_quota", value=0.5),
        "cgroup.cpu_quota was 1.0 before",
    ),
    "another governor": (
        unlike(0, "after", "processors", "governor", value="powersave"),
        "conditions changed: processors.governor was ",
    ),
    "a limit nobody knows": (unlike(1, "after", "unknown", value={}), "cgroup.swap_bytes was unknown before"),
    "another affinity": (
        unlike(1, "after", "affinity", value="1"),
        "affinity was 0 before",
    ),
    "a device that was not there": (
        unlike(1, "before", "gpus", value=[{"uuid": "G", "driver": "1", "power_limit_mw": 1, "ecc": True}]),
        "gpus was none before",
    ),
    "a side that says no conditions": (
        both(
            unlike(1, "after", "affinity", value="0"), edit_sides(PAIR, lambda sides: sides[1].update(conditions=None))
        ),
        "1 of 2 sides say under what conditions",
    ),
    "no conditions at the end": (
        both(
            unlike(1, "after", "affinity", value="0"),
            edit_sides(PAIR, lambda sides: sides[1]["conditions"].update(after=None)),
        ),
        "under what conditions its windows ended",
    ),
    "no conditions at the beginning": (
        both(
            edit_sides(PAIR, say_conditions),
            edit_sides(PAIR, lambda sides: [side["conditions"].update(before=None, after=None) for side in sides]),
        ),
        "sides[0].conditions.before: is null where an object should be",
    ),
    "processors that were taken": (
        edit_sides(PAIR, lambda sides: said(sides)[1]["conditions"].update(affinity="0-1,3")),
        "sides[1]: ran on the processors 1,3, which it was not given",
    ),
    "no list of processors": (
        edit_sides(PAIR, lambda sides: said(sides)[1]["conditions"].update(affinity="all")),
        "is 'all' where a list of processors should be",
    ),
    "another affinity of a further node": (
        edit_sides(
            PAIR,
            lambda sides: [
                look.update(further=[{**copy.deepcopy(STATE), "node": "n2", "affinity": cpus}])
                for side, cpus in zip(said(sides), "01", strict=True)
                for look in (side["conditions"]["before"], side["conditions"]["after"])
            ],
        ),
        "conditions changed: n2: affinity was 0 before",
    ),
    "a restarted job": (
        both(edit_sides(PAIR, say_conditions), restart),
        "its scheduler had restarted",
    ),
    "other processors at the start": (
        both(
            edit_sides(PAIR, say_conditions),
            edit_start(PAIR, lambda start: start["host"].update(affinity=[0, 1, 2, 4])),
        ),
        "the processors are 0-2,4, the receipt says 0",
    ),
    "other devices at the start": (
        edit_sides(PAIR, say_device),
        "the devices are none, the receipt says G",
    ),
    "another limit of a device": (
        edit_sides(PAIR, lambda sides: say_device(sides, power_limit_mw=2)),
        "conditions changed: power_limit_mw of G was 1 before",
    ),
    "another driver": (
        edit_sides(PAIR, lambda sides: say_device(sides, driver="2")),
        "conditions changed: driver of G was 1 before",
    ),
    "no correction of errors any more": (
        edit_sides(PAIR, lambda sides: say_device(sides, ecc=False)),
        "conditions changed: ecc of G was True before",
    ),
    "a container that was never frozen": (
        edit_sides(PAIR, lambda sides: sides[1].update(container_sha256="c" * 64)),
        "sides[1]: ran in the container " + "c" * 64,
    ),
    "a side less": (drop_row(PAIR, "pairs.csv"), "ran, planned were"),
    "a window less": (drop_row(PAIR, "windows.csv"), "windows, planned were 5"),
    "positions": (edit_table(PAIR, "pairs.csv", (b",1,1,1,", b",1,1,9,")), "in position 9"),
    "swapped sides": (swap_sides, "in this order"),
    "updates of a pair": (edit_table(PAIR, "pairs.csv", (b",20,10,", b",20,11,")), "windows of 11 updates"),
    "updates of a solo": (edit_table(SOLO, "baseline.csv", (b",20,10,", b",20,11,")), "windows of 11 updates"),
    "a solo without a row": (drop_row(SOLO, "baseline.csv"), "baseline.csv: 0 rows of one measurement"),
    "a solo with two rows": (double_row, "baseline.csv: 2 rows of one measurement"),
    "warm caches of one side": (edit_caches(PAIR, 1, compile="shared, warm"), "sides[1]: caches"),
    "warm caches of a case": (edit_caches(CASE, 0, compile="shared, warm"), "sides[0]: caches"),
    "no device": (edit_start(PAIR, lambda start: start.update(devices=[])), "names no device"),
    "another device": (edit_start(PAIR, lambda start: start["devices"][0].update(kind="cuda")), "a cuda device"),
    "two drivers": (
        edit_start(PAIR, lambda start: start["devices"].append({**start["devices"][0], "driver": "2"})),
        "different drivers",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_an_unlike_pair_is_found_although_it_was_sealed(home: Path, name: str) -> None:
    forge, what = FORGED[name]
    forge(home)
    reseal(home)
    lines = found(home)
    assert any(what in line for line in lines), lines


def test_a_pair_that_says_the_same_conditions_of_both_sides_is_intact(home: Path) -> None:
    edit_sides(PAIR, say_conditions)(home)
    edit_sides(SOLO, say_conditions)(home)
    unlike(1, "after", "processors", "throttled", value=9)(home)
    reseal(home)
    assert make_checks(home, matrix.check, attempts.check, pairs.check).state is State.INTACT


def test_packages_installed_without_bytecode_on_one_side_are_a_remark(home: Path) -> None:
    edit_caches(PAIR, 1, bytecode="private")(home)
    reseal(home)
    checks = make_checks(home, matrix.check, attempts.check, pairs.check)
    assert checks.state is State.INTACT
    assert "1 of them are unlike in one thing" in checks.made[-1].remarks[1]
