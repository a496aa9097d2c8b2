"""Closing a campaign: what it refuses, what it lists, the line, its signature, and what may follow."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from campaign import documents, files
from campaign.cli.main import main
from campaign.errors import EvidenceError, StateError
from campaign.freezing import freeze_candidate as freezing
from campaign.freezing.data import read_identity
from campaign.paths import HomePaths
from campaign.record.inventory import dump_seal, list_files, read_data
from campaign.record.ledger import AFTER_CLOSED, Ledger, read_entries
from campaign.submission.desk import Wish
from tests.campaign.submission.support import Cluster, make_desk
from tests.campaign.verifier import judged
from tests.support.freezing import make_setting
from tests.support.home import SMALL, attempt_all, freeze_candidate
from tests.support.jobs import make_job_home
from tests.support.large import CANDIDATE, LargeHome, build_whole, freeze_whole, freeze_whole_candidate
from tests.support.verifying import edit_document, reseal

Run = Callable[..., int]
PILOT = "baseline/pilot/sync-b4"
SETTING: dict[str, Any] = {"solo": False, "controls": False, "repeats": 1}


def acts(paths: HomePaths) -> list[str]:
    return [entry.act for entry in read_entries(paths)]


def closed(paths: HomePaths) -> dict[str, Any]:
    (entry,) = [entry for entry in read_entries(paths) if entry.act == "closed"]
    return entry.data


def seal(paths: HomePaths) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(paths.seal.read_bytes())
    return found


def go_on(paths: HomePaths) -> LargeHome:
    """Return the home that was copied, to go on with it."""
    side = documents.CandidateManifest.read(paths.candidate(CANDIDATE).manifest).candidate
    return LargeHome(
        paths=paths,
        protocol=documents.Protocol.read(paths.protocol),
        candidate=CANDIDATE,
        snapshot_sha256=side.snapshot_sha256,
        allocations=3,
    )


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out.strip()


# --- the line ---------------------------------------------------------------------------------------------------------


def test_the_line_is_the_digest_of_the_ledgers_last_line_and_the_counts(
    copied: HomePaths, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("seal") == 0
    line = printed(capsys)
    last = copied.ledger.read_bytes().splitlines()[-1]
    # A pilot of each side, one pair.
    counts = f"slots=3 attempts=3 receipts=3 candidates=1 entries={len(acts(copied))}"
    assert line == f"campaign-head/1 synthetic {hashlib.sha256(last).hexdigest()} {counts}"
    assert acts(copied)[-1] == "closed"
    assert closed(copied) == {
        "seal_sha256": files.sha256_file(copied.seal),
        "manifest_sha256": files.sha256_file(copied.manifest),
        "counts": {
            "slots": 3, "attempts": 3, "receipts": 3, "allocations": 3, "candidates": 1,
            "files": len(seal(copied)["files"]),
        },
    }  # fmt: skip


def test_a_closed_campaign_prints_the_same_line_again_also_after_another_report(
    copied: HomePaths, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("seal") == 0
    line = printed(capsys)
    before = copied.ledger.read_bytes(), copied.seal.read_bytes()
    assert run("seal") == 0
    assert printed(capsys) == line
    assert (copied.ledger.read_bytes(), copied.seal.read_bytes()) == before
    with Ledger.open(copied, lambda: 0.0) as ledger:
        ledger.append("decided", {"by": "somebody"})
    assert run("seal") == 0
    assert printed(capsys) == line
    assert run("status") == 0
    assert f"closed: {line}" in capsys.readouterr().out
    assert run("status", "--json") == 0
    assert json.loads(printed(capsys))["closed"] == line


def test_an_open_campaign_is_not_shown_as_closed(
    copied: HomePaths, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("status", "--json") == 0
    assert json.loads(printed(capsys))["closed"] is None
    assert "closed" not in acts(copied)


def test_reporting_again_after_closing_gives_the_same_report_and_no_act(copied: HomePaths, run: Run) -> None:
    assert run("report", "--exit-zero") == 0  # here, with the registry of this test
    assert run("seal") == 0
    before = copied.ledger.read_bytes(), copied.evaluation(CANDIDATE).provenance.read_bytes()
    assert run("report", "--exit-zero") == 0
    assert (copied.ledger.read_bytes(), copied.evaluation(CANDIDATE).provenance.read_bytes()) == before


def test_a_list_that_was_edited_after_closing_is_found(
    copied: HomePaths, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("seal") == 0
    copied.seal.write_bytes(copied.seal.read_bytes().replace(b"seal/1", b"seal/2"))
    assert run("seal") == 5
    assert "not the list with which the campaign was closed" in capsys.readouterr().err


def test_the_line_of_a_closed_campaign_whose_manifest_was_edited_is_not_printed(
    copied: HomePaths, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("seal") == 0
    printed(capsys)
    manifest = copied.candidate(CANDIDATE).manifest  # the ledger alone names its digest
    manifest.write_bytes(manifest.read_bytes() + b"\n")
    assert run("seal") == 5
    assert printed(capsys) == ""


# --- the list ---------------------------------------------------------------------------------------------------------


def test_every_file_is_listed_but_those_that_the_ledger_closes_over_and_what_is_no_evidence(copied: HomePaths) -> None:
    copied.seal.write_bytes(b"of a command that was killed")
    torn, leftover = copied.torn(1), copied.attempts / ".a.tmp"
    torn.write_bytes(b"torn")
    leftover.mkdir()
    (leftover / "half.bin").write_bytes(b"half")
    (copied.transport / "key").mkdir(parents=True)
    (copied.transport / "key" / "log").write_bytes(b"said")
    odd = os.fsencode(copied.frozen) + b"/caf\xe9"
    Path(os.fsdecode(odd)).write_bytes(b"odd")
    (copied.frozen / "link").symlink_to("campaign.toml")
    listed = json.loads(dump_seal("synthetic", files.sha256_file(copied.manifest), list_files(copied), {}))
    assert listed["format"] == "seal/1"
    assert listed["campaign"] == "synthetic"
    assert listed["manifest_sha256"] == files.sha256_file(copied.manifest)
    by_path = {one["path"]: one for one in listed["files"] if "path" in one}
    left_out = {copied.ledger, copied.database, copied.seal, torn}
    there = {
        path
        for path in copied.root.rglob("*")
        if path.is_file() and path not in left_out and copied.transport not in path.parents
    }
    expected = {path.relative_to(copied.root).as_posix() for path in there - {leftover / "half.bin"}}
    assert set(by_path) == {name for name in expected if "\udce9" not in name}
    assert by_path["frozen/campaign.toml"]["sha256"] == files.sha256_file(copied.config)
    assert by_path["frozen/campaign.toml"]["bytes"] == copied.config.stat().st_size
    link = by_path["frozen/link"]
    assert (link["type"], link["bytes"], link["sha256"]) == ("l", 13, files.sha256_bytes(b"campaign.toml"))
    (other,) = [one for one in listed["files"] if "path_b64" in one]
    assert other == {"path_b64": "ZnJvemVuL2NhZuk=", "type": "f", "bytes": 3, "sha256": files.sha256_bytes(b"odd")}


def test_the_list_is_in_byte_order_and_one_file_a_line(copied: HomePaths) -> None:
    listed = list_files(copied)
    paths = [one.path for one in listed]
    assert paths == sorted(set(paths))
    data = dump_seal("synthetic", "0" * 64, listed, {})
    assert data.count(b"\n") == len(listed) + 2
    assert list(json.loads(data)) == ["campaign", "data", "files", "format", "manifest_sha256"]


def test_a_pipe_in_the_home_is_refused_and_not_waited_for(copied: HomePaths, run: Run) -> None:
    os.mkfifo(copied.allocations / "pipe")
    assert run("seal") == 5
    assert "closed" not in acts(copied)


def test_a_file_that_is_written_to_while_it_is_read_is_refused(
    copied: HomePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = files.sha256_regular

    def read_and_write(path: Path) -> str:
        sha256 = read(path)
        if path == copied.config:
            path.write_bytes(path.read_bytes() + b"\n")
        return sha256

    monkeypatch.setattr(files, "sha256_regular", read_and_write)
    with pytest.raises(EvidenceError, match="written to while it was read"):
        list_files(copied)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_an_open_attempt_keeps_a_campaign_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = build_whole(tmp_path / "home", SMALL[:1], **SETTING)
    home.plan(home.slot("candidate/pair/sync-b4/r1"), 2)
    assert main(["seal", "--home", str(home.paths.root)]) == 2
    assert "1 attempt(s) have not ended" in capsys.readouterr().err
    assert not home.paths.seal.exists()


def test_a_campaign_without_a_candidate_or_an_attempt_can_be_closed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = freeze_whole(tmp_path / "home", SMALL[:1], repeats=1)
    assert main(["seal", "--home", str(home.paths.root)]) == 0
    told = capsys.readouterr()
    assert "attempts=0 receipts=0 candidates=0" in told.out
    assert "no candidate was ever frozen" in told.err
    assert "were never attempted" in told.err


def test_each_candidate_needs_a_report(copied: HomePaths, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    freeze_candidate(go_on(copied), "c" + "d" * 12, "d" * 64)
    assert run("seal") == 2
    told = capsys.readouterr().err
    assert "candidate cdddddddddddd has no report" in told
    assert "campaign report --candidate cdddddddddddd" in told


@pytest.mark.parametrize("what", ["page", "verdict", "provenance", "evidence", "missing"])
def test_a_report_that_is_not_the_reported_one_keeps_a_campaign_open(
    copied: HomePaths, run: Run, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    evaluation = copied.evaluation(CANDIDATE)
    place = {
        "page": evaluation.page,
        "verdict": evaluation.verdict,
        "provenance": evaluation.provenance,
        "evidence": evaluation.evidence / "pairs.csv",
        "missing": evaluation.page,
    }[what]
    if what == "missing":
        place.unlink()
    else:
        place.write_bytes(place.read_bytes() + b"\n")
    assert run("seal") == 2
    assert place.name in capsys.readouterr().err
    if what == "missing":
        assert run("report", "--exit-zero") == 0
        assert run("seal") == 0


def test_a_report_from_before_the_last_attempt_keeps_a_campaign_open(
    copied: HomePaths, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    home = go_on(copied)
    home.attempt(home.slot("candidate/pair/sync-b4/r1"), 2)
    assert run("seal") == 2
    assert "is not what was collected last" in capsys.readouterr().err
    assert "closed" not in acts(copied)


def test_a_finding_keeps_a_campaign_open(copied: HomePaths, run: Run) -> None:
    receipt = copied.attempt(f"{CANDIDATE}/pair/sync-b4/r1", 1).receipt
    receipt.write_bytes(receipt.read_bytes() + b"\n")
    assert run("seal") == 5
    assert "closed" not in acts(copied)


def on_two_platforms(root: Path, *, declared: bool) -> LargeHome:
    """Return a reported home whose candidate was measured under another kernel."""
    home = freeze_whole(root, SMALL[:1], **SETTING)
    attempt_all(home, "baseline")
    freeze_whole_candidate(home)
    if declared:
        home.collect()
        home.append("amended", amendment(PILOT))
        home.attempt(home.slot(PILOT), 2)
    attempt_all(home, "candidate")
    home.collect()
    for start in (home.paths.attempts / CANDIDATE).rglob("start.json"):
        edit_document(start, lambda value: value["host"].update(kernel="6.2"))
    reseal(root)
    assert judged.report(home, "--exit-zero") == 0
    return home


def platforms(home: LargeHome) -> list[tuple[str, int, str, bool]]:
    """Return what the report's provenance says of platforms."""
    found = documents.Provenance.read(home.paths.evaluation(CANDIDATE).provenance).platforms or ()
    return [(one.kernel, one.attempts, one.first.rpartition("/")[0], one.is_declared) for one in found]


