"""Tampering with copies: everything is caught, and a verification with a hole is told from one without."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from campaign import files
from campaign.paths import HomePaths
from campaign.tampering import selftest
from campaign.tampering.copies import Copy, copy_home, link_home
from campaign.tampering.mutations import MUTATIONS
from campaign.verifier import verify
from tests.support.golden import LATEST, home_of

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
    assert [one.group for one in run(home, tmp_path).surprises] == ["none", "residual"]


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
