"""What is there and cannot be read is said to be that: nobody is accused, and nothing is established."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from campaign.cli.main import main
from campaign.collection.sealed import TamperedError
from campaign.paths import HomePaths
from campaign.record.closing import _require_verified
from campaign.verifier import command, text
from campaign.verifier.digests import Digests
from campaign.verifier.facts import Options
from campaign.verifier.findings import Check, Checks, EvidenceError, State, Unread
from campaign.verifier.tier import Tier
from campaign.verifier.verify import EXIT_UNREADABLE, Verification, verifying
from tests.support.golden import LATEST, head_of, home_of

Refuse = Callable[[Path], None]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return home_of(LATEST, tmp_path_factory.mktemp("unreadable"))


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Let a file not be opened, or a folder not be listed, as if its modes said so: root may read everything."""
    refused, opening, scanning = set[str](), os.open, os.scandir

    def require(path: Any) -> None:
        if os.fspath(path) in refused:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    def open_(path: Any, *rest: Any, **named: Any) -> int:
        require(path)
        return opening(path, *rest, **named)

    def scandir(path: Any) -> Any:
        require(path)
        return scanning(path)

    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(os, "scandir", scandir)
    return lambda path: refused.add(str(path))


def first(home: Path, pattern: str) -> Path:
    return min(home.glob(pattern))


PLACES = (
    "manifest.json",
    "protocol.json",
    "ledger.jsonl",
    "seal.json",
    "campaign.sqlite",
    "frozen/campaign.toml",
    "frozen/acceptance/*.py",
    "frozen/baseline/tree/*.py",
    "frozen/baseline/files.json",
    "frozen/candidates/*/manifest.json",
    "frozen/candidates/*/tree",
    "allocations",
    "allocations/*/allocation.json",
    "allocations/*/started.json",
    "attempts/baseline/control",
    "attempts/baseline/control/*/r1/1/windows.csv",
    "attempts/*/pair/*/r1/1/receipt.json",
    "attempts/*/run/*/*/1/segments/1/checkpoints/*/checkpoint.json",
    "attempts/*/run/*/*/1/segments/1/checkpoints/*/files/*",
    "attempts/*/run/*/*/1/segments/1/checkpoints",
    "inputs/*.safetensors",
    "evaluations/*/verdict.json",
    "evaluations/*/report/report.html",
    "evaluations/*/evidence",
)


def found(verification: Verification) -> list[str]:
    return [f"{one.state}: {one.where}: {one.what}" for one in verification.checks.findings]


@pytest.mark.parametrize("place", PLACES)
def test_what_cannot_be_read_is_unreadable_and_nothing_is_called_tampered_with(
    home: Path, refuse: Refuse, place: str
) -> None:
    path = min(home.glob(place), default=None)
    if path is None:
        pytest.fail(f"the golden campaign has no {place}")
    refuse(path)
    with verifying(home, Options(head=head_of(LATEST))) as verification:
        assert verification.state is State.UNREADABLE, found(verification)
        assert any(str(path.relative_to(home)) in one and "unreadable" in one for one in found(verification))
        assert (verification.tier, verification.verdicts) == (Tier.NONE, ())
        assert verification.exit_code(with_verdict=False) == EXIT_UNREADABLE
        assert verification.exit_code(with_verdict=True) == EXIT_UNREADABLE


def test_what_is_tampered_with_beside_it_is_found_all_the_same(tmp_path: Path, refuse: Refuse) -> None:
    copy = home_of(LATEST, tmp_path)
    refuse(first(copy, "frozen/baseline/tree/*.py"))
    path = first(copy, "attempts/baseline/control/*/r1/1/windows.csv")
    path.chmod(0o644)
    path.write_bytes(path.read_bytes() + b"x")
    with verifying(copy, Options(execute=False)) as verification:
        assert verification.state is State.TAMPERED
        states = {one.state for one in verification.checks.findings if one.state is not State.INCOMPLETE}
        assert states == {State.UNREADABLE, State.TAMPERED}
        assert verification.exit_code(with_verdict=False) == 5


