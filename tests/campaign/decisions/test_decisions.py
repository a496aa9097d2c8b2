"""Decisions: the default is a person's, retirement needs a verdict that passes, and every refusal is recorded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from acceptance.formats import Ending
from campaign import documents, files
from campaign.cli.main import main
from campaign.errors import ExitCode
from campaign.paths import HomePaths
from campaign.record.decisions import standing
from campaign.record.ledger import read_entries
from tests.support.home import CANDIDATE, Case, Home, attempt_all, build_home, freeze, freeze_candidate

ONE = (Case(name="sync-b4", category="sync"),)
WHO = ("--by", "A. Person", "--reason", "it was asked for")
RETIRE = ("decide", "--retire", "baseline", *WHO)
DEFAULT = ("decide", "--default", "candidate", *WHO)
OTHER = "c" + "d" * 12


@pytest.fixture(autouse=True)
def quick_page(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a stand-in in the place of the rendered page, which most tests here do not look at."""
    if "rendered" not in request.fixturenames:

        def write_report(*, protocol_path: Path, evaluation: Path, out: Path) -> None:
            assert protocol_path.is_file()
            assert (evaluation / "verdict.json").is_file()
            out.mkdir(exist_ok=True)
            (out / "report.html").write_text("a page")

        monkeypatch.setattr("reports.render.write_report", write_report)


@pytest.fixture
def rendered() -> None:
    """Ask for the real page."""


def make(folder: Path, ratio: float = 1.1) -> Home:
    return build_home(folder / "home", ONE, lambda _workload, _repeat: ratio, solo=False, controls=False)


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Home]:
    """Return a home whose report passes and one whose report is missed; tests work on copies."""
    made = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAMPAIGN_REGISTRY", str(tmp_path_factory.mktemp("registry") / "registry.jsonl"))
        patch.setattr("reports.render.write_report", lambda **_: None)
        for name, ratio in (("passing", 1.1), ("missed", 1.0)):
            made[name] = make(tmp_path_factory.mktemp(name), ratio)
            assert run(made[name], "report") == (0 if name == "passing" else 3)
    return made


def copied(home: Home, folder: Path) -> Home:
    shutil.copytree(home.paths.root, folder / "home")
    return replace(home, paths=HomePaths(folder / "home"))


@pytest.fixture
def passing(reported: dict[str, Home], tmp_path: Path) -> Home:
    return copied(reported["passing"], tmp_path)


@pytest.fixture
def missed(reported: dict[str, Home], tmp_path: Path) -> Home:
    return copied(reported["missed"], tmp_path)


def run(home: Home, *arguments: str) -> int:
    return main([*arguments, "--home", str(home.paths.root)])


def decided(home: Home) -> list[dict[str, Any]]:
    return [entry.data for entry in read_entries(home.paths) if entry.act == "decided"]


# --- retirement -------------------------------------------------------------------------------------------------------


