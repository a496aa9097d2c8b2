"""What the commands say of bundles: what is away, what came back, what was given up."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from campaign import documents
from campaign.cli.main import main
from campaign.collection.collect import collect
from campaign.detached.ingest import ingest
from campaign.exporting.choose import Choice, Withheld, choose
from campaign.frozen import read_frozen
from campaign.judging.bundles import bundle_summaries
from campaign.judging.remarks import read_remarks
from campaign.record.ledger import Ledger, read_entries
from campaign.submission import acts
from campaign.submission.desk import open_desk
from tests.support.bundles import PACKED, PLACE, PROD, SYNC, Handmade, write_bundle, write_pilots
from tests.support.home import Home, freeze

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing wait for the disk: what a loss of power leaves is not tried here."""
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return freeze(tmp_path / "home", numerical=documents.NumericalRules())


@pytest.fixture
def pilots(home: Home, tmp_path: Path) -> Handmade:
    return write_pilots(home, tmp_path / "bundle")


@pytest.fixture
def run(home: Home, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command on the home; return its exit code, what it printed as JSON, and what it said."""

    def run_command(*arguments: str) -> tuple[int, Any, str]:
        capsys.readouterr()
        code = main([*arguments, "--json", "--home", str(home.paths.root)])
        told = capsys.readouterr()
        return code, json.loads(told.out) if told.out.strip() else None, told.err

    return run_command


def test_ingesting_says_what_came_what_was_lost_and_what_is_still_away(run: Run, pilots: Handmade) -> None:
    pilots.call("a0001", make=[1], begin=[0], is_last=False)
    code, value, said = run("bundle", "ingest", str(pilots.paths.root))
    assert code == 0
    (one,) = value["results"]
    assert one.pop("files") > 0
    assert one == {
        "path": str(pilots.paths.root),
        "bundle": pilots.id,
        "receipts": [f"{PACKED}/1"],
        "lost": [f"{SYNC}/1"],
        "away": [f"{PROD}/1"],
        "left": 0,
        "left_bytes": 0,
        "complete": False,
    }
    assert f"left no receipt: {SYNC}/1" in said


def test_what_is_wrong_with_results_is_exit_5_with_every_finding(run: Run, home: Home, pilots: Handmade) -> None:
    pilots.call("a0001")
    pilots.there().folder(SYNC).receipt.unlink()
    pilots.there().folder(PACKED).start.write_bytes(b"{}")
    code, _, said = run("bundle", "ingest", str(pilots.paths.root))
    assert code == 5
    assert "sync-b4" in said
    assert "packed-b4" in said
    assert not (home.paths.attempts / "baseline").exists()


def test_abandoning_asks_unless_it_is_told_not_to(run: Run, home: Home, pilots: Handmade) -> None:
    code, _, said = run("bundle", "abandon", pilots.id[:8], "--reason", "gone")
    assert code == 2
    assert "this gives up 3 attempt(s) in bundle" in said
    assert "cancelled" not in {entry.act for entry in read_entries(home.paths)}
    code, value, _ = run("bundle", "abandon", pilots.id[:8], "--reason", "gone", "--yes")
    assert code == 0
    assert value == {"bundle": pilots.id, "attempts": [f"{SYNC}/1", f"{PACKED}/1", f"{PROD}/1"], "reason": "gone"}
    assert run("bundle", "ingest", str(pilots.paths.root))[0] == 2


def test_what_is_away_is_left_alone_by_cancel(run: Run, home: Home, pilots: Handmade) -> None:
    code, value, _ = run("cancel", "--yes", "--reason", "all of it")
    assert (code, value["allocations"]) == (0, [])
    assert "cancelled" not in {entry.act for entry in read_entries(home.paths)}
    assert pilots.id


def test_a_campaign_is_not_closed_while_a_bundle_is_away(run: Run, home: Home, pilots: Handmade) -> None:
    code, _, said = run("seal")
    assert code == 2
    assert "3 attempt(s) have not ended" in said
    assert "of a bundle: campaign bundle ingest, or abandon" in said
    desk = open_desk(home.paths, read_frozen(home.paths), time.time)
    (reason,) = {one.reason for one in desk.view("").attempts.values()}
    assert reason == f"bundle {pilots.id}, written 2027-01-15 08:00 UTC at login1:{PLACE}"


def test_prune_removes_what_a_killed_ingestion_left(run: Run, home: Home) -> None:
    home.attempt(home.slot(SYNC))
    left = home.paths.incoming / "attempts" / "x"
    left.mkdir(parents=True)
    (left / "receipt.json").write_bytes(b"12345")
    code, value, _ = run("prune", "--yes")
    assert code == 0
    assert (value["what"], value["files"], value["bytes"]) == (["attempts/.ingest.tmp"], 1, 5)
    assert not home.paths.incoming.exists()


def test_the_report_lists_bundles_that_came_back_and_those_that_never_did(
    home: Home, pilots: Handmade, tmp_path: Path
) -> None:
    pilots.call("a0001")
    archive = pilots.pack(tmp_path / "small.tar", "attempts/*.log")
    ingest(open_desk(home.paths, read_frozen(home.paths), time.time), archive)
    never = write_bundle(home, tmp_path / "never", [home.slot("baseline/solo/sync-b4/r1")])
    given_up = write_bundle(home, tmp_path / "more", [home.slot("baseline/solo/sync-b4/r2")])
    cancelled = acts.Cancelled(allocations=tuple(given_up.slots), reason="no time")
    home.append("cancelled", cancelled.to_json())
    entries = read_entries(home.paths)
    found = {one.id: one for one in bundle_summaries(entries, acts.fold(entries))}
    assert list(found) == [pilots.id, never.id, given_up.id]
    came = found[pilots.id]
    assert (came.attempts, came.returned, came.ingested_seqs, came.complete) == (3, 2, (4,), False)
    assert (came.left, came.left_bytes) == (2, 10)
    assert (found[never.id].ingested_seqs, found[never.id].abandoned_seq) == ((), 0)
    assert (found[given_up.id].abandoned_seq, found[given_up.id].abandoned) == (len(entries), "no time")


def test_two_repeats_on_one_boot_are_a_remark_of_a_collection(home: Home, tmp_path: Path) -> None:
    solo = [home.slot(f"baseline/solo/sync-b4/r{repeat}") for repeat in (1, 2, 3)]
    made = write_bundle(home, tmp_path / "bundle", *([one] for one in solo))
    for allocation, boot in zip(made.slots, ("first", "second", "first"), strict=True):
        made.call(allocation, boot_id=boot)
    ingest(open_desk(home.paths, read_frozen(home.paths), time.time), made.paths.root)
    with Ledger.open(home.paths, time.time) as ledger:
        found = collect(home.paths, ledger)
    assert found.findings == ()
    (said,) = [one for one in read_remarks(home.paths, found) if "boot" in one]
    assert "sync-b4 (solo) in repeats 1, 3 on node1: those detached allocations were not obtained afresh" in said


def test_repeats_that_a_scheduler_obtained_are_no_remark(home: Home) -> None:
    for repeat in (1, 2):
        home.attempt(home.slot(f"baseline/solo/sync-b4/r{repeat}"))
    with Ledger.open(home.paths, time.time) as ledger:
        found = collect(home.paths, ledger)
    assert not [one for one in read_remarks(home.paths, found) if "boot" in one]


def test_comparisons_tensor_by_tensor_may_be_withheld(home: Home) -> None:
    folder = home.paths.attempt("baseline/control_case/sync-b4", 1)
    folder.root.mkdir(parents=True)
    folder.tensors.write_bytes(b"x")
    folder.table("numerical.csv").write_bytes(b"y")
    contents = choose(home.paths, Choice(kinds=frozenset({Withheld.TENSORS})))
    assert [one.path for one in contents.withheld] == ["attempts/baseline/control_case/sync-b4/1/tensors.csv.gz"]
