from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaign import documents
from campaign.paths import HomePaths
from jobs.common.endings import EndedError, Ending, is_no_space
from jobs.common.layout import AttemptFolder, attempt_folder
from jobs.common.patience import MOST_WAIT_S
from jobs.common.plan import CheckpointName, PlannedAttempt, Recipe, parse_allocation
from jobs.common.storage import sha256_bytes, sha256_file
from jobs.runs import checkpoints, copying
from jobs.runs.checkpoints import (
    Account,
    Point,
    Restored,
    RunIdentity,
    Sealed,
    identify,
    restore,
    store,
)
from tests.support.plans import plan_text

SLOT = "baseline/run/small/s45"
UPDATE = 30
ACCOUNT = Account(
    update=UPDATE,
    tokens=150,
    train_s=0.1 + 0.2,
    elapsed_s=1.7,
    curve=(
        Point(update=15, tokens=75, validation_loss=3.0000000000000004),
        Point(update=30, tokens=150, validation_loss=2.5),
    ),
)
PROGRESS: dict[str, int | float | str] = {"tokens": 150, "rate": 1e-3, "random": "5f"}
IDENTITY = RunIdentity(
    manifest_sha256="1" * 64,
    slot=SLOT,
    attempt=1,
    side="baseline",
    snapshot_sha256="2" * 64,
    recipe="small",
    config_sha256="3" * 64,
    seed=45,
)
SAVED = {
    "model.pt": b"m" * 1000,
    "rank0/optimizer.pt": b"o" * 2000,
    "rank0/deep/.metadata": b"",
    "rank1/x_0.distcp": b"x",
}


@dataclass(frozen=True, slots=True)
class Bench:
    """A home with the folder of a first segment, and what its side saved."""

    root: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def source(self) -> Path:
        return self.root / "saved"

    @property
    def destination(self) -> Path:
        return self.root / "restored"

    def folder(self, segment: int = 1) -> AttemptFolder:
        return attempt_folder(self.home, SLOT, 1, segment)

    @property
    def checkpoint(self) -> Path:
        return self.folder().checkpoint(UPDATE).root

    @property
    def document(self) -> Path:
        return self.folder().checkpoint(UPDATE).document

    def names(self) -> list[str]:
        """Return what lies beside checkpoints, leftovers included."""
        folder = self.folder().checkpoints
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def store(self, *, segment: int = 1, account: Account = ACCOUNT, previous: CheckpointName | None = None) -> Sealed:
        return store(
            self.folder(segment),
            self.source,
            IDENTITY,
            segment=segment,
            allocation="a00001",
            previous=previous,
            account=account,
            progress=PROGRESS,
            path="0123456789ab",
            at=1.8e9,
        )

    def restore(self, sha256: str, *, identity: RunIdentity = IDENTITY, **changes: Any) -> Restored:
        """Start the second segment, or another one, from a checkpoint."""
        name = CheckpointName(**{"segment": 1, "update": UPDATE, "sha256": sha256, **changes})
        return restore(self.home, planned_from(name), identity, self.destination, pause=refuse_to_wait)

    def refuse(self, sha256: str, message: str, **changes: Any) -> None:
        """Expect that a checkpoint is refused, in words that name it."""
        with pytest.raises(EndedError, match=message) as caught:
            self.restore(sha256, **changes)
        assert caught.value.ending is Ending.CHECKPOINT_REFUSED
        assert f"the checkpoint {self.folder().checkpoints}" in caught.value.reason

    def forge(self, change: Callable[[dict[str, Any]], object]) -> str:
        """Change the document; return its digest, as a plan that was made from it would name it."""
        value = json.loads(self.document.read_bytes())
        change(value)
        self.document.write_text(json.dumps(value))
        return sha256_file(self.document)


def planned_from(name: CheckpointName | None, segment: int = 2) -> PlannedAttempt:
    return PlannedAttempt(
        slot=SLOT,
        attempt=1,
        kind="run",
        workload="small",
        repeat=0,
        pair=0,
        order=("baseline",),
        updates=0,
        inputs_sha256="",
        segment=segment,
        resume=name,
    )


def refuse_to_wait(_seconds: float) -> None:
    """Stand for a wait, which no test makes."""


def write_files(root: Path, files: Mapping[str, bytes]) -> None:
    root.mkdir()
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def read_files(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if not path.is_dir()}


def make_home(root: Path, files: Mapping[str, bytes]) -> Bench:
    bench = Bench(root)
    bench.folder().root.mkdir(parents=True)
    write_files(bench.source, files)
    return bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return make_home(tmp_path, SAVED)


# --- there and back ---------------------------------------------------------------------------------------------------


