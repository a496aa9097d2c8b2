"""One small campaign with a report, made once and copied."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from campaign.cli.main import main
from campaign.paths import HomePaths
from tests.campaign.verifier.judged import quick_report
from tests.support.home import SMALL
from tests.support.jobs import RESOURCES
from tests.support.large import build_whole


@pytest.fixture(scope="session")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home in which everything is right, and whose one candidate has a report; nobody writes to it."""
    root = tmp_path_factory.mktemp("reported") / "home"
    build_whole(root, SMALL[:1], repeats=1, solo=False, controls=False, manifest={"resources": RESOURCES})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reports.render.write_report", quick_report)
        assert main(["report", "--home", str(root), "--exit-zero"]) == 0
    return root


@pytest.fixture
def copied(reported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HomePaths:
    """Return a copy of the home with a report."""
    monkeypatch.setattr("reports.render.write_report", quick_report)
    shutil.copytree(reported, tmp_path / "home", symlinks=True)
    return HomePaths(tmp_path / "home")


@pytest.fixture
def run(copied: HomePaths) -> Callable[..., int]:
    """Return a function that runs a command on the copy and returns its exit code."""
    return lambda *arguments: main([*arguments, "--home", str(copied.root)])
