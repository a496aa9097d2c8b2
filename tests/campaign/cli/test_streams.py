"""Streams that cannot be written, refusals of the operating system, and interruption."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from campaign.cli import schema
from campaign.cli.main import main
from campaign.cli.output import Output

ENDS_WITH_3 = """
import sys
from campaign.cli import schema
from campaign.cli.main import main
def answer(output):
    output.note("a note")
    output.result("x" * 100000, {"x": "y" * 100000})
    return 3
schema.command.callback = answer
sys.exit(main(sys.argv[1:]))
"""
FULL = Path("/dev/full")


def run(*arguments: str, stdout: int, stderr: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    """Run a command that prints much and ends with 3, if the arguments name it."""
    command = [sys.executable, "-c", ENDS_WITH_3, *arguments]
    return subprocess.run(command, stdout=stdout, stderr=stderr, text=True, check=False)


@pytest.fixture
def closed_pipe() -> int:
    """Return a pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.parametrize("option", ["--json", None])
def test_a_reader_that_has_gone_leaves_the_commands_own_exit_code(closed_pipe: int, option: str | None) -> None:
    done = run("schema", *([option] if option else []), stdout=closed_pipe)
    assert (done.returncode, done.stderr) == (3, "a note\n")


def test_a_reader_of_the_notes_that_has_gone_takes_nothing_from_the_result(closed_pipe: int) -> None:
    done = run("schema", "--json", stdout=subprocess.PIPE, stderr=closed_pipe)
    assert done.returncode == 3
    assert json.loads(done.stdout)["x"]


def test_an_error_keeps_its_exit_code_though_the_reader_has_gone(closed_pipe: int) -> None:
    done = run("plan", "/nonexistent/campaign.toml", "--json", stdout=closed_pipe)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("plan", "--help")])
def test_help_for_a_reader_that_has_gone_is_no_error(closed_pipe: int, arguments: tuple[str, ...]) -> None:
    done = run(*arguments, stdout=closed_pipe)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not FULL.exists(), reason="/dev/full is Linux's")
@pytest.mark.parametrize("option", ["--json", None])
def test_a_result_that_cannot_be_written_is_exit_6_and_no_traceback(option: str | None) -> None:
    with FULL.open("w") as full:
        done = run("schema", *([option] if option else []), stdout=full.fileno())
    assert done.returncode == 6
    assert "standard output: cannot be written: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def refuse(**_: Output) -> None:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), "/home/ledger.jsonl")


def stop(**_: Output) -> None:
    raise KeyboardInterrupt


def break_inner_pipe(**_: Output) -> None:
    raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def outcome(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    does: Callable[..., None],
    *arguments: str,
) -> tuple[int, str, str]:
    with monkeypatch.context() as patch:  # click wraps the streams where a pipe breaks
        patch.setattr(sys, "stdout", sys.stdout)
        patch.setattr(sys, "stderr", sys.stderr)
        patch.setattr(schema.command, "callback", does)
        code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_refusal_of_the_operating_system_is_exit_6_with_the_file_and_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = outcome(monkeypatch, capsys, refuse, "schema", "--json")
    assert code == 6
    assert err.startswith("/home/ledger.jsonl: ")
    assert "Read-only file system" in err
    assert "Traceback" not in err
    value: Any = json.loads(out)
    assert (value["exit_code"], value["error"]["where"]) == (6, "/home/ledger.jsonl")


def test_debug_shows_the_traceback_of_a_refusal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = outcome(monkeypatch, capsys, refuse, "--debug", "schema")
    assert code == 6
    assert "Traceback" in err


def test_a_pipe_that_breaks_inside_a_command_is_exit_6(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = outcome(monkeypatch, capsys, break_inner_pipe, "schema")
    assert code == 6
    assert "closed at its other end" in err


def test_an_interrupted_command_prints_one_json_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = outcome(monkeypatch, capsys, stop, "schema", "--json")
    assert code == 130
    assert json.loads(out) == {"error": {"what": "interrupted"}, "exit_code": 130}
    assert "interrupted" in err


def test_what_a_side_said_does_not_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=False)
    output.result("\x1b[2J\x1b]0;owned\x07 a\tb\nc\r\x9b", {})
    output.note("\x1b[31mred")
    captured = capsys.readouterr()
    assert captured.out == "\\x1b[2J\\x1b]0;owned\\x07 a\tb\nc\\x0d\\x9b\n"
    assert captured.err == "\\x1b[31mred\n"
