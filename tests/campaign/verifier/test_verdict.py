from __future__ import annotations

import json
import re
import resource
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from campaign import files
from campaign.record.ledger import read_entries
from campaign.verifier import child, evidence, execution, verdict
from campaign.verifier.facts import Facts
from campaign.verifier.findings import Check, Finding, State
from tests.campaign.verifier import judged
from tests.support.home import CANDIDATE, Case, Home, build_home, tree_digest

CASES = (Case(name="sync-b4", category="sync"),)


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Home:
    made = build_home(tmp_path_factory.mktemp("reported") / "home", CASES, repeats=1, solo=False)
    assert judged.report(made) == 0
    return made


@pytest.fixture
def home(reported: Home, tmp_path: Path) -> Home:
    shutil.copytree(reported.paths.root, tmp_path / "home")
    return Home(paths=type(reported.paths)(tmp_path / "home"), protocol=reported.protocol, allocations=900)


def derive(home: Home, *, is_tampered: bool = False, timeout_s: float = 60.0, **options: bool) -> tuple[Check, Facts]:
    check = Check(name="verdict", title="")
    with judged.knowing(home.paths.root, **options) as facts:
        evidence.check(facts, Check(name="evidence", title=""))
        with check.each():
            verdict.check(facts, check, is_tampered=is_tampered, timeout_s=timeout_s)
    return check, facts


def only(check: Check) -> Finding:
    (found,) = check.findings
    return found


def act(home: Home, edit: Callable[[dict[str, object]], None]) -> None:
    """Edit the last act of the ledger, a report."""
    lines = home.paths.ledger.read_bytes().splitlines()
    last = json.loads(lines[-1])
    assert last["act"] == "reported"
    edit(last["data"])
    home.paths.ledger.write_bytes(b"\n".join([*lines[:-1], json.dumps(last).encode(), b""]))


def replace_program(home: Home, source: str) -> None:
    """Put another program in acceptance's place, as if it had been frozen so."""
    for path in home.paths.acceptance.iterdir():
        path.unlink()
    (home.paths.acceptance / "__init__.py").write_text("")
    (home.paths.acceptance / "__main__.py").write_text(source)
    sha256 = tree_digest(home.paths.acceptance)
    home.paths.manifest.write_bytes(home.manifest.replace(acceptance_sha256=sha256).to_bytes())


def report_as(home: Home, printed: bytes) -> None:
    """Let the ledger and verdict.json say what some program prints, about the evidence as it is under this manifest."""
    path = home.paths.evaluation(CANDIDATE).verdict
    path.write_bytes(printed)
    with judged.knowing(home.paths.root) as facts:
        evidence.check(facts, Check(name="evidence", title=""))
        sha256 = evidence.rebuilt(facts)[CANDIDATE].sha256
    act(home, lambda data: data.update(verdict_sha256=files.sha256_bytes(printed), evidence_sha256=sha256))


def test_the_verdict_is_derived_again_byte_for_byte(home: Home) -> None:
    check, facts = derive(home)
    assert (check.state, check.findings, check.remarks) == (State.INTACT, [], [])
    assert facts.verdicts == {CANDIDATE: home.paths.evaluation(CANDIDATE).verdict.read_bytes()}


