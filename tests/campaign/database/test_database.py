from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, text
from sqlalchemy.exc import IntegrityError, StatementError
from sqlalchemy.orm import Session

from acceptance import formats
from acceptance.formats import Ending
from campaign.collection import database
from campaign.collection.checkpoints import Hashed
from campaign.collection.database import (
    ATTEMPTS,
    ROWS,
    AttemptRecord,
    SegmentRecord,
    StoredFile,
    insert_attempts,
    open_database,
    stored_attempts,
)
from campaign.collection.inputs import Stamp
from campaign.documents import CheckpointName
from campaign.errors import InfrastructureError, StateError

ATTEMPT = "baseline/control/w/r1,1,a1,node1,cpu:x,,,completed,true"
PAIR = "w,control,,false,1,1,1,baseline,1,a1,node1,cpu:x,20,10,3200,0.5,12.5,13.25,1,1,256.0"


def rows(table: formats.Table, *lines: str) -> tuple[formats.Row, ...]:
    found, faults = formats.parse_table(table, ("\n".join([",".join(table.header), *lines]) + "\n").encode(), "x")
    assert faults == ()
    return found


def record(pairs: tuple[formats.Row, ...] = rows(formats.PAIRS, PAIR)) -> AttemptRecord:
    return AttemptRecord(
        row=rows(formats.ATTEMPTS, ATTEMPT)[0],
        receipt_sha256="1" * 64,
        start_sha256="2" * 64,
        kind="control_pair",
        files=(StoredFile(name="pairs.csv", bytes=10, sha256="3" * 64),),
        tables={"pairs.csv": pairs},
    )


def opened(path: Path, *, manifest: str = "m" * 64) -> Iterator[Session]:
    with open_database(path, manifest_sha256=manifest, protocol_sha256="p" * 64) as session:
        yield session


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    yield from opened(tmp_path / "cache")


def pragma(session: Session, name: str) -> object:
    return session.connection().exec_driver_sql(f"PRAGMA {name}").scalar()


def test_every_evidence_table_has_the_columns_of_its_format_in_order() -> None:
    for file, table in {"attempts.csv": ATTEMPTS, **ROWS}.items():
        names = [column.name for column in table.columns]
        header = list(formats.TABLES[file].header)
        start = names.index(header[0])
        assert names[start : start + len(header)] == header
        assert names[-1] == "raw"


def test_every_table_is_strict(session: Session) -> None:
    found = session.execute(text("SELECT name, strict FROM pragma_table_list WHERE schema = 'main'")).all()
    assert {name for name, _ in found} >= {
        "attempts",
        "pairs",
        "windows",
        "baseline",
        "receipts",
        "files",
        "origin",
        "numerical",
        "vacuity",
        "inputs",
        "convergence",
        "curves",
        "segments",
        "checkpoint_files",
    }
    assert [name for name, strict in found if not strict and not name.startswith("sqlite_")] == []


def test_the_file_is_marked_and_journalled_for_shared_file_systems(session: Session) -> None:
    assert pragma(session, "application_id") == database.APPLICATION_ID
    assert pragma(session, "user_version") == database.SCHEMA_VERSION
    assert pragma(session, "journal_mode") == "delete"
    assert pragma(session, "synchronous") == 2
    assert pragma(session, "foreign_keys") == 1


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("train_s", None),
        ("train_s", float("nan")),
        ("train_s", float("inf")),
        ("train_s", "fast"),
        ("repeat", 0),
        ("tokens", -1),
        ("tokens", 1.5),
        ("side", "neither"),
        ("comparison", ""),
        ("production", 2),
        ("workload", ""),
        ("line", 1),
        ("source_slot", "baseline/control/w/r2"),
    ],
)
def test_a_value_outside_its_columns_syntax_is_refused(session: Session, column: str, value: object) -> None:
    insert_attempts(session, [record(pairs=())])
    table = ROWS["pairs.csv"]
    (row,) = rows(formats.PAIRS, PAIR)
    place = {"source_slot": "baseline/control/w/r1", "source_attempt": 1, "line": 2}
    good: dict[str, object] = {**place, **row.values, "raw": PAIR}
    with session.begin_nested():
        session.execute(insert(table).values(good))
    with pytest.raises(StatementError), session.begin_nested():
        session.execute(insert(table).values({**good, "line": 3, column: value}))