def test_the_command_says_so_and_exits_with_6(home: Path, refuse: Refuse, capfd: pytest.CaptureFixture[str]) -> None:
    path = first(home, "evaluations/*/verdict.json")
    refuse(path)
    assert command.main([str(home), "--no-execute"]) == EXIT_UNREADABLE == 6
    said = capfd.readouterr().out
    assert f"{path.relative_to(home)}: is there, and cannot be read: Permission denied" in said
    assert "state: UNREADABLE" in said
    assert "tier: none, since something is there and cannot be read; no verdict is printed" in said


def test_the_installed_command_makes_no_collection_then(
    home: Path, refuse: Refuse, capsys: pytest.CaptureFixture[str]
) -> None:
    refuse(first(home, "attempts/baseline/control/*/r1/1/windows.csv"))
    assert main(["verify", str(home), "--no-execute", "--json"]) == EXIT_UNREADABLE
    said = json.loads(capsys.readouterr().out)
    assert said["state"] == "unreadable"
    (collection,) = (one for one in said["checks"] if one["name"] == "collection")
    assert collection["state"] == "not_checked"
    assert {one["state"] for one in said["findings"]} <= {"unreadable", "incomplete"}


def test_a_campaign_is_not_closed_over_what_cannot_be_read(home: Path, refuse: Refuse) -> None:
    refuse(first(home, "attempts/baseline/control/*/r1/1/windows.csv"))
    with pytest.raises(TamperedError) as caught:
        _require_verified(HomePaths(home))
    assert "cannot be read" in str(caught.value.findings)


# --- what each part says ----------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Digests]:
    (tmp_path / "closed" / "inner").mkdir(parents=True)
    (tmp_path / "x").write_bytes(b"x")
    with Digests(str(tmp_path)) as made:
        yield made


def test_a_failing_disk_is_no_contradiction(store: Digests, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_descriptor: int, _size: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "read", fail)
    with pytest.raises(EvidenceError, match="is there, and cannot be read: Input/output error") as caught:
        store.contradiction("x", 1, "0" * 64)
    assert caught.value.is_unread


def test_what_vanished_or_was_replaced_since_the_listing_is_no_trouble_of_the_disk(store: Digests) -> None:
    Path(store.root, "x").unlink()
    assert "cannot be read" in store.contradiction("x", 1, "0" * 64)
    Path(store.root, "x").symlink_to("closed")
    assert "cannot be read" in store.contradiction("x", 1, "0" * 64)


def test_nobody_knows_what_lies_in_a_folder_that_cannot_be_listed(tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "closed" / "inner").mkdir(parents=True)
    refuse(tmp_path / "closed")
    with Digests(str(tmp_path)) as store:
        assert list(store.unreadable) == ["closed"]
        assert store.get("other") is None
        assert store.names("") == ("closed",)
        assert store.is_folder("closed")
        for ask in (store.get, store.is_file, store.is_folder, store.names, store.sha256):
            with pytest.raises(EvidenceError, match="nobody knows: closed cannot be listed") as caught:
                ask("closed/inner")
            assert caught.value.is_unread
        with pytest.raises(EvidenceError, match="nobody knows"):
            store.names("closed")


def test_a_home_that_cannot_be_listed_is_unreadable(tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "frozen").mkdir()
    refuse(tmp_path)
    with verifying(tmp_path, Options()) as verification:
        assert verification.state is State.UNREADABLE


def test_a_reason_is_an_accusation_unless_it_is_that_something_could_not_be_read() -> None:
    checks = Checks()
    with checks.begin("one", "") as check:
        check.tampered("a", Unread("why"))
    assert checks.state is State.UNREADABLE
    with checks.begin("two", ""):
        raise OSError(errno.EIO, "bad", "b")
    assert (checks.made[1].state, checks.made[1].findings[0].where) == (State.UNREADABLE, "b")
    with checks.begin("three", "") as check:
        check.tampered("a", str(Unread("why")) + " and more")
    assert checks.state is State.TAMPERED


def test_each_state_has_a_word() -> None:
    assert set(text._WORDS) == set(State)
    assert Check(name="", title="").state is State.INTACT
