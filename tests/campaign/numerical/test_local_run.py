"""Both families from freeze to verdict on this machine, with the real harness; and a case run again."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from acceptance.formats import NUMERICAL, parse_table
from campaign import rerun as library
from campaign import scratch
from campaign.cli import rerun as command
from campaign.cli.main import main
from campaign.collection.sealed import SealedAttempt
from campaign.errors import EvidenceError
from campaign.frozen import read_frozen
from campaign.paths import HomePaths
from campaign.snapshot.digest import digest_folder
from campaign.submission.desk import open_desk
from tests.support.cli import expect, expect_json
from tests.support.matching import write_matching_campaign

CONTROL = "baseline/control-case/plain"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home in which everything ran once."""
    folder = tmp_path_factory.mktemp("local run")
    config = write_matching_campaign(folder)
    made = folder / "home"
    expect(0, "freeze", config, "--home", made)
    expect(0, "freeze", "--candidate", "--config", config, "--home", made)
    expect(0, "submit", "--home", made, "--cluster", "local", "--wait", "--yes")
    expect(0, "report", "--home", made, "--exit-zero")
    return made


def evaluation(home: Path, name: str) -> Any:
    (path,) = home.glob(f"evaluations/*/{name}")
    return json.loads(path.read_bytes())


def test_every_gate_of_the_family_is_met(home: Path) -> None:
    verdict = evaluation(home, "verdict.json")
    gates = {gate["id"]: gate for gate in verdict["gates"] if gate["family"] == "numerical"}
    wanted = {"loss", "gradients", "parameters", "updates", "optimizer", "consensus"}
    assert {name.removeprefix("numerical/plain/") for name in gates} == wanted
    assert {gate["finding"] for gate in gates.values()} == {"met"}
    assert verdict["families"]["numerical"]["outcome"] == "pass"
    # Close, and not the same: the two sides did not share their arithmetic.
    assert 0 < gates["numerical/plain/updates"]["value"] < 1e-3


def test_the_cases_are_in_the_provenance_on_the_recorded_inputs(home: Path) -> None:
    cases = evaluation(home, "provenance.json")["cases"]
    assert [case["comparison"] for case in cases] == ["candidate", "control"]
    (listing,) = home.glob("inputs/*.json")
    assert {case["inputs_sha256"] for case in cases} == {listing.stem}
    assert {(case["executor"], case["serialized"]) for case in cases} == {("independent", False)}


def test_status_has_all_phases_complete(home: Path) -> None:
    value = expect_json(0, "status", "--home", home)
    assert value["phases"]["numerical"] == {"completed": 1}
    assert value["phases"]["baseline"] == {"completed": 1}
    assert value["gates_out_of_reach"] == []


def test_collecting_again_hashes_no_input_again_and_finds_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("campaign.files.sha256_regular", lambda _: pytest.fail("hashed again"))
    assert main(["collect", "--home", str(home)]) == 0


def test_a_case_that_runs_again_gives_the_same_numbers_and_leaves_the_home_alone(home: Path, tmp_path: Path) -> None:
    before = digest_folder(home)
    value = expect_json(0, "rerun", "candidate/case/plain", "--home", home, "--scratch", tmp_path)
    assert value["identical"] is True
    assert value["differences"] == []
    assert {table["table"]: table["rows"] > 0 for table in value["tables"]} == {
        "numerical.csv": True,
        "vacuity.csv": False,
        "tensors.csv": True,
    }
    assert value["device"] == value["device_again"]
    assert digest_folder(home) == before
    assert list(tmp_path.iterdir()) == []


