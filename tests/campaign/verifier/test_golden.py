"""The golden campaigns: every later release finds them intact, and derives the verdict that they were closed with."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from campaign.cli.main import main
from campaign.verifier.archive import HOME, opened
from campaign.verifier.facts import Options
from campaign.verifier.verify import Verification, verifying
from tests.support.golden import LATEST, VERSIONS, archive_of, head_of, home_of


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def archive(version: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return archive_of(version, tmp_path_factory.mktemp("golden"))


def verdict_of(verification: Verification) -> bytes:
    (one,) = verification.verdicts
    return one.printed


def test_a_golden_campaign_is_intact_and_gives_the_verdict_that_it_was_closed_with(version: str, archive: Path) -> None:
    with (
        opened(archive) as found,
        verifying(found.root, Options(head=head_of(version), python=sys.executable)) as verification,
    ):
        assert verification.checks.findings == []
        assert verification.state.value == "intact"
        assert verification.tier.value == "externally anchored"
        (kept,) = found.root.glob("evaluations/*/verdict.json")
        assert verdict_of(verification) == kept.read_bytes()
        assert json.loads(kept.read_bytes())["outcome"] == "pass"


def test_the_command_finds_it_intact_with_all_that_a_collection_would_find(
    version: str, archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "--home", str(archive), "--head", head_of(version), "--verdict", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert {check["name"]: check["state"] for check in value["checks"]}["collection"] == "intact"
    assert value["tier"] == "externally anchored"


def test_another_head_line_than_its_own_is_a_finding(version: str, archive: Path) -> None:
    other = head_of(version).replace(head_of(version).split()[2], "0" * 64)
    with opened(archive) as found, verifying(found.root, Options(head=other, execute=False)) as verification:
        assert {finding.check for finding in verification.checks.findings} == {"head"}


def cut_off() -> list[str]:
    """Return a command that cuts its command off from every network; none where that is not permitted."""
    unshare = ["unshare", "--net"]
    done = subprocess.run([*unshare, "true"], check=False, capture_output=True)
    if done.returncode != 0:
        assert not os.environ.get("CI"), done.stderr
        return []
    return unshare


def test_the_verifier_that_travels_with_it_needs_python_and_nothing_else(version: str, archive: Path) -> None:
    """From the archive alone, by ``tar``, without network, environment or anything installed beside the interpreter."""
    folder = archive.parent / "by hand"
    folder.mkdir()
    subprocess.run(["tar", "-xf", str(archive)], cwd=folder, check=True)
    (top,) = folder.iterdir()
    launcher = top / HOME / "frozen" / "verifier" / "launch.py"
    isolated = [sys.executable, "-P", "-s", "-S", str(launcher), "verify", str(top), "--head", head_of(version)]
    done = subprocess.run(
        [*cut_off(), *isolated, "--verdict", "--json"], env={}, cwd=folder, check=False, capture_output=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    value = json.loads(done.stdout)
    assert (value["state"], value["tier"]) == ("intact", "externally anchored")
    assert [verdict["outcome"] for verdict in value["verdicts"].values()] == ["pass"]


@pytest.mark.parametrize(
    ("name", "format_now"),
    [("manifest.json", "manifest/1"), ("protocol.json", "protocol/1")],
    ids=["manifest", "rules"],
)
def test_a_format_of_the_future_is_named(tmp_path: Path, name: str, format_now: str) -> None:
    home = home_of(LATEST, tmp_path)
    path = home / name
    path.write_bytes(path.read_bytes().replace(format_now.encode(), b"of the future/9"))
    with verifying(home, Options(execute=False)) as verification:
        said = [finding.what for finding in verification.checks.findings if finding.where == name]
    assert any("of the future/9" in what and "does not know" in what for what in said), said


def test_a_verification_writes_nothing_into_the_home(tmp_path: Path) -> None:
    home = home_of(LATEST, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in sorted(home.rglob("*"))}
    assert main(["verify", "--home", str(home)]) == 0
    assert {path: path.stat().st_mtime_ns for path in sorted(home.rglob("*"))} == before
    shutil.rmtree(home)
