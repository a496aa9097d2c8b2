"""One small campaign with a report, made once and copied."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from campaign import files
from campaign.cli.main import main
from campaign.paths import HomePaths
from tests.support.home import SMALL, attempt_all, freeze, freeze_candidate
from tests.support.jobs import RESOURCES


def write_report(*, protocol_path: Path, evaluation: Path, out: Path) -> None:
    """Stand in for the rendered page: plots take seconds."""
    assert protocol_path.is_file()
    assert (evaluation / "provenance.json").is_file()
    out.mkdir(exist_ok=True)
    (out / "report.html").write_text("a page")


@pytest.fixture(scope="session")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home whose one candidate has a report; nobody writes to it."""
    made = freeze(tmp_path_factory.mktemp("reported") / "home", SMALL[:1], repeats=1, solo=False, controls=False)
    made.paths.manifest.write_bytes(made.manifest.replace(resources=RESOURCES).to_bytes())
    made.paths.ledger.unlink()
    made.append("froze_baseline", {"manifest_sha256": files.sha256_file(made.paths.manifest)})
    attempt_all(made, "baseline")
    freeze_candidate(made)
    attempt_all(made, "candidate")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reports.render.write_report", write_report)
        assert main(["report", "--home", str(made.paths.root), "--exit-zero"]) == 0
    return made.paths.root


@pytest.fixture
def copied(reported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HomePaths:
    """Return a copy of the home with a report."""
    monkeypatch.setattr("reports.render.write_report", write_report)
    shutil.copytree(reported, tmp_path / "home", symlinks=True)
    return HomePaths(tmp_path / "home")


@pytest.fixture
def run(copied: HomePaths) -> Callable[..., int]:
    """Return a function that runs a command on the copy and returns its exit code."""
    return lambda *arguments: main([*arguments, "--home", str(copied.root)])