def test_a_case_whose_inputs_are_gone_is_not_run_again(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = next(home.glob("inputs/*.safetensors"))
    data = path.read_bytes()
    path.unlink()
    try:
        assert main(["rerun", CONTROL, "--home", str(home)]) == 5
    finally:
        path.write_bytes(data)
    assert str(path) in capsys.readouterr().err


def test_only_a_completed_case_can_be_run_again(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rerun", "baseline/pilot/plain", "--home", str(home)]) == 2
    assert "is no numerical case" in capsys.readouterr().err
    assert main(["rerun", "candidate/case/other", "--home", str(home)]) == 2
    assert "no slot" in capsys.readouterr().err


# --- what came out otherwise ------------------------------------------------------------------------------------------


def retained(home: Path) -> SealedAttempt:
    paths = HomePaths(home)
    desk = open_desk(paths, read_frozen(paths), time.time)
    return library.read_retained(paths, desk.frozen, desk.history(), CONTROL, 1).sealed


def with_rows(sealed: SealedAttempt, lines: Sequence[str]) -> SealedAttempt:
    """Return an attempt with other lines in numerical.csv."""
    data = "\n".join([",".join(NUMERICAL.header), *lines, ""]).encode()
    rows, faults = parse_table(NUMERICAL, data, "numerical.csv")
    assert not faults
    return replace(sealed, tables={**sealed.tables, NUMERICAL.file: rows})


def lines_of(sealed: SealedAttempt) -> list[str]:
    return [row.raw for row in sealed.tables[NUMERICAL.file]]


def change(sealed: SealedAttempt, column: str, text: str) -> SealedAttempt:
    """Change one field of the first row of gradients."""
    place = NUMERICAL.header.index(column)
    lines = lines_of(sealed)
    number = next(number for number, line in enumerate(lines) if ",gradients," in line)
    fields = lines[number].split(",")
    fields[place] = text
    return with_rows(sealed, [*lines[:number], ",".join(fields), *lines[number + 1 :]])


def test_a_number_that_came_out_otherwise_is_shown_with_its_relative_difference(home: Path) -> None:
    first = change(retained(home), "reference", "2.0")
    result = library.compare(first, change(first, "reference", "2.5"))
    assert not result.is_identical
    (difference,) = result.differences
    assert (difference.table, difference.column) == ("numerical.csv", "reference")
    assert (difference.retained, difference.again, difference.relative) == ("2.0", "2.5", 0.2)
    assert "update=1 worker=0 quantity=gradients" in difference.row
    assert result.largest == difference
    assert "largest relative difference: 0.2 in reference" in command.text(result)


def test_the_same_number_in_another_spelling_is_a_difference(home: Path) -> None:
    first = change(retained(home), "reference", "2.0")
    result = library.compare(first, change(first, "reference", "2.00"))
    assert not result.is_identical
    assert result.differences[0].relative == 0.0


def test_an_empty_number_and_another_tensor_have_no_relative_difference(home: Path) -> None:
    first = retained(home)
    result = library.compare(first, change(change(first, "worst_tensor", "other"), "reference", ""))
    assert {one.column: one.relative for one in result.differences} == {"worst_tensor": None, "reference": None}
    assert result.largest is None
    assert "largest" not in command.text(result)


def test_a_row_that_is_missing_or_new_is_a_difference(home: Path) -> None:
    first = retained(home)
    shorter = with_rows(first, lines_of(first)[:-1])
    assert not library.compare(first, shorter).is_identical
    assert not library.compare(shorter, first).is_identical


def test_nothing_retained_is_not_identical_to_nothing(home: Path) -> None:
    empty = with_rows(retained(home), [])
    with pytest.raises(EvidenceError, match="retained no row"):
        library.compare(empty, empty)


def test_another_kind_of_device_is_said(home: Path) -> None:
    first = retained(home)
    other = first.start.replace(devices=({"kind": "cpu", "name": "another"},))
    result = library.compare(first, replace(first, start=other))
    assert not result.same_kind
    assert "this time: cpu:another" in command.text(result)


def test_a_case_that_differs_exits_with_4_and_keeps_its_folder(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = change(retained(home), "reference", "2.5")
    monkeypatch.setattr(command, "run_again", lambda *_: other)
    assert main(["rerun", CONTROL, "--home", str(home), "--scratch", str(tmp_path)]) == 4
    captured = capsys.readouterr()
    (kept,) = tmp_path.iterdir()
    assert f"what it left is kept: {kept}" in captured.err
    assert "differs" in captured.out


def test_a_case_that_was_changed_after_it_was_sealed_is_not_run_again(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = home / "attempts" / CONTROL / "1" / "numerical.csv"
    data = table.read_bytes()
    try:
        table.write_bytes(data + b"\n")
        assert main(["rerun", CONTROL, "--home", str(home)]) == 5
        assert "changed after it was sealed" in capsys.readouterr().err
    finally:
        table.write_bytes(data)


def test_a_harness_that_cannot_start_is_an_error_of_the_machine(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scratch, "payload", lambda *_: ("/bin/sh", "-c", "echo no interpreter; exit 3"))
    assert main(["rerun", CONTROL, "--home", str(home), "--scratch", str(tmp_path)]) == 6
    said = capsys.readouterr().err
    assert "left no receipt" in said
    assert "no interpreter" in said


def test_show_says_how_a_case_was_run(home: Path) -> None:
    value = expect_json(0, "show", CONTROL, "--home", home)
    case = value["attempts"][0]["case"]
    assert (value["phase"], case["num_workers"], case["num_tensors"], case["serialized"]) == ("baseline", 2, 5, False)
    text = expect(0, "show", CONTROL, "--home", home)
    assert "  case: independent executors, shared memory; 2 worker(s) of 5 tensors; load " in text
    assert expect_json(0, "show", "baseline/pilot/plain", "--home", home)["attempts"][0]["case"] is None
