"""Hooks: what they are told, once each, and that nothing depends on them."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from acceptance.formats import Ending
from campaign.cli.main import main
from campaign.errors import StateError
from campaign.submission.desk import Desk
from campaign.submission.hooks import Event, Happening, Hook, events_of, find_told, finished, parse_command
from campaign.watching.reach import Obstacle
from campaign.watching.state import AttemptState, AttemptStatus, SlotState, SlotStatus
from tests.campaign.submission.support import Cluster, make_desk
from tests.campaign.submission.test_desk import run_jobs
from tests.support.home import CANDIDATE, make_protocol
from tests.support.jobs import JobHome

FAILED = Happening(event=Event.FAILED, subject="baseline/solo/a/r1/1", reason="crash", facts={"slot": "s"})
CRASHED = f"{CANDIDATE}/pilot/sync-b4"


@pytest.fixture
def heard(tmp_path: Path) -> Path:
    return tmp_path / "heard.jsonl"


@pytest.fixture
def said() -> list[str]:
    return []


MakeHook = Callable[..., Hook]


@pytest.fixture
def make_hook(tmp_path: Path, heard: Path, said: list[str]) -> MakeHook:
    def make(program: str = f"cat >> {heard}", **fields: Any) -> Hook:
        values: dict[str, Any] = {
            "command": ("sh", "-c", program),
            "campaign": "small",
            "home": "/home",
            "candidate": CANDIDATE,
            "manifest_sha256": "a" * 64,
            "told": tmp_path / "state" / "told.jsonl",
            "clock": lambda: 7.0,
            "say": said.append,
        }
        return Hook(**{**values, **fields})

    return make


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_hook_gets_the_event_as_json_on_its_standard_input(make_hook: MakeHook, heard: Path) -> None:
    make_hook().tell([FAILED])
    assert lines(heard) == [
        {
            "format": "hook/1",
            "campaign": "small",
            "home": "/home",
            "candidate": CANDIDATE,
            "event": "failed",
            "slot": "s",
            "reason": "crash",
            "at": 7.0,
        }
    ]


def test_an_event_is_told_once_whichever_command_sees_it(make_hook: MakeHook, heard: Path, tmp_path: Path) -> None:
    first = make_hook()
    first.tell([FAILED, FAILED])
    first.tell([FAILED])
    make_hook(clock=lambda: 8.0).tell([FAILED])
    assert len(lines(heard)) == 1
    make_hook(f"cat >> {heard}; true").tell([FAILED])
    make_hook(manifest_sha256="b" * 64).tell([FAILED])
    make_hook().tell([replace(FAILED, subject="another")])
    assert len(lines(heard)) == 4
    # A line that was torn, and one of a later release, are nobody's.
    with (tmp_path / "state" / "told.jsonl").open("a") as stream:
        stream.write('{"format": "told/2"}\n{"torn')
    make_hook().tell([replace(FAILED, subject="a third"), FAILED])
    make_hook().tell([replace(FAILED, subject="a third")])
    assert len(lines(heard)) == 5


def test_where_nothing_can_be_kept_a_command_tells_an_event_once_and_says_so(
    make_hook: MakeHook, heard: Path, said: list[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    hook = make_hook(told=tmp_path / "file" / "told.jsonl")
    hook.tell([FAILED, replace(FAILED, subject="another")])
    hook.tell([FAILED])
    assert len(lines(heard)) == 2
    assert len(said) == 1
    assert "may be told again" in said[0]
    make_hook(told=None).tell([FAILED])
    assert len(lines(heard)) == 3


def test_a_hook_that_fails_is_told_with_its_last_line_and_goes_on_being_asked(
    make_hook: MakeHook, said: list[str]
) -> None:
    hook = make_hook("echo first; echo mail is down >&2; exit 3")
    hook.tell([FAILED, replace(FAILED, subject="another")])
    assert said == ["the hook ended with 3 on failed s: mail is down"] * 2


def test_a_hook_that_hangs_is_ended_and_not_asked_again(make_hook: MakeHook, said: list[str], heard: Path) -> None:
    hook = make_hook(f"echo x >> {heard}; sleep 600 & sleep 600", patience_s=0.3)
    hook.tell([FAILED, replace(FAILED, subject="another")])
    assert heard.read_text() == "x\n"
    assert said == ["the hook has not ended within 0.3 s (failed s): this command does not run it again"]


def test_a_program_that_cannot_be_started_is_told(make_hook: MakeHook, said: list[str]) -> None:
    make_hook(command=("/nonexistent/program",)).tell([FAILED])
    assert said == [
        "the hook cannot be started: No such file or directory (failed s): this command does not run it again"
    ]


def test_a_command_is_split_as_a_shell_would_and_its_program_must_be_there() -> None:
    assert parse_command(f"{sys.executable} -c 'a b'") == (sys.executable, "-c", "a b")
    for wrong in ("", "   ", "'open", "/nonexistent/program --x"):
        with pytest.raises(StateError):
            parse_command(wrong)


def test_what_was_told_stands_beside_the_registry_of_freezes() -> None:
    assert find_told({"CAMPAIGN_REGISTRY": "/x/tried.jsonl"}) == Path("/x/tried-told.jsonl")
    assert find_told({"XDG_STATE_HOME": "/s"}) == Path("/s/campaign/registry-told.jsonl")
    assert find_told({}) is None


def test_a_slot_that_is_lost_is_an_event_of_its_own_and_each_thing_it_costs_another() -> None:
    slot = make_protocol().slots[0]
    attempt = AttemptStatus(
        slot="b/x", attempt=2, allocation="a", job="1", state=AttemptState.ENDED, ending=Ending.CRASH, reason="bang",
        node="n", source="receipt", receipt=None,
    )  # fmt: skip
    lost = SlotStatus(slot=slot, name="b/x", state=SlotState.FAILED, attempts=(attempt,))
    fine = replace(lost, name="b/y", state=SlotState.RETRYABLE)
    obstacles = [
        Obstacle(slot="b/x", gates=("g1", "g2"), reason="lost"),
        Obstacle(slot="", gates=("g3",), reason="missed"),
    ]
    found = events_of(CANDIDATE, {"b/x": lost, "b/y": fine}, obstacles, amendment=0)
    assert [(one.event, one.reason) for one in found] == [
        (Event.FAILED, "bang"),
        (Event.MISSED, "lost"),
        (Event.MISSED, "missed"),
    ]
    assert found[0].facts == {"slot": "b/x", "attempt": 2, "segment": 0, "ending": "crash"}
    assert found[1].facts == {"slot": "b/x", "gates": ["g1", "g2"], "gate": "g1"}
    # What an amendment made void may be missed once more, which is another event.
    again = events_of(CANDIDATE, {}, obstacles, amendment=9)
    assert {one.subject for one in again}.isdisjoint(one.subject for one in found)
    ends = [finished(CANDIDATE, asked, number, "") for asked, number in ((("", ""), 4), (("", ""), 5), (("", "x"), 4))]
    assert len({one.subject for one in ends}) == 3


# --- the commands


@pytest.fixture
def desk(home: JobHome, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Desk:
    made = make_desk(home, cluster)
    for name in ("submit", "status"):
        monkeypatch.setattr(f"campaign.cli.{name}.open_desk", lambda *_: made)
        monkeypatch.setattr(f"campaign.cli.{name}.time.sleep", lambda _: run_jobs(home, cluster))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    return made


def run(home: JobHome, *arguments: str) -> int:
    command, *rest = arguments
    return main([command, "--home", str(home.paths.root), *rest])


@pytest.mark.usefixtures("desk")
def test_a_wait_tells_what_failed_what_is_missed_and_the_end_and_no_command_tells_it_again(
    home: JobHome, heard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.wish(endings={f"{CRASHED}/1": "crash"})
    script = tmp_path / "hook"
    script.write_text(f"#!/bin/sh\ncat >> {heard}\n")
    script.chmod(0o755)
    submit = ("submit", "--cluster", "slurm", "--yes", "--wait")
    assert run(home, *submit, "--hook", str(script)) == 4
    found = lines(heard)
    assert [one["event"] for one in found] == ["failed", "missed", "finished"]
    assert (found[0]["slot"], found[0]["ending"], found[0]["reason"]) == (CRASHED, "crash", "as the test wished")
    assert (found[1]["slot"], found[1]["gates"]) == (CRASHED, ["throughput/sync/repeat-1"])
    assert found[2]["reason"] == "10 slots: 1 planned, 8 completed, 1 failed"
    assert {one["home"] for one in found} == {str(home.paths.root)}
    # From the environment it needs no --wait.
    monkeypatch.setenv("CAMPAIGN_HOOK", str(script))
    assert run(home, *submit) == 4
    assert run(home, "status", "--watch") == 0
    assert run(home, "status") == 0
    assert len(lines(heard)) == 3


def test_a_watch_tells_the_end_where_a_pilot_follows_one_that_failed(
    home: JobHome, heard: Path, tmp_path: Path, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = desk.frozen.protocol.replace(
        workloads=tuple(one.replace(processes=2) for one in desk.frozen.protocol.workloads)
    )
    made = replace(desk, frozen=replace(desk.frozen, protocol=several))
    for name in ("submit", "status"):
        monkeypatch.setattr(f"campaign.cli.{name}.open_desk", lambda *_: made)
    home.wish(endings={f"baseline/pilot/{one.name}/1": "crash" for one in several.workloads})
    assert run(home, "submit", "--cluster", "slurm", "--yes", "--wait") == 4
    script = tmp_path / "hook"
    script.write_text(f"#!/bin/sh\ncat >> {heard}\n")
    script.chmod(0o755)
    assert run(home, "status", "--watch", "--hook", str(script)) == 0
    assert [one["event"] for one in lines(heard)].count("finished") == 1


@pytest.mark.usefixtures("desk")
def test_a_hook_is_for_commands_that_wait_and_must_be_a_program(
    home: JobHome, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(home, "submit", "--cluster", "slurm", "--yes", "--hook", "true") == 2
    assert "add --wait, or --watch" in capsys.readouterr().err
    assert run(home, "status", "--hook", "true") == 2
    assert run(home, "status", "--watch", "--hook", "/nonexistent/program") == 2
    assert "no such program" in capsys.readouterr().err
    assert "intent" not in home.acts()


@pytest.mark.usefixtures("desk")
def test_a_hook_that_fails_changes_neither_what_is_done_nor_the_exit_code(
    home: JobHome, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(home, "submit", "--cluster", "slurm", "--yes", "--wait", "--hook", "false", "--json") == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["slots"] == {"completed": 10}
    assert "the hook ended with 1 on finished" in captured.err