def amendment(slot: str) -> dict[str, Any]:
    words = {"what": "platform", "changed": "kernel", "by": "A", "reason": "B", "keep_reason": "C"}
    about = {
        "void": [slot],
        "voided_attempts": {slot: 1},
        "valid": "all other slots",
        "shown": [],
        "after_report": False,
    }
    return {**words, **about, "platform": True}


def test_what_verification_alone_finds_keeps_a_campaign_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = on_two_platforms(tmp_path / "home", declared=False)
    assert platforms(home) == [("6.1", 1, PILOT, True), ("6.2", 2, f"{CANDIDATE}/pilot/sync-b4", False)]
    capsys.readouterr()
    assert main(["collect", "--home", str(home.paths.root)]) == 0
    assert main(["seal", "--home", str(home.paths.root)]) == 5
    told = capsys.readouterr()
    assert "campaign-head" not in told.out
    assert "verification finds fault with the campaign, which therefore stays open: 1 finding\n" in told.err
    where = f"attempts/{CANDIDATE}/pilot/sync-b4/1/start.json"
    assert f"{where}: 2 attempts, of which this is the first, ran on another platform: kernel is '6.2'" in told.err
    assert not home.paths.seal.exists()
    assert "closed" not in acts(home.paths)


def test_a_campaign_on_platforms_that_were_declared_is_closed_and_stays_intact(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = on_two_platforms(tmp_path / "home", declared=True)
    assert platforms(home) == [("6.1", 1, PILOT, True), ("6.2", 2, f"{CANDIDATE}/pilot/sync-b4", True)]
    capsys.readouterr()
    assert main(["seal", "--home", str(home.paths.root)]) == 0
    line = printed(capsys)
    assert main(["verify", str(home.paths.root), "--no-execute", "--head", line]) == 0
    assert "tier: externally anchored" in capsys.readouterr().out


def test_a_file_that_was_added_keeps_a_campaign_open_and_a_killed_command_does_not(
    copied: HomePaths, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    copied.seal.write_bytes(b"half of a li")
    added = copied.baseline.tree / "adapter.pyc"
    added.write_bytes(b"compiled")
    assert run("seal") == 5
    assert "frozen/baseline/tree/adapter.pyc" in capsys.readouterr().err
    assert copied.seal.read_bytes() == b"half of a li"
    added.unlink()
    assert run("seal") == 0


def test_a_freeze_that_was_killed_keeps_a_campaign_open(copied: HomePaths, run: Run) -> None:
    copied.staging.mkdir()
    assert run("seal") == 2


# --- declared data ----------------------------------------------------------------------------------------------------


def with_data(tmp_path: Path) -> tuple[LargeHome, Path]:
    """Return a home without a candidate that declares a data set."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.txt").write_bytes(b"to be")
    data = {"plays": read_identity(corpus).to_json()}
    return freeze_whole(tmp_path / "home", SMALL[:1], repeats=1, manifest={"data": data}), corpus


def test_data_that_is_as_it_was_frozen_is_recorded_with_its_digest(tmp_path: Path) -> None:
    home, corpus = with_data(tmp_path)
    assert main(["seal", "--home", str(home.paths.root)]) == 0
    said = read_identity(corpus)
    assert seal(home.paths)["data"] == {
        "plays": {"state": "same", "sha256": said.sha256, "bytes": 5, "files": 1, "reason": ""}
    }


def test_data_that_changed_keeps_a_campaign_open_unless_somebody_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, corpus = with_data(tmp_path)
    (corpus / "a.txt").write_bytes(b"not to")  # another size
    assert main(["seal", "--home", str(home.paths.root)]) == 5
    assert "plays is not what was frozen" in capsys.readouterr().err
    assert not home.paths.seal.exists()
    assert main(["seal", "--home", str(home.paths.root), "--data-changed", "a typo was mended"]) == 0
    plays = seal(home.paths)["data"]["plays"]
    assert (plays["state"], plays["reason"]) == ("changed", "a typo was mended")
    assert plays["sha256"] == read_identity(corpus).sha256


def test_data_that_is_elsewhere_is_recorded_as_such_and_what_became_empty_as_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, corpus = with_data(tmp_path)
    frozen = home.manifest.data["plays"]
    assert read_data(frozen).state == "same"
    (corpus / "a.txt").write_bytes(b"to me")  # of the same size
    assert read_data(frozen).state == "changed"
    (corpus / "a.txt").unlink()
    assert read_data(frozen).state == "changed"
    corpus.rmdir()
    assert main(["seal", "--home", str(home.paths.root)]) == 0
    plays = seal(home.paths)["data"]["plays"]
    assert (plays["state"], plays["sha256"], plays["reason"]) == ("not_here", "", "there is no such data set")
    assert "plays was not hashed again" in capsys.readouterr().err


# --- the signature ----------------------------------------------------------------------------------------------------


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "auditor", "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return path


def verify(tmp_path: Path, signature: Path, line: bytes, namespace: str = "campaign-head") -> int:
    signers = tmp_path / "signers"
    signers.write_text(f"auditor {(tmp_path / 'key.pub').read_text()}")
    command = ["ssh-keygen", "-Y", "verify", "-n", namespace, "-I", "auditor", "-f", str(signers), "-s", str(signature)]
    return subprocess.run(command, input=line, capture_output=True, check=False).returncode


def test_the_line_is_signed_beside_the_home_and_can_be_signed_again(
    run: Run, key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    monkeypatch.chdir(outside)
    assert run("seal", "--sign", str(key)) == 0
    line, signature = outside / "synthetic.head", outside / "synthetic.head.sig"
    assert line.read_text().startswith("campaign-head/1 synthetic ")
    assert verify(tmp_path, signature, line.read_bytes()) == 0
    assert verify(tmp_path, signature, line.read_bytes().replace(b"slots=3", b"slots=4")) != 0
    assert verify(tmp_path, signature, line.read_bytes(), namespace="file") != 0
    assert run("seal", "--sign", str(key)) == 2  # it is there already
    assert run("seal", "--sign", str(key), "--signature", "again.sig") == 0
    assert (outside / "again").read_bytes() == line.read_bytes()
    assert verify(tmp_path, outside / "again.sig", line.read_bytes()) == 0


def test_a_signature_that_could_not_be_made_keeps_a_campaign_open(
    copied: HomePaths, run: Run, key: Path, tmp_path: Path
) -> None:
    inside = str(copied.evaluations / "x.sig")
    (tmp_path / "way").symlink_to(copied.root)
    refused = [
        ("--sign", str(tmp_path / "none")),
        ("--sign", str(key), "--signature", inside),
        ("--sign", str(key), "--signature", str(tmp_path / "way" / "x.sig")),
        ("--sign", str(key), "--signature", str(tmp_path / "x.txt")),
        ("--sign", str(key), "--signature", str(tmp_path / "none" / "x.sig")),
        ("--signature", str(tmp_path / "x.sig")),
    ]
    assert [run("seal", *arguments) for arguments in refused] == [2] * len(refused)
    assert "closed" not in acts(copied)


def test_a_key_that_does_not_sign_is_told_although_the_campaign_is_closed(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad").write_text("no key")
    assert run("seal", "--sign", str(tmp_path / "bad"), "--signature", str(tmp_path / "x.sig")) == 6
    assert "closed, but the head line was not signed" in capsys.readouterr().err
    assert not (tmp_path / "x.sig").exists()
    assert run("seal") == 0


# --- afterwards -------------------------------------------------------------------------------------------------------


@pytest.fixture
def shut(copied: HomePaths, run: Run) -> HomePaths:
    """Return a closed campaign."""
    assert run("seal") == 0
    return copied


def test_only_what_says_something_about_a_closed_campaign_is_recorded(shut: HomePaths) -> None:
    every = documents.Act.__args__  # type: ignore[attr-defined]  # a Literal has them
    with Ledger.open(shut, lambda: 0.0) as ledger:
        for act in every:
            if act in AFTER_CLOSED:
                ledger.append(act, {})
            else:
                with pytest.raises(StateError, match="the campaign is closed"):
                    ledger.append(act, {})
    assert set(acts(shut)[acts(shut).index("closed") + 1 :]) == AFTER_CLOSED


COMMANDS = {
    "submit": ("submit", "--cluster", "local", "--yes"),
    "submit, shown alone": ("submit", "--cluster", "local", "--dry-run"),
    "cancel": ("cancel", "--yes"),
    "prune": ("prune", "--yes"),
    "amend": (
        "amend", "--what", "node", "--changed", "node2 replaced node1", "--void", "baseline/*", "--keep-reason", "none",
        "--by", "somebody", "--reason", "it broke", "--yes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_a_closed_campaign_refuses_what_would_change_it(
    shut: HomePaths, run: Run, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    (shut.transport / "k" / "pycache").mkdir(parents=True)
    before = sorted(path for path in shut.root.rglob("*"))
    ledger = shut.ledger.read_bytes()
    assert run(*arguments) == 2
    assert "the campaign is closed" in capsys.readouterr().err
    assert shut.ledger.read_bytes() == ledger
    assert sorted(path for path in shut.root.rglob("*")) == before


def test_collecting_from_a_closed_campaign_looks_and_records_nothing(
    shut: HomePaths, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = shut.ledger.read_bytes()
    assert run("collect") == 0
    assert run("collect", "--rebuild") == 0
    assert shut.ledger.read_bytes() == ledger
    receipt = shut.attempt(f"{CANDIDATE}/pair/sync-b4/r1", 1).receipt
    receipt.write_bytes(receipt.read_bytes() + b"\n")
    assert run("collect") == 5
    assert str(receipt) in capsys.readouterr().err
    assert shut.ledger.read_bytes() == ledger


def test_a_submission_that_was_prepared_before_the_campaign_was_closed_is_refused(tmp_path: Path) -> None:
    home, cluster = make_job_home(tmp_path / "home", candidate=False), Cluster()
    desk, wish = make_desk(home, cluster), Wish(candidate="", cluster="slurm")
    order = desk.order(wish, desk.view(""), desk.array_limit("slurm"))
    with Ledger.open(home.paths, lambda: 0.0) as ledger:
        ledger.append("closed", {})
    with pytest.raises(StateError, match="the campaign is closed"):
        desk.hand_over(wish, order, print)
    assert cluster.requests == []
    assert not home.paths.allocations.exists()


def test_a_candidate_is_not_frozen_into_a_closed_campaign(shut: HomePaths, tmp_path: Path) -> None:
    config = make_setting(tmp_path / "setting").config()
    with pytest.raises(StateError, match="no candidate can be frozen into it"):
        freezing.freeze_candidate(config, shut, source=None, clock=lambda: 0.0)
    assert not shut.staging.exists()


def test_a_lock_of_a_closed_campaign_can_still_be_taken_over(shut: HomePaths, run: Run) -> None:
    with shut.ledger.open("ab") as stream:
        stream.write(b'{"torn')
    assert run("collect") == 0
    assert acts(shut)[-1] == "torn_line"
    shutil.copy(shut.ledger, shut.root.parent / "kept")
    assert run("seal") == 0