def test_nothing_runs_where_something_was_found_or_where_it_was_not_asked_for(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a program was run")

    monkeypatch.setattr(execution, "run_all", refuse)
    for check, facts in (derive(home, is_tampered=True), derive(home, execute=False)):
        assert (check.state, check.findings, facts.verdicts) == (State.NOT_CHECKED, [], {})
        assert check.remarks
        assert facts.underived == []


def test_an_edited_verdict_is_found_without_running_anything(home: Home) -> None:
    path = home.paths.evaluation(CANDIDATE).verdict
    path.write_bytes(path.read_bytes().replace(b'"pass"', b'"Pass"', 1))
    found = only(derive(home, execute=False)[0])
    assert (found.state, found.where) == (State.TAMPERED, f"evaluations/{CANDIDATE}/verdict.json")


def test_a_verdict_that_the_evidence_does_not_give_is_found_although_the_ledger_names_it(home: Home) -> None:
    path = home.paths.evaluation(CANDIDATE).verdict
    forged = path.read_bytes().replace(b"1.1", b"1.3")
    path.write_bytes(forged)
    act(home, lambda data: data.update(verdict_sha256=files.sha256_bytes(forged)))
    check, facts = derive(home)
    assert only(check).state is State.TAMPERED
    assert "the frozen acceptance gives" in only(check).what
    assert facts.verdicts == {}


def test_an_outcome_that_only_the_ledger_has_is_found(home: Home) -> None:
    act(home, lambda data: data.update(outcome="not_qualified"))
    check, facts = derive(home)
    assert "the outcome is pass" in only(check).what
    assert facts.verdicts == {}


def test_a_verdict_that_is_gone_is_incomplete_and_after_closing_a_finding(home: Home) -> None:
    home.paths.evaluation(CANDIDATE).verdict.unlink()
    check, facts = derive(home)
    assert (only(check).state, set(facts.verdicts)) == (State.INCOMPLETE, {CANDIDATE})
    home.append("closed", {})
    assert only(derive(home, execute=False)[0]).state is State.TAMPERED


def test_a_home_without_a_report_has_no_verdict(tmp_path: Path) -> None:
    check, facts = derive(build_home(tmp_path / "home", CASES, repeats=1, solo=False))
    assert (only(check).state, facts.verdicts, facts.underived) == (State.INCOMPLETE, {}, [])


def test_another_program_than_the_frozen_one_does_not_run(home: Home) -> None:
    (home.paths.acceptance / "gates.py").write_text("raise SystemExit(0)\n")
    check, facts = derive(home)
    assert (only(check).state, only(check).where) == (State.TAMPERED, "frozen/acceptance")
    assert facts.verdicts == {}


def test_the_two_runs_differ_in_all_that_must_not_matter() -> None:
    first, second = (execution._environment(setting, {"PYTHONPATH": "elsewhere"}) for setting in execution.SETTINGS)
    assert first.keys() == second.keys()
    assert {name for name in first if first[name] != second[name]} == {"PYTHONHASHSEED", "TZ", "LC_ALL"}
    assert "PYTHONPATH" not in first


@pytest.mark.parametrize(("most", "hard", "own"), [(5, resource.RLIM_INFINITY, 5), (5, 3, 3), (3, 5, 3)])
def test_a_limit_of_a_run_is_what_was_asked_for_or_lower(
    monkeypatch: pytest.MonkeyPatch, most: int, hard: int, own: int
) -> None:
    made: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (hard, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: made.append((kind, limits)))
    child.limit({"RLIMIT_AS": most})
    assert made == [(resource.RLIMIT_AS, (own, own))]


VARYING = {
    "hash seed": "str(hash('a'))",
    "time zone": "time.strftime('%Z %z')",
    "order of rows": "pathlib.Path(sys.argv[2], 'attempts.csv').read_text()",
}


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(value, id=name, marks=() if name == "order of rows" else pytest.mark.slow)
        for name, value in VARYING.items()
    ],
)
def test_a_program_whose_verdict_depends_on_what_must_not_matter_is_found(home: Home, value: str) -> None:
    replace_program(home, f"import pathlib, sys, time\nprint({value})\n")
    report_as(home, b"1\n")
    check, _ = derive(home)
    assert only(check).state is State.TAMPERED
    assert "another verdict with another hash seed" in only(check).what