NUMERICAL = "w,control,1,1,0,gradients,2.5,0.25,0.1,head,0.2,0,independent,false"
LOST_NUMBERS = "w,control,1,2,0,gradients,,,,head,,3,independent,false"


def numerical_row(line: int = 2) -> dict[str, object]:
    (row,) = rows(formats.NUMERICAL, NUMERICAL)
    place = {"source_slot": "baseline/control/w/r1", "source_attempt": 1, "line": line}
    return {**place, **row.values, "raw": NUMERICAL}


def test_an_empty_number_is_null_and_its_line_stays_as_it_was(session: Session) -> None:
    tables = {"numerical.csv": rows(formats.NUMERICAL, NUMERICAL, LOST_NUMBERS)}
    insert_attempts(session, [replace(record(), tables=tables)])
    found = session.execute(text("SELECT reference, value, rel_l2, worst_rel_l2, nonfinite FROM numerical")).all()
    assert [tuple(row) for row in found] == [(2.5, 0.25, 0.1, 0.2, 0), (None, None, None, None, 3)]
    assert database.sorted_lines(session, "numerical.csv", ("baseline",)) == [NUMERICAL, LOST_NUMBERS]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("reference", "high"),
        ("rel_l2", float("inf")),
        ("nonfinite", None),
        ("nonfinite", -1),
        ("update", 0),
        ("worst_tensor", None),
        ("quantity", "weights"),
        ("executor", ""),
        ("serialized", 2),
    ],
)
def test_a_value_outside_the_syntax_of_the_numerical_table_is_refused(
    session: Session, column: str, value: object
) -> None:
    insert_attempts(session, [record(pairs=())])
    table = ROWS["numerical.csv"]
    with session.begin_nested():
        session.execute(insert(table).values(numerical_row()))
    with pytest.raises(StatementError), session.begin_nested():
        session.execute(insert(table).values({**numerical_row(3), column: value}))


def test_stamps_come_back_as_they_were_and_new_ones_take_their_place(session: Session) -> None:
    name = f"{'0' * 64}.json"
    stamp = Stamp(num_bytes=3, inode=str(2**64 - 1), modified_ns=5, changed_ns=7)
    database.store_stamps(session, {name: stamp, f"{'1' * 64}.json": stamp})
    database.store_stamps(session, {name: stamp})
    assert database.stored_stamps(session) == {name: stamp}
    database.store_stamps(session, {})
    assert database.stored_stamps(session) == {}


def test_a_row_that_a_sealed_file_holds_twice_is_kept_twice(session: Session) -> None:
    insert_attempts(session, [record(pairs=rows(formats.PAIRS, PAIR, PAIR))])
    assert database.sorted_lines(session, "pairs.csv", ("baseline",)) == [PAIR, PAIR]


def test_an_attempt_cannot_be_stored_twice(session: Session) -> None:
    insert_attempts(session, [record()])
    with pytest.raises(IntegrityError), session.begin_nested():
        insert_attempts(session, [record()])


def test_forgetting_an_attempt_forgets_all_that_hangs_on_it(session: Session) -> None:
    insert_attempts(session, [record()])
    database.delete_attempt(session, ("baseline/control/w/r1", 1))
    for table in database.Base.metadata.sorted_tables:
        assert table.name == "origin" or session.execute(table.select()).all() == []


def test_what_is_stored_comes_back_as_it_was_written(session: Session) -> None:
    insert_attempts(session, [record()])
    (stored,) = stored_attempts(session).values()
    assert (stored.raw, stored.is_sealed) == (ATTEMPT, True)
    assert stored.endings == {0: ("completed", "1" * 64)}
    assert database.stored_lines(session, ("baseline/control/w/r1", 1)) == {"pairs.csv": ((2, PAIR),)}


