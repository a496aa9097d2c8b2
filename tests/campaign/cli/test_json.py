"""What every command has in common: ``-h``, ``--json``, and its options' twins in the environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from campaign.cli.main import COMMANDS, cli, main
from tests.support.freezing import CONFIG, make_setting
from tests.support.home import SMALL, freeze, freeze_candidate
from tests.support.large import freeze_whole

ARGUMENTS: dict[str, tuple[tuple[str, ...], int]] = {
    "init": (("NEW/folder",), 0),
    "plan": (("NEW/campaign.toml",), 0),
    "schema": ((), 0),
    "freeze": (("NEW/campaign.toml", "--home", "NEW/home"), 0),
    "submit": (("--home", "HOME", "--cluster", "local", "--only", "nothing"), 0),
    "status": (("--home", "HOME"), 0),
    "show": (("--home", "HOME", "baseline/solo/sync-b4/r1"), 0),
    "cancel": (("--home", "HOME", "--yes"), 0),
    "amend": (("--home", "HOME", "--list"), 0),
    "unlock": (("--home", "HOME", "--reason", "to be sure"), 0),
    "collect": (("--home", "HOME"), 0),
    "report": (("--home", "JUDGED"), 4),
    "decide": (("--home", "HOME"), 0),
    "check-deployed": (("NEW", "--home", "HOME", "--side", "baseline"), 3),
    "seal": (("--home", "CLOSED"), 0),
    "prune": (("--home", "HOME"), 0),
    "export": (("--home", "CLOSED", "--out", "NEW/a.tar"), 0),
    "extract": (("ARCHIVE", "NEW/unpacked"), 0),
    "selftest-tamper": (("--home", "HOME"), 0),
    "verify": (("--home", "HOME", "--no-execute"), 0),
    "fallback": (("--home", "HOME"), 2),
    "rerun": (("--home", "HOME", "baseline/solo/sync-4/r1"), 2),
    "doctor": (("--home", "HOME"), 0),
    "bundle write": (("--home", "HOME", "NEW/bundle", "--only", "nothing"), 0),
    "bundle ingest": (("--home", "HOME", "NEW/nothing"), 2),
    "bundle abandon": (("--home", "HOME", "0123", "--reason", "gone"), 2),
}
"""Arguments for each command, and the exit code: a home without evidence is wanting, and has nothing to run again."""
NOT_FROM_THE_ENVIRONMENT = {
    "submit --yes",
    "submit --dry-run",
    "submit --wait",
    "cancel --yes",
    "amend --yes",
    "prune --yes",
    "report --exit-zero",
    "bundle write --with-data",
    "bundle write --without-inputs",
    "bundle abandon --yes",
}
"""Options that say yes for a person, or hide something: they are meant for one command line only."""


def get(name: str) -> click.Command:
    """Return a command, or one of a group's, by its words."""
    command: click.Command | None = cli
    for word in name.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None
    return command


def _every() -> list[str]:
    """Return the words of every command that does something."""
    found: list[str] = []
    for name in COMMANDS:
        command = get(name)
        own = command.list_commands(click.Context(command)) if isinstance(command, click.Group) else []
        found += [f"{name} {word}" for word in own] or [name]
    return found


EVERY = _every()


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the homes that the commands look at."""
    setting = make_setting(tmp_path_factory.mktemp("homes"))
    setting.config_path.write_text(CONFIG)
    assert main(["freeze", str(setting.config_path), "--home", str(setting.root / "home")]) == 0
    judged = freeze(setting.root / "judged", solo=False, controls=False)
    freeze_candidate(judged)
    closed = setting.root / "closed"
    freeze_whole(closed, SMALL, solo=False, controls=False)
    assert main(["export", "--home", str(closed), "--out", str(setting.root / "archive")]) == 0
    return setting.root


@pytest.mark.parametrize("name", EVERY)
def test_each_command_has_json_and_a_short_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--json" in [option for parameter in get(name).params for option in parameter.opts]
    for option in ("-h", "--help"):
        assert main([*name.split(), option]) == 0
        assert capsys.readouterr().out.startswith(f"Usage: campaign {name} ")


@pytest.mark.parametrize("name", EVERY)
def test_each_commands_json_is_one_value_on_stdout(
    name: str, frozen: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reports.render.write_report", lambda **_: None)  # plots take seconds
    make_setting(tmp_path).config_path.write_text(CONFIG)
    given, code = ARGUMENTS[name]
    places = {
        "NEW": str(tmp_path),
        **{name: str(frozen / name.lower()) for name in ("HOME", "JUDGED", "CLOSED", "ARCHIVE")},
    }
    arguments = ["/".join([places.get(head, head), *rest]) for head, *rest in (one.split("/") for one in given)]
    assert main([*name.split(), *arguments, "--json"]) == code
    assert isinstance(json.loads(capsys.readouterr().out), dict)


def twins(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return each option of a command with what it takes from its variable in the environment."""
    context = click.Context(cli, info_name="campaign", auto_envvar_prefix="CAMPAIGN")
    words = name.split()
    for depth, word in enumerate(words, start=1):
        context = click.Context(get(" ".join(words[:depth])), info_name=word, parent=context)
    options = [one for one in get(name).params if isinstance(one, click.Option)]
    found = {}
    for option in options:
        monkeypatch.setenv(
            f"CAMPAIGN_{name.upper().replace('-', '_').replace(' ', '_')}_{(option.name or '').upper()}", "1"
        )
        found[f"{name} {option.opts[0]}"] = option.resolve_envvar_value(context)
    return found


@pytest.mark.parametrize("name", EVERY)
def test_only_options_that_confirm_or_hide_have_no_twin_in_the_environment(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAMPAIGN_HOME", "1")
    without = {option for option, value in twins(name, monkeypatch).items() if value != "1"}
    assert without == {option for option in NOT_FROM_THE_ENVIRONMENT if option.rpartition(" --")[0] == name}


def test_an_error_is_json_as_well_where_the_environment_asked_for_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAMPAIGN_PLAN_OUTPUT", "1")
    assert main(["plan", str(tmp_path / "none.toml")]) == 2
    assert json.loads(capsys.readouterr().out)["exit_code"] == 2
