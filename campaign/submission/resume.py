"""Which checkpoint the next segment of a run starts from: the newest one that is complete."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from campaign.collection.checkpoints import Hashed, SavedFile, check_files
from campaign.documents import Checkpoint, CheckpointName, Receipt
from campaign.errors import EvidenceError
from campaign.files import read_regular, sha256_bytes
from campaign.keys import AttemptKey
from campaign.paths import AttemptPaths, CheckpointPaths, HomePaths, is_checkpoint
from campaign.watching.state import AttemptStatus

_HINT = (
    "restore the folder as it was, from a copy of the home; no other checkpoint is ever taken instead. "
    "Where the file system only shows it late: campaign submit again"
)


def read_saved_updates(attempt: AttemptPaths) -> list[int]:
    """Return the updates behind each checkpoint of a segment, in order.

    Raises:
        EvidenceError: The folder cannot be looked at.
    """
    try:
        with os.scandir(attempt.checkpoints) as entries:
            return sorted(int(entry.name) for entry in entries if is_checkpoint(entry.name))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise EvidenceError(
            f"the checkpoints cannot be looked at: {error.strerror}", where=str(attempt.checkpoints), hint=_HINT
        ) from error


def read_newest(
    paths: HomePaths, segments: Sequence[AttemptStatus], manifest_sha256: str, right: dict[Path, Hashed]
) -> CheckpointName | None:
    """Return the newest checkpoint of the last segment that has any; None if there is none.

    Of a segment that sealed a receipt it is the newest that the receipt lists; of one that was killed, the newest that
    is there.

    Args:
        paths: The home.
        segments: The segments of one attempt at a run, in order.
        manifest_sha256: Of the campaign.
        right: Files that were found right before; those of this checkpoint are added, and not hashed again.

    Raises:
        EvidenceError: It is damaged or gone, or another was put there: a segment that started from it would be
            refused, or could never be collected.
    """
    for one in reversed(segments):
        key = one.key
        folder = paths.attempt(key.slot, key.attempt, key.segment)
        updates = read_saved_updates(folder)
        listed = _find_listed(folder, updates, one.receipt, key) if one.receipt is not None else None
        if updates:
            newest = folder.checkpoint(updates[-1])
            name, checkpoint = _read_name(newest, key, updates[-1], manifest_sha256, listed)
            _check_content(newest, checkpoint, key, right)
            return name
    return None


def _find_listed(folder: AttemptPaths, updates: Sequence[int], receipt: Receipt, key: AttemptKey) -> str | None:
    """Return the digest that the receipt of a segment lists for its newest checkpoint; None if it wrote none.

    Refuses a newest checkpoint that is another one than the receipt's.
    """
    sealed = {one.update: one.sha256 for one in receipt.run.checkpoints} if receipt.run is not None else {}
    newest, listed = max(updates, default=0), max(sealed, default=0)
    where = folder.checkpoint(max(newest, listed))
    if newest < listed:
        raise _damaged(str(where.root), "it is not there, and the receipt of its segment lists it", key)
    if newest > listed:
        raise _damaged(str(where.root), "the receipt of its segment does not list it", key)
    return sealed.get(newest)


def _read_name(
    folder: CheckpointPaths, key: AttemptKey, update: int, manifest_sha256: str, listed: str | None
) -> tuple[CheckpointName, Checkpoint]:
    """Return a checkpoint and its name.

    Args:
        folder: The checkpoint.
        key: The segment that wrote it.
        update: Updates behind it.
        manifest_sha256: Of the campaign.
        listed: The digest that the segment's receipt lists; None where it left no receipt.
    """
    try:
        data = read_regular(folder.document)
        checkpoint = Checkpoint.parse(data, where=str(folder.document))
    except EvidenceError as error:
        raise _damaged(error.where, error.what, key) from error
    digest = sha256_bytes(data)
    if listed is not None and digest != listed:
        raise _damaged(str(folder.document), "it is not the document that the receipt of its segment lists", key)
    said = (AttemptKey(checkpoint.slot, checkpoint.attempt, checkpoint.segment), checkpoint.update)
    if said != (key, update):
        raise _damaged(str(folder.document), f"it is that of {said[0].text} after update {said[1]}", key)
    if checkpoint.manifest_sha256 != manifest_sha256:
        raise _damaged(str(folder.document), "it is that of another campaign", key)
    for saved in checkpoint.files:
        _check_size(folder.files / saved.name, saved.bytes, key)
    return CheckpointName(segment=key.segment, update=update, sha256=digest), checkpoint


def _check_content(folder: CheckpointPaths, checkpoint: Checkpoint, key: AttemptKey, right: dict[Path, Hashed]) -> None:
    """Refuse a file that was changed: the harness would refuse the segment, and that is final."""
    files = [
        SavedFile(path=folder.files / one.name, num_bytes=one.bytes, sha256=one.sha256) for one in checkpoint.files
    ]
    findings, hashed = check_files(files, right)
    for finding in findings:
        raise _damaged(finding.where, finding.what, key)
    right.update(hashed)


def _check_size(path: Path, num_bytes: int, key: AttemptKey) -> None:
    """Refuse a file that is gone or cut off, before any is hashed."""
    try:
        found = path.lstat()
    except OSError as error:
        raise _damaged(str(path), f"cannot be looked at: {error.strerror}", key) from error
    if not stat.S_ISREG(found.st_mode):
        raise _damaged(str(path), "not a regular file", key)
    if found.st_size != num_bytes:
        raise _damaged(str(path), f"it has {found.st_size} bytes instead of {num_bytes}", key)


def _damaged(where: str, why: str, key: AttemptKey) -> EvidenceError:
    return EvidenceError(
        "the newest checkpoint is damaged",
        where=where,
        why=f"{why}; {key.text} left it, and the next segment would start from it: this run is left out",
        hint=_HINT,
    )
