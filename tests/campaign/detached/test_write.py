"""Writing a bundle: what is in it, what the ledger says, and that nothing else of the home changes."""

from __future__ import annotations

import json
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from campaign import files
from campaign.cli.main import main
from campaign.detached import run, write
from campaign.documents import Bundle
from campaign.errors import ExitCode
from campaign.paths import BundlePaths
from campaign.record.ledger import read_entries
from campaign.submission import acts
from tests.support.jobs import JobHome
from tests.support.standin import make_home

Write = Callable[..., dict[str, Any]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobHome:
    return make_home(tmp_path / "home", monkeypatch)


@pytest.fixture
def write_one(home: JobHome, capsys: pytest.CaptureFixture[str]) -> Write:
    def call(out: Path, *options: str, code: int = ExitCode.DONE) -> dict[str, Any]:
        capsys.readouterr()
        found = main(["bundle", "write", str(out), "--home", str(home.paths.root), "--json", *options])
        output = capsys.readouterr()
        assert found == code, output.err
        value: dict[str, Any] = json.loads(output.out)
        return value

    return call


def contents(root: Path) -> dict[str, str]:
    """Return every file below a folder but the ledger's, with its digest."""
    return {
        path.relative_to(root).as_posix(): files.sha256_file(path)
        for path in root.rglob("*")
        if path.is_file() and not path.name.startswith("ledger")
    }


def test_a_bundle_lists_everything_in_it_and_its_id_is_that_of_the_list(
    home: JobHome, tmp_path: Path, write_one: Write
) -> None:
    out = BundlePaths(tmp_path / "out")
    said = write_one(out.root)
    bundle = Bundle.read(out.document)
    assert said["bundle"] == bundle.id == run.bundle_id(json.loads(out.document.read_bytes()))
    assert {run.path_of(name) for name in bundle.files} == {
        os.path.relpath(path, out.root)
        for path in out.root.rglob("*")
        if path.is_file() and not path.is_symlink() and path != out.document
    }
    assert run.find_differences(out.root, run.read_bundle(out.root)) == []
    tree = "home/frozen/baseline/tree"
    assert bundle.links == {f"{tree}/again.py": "adapter.py"}
    assert (bundle.executables, bundle.folders) == ((f"{tree}/tool.sh",), (f"{tree}/empty",))
    assert stat.S_IMODE((out.root / tree / "tool.sh").stat().st_mode) == 0o755
    assert out.program.read_bytes() == Path(run.__file__).read_bytes()
    assert not out.home.ledger.exists()
    planned = [one.id for one in bundle.allocations]
    assert [path.name for path in sorted(out.home.allocations.iterdir())] == planned
    assert {one.plan_sha256 for one in bundle.allocations} == {
        files.sha256_file(home.paths.allocation(name).plan) for name in planned
    }


def test_the_ledger_has_it_before_it_appears(home: JobHome, tmp_path: Path, write_one: Write) -> None:
    before = contents(home.paths.root)
    said = write_one(tmp_path / "out")
    assert home.acts()[-2:] == ["intent", "submitted"]
    (submission,) = acts.fold(read_entries(home.paths)).submissions.values()
    assert submission.submitted is not None
    submitted = submission.submitted
    assert (submitted.cluster, submitted.job, submitted.source) == ("detached", said["bundle"], "bundle")
    assert (submission.key, submitted.place) == (said["submission"], str(tmp_path / "out"))
    added = contents(home.paths.root).keys() - before.keys()
    assert added == {f"allocations/{name}/allocation.json" for name in said["allocations"]}


def test_what_is_away_is_not_planned_again(home: JobHome, tmp_path: Path, write_one: Write) -> None:
    first = write_one(tmp_path / "out", "--only", "baseline/pilot/packed-b4")
    assert first["attempts"] == 1
    second = write_one(tmp_path / "more")
    assert second["attempts"] == 1  # the other pilot
    number = len(home.acts())
    assert write_one(tmp_path / "none") == {"bundle": None, "allocations": [], "attempts": 0}
    assert (len(home.acts()), (tmp_path / "none").exists()) == (number, False)


def test_an_archive_of_the_same_content_is_the_same(home: JobHome, tmp_path: Path, write_one: Write) -> None:
    said = write_one(tmp_path / "out.tar")
    with tarfile.open(tmp_path / "out.tar") as tar:
        members = tar.getmembers()
        tar.extractall(tmp_path / "there", filter="data")
    assert {one.name.split("/")[0] for one in members} == {"out"}
    assert {one.mtime for one in members} == {0}
    there = tmp_path / "there" / "out"
    bundle = run.read_bundle(there)
    assert (bundle["id"], run.find_differences(there, bundle)) == (said["bundle"], [])
    assert (there / "home/frozen/baseline/tree/empty").is_dir()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "out.tar", "there"]
    del home


