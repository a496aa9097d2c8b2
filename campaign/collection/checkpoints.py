"""Checking the checkpoints that a segment of a run left: whose they are, what they list, and whether that is there.

A checkpoint may be large, so that its files are hashed once, and again only when the file system says that one was
written to: see `check_files`. Everything else of it is looked at each time.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from campaign import documents, files
from campaign.collection.inputs import Stamp
from campaign.collection.left import NOTHING, LeftBehind
from campaign.collection.sealed import Finding, is_leftover
from campaign.errors import EvidenceError
from campaign.paths import AttemptPaths, CheckpointPaths, is_checkpoint

_PART = re.compile(r"[A-Za-z0-9._+=@,:-]{1,255}")
_MOST_NAME = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedFile:
    """A file that a checkpoint lists and that is there with its size; nothing is said of its content."""

    path: Path
    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """One checkpoint whose document is right and whose files are those that it lists, or were left behind as such."""

    sha256: str
    """Of its checkpoint.json."""
    document: documents.Checkpoint
    files: tuple[SavedFile, ...]
    """Those that are here."""

    @property
    def num_bytes(self) -> int:
        """Size of all files together, checkpoint.json left out."""
        return sum(file.bytes for file in self.document.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """What every checkpoint of a segment must say, and the recipe that it is trained by."""

    fields: Mapping[str, object]
    """Values by the fields of checkpoint.json that name its owner."""
    recipe: documents.Recipe


# --- the document -----------------------------------------------------------------------------------------------------


def _check_owner(document: documents.Checkpoint, owner: Owner) -> Iterator[str]:
    for name, value in owner.fields.items():
        if getattr(document, name) != value:
            yield f"{name} is {getattr(document, name)!r}, and it must be {value!r}"


def _is_time(seconds: float) -> bool:
    return math.isfinite(seconds) and seconds >= 0


def _check_account(document: documents.Checkpoint, update: int, owner: Owner) -> Iterator[str]:
    """Yield what cannot be in an account of a run, whatever stands in those before it."""
    if document.update != update:
        yield f"update is {document.update}, and its folder is that of update {update}"
    if document.update > owner.recipe.updates:
        yield f"update is {document.update}, and the recipe has {owner.recipe.updates}"
    if document.tokens > owner.recipe.targets:
        yield f"tokens is {document.tokens}, and the recipe has {owner.recipe.targets}"
    if not (_is_time(document.train_s) and _is_time(document.elapsed_s) and document.train_s <= document.elapsed_s):
        yield f"train_s is {document.train_s!r} and elapsed_s {document.elapsed_s!r}"
    before = [point for point in owner.recipe.points if point < document.update]
    made = [point.update for point in document.curve]
    # Whether it was saved before or after an evaluation at the same update is the harness's affair.
    if made not in (before, [point for point in owner.recipe.points if point <= document.update]):
        yield f"the curve has points after the updates {made}, and planned are {before}"
    tokens = [0, *(point.tokens for point in document.curve), document.tokens + 1]
    if not all(earlier < later for earlier, later in pairwise(tokens)):
        yield "the tokens of the curve do not rise to those of the checkpoint"
    if not all(math.isfinite(point.validation_loss) for point in document.curve):
        yield "a loss of the curve is not finite"


def check_growth(earlier: documents.Checkpoint, later: documents.Checkpoint, last: int) -> Iterator[str]:
    """Yield in what an account does not go on from another one.

    Args:
        earlier: Of the state before, or of the one that the segment started from.
        later: Of the next state.
        last: The recipe's updates: a segment that starts there has nothing to train, and saves what it found.
    """
    is_same = earlier.update == later.update == last and earlier.segment < later.segment
    if not (earlier.update < later.update or is_same):
        yield f"update goes from {earlier.update} to {later.update}"
    for name in ("tokens", "train_s", "elapsed_s"):
        was, now = getattr(earlier, name), getattr(later, name)
        if not was <= now:
            yield f"{name} goes from {was!r} to {now!r}"
    # A segment that starts there evaluates again: the final loss is its own, not what it found written.
    known = [point for point in earlier.curve if not is_same or point.update < last]
    if list(later.curve[: len(known)]) != known:
        yield "the curve does not begin with the one that was there before"
    if later.path != earlier.path:
        yield f"the engaged path goes from {earlier.path!r} to {later.path!r}"


# --- the folder -------------------------------------------------------------------------------------------------------


def is_name(text: str) -> bool:
    """Return whether a text names a file below a folder, in the characters that the harness takes.

    The same rule as `jobs.runs.copying.is_name`, which may not be shared; a test holds them equal.
    """
    parts = text.split("/")
    return len(text) <= _MOST_NAME and all(_PART.fullmatch(part) and part not in {".", ".."} for part in parts)


def _check_names(listed: Sequence[documents.CheckpointFile]) -> Iterator[str]:
    names = [file.name for file in listed]
    if not names:
        yield "it lists no file"
    for name in names:
        if not is_name(name):
            yield f"{ascii(name)[:_MOST_NAME]} is not the name of a file below it"
    if names != sorted(set(names)):
        yield "its files are not listed once each, by name"


def _walk(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield everything below a folder, folders before what is in them, by name with slashes."""
    pending = [folder]
    while pending:
        here = pending.pop()
        with os.scandir(here) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
        for entry in entries:
            found = entry.stat(follow_symlinks=False)
            yield Path(entry.path).relative_to(folder).as_posix(), found
            if stat.S_ISDIR(found.st_mode):
                pending.append(Path(entry.path))


