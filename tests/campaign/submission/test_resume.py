"""Which checkpoint a segment starts from: the newest complete one, and an error where that is damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from acceptance.formats import Ending
from campaign.collection.checkpoints import Hashed
from campaign.documents import CheckpointName, Receipt, Slot
from campaign.errors import EvidenceError
from campaign.files import sha256_file
from campaign.keys import AttemptKey
from campaign.paths import CheckpointPaths
from campaign.submission.resume import read_newest, read_saved_updates
from campaign.watching.state import AttemptState, AttemptStatus
from tests.support import training
from tests.support.home import SMALL, Home, freeze

RUN = "baseline/run/sync/s45"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return freeze(tmp_path / "home", SMALL[:1], repeats=1, convergence=training.make_rules("sync"))


@pytest.fixture
def slot(home: Home) -> Slot:
    return next(slot for slot in home.protocol.slots if slot.slot == RUN)


def newest(home: Home, *segments: int, attempt: int = 1) -> CheckpointName | None:
    tried = [status_of(home, AttemptKey(RUN, attempt, segment)) for segment in segments]
    return read_newest(home.paths, tried, sha256_file(home.paths.manifest), {})


def status_of(home: Home, key: AttemptKey) -> AttemptStatus:
    """Return a segment that has ended, with the receipt that it left, if it left one."""
    path = home.folder(key.slot, key.attempt, key.segment).receipt
    receipt = Receipt.read(path) if path.exists() else None
    return AttemptStatus(
        slot=key.slot, attempt=key.attempt, segment=key.segment, allocation="a", job="7", state=AttemptState.ENDED,
        ending=receipt.ending if receipt else Ending.LOST, reason="", node="", source="", receipt=receipt,
    )  # fmt: skip


def test_a_run_without_a_checkpoint_starts_from_the_beginning(home: Home, slot: Slot) -> None:
    assert newest(home) is None
    home.segment(slot, ending=Ending.LOST, checkpoints=(), is_sealed=False)
    assert newest(home, 1) is None


def test_the_highest_update_of_the_last_segment_that_has_any_counts(home: Home, slot: Slot) -> None:
    home.segment(slot, 1, 1, ending=Ending.TIME_LIMIT, checkpoints=(5, 12, 9))
    home.segment(slot, 1, 2, ending=Ending.LOST, checkpoints=(), is_sealed=False)
    first = home.folder(RUN, 1, 1).checkpoint(12)
    assert newest(home, 1, 2) == CheckpointName(segment=1, update=12, sha256=sha256_file(first.document))
    home.segment(slot, 1, 3, ending=Ending.PREEMPTED, checkpoints=(20,), is_sealed=False)
    found = newest(home, 1, 2, 3)
    assert found is not None
    assert (found.segment, found.update) == (3, 20)


def test_what_is_still_being_written_is_no_checkpoint(home: Home, slot: Slot) -> None:
    home.segment(slot, ending=Ending.LOST, checkpoints=(5,), is_sealed=False)
    folder = home.folder(RUN, 1, 1)
    (folder.checkpoints / ".20.a1b2c3.tmp").mkdir()
    assert read_saved_updates(folder) == [5]
    found = newest(home, 1)
    assert found is not None
    assert found.update == 5


def truncate(folder: CheckpointPaths) -> None:
    folder.document.write_bytes(folder.document.read_bytes()[:40])


def edit(**fields: object) -> Callable[[CheckpointPaths], None]:
    def change(folder: CheckpointPaths) -> None:
        folder.document.write_text(json.dumps({**json.loads(folder.document.read_bytes()), **fields}))

    return change


def shorten(folder: CheckpointPaths) -> None:
    path = folder.files / "model.bin"
    path.write_bytes(path.read_bytes()[:-1])


def change_a_byte(folder: CheckpointPaths) -> None:
    path = folder.files / "model.bin"
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])


def link(folder: CheckpointPaths) -> None:
    path = folder.files / "model.bin"
    path.rename(path.with_name("aside"))
    path.symlink_to("aside")


@pytest.mark.parametrize(
    ("damage", "file", "why"),
    [
        (truncate, "checkpoint.json", "not a valid JSON document"),
        (lambda folder: folder.document.unlink(), "checkpoint.json", "No such file"),
        (edit(more=1), "checkpoint.json", "more"),
        (edit(update=7), "checkpoint.json", "it is that of baseline/run/sync/s45 attempt 1 segment 1 after update 7"),
        (edit(attempt=2), "checkpoint.json", "attempt 2 segment 1 after update 12"),
        (edit(manifest_sha256="0" * 64), "checkpoint.json", "another campaign"),
        (shorten, "model.bin", "bytes instead of"),
        (change_a_byte, "model.bin", "it was changed"),
        (link, "model.bin", "not a regular file"),
        (lambda folder: (folder.files / "model.bin").unlink(), "model.bin", "cannot be looked at"),
    ],
)
def test_a_damaged_newest_checkpoint_is_an_error_and_never_replaced_by_an_older_one(
    home: Home, slot: Slot, damage: Callable[[CheckpointPaths], None], file: str, why: str
) -> None:
    home.segment(slot, ending=Ending.LOST, checkpoints=(5, 12), is_sealed=False)
    damage(home.folder(RUN, 1, 1).checkpoint(12))
    error = refusal(home)
    assert Path(error.where).name == file
    assert why in error.why
    assert "this run is left out" in error.why
    assert "restore the folder as it was, from a copy of the home" in error.hint


def refusal(home: Home) -> EvidenceError:
    with pytest.raises(EvidenceError, match="the newest checkpoint is damaged") as caught:
        newest(home, 1)
    return caught.value


def remove(folder: CheckpointPaths) -> None:
    shutil.rmtree(folder.root)


def plant(folder: CheckpointPaths) -> None:
    later = folder.root.with_name("13")
    shutil.copytree(folder.root, later)
    document = later / folder.document.name
    document.write_text(json.dumps({**json.loads(document.read_bytes()), "update": 13}))


@pytest.mark.parametrize(
    ("change", "folder", "why"),
    [
        (remove, "12", "it is not there, and the receipt of its segment lists it"),
        (plant, "13", "the receipt of its segment does not list it"),
        (edit(tokens=1), "12", "it is not the document that the receipt of its segment lists"),
    ],
)
def test_a_sealed_segment_is_gone_on_from_the_newest_checkpoint_of_its_receipt_and_from_no_other(
    home: Home, slot: Slot, change: Callable[[CheckpointPaths], None], folder: str, why: str
) -> None:
    home.segment(slot, ending=Ending.TIME_LIMIT, checkpoints=(5, 12))
    change(home.folder(RUN, 1, 1).checkpoint(12))
    error = refusal(home)
    assert folder in Path(error.where).parts
    assert why in error.why


def test_a_checkpoint_of_a_segment_that_sealed_none_is_not_taken(home: Home, slot: Slot) -> None:
    home.segment(slot, ending=Ending.TIME_LIMIT, checkpoints=(5, 12))
    home.segment(slot, 1, 2, ending=Ending.CANCELLED, checkpoints=())
    planted = home.folder(RUN, 1, 2).checkpoint(20)
    shutil.copytree(home.folder(RUN, 1, 1).checkpoint(12).root, planted.root)
    with pytest.raises(EvidenceError, match="damaged") as caught:
        newest(home, 1, 2)
    assert "does not list it" in caught.value.why


def test_what_a_killed_segment_left_is_all_that_there_is(home: Home, slot: Slot) -> None:
    home.segment(slot, ending=Ending.LOST, checkpoints=(5, 12), is_sealed=False)
    remove(home.folder(RUN, 1, 1).checkpoint(12))
    found = newest(home, 1)
    assert found is not None
    assert found.update == 5


def test_a_file_that_was_found_right_is_hashed_again_only_if_it_was_touched(
    home: Home, slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.segment(slot, ending=Ending.TIME_LIMIT, checkpoints=(5, 12))
    tried = [status_of(home, AttemptKey(RUN, 1, 1))]
    manifest_sha256, right = sha256_file(home.paths.manifest), dict[Path, Hashed]()
    first = read_newest(home.paths, tried, manifest_sha256, right)
    hashed: list[Path] = []

    def note(path: Path) -> str:
        hashed.append(path)
        return sha256_file(path)

    monkeypatch.setattr("campaign.collection.checkpoints.files.sha256_regular", note)
    assert read_newest(home.paths, tried, manifest_sha256, right) == first
    assert hashed == []
    model = home.folder(RUN, 1, 1).checkpoint(12).files / "model.bin"
    change_a_byte(home.folder(RUN, 1, 1).checkpoint(12))
    with pytest.raises(EvidenceError, match="damaged"):
        read_newest(home.paths, tried, manifest_sha256, right)
    assert hashed == [model]


def test_a_folder_of_checkpoints_that_cannot_be_looked_at_is_no_empty_one(home: Home, slot: Slot) -> None:
    home.segment(slot, ending=Ending.LOST, checkpoints=(), is_sealed=False)
    home.folder(RUN, 1, 1).checkpoints.write_bytes(b"")
    with pytest.raises(EvidenceError, match="cannot be looked at"):
        newest(home, 1)
