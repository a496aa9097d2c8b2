from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from campaign import files
from campaign.verifier import attempts, inputs, matrix
from campaign.verifier.findings import State
from tests.support.verifying import edit_document, edit_ledger, make_checks, reseal, tampered

PILOT = "attempts/baseline/pilot/sync-b4/1"
CASE = "attempts/ccccccccccccc/case/sync-b4/1"


def found(root: Path) -> list[str]:
    checks = make_checks(root, matrix.check, attempts.check, inputs.check)
    return [f"{one.where}: {one.what}" for one in tampered(checks)]


def test_a_home_in_which_nothing_is_wrong_is_intact(whole_home: Path) -> None:
    checks = make_checks(whole_home, matrix.check, attempts.check, inputs.check)
    assert checks.state is State.INTACT
    assert checks.made[-1].remarks == ["3 files of canonical inputs"]


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_a_file_that_changed_is_found(home: Path, suffix: str) -> None:
    path = next((home / "inputs").glob(f"*{suffix}"))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    (line,) = found(home)
    assert line.startswith(f"inputs/{path.name}: not what the pilot recorded")


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_a_file_that_is_gone_is_found(home: Path, suffix: str) -> None:
    path = next((home / "inputs").glob(f"*{suffix}"))
    path.unlink()
    assert found(home) == [f"inputs/{path.name}: a completed pilot lists it, and it is gone"]


@pytest.mark.parametrize("name", ["notes.txt", f"{'0' * 64}.safetensors", "more/notes.txt"])
def test_a_file_that_no_pilot_listed_is_found(home: Path, name: str) -> None:
    (home / "inputs" / name).parent.mkdir(exist_ok=True)
    (home / "inputs" / name).write_bytes(b"new")
    assert found(home) == [f"inputs/{name.partition('/')[0]}: no pilot listed it: added"]


def test_what_a_running_pilot_writes_is_no_finding_if_its_name_is_its_digest(home: Path) -> None:
    shutil.rmtree(home / PILOT)
    (home / "allocations/a0001/ended.json").unlink()
    edit_ledger(home, lambda entries: entries[-1]["data"]["receipts"].pop("baseline/pilot/sync-b4/1"))
    assert not [line for line in found(home) if line.startswith("inputs/")]
    (home / "inputs" / f"{files.sha256_bytes(b'new')}.safetensors").write_bytes(b"newer")
    assert [line for line in found(home) if line.startswith("inputs/")]


def edit_list(root: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    edit_document(root / PILOT / "inputs.json", edit)
    reseal(root)


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        (lambda value: value.update(workload="other"), "workload"),
        (lambda value: value.update(config_sha256="0" * 64), "config_sha256"),
        (lambda value: value.update(moments="warm"), "moments"),
        (lambda value: value.update(step=1), "step"),
        (lambda value: value["batches"].pop(), "batches"),
        (lambda value: value["state"].clear(), "state"),
        (lambda value: value["state"][0].update(sha256="x"), "state[0].sha256"),
        (lambda value: value.update(format="inputs/2"), "has the format"),
    ],
)
def test_a_list_that_is_not_the_protocols_is_found(
    home: Path, edit: Callable[[dict[str, Any]], object], what: str
) -> None:
    edit_list(home, edit)
    assert any(line.startswith(f"{PILOT}/inputs.json: {what}") for line in found(home))


def test_a_case_that_ran_on_other_inputs_is_found(home: Path) -> None:
    edit_document(home / CASE / "receipt.json", lambda value: value["case"].update(inputs_sha256="0" * 64))
    reseal(home)
    assert [line for line in found(home) if f"{CASE}/receipt.json: it ran on the inputs {'0' * 64}" in line]


def test_a_case_that_left_workers_out_is_found(home: Path) -> None:
    edit_document(home / CASE / "receipt.json", lambda value: value["case"].update(num_workers=2))
    reseal(home)
    assert any("it compared 2 workers, the pilot recorded 1" in line for line in found(home))


@pytest.mark.parametrize("said", [[], "none", 1])
def test_a_case_that_is_no_object_is_found_and_not_passed_over(home: Path, said: object) -> None:
    edit_document(home / CASE / "receipt.json", lambda value: value.update(case=said))
    reseal(home)
    assert any(line.startswith(f"{CASE}/receipt.json: case: is ") for line in found(home))