def test_a_state_comes_back_as_it_was_saved(bench: Bench) -> None:
    sealed = bench.store()
    assert bench.names() == [str(UPDATE)]
    found = bench.restore(sealed.sha256)
    assert read_files(found.files) == SAVED
    assert found == Restored(account=ACCOUNT, progress=PROGRESS, path="0123456789ab", files=bench.destination)


def test_a_checkpoint_says_what_it_is_in_the_drivers_words(bench: Bench) -> None:
    previous = CheckpointName(segment=1, update=7, sha256="4" * 64)
    bench.folder(2).root.mkdir(parents=True)
    sealed = bench.store(segment=2, previous=previous)
    paths = HomePaths(bench.home).attempt(SLOT, 1, 2).checkpoint(UPDATE)
    found = documents.Checkpoint.read(paths.document)
    assert sha256_file(paths.document) == sealed.sha256
    assert {name: getattr(found, name) for name in asdict(IDENTITY)} == asdict(IDENTITY)
    assert (found.segment, found.allocation, found.path, found.at) == (2, "a00001", "0123456789ab", 1.8e9)
    assert found.previous == documents.CheckpointName(**asdict(previous))
    assert (found.update, found.tokens, found.train_s, found.elapsed_s) == (30, 150, 0.1 + 0.2, 1.7)
    assert found.curve == tuple(documents.CurvePoint(**asdict(point)) for point in ACCOUNT.curve)
    assert found.progress == PROGRESS
    listed = {one.name: (one.bytes, one.sha256) for one in found.files}
    assert listed == {name: (len(data), sha256_bytes(data)) for name, data in SAVED.items()}
    assert [one.name for one in found.files] == sorted(SAVED)
    assert found.to_bytes() == paths.document.read_bytes()


def test_a_receipt_tells_digest_and_bytes(bench: Bench) -> None:
    sealed = documents.SealedCheckpoint.of(bench.store().as_json())
    assert sealed == documents.SealedCheckpoint(update=UPDATE, sha256=sha256_file(bench.document), bytes=3001)


def test_what_is_kept_is_read_only_and_not_what_the_side_holds(bench: Bench) -> None:
    sealed = bench.store()
    for path in bench.source.rglob("*.pt"):
        path.write_bytes(b"changed afterwards")
    restored = bench.restore(sealed.sha256)
    for root in (bench.checkpoint / "files", restored.files):
        assert {stat.S_IMODE((root / name).lstat().st_mode) for name in SAVED} == {0o444}
        assert {(root / name).lstat().st_nlink for name in SAVED} == {1}
        assert read_files(root) == SAVED


PARTS = st.text("abYZ09._+=@,:-", min_size=1, max_size=12).filter(lambda part: part not in {".", ".."})
NAMES = st.lists(PARTS, min_size=1, max_size=5).map("/".join)


def without_clashes(names: Iterable[str]) -> list[str]:
    """Leave out names that are folders of others."""
    chosen = set(names)
    return sorted(chosen.difference(copying.folders_of(chosen)))


@settings(max_examples=12, deadline=None)
@given(st.dictionaries(NAMES, st.binary(max_size=40), min_size=1, max_size=8))
def test_every_name_below_the_folder_survives(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]
) -> None:
    kept = {name: files[name] for name in without_clashes(files)}
    bench = make_home(tmp_path_factory.mktemp("bench"), kept)
    assert read_files(bench.restore(bench.store().sha256).files) == kept


def test_names_like_those_of_distributed_checkpoints_survive(tmp_path: Path) -> None:
    files = {"__0_0.distcp": b"a", ".metadata": b"b", "epoch=1-step=20.ckpt": b"c", "a/files/checkpoint.json": b"d"}
    bench = make_home(tmp_path, files)
    assert read_files(bench.restore(bench.store().sha256).files) == files


def test_a_folder_without_a_file_is_left_out(bench: Bench) -> None:
    (bench.source / "empty" / "deep").mkdir(parents=True)
    restored = bench.restore(bench.store().sha256)
    assert not (restored.files / "empty").exists()
    assert read_files(restored.files) == SAVED


def test_a_large_file_passes_through_a_small_memory(tmp_path: Path) -> None:
    bench = make_home(tmp_path, {"small": b"1"})
    size = 8 * copying.PIECE_BYTES + 1
    with (bench.source / "large").open("wb") as stream:
        for _ in range(8):
            stream.write(bytes(copying.PIECE_BYTES))
        stream.write(b"!")
    tracemalloc.start()
    try:
        sealed = bench.store()
        restored = bench.restore(sealed.sha256)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sealed.num_bytes == size + 1
    assert sha256_file(restored.files / "large") == sha256_file(bench.source / "large")
    assert peak < 2 * copying.PIECE_BYTES


