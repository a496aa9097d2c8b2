"""What cannot be read of a bundle accuses nobody."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest

from campaign.detached import run
from campaign.detached.ingest import ingest
from campaign.errors import ExitCode, InfrastructureError
from campaign.frozen import read_frozen
from campaign.submission.desk import open_desk
from tests.support.bundles import Handmade, write_bundle
from tests.support.home import freeze


@pytest.fixture
def pilot(tmp_path: Path) -> Handmade:
    """A bundle with a pilot that was made."""
    home = freeze(tmp_path / "home")
    made = write_bundle(home, tmp_path / "bundle", [home.slot("baseline/pilot/sync-b4")])
    made.call("a0001")
    return made


UNREADABLE = ["bundle.json", "home/protocol.json", "home/attempts/baseline/pilot/sync-b4/1/receipt.json"]


@pytest.fixture(params=UNREADABLE)
def unreadable(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file of the bundle that belongs to somebody else, whatever user the tests have."""
    real = os.open

    def refuse(path: Any, flags: int, *more: int, **given: Any) -> int:
        if str(path).endswith(f"bundle/{request.param}"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, flags, *more, **given)

    monkeypatch.setattr("os.open", refuse)
    return str(request.param)


def test_what_is_not_ours_to_read_is_no_tampering(pilot: Handmade, unreadable: str) -> None:
    desk = open_desk(pilot.home.paths, read_frozen(pilot.home.paths), time.time)
    with pytest.raises(InfrastructureError, match="cannot be read") as caught:
        ingest(desk, pilot.paths.root)
    assert caught.value.exit_code == ExitCode.INFRASTRUCTURE
    assert unreadable in "\n".join(caught.value.lines())


def test_neither_does_the_bundle_itself_say_so(
    pilot: Handmade, unreadable: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["run.py", "--pack", str(pilot.paths.root.with_name("out.tar"))])
    monkeypatch.setattr(run, "__file__", str(pilot.paths.program))
    assert run.start() == run.MACHINE
    assert unreadable in capsys.readouterr().err
