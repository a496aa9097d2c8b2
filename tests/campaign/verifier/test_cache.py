from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import inspect

from acceptance.formats import Ending
from campaign import documents, files
from campaign.cli.main import main
from campaign.collection import database
from campaign.verifier import cache
from campaign.verifier.findings import Check, State
from tests.campaign.verifier import judged
from tests.support.home import Case, Home, build_home
from tests.support.training import make_rules

CASES = (Case(name="sync-b4", category="sync"),)
PAIR = "candidate/pair/sync-b4/r1"
RUN = "candidate/run/lm/s45"


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Return a home with every kind of row: segments, a lost attempt, a cancelled one, files, inputs, checkpoints."""
    made = build_home(
        tmp_path_factory.mktemp("collected") / "home",
        CASES,
        repeats=1,
        numerical=documents.NumericalRules(updates=2),
        convergence=make_rules("lm"),
    )
    slot = made.slot(PAIR)
    made.end(slot, 2, made.plan(slot, 2), Ending.NODE_FAIL)
    allocation = made.plan(slot, 3)
    made.append("cancelled", {"allocations": [allocation], "reason": "the wrong queue"})
    made.run(slot, 3, allocation, ending=Ending.CANCELLED, reason="told to stop")
    assert main(["collect", "--home", str(made.paths.root)]) == 0
    return made


@pytest.fixture
def home(collected: Home, tmp_path: Path) -> Home:
    shutil.copytree(collected.paths.root, tmp_path / "a home?")
    return Home(paths=type(collected.paths)(tmp_path / "a home?"), protocol=collected.protocol, allocations=900)


def found(home: Home) -> list[tuple[State, str, str]]:
    return judged.findings(home.paths.root, cache.check)


def change(home: Home, statement: str) -> None:
    with closing(sqlite3.connect(home.paths.database)) as connection:
        assert connection.execute(statement).rowcount != 0
        connection.commit()


def test_the_tables_and_marks_are_those_of_the_collection(home: Home) -> None:
    with database.open_database(
        home.paths.database,
        manifest_sha256=files.sha256_file(home.paths.manifest),
        protocol_sha256=files.sha256_file(home.paths.protocol),
    ) as session:
        seen = inspect(session.connection())
        theirs = {name: {column["name"] for column in seen.get_columns(name)} for name in seen.get_table_names()}
    assert {name: set(own) for name, own in cache.tables().items()} == theirs
    assert (cache.APPLICATION_ID, cache.SCHEMA_VERSION) == (database.APPLICATION_ID, database.SCHEMA_VERSION)


def test_a_cache_as_it_was_collected_is_intact_and_is_not_touched(home: Home) -> None:
    before = home.paths.database.read_bytes(), home.paths.database.stat().st_mtime_ns
    assert found(home) == []
    assert (home.paths.database.read_bytes(), home.paths.database.stat().st_mtime_ns) == before
    assert not list(home.paths.root.glob("campaign.sqlite-*"))


EDITS = {
    "a typed number": "UPDATE pairs SET train_s = train_s * 0.99 WHERE side = 'candidate'",
    "a line of text": "UPDATE pairs SET raw = replace(raw, ',3200,', ',3201,') WHERE side = 'candidate'",
    "a row less": "DELETE FROM windows WHERE rowid IN (SELECT rowid FROM windows LIMIT 1)",
    "an ending": "UPDATE attempts SET ending = 'lost' WHERE ending = 'node_fail'",
    "a receipt": "UPDATE receipts SET start_sha256 = receipt_sha256",
    "a reason": "UPDATE receipts SET reason = 'campaign cancel: something else; told to stop' WHERE reason <> ''",
    "a segment": 'UPDATE segments SET "update" = 1',
    "a file": "UPDATE files SET bytes = bytes + 1 WHERE name = 'pairs.csv'",
    "an empty number": "UPDATE numerical SET reference = 0 WHERE reference IS NULL",
    "a curve": "UPDATE curves SET validation_loss = validation_loss - 1",
    "the owner": "UPDATE origin SET protocol_sha256 = manifest_sha256",
    "a stamp of an input": "UPDATE inputs SET bytes = bytes + 1",
    "a stamp of a checkpoint": "UPDATE checkpoint_files SET sha256 = lower(hex(zeroblob(32)))",
    "an attempt less": "DELETE FROM attempts WHERE attempt = 3",
    "another table": "CREATE TABLE more (id INTEGER)",
    "a view for a table": "ALTER TABLE vacuity RENAME TO hidden",
    "no mark": "PRAGMA application_id = 1",
}


@pytest.mark.parametrize("statement", EDITS.values(), ids=list(EDITS))
def test_whatever_is_edited_in_the_cache_is_found(home: Home, statement: str) -> None:
    change(home, statement)
    states = {(state, where) for state, where, _ in found(home)}
    assert states == {(State.TAMPERED, "campaign.sqlite")}


def test_an_attempt_more_is_found(home: Home) -> None:
    change(home, "UPDATE attempts SET attempt = 9 WHERE attempt = 2")  # nothing hangs on it: it left no receipt
    reasons = [what for state, _, what in found(home) if state is State.TAMPERED]
    assert any("r1/9, which left no ending" in what for what in reasons)
    assert any("collected (1), as" in what for what in reasons)


@pytest.mark.parametrize("place", [0, 100, 4096 * 3])
def test_a_damaged_cache_is_a_finding_and_ends_nothing(home: Home, place: int) -> None:
    data = bytearray(home.paths.database.read_bytes())
    data[place : place + 64] = b"\xff" * 64
    home.paths.database.write_bytes(data)
    assert {state for state, *_ in found(home)} == {State.TAMPERED}


def test_a_cache_may_be_older_than_the_attempts(home: Home) -> None:
    slot = home.slot(PAIR)
    home.attempt(slot, 4)
    assert found(home) == []
    home.append("amended", {"void": [home.real_slot(PAIR)], "voided_attempts": {home.real_slot(PAIR): 4}})
    assert found(home) == []


def test_a_receipt_that_came_late_is_seen_before_and_after_it_is_collected(home: Home) -> None:
    slot = home.slot(RUN)
    allocation = home.segment(slot, 2, 1, ending=Ending.NODE_FAIL, is_sealed=False)
    assert main(["collect", "--home", str(home.paths.root)]) in (0, 5)
    assert found(home) == []
    home.seal(slot, 2, allocation, ending=Ending.NODE_FAIL, segment=1, run=home.run_receipt(slot, 2, 1, None, 12))
    assert found(home) == []


def look(home: Home) -> Check:
    check = Check(name="cache", title="")
    with judged.knowing(home.paths.root) as facts:
        cache.check(facts, check)
    return check


def _gone(home: Home) -> None:
    home.paths.database.unlink()


def _newer(home: Home) -> None:
    with closing(sqlite3.connect(home.paths.database)) as connection:
        connection.execute(f"PRAGMA user_version = {database.SCHEMA_VERSION + 1}")


def _cut_short(home: Home) -> None:
    Path(f"{home.paths.database}-journal").write_bytes(b"journal")


@pytest.mark.parametrize(
    ("edit", "why"),
    [(_gone, "nothing rests on it"), (_newer, "another release"), (_cut_short, "was cut short")],
)
def test_what_cannot_be_compared_is_not_checked_and_says_why(
    home: Home, edit: Callable[[Home], None], why: str
) -> None:
    edit(home)
    check = look(home)
    assert (check.state, check.findings) == (State.NOT_CHECKED, [])
    assert why in " ".join(check.remarks)


def test_a_link_in_its_place_is_a_finding(home: Home) -> None:
    home.paths.database.rename(home.paths.root / "aside")
    home.paths.database.symlink_to("aside")
    assert [(state, where) for state, where, _ in found(home)] == [(State.TAMPERED, "campaign.sqlite")]


def test_a_cache_that_would_be_read_for_ever_is_given_up(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "TIMEOUT_S", -1.0)
    monkeypatch.setattr(cache, "_STEPS", 1)
    ((state, _, what),) = found(home)
    assert state is State.TAMPERED
    assert "interrupted" in what


def test_attempts_that_are_not_whole_are_left_out(home: Home) -> None:
    (home.folder(PAIR).root / "pairs.csv").unlink()
    check = look(home)
    assert (check.state, check.findings) == (State.NOT_CHECKED, [])


def test_a_computed_column_is_found_before_it_is_read(home: Home) -> None:
    with closing(sqlite3.connect(home.paths.database)) as connection:
        connection.execute("ALTER TABLE files ADD COLUMN more TEXT AS (printf('%.*c', 900000000, 'x')) VIRTUAL")
        connection.commit()
    (only,) = found(home)
    assert only[0] is State.TAMPERED
    assert "computed column" in only[2]


def test_what_is_remembered_of_the_file_system_is_nobodys_evidence(home: Home) -> None:
    change(home, "INSERT INTO stamps SELECT slot, attempt, lower(hex(zeroblob(32))) FROM receipts")
    assert found(home) == []


def test_a_cache_of_the_release_before_has_no_such_table(home: Home) -> None:
    with closing(sqlite3.connect(home.paths.database)) as connection:
        connection.execute("PRAGMA user_version = 4")
    ((state, _, _),) = found(home)
    assert state is State.TAMPERED
    with closing(sqlite3.connect(home.paths.database)) as connection:
        connection.execute("DROP TABLE stamps")
    assert found(home) == []
    change(home, EDITS["a line of text"])
    assert {state for state, *_ in found(home)} == {State.TAMPERED}
