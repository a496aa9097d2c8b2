"""The root command."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from campaign.cli.main import COMMANDS, cli, main


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_of_each_command_what_its_own_help_says(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert COMMANDS[name].summary == command.get_short_help_str(limit=1000)


def test_help_lists_every_command_and_imports_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:")[2].splitlines()
    assert [line.split()[0] for line in listed if line.startswith("  ") and line[2] != " "] == list(COMMANDS)
    code = (
        "import sys; from campaign.cli.main import COMMANDS, main; main(['--help']);"
        "print([entry.module for entry in COMMANDS.values() if entry.module in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge"]) == 2
    assert "judge" in capsys.readouterr().err
