from __future__ import annotations

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


FORGED = {
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


def test_packages_installed_without_bytecode_on_one_side_are_a_remark(home: Path) -> None:
    edit_caches(PAIR, 1, bytecode="private")(home)
    reseal(home)
    checks = make_checks(home, matrix.check, attempts.check, pairs.check)
    assert checks.state is State.INTACT
    assert "1 of them are unlike in one thing" in checks.made[-1].remarks[1]
