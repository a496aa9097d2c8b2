from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from campaign import files
from campaign.verifier import report
from campaign.verifier.findings import Check, State
from tests.campaign.verifier import judged
from tests.support.home import CANDIDATE, Case, Home, build_home, freeze, freeze_candidate

CASES = (Case(name="sync-b4", category="sync"),)
ROOT = f"evaluations/{CANDIDATE}"


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Home:
    made = build_home(tmp_path_factory.mktemp("reported") / "home", CASES, repeats=1, solo=False)
    assert judged.report(made) == 0
    return made


@pytest.fixture
def home(reported: Home, tmp_path: Path) -> Home:
    shutil.copytree(reported.paths.root, tmp_path / "home")
    return Home(paths=type(reported.paths)(tmp_path / "home"), protocol=reported.protocol)


def found(home: Home) -> list[tuple[State, str, str]]:
    return judged.findings(home.paths.root, report.check)


def places(home: Home) -> set[tuple[State, str]]:
    return {(state, where) for state, where, _ in found(home)}


def file(home: Home, name: str) -> Path:
    return home.paths.root / ROOT / name


def act(home: Home, edit: Callable[[dict[str, Any]], object]) -> None:
    """Edit the last act of the ledger, a report."""
    lines = home.paths.ledger.read_bytes().splitlines()
    last = json.loads(lines[-1])
    assert last["act"] == "reported"
    edit(last["data"])
    home.paths.ledger.write_bytes(b"\n".join([*lines[:-1], json.dumps(last).encode(), b""]))


def test_a_report_as_it_was_written_is_intact(home: Home) -> None:
    assert found(home) == []


@pytest.mark.parametrize("name", ["provenance.json", "report/report.html", "report/gates.csv", "report/verdict.json"])
def test_every_changed_file_is_named(home: Home, name: str) -> None:
    path = file(home, name)
    path.write_bytes(path.read_bytes() + b" ")
    assert places(home) == {(State.TAMPERED, f"{ROOT}/{name}")}


def test_a_file_more_is_named(home: Home) -> None:
    file(home, "report/summary.html").write_text("all is well")
    file(home, "report/.report.html.1.tmp").write_text("half")
    assert places(home) == {(State.TAMPERED, f"{ROOT}/report/summary.html")}


def test_a_file_less_is_named(home: Home) -> None:
    file(home, "report/gates.csv").unlink()
    assert places(home) == {(State.TAMPERED, f"{ROOT}/report/gates.csv")}


@pytest.mark.parametrize(
    "gone",
    [
        ["verdict.json"],
        ["verdict.json", "provenance.json", "report/report.html"],
        ["verdict.json", "provenance.json", "report/report.html", "report/gates.csv"],
        [
            "provenance.json",
            *(f"report/{name}" for name in ("gates.csv", "provenance.json", "report.html", "verdict.json")),
        ],
        ["report/report.html", "report/verdict.json"],
    ],
    ids=["only the verdict", "before", "removing", "placing", "almost done"],
)
def test_what_a_killed_report_leaves_is_incomplete_and_after_closing_a_finding(home: Home, gone: list[str]) -> None:
    for name in gone:
        file(home, name).unlink()
    states = {state for state, _ in places(home)}
    assert states == ({State.INCOMPLETE} if gone != ["verdict.json"] else set())  # the verdict is another check's
    home.append("closed", {})
    assert {state for state, _ in places(home)} == ({State.TAMPERED} if gone != ["verdict.json"] else set())


STAMPS = {
    "manifest": ("manifest_sha256", "0" * 64),
    "evidence": ("evidence_sha256", "1" * 64),
    "provenance": ("provenance_sha256", "2" * 64),
}


@pytest.mark.parametrize(("name", "digest"), STAMPS.values(), ids=list(STAMPS))
def test_a_page_about_something_else_is_found_although_the_ledger_names_it(home: Home, name: str, digest: str) -> None:
    page = file(home, "report/report.html")
    verdict = json.loads(file(home, "verdict.json").read_bytes())
    real = verdict.get(name) or files.sha256_file(file(home, "provenance.json"))
    page.write_text(page.read_text().replace(real, digest))
    act(home, lambda data: data["files"].update({"report.html": files.sha256_file(page)}))
    ((state, where, what),) = found(home)
    assert (state, where) == (State.TAMPERED, f"{ROOT}/report/report.html")
    assert f"says that its {name} is {digest}, it is {real}" in what


