"""The registry of freezes lists what was tried, survives what happens to files, and never ends a command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from campaign import files
from campaign.cli.main import main
from campaign.documents import ConvergenceRules, Manifest, RegisteredFreeze, RegistryState
from campaign.frozen import read_frozen
from campaign.paths import HomePaths
from campaign.record.registry import find_registry, known_against, read_registry, register
from tests.support.freezing import CONFIG, make_setting
from tests.support.home import CANDIDATE, SMALL, Home, attempt_all, freeze, freeze_candidate
from tests.support.runs import make_recipe

ROOT = Path(__file__).parents[3]
OTHER = "c" + "d" * 12


def clock() -> float:
    return 1_800_000_000.0


def make(root: Path, *, repeats: int = 1, candidate: str = "") -> Home:
    """Freeze a campaign; another number of repeats makes it another one."""
    home = freeze(root, SMALL[:1], repeats=repeats, solo=False, controls=False)
    if candidate:
        freeze_candidate(home, candidate, candidate[1] * 64)
    return home


def note(home: Home, candidate: str = "") -> str:
    return register(home.paths, candidate, os.environ, clock)


def known(home: Home, *own: str) -> RegistryState:
    return known_against(home.paths, read_frozen(home.paths), own, os.environ)


def only(state: RegistryState) -> RegisteredFreeze:
    (found,) = state.others
    return found


# --- where it lies ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"CAMPAIGN_REGISTRY": "/x/y.jsonl", "XDG_STATE_HOME": "/s", "HOME": "/h"}, "/x/y.jsonl"),
        ({"XDG_STATE_HOME": "/s", "HOME": "/h"}, "/s/campaign/registry.jsonl"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/h"}, "/h/.local/state/campaign/registry.jsonl"),
        ({"CAMPAIGN_REGISTRY": "", "XDG_STATE_HOME": "", "HOME": "/h"}, "/h/.local/state/campaign/registry.jsonl"),
    ],
)
def test_the_environment_says_where_the_registry_lies(environment: dict[str, str], expected: str) -> None:
    assert find_registry(environment) == Path(expected)


@pytest.mark.parametrize("environment", [{}, {"HOME": ""}, {"HOME": "here", "XDG_STATE_HOME": "there"}])
def test_without_a_place_nothing_is_written_and_both_ends_say_so(tmp_path: Path, environment: dict[str, str]) -> None:
    home = make(tmp_path / "home")
    assert "neither CAMPAIGN_REGISTRY nor XDG_STATE_HOME nor HOME" in register(home.paths, "", environment, clock)
    assert "neither CAMPAIGN_REGISTRY" in known_against(home.paths, read_frozen(home.paths), (), environment).problem


def test_the_tests_write_into_a_registry_of_their_own(registry: Path) -> None:
    assert find_registry(os.environ) == registry
    assert not registry.exists()


# --- writing ----------------------------------------------------------------------------------------------------------


def test_a_freeze_is_noted_with_its_digests(tmp_path: Path, registry: Path) -> None:
    home = make(tmp_path / "home", candidate=CANDIDATE)
    assert note(home) == ""
    assert note(home, CANDIDATE) == ""
    baseline, candidate = (json.loads(line) for line in registry.read_bytes().splitlines())
    assert baseline == {
        "format": "freeze/1",
        "campaign": "synthetic",
        "home": str(home.paths.root),
        "manifest_sha256": files.sha256_file(home.paths.manifest),
        "protocol_sha256": files.sha256_file(home.paths.protocol),
        "baseline_sha256": "b" * 64,
        "candidate": "",
        "candidate_sha256": "",
        "at": clock(),
    }
    assert candidate == {**baseline, "candidate": CANDIDATE, "candidate_sha256": "c" * 64}


def test_the_same_freeze_is_noted_once(tmp_path: Path, registry: Path) -> None:
    home = make(tmp_path / "home")
    note(home)
    register(home.paths, "", os.environ, lambda: clock() + 60)
    assert len(registry.read_bytes().splitlines()) == 1


def test_a_torn_line_costs_itself_alone(tmp_path: Path, registry: Path) -> None:
    home = make(tmp_path / "home", candidate=CANDIDATE)
    note(home)
    registry.write_bytes(registry.read_bytes() + b'{"format":"freeze/1","campaign":"x","ho')
    assert note(home, CANDIDATE) == ""
    contents = read_registry(registry)
    assert [record.candidate for record in contents.records] == ["", CANDIDATE]
    assert contents.damaged_lines == 1


@pytest.mark.parametrize(
    "line", [b"\xff\xfe", b"[]", b'{"format": "freeze/2"}', b'{"format": "freeze/1"}', b"\x00" * 9]
)
def test_lines_of_another_form_are_counted_and_left_alone(tmp_path: Path, registry: Path, line: bytes) -> None:
    registry.write_bytes(line + b"\n\n")
    home = make(tmp_path / "home")
    note(home)
    assert registry.read_bytes().startswith(line + b"\n\n{")
    assert known(home).damaged_lines == 1


def test_what_cannot_be_written_is_a_remark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make(tmp_path / "home")
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "below", tmp_path):
        monkeypatch.setenv("CAMPAIGN_REGISTRY", str(place))
        said = note(home)
        assert said.startswith("not noted in the registry of freezes (")
        assert str(place) in said


def test_processes_that_note_at_once_lose_no_line(tmp_path: Path, registry: Path) -> None:
    homes = [make(tmp_path / f"home-{index}", repeats=index + 1) for index in range(6)]
    program = (
        "import os, sys; from pathlib import Path; from campaign.paths import HomePaths\n"
        "from campaign.record.registry import register\n"
        "for name in sys.argv[1:]:\n"
        "    assert not register(HomePaths(Path(name)), '', os.environ, lambda: 1.0)\n"
    )
    names = [str(home.paths.root) for home in homes]
    running = [
        subprocess.Popen([sys.executable, "-c", program, *own], cwd=ROOT) for own in (names[:3], names[3:], names[::-1])
    ]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert sorted(record.home for record in read_registry(registry).records) == sorted(names)


# --- reading ----------------------------------------------------------------------------------------------------------


def test_a_registry_that_is_not_there_knows_nothing(tmp_path: Path, registry: Path) -> None:
    assert known(make(tmp_path / "home")) == RegistryState(path=str(registry))


def test_other_campaigns_against_the_same_baseline_are_known_with_their_last_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make(tmp_path / "other", repeats=2, candidate=OTHER)
    note(other)
    note(other, OTHER)
    home = make(tmp_path / "home", candidate=CANDIDATE)
    found = only(known(home, CANDIDATE))
    assert (found.home, found.candidate, found.state, found.outcome) == (str(other.paths.root), OTHER, "read", None)

    monkeypatch.setattr("reports.render.write_report", lambda **_: None)  # plots take seconds
    assert main(["report", "--home", str(other.paths.root)]) == 4
    assert only(known(home, CANDIDATE)).outcome == "not_qualified"


def test_the_own_candidates_are_left_to_the_ledger_wherever_the_home_was(tmp_path: Path) -> None:
    home = make(tmp_path / "home", candidate=CANDIDATE)
    note(home)
    note(home, CANDIDATE)
    copy = tmp_path / "copy"
    shutil.copytree(home.paths.root, copy)
    moved = Home(paths=type(home.paths)(copy), protocol=home.protocol)
    assert known(home, CANDIDATE).others == ()
    assert known(moved, CANDIDATE).others == ()
    # A copy that went its own way is another try.
    freeze_candidate(moved, OTHER, "d" * 64)
    note(moved, OTHER)
    assert only(known(home, CANDIDATE)).candidate == OTHER


def test_a_copy_that_goes_on_by_itself_is_another_try_of_the_same_candidate_and_one_that_was_kept_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reports.render.write_report", lambda **_: None)  # plots take seconds
    home = make(tmp_path / "home", candidate=CANDIDATE)
    note(home, CANDIDATE)
    copy = tmp_path / "copy"
    shutil.copytree(home.paths.root, copy)
    assert main(["report", "--home", str(copy)]) == 4
    assert known(home, CANDIDATE).others == ()
    assert main(["report", "--home", str(home.paths.root)]) == 4
    found = only(known(home, CANDIDATE))
    assert (found.home, found.candidate, found.outcome) == (str(copy), CANDIDATE, "not_qualified")


def test_another_baseline_is_another_question(tmp_path: Path, registry: Path) -> None:
    other = make(tmp_path / "other", repeats=2)
    note(other)
    line = registry.read_bytes()
    registry.write_bytes(line.replace(b"b" * 64, b"a" * 64))
    assert known(make(tmp_path / "home")).others == ()


def test_a_baseline_stands_for_its_campaign_until_a_candidate_does(tmp_path: Path) -> None:
    other = make(tmp_path / "other", repeats=2, candidate=OTHER)
    home = make(tmp_path / "home")
    note(other)
    assert only(known(home)).candidate == ""
    note(other, OTHER)
    assert only(known(home)).candidate == OTHER


def remove(home: Home) -> None:
    shutil.rmtree(home.paths.root)


def break_ledger(home: Home) -> None:
    data = home.paths.ledger.read_bytes()
    home.paths.ledger.write_bytes(data.replace(b'"seq":1', b'"seq":7', 1))


def report_nothing(home: Home) -> None:
    home.append("reported", {"candidate": CANDIDATE})


def remove_ledger(home: Home) -> None:
    home.paths.ledger.unlink()


def replace_home(home: Home) -> None:
    remove(home)
    make(home.paths.root, repeats=3)


def change_protocol(home: Home) -> None:
    home.paths.protocol.chmod(0o644)
    home.paths.protocol.write_bytes(home.paths.protocol.read_bytes() + b"\n")


@pytest.mark.parametrize(
    ("spoil", "state"),
    [
        (remove, "unreadable"),
        (break_ledger, "unreadable"),
        (remove_ledger, "unreadable"),
        (report_nothing, "unreadable"),
        (replace_home, "replaced"),
        (change_protocol, "replaced"),
    ],
)
def test_a_home_that_does_not_say_how_it_ended_stays_listed(
    tmp_path: Path, spoil: Callable[[Home], None], state: str
) -> None:
    other = make(tmp_path / "other", repeats=2, candidate=OTHER)
    note(other, OTHER)
    spoil(other)
    found = only(known(make(tmp_path / "home")))
    assert (found.candidate, found.state, found.outcome, found.recipes) == (OTHER, state, None, ())


def test_a_registry_that_cannot_be_read_is_a_problem_and_no_error(tmp_path: Path, registry: Path) -> None:
    registry.mkdir()
    state = known(make(tmp_path / "home"))
    assert state.others == ()
    assert str(registry) in state.problem


def test_the_recipes_of_another_home_are_known(tmp_path: Path) -> None:
    rules = ConvergenceRules(recipes=(make_recipe("sync"), make_recipe("packed4")))
    other = make(tmp_path / "other", repeats=2)
    protocol = other.protocol.replace(families=("throughput", "convergence"), convergence=rules)
    other.paths.protocol.write_bytes(protocol.to_bytes())
    manifest = other.manifest.replace(protocol_sha256=files.sha256_file(other.paths.protocol))
    other.paths.manifest.write_bytes(manifest.to_bytes())
    note(other)
    found = only(known(make(tmp_path / "home")))
    assert {own.name: own.config_sha256 for own in found.recipes} == {
        own.name: own.config_sha256 for own in rules.recipes
    }


# --- the commands -----------------------------------------------------------------------------------------------------


def test_freezing_notes_both_sides_once(
    tmp_path: Path, registry: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_setting(tmp_path).config_path.write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    assert main(["freeze", "campaign.toml", "--home", "home"]) == 0
    for _ in range(2):
        assert main(["freeze", "--candidate", "--home", "home"]) == 0
    assert "registry" not in capsys.readouterr().err
    baseline, candidate = read_registry(registry).records
    assert (baseline.candidate, candidate.candidate) == ("", f"c{candidate.candidate_sha256[:12]}")
    assert {own.home for own in (baseline, candidate)} == {str(tmp_path / "home")}


def test_the_same_campaign_frozen_again_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_setting(tmp_path).config_path.write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    for home in ("first", "second"):
        assert main(["freeze", "campaign.toml", "--home", home]) == 0
        assert main(["freeze", "--candidate", "--home", home]) == 0
    first, second = (HomePaths(tmp_path / home) for home in ("first", "second"))
    manifests = [Manifest.read(one.manifest) for one in (first, second)]
    assert len({one.freeze_id for one in manifests}) == 2
    assert {len(one.freeze_id) for one in manifests} == {32}
    (candidate,) = read_frozen(second).candidates
    found = only(known_against(second, read_frozen(second), [candidate], os.environ))
    assert (found.home, found.candidate, found.state) == (str(first.root), candidate, "read")
    # The first one's folder is used again: what was there is listed, although nobody can tell how it ended.
    shutil.rmtree(first.root)
    assert main(["freeze", "campaign.toml", "--home", "first"]) == 0
    others = known_against(second, read_frozen(second), [candidate], os.environ).others
    assert {one.candidate: one.state for one in others} == {candidate: "replaced", "": "read"}


def test_a_freeze_succeeds_though_it_cannot_be_noted(
    tmp_path: Path, registry: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_setting(tmp_path).config_path.write_text(CONFIG)
    registry.mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["freeze", "campaign.toml", "--home", "home"]) == 0
    assert f"note: not noted in the registry of freezes ({registry}" in capsys.readouterr().err


def test_a_report_carries_what_the_registry_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reports.render.write_report", lambda **_: None)  # plots take seconds
    other = make(tmp_path / "other", repeats=2, candidate=OTHER)
    note(other, OTHER)
    home = make(tmp_path / "home", candidate=CANDIDATE)
    assert main(["report", "--home", str(home.paths.root)]) == 4
    provenance = json.loads(home.paths.evaluation(CANDIDATE).provenance.read_bytes())
    (known_other,) = provenance["registry"]["others"]
    assert known_other["candidate"] == OTHER


def test_a_report_on_the_third_candidate_says_that_the_first_two_were_not_qualified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("reports.render.write_report", lambda **_: None)  # plots take seconds
    first = make(tmp_path / "first", repeats=2, candidate=OTHER)
    # The synthetic ledgers count their lines in seconds from 2027 on.
    register(first.paths, OTHER, os.environ, lambda: 1.0)
    assert main(["report", "--home", str(first.paths.root)]) == 4
    home = make(tmp_path / "home", candidate=CANDIDATE)
    assert main(["report", "--home", str(home.paths.root)]) == 4
    freeze_candidate(home, "c" + "e" * 12, "e" * 64)
    capsys.readouterr()
    assert main(["report", "--home", str(home.paths.root)]) == 4
    said = "Candidate 3 of 3 against this baseline; 1 and 2: not qualified."
    assert said in capsys.readouterr().out.splitlines()
    assert main(["report", "--home", str(home.paths.root), "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["candidates"] == said


def test_a_report_says_that_the_registry_could_not_be_read(
    tmp_path: Path, registry: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("reports.render.write_report", lambda **_: None)  # plots take seconds
    home = make(tmp_path / "home", candidate=CANDIDATE)
    attempt_all(home, "baseline")
    registry.mkdir()
    assert main(["report", "--home", str(home.paths.root)]) == 4
    assert "note: the registry of freezes was not read:" in capsys.readouterr().err
