"""Tampering with copies: everything is caught, and a verification with a hole is told from one without."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from campaign import files
from campaign.cli import selftest_tamper
from campaign.cli.main import main
from campaign.judging.report import report
from campaign.paths import HomePaths
from campaign.record.ledger import Ledger
from campaign.tampering import mutations, selftest
from campaign.tampering.copies import Copy, copy_home, link_home
from campaign.tampering.mutations import MUTATIONS, Mutation
from campaign.verifier import verify
from tests.support.golden import LATEST, head_of, home_of

SOME = tuple(
    mutation
    for mutation in MUTATIONS
    if (mutation.group, mutation.what)
    in {
        ("attempts", "one digit of a table, times put back"),
        ("ledger", "its last line dropped"),
        ("evaluation", "a row of the evidence dropped"),
        ("runs", "one bit of a checkpoint"),
    }
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> HomePaths:
    return HomePaths(home_of(LATEST, tmp_path_factory.mktemp("tampering")))


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(selftest, "MUTATIONS", SOME)
    monkeypatch.setenv("CAMPAIGN_REGISTRY", str(tmp_path / "registry.jsonl"))


def run(home: HomePaths, scratch: Path) -> selftest.SelfTest:
    return selftest.run(home, environment=os.environ, clock=time.time, scratch=scratch)


def write_later(copy: Copy, _environment: Mapping[str, str], _clock: Callable[[], float]) -> None:
    """Close the campaign a second later: a rewrite that costs nothing."""
    copy.edit_ledger(lambda acts: acts[-1].update(at=acts[-1]["at"] + 1))


def test_there_is_a_mutation_for_every_kind_of_thing_and_none_twice() -> None:
    named = [(one.group, one.what) for one in MUTATIONS]
    assert len(SOME) == 4
    assert len(named) == len(set(named)) >= 80


def test_what_is_tampered_with_is_caught_and_the_home_is_left_alone(home: HomePaths, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in sorted(home.root.rglob("*"))}
    done = run(home, tmp_path)
    assert [(one.group, one.is_tried, one.is_caught) for one in done.trials] == [
        ("none", True, False),
        ("ledger", True, True),
        ("attempts", True, True),
        ("runs", True, True),
        ("evaluation", True, True),
        ("residual", True, False),
        ("residual", True, True),
        ("residual", True, False),
        ("residual", True, True),
    ]
    assert [one.what for one in done.trials if one.group == "residual" and one.is_residual] == [
        f"{what}; no head line at hand" for what in (selftest.REWRITE, selftest.CUT)
    ]
    assert done.surprises == ()
    assert {path: path.stat().st_mtime_ns for path in sorted(home.root.rglob("*"))} == before
    assert [path.name for path in tmp_path.iterdir()] == []  # no copy stays, and none stands in the registry


def test_a_verification_with_a_hole_is_told(home: HomePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "write_again", write_later)
    seeing = ("home", "frozen", "ledger", "order", "matrix")
    monkeypatch.setattr(verify, "STEPS", tuple(step for step in verify.STEPS if step.name in seeing))
    holes = run(home, tmp_path).surprises
    assert [(one.group, one.is_caught) for one in holes] == [
        ("attempts", False),
        ("runs", False),
        ("evaluation", False),
    ]


def test_a_verification_that_cries_wolf_is_told(
    home: HomePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selftest, "write_again", write_later)
    monkeypatch.setattr(selftest, "MUTATIONS", ())
    wolf = verify.Step("wolf", "nothing", lambda _facts, check: check.tampered("here", "a wolf"), needs=False)
    monkeypatch.setattr(verify, "STEPS", (*verify.STEPS, wolf))
    assert [one.group for one in run(home, tmp_path).surprises] == ["none", "residual", "residual"]


# --- what could not be tried ------------------------------------------------------------------------------------------


def attempted(home: HomePaths, apply: Callable[[Copy], None]) -> selftest.Trial:
    return selftest._try(Mutation(group="made", what="up", apply=apply), Copy(home), "")


@pytest.mark.parametrize(
    "apply",
    [
        lambda copy: copy.flip(copy.paths.accounting / "1.txt"),
        lambda copy: copy.remove(copy.root / "nothing"),
        lambda copy: copy.move(copy.root / "nothing", copy.root / "something"),
        lambda copy: copy.substitute(copy.paths.protocol, b"no such bytes", b""),
        lambda _copy: mutations._places([{"act": "closed"}], "intent"),
    ],
)
def test_what_the_campaign_lacks_is_nothing_to_try_it_on(home: HomePaths, apply: Callable[[Copy], None]) -> None:
    trial = attempted(home, apply)
    assert (trial.is_tried, trial.fault, trial.is_as_expected) == (False, "", True)


@pytest.mark.parametrize(
    ("apply", "fault"),
    [
        (lambda copy: copy.edit_json(copy.paths.protocol, lambda value: value["no such field"]), "KeyError"),
        (lambda copy: copy.edit_lines(copy.paths.ledger, lambda lines: lines[1 << 20]), "IndexError"),
        (lambda copy: (copy.root / "nothing").read_bytes(), "FileNotFoundError"),
        (lambda copy: copy.add(copy.paths.protocol), "FileExistsError"),
        (lambda _copy: next(iter(())), "StopIteration"),
    ],
)
def test_a_mutation_that_fails_itself_is_a_surprise_and_not_passed_over(
    home: HomePaths, apply: Callable[[Copy], None], fault: str
) -> None:
    trial = attempted(home, apply)
    assert (trial.is_tried, trial.is_as_expected) == (False, False)
    assert trial.fault.startswith(f"{fault}: ")


def test_a_mutation_that_fails_itself_ends_the_command_with_1(
    home: HomePaths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = attempted(home, lambda copy: copy.edit_json(copy.paths.protocol, lambda value: value["field"]))
    monkeypatch.setattr(selftest_tamper, "run", lambda *_args, **_named: selftest.SelfTest(trials=(trial,)))
    assert main(["selftest-tamper", "--home", str(home.root), "--json"]) == 1
    said = json.loads(capsys.readouterr().out.splitlines()[0])
    assert said["surprises"] == 1
    assert said["trials"][0]["fault"] == "KeyError: 'field'"
    assert main(["selftest-tamper", "--home", str(home.root)]) == 1
    assert "IT FAILED ITSELF: KeyError: 'field'" in capsys.readouterr().out


# --- the scheduler's accounting ---------------------------------------------------------------------------------------


def made_again(home: HomePaths, target: Path) -> Copy:
    """Return a copy in which this release may report: the cache may be another one's."""
    copy_home(home.root, target)
    copy = Copy(HomePaths(target))
    copy.remove(copy.paths.database)
    return copy