RUN = "baseline/run/sync/s45,1,a2,node1,cpu:x,,,completed,true"


def segment(number: int = 1, **fields: Any) -> SegmentRecord:
    """Return a sealed segment; one after the first starts from a checkpoint."""
    resumed = CheckpointName(segment=number - 1, update=5, sha256="9" * 64) if number > 1 else None
    made = SegmentRecord(
        segment=number,
        allocation=f"a{number}",
        node="node1",
        device="cpu:x",
        ending=Ending.COMPLETED,
        reason="",
        receipt_sha256=str(number) * 64,
        start_sha256=str(number) * 64,
        resumed=resumed,
        first_update=5 if resumed else 0,
        update=40,
        files=(StoredFile(name="start.json", bytes=10, sha256="3" * 64),),
    )
    return replace(made, **fields)


LOST: dict[str, Any] = {
    "ending": Ending.LOST,
    "receipt_sha256": "",
    "start_sha256": "",
    "first_update": None,
    "update": None,
}


def a_run(*segments: SegmentRecord) -> AttemptRecord:
    return AttemptRecord(row=rows(formats.ATTEMPTS, RUN)[0], tables={}, segments=segments)


def test_a_run_is_stored_with_its_segments_and_their_files(session: Session) -> None:
    insert_attempts(session, [record(), a_run(segment(1, **LOST, files=()), segment(2))])
    stored = stored_attempts(session)["baseline/run/sync/s45", 1]
    assert stored.endings == {1: ("lost", ""), 2: ("completed", "2" * 64)}
    names = 'resumed_segment, resumed_update, resumed_sha256, first_update, "update", receipt_sha256'
    found = session.execute(text(f"SELECT {names} FROM segments ORDER BY segment")).all()  # noqa: S608 - our own names
    assert [tuple(row) for row in found] == [(None,) * 6, (1, 5, "9" * 64, 5, 40, "2" * 64)]
    assert session.execute(text("SELECT segment, name FROM files ORDER BY segment")).all() == [
        (0, "pairs.csv"),
        (2, "start.json"),
    ]
    assert session.execute(text("SELECT slot FROM receipts")).all() == [("baseline/control/w/r1",)]


@pytest.mark.parametrize(
    "fields",
    [
        {"segment": 0},
        {"start_sha256": ""},
        {"receipt_sha256": "1"},
        {"resumed": CheckpointName(segment=3, update=5, sha256="9" * 64)},
    ],
)
def test_a_segment_that_cannot_be_is_refused(session: Session, fields: dict[str, object]) -> None:
    with session.begin_nested():
        insert_attempts(session, [a_run(segment(2))])
    database.delete_attempt(session, ("baseline/run/sync/s45", 1))
    with pytest.raises(StatementError), session.begin_nested():
        insert_attempts(session, [a_run(segment(2, **fields))])


def test_one_receipt_cannot_stand_for_two_segments(session: Session) -> None:
    with pytest.raises(IntegrityError), session.begin_nested():
        insert_attempts(session, [a_run(segment(1), segment(2, receipt_sha256="1" * 64))])


def test_files_of_checkpoints_come_back_as_they_were_and_new_ones_take_their_place(
    session: Session, tmp_path: Path
) -> None:
    stamp = Stamp(num_bytes=3, inode=str(2**64 - 1), modified_ns=5, changed_ns=7)
    right = {tmp_path / "attempts" / name: Hashed(sha256="5" * 64, stamp=stamp) for name in ("one", "two")}
    database.store_checkpoint_files(session, tmp_path, right)
    assert database.stored_checkpoint_files(session, tmp_path) == right
    right.popitem()
    database.store_checkpoint_files(session, tmp_path, right)
    assert database.stored_checkpoint_files(session, tmp_path) == right