def _check_files(
    folder: CheckpointPaths, listed: Sequence[documents.CheckpointFile], left: LeftBehind
) -> tuple[tuple[SavedFile, ...], list[Finding]]:
    """Compare what is below files/ with what the document lists, but for the content."""
    wanted = {file.name: file for file in listed}
    above = {parent.as_posix() for name in wanted for parent in Path(name).parents}
    # Where all of it was left behind, so was the folder.
    present = dict(_walk(folder.files)) if os.path.lexists(folder.files) else {}
    findings: list[Finding] = []
    saved: list[SavedFile] = []
    for name, found in present.items():
        where = str(folder.files / name)
        if stat.S_ISDIR(found.st_mode) and name in above:
            continue
        if name not in wanted:
            findings.append(Finding(where=where, what="not listed by its checkpoint.json: added later"))
        elif not stat.S_ISREG(found.st_mode):
            findings.append(Finding(where=where, what="not a regular file"))
        elif found.st_size != wanted[name].bytes:
            what = f"{found.st_size} bytes, and its checkpoint.json lists {wanted[name].bytes}"
            findings.append(Finding(where=where, what=what))
        else:
            file = SavedFile(path=folder.files / name, num_bytes=found.st_size, sha256=wanted[name].sha256)
            saved.append(file)
    findings += [
        Finding(where=str(folder.files / name), what="its checkpoint.json lists it, and it is gone")
        for name in sorted(set(wanted) - set(present))
        if not left.covers(folder.files / name, wanted[name].sha256, wanted[name].bytes)
    ]
    return tuple(saved), findings


def _read_one(folder: CheckpointPaths, owner: Owner, left: LeftBehind) -> tuple[Saved | None, list[Finding]]:
    where = str(folder.document)
    findings = [
        Finding(where=str(folder.root / name), what="no part of a checkpoint")
        for name in sorted(entry.name for entry in os.scandir(folder.root))
        if name not in {folder.document.name, folder.files.name}
    ]
    data = files.read_regular(folder.document)
    document = documents.Checkpoint.parse(data, where=where)
    names = list(_check_names(document.files))
    faults = [*_check_owner(document, owner), *_check_account(document, int(folder.root.name), owner), *names]
    findings += [Finding(where=where, what=fault) for fault in faults]
    if names:
        return None, findings
    is_left = not os.path.lexists(folder.files) and left.number_below(folder.files) > 0
    if folder.files.is_symlink() or not (folder.files.is_dir() or is_left):
        return None, [*findings, Finding(where=str(folder.files), what="not a folder")]
    saved, found = _check_files(folder, document.files, left)
    findings += found
    if findings:
        return None, findings
    return Saved(sha256=files.sha256_bytes(data), document=document, files=saved), []


def read_checkpoints(
    folder: AttemptPaths, owner: Owner, left: LeftBehind = NOTHING
) -> tuple[dict[int, Saved], tuple[Finding, ...]]:
    """Read and check the checkpoints of one segment, but for the content of what the side saved.

    Args:
        folder: The segment's folder.
        owner: What they must say.
        left: What was left behind where the segment was made.

    Returns:
        Those that are right, by update in order, and what is wrong with the others.

    Raises:
        OSError: One cannot be looked at.
    """
    root = folder.checkpoints
    if not os.path.lexists(root):
        return {}, ()
    if root.is_symlink() or not root.is_dir():
        return {}, (Finding(where=str(root), what="not a folder"),)
    findings: list[Finding] = []
    updates: list[int] = []
    for entry in sorted(os.scandir(root), key=lambda entry: entry.name):
        if is_leftover(entry.name):
            continue
        if is_checkpoint(entry.name) and entry.is_dir(follow_symlinks=False):
            updates.append(int(entry.name))
        else:
            findings.append(Finding(where=entry.path, what="not a checkpoint"))
    saved: dict[int, Saved] = {}
    for update in sorted(updates):
        try:
            one, found = _read_one(folder.checkpoint(update), owner, left)
        except EvidenceError as error:
            one, found = None, [Finding(where=error.where, what=error.what)]
        findings += found
        if one is not None:
            saved[update] = one
    return saved, tuple(findings)


# --- the content ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Hashed:
    """A file whose content was found right."""

    sha256: str
    stamp: Stamp


def check_files(
    saved: Iterable[SavedFile], known: Mapping[Path, Hashed]
) -> tuple[tuple[Finding, ...], dict[Path, Hashed]]:
    """Check the content of what checkpoints list.

    A file is hashed unless the file system says that it is the one that was hashed before, for the same digest.

    Args:
        saved: The files.
        known: Those whose content was found right before.

    Returns:
        What is wrong, and the files that are right.
    """
    findings: list[Finding] = []
    right: dict[Path, Hashed] = {}
    for file in saved:
        try:
            # Looked at before it is hashed: a file that changes meanwhile has another stamp next time.
            hashed = Hashed(sha256=file.sha256, stamp=Stamp.of(file.path.lstat()))
            if known.get(file.path) != hashed:
                _hash(file)
            right[file.path] = hashed
        except EvidenceError as error:
            findings.append(Finding(where=str(file.path), what=error.what))
        except OSError as error:
            findings.append(Finding(where=str(file.path), what=f"cannot be looked at: {error.strerror}"))
    return tuple(findings), right


def _hash(file: SavedFile) -> None:
    digest = files.sha256_regular(file.path)
    if digest != file.sha256:
        raise EvidenceError(f"its SHA-256 is {digest}, and its checkpoint.json lists {file.sha256}: it was changed")
