"""campaign.sqlite: a cache of the attempts, in one file that one process writes. It can be rebuilt from the files.

The evidence tables are generated from acceptance.formats, so that their columns have one definition. Every row keeps
its own line of text beside the typed columns: what is copied out is the text, what is asked for is the columns.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import (
    REAL,
    TEXT,
    URL,
    CheckConstraint,
    Column,
    Engine,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    create_engine,
    delete,
    event,
    insert,
    select,
)
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from acceptance import formats
from acceptance.formats import Ending
from campaign import files
from campaign.collection import bulk
from campaign.collection.checkpoints import Hashed
from campaign.collection.inputs import Stamp
from campaign.documents import CheckpointName
from campaign.errors import CampaignError, InfrastructureError, StateError

APPLICATION_ID = 0x43414D50
"""``CAMP``: what `file` and sqlite3 show as the owner of the format."""
SCHEMA_VERSION = 5
"""2: the tables of the numerical family. 3: runs in segments, and the stamps of what their checkpoints hold. 4: more
endings, `void` among them. 5: the stamps of attempts."""
LARGEST_DOUBLE = "1.7976931348623157e308"

_STRICT = {"sqlite_strict": True}
_TYPES: Mapping[formats.Kind, type[Any]] = {
    formats.Kind.TEXT: TEXT,
    formats.Kind.COUNT: Integer,
    formats.Kind.DECIMAL: REAL,
    formats.Kind.FLAG: Integer,
}


def _of_attempt(slot: str = "slot", attempt: str = "attempt") -> ForeignKeyConstraint:
    """Return the constraint by which a row belongs to an attempt, and goes with it."""
    return ForeignKeyConstraint([slot, attempt], ["attempts.slot", "attempts.attempt"], ondelete="CASCADE")


class Base(DeclarativeBase):
    """Base of the typed models; its metadata also holds the generated evidence tables."""

    metadata = MetaData()


class Origin(Base):
    """The one row that says which home this cache belongs to."""

    __tablename__ = "origin"
    __table_args__ = (CheckConstraint("id = 1", name="one_row"), _STRICT)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    manifest_sha256: Mapped[str] = mapped_column(TEXT)
    protocol_sha256: Mapped[str] = mapped_column(TEXT)


class Sealed(Base):
    """The receipt of an attempt that has one, runs left out: theirs are those of their segments."""

    __tablename__ = "receipts"
    __table_args__ = (
        _of_attempt(),
        CheckConstraint("length(receipt_sha256) = 64", name="receipt_digest"),
        CheckConstraint("length(start_sha256) = 64", name="start_digest"),
        _STRICT,
    )

    slot: Mapped[str] = mapped_column(TEXT, primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True)
    receipt_sha256: Mapped[str] = mapped_column(TEXT, unique=True)
    """Unique: a receipt names its slot and attempt, so that two equal ones are a copy."""
    start_sha256: Mapped[str] = mapped_column(TEXT)
    kind: Mapped[str] = mapped_column(TEXT)
    reason: Mapped[str] = mapped_column(TEXT)


class Segment(Base):
    """One segment of an attempt at a run that has an ending."""

    __tablename__ = "segments"
    __table_args__ = (
        _of_attempt(),
        CheckConstraint("segment >= 1", name="number"),
        CheckConstraint("length(receipt_sha256) = 64", name="receipt_digest"),
        CheckConstraint("length(start_sha256) = 64", name="start_digest"),
        CheckConstraint("(receipt_sha256 IS NULL) = (start_sha256 IS NULL)", name="sealed_or_not"),
        CheckConstraint(
            "(resumed_segment IS NULL) = (resumed_update IS NULL) AND (resumed_segment IS NULL) = (resumed_sha256 IS"
            " NULL)",
            name="resumed_or_not",
        ),
        CheckConstraint("resumed_segment < segment", name="resumed_before"),
        _STRICT,
    )

    slot: Mapped[str] = mapped_column(TEXT, primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True)
    segment: Mapped[int] = mapped_column(Integer, primary_key=True)
    allocation: Mapped[str] = mapped_column(TEXT)
    node: Mapped[str] = mapped_column(TEXT)
    device: Mapped[str] = mapped_column(TEXT)
    ending: Mapped[str] = mapped_column(TEXT)
    reason: Mapped[str] = mapped_column(TEXT)
    receipt_sha256: Mapped[str | None] = mapped_column(TEXT, unique=True)
    """NULL, as what follows of its receipt, where there is none."""
    start_sha256: Mapped[str | None] = mapped_column(TEXT)
    resumed_segment: Mapped[int | None] = mapped_column(Integer)
    """NULL, as the next two, where it started from the beginning."""
    resumed_update: Mapped[int | None] = mapped_column(Integer)
    resumed_sha256: Mapped[str | None] = mapped_column(TEXT)
    first_update: Mapped[int | None] = mapped_column(Integer)
    update: Mapped[int | None] = mapped_column("update", Integer)


class SealedFile(Base):
    """One file that a receipt seals."""

    __tablename__ = "files"
    __table_args__ = (
        _of_attempt(),
        CheckConstraint("bytes >= 0", name="size"),
        CheckConstraint("length(sha256) = 64", name="digest"),
        _STRICT,
    )

    slot: Mapped[str] = mapped_column(TEXT, primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True)
    segment: Mapped[int] = mapped_column(Integer, primary_key=True)
    """Of a run; 0 for everything else."""
    name: Mapped[str] = mapped_column(TEXT, primary_key=True)
    bytes: Mapped[int] = mapped_column(Integer)
    sha256: Mapped[str] = mapped_column(TEXT)


class AttemptStamp(Base):
    """What the file system said of an attempt's files when every byte of them was found right; no run has one."""

    __tablename__ = "stamps"
    __table_args__ = (_of_attempt(), CheckConstraint("length(stamp) = 64", name="digest"), _STRICT)

    slot: Mapped[str] = mapped_column(TEXT, primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True)
    stamp: Mapped[str] = mapped_column(TEXT)