def test_a_cache_of_an_earlier_release_is_refused_with_the_way_out(tmp_path: Path) -> None:
    list(opened(tmp_path / "cache"))
    connection = sqlite3.connect(tmp_path / "cache")
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(StateError, match="not a cache of this release") as caught:
        list(opened(tmp_path / "cache"))
    assert caught.value.hint == "campaign collect --rebuild"


def test_an_exception_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    digests = {"manifest_sha256": "m" * 64, "protocol_sha256": "p" * 64}
    with pytest.raises(ZeroDivisionError), open_database(path, **digests) as session:  # noqa: PT012 - the body is the test
        insert_attempts(session, [record()])
        _ = 1 / 0
    with open_database(path, **digests) as session:
        assert stored_attempts(session) == {}
    assert [entry.name for entry in tmp_path.iterdir()] == ["cache"]


def test_the_cache_of_another_home_is_refused(tmp_path: Path) -> None:
    list(opened(tmp_path / "cache"))
    with pytest.raises(StateError, match="another home"):
        list(opened(tmp_path / "cache", manifest="n" * 64))


def test_a_file_that_is_no_cache_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"no database at all" * 100)
    with pytest.raises(StateError, match="cannot be used") as caught:
        list(opened(tmp_path / "cache"))
    assert caught.value.hint == "campaign collect --rebuild"


def test_somebody_elses_database_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "cache")
    connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    with pytest.raises(StateError, match="not a cache of this release"):
        list(opened(tmp_path / "cache"))


# --- what a machine refuses -------------------------------------------------------------------------------------------


def store(path: Path, *records: AttemptRecord) -> None:
    with open_database(path, manifest_sha256="m" * 64, protocol_sha256="p" * 64) as session:
        insert_attempts(session, records)


def _limit_pages(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Let SQLite meet its own error of a full disk after some pages."""
    prepare = database._prepare_connection

    def limited(connection: sqlite3.Connection, record: object) -> None:
        prepare(connection, record)
        connection.execute(f"PRAGMA max_page_count = {most}")

    monkeypatch.setattr(database, "_prepare_connection", limited)


def test_a_disk_that_is_full_while_the_cache_is_made_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cache"
    with monkeypatch.context() as patched:
        _limit_pages(patched, 4)
        with pytest.raises(InfrastructureError, match="full") as caught:
            next(opened(path))
    assert caught.value.where == str(path)
    assert "free some space" in caught.value.hint
    assert list(tmp_path.iterdir()) == []
    for session in opened(path):
        assert stored_attempts(session) == {}


def test_a_disk_that_is_full_while_rows_are_stored_leaves_the_cache_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cache"
    store(path, record())
    pairs = rows(formats.PAIRS, *[PAIR.replace(",1,1,1,", f",1,{pair},1,", 1) for pair in range(2, 400)])
    later = replace(
        record(pairs), row=rows(formats.ATTEMPTS, ATTEMPT.replace("/r1,1,", "/r1,2,"))[0], receipt_sha256=""
    )
    with monkeypatch.context() as patched:
        _limit_pages(patched, path.stat().st_size // 4096 + 1)
        with pytest.raises(InfrastructureError, match="full"):
            store(path, later)
    for session in opened(path):
        assert len(stored_attempts(session)) == 1


def test_a_cache_that_somebody_else_has_open_is_not_called_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cache"
    list(opened(path))
    prepare = database._prepare_connection

    def impatient(connection: sqlite3.Connection, record: object) -> None:
        connection.execute("PRAGMA busy_timeout = 0")
        prepare(connection, record)

    monkeypatch.setattr(database, "_prepare_connection", impatient)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(InfrastructureError, match="locked"):
        list(opened(path))
    other.close()


def test_a_folder_in_the_place_of_the_cache_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    with pytest.raises(StateError, match="not a file") as caught:
        list(opened(tmp_path / "cache"))
    assert caught.value.where == str(tmp_path / "cache")
