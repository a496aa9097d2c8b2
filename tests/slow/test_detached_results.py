"""Bundles of a small campaign with the real programs: run, brought back in parts, reported, verified, closed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from campaign import documents, files
from tests.slow.test_full_disk import disk, nearly_full
from tests.support.bundles import write_bundle
from tests.support.cli import expect, expect_json, run_campaign
from tests.support.home import freeze
from tests.support.small import freeze_both, no_process_left, write_project

__all__ = ["disk"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def run_bundle(bundle: Path, *arguments: str) -> str:
    """Run a bundle's program as on another machine: nothing of campaign is on its path; return what it printed."""
    command = [sys.executable, "-I", str(bundle / "run.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=bundle.parent)
    assert done.returncode in (0, 4), done.stderr
    return done.stdout


def acts_of(home: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return names and data of the ledger's acts."""
    entries = [json.loads(line) for line in (home / "ledger.jsonl").read_bytes().splitlines()]
    return [(entry["act"], entry["data"]) for entry in entries]


def slots_in(home: Path, state: str) -> int:
    """Return how many slots are in a state."""
    value = expect_json(0, "status", "--home", home)
    return sum(found.get(state, 0) for found in value["phases"].values())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small campaign whose pilots came back in a bundle."""
    monkeypatch.setenv("CAMPAIGN_REGISTRY", str(tmp_path / "registry.jsonl"))
    root = tmp_path / "home"
    freeze_both(write_project(tmp_path / "project"), root)
    written = expect_json(0, "bundle", "write", tmp_path / "pilots", "--home", root)
    assert written["attempts"] == 4
    assert slots_in(root, "away") == 4
    # Somebody else's machine: the bundle lies elsewhere there.
    shutil.move(tmp_path / "pilots", tmp_path / "there")
    with no_process_left(tmp_path):
        run_bundle(tmp_path / "there", "--max-minutes", "5")
    (done,) = expect_json(0, "bundle", "ingest", tmp_path / "there", "--home", root)["results"]
    assert (len(done["receipts"]), done["complete"]) == (4, True)
    assert slots_in(root, "away") == 0
    return root


def test_a_campaign_that_was_made_in_bundles_is_reported_verified_closed_and_exported(
    home: Path, tmp_path: Path
) -> None:
    never = expect_json(0, "bundle", "write", tmp_path / "never", "--home", home, "--only", "*/solo/*")
    written = expect_json(0, "bundle", "write", tmp_path / "rest", "--home", home)
    first, *others = written["allocations"]
    assert others
    run_bundle(tmp_path / "rest", "--max-minutes", "5", "--allocation", first)
    run_bundle(tmp_path / "rest", "--pack", str(tmp_path / "part.tar"), "--leave", "attempts/*.log")
    (part,) = expect_json(0, "bundle", "ingest", tmp_path / "part.tar", "--home", home)["results"]
    assert (part["complete"], part["left"] > 0) == (False, True)
    run_bundle(tmp_path / "rest", "--max-minutes", "5")
    run_bundle(tmp_path / "rest", "--pack", str(tmp_path / "all.tar"), "--leave", "attempts/*.log")
    (whole,) = expect_json(0, "bundle", "ingest", tmp_path / "all.tar", "--home", home)["results"]
    assert whole["complete"]
    assert "1 attempt(s) have not ended" not in expect(0, "status", "--home", home)
    refused = run_campaign("seal", "--home", home)
    assert refused.returncode == 2
    assert "campaign bundle ingest, or abandon" in refused.stderr
    expect(0, "bundle", "abandon", never["bundle"], "--reason", "its machine was taken away", "--yes", "--home", home)
    lost = run_campaign("bundle", "ingest", tmp_path / "never", "--home", home)
    assert (lost.returncode, "was abandoned" in lost.stderr) == (2, True)
    again = expect_json(0, "bundle", "write", tmp_path / "again", "--home", home)
    assert again["attempts"] == never["attempts"]
    run_bundle(tmp_path / "again", "--max-minutes", "5")
    expect(0, "bundle", "ingest", tmp_path / "again", "--home", home)
    expect(0, "report", "--exit-zero", "--home", home)
    (page,) = home.glob("evaluations/*/report/report.md")
    shown = page.read_text()
    assert f"`{never['bundle']}`" in shown
    assert "never ingested: nobody knows what was made of it" in shown
    head = expect_json(0, "seal", "--home", home)["head"]
    for target in (home, _exported(home, tmp_path / "archive.tar")):
        value = json.loads(expect(0, "verify", target, "--head", head, "--json"))
        assert (value["state"], value["tier"], value["findings"]) == ("not_checked", "externally anchored", [])
        said = {check["name"]: "\n".join(check["remarks"]) for check in value["checks"]}
        assert "4 bundles were written, 3 of them came back" in said["bundles"]
        assert f"bundle {never['bundle']}" in said["bundles"]
        assert "were left behind on machines of bundles" in said["bundles"]
    frozen = [sys.executable, "-P", "-s", str(home / "frozen" / "verifier" / "launch.py"), "verify", str(home)]
    done = subprocess.run(frozen, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    _check_forgeries(home, head)
    _check_that_tampering_is_caught(home)


def _check_that_tampering_is_caught(home: Path) -> None:
    """Try every way to tamper with bundles."""
    value = expect_json(0, "selftest-tamper", "--home", home)
    of_bundles = [trial for trial in value["trials"] if trial["group"] == "bundles"]
    assert len(of_bundles) == 5
    assert [trial["what"] for trial in of_bundles if not (trial["tried"] and trial["caught"])] == []
    assert value["surprises"] == 0


def _exported(home: Path, out: Path) -> Path:
    expect(0, "export", "--home", home, "--out", out)
    return out


def _check_forgeries(home: Path, head: str) -> None:
    """Change records of bundles one by one, and see each found and undone."""
    (call, *_) = sorted(home.glob("allocations/*/calls/1.json"))
    receipts = sorted(home.glob("attempts/**/receipt.json"))
    for path, data in (
        (call, call.read_bytes().replace(b'"boot_id"', b'"boot_iD"')),
        (call.with_name("2.json"), call.read_bytes()),
        (receipts[-1].with_name("baseline.log"), b"not what was left behind\n"),
    ):
        before = path.read_bytes() if path.exists() else None
        path.write_bytes(data)
        done = run_campaign("verify", home, "--head", head)
        assert done.returncode == 5, (path, done.stdout)
        assert path.relative_to(home).as_posix() in done.stdout
        if before is None:
            path.unlink()
        else:
            path.write_bytes(before)
    assert run_campaign("verify", home, "--head", head).returncode == 0


def test_a_full_disk_takes_nothing_and_loses_nothing(disk: Path, tmp_path: Path) -> None:
    made = freeze(disk / "home", numerical=documents.NumericalRules())
    bundle = write_bundle(made, tmp_path / "bundle", [made.slot("baseline/pilot/sync-b4")])
    bundle.call("a0001")
    home = made.paths.root
    before = contents(home)
    for room_bytes in (0, 4 << 10, 16 << 10):
        with nearly_full(disk, room_bytes):
            done = run_campaign("bundle", "ingest", bundle.paths.root, "--home", home)
        assert done.returncode == 6, done.stderr
        assert "Traceback" not in done.stderr
        assert "space" in done.stderr
        assert contents(home) == before
    expect(0, "bundle", "ingest", bundle.paths.root, "--home", home)
    assert [act for act, _ in acts_of(home)][-1] == "ingested"


def contents(root: Path) -> dict[Path, str]:
    """Return the digest of every file below a folder, the lock left out."""
    found = (path for path in sorted(root.rglob("*")) if path.is_file() and path.name != "ledger.lock")
    return {path: files.sha256_file(path) for path in found}