class _Stamped:
    """The columns in which a table of files keeps what the file system said of one, after its own columns."""

    bytes: Mapped[int] = mapped_column(Integer, sort_order=1)
    inode: Mapped[str] = mapped_column(TEXT, sort_order=1)
    modified_ns: Mapped[int] = mapped_column(Integer, sort_order=1)
    changed_ns: Mapped[int] = mapped_column(Integer, sort_order=1)


class InputFile(_Stamped, Base):
    """A file below inputs/ whose digest was found right, as the file system described it then."""

    __tablename__ = "inputs"
    __table_args__ = (
        CheckConstraint("bytes >= 0", name="size"),
        CheckConstraint("length(name) > 64", name="digest"),
        _STRICT,
    )

    name: Mapped[str] = mapped_column(TEXT, primary_key=True)


class CheckpointFile(_Stamped, Base):
    """A file of a checkpoint whose digest was found right, as the file system described it then."""

    __tablename__ = "checkpoint_files"
    __table_args__ = (
        CheckConstraint("bytes >= 0", name="size"),
        CheckConstraint("length(sha256) = 64", name="digest"),
        _STRICT,
    )

    path: Mapped[str] = mapped_column(TEXT, primary_key=True)
    """Relative to the home."""
    sha256: Mapped[str] = mapped_column(TEXT)


# --- tables generated from acceptance.formats -------------------------------------------------------------------------


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _check(column: formats.Column) -> str:
    """Return the SQL condition that a value of this column meets."""
    name = f'"{column.name}"'
    if column.kind is formats.Kind.COUNT:
        return f"{name} >= {column.minimum}"
    if column.kind is formats.Kind.FLAG:
        return f"{name} IN (0, 1)"
    if column.kind is formats.Kind.DECIMAL:
        return f"{name} BETWEEN -{LARGEST_DOUBLE} AND {LARGEST_DOUBLE}"
    if column.choices:
        return f"{name} IN ({', '.join(_quoted(choice) for choice in column.choices)})"
    return "1" if column.optional else f"length({name}) > 0"


def _may_be_null(column: formats.Column) -> bool:
    return column.optional and column.kind is not formats.Kind.TEXT


def _columns(table: formats.Table) -> list[Column[Any]]:
    # An empty field is NULL where it would be a number, and an empty text where it is one.
    return [Column(column.name, _TYPES[column.kind], nullable=_may_be_null(column)) for column in table.columns]


def _checks(table: formats.Table) -> list[CheckConstraint]:
    return [CheckConstraint(_check(column), name=f"syntax_{column.name}") for column in table.columns]