def test_a_page_without_digests_or_with_one_twice_is_found(home: Home) -> None:
    page = file(home, "report/report.html")
    text = page.read_text()
    for edited in (
        "<html><head></head></html>",
        text.replace("</head>", '<meta name="campaign:x" content="1">' * 2 + "</head>"),
    ):
        page.write_text(edited)
        act(home, lambda data: data["files"].update({"report.html": files.sha256_file(page)}))
        assert places(home) == {(State.TAMPERED, f"{ROOT}/report/report.html")}


def _provenance(home: Home, edit: Callable[[dict[str, Any]], object]) -> None:
    path = file(home, "provenance.json")
    value = json.loads(path.read_bytes())
    edit(value)
    data = files.dump_json(value)
    digest = files.sha256_bytes(data)
    page = file(home, "report/report.html")
    page.write_text(page.read_text().replace(files.sha256_file(path), digest))
    for own in (path, file(home, "report/provenance.json")):
        own.write_bytes(data)
    act(home, lambda said: said.update(provenance_sha256=digest))
    act(home, lambda said: said["files"].update({"provenance.json": digest, "report.html": files.sha256_file(page)}))


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (lambda value: value["ledger"].update(head="0" * 64), "of the ledger has the SHA-256 " + "0" * 64),
        (lambda value: value["ledger"].update(entries=9999), "was made after 9999 entries"),
        (lambda value: value["ledger"].update(entries=value["ledger"]["entries"] + 1), "and the report on it is entry"),
        (lambda value: value["candidate"].update(snapshot_sha256="0" * 64), "its candidate_sha256 is " + "0" * 64),
        (lambda value: value.update(harness_sha256="0" * 64), "its harness_sha256 is " + "0" * 64),
    ],
    ids=["head", "entries", "its own report", "candidate", "harness"],
)
def test_a_provenance_of_something_else_is_found_although_the_ledger_names_it(
    home: Home, edit: Callable[[dict[str, Any]], object], why: str
) -> None:
    _provenance(home, edit)
    ((state, where, what),) = found(home)
    assert (state, where) == (State.TAMPERED, f"{ROOT}/provenance.json")
    assert why in what


@pytest.mark.parametrize(
    "edit",
    [
        lambda data: data["files"].update({"verdict.json": "0" * 64}),
        lambda data: data["files"].update({"../verdict.json": "0" * 64}),
        lambda data: data["files"].update({"gates.csv": "short"}),
        lambda data: data.pop("provenance_sha256"),
        lambda data: data.update(files=[]),
    ],
    ids=["its own copies", "a path", "a digest", "no provenance", "a list"],
)
def test_an_act_that_contradicts_itself_is_found(home: Home, edit: Callable[[dict[str, Any]], object]) -> None:
    act(home, edit)
    assert {state for state, _ in places(home)} == {State.TAMPERED}


def test_a_report_that_no_act_names_is_found(home: Home) -> None:
    lines = home.paths.ledger.read_bytes().splitlines(keepends=True)
    home.paths.ledger.write_bytes(b"".join(lines[:-1]))
    assert places(home) == {
        (State.TAMPERED, f"{ROOT}/{name}") for name in ("verdict.json", "provenance.json", "report")
    }


def test_a_report_whose_files_were_not_recorded_is_not_checked(home: Home) -> None:
    act(home, lambda data: data.pop("files"))
    check = Check(name="report", title="")
    with judged.knowing(home.paths.root) as facts:
        report.check(facts, check)
    assert (check.state, check.findings) == (State.NOT_CHECKED, [])


def test_a_candidate_without_a_report_is_no_finding(tmp_path: Path) -> None:
    home = freeze(tmp_path / "home", CASES)
    freeze_candidate(home)
    assert found(home) == []