def test_another_checkpoint_of_the_same_segment_lies_beside(bench: Bench) -> None:
    first = bench.store(account=Account(update=1, tokens=5, train_s=0.1, elapsed_s=0.2, curve=()))
    bench.store()
    assert bench.names() == ["1", "30"]
    assert bench.restore(first.sha256, update=1).account.curve == ()


# --- what a side may leave --------------------------------------------------------------------------------------------


def bind_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


def empty(source: Path) -> None:
    shutil.rmtree(source)
    source.mkdir()


def make_only_folders(source: Path) -> None:
    shutil.rmtree(source)
    (source / "empty").mkdir(parents=True)


def link_source(source: Path) -> None:
    source.rename(source.with_name("elsewhere"))
    source.symlink_to("elsewhere")


def put_a_file_there(source: Path) -> None:
    shutil.rmtree(source)
    source.write_bytes(b"x")


RUBBISH: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing": (empty, "there is no file"),
    "folders alone": (make_only_folders, "there is no file"),
    "no folder": (shutil.rmtree, "saved: No such file"),
    "a file": (put_a_file_there, "saved: Not a directory"),
    "a link to a folder that has it all": (link_source, "saved: (Not a directory|Too many levels)"),
    "a link to a file": (lambda source: (source / "a").symlink_to("model.pt"), "a: neither a regular file"),
    "a link out of the folder": (lambda source: (source / "a").symlink_to("/etc/passwd"), "a: neither a regular file"),
    "a link to a folder": (lambda source: (source / "a").symlink_to("rank0"), "a: neither a regular file"),
    "a pipe": (lambda source: os.mkfifo(source / "rank0" / "a"), "rank0/a: neither a regular file"),
    "a socket": (lambda source: bind_socket(source / "a"), "a: neither a regular file"),
    "a blank": (lambda source: (source / "a b").touch(), "'a b': not a name"),
    "a line feed": (lambda source: (source / "a\nb").touch(), r"'a\\nb': not a name"),
    "foreign letters": (lambda source: (source / "\u00e4").touch(), r"'\\xe4': not a name"),
    "no letters": (lambda source: Path(os.fsdecode(os.fsencode(source) + b"/\xff")).touch(), r"udcff': not a name"),
    "a folder's odd name": (lambda source: (source / "a;b").mkdir(), "'a;b': not a name"),
    "too deep": (lambda source: (source / "/".join(["d" * 99] * 6)).mkdir(parents=True), "not a name"),
}


@pytest.mark.parametrize("name", RUBBISH)
def test_what_cannot_be_kept_is_the_sides_rubbish(bench: Bench, name: str) -> None:
    spoil, message = RUBBISH[name]
    spoil(bench.source)
    with pytest.raises(EndedError, match=message) as caught:
        bench.store()
    assert caught.value.ending is Ending.RUBBISH
    assert caught.value.reason.startswith("what the side saved cannot be kept: ")
    assert bench.names() == []