def _attempts_table() -> Table:
    return Table(
        "attempts",
        Base.metadata,
        *_columns(formats.ATTEMPTS),
        Column("raw", TEXT, nullable=False),
        PrimaryKeyConstraint(*formats.ATTEMPTS.key),
        *_checks(formats.ATTEMPTS),
        sqlite_strict=True,
    )


def _rows_table(table: formats.Table) -> Table:
    # The key of the format is an index, not a constraint: a sealed file that holds a row twice is evidence of
    # something, and acceptance is the one to name it. What is unique is the place where a row stands.
    name = table.file.removesuffix(".csv")
    return Table(
        name,
        Base.metadata,
        Column("source_slot", TEXT, nullable=False),
        Column("source_attempt", Integer, nullable=False),
        Column("line", Integer, nullable=False),
        *_columns(table),
        Column("raw", TEXT, nullable=False),
        PrimaryKeyConstraint("source_slot", "source_attempt", "line"),
        _of_attempt("source_slot", "source_attempt"),
        CheckConstraint("line >= 2", name="place"),
        *_checks(table),
        Index(f"{name}_key", *table.key),
        sqlite_strict=True,
    )


ATTEMPTS = _attempts_table()
ROWS: dict[str, Table] = {
    file: _rows_table(table) for file, table in formats.TABLES.items() if table is not formats.ATTEMPTS
}
"""The tables of what attempts measured, by file name."""


# --- opening ----------------------------------------------------------------------------------------------------------


