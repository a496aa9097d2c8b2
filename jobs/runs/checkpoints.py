"""Checkpoints of runs: what a side saved, kept in the home, whole or not at all, and given back as it was.

A side writes to and reads from private folders alone; all copying is the harness's own.
"""

from __future__ import annotations

import errno
import itertools
import math
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..common.endings import EndedError, Ending
from ..common.layout import AttemptFolder, CheckpointFolder, attempt_folder
from ..common.patience import Patience
from ..common.plan import Allocation, CheckpointName, PlannedAttempt, Recipe, parse_checkpoint_name
from ..common.storage import read_regular, sha256_bytes, sync_folder, write_new
from ..common.strict import Fields, dump_json, parse_json
from . import copying
from .copying import SavedFile, SourceError

FORMAT = "checkpoint/1"
_OF_THE_MACHINE = frozenset(
    {
        errno.EIO,
        errno.ESTALE,
        errno.EUCLEAN,
        errno.EBADMSG,
        errno.ENOMEM,
        errno.ENOBUFS,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENODEV,
        errno.EREMOTEIO,
        errno.ETIMEDOUT,
        errno.ENOTCONN,
        errno.ECONNREFUSED,
        errno.ECONNABORTED,
        errno.ECONNRESET,
        errno.ESHUTDOWN,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
    }
)
"""What says that a disk, a file server or the machine failed. A side can bring about everything else in its own folder,
such as by a lease or a lock."""
_ABSENT = frozenset({0, errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""What says that a checkpoint is not as it was; anything else says nothing about it."""
_NO_DOCUMENT = _ABSENT | {errno.EINVAL, errno.EISDIR}
"""The same of checkpoint.json, where something else than a file has its name as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One evaluation of the whole validation split."""

    update: int
    tokens: int
    validation_loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The whole run up to a state, over all segments."""

    update: int
    tokens: int
    train_s: float
    elapsed_s: float
    curve: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIdentity:
    """Which run a checkpoint is of. Each of these must be the same where it is loaded."""

    manifest_sha256: str
    slot: str
    attempt: int
    side: str
    snapshot_sha256: str
    recipe: str
    config_sha256: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A checkpoint that is in the home."""

    update: int
    sha256: str
    """Of its checkpoint.json."""
    num_bytes: int
    """Of all its files together, checkpoint.json left out."""

    def as_json(self) -> dict[str, Any]:
        """Return its entry of a receipt."""
        return {"update": self.update, "sha256": self.sha256, "bytes": self.num_bytes}


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A checkpoint that was found right, copied to a private folder."""

    account: Account
    progress: dict[str, int | float | str]
    """What the side said of its state just before it was saved."""
    path: str
    """The engaged path; empty where the adapter does not offer it."""
    files: Path
    """The folder to load from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """checkpoint.json."""

    identity: RunIdentity
    segment: int
    allocation: str
    previous: CheckpointName | None
    account: Account
    progress: dict[str, int | float | str]
    path: str
    files: tuple[SavedFile, ...]
    at: float

    def to_bytes(self) -> bytes:
        """Return the document."""
        account = self.account
        return dump_json(
            {
                "format": FORMAT,
                **asdict(self.identity),
                "segment": self.segment,
                "allocation": self.allocation,
                "previous": None if self.previous is None else asdict(self.previous),
                "update": account.update,
                "tokens": account.tokens,
                "train_s": account.train_s,
                "elapsed_s": account.elapsed_s,
                "curve": [asdict(point) for point in account.curve],
                "progress": self.progress,
                "path": self.path,
                "files": [{"name": one.name, "bytes": one.num_bytes, "sha256": one.sha256} for one in self.files],
                "at": self.at,
            }
        )


def identify(allocation: Allocation, planned: PlannedAttempt, recipe: Recipe) -> RunIdentity:
    """Return which run a planned segment is of."""
    (side,) = planned.order
    return RunIdentity(
        manifest_sha256=allocation.manifest_sha256,
        slot=planned.slot,
        attempt=planned.attempt,
        side=side,
        snapshot_sha256=allocation.side(side).snapshot_sha256,
        recipe=recipe.name,
        config_sha256=recipe.config_sha256,
        seed=planned.seed,
    )


# --- checkpoint.json --------------------------------------------------------------------------------------------------


def _identity(fields: Fields) -> RunIdentity:
    return RunIdentity(
        manifest_sha256=fields.text("manifest_sha256"),
        slot=fields.text("slot"),
        attempt=fields.count("attempt", minimum=1),
        side=fields.text("side"),
        snapshot_sha256=fields.text("snapshot_sha256"),
        recipe=fields.text("recipe"),
        config_sha256=fields.text("config_sha256"),
        seed=fields.count("seed"),
    )


def _point(value: Any) -> Point:
    fields = Fields(value, "checkpoint.curve")
    point = Point(
        update=fields.count("update", minimum=1),
        tokens=fields.count("tokens", minimum=1),
        validation_loss=fields.number("validation_loss"),
    )
    fields.done()
    return point


def _account(fields: Fields) -> Account:
    account = Account(
        update=fields.count("update", minimum=1),
        tokens=fields.count("tokens", minimum=1),
        train_s=fields.number("train_s"),
        elapsed_s=fields.number("elapsed_s"),
        curve=tuple(_point(value) for value in fields.items("curve")),
    )
    if not (0 <= account.train_s <= account.elapsed_s):
        raise ValueError(f"checkpoint: train_s is {account.train_s!r}, elapsed_s {account.elapsed_s!r}")
    for before, after in itertools.pairwise(account.curve):
        if not (before.update < after.update and before.tokens < after.tokens):
            raise ValueError(f"checkpoint: the curve does not ascend at update {after.update}")
    if account.curve and not (
        account.curve[-1].update <= account.update and account.curve[-1].tokens <= account.tokens
    ):
        raise ValueError(f"checkpoint: the curve goes beyond update {account.update}, {account.tokens} tokens")
    return account


def _progress(table: dict[str, Any]) -> dict[str, int | float | str]:
    for name, value in table.items():
        if type(value) not in (int, float, str) or (type(value) is float and not math.isfinite(value)):
            raise ValueError(f"checkpoint.progress: {name!r:.100} is neither a finite number nor a text")
    return table


def _file(value: Any) -> SavedFile:
    fields = Fields(value, "checkpoint.files")
    file = SavedFile(name=fields.text("name"), num_bytes=fields.count("bytes"), sha256=fields.text("sha256"))
    fields.done()
    if not copying.is_name(file.name):
        raise ValueError(f"checkpoint.files: not the name of a file of a checkpoint: {file.name!r:.100}")
    return file


def _files(values: Sequence[Any]) -> tuple[SavedFile, ...]:
    files = tuple(_file(value) for value in values)
    if not files:
        raise ValueError("checkpoint.files: no file")
    for before, after in itertools.pairwise(files):
        if not before.name < after.name:
            raise ValueError(f"checkpoint.files: not in the order of names, each once, at {after.name!r}")
    return files


def parse_checkpoint(data: bytes) -> Checkpoint:
    """Parse checkpoint.json.

    Raises:
        ValueError: It is no such document.
    """
    fields = Fields(parse_json(data), "checkpoint")
    if fields.text("format") != FORMAT:
        raise ValueError(f"checkpoint: not of format {FORMAT}")
    previous = fields.optional("previous", dict)
    checkpoint = Checkpoint(
        identity=_identity(fields),
        segment=fields.count("segment", minimum=1),
        allocation=fields.text("allocation"),
        previous=None if previous is None else parse_checkpoint_name(previous, "checkpoint.previous"),
        account=_account(fields),
        progress=_progress(fields.table("progress")),
        path=fields.text("path"),
        files=_files(fields.items("files")),
        at=fields.number("at"),
    )
    fields.done()
    before = checkpoint.previous
    if before is not None and not (before.segment < checkpoint.segment and before.update <= checkpoint.account.update):
        raise ValueError(f"checkpoint: segment {checkpoint.segment} cannot have started from {before}")
    return checkpoint


# --- storing ----------------------------------------------------------------------------------------------------------


def copy_saved(source: Path, target: Path) -> tuple[SavedFile, ...]:
    """Copy what a side saved to a new folder, durably; return the files by name.

    Args:
        source: The folder that the side saved into; no side can replace the one above it.
        target: The folder to create.

    Raises:
        EndedError: What lies there is no checkpoint, changes while it is copied, or cannot be read.
        OSError: The copy cannot be written.
    """
    target.mkdir()
    try:
        copying.refuse_mounts(source)
        with copying.opened_source(source) as reading, copying.opened_folder(target) as writing:
            return _copy_unchanged(reading, writing)
    except SourceError as error:
        ending = Ending.LOST if error.number in _OF_THE_MACHINE else Ending.RUBBISH
        raise EndedError(ending, f"what the side saved cannot be kept: {error}") from error


def _copy_unchanged(reading: int, writing: int) -> tuple[SavedFile, ...]:
    found = copying.find_files(reading)
    if not found.files:
        raise SourceError("there is no file")
    folders = copying.folders_of(found.files)
    copying.check_room(writing, copying.count_written(reading, found))
    copying.make_folders(writing, folders)
    names = sorted(found.files)
    saved = tuple(copying.copy_file(reading, writing, name, found.files[name], durable=True) for name in names)
    if copying.find_files(reading) != found:
        raise SourceError("files were added, removed or changed after the side said that it is saved")
    copying.sync_folders(writing, folders)
    return saved


def store(
    folder: AttemptFolder,
    source: Path,
    identity: RunIdentity,
    *,
    segment: int,
    allocation: str,
    previous: CheckpointName | None,
    account: Account,
    progress: dict[str, int | float | str],
    path: str,
    at: float,
) -> Sealed:
    """Keep what a side saved in the home.

    Args:
        folder: The segment's own folder.
        source: The private folder that the side saved into; no side can replace the one above it.
        identity: Which run it is of.
        segment: Which segment of it saves.
        allocation: Where that runs.
        previous: What the segment started from.
        account: The run up to this state.
        progress: What the side says of this state, verified.
        path: The engaged path.
        at: Seconds since the epoch.

    Raises:
        EndedError: The side did not leave what can be kept.
        OSError: The home cannot be written; `is_no_space` says whether it is full.
        FileExistsError: There is a checkpoint of this update already.
        ValueError: The account is none that `restore` would take.
    """
    if not folder.checkpoints.is_dir():
        folder.checkpoints.mkdir()
        sync_folder(folder.root)
    final = folder.checkpoint(account.update).root
    if final.exists():
        raise FileExistsError(errno.EEXIST, "a checkpoint of this update is there already", str(final))
    temporary = CheckpointFolder(final.with_name(f".{account.update}.{secrets.token_hex(4)}.tmp"))
    try:
        temporary.root.mkdir()
        files = copy_saved(source, temporary.files)
        data = Checkpoint(
            identity=identity,
            segment=segment,
            allocation=allocation,
            previous=previous,
            account=account,
            progress=progress,
            path=path,
            files=files,
            at=at,
        ).to_bytes()
        parse_checkpoint(data)
        write_new(temporary.document, data)
        _publish(temporary.root, final)
    except BaseException:
        shutil.rmtree(temporary.root, ignore_errors=True)
        raise
    return Sealed(update=account.update, sha256=sha256_bytes(data), num_bytes=sum(file.num_bytes for file in files))


def _publish(temporary: Path, final: Path) -> None:
    """Give a whole checkpoint its name; take it back if the name cannot be made durable."""
    temporary.rename(final)
    try:
        sync_folder(final.parent)
    except OSError:
        final.rename(temporary)
        raise


# --- restoring --------------------------------------------------------------------------------------------------------


def _refused(path: Path, text: str) -> EndedError:
    return EndedError(Ending.CHECKPOINT_REFUSED, f"the checkpoint {path}: {text}")


def _unreadable(path: Path, text: str) -> EndedError:
    reason = f"the checkpoint {path} cannot be read now: {text}; nothing was found wrong with it"
    return EndedError(Ending.LOST, f"{reason}: see to the file system of the home, then submit again")


def _read_document(folder: CheckpointFolder, name: CheckpointName, patience: Patience) -> Checkpoint:
    try:
        patience.read(folder.root, Path.lstat)
        data = patience.read(folder.document, read_regular)
    except OSError as error:
        text = f"checkpoint.json: {error.strerror}"
        raise (_refused if error.errno in _NO_DOCUMENT else _unreadable)(folder.root, text) from error
    found = sha256_bytes(data)
    if found != name.sha256:
        raise _refused(folder.root, f"checkpoint.json has the SHA-256 {found}, the allocation names {name.sha256}")
    try:
        return parse_checkpoint(data)
    except ValueError as error:
        raise _refused(folder.root, f"checkpoint.json: {error}") from error


def _check_document(folder: CheckpointFolder, found: Checkpoint, identity: RunIdentity, name: CheckpointName) -> None:
    """Refuse a checkpoint of another run, or of another place in the same one."""
    now = {**asdict(identity), "segment": name.segment, "update": name.update}
    then = {**asdict(found.identity), "segment": found.segment, "update": found.account.update}
    for field, expected in now.items():
        if then[field] != expected:
            raise _refused(folder.root, f"its {field} is {then[field]!r}, this run's is {expected!r}")


def _check_files(found: copying.Found, files: Sequence[SavedFile]) -> None:
    listed = {file.name: file.num_bytes for file in files}
    for name in sorted({*listed, *found.files}):
        if name not in found.files:
            raise SourceError(f"{name}: is listed in checkpoint.json and not there")
        if name not in listed:
            raise SourceError(f"{name}: is not listed in checkpoint.json")
        if (size := found.sizes[name]) != listed[name]:
            raise SourceError(f"{name}: has {size} bytes, checkpoint.json says {listed[name]}")
    if other := found.folders.difference(copying.folders_of(listed)):
        raise SourceError(f"{min(other)}: a folder without a file that is listed in checkpoint.json")


def _copy_verified(reading: int, writing: int, files: Sequence[SavedFile]) -> None:
    _check_files(copying.find_files(reading), files)
    copying.check_room(writing, sum(file.num_bytes for file in files))
    copying.make_folders(writing, copying.folders_of(file.name for file in files))
    for file in files:
        found = copying.copy_file(reading, writing, file.name, None, durable=False)
        if found != file:
            text = f"{found.num_bytes} bytes with the SHA-256 {found.sha256}"
            raise SourceError(f"{file.name}: {text}; checkpoint.json says {file.num_bytes} with {file.sha256}")


def restore(
    home: Path,
    planned: PlannedAttempt,
    identity: RunIdentity,
    destination: Path,
    *,
    pause: Callable[[float], None] = time.sleep,
) -> Restored:
    """Copy the checkpoint that a segment starts from to a private folder, if it is what it must be.

    Args:
        home: The campaign's home.
        planned: The segment; it must start from a checkpoint.
        identity: Which run it is of.
        destination: The folder to create; no side can replace the one above it.
        pause: Waits for some seconds, where a shared file system may show the checkpoint late.

    Raises:
        EndedError: The checkpoint is refused, or cannot be read now.
        OSError: The copy cannot be written; `is_no_space` says whether the disk is full.
    """
    name = planned.resume
    if name is None:
        raise ValueError(f"{planned.name} starts from the beginning")
    folder = attempt_folder(home, planned.slot, planned.attempt, name.segment).checkpoint(name.update)
    checkpoint = _read_document(folder, name, Patience(pause))
    _check_document(folder, checkpoint, identity, name)
    destination.mkdir()
    try:
        with copying.opened_source(folder.files) as reading, copying.opened_folder(destination) as writing:
            _copy_verified(reading, writing, checkpoint.files)
    except SourceError as error:
        raise (_refused if error.number in _ABSENT else _unreadable)(folder.root, str(error)) from error
    return Restored(account=checkpoint.account, progress=checkpoint.progress, path=checkpoint.path, files=destination)
