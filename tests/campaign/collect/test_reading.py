"""A second process that reads ahead changes nothing that a collection finds."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from acceptance import formats
from campaign import aside
from campaign.collection import reading, tries
from campaign.collection.collect import Collection, collect
from campaign.collection.reuse import Care
from campaign.paths import HomePaths
from campaign.record.ledger import Ledger
from campaign.submission import acts
from tests.support.large import build_large


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of some attempts that was never collected."""
    return build_large(tmp_path_factory.mktemp("large") / "home", 40, windows=40, last="").paths.root


def collected(home: Path, *, rebuild: bool = False, care: Care = Care.STAMPS) -> Collection:
    paths = HomePaths(home)
    with Ledger.open(paths, lambda: 1.0) as ledger:
        return collect(paths, ledger, rebuild=rebuild, care=care)


@pytest.fixture
def with_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "is_worthwhile", lambda: True)
    monkeypatch.setattr(reading.read_tries, "__kwdefaults__", {"is_busy": False, "from_attempts": 1})


def copied(whole: Path, target: Path) -> Path:
    shutil.copytree(whole, target)
    return target


def said(collection: Collection, home: Path) -> tuple[int, int, str, dict[str, str], list[tuple[str, str]]]:
    findings = [(one.where.replace(str(home), ""), one.what) for one in collection.findings]
    return collection.attempts, collection.rows, collection.rows_sha256, dict(collection.receipts), findings


@pytest.mark.usefixtures("with_copy")
def test_it_finds_the_same_as_one_process(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_copy = copied(whole, tmp_path / "with")
    found = [said(collected(with_copy, care=care), with_copy) for care in (Care.STAMPS, Care.STAMPS, Care.BYTES)]
    rebuilt = said(collected(with_copy, rebuild=True), with_copy)
    monkeypatch.setattr(aside, "is_worthwhile", lambda: False)
    alone = copied(whole, tmp_path / "alone")
    assert said(collected(alone), alone) == found[0] == found[1] == found[2] == rebuilt


def comparable(one: tries.Try) -> tuple[tries.Try, dict[str, list[formats.Row]]]:
    """Return a try without its rows, and those: a table of rows equals itself alone."""
    assert one.sealed is not None
    tables = {name: list(rows) for name, rows in one.sealed.tables.items()}
    return replace(one, sealed=replace(one.sealed, tables={})), tables


@pytest.mark.usefixtures("with_copy")
def test_all_of_it_is_told_and_is_what_this_process_would_have_read(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, read, taken = copied(whole, tmp_path / "home"), tries.read_try, reading._try_of
    compared: list[bool] = []

    def reads_more(plans: tries.Plans, attempt: acts.Attempt) -> tries.Try:
        one = read(plans, attempt)
        assert one.sealed is not None
        kept = {**one.sealed.kept, "kept": b"\xff\0"}
        return replace(one, sealed=replace(one.sealed, kept=kept, left=frozenset({"b.log", "a.log"})))

    def compares(plans: tries.Plans, attempt: acts.Attempt, told: reading._Told) -> tries.Try:
        one = taken(plans, attempt, told)
        compared.append(comparable(one) == comparable(reads_more(plans, attempt)))
        return one

    monkeypatch.setattr(reading, "read_try", reads_more)
    monkeypatch.setattr(reading, "_try_of", compares)
    assert collected(home).attempts == 40
    assert compared == [True] * 40


@pytest.mark.usefixtures("with_copy")
def test_it_finds_the_same_changes(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = copied(whole, tmp_path / "home")
    tables = sorted(home.glob("attempts/*/pair/**/windows.csv"))
    tables[0].write_bytes(tables[0].read_bytes().replace(b"10", b"11", 1))
    receipt = tables[-1].with_name("receipt.json")
    receipt.write_text(json.dumps({**json.loads(receipt.read_bytes()), "slot": "x"}), encoding="utf-8")
    found = said(collected(home), home)
    monkeypatch.setattr(aside, "is_worthwhile", lambda: False)
    assert said(collected(home, rebuild=True), home) == found
    assert len(found[-1]) == 2


@pytest.mark.usefixtures("with_copy")
def test_what_a_killed_copy_does_not_tell_is_read_all_the_same(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = copied(whole, tmp_path / "home")
    expected = said(collected(home), home)
    own = os.getpid()

    def fails(*arguments: object) -> object:
        raise MemoryError if os.getpid() != own else AssertionError(arguments)

    monkeypatch.setattr(reading, "_told_of", fails)
    assert said(collected(home, rebuild=True), home) == expected