def _prepare_connection(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions are begun by us, not guessed by the driver
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


_PRAGMAS = (
    "cache_size = -65536",  # KiB
    "threads = 2",  # to sort for an index
    "foreign_keys = ON",
    "journal_mode = DELETE",
    "synchronous = FULL",
    "trusted_schema = OFF",
)


def _begin(connection: Any) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _keep_no_journal(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA journal_mode = MEMORY")


def _engine(path: Path) -> Engine:
    engine = create_engine(URL.create("sqlite", database=str(path)))
    event.listen(engine, "connect", _prepare_connection)
    event.listen(engine, "begin", _begin)
    return engine


def _create(engine: Engine, origin: Origin) -> None:
    with Session(engine) as session, session.begin():
        Base.metadata.create_all(session.connection())
        session.connection().exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
        session.connection().exec_driver_sql(f"PRAGMA user_version = {SCHEMA_VERSION}")
        session.add(origin)


def _check_owner(engine: Engine, origin: Origin, path: Path) -> None:
    rebuild = "campaign collect --rebuild"
    with Session(engine) as session, session.begin():
        marks = [session.connection().exec_driver_sql(f"PRAGMA {name}").scalar() for name in _MARKS]
        if marks != [APPLICATION_ID, SCHEMA_VERSION]:
            raise StateError("not a cache of this release", where=str(path), why=f"marks {marks}", hint=rebuild)
        stored = session.get(Origin, 1)
        wanted = (origin.manifest_sha256, origin.protocol_sha256)
        if stored is None or (stored.manifest_sha256, stored.protocol_sha256) != wanted:
            raise StateError("the cache belongs to another home", where=str(path), hint=rebuild)


_MARKS = ("application_id", "user_version")


@contextmanager
def open_database(path: Path, *, manifest_sha256: str, protocol_sha256: str) -> Iterator[Session]:
    """Open the cache, creating it if it is not there, in one transaction that is committed at the end.

    Args:
        path: The file.
        manifest_sha256: Digest of the home's manifest.json.
        protocol_sha256: Digest of the home's protocol.json.

    Yields:
        A session; an exception undoes everything done in it.

    Raises:
        StateError: The file is not a cache of this home and release.
        InfrastructureError: The file system does not let it be read or written.
    """
    origin = Origin(id=1, manifest_sha256=manifest_sha256, protocol_sha256=protocol_sha256)
    is_new = not path.exists()
    require_file_or_nothing(path)
    engine = _engine(path)
    try:
        if is_new:
            _create_whole(path, origin)
        else:
            _check_owner(engine, origin, path)
        with Session(engine) as session, session.begin():
            yield session
    except DatabaseError as error:
        raise _explain(error.orig, path) from error
    except sqlite3.DatabaseError as error:
        raise _explain(error, path) from error
    finally:
        engine.dispose()


def require_file_or_nothing(path: Path) -> None:
    """Refuse a folder, or anything else that is no file, in the place of a cache.

    Raises:
        StateError: There is one.
    """
    if path.exists() and not path.is_file():
        raise StateError("not a file", where=str(path), hint=f"move it aside: mv {path} {path}.aside")


def _create_whole(path: Path, origin: Origin) -> None:
    """Create an empty cache in one step: a disk that becomes full meanwhile leaves nothing that looks like one."""
    made = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    engine = _engine(made)
    # A file that counts only once it has another name needs no journal, which a killed process would leave beside it.
    event.listen(engine, "connect", _keep_no_journal)
    try:
        _create(engine, origin)
        engine.dispose()
        with files.writing(path):
            made.replace(path)
            files.sync_folder(path.parent)
    finally:
        engine.dispose()
        with contextlib.suppress(OSError):
            made.unlink()


_OF_THE_MACHINE = {
    sqlite3.SQLITE_FULL: "free some space or raise the quota, then run the command again",
    sqlite3.SQLITE_READONLY: "use an account that may write the home, on a file system that can be written",
    sqlite3.SQLITE_PERM: "use an account that may write the home",
    sqlite3.SQLITE_CANTOPEN: "use an account that may write the home, on a file system that can be written",
    sqlite3.SQLITE_IOERR: "look at the file system (df -h, dmesg), then run the command again",
    sqlite3.SQLITE_BUSY: "close whatever has it open, then run the command again",
}
"""What to try, by SQLite's primary code, when the cache itself is not what is wrong."""


def _explain(error: BaseException | None, path: Path) -> CampaignError:
    reason = str(error)
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # the rest says more, and may be new
    if code in _OF_THE_MACHINE:
        return InfrastructureError(f"SQLite cannot go on: {reason}", where=str(path), hint=_OF_THE_MACHINE[code])
    return StateError("the cache cannot be used", where=str(path), why=reason, hint="campaign collect --rebuild")


# --- attempts ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A sealed file to store."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRecord:
    """Everything that is stored of one segment of an attempt at a run."""

    segment: int
    allocation: str
    node: str
    device: str
    ending: Ending
    reason: str
    receipt_sha256: str
    """Empty, as what follows of its receipt, when there is none."""
    start_sha256: str
    resumed: CheckpointName | None
    """What it started from; None for the beginning."""
    first_update: int | None
    update: int | None
    """Updates behind it when it ended; None where nobody says."""
    files: tuple[StoredFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """Everything that is stored of one attempt."""

    row: formats.Row
    """Its line of attempts.csv; the line number means nothing."""
    before: formats.Row | None = None
    """Of one that is void the line that it had before it was; None for all others."""
    receipt_sha256: str = ""
    """Empty, as what follows of its receipt, when there is none; of a run see its segments."""
    start_sha256: str = ""
    kind: str = ""
    reason: str = ""
    files: tuple[StoredFile, ...] = ()
    tables: Mapping[str, Sequence[formats.Row]]
    """Rows by file name."""
    is_stored: bool = False
    """Whether the cache holds its rows and the list of its files: then ``tables`` and ``files`` are empty."""
    segments: tuple[SegmentRecord, ...] = ()
    """Of a run, in order."""

    @property
    def endings(self) -> dict[int, tuple[str, str]]:
        """Ending and SHA-256 of the receipt, if there is one, by segment; 0 for what is no run."""
        if not self.segments:
            return {0: (self.ending, self.receipt_sha256)}
        return {one.segment: (one.ending.value, one.receipt_sha256) for one in self.segments}

    @property
    def key(self) -> tuple[str, int]:
        """Slot and attempt."""
        return str(self.row.values["slot"]), int(str(self.row.values["attempt"]))

    @property
    def ending(self) -> str:
        """How it ended; ``void`` if an amendment made it so."""
        return str(self.row.values["ending"])

    @property
    def ended(self) -> str:
        """How it ended, whether it is void or not."""
        return str((self.before or self.row).values["ending"])


def _attempt_values(record: AttemptRecord) -> tuple[Any, ...]:
    return *(record.row.values[name] for name in formats.ATTEMPTS.header), record.row.raw


def _receipt_values(record: AttemptRecord) -> tuple[Any, ...]:
    return *record.key, record.receipt_sha256, record.start_sha256, record.kind, record.reason


def _file_values(record: AttemptRecord) -> Iterator[tuple[Any, ...]]:
    slot, attempt = record.key
    for file in record.files:
        yield slot, attempt, 0, file.name, file.bytes, file.sha256
    for one in record.segments:
        for file in one.files:
            yield slot, attempt, one.segment, file.name, file.bytes, file.sha256


def _segment_values(record: AttemptRecord) -> Iterator[dict[str, Any]]:
    slot, attempt = record.key
    for one in record.segments:
        yield {
            "slot": slot,
            "attempt": attempt,
            "segment": one.segment,
            "allocation": one.allocation,
            "node": one.node,
            "device": one.device,
            "ending": one.ending.value,
            "reason": one.reason,
            "receipt_sha256": one.receipt_sha256 or None,
            "start_sha256": one.start_sha256 or None,
            "resumed_segment": one.resumed.segment if one.resumed is not None else None,
            "resumed_update": one.resumed.update if one.resumed is not None else None,
            "resumed_sha256": one.resumed.sha256 if one.resumed is not None else None,
            "first_update": one.first_update,
            "update": one.update,
        }


def insert_attempts(session: Session, records: Sequence[AttemptRecord]) -> None:
    """Store attempts that are not stored yet."""
    loader = Loader(session)
    for record in records:
        loader.add(record)
    loader.finish()


_ATTEMPTS_AT_ONCE = 16
"""More would let whoever reads ahead wait meanwhile."""


class Loader:
    """Stores attempts that are not stored yet, many at once, since a campaign has thousands.

    What is kept back is stored at the end, and then indexes are made: see `finish`.
    """

    def __init__(self, session: Session) -> None:
        """Prepare for attempts of one session's cache."""
        self._session = session
        self._waiting: list[AttemptRecord] = []
        self._insertions = {file: bulk.Insertion(session, table) for file, table in ROWS.items()}
        self.loaded: set[tuple[str, int]] = set()
        """Slot and attempt of those that were given."""

    def add(self, record: AttemptRecord) -> None:
        """Store an attempt, or keep it until there are enough."""
        self.loaded.add(record.key)
        self._waiting.append(record)
        if len(self._waiting) >= _ATTEMPTS_AT_ONCE:
            self._store()

    def finish(self) -> None:
        """Store what was kept, and make the indexes."""
        self._store()
        for insertion in self._insertions.values():
            insertion.finish()

    def _store(self) -> None:
        records, session = self._waiting, self._session
        if not records:
            return
        # Before their rows, which belong to them.
        bulk.insert(session, ATTEMPTS, [_attempt_values(record) for record in records])
        receipts = [_receipt_values(record) for record in records if record.receipt_sha256]
        bulk.insert(session, _table_of(Sealed), receipts)
        if segments := [values for record in records for values in _segment_values(record)]:
            session.execute(insert(Segment), segments)
        bulk.insert(session, _table_of(SealedFile), [values for record in records for values in _file_values(record)])
        for record in records:
            for file, rows in record.tables.items():
                self._insertions[file].add(bulk.flat_values(formats.TABLES[file], record.key, rows))
        self._waiting = []


def _table_of(model: type[Base]) -> Table:
    return Base.metadata.tables[model.__tablename__]


def delete_attempt(session: Session, key: tuple[str, int]) -> None:
    """Forget one attempt and all that hangs on it."""
    slot, attempt = key
    session.execute(delete(ATTEMPTS).where(ATTEMPTS.c.slot == slot, ATTEMPTS.c.attempt == attempt))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What the cache holds of one attempt, its rows left out."""

    raw: str
    endings: Mapping[int, tuple[str, str]]
    """As `AttemptRecord.endings`."""
    is_sealed: bool
    """Whether its line says so."""
    stamp: str = ""
    """What the file system said of its files when they were found right; empty where that is not known."""


def stored_attempts(session: Session) -> dict[tuple[str, int], Stored]:
    """Return what the cache holds, by slot and attempt."""
    cursor = bulk.cursor_of(session)
    receipts = {
        (slot, attempt): sha
        for slot, attempt, sha in cursor.execute("SELECT slot, attempt, receipt_sha256 FROM receipts")
    }
    stamps = {
        (slot, attempt): stamp for slot, attempt, stamp in cursor.execute("SELECT slot, attempt, stamp FROM stamps")
    }
    segments: dict[tuple[str, int], dict[int, tuple[str, str]]] = {}
    for row in session.scalars(select(Segment)):
        segments.setdefault((row.slot, row.attempt), {})[row.segment] = (row.ending, row.receipt_sha256 or "")
    found: dict[tuple[str, int], Stored] = {}
    for slot, attempt, raw, ending, sealed in cursor.execute("SELECT slot, attempt, raw, ending, sealed FROM attempts"):
        key = (slot, attempt)
        endings = segments.get(key) or {0: (ending, receipts.get(key, ""))}
        found[key] = Stored(raw=raw, endings=endings, is_sealed=bool(sealed), stamp=stamps.get(key, ""))
    return found


def stored_lines(session: Session, key: tuple[str, int]) -> dict[str, tuple[tuple[int, str], ...]]:
    """Return the rows of one attempt, by file name, as (line number, text) in file order; no file without any."""
    found = {file: bulk.select_lines(session, table, key) for file, table in ROWS.items()}
    return {file: lines for file, lines in found.items() if lines}


def digest(session: Session, stored: Mapping[tuple[str, int], Stored]) -> bulk.Digest:
    """Return the digest of all that the cache holds.

    Args:
        session: The cache.
        stored: Its attempts.
    """
    return bulk.digest_rows(session, ROWS, ((key, one.raw) for key, one in stored.items()))


def store_attempt_stamps(session: Session, stamps: Mapping[tuple[str, int], str]) -> None:
    """Remember what the file system says of some stored attempts, in place of what was known of them."""
    values = [(slot, attempt, stamp) for (slot, attempt), stamp in sorted(stamps.items())]
    bulk.cursor_of(session).executemany("INSERT OR REPLACE INTO stamps VALUES (?, ?, ?)", values)


def stored_checkpoint_files(session: Session, root: Path) -> dict[Path, Hashed]:
    """Return the files of checkpoints whose digests were found right, and what the file system said of them.

    Args:
        session: The cache.
        root: The home.
    """
    return {
        root / row.path: Hashed(sha256=row.sha256, stamp=_stamp(row)) for row in session.scalars(select(CheckpointFile))
    }


def store_checkpoint_files(session: Session, root: Path, right: Mapping[Path, Hashed]) -> None:
    """Remember the files of checkpoints whose digests were found right, in place of all that were known."""
    session.execute(delete(CheckpointFile))
    rows = [
        {"path": str(path.relative_to(root)), "sha256": hashed.sha256, **_stamp_values(hashed.stamp)}
        for path, hashed in sorted(right.items())
    ]
    if rows:
        session.execute(insert(CheckpointFile), rows)


def _stamp(row: _Stamped) -> Stamp:
    return Stamp(num_bytes=row.bytes, inode=row.inode, modified_ns=row.modified_ns, changed_ns=row.changed_ns)


def _stamp_values(stamp: Stamp) -> dict[str, Any]:
    return {
        "bytes": stamp.num_bytes,
        "inode": stamp.inode,
        "modified_ns": stamp.modified_ns,
        "changed_ns": stamp.changed_ns,
    }


def stored_stamps(session: Session) -> dict[str, Stamp]:
    """Return, by name, what the file system said of the files below inputs/ whose digests were found right."""
    return {row.name: _stamp(row) for row in session.scalars(select(InputFile))}


def store_stamps(session: Session, stamps: Mapping[str, Stamp]) -> None:
    """Remember the files below inputs/ whose digests were found right, in place of all that were known."""
    session.execute(delete(InputFile))
    rows = [{"name": name, **_stamp_values(stamp)} for name, stamp in sorted(stamps.items())]
    if rows:
        session.execute(insert(InputFile), rows)


def sorted_lines(session: Session, file: str, owners: Sequence[str]) -> list[str]:
    """Return the raw lines of one evidence table, sorted by its key and then by text.

    Args:
        session: The cache.
        file: Name of the evidence table.
        owners: The first parts of the slots to take: ``baseline``, a candidate's id.
    """
    table = ATTEMPTS if file == formats.ATTEMPTS.file else ROWS[file]
    slot = "slot" if file == formats.ATTEMPTS.file else "source_slot"
    return bulk.select_sorted(session, table, slot, formats.TABLES[file].key, owners)
