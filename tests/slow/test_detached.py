"""A campaign whose every attempt is made in bundles, by a machine that has nothing of ours and no network."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import IO, Any

import pytest

from acceptance.formats import Ending
from campaign import documents
from campaign.detached import run
from campaign.paths import BundlePaths, HomePaths
from campaign.record.ledger import read_entries
from campaign.submission import acts
from tests.support.cli import expect, expect_json, run_campaign
from tests.support.matching import write_matching_campaign
from tests.support.standin import BARE

pytestmark = pytest.mark.slow


def isolated() -> list[str]:
    """Return what cuts a command off from all networks, where this user may do so."""
    prefix = ["unshare", "-n"]
    tried = subprocess.run([*prefix, "true"], capture_output=True, check=False)
    return prefix if tried.returncode == 0 else ["unshare", "-rn"]


def command(folder: Path, *arguments: str) -> list[str]:
    return [*isolated(), BARE, "-I", str(BundlePaths(folder).program), *arguments]


def call(folder: Path, *arguments: str, code: int = run.DONE) -> str:
    """Run run.py without network, by an interpreter that has nothing of ours; return what it printed."""
    environment = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        command(folder, *arguments), capture_output=True, text=True, check=False, cwd="/", env=environment
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


class Killed:
    """A command that is killed as soon as its first attempt is sealed, and so while its second one is under way."""

    def __init__(self, folder: Path) -> None:
        self.job = subprocess.Popen(command(folder, "--max-minutes", "9"), stdout=subprocess.PIPE, text=True, cwd="/")
        assert self.job.stdout is not None
        self.first = self._read(self.job.stdout)

    @staticmethod
    def _read(stream: IO[str]) -> str:
        return stream.readline().partition(":")[0]

    def end(self) -> None:
        """Kill it, and wait until its harness is gone, too."""
        self.job.kill()
        self.job.communicate()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> HomePaths:
    """Freeze both sides."""
    root = tmp_path_factory.mktemp("detached")
    config = write_matching_campaign(root / "user", repeats=2)
    expect(0, "freeze", config, "--home", root / "home")
    expect(0, "freeze", "--candidate", "--config", config, "--home", root / "home")
    return HomePaths(root / "home")


def write(home: HomePaths, out: Path, *options: str) -> dict[str, Any]:
    value: dict[str, Any] = expect_json(0, "bundle", "write", out, "--home", home.root, *options)
    return value


def endings(home: HomePaths) -> dict[str, str]:
    """Return how every attempt ended that left a receipt, or was recorded without one."""
    history = acts.fold(read_entries(home))
    found = {}
    for attempts in history.slots.values():
        for key, attempt in attempts.items():
            receipt = home.attempt(key.slot, key.attempt, key.segment).receipt
            sealed = documents.Receipt.read(receipt).ending if receipt.exists() else None
            ended = attempt.ended.ending if attempt.ended is not None else None
            found[key.receipt_name] = str(sealed or ended or "")
    return found


def test_a_campaign_comes_to_its_verdict_through_bundles(home: HomePaths, tmp_path: Path) -> None:
    # The pilots: written as an archive, taken to the machine, brought back as a folder.
    pilots = write(home, tmp_path / "pilots.tar")
    shutil.unpack_archive(tmp_path / "pilots.tar", tmp_path / "there", filter="data")
    there = tmp_path / "there" / "pilots"
    said = call(there, "--max-minutes", "9")
    assert said.splitlines()[-1] == f"{pilots['attempts']} of {pilots['attempts']} attempts are made, 0 lost, 0 left"
    expect(0, "bundle", "ingest", there, "--home", home.root)

    # Everything else, without the canonical inputs; the first command has no time, the second is killed.
    rest = tmp_path / "rest"
    written = write(home, rest, "--without-inputs")
    assert not list(BundlePaths(rest).home.inputs.glob("*.safetensors"))
    assert "left: " in call(rest, "--max-minutes", "0.001", code=run.LEFT)
    assert not BundlePaths(rest).home.attempts.exists()
    killed = Killed(rest)
    while not [path for path in BundlePaths(rest).home.attempts.rglob("start.json") if killed.first not in str(path)]:
        assert killed.job.poll() is None
    killed.end()
    said = call(rest, "--max-minutes", "9")
    assert (
        said.splitlines()[-1] == f"{written['attempts'] - 1} of {written['attempts']} attempts are made, 1 lost, 0 left"
    )
    assert killed.first not in said  # what was sealed is not made again
    document = document_of(rest)
    assert [document.inputs[sha256] for sha256 in document.inputs] == [False]
    cases = [documents.Receipt.read(path) for path in BundlePaths(rest).home.attempts.glob("*/*case/*/1/receipt.json")]
    assert [one.ending for one in cases] == [Ending.COMPLETED] * len(cases)
    assert {one.case.made_inputs for one in cases if one.case is not None} == {True, False}  # once, for all of them

    # What is large stays on the machine.
    packed = tmp_path / "results.tar"
    call(rest, "--pack", str(packed), "--leave", "inputs/*.safetensors", "--leave", "*/tensors.csv.gz")
    (result,) = expect_json(0, "bundle", "ingest", packed, "--home", home.root)["results"]
    assert result["bundle"] == written["bundle"]

    # The attempt that was lost has another one.
    (lost,) = [name for name, ending in endings(home).items() if ending == Ending.LOST]
    again = write(home, tmp_path / "again")
    assert again["attempts"] == 1
    call(tmp_path / "again", "--max-minutes", "9")
    expect(0, "bundle", "ingest", tmp_path / "again", "--home", home.root)
    found = endings(home)
    assert {ending for name, ending in found.items() if name != lost} == {Ending.COMPLETED}

    done = run_campaign("report", "--home", home.root)
    assert done.returncode in (0, 3, 4), done.stderr
    status = expect(0, "status", "--home", home.root)
    assert "away" not in status
    assert expect_json(0, "verify", "--home", home.root)["state"] != "tampered"


def document_of(folder: Path) -> documents.Bundle:
    return documents.Bundle.read(BundlePaths(folder).document)
