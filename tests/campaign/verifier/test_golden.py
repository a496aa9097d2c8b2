"""The golden campaigns: every later release finds them intact, and derives the verdict that they were closed with."""

from __future__ import annotations

import hashlib
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
from campaign.verifier.findings import EvidenceError
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


def test_the_command_finds_it_intact_with_all_that_a_collection_would_find_and_writes_nothing(
    version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = home_of(version, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in sorted(home.rglob("*"))}
    assert main(["verify", "--home", str(home), "--head", head_of(version), "--verdict", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert {check["name"]: check["state"] for check in value["checks"]}["collection"] == "intact"
    assert value["tier"] == "externally anchored"
    assert {path: path.stat().st_mtime_ns for path in sorted(home.rglob("*"))} == before


def test_another_head_line_than_its_own_is_a_finding(version: str, archive: Path) -> None:
    other = head_of(version).replace(head_of(version).split()[2], "0" * 64)
    with opened(archive) as found, verifying(found.root, Options(head=other, execute=False)) as verification:
        assert {finding.check for finding in verification.checks.findings} == {"head"}


def cut_off() -> list[str]:
    """Return a command that cuts its command off from every network; none where that is not permitted."""
    unshare = ["unshare", "--net"]
    is_permitted = shutil.which(unshare[0]) and subprocess.run([*unshare, "true"], check=False).returncode == 0
    assert is_permitted or not os.environ.get("CI")
    return unshare if is_permitted else []


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
    (kept,) = (top / HOME).glob("evaluations/*/verdict.json")
    wanted = {"outcome": "pass", "sha256": hashlib.sha256(kept.read_bytes()).hexdigest()}
    assert list(value["verdicts"].values()) == [wanted]


@pytest.mark.parametrize("name", ["manifest.json", "protocol.json", "seal.json"])
def test_a_format_of_the_future_is_named(tmp_path: Path, name: str) -> None:
    path = home_of(LATEST, tmp_path) / name
    now = json.loads(path.read_bytes())["format"]
    path.write_bytes(path.read_bytes().replace(now.encode(), b"of the future/9"))
    with verifying(tmp_path / LATEST / HOME, Options(execute=False)) as verification:
        said = [finding.what for finding in verification.checks.findings if finding.where == name]
    assert any("of the future/9" in what and "does not know" in what for what in said), said


def test_an_archive_of_the_future_is_named(tmp_path: Path) -> None:
    archive = archive_of(LATEST, tmp_path)
    archive.write_bytes(archive.read_bytes().replace(b'"export/1"', b'"export/9"', 1))
    with pytest.raises(EvidenceError, match=r"export/9.*does not know"), opened(archive):
        pass
