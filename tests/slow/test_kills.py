"""Commands that are killed at random moments: the next one recovers, or names what it found, and loses nothing.

Each command is killed again and again in one home before it may end, so that it also meets what a killed recovery left.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaign import documents
from campaign.paths import HomePaths
from campaign.record.ledger import read_entries
from tests.support.cli import PROGRAM, expect, run_campaign
from tests.support.small import freeze_both, no_process_left, run_all, write_project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

KILLS = {"freeze": 20, "submit": 28, "collect": 32, "report": 24}
"""How often each command is killed: more than a hundred times in all."""
KILLS_IN_A_ROW = 6
"""Most kills in one home before the command may end."""


def chance_of(seed: int) -> random.Random:
    """Return what decides when to kill; only repeatable, nobody's secret."""
    return random.Random(seed)  # noqa: S311 - as above


def killed(arguments: list[str | Path], delay_s: float) -> int | None:
    """Run a command and kill it, with all that it started and that did not leave its session, after a while.

    Returns:
        Its exit code, if it was faster; None if it was killed.
    """
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        _, stderr = process.communicate(timeout=delay_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None
    assert b"Traceback" not in stderr, stderr.decode()
    return process.returncode


def duration_s(arguments: list[str | Path], code: int) -> float:
    """Return how long a command takes when nobody kills it."""
    began = time.monotonic()
    expect(code, *arguments)
    return time.monotonic() - began


def copy(home: Path, to: Path) -> Path:
    """Copy a home with modes and times."""
    shutil.copytree(home, to, symlinks=True)
    return to


def remove(home: Path) -> None:
    """Remove a home, whose frozen folders are read-only."""
    subprocess.run(["chmod", "-R", "u+w", str(home)], check=True)
    shutil.rmtree(home)


def require_intact(home: Path) -> None:
    """Insist that nothing in a home contradicts anything else, and that no temporary file of a killed writer counts."""
    done = run_campaign("verify", "--home", home)
    assert done.returncode == 0, done.stdout + done.stderr


def facts(home: Path) -> dict[str, str]:
    """Return what must come out the same however often a command was killed: the receipts that the ledger names."""
    found: dict[str, str] = {}
    for entry in read_entries(HomePaths(home)):
        if entry.act in ("collected", "sealed"):
            for name, digest in entry.data["receipts"].items():
                assert found.setdefault(name, digest) == digest
    return found


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("killed")
    patch = pytest.MonkeyPatch()
    patch.setenv("CAMPAIGN_REGISTRY", str(root / "registry.jsonl"))
    with no_process_left(root):
        yield write_project(root)
    patch.undo()


@pytest.fixture(scope="module")
def measured(project: Path) -> Path:
    """Return a home with every attempt made, and nothing collected."""
    home = project.parent / "measured"
    freeze_both(project, home)
    run_all(home)
    return home


def test_a_freeze_that_is_killed_is_completed_or_made_anew(project: Path, tmp_path: Path) -> None:
    chance = chance_of(1)
    arguments: list[str | Path] = ["freeze", project, "--home", tmp_path / "whole"]
    longest_s = duration_s(arguments, 0)
    kept = json.loads((tmp_path / "whole" / "manifest.json").read_bytes())
    kills = 0
    number = 0
    while kills < KILLS["freeze"]:
        number += 1
        home = tmp_path / f"home{number}"
        arguments = ["freeze", project, "--home", home]
        for _ in range(chance.randint(1, KILLS_IN_A_ROW)):
            code = killed(arguments, chance.uniform(0, longest_s))
            kills += code is None
            if code is not None:
                break
        done = run_campaign(*arguments)
        # 2: it was complete, ledger and all, and says that a frozen campaign is not frozen again.
        assert done.returncode in (0, 2), done.stderr
        assert done.returncode == 0 or "is frozen here already" in done.stderr
        (first,) = (entry for entry in read_entries(HomePaths(home)) if entry.act == "froze_baseline")
        assert first.data["protocol_sha256"] == kept["protocol_sha256"]
        require_intact(home)
        remove(home)


def test_submitting_that_is_killed_neither_loses_nor_doubles(project: Path, tmp_path: Path) -> None:
    chance = chance_of(2)
    kills = 0
    number = 0
    while kills < KILLS["submit"]:
        number += 1
        home = tmp_path / f"home{number}"
        freeze_both(project, home)
        arguments: list[str | Path] = ["submit", "--home", home, "--cluster", "local", "--wait", "--yes"]
        with no_process_left(home):
            for _ in range(KILLS["submit"]):
                code = killed(arguments, chance.uniform(0.2, 2.5))
                kills += code is None
                if code is not None:
                    assert code == 0
                    break
            # Killed so often that the jobs were done before anybody looked: this looks.
            assert run_campaign(*arguments).returncode == 0
        expect(0, "report", "--home", home)
        slots = Counter(name.rpartition("/")[0] for name in facts(home))
        assert set(slots.values()) == {1}, slots
        assert len(slots) == len(documents.Protocol.read(HomePaths(home).protocol).slots)
        assert len(list((home / "attempts").rglob("receipt.json"))) == len(slots)
        require_intact(home)
        remove(home)


def test_collecting_that_is_killed_is_made_good_by_the_next(measured: Path, tmp_path: Path) -> None:
    chance = chance_of(3)
    whole = copy(measured, tmp_path / "whole")
    longest_s = duration_s(["collect", "--home", whole], 0)
    kept = facts(whole)
    kills = 0
    number = 0
    while kills < KILLS["collect"]:
        number += 1
        home = copy(measured, tmp_path / f"home{number}")
        for _ in range(chance.randint(1, KILLS_IN_A_ROW)):
            kills += killed(["collect", "--home", home], chance.uniform(0, longest_s)) is None
        expect(0, "collect", "--home", home)
        assert facts(home) == kept
        require_intact(home)
        remove(home)


def test_a_report_that_is_killed_gives_the_same_verdict_the_next_time(measured: Path, tmp_path: Path) -> None:
    chance = chance_of(4)
    whole = copy(measured, tmp_path / "whole")
    longest_s = duration_s(["report", "--home", whole], 0)
    (verdict,) = whole.glob("evaluations/*/verdict.json")
    kills = 0
    number = 0
    while kills < KILLS["report"]:
        number += 1
        home = copy(measured, tmp_path / f"home{number}")
        for _ in range(chance.randint(1, KILLS_IN_A_ROW)):
            kills += killed(["report", "--home", home], chance.uniform(0, longest_s)) is None
        expect(0, "report", "--home", home)
        assert (home / verdict.relative_to(whole)).read_bytes() == verdict.read_bytes()
        require_intact(home)
        remove(home)