HANGS = "import time\ntime.sleep(600)\n"
EATS = "a = []\nwhile True:\n    a.append(bytearray(1 << 28))\n"
FLOODS = "import sys\nwhile True:\n    sys.stdout.write('x' * (1 << 20))\n"
FORKS = "import os, time\nif os.fork() == 0:\n    time.sleep(600)\ntime.sleep(600)\n"
RAISES = "raise RuntimeError('something odd')\n"
SAYS_WHERE = "import os, sys\nprint(sorted(os.environ), file=sys.stderr)\nsys.exit(9)\n"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (HANGS, "took more than"),
        pytest.param(FORKS, "took more than", marks=pytest.mark.slow),
        pytest.param(EATS, "ended with 1: .*MemoryError", marks=pytest.mark.slow),
        pytest.param(FLOODS, "ended with 1: .*File too large", marks=pytest.mark.slow),
        (RAISES, "something odd"),
        (
            SAYS_WHERE,
            r"\['LC_ALL', (.'LC_CTYPE', )?'OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'PATH', 'PYTHONHASHSEED', 'TZ'\]",
        ),
    ],
    ids=["hangs", "forks", "eats memory", "floods", "raises", "sees no environment"],
)
def test_a_program_that_gives_no_verdict_leaves_the_reported_one_underived_and_ends(
    home: Home, monkeypatch: pytest.MonkeyPatch, source: str, why: str
) -> None:
    monkeypatch.setenv("SECRET", "1")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(execution, "MEMORY_BYTES", 1 << 30)
    monkeypatch.setattr(execution, "OUTPUT_BYTES", 1 << 22)
    replace_program(home, source)
    report_as(home, b"1\n")
    check, facts = derive(home, timeout_s=1.0 if "took" in why else 60.0)
    found = only(check)
    assert (check.state, facts.verdicts, facts.underived) == (State.INCOMPLETE, {}, [CANDIDATE])
    assert found.where == f"evaluations/{CANDIDATE}/verdict.json"
    assert found.what.startswith("a verdict was reported, and could not be derived again: the acceptance program ")
    assert re.search(why, found.what, re.DOTALL), found.what


def test_evidence_that_does_not_parse_is_a_finding(home: Home) -> None:
    replace_program(home, "import sys\nsys.stderr.write('pairs.csv:2: is no number')\nsys.exit(5)\n")
    report_as(home, b"")
    check, _ = derive(home)
    assert "pairs.csv:2: is no number" in only(check).what
    assert only(check).state is State.TAMPERED


def test_a_verdict_must_agree_with_the_exit_code_and_the_digests(home: Home) -> None:
    real = json.loads(home.paths.evaluation(CANDIDATE).verdict.read_bytes())
    replace_program(home, f"import sys\nprint({json.dumps(real)!r})\nsys.exit(3)\n")
    report_as(home, json.dumps(real).encode() + b"\n")
    check, facts = derive(home)
    reasons = [found.what for found in check.findings]
    assert [reason.split(" is ")[0] for reason in reasons] == [
        "its manifest_sha256",
        "its acceptance_sha256",
        "its evidence_sha256",
        "the outcome",
    ]
    assert facts.verdicts == {}


def test_an_interpreter_that_is_not_there_derives_no_verdict(home: Home) -> None:
    check = Check(name="verdict", title="")
    with judged.knowing(home.paths.root, python="/nowhere/python") as facts:
        evidence.check(facts, Check(name="evidence", title=""))
        partial(verdict.check, is_tampered=False)(facts, check)
    assert (only(check).state, facts.underived) == (State.INCOMPLETE, [CANDIDATE])
    assert "cannot be started: /nowhere/python" in only(check).what


def test_two_verdicts_on_the_same_evidence_are_found(home: Home) -> None:
    (last,) = (dict(entry.data) for entry in read_entries(home.paths) if entry.act == "reported")
    home.append("reported", last | {"verdict_sha256": "0" * 64, "outcome": "pass"})
    home.append("reported", last)
    check, facts = derive(home)
    assert "an earlier report on the same evidence" in check.findings[0].what
    assert facts.verdicts == {}


def test_a_decision_by_an_earlier_report_is_said(home: Home) -> None:
    (last,) = (dict(entry.data) for entry in read_entries(home.paths) if entry.act == "reported")
    earlier = last | {"verdict_sha256": "0" * 64, "evidence_sha256": "1" * 64, "outcome": "pass"}
    home.append("reported", earlier)
    home.append("decided", {"candidate": last["candidate"], "verdict_sha256": "0" * 64, "outcome": "pass"})
    home.append("reported", last)
    check, _ = derive(home)
    assert check.state is State.NOT_CHECKED
    assert any("decides by an earlier report" in remark for remark in check.remarks)
