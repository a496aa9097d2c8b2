from __future__ import annotations

import time
from pathlib import Path

import pytest

from acceptance import formats
from campaign import documents, files
from campaign.collection.collect import collect
from campaign.collection.database import open_database
from campaign.errors import EvidenceError
from campaign.frozen import read_frozen
from campaign.judging.evidence import Evidence, build_evidence, write_evidence
from campaign.record.ledger import Ledger
from tests.support.home import CANDIDATE, NODE, SMALL, Home, attempt_all, build_home, freeze, freeze_candidate

OTHER = "c" + "d" * 12


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return build_home(tmp_path / "home", SMALL[:2], repeats=2)


def build(home: Home, candidate: str = CANDIDATE) -> Evidence:
    with Ledger.open(home.paths, time.time) as ledger:
        assert collect(home.paths, ledger).findings == ()
    frozen = read_frozen(home.paths)
    digests = {"manifest_sha256": frozen.manifest_sha256, "protocol_sha256": frozen.protocol_sha256}
    with open_database(home.paths.database, **digests) as session:
        return build_evidence(session, frozen, candidate)


def test_each_table_holds_every_collected_line_once_sorted_by_key(home: Home) -> None:
    built = build(home)
    for name, table in formats.TABLES.items():
        rows, faults = formats.parse_table(table, built.files[name], name)
        assert faults == ()
        keys = [tuple(row.values[column] for column in table.key) for row in rows]
        assert keys == sorted(keys)
        if name != "attempts.csv":
            lines = [
                line for path in home.paths.attempts.rglob(name) for line in path.read_text("utf-8").splitlines()[1:]
            ]
            assert sorted(lines) == sorted(row.raw for row in rows)


def test_a_repeat_above_nine_is_sorted_as_a_number(tmp_path: Path) -> None:
    home = build_home(tmp_path / "home", SMALL[:1], repeats=11, controls=False)
    rows, _ = formats.parse_table(formats.BASELINE, build(home).files["baseline.csv"], "baseline.csv")
    assert [row.values["repeat"] for row in rows] == list(range(1, 12))


def test_the_order_of_collection_does_not_show(home: Home) -> None:
    receipts = sorted(home.paths.attempts.rglob("receipt.json"))
    kept = {path: path.read_bytes() for path in receipts[::2]}
    for path in kept:
        path.unlink()
    build(home)
    for path, data in kept.items():
        path.write_bytes(data)
    in_two_steps = build(home)
    home.paths.database.unlink()
    assert build(home) == in_two_steps


def test_headers_stand_even_where_nothing_was_measured(tmp_path: Path) -> None:
    home = freeze(tmp_path / "home")
    freeze_candidate(home)
    built = build(home)
    for name, table in formats.TABLES.items():
        assert built.files[name] == (",".join(table.header) + "\n").encode()


def test_another_candidates_attempts_stay_out(home: Home) -> None:
    alone = build(home)
    freeze_candidate(home, OTHER, "d" * 64)
    home.ratio = lambda _workload, _repeat: 1.5
    attempt_all(home, "candidate")
    assert build(home, CANDIDATE) == alone
    other = build(home, OTHER)
    slots = [line.partition(b",")[0] for line in other.files["attempts.csv"].splitlines()[1:]]
    assert {slot.partition(b"/")[0] for slot in slots} == {b"baseline", OTHER.encode()}
    assert other.files["baseline.csv"] == alone.files["baseline.csv"]
    assert other.files["pairs.csv"] != alone.files["pairs.csv"]


def test_identity_names_manifest_snapshots_and_candidate(home: Home) -> None:
    identity = documents.Identity.parse(build(home).files["identity.json"], where="identity.json")
    assert identity == documents.Identity(
        manifest_sha256=files.sha256_file(home.paths.manifest),
        baseline_sha256="b" * 64,
        candidate=CANDIDATE,
        candidate_sha256="c" * 64,
    )


def test_an_attempts_row_says_where_it_ran_and_how_it_ended(home: Home) -> None:
    rows, _ = formats.parse_table(formats.ATTEMPTS, build(home).files["attempts.csv"], "attempts.csv")
    row = next(row for row in rows if row.values["slot"] == f"{CANDIDATE}/pair/sync-b4/r1")
    assert (row.values["node"], row.values["ending"], row.values["sealed"]) == (NODE, "completed", True)
    assert row.values["baseline_path"] == row.values["candidate_path"] != ""


def test_writing_replaces_what_was_derived_and_refuses_what_was_not(home: Home) -> None:
    built = build(home)
    evaluation = home.paths.evaluation(CANDIDATE)
    write_evidence(evaluation, built)
    evaluation.identity.write_bytes(b"old")
    (evaluation.evidence / ".pairs.csv.1.ab.tmp").write_bytes(b"left by a killed writer")
    write_evidence(evaluation, built)
    assert {path.name: path.read_bytes() for path in evaluation.evidence.iterdir()} == built.files
    (evaluation.evidence / "numbers.csv").write_bytes(b"1\n")
    with pytest.raises(EvidenceError, match="not written here"):
        write_evidence(evaluation, built)