@pytest.mark.parametrize("name", ["file", "folder"])
def test_a_place_that_is_taken_is_refused_before_anything_is_recorded(
    home: JobHome, tmp_path: Path, write_one: Write, name: str
) -> None:
    out = tmp_path / "out"
    if name == "file":
        out.write_text("mine")
    else:
        out.mkdir()
    before = home.acts()
    assert "there is something already" in write_one(out, code=ExitCode.USAGE)["error"]["what"]
    assert home.acts() == before


def test_a_place_that_the_ledger_cannot_name_is_refused_before_anything_is_recorded(
    home: JobHome, tmp_path: Path, write_one: Write
) -> None:
    before = home.acts()
    refused = write_one(tmp_path / os.fsdecode(b"out\xff"), code=ExitCode.USAGE)
    assert "not UTF-8" in refused["error"]["what"]
    assert home.acts() == before


def test_a_bundle_does_not_lie_in_its_home(home: JobHome, write_one: Write) -> None:
    before = home.acts()
    error = write_one(home.paths.root / "out", code=ExitCode.USAGE)["error"]
    assert "cannot lie in the home" in error["what"]
    assert home.acts() == before


def test_a_file_that_is_missing_ends_it_and_the_next_one_has_the_same_attempts(
    home: JobHome, tmp_path: Path, write_one: Write
) -> None:
    listing = home.paths.baseline.listing.read_bytes()
    home.paths.baseline.listing.unlink()
    error = write_one(tmp_path / "out", code=ExitCode.TAMPERED)["error"]
    assert error["where"] == str(home.paths.baseline.listing)
    assert home.acts()[-2:] == ["intent", "not_submitted"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]
    home.paths.baseline.listing.write_bytes(listing)
    write_one(tmp_path / "out")
    submissions = acts.fold(read_entries(home.paths)).submissions
    assert len(submissions) == 1
    assert [
        one.attempt for planned in next(iter(submissions.values())).intent.allocations for one in planned.attempts
    ] == [1, 1]


class Killed(BaseException):
    """Stands for a kill: nothing of the command goes on."""


def test_what_is_killed_before_the_ledger_has_it_leaves_no_bundle(
    home: JobHome, tmp_path: Path, write_one: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(write, "_describe", kill)
        with pytest.raises(Killed):
            main(["bundle", "write", str(tmp_path / "out"), "--home", str(home.paths.root)])
    assert home.acts()[-1] == "intent"
    assert not (tmp_path / "out").exists()
    write_one(tmp_path / "out")
    assert home.acts()[-4:] == ["intent", "not_submitted", "intent", "submitted"]


def test_what_appears_at_its_place_meanwhile_is_not_written_over(
    home: JobHome, tmp_path: Path, write_one: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, whole = tmp_path / "out", files.sync_file_system

    def disturb(folder: Path) -> None:
        whole(folder)
        out.write_text("somebody's")

    monkeypatch.setattr(files, "sync_file_system", disturb)
    error = write_one(out, code=ExitCode.USAGE)["error"]
    assert "campaign bundle abandon" in error["hint"]
    assert out.read_text() == "somebody's"
    assert home.acts()[-1] == "submitted"


def test_only_the_repeat_that_was_asked_for_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = make_home(tmp_path / "home", monkeypatch)
    out = tmp_path / "out"
    assert main(["bundle", "write", str(out), "--home", str(home.paths.root), "--repeat", "2"]) == 0
    names = [name for one in Bundle.read(BundlePaths(out).document).allocations for name in one.expected_s]
    assert names == ["baseline/pilot/sync-b4/1", "baseline/pilot/packed-b4/1"]  # what repeat 2 needs first
    assert "pilot" in capsys.readouterr().err