def test_the_baseline_may_be_retired_by_a_verdict_that_passes(
    passing: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home = passing
    before = home.paths.evaluation(CANDIDATE).verdict.read_bytes()
    assert run(home, *RETIRE) == 0
    assert "the baseline is retired" in capsys.readouterr().out
    (act,) = decided(home)
    assert act == {
        "kind": "retire",
        "side": "baseline",
        "candidate": CANDIDATE,
        "by": "A. Person",
        "reason": "it was asked for",
        "verdict_sha256": files.sha256_bytes(before),
        "outcome": "pass",
        "refused": False,
        "why": "",
    }
    assert home.paths.evaluation(CANDIDATE).verdict.read_bytes() == before


def leave_out(home: Home) -> None:
    for slot in home.protocol.slots:
        if slot.slot != "candidate/pair/sync-b4/r3":
            home.attempt(slot)


@pytest.mark.parametrize(("ratio", "code"), [(1.0, 3), (None, 4)])
def test_a_verdict_that_does_not_pass_refuses_retirement_and_keeps_the_refusal(
    tmp_path: Path, ratio: float | None, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    if ratio is not None:
        home = make(tmp_path, ratio)
    else:
        home = freeze(tmp_path / "home", ONE, solo=False, controls=False)
        freeze_candidate(home)
        leave_out(home)
    assert run(home, "report") == code
    assert run(home, *RETIRE) == code
    assert "REFUSED" in capsys.readouterr().out
    (act,) = decided(home)
    assert (act["refused"], act["outcome"]) == (True, "not_qualified")
    assert "the verdict is not qualified: " in act["why"]


def test_without_a_report_nothing_permits_retirement(tmp_path: Path) -> None:
    home = make(tmp_path)
    assert run(home, *RETIRE) == 4
    (act,) = decided(home)
    assert (act["refused"], act["outcome"], act["verdict_sha256"]) == (True, "", "")


def add_attempt(home: Home) -> None:
    home.attempt(home.slot("candidate/pair/sync-b4/r1"), 2)
    assert run(home, "collect") == 0


def end_attempt(home: Home) -> None:
    slot = home.slot("candidate/pair/sync-b4/r1")
    home.end(slot, 2, home.plan(slot, 2), Ending.LOST)


def plan_attempt(home: Home) -> None:
    home.plan(home.slot("candidate/pair/sync-b4/r1"), 2)


def amend(home: Home) -> None:
    words = [part for name in ("changed", "keep-reason", "by", "reason") for part in (f"--{name}", "text")]
    assert run(home, "amend", "--void", "*/pair/*", "--what", "platform", *words, "--yes") == 0


def damage(home: Home) -> None:
    home.folder("candidate/pair/sync-b4/r1").table("pairs.csv").write_bytes(b"")
    assert run(home, "collect") == 5


def withdraw(home: Home) -> None:
    damage(home)
    assert run(home, "report") == 5


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (add_attempt, "1 attempt(s) or segment(s) ended since"),
        (end_attempt, "1 attempt(s) or segment(s) ended since"),
        (plan_attempt, "1 attempt(s) are under way"),
        (amend, "amended since the last report"),
        (damage, "the last collection has findings"),
        (withdraw, "verdict.json is not there"),
    ],
)
def test_what_has_happened_since_the_report_refuses_retirement(
    passing: Home, change: Callable[[Home], None], why: str
) -> None:
    home = passing
    change(home)
    assert run(home, *RETIRE) == 4
    assert why in decided(home)[0]["why"]
    assert decided(home)[0]["outcome"] == "pass"


def test_a_new_report_permits_it_again(passing: Home) -> None:
    home = passing
    add_attempt(home)
    assert run(home, *RETIRE) == 4
    assert run(home, "report") == 0
    assert run(home, *RETIRE) == 0
    assert [act["refused"] for act in decided(home)] == [True, False]


def test_what_happens_to_another_candidate_changes_nothing(passing: Home) -> None:
    home = passing
    freeze_candidate(home, OTHER, "d" * 64)
    attempt_all(home, "candidate")
    run(home, "collect")
    assert run(home, *RETIRE, "--candidate", CANDIDATE) == 0
    assert run(home, *RETIRE) == 4  # the last one frozen, of which there is no report
    assert [act["candidate"] for act in decided(home)] == [CANDIDATE, OTHER]


def amend_as(what: str) -> Callable[[Home], None]:
    def change(home: Home) -> None:
        words = [part for name in ("changed", "keep-reason", "by", "reason") for part in (f"--{name}", "text")]
        assert run(home, "amend", "--void", f"{OTHER}/pair/*", "--what", what, *words, "--yes") == 0

    return change


@pytest.mark.parametrize(
    ("change", "code"), [(end_attempt, 0), (plan_attempt, 0), (amend_as("node"), 0), (amend_as("platform"), 4)]
)
def test_of_another_candidate_nothing_matters_but_another_platform(
    passing: Home, change: Callable[[Home], None], code: int
) -> None:
    home = passing
    freeze_candidate(home, OTHER, "d" * 64)
    attempt_all(home, "candidate")
    change(home)
    assert run(home, *RETIRE, "--candidate", CANDIDATE) == code


def test_findings_that_a_later_collection_has_no_more_refuse_nothing(passing: Home) -> None:
    home = passing
    path = home.folder("candidate/pair/sync-b4/r1").table("pairs.csv")
    before = path.read_bytes()
    damage(home)
    path.write_bytes(before)
    assert run(home, "collect") == 0
    assert run(home, *RETIRE) == 0


def test_a_verdict_of_which_the_ledger_says_something_else_permits_nothing(missed: Home) -> None:
    home = missed
    (said,) = [entry.data for entry in read_entries(home.paths) if entry.act == "reported"]
    home.append("reported", {**said, "outcome": "pass"})
    assert run(home, *RETIRE) == 5
    assert decided(home)[0]["why"] == "verdict.json says not_qualified, the ledger pass"


