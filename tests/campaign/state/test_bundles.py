"""What of a bundle lies in its home, and no act of the ledger says that it came back."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from campaign import documents
from campaign.frozen import read_frozen
from campaign.submission.desk import open_desk
from campaign.watching.state import AttemptState
from tests.support.bundles import Handmade, write_pilots
from tests.support.home import Home, freeze


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return freeze(tmp_path / "home", numerical=documents.NumericalRules())


@pytest.fixture
def called(home: Home, tmp_path: Path) -> Handmade:
    """A bundle of which one allocation, with two pilots, came to its end; another was never called."""
    made = write_pilots(home, tmp_path / "bundle")
    made.call("a0001")
    return made


def attempts(home: Home) -> list[tuple[AttemptState, str]]:
    view = open_desk(home.paths, read_frozen(home.paths), time.time).view("")
    return [(one.state, one.reason) for one in view.attempts.values()]


def test_an_allocations_end_counts_only_when_the_ledger_names_it(home: Home, called: Handmade) -> None:
    before = attempts(home)
    ended = home.paths.allocation("a0001").ended
    ended.parent.mkdir(parents=True, exist_ok=True)
    told = documents.Ended.read(called.paths.home.allocation("a0001").ended)
    ended.write_bytes(told.replace(receipts={}).to_bytes())
    assert attempts(home) == before
    assert {state for state, _ in before} == {AttemptState.AWAY}


def test_receipts_that_the_ledger_does_not_name_complete_nothing(home: Home, called: Handmade) -> None:
    shutil.copytree(called.paths.home.root / "attempts", home.paths.root / "attempts", dirs_exist_ok=True)
    unknown = [reason for state, reason in attempts(home) if state is AttemptState.UNKNOWN]
    assert len(unknown) == 2
    assert all("no act of the ledger says that it was ingested" in reason for reason in unknown)
    assert [state for state, _ in attempts(home)].count(AttemptState.AWAY) == 1