@pytest.mark.parametrize("most", [6, 7])
def test_files_and_folders_are_counted_together(bench: Bench, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(copying, "MOST_ENTRIES", most)
    if most == 7:
        assert bench.store().num_bytes == 3001
        return
    with pytest.raises(EndedError, match="more than 6 files and folders") as caught:
        bench.store()
    assert caught.value.ending is Ending.RUBBISH


def after_first_piece(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let something happen once, when the first piece of the first file has been written."""
    monkeypatch.setattr(copying, "PIECE_BYTES", 100)
    written = copying._write
    waiting = [act]

    def write(descriptor: int, data: memoryview) -> None:
        written(descriptor, data)
        while waiting:
            waiting.pop()()

    monkeypatch.setattr(copying, "_write", write)


def overwrite(path: Path, offset: int) -> None:
    with path.open("r+b") as stream:
        stream.seek(offset)
        stream.write(b"?")


def append(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(b"?")


def replace_by_copy(path: Path) -> None:
    shutil.copy(path, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def replace_by_link(path: Path) -> None:
    path.rename(path.parent.with_name("outside"))
    path.symlink_to(path.parent.with_name("outside"))


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "what was copied": (lambda source: overwrite(source / "model.pt", 0), "model.pt: its time of"),
    "what is to come": (lambda source: overwrite(source / "model.pt", 900), "model.pt: its time of"),
    "cut": (lambda source: os.truncate(source / "model.pt", 150), "model.pt: 850 of 1000 bytes are missing"),
    "longer": (lambda source: append(source / "model.pt"), "model.pt: its size"),
    "swapped while open": (lambda source: replace_by_copy(source / "model.pt"), "model.pt: its time of status change"),
    "another file": (lambda source: append(source / "rank0" / "optimizer.pt"), "rank0/optimizer.pt: its size"),
    "another inode": (lambda source: replace_by_copy(source / "rank0" / "optimizer.pt"), "its inode"),
    "gone": (lambda source: (source / "rank0" / "optimizer.pt").unlink(), "rank0/optimizer.pt: No such file"),
    "a link": (lambda source: replace_by_link(source / "rank1" / "x_0.distcp"), "x_0.distcp: Too many"),
    "a folder's link": (lambda source: replace_by_link(source / "rank1"), "x_0.distcp: (Not a directory|Too many)"),
    "added": (lambda source: (source / "z").touch(), "files were added, removed or changed"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_while_it_is_copied_is_not_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    change, message = CHANGES[name]
    after_first_piece(monkeypatch, lambda: change(bench.source))
    with pytest.raises(EndedError, match=message) as caught:
        bench.store()
    assert caught.value.ending is Ending.RUBBISH
    assert bench.names() == []


def test_a_file_that_was_copied_is_looked_at_again_at_the_end(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = copying.copy_file

    def copy_file(source: int, target: int, name: str, *arguments: Any, **options: Any) -> copying.SavedFile:
        if name == "rank0/optimizer.pt":
            overwrite(bench.source / "model.pt", 5)
        return copied(source, target, name, *arguments, **options)

    monkeypatch.setattr(copying, "copy_file", copy_file)
    with pytest.raises(EndedError, match="files were added, removed or changed"):
        bench.store()
    assert bench.names() == []


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ENOMEM, errno.EMFILE, errno.ETIMEDOUT])
def test_a_disk_that_fails_under_the_side_is_not_its_fault(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(os, "readv", failing(number))
    with pytest.raises(EndedError, match=rf"model\.pt: {os.strerror(number)}") as caught:
        bench.store()
    assert caught.value.ending is Ending.LOST
    assert bench.names() == []


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EBUSY, errno.EDEADLK, errno.EACCES, errno.ELOOP, errno.EINVAL])
def test_what_a_side_can_bring_about_is_its_own_fault(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(os, "readv", failing(number))
    with pytest.raises(EndedError, match=r"model\.pt: ") as caught:
        bench.store()
    assert caught.value.ending is Ending.RUBBISH
    assert bench.names() == []


def test_a_file_system_in_the_place_of_what_was_saved_is_not_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = b"36 35 98:0 / / rw - ext4 /dev/root rw\n"
    line = f"97 36 0:51 / {bench.source}/rank0 rw,nosuid - fuse side rw\n".encode()
    monkeypatch.setattr(Path, "read_bytes", lambda _path: before + line)
    with pytest.raises(EndedError, match=r"another file system is mounted on .*/rank0") as caught:
        bench.store()
    assert caught.value.ending is Ending.RUBBISH
    assert bench.names() == []


@pytest.mark.parametrize(
    ("point", "is_found"),
    [(b"/own/save-1", True), (b"/own/save-1/a", True), (b"/own/save-10", False), (b"/own", False), (b"/", False)],
)
def test_mounts_are_looked_for_on_the_folder_and_below(point: bytes, *, is_found: bool) -> None:
    mounts = b"36 35 98:0 / " + point.replace(b"save", rb"save\040it") + b" rw - ext4 /dev/root rw\n"
    assert bool(copying.find_mounts(Path("/own/save it-1"), mounts)) is is_found


# --- holes ------------------------------------------------------------------------------------------------------------


def leave_out(path: Path, num_bytes: int, *, begin: bytes = b"") -> None:
    """Write a file with a hole at its end."""
    with path.open("wb") as stream:
        stream.write(begin)
        stream.truncate(num_bytes)


def set_aside(path: Path, num_bytes: int) -> None:
    """Take blocks of the disk without writing them."""
    with path.open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, num_bytes)


def leave_out_many(folder: Path) -> None:
    for number in range(300):
        leave_out(folder / str(number), 1 << 16)


HOLES: dict[str, Callable[[Path], None]] = {
    "a huge one": lambda source: leave_out(source / "z", 1 << 40),
    "behind something": lambda source: leave_out(source / "z", 8 << 20, begin=bytes(4 << 20)),
    "only set aside": lambda source: set_aside(source / "z", 8 << 20),
    "many small ones": leave_out_many,
}


@pytest.mark.parametrize("name", HOLES)
def test_files_with_holes_are_no_checkpoint(bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    HOLES[name](bench.source)
    monkeypatch.setattr(copying, "copy_file", lambda *_arguments, **_options: pytest.fail("begun"))
    with pytest.raises(EndedError, match=r"a file with holes: more than [0-9]+ of [0-9]+ bytes") as caught:
        bench.store()
    assert caught.value.ending is Ending.RUBBISH
    assert bench.names() == []


def test_a_little_that_was_never_written_is_kept(bench: Bench) -> None:
    leave_out(bench.source / "z", 9 << 20, begin=os.urandom(8 << 20))
    bench.store()
    assert bench.names() == [str(UPDATE)]


def test_where_holes_cannot_be_asked_for_the_blocks_of_a_file_tell(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "lseek", failing(errno.EINVAL))
    bench.store()
    assert bench.names() == [str(UPDATE)]
    leave_out(bench.source / "z", 1 << 30)
    with pytest.raises(EndedError, match="z: a file with holes"):
        checkpoints.copy_saved(bench.source, bench.destination)


# --- whole or absent --------------------------------------------------------------------------------------------------


def failing(number: int, after: int = 0, real: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return what does the real thing a number of times and fails then."""
    left = [after]

    def fail(*arguments: Any, **options: Any) -> Any:
        if left[0] and real is not None:
            left[0] -= 1
            return real(*arguments, **options)
        raise OSError(number, os.strerror(number))

    return fail


PLACES: dict[str, tuple[Any, str, int]] = {
    "the first byte": (os, "write", 0),
    "a later file": (os, "write", 2),
    "a file's folder": (os, "mkdir", 1),
    "making a file durable": (os, "fsync", 0),
    "making a folder durable": (os, "fsync", 4),
    "the document": (checkpoints, "write_new", 0),
    "the name": (Path, "rename", 0),
}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("place", PLACES)
def test_a_home_that_is_full_is_left_as_it_was(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, place: str, number: int
) -> None:
    bench.folder().checkpoints.mkdir()
    where, name, after = PLACES[place]
    with monkeypatch.context() as patch:
        patch.setattr(where, name, failing(number, after, getattr(where, name)))
        with pytest.raises(OSError, match=os.strerror(number)) as caught:
            bench.store()
    assert is_no_space(caught.value)
    assert bench.names() == []
    bench.store()
    assert bench.names() == [str(UPDATE)]


def test_a_name_that_cannot_be_made_durable_is_taken_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.folder().checkpoints.mkdir()
    monkeypatch.setattr(checkpoints, "sync_folder", failing(errno.EDQUOT))
    with pytest.raises(OSError, match=os.strerror(errno.EDQUOT)):
        bench.store()
    assert bench.names() == []


def test_every_file_and_every_name_is_made_durable(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    real, durable = os.fsync, set[int]()

    def fsync(descriptor: int) -> None:
        durable.add(os.fstat(descriptor).st_ino)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    bench.store()
    root = bench.folder().root
    assert {path.lstat().st_ino for path in (root, *root.rglob("*"))} <= durable


def test_what_has_no_room_is_not_even_begun(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum(path.stat().st_size for path in bench.source.rglob("*") if path.is_file())
    free = SimpleNamespace(f_blocks=1000, f_bavail=size - 1, f_frsize=1)
    monkeypatch.setattr(os, "fstatvfs", lambda _descriptor: free)
    monkeypatch.setattr(copying, "copy_file", lambda *_arguments, **_options: pytest.fail("begun"))
    with pytest.raises(OSError, match="no room for the") as caught:
        bench.store()
    assert is_no_space(caught.value)
    assert bench.names() == []


class StoppedError(BaseException):
    """Stands for whatever stops a program between two of its steps."""


def stop() -> None:
    raise StoppedError


def test_whatever_stops_it_between_two_pieces_leaves_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    after_first_piece(monkeypatch, stop)
    with pytest.raises(StoppedError):
        bench.store()
    assert bench.names() == []


KILLED = """
import json, os, shutil, sys
from pathlib import Path
from jobs.runs import copying
from tests.jobs.runs.test_checkpoints import SAVED, Bench, read_files

bench, copying.PIECE_BYTES = Bench(Path(sys.argv[1])), 900

def store_and_die(calls):
    def dying(real):
        def call(*arguments, **options):
            nonlocal calls
            if calls == 0:
                os._exit(9)
            calls -= 1
            return real(*arguments, **options)
        return call
    os.write, os.fsync, os.mkdir, os.rename = map(dying, (os.write, os.fsync, os.mkdir, os.rename))
    bench.store()
    os._exit(0)

found = []
while not found or found[-1][0]:
    child = os.fork() or store_and_die(len(found))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    found.append([code, bench.checkpoint.exists()])
    if bench.checkpoint.exists():
        assert read_files(bench.checkpoint / "files") == SAVED
        json.loads(bench.document.read_bytes())
        if code:
            shutil.rmtree(bench.checkpoint)
print(json.dumps(found))
"""
"""Stores again and again, killed before each of its calls that writes something."""


def test_a_harness_that_is_killed_leaves_no_part_under_the_final_name(bench: Bench) -> None:
    argv = [sys.executable, "-c", KILLED, str(bench.root)]
    root = Path(checkpoints.__file__).parents[2]
    done = subprocess.run(argv, cwd=root, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    killed = found.index([9, True])
    assert killed > 20
    assert found == [[9, False]] * killed + [[9, True]] * (len(found) - killed - 1) + [[0, True]]
    *left, final = sorted(bench.names(), key=lambda name: not name.startswith("."))
    assert final == str(UPDATE)
    assert left
    assert all(name.startswith(f".{UPDATE}.") and name.endswith(".tmp") for name in left)
    assert read_files(bench.restore(sha256_file(bench.document)).files) == SAVED


def test_a_checkpoint_that_is_there_is_never_replaced(bench: Bench) -> None:
    sealed = bench.store()
    (bench.source / "model.pt").write_bytes(b"other")
    with pytest.raises(FileExistsError, match="a checkpoint of this update is there already"):
        bench.store()
    assert bench.names() == [str(UPDATE)]
    assert read_files(bench.restore(sealed.sha256).files) == SAVED


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_s": float("nan")}, "not JSON compliant"),
        ({"train_s": 2.0}, "train_s is 2.0, elapsed_s 1.7"),
        ({"update": 29}, "the curve goes beyond update 29"),
        ({"tokens": 0}, "tokens is 0, below 1"),
    ],
)
def test_an_account_that_could_not_be_restored_is_not_written(
    bench: Bench, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        bench.store(account=replace(ACCOUNT, **changes))
    assert bench.names() == []


# --- what is refused --------------------------------------------------------------------------------------------------


def flip(path: Path) -> None:
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def rewrite(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)


def link_away(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def put_a_folder_there(path: Path) -> None:
    path.unlink()
    path.mkdir()


MODEL = sha256_bytes(SAVED["model.pt"])
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a bit": (
        lambda root: flip(root / "files/model.pt"),
        f"model.pt: 1000 bytes with the SHA-256 .*; checkpoint.json says 1000 with {MODEL}",
    ),
    "a bit of the last file": (lambda root: flip(root / "files/rank1/x_0.distcp"), "rank1/x_0.distcp: 1 bytes"),
    "cut": (lambda root: rewrite(root / "files/model.pt", b"m"), "model.pt: has 1 bytes, checkpoint.json says 1000"),
    "longer": (lambda root: rewrite(root / "files/rank0/deep/.metadata", b"x"), "/.metadata: has 1 bytes"),
    "missing": (
        lambda root: (root / "files/model.pt").unlink(),
        "model.pt: is listed in checkpoint.json and not there",
    ),
    "unlisted": (lambda root: (root / "files/rank0/more").touch(), "rank0/more: is not listed"),
    "an empty folder": (lambda root: (root / "files/more").mkdir(), "more: a folder without a file"),
    "a link": (lambda root: link_away(root / "files/model.pt"), "model.pt: neither a regular file"),
    "a folder's link": (lambda root: link_away(root / "files/rank0"), "rank0: neither a regular file"),
    "a pipe": (lambda root: os.mkfifo(root / "files/more"), "more: neither a regular file"),
    "an odd name": (lambda root: (root / "files/a b").touch(), "'a b': not a name"),
    "no files": (lambda root: shutil.rmtree(root / "files"), "files: No such file"),
    "the files' link": (lambda root: link_away(root / "files"), "files: (Not a directory|Too many levels)"),
    "document": (
        lambda root: flip(root / "checkpoint.json"),
        "checkpoint.json has the SHA-256 .*, the allocation names",
    ),
    "no document": (lambda root: (root / "checkpoint.json").unlink(), "checkpoint.json: No such file"),
    "a document's link": (lambda root: link_away(root / "checkpoint.json"), "checkpoint.json: Too many levels"),
    "a document's folder": (
        lambda root: put_a_folder_there(root / "checkpoint.json"),
        "checkpoint.json: (no regular file|Is a directory)",
    ),
    "no checkpoint": (shutil.rmtree, "No such file"),
    "nothing": (lambda root: shutil.rmtree(root.parent), "No such file"),
    "unfinished": (lambda root: root.rename(root.with_name(f".{root.name}.00.tmp")), "No such file"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_checkpoint_is_refused(bench: Bench, name: str) -> None:
    damage, message = DAMAGES[name]
    sealed = bench.store()
    damage(bench.checkpoint)
    bench.refuse(sealed.sha256, message)


@pytest.mark.parametrize("field", [field.name for field in fields(RunIdentity)])
def test_a_checkpoint_of_another_run_is_refused(bench: Bench, field: str) -> None:
    sealed = bench.store()
    found = getattr(IDENTITY, field)
    other = found + 1 if isinstance(found, int) else f"{found}x"
    message = f"its {field} is {found!r}, this run's is {other!r}"
    bench.refuse(sealed.sha256, message, identity=RunIdentity(**{**asdict(IDENTITY), field: other}))


def test_a_checkpoint_in_another_segments_folder_is_refused(bench: Bench) -> None:
    sealed = bench.store()
    shutil.copytree(bench.folder(1).root, bench.folder(2).root)
    name = CheckpointName(segment=2, update=UPDATE, sha256=sealed.sha256)
    with pytest.raises(EndedError, match="its segment is 1, this run's is 2"):
        restore(bench.home, planned_from(name, 3), IDENTITY, bench.destination)


def test_a_checkpoint_under_another_updates_name_is_refused(bench: Bench) -> None:
    sealed = bench.store()
    bench.checkpoint.rename(bench.checkpoint.with_name("31"))
    bench.refuse(sealed.sha256, "its update is 30, this run's is 31", update=31)


def test_the_document_that_the_allocation_names_and_no_other_is_taken(bench: Bench) -> None:
    sealed = bench.store()
    changed = bench.forge(lambda value: value.update(at=1.0))
    bench.refuse(sealed.sha256, f"has the SHA-256 {changed}, the allocation names {sealed.sha256}")
    assert bench.restore(changed).account == ACCOUNT


FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "format": (lambda value: value.update(format="checkpoint/2"), "not of format checkpoint/1"),
    "unknown": (lambda value: value.update(more=1), "unknown field 'more'"),
    "missing": (lambda value: value.pop("seed"), "seed is missing"),
    "type": (lambda value: value.update(seed="45"), "seed is not an integer"),
    "flag": (lambda value: value.update(attempt=True), "attempt is not an integer"),
    "no number": (lambda value: value.update(train_s=float("nan")), "NaN is not a number"),
    "infinite": (lambda value: value.update(elapsed_s=float("inf")), "Infinity is not a number"),
    "overflow": (lambda value: value["curve"][0].update(validation_loss=1e999), "Infinity is not a number"),
    "negative": (lambda value: value.update(train_s=-1.0), "train_s is -1.0"),
    "faster than time": (lambda value: value.update(train_s=1.8), "train_s is 1.8, elapsed_s 1.7"),
    "twice": (lambda value: value["curve"].append(value["curve"][1]), "does not ascend at update 30"),
    "descending": (lambda value: value["curve"].reverse(), "does not ascend at update 15"),
    "no tokens between": (lambda value: value["curve"][0].update(tokens=150), "does not ascend at update 30"),
    "beyond": (lambda value: value["curve"][1].update(update=31), "the curve goes beyond update 30"),
    "beyond its tokens": (lambda value: value["curve"][1].update(tokens=151), "the curve goes beyond update 30, 150"),
    "a point more": (lambda value: value["curve"][0].update(more=1), "unknown field 'more'"),
    "no points": (lambda value: value.update(curve={}), "curve is not a list"),
    "a flag of progress": (lambda value: value["progress"].update(done=True), "'done' is neither a finite number"),
    "a list of progress": (lambda value: value["progress"].update(done=[1]), "'done' is neither a finite number"),
    "no files": (lambda value: value.update(files=[]), "no file"),
    "file twice": (lambda value: value["files"].append(value["files"][-1]), "not in the order of names, each once"),
    "files unsorted": (lambda value: value["files"].reverse(), "not in the order of names, each once"),
    "file unknown": (lambda value: value["files"][0].update(mode=1), "unknown field 'mode'"),
    "file negative": (lambda value: value["files"][0].update(bytes=-1), "bytes is -1, below 0"),
    "previous": (lambda value: value.update(previous=[]), "previous is not"),
    "previous digest": (
        lambda value: value.update(previous={"segment": 1, "update": 1, "sha256": "x"}),
        "checkpoint.previous: not a SHA-256",
    ),
    "previous of the same": (
        lambda value: value.update(previous={"segment": 1, "update": 1, "sha256": "0" * 64}),
        "segment 1 cannot have started from",
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_document_that_nobody_wrote_is_refused_even_under_its_own_digest(bench: Bench, name: str) -> None:
    change, message = FORGERIES[name]
    bench.store()
    bench.refuse(bench.forge(change), f"checkpoint.json: .*{message}")
    assert not bench.destination.exists()


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "../model.pt", "rank0/../model.pt", "./model.pt", "rank0//x", "a b", "a\0b", "a/" * 260]
)
def test_a_name_that_leads_elsewhere_is_refused(bench: Bench, name: str) -> None:
    bench.store()
    bench.refuse(bench.forge(lambda value: value["files"][0].update(name=name)), "not the name of a file")
    assert not bench.destination.exists()


def test_a_key_that_stands_twice_is_refused(bench: Bench) -> None:
    bench.store()
    data = bench.document.read_bytes().replace(b'"seed": 45', b'"seed": 45, "seed": 45')
    bench.document.write_bytes(data)
    bench.refuse(sha256_bytes(data), "a key stands twice")


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff"])
def test_what_is_no_document_is_refused(bench: Bench, data: bytes) -> None:
    bench.store()
    bench.document.write_bytes(data)
    bench.refuse(sha256_bytes(data), "checkpoint.json: ")


def test_a_state_that_is_earlier_than_what_its_segment_started_from_is_refused(bench: Bench) -> None:
    bench.folder(2).root.mkdir(parents=True)
    previous = CheckpointName(segment=1, update=UPDATE, sha256="0" * 64)
    with pytest.raises(ValueError, match="segment 2 cannot have started from"):
        bench.store(segment=2, previous=replace(previous, update=UPDATE + 1))
    bench.store(segment=2, previous=previous)


# --- what says nothing about a checkpoint -----------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["document", "files"])
def test_a_file_system_that_fails_loses_the_segment_and_refuses_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    sealed = bench.store()
    if where == "document":
        monkeypatch.setattr(checkpoints, "read_regular", failing(errno.ESTALE))
    else:
        monkeypatch.setattr(os, "readv", failing(errno.EIO))
    with pytest.raises(EndedError, match=r"cannot be read now: .*nothing was found wrong with it") as caught:
        bench.restore(sealed.sha256)
    assert caught.value.ending is Ending.LOST


def test_a_private_disk_that_is_full_refuses_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed = bench.store()
    monkeypatch.setattr(os, "write", failing(errno.ENOSPC))
    with pytest.raises(OSError, match="No space") as caught:
        bench.restore(sealed.sha256)
    assert is_no_space(caught.value)


def test_a_private_folder_that_is_there_already_is_not_written_to(bench: Bench) -> None:
    sealed = bench.store()
    (bench.root / "outside").mkdir()
    bench.destination.symlink_to("outside")
    with pytest.raises(FileExistsError):
        bench.restore(sealed.sha256)
    assert list((bench.root / "outside").iterdir()) == []


@pytest.mark.parametrize("late", ["folder", "document"])
def test_a_checkpoint_that_a_shared_file_system_shows_late_is_waited_for(bench: Bench, late: str) -> None:
    sealed = bench.store()
    path = bench.checkpoint if late == "folder" else bench.document
    path.rename(path.with_name("late"))
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            path.with_name("late").rename(path)

    name = CheckpointName(segment=1, update=UPDATE, sha256=sealed.sha256)
    found = restore(bench.home, planned_from(name), IDENTITY, bench.destination, pause=pause)
    assert found.account == ACCOUNT
    assert len(pauses) == 3


def test_a_checkpoint_is_not_waited_for_longer_than_a_few_seconds(bench: Bench) -> None:
    sealed = bench.store()
    shutil.rmtree(bench.checkpoint)
    pauses: list[float] = []
    name = CheckpointName(segment=1, update=UPDATE, sha256=sealed.sha256)
    with pytest.raises(EndedError):
        restore(bench.home, planned_from(name), IDENTITY, bench.destination, pause=pauses.append)
    assert sum(pauses) == MOST_WAIT_S


def test_the_beginning_is_no_checkpoint(bench: Bench) -> None:
    with pytest.raises(ValueError, match="starts from the beginning"):
        restore(bench.home, planned_from(None), IDENTITY, bench.destination)


# --- which run --------------------------------------------------------------------------------------------------------


def test_a_run_is_known_by_what_its_allocation_and_its_recipe_say() -> None:
    run = {"kind": "run", "slot": SLOT, "workload": "small", "updates": 0, "repeat": 0, "segment": 2, "attempt": 3}
    allocation = parse_allocation(plan_text(**run), "a1")
    recipe = Recipe(
        name="small",
        config={},
        config_sha256="c",
        targets=200,
        validation_targets=8,
        updates=40,
        evaluate_every=15,
    )
    assert identify(allocation, allocation.attempts[0], recipe) == RunIdentity(
        manifest_sha256=allocation.manifest_sha256,
        slot=SLOT,
        attempt=3,
        side="baseline",
        snapshot_sha256=allocation.sides["baseline"].snapshot_sha256,
        recipe="small",
        config_sha256="c",
        seed=45,
    )