def test_a_verdict_that_was_edited_permits_nothing(missed: Home) -> None:
    home = missed
    path = home.paths.evaluation(CANDIDATE).verdict
    path.write_bytes(path.read_bytes().replace(b'"not_qualified"', b'"pass"'))
    assert run(home, *RETIRE) == 5
    assert "not the one that the last report named" in decided(home)[0]["why"]


@pytest.mark.parametrize("verdict", [b"", b"{}", b'{"format":"verdict/1"}'])
def test_what_is_no_verdict_permits_nothing(verdict: bytes) -> None:
    data = {"candidate": CANDIDATE, "verdict_sha256": files.sha256_bytes(verdict), "outcome": "pass"}
    entry = documents.Entry(seq=1, previous="", at=0.0, act="reported", data=data)
    found = standing([entry], CANDIDATE, verdict)
    assert found.objections
    assert found.exit_code is ExitCode.TAMPERED


# --- the default ------------------------------------------------------------------------------------------------------


def test_the_default_may_change_although_retirement_is_blocked(
    missed: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home = missed
    assert run(home, *DEFAULT) == 0
    out = capsys.readouterr().out
    assert "the default is candidate" in out
    assert "at that time: not qualified" in out
    assert f"campaign report --candidate {CANDIDATE}" in out
    assert (decided(home)[0]["refused"], decided(home)[0]["outcome"]) == (False, "not_qualified")
    assert run(home, "report") == 3


def test_the_default_may_go_back_before_there_is_a_candidate_and_not_to_one_that_is_not_there(tmp_path: Path) -> None:
    home = freeze(tmp_path / "home", ONE, solo=False)
    assert run(home, "decide", "--default", "baseline", *WHO) == 0
    assert run(home, *DEFAULT) == 2
    assert run(home, *RETIRE) == 2
    assert [(act["side"], act["candidate"]) for act in decided(home)] == [("baseline", "")]


def test_a_decision_may_follow_after_the_campaign_is_closed(passing: Home) -> None:
    home = passing
    home.append("closed", {})
    assert run(home, *RETIRE) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("--default", "candidate"),
        ("--default", "candidate", "--by", "me"),
        ("--retire", "baseline", "--reason", "why not"),
        ("--retire", "candidate", *WHO),
        ("--default", "baseline", "--retire", "baseline", *WHO),
        WHO,
        ("--default", "candidate", "--by", " ", "--reason", "x"),
    ],
)
def test_a_decision_says_who_what_and_why(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    home = make(tmp_path)
    assert run(home, "decide", *arguments) == 2
    assert decided(home) == []


def test_decisions_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = make(tmp_path)
    assert run(home, "decide") == 0
    assert capsys.readouterr().out == "nothing was decided\n"
    run(home, *DEFAULT)
    run(home, *RETIRE)
    capsys.readouterr()
    assert run(home, "decide", "--json") == 0
    found = json.loads(capsys.readouterr().out)["decisions"]
    assert [(one["kind"], one["refused"]) for one in found] == [("default", False), ("retire", True)]
    assert run(home, "decide") == 0
    assert "refused because there was no report" in capsys.readouterr().out


# --- the report -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("rendered")
def test_a_report_shows_decisions_beside_a_verdict_that_they_do_not_alter(tmp_path: Path) -> None:
    home = make(tmp_path, 1.0)
    assert run(home, "report") == 3
    evaluation = home.paths.evaluation(CANDIDATE)
    before = evaluation.verdict.read_bytes()
    assert "decisions-section" not in evaluation.page.read_text()
    run(home, *DEFAULT)
    run(home, *RETIRE)
    assert run(home, "report") == 3
    page = evaluation.page.read_text()
    assert evaluation.verdict.read_bytes() == before
    assert "The default is the candidate: A. Person, 2" in page
    assert "It was taken in view of this verdict (not qualified), and alters nothing of it." in page
    assert "Retiring the baseline was asked for and refused: A. Person" in page
    assert "Retiring the baseline is blocked" in page
    made = documents.Provenance.read(evaluation.provenance)
    assert [(one.kind, one.refused) for one in made.decisions] == [("default", False), ("retire", True)]
    bytes_before = evaluation.page.read_bytes()
    assert run(home, "report") == 3
    assert evaluation.page.read_bytes() == bytes_before