def test_the_accounting_of_a_campaign_that_has_some_is_tampered_with_and_caught(
    home: HomePaths, tmp_path: Path
) -> None:
    copy = made_again(home, tmp_path / "accounted")
    selftest.cut_short(copy, {}, time.time)
    data = b"JobID|JobIDRaw|Cluster|JobName|User|State|ExitCode|Submit|Start|End|NodeList\n"
    copy.add(copy.paths.accounting / "1.txt", data)
    with Ledger.open(copy.paths, time.time) as ledger:
        kept = {"file": "accounting/1.txt", "sha256": files.sha256_bytes(data), "bytes": len(data)}
        ledger.append("accounted", {"cluster": "c", **kept, "jobs": 0, "since": 0.0})
    head = selftest.prepare(copy.paths, os.environ, time.time)
    assert not selftest._look(copy.root, head, group="", what="").is_caught
    (mutation,) = (one for one in MUTATIONS if one.what == "the scheduler's accounting")
    trial = selftest._try(mutation, copy, head)
    assert (trial.is_tried, trial.is_caught, trial.check) == (True, True, "accounting")
    assert trial.finding.startswith("accounting/1.txt: ")


def test_a_closing_is_taken_away_with_what_was_reported_after_it(home: HomePaths, tmp_path: Path) -> None:
    copy = made_again(home, tmp_path / "later")
    (candidate,) = (path.name for path in copy.paths.candidates.iterdir())
    with Ledger.open(copy.paths, time.time) as ledger:
        report(copy.paths, ledger, candidate=candidate, environment=os.environ)
    selftest.cut_short(copy, os.environ, time.time)
    acts = [json.loads(line)["act"] for line in copy.paths.ledger.read_bytes().splitlines()]
    assert (acts[-1], "closed" in acts, copy.paths.seal.exists()) == ("reported", False, False)
    assert not selftest._look(copy.root, "", group="", what="").is_caught
    assert selftest._look(copy.root, head_of(LATEST), group="", what="").is_caught


def test_a_change_reaches_no_other_copy_and_shows_neither_in_mode_nor_in_times(home: HomePaths, tmp_path: Path) -> None:
    copy_home(home.root, tmp_path / "reference")
    link_home(tmp_path / "reference", tmp_path / "copy")
    copy = Copy(HomePaths(tmp_path / "copy"))
    before = copy.paths.protocol.stat()
    copy.flip(copy.paths.protocol)
    after = copy.paths.protocol.stat()
    assert (after.st_mode, after.st_mtime_ns, after.st_size) == (before.st_mode, before.st_mtime_ns, before.st_size)
    assert files.sha256_file(copy.paths.protocol) != files.sha256_file(home.protocol)
    assert (tmp_path / "reference" / "protocol.json").read_bytes() == home.protocol.read_bytes()
