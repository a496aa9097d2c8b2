"""Pruning: letting go of what can be made again, or was never evidence, and recording it.

Attempts, checkpoints, inputs and everything frozen stay for ever. What goes is compiled code, what a killed writer left
under a temporary name where nobody writes any more, and, if asked for, reports that can be rendered again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from campaign import files
from campaign.collection.sealed import is_leftover
from campaign.documents import Document, Entry, Natural
from campaign.errors import EvidenceError, StateError
from campaign.freezing.staging import remove_tree
from campaign.paths import EvaluationPaths, HomePaths
from campaign.record.ledger import Ledger, last_reports, require_open
from campaign.watching.observation import View
from campaign.watching.state import AttemptState

REFUSAL = "nothing is removed from it"


class Pruned(Document):
    """Data of ``pruned``."""

    what: tuple[str, ...]
    """Paths relative to the home: files, and folders with all that is in them."""
    files: Natural
    bytes: Natural
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prunable:
    """A file, or a folder with all that is in it, that can go."""

    path: Path
    why: str
    num_files: int
    num_bytes: int


def find_prunable(paths: HomePaths, view: View, entries: Sequence[Entry], *, reports: bool) -> list[Prunable]:
    """Return what can go, by path.

    Args:
        paths: The home.
        view: What is known of all attempts.
        entries: The ledger.
        reports: Whether reports that can be rendered again are asked for.
    """
    found = dict(_bytecode(paths, view))
    found |= dict(_left_by_attempts(paths, view))
    found |= dict(_left_by_reports(paths))
    if os.path.lexists(paths.incoming):
        found[paths.incoming] = "left by an ingestion that was killed"
    if reports:
        found |= dict(_reports(paths, entries))
    return [_measure(path, why) for path, why in sorted(found.items())]


def _ended_allocations(view: View) -> set[str]:
    """Return the allocations all of whose attempts have surely ended."""
    still = {one.allocation for one in view.attempts.values() if one.state is not AttemptState.ENDED}
    return set(view.history.allocations) - still


def _bytecode(paths: HomePaths, view: View) -> Iterator[tuple[Path, str]]:
    ended = _ended_allocations(view)
    for key, submission in view.history.submissions.items():
        folder = paths.submission(key).bytecode
        if folder.is_dir() and all(one.allocation in ended for one in submission.intent.allocations):
            yield folder, "compiled code of jobs that have ended"


def _left_by_attempts(paths: HomePaths, view: View) -> Iterator[tuple[Path, str]]:
    """Yield what killed jobs left; a complete checkpoint is not looked into, since its names are the side's own."""
    why = "left by a writer that was killed"
    for one in view.attempts.values():
        if one.state is AttemptState.ENDED:
            folder = paths.attempt(one.slot, one.attempt, one.segment)
            yield from ((path, why) for root in (folder.root, folder.checkpoints) for path in _leftovers(root))
    for name in _ended_allocations(view):
        yield from ((path, why) for path in _leftovers(paths.allocation(name).root))


def _left_by_reports(paths: HomePaths) -> Iterator[tuple[Path, str]]:
    """Yield what killed reports left: whoever holds the ledger's lock is the only one who writes there."""
    for folder in _children(paths.evaluations):
        evaluation = paths.evaluation(folder.name)
        for root in (evaluation.root, evaluation.evidence, evaluation.report):
            yield from ((path, "left by a report that was killed") for path in _leftovers(root))


def _children(folder: Path) -> list[Path]:
    if folder.is_symlink() or not folder.is_dir():
        return []
    return sorted(folder.iterdir())


def _leftovers(folder: Path) -> list[Path]:
    return [path for path in _children(folder) if is_leftover(path.name)]


def _reports(paths: HomePaths, entries: Sequence[Entry]) -> Iterator[tuple[Path, str]]:
    """Yield the reports that the next ``campaign report`` would make again: verdict and evidence are there."""
    for candidate, last in last_reports(entries).items():
        evaluation = paths.evaluation(candidate)
        if evaluation.report.is_dir() and not evaluation.report.is_symlink() and _is_reported(evaluation, last.data):
            yield evaluation.report, f"campaign report --candidate {candidate} makes it again"


def _is_reported(evaluation: EvaluationPaths, reported: dict[str, object]) -> bool:
    try:
        found = files.sha256_regular(evaluation.verdict)
        files.read_regular(evaluation.identity)
    except EvidenceError:
        return False
    names = reported.get("files", {})
    there = {path.name for path in _children(evaluation.report)}
    is_own = isinstance(names, dict) and all(name in names or is_leftover(name) for name in there)
    return found == reported["verdict_sha256"] and is_own


def _measure(path: Path, why: str) -> Prunable:
    sizes = list(_sizes(path))
    return Prunable(path=path, why=why, num_files=len(sizes), num_bytes=sum(sizes))


def _sizes(path: Path) -> Iterator[int]:
    status = path.lstat()
    if stat.S_ISDIR(status.st_mode):
        with os.scandir(path) as found:
            children = sorted(child.name for child in found)
        for name in children:
            yield from _sizes(path / name)
    else:
        yield status.st_size


def prune(paths: HomePaths, ledger: Ledger, shown: Sequence[Prunable], now: Sequence[Prunable], reason: str) -> Pruned:
    """Record what goes, and remove it.

    Args:
        paths: The home.
        ledger: Its ledger, open for writing.
        shown: What a person agreed to.
        now: What there is to remove, found while the ledger is open.
        reason: Why.

    Raises:
        StateError: The campaign is closed, or there is something else now.
    """
    require_open(paths, ledger.entries, REFUSAL)
    if list(shown) != list(now):
        raise StateError("the campaign has changed since this was shown", hint="campaign prune")
    act = Pruned(
        what=tuple(one.path.relative_to(paths.root).as_posix() for one in now),
        files=sum(one.num_files for one in now),
        bytes=sum(one.num_bytes for one in now),
        reason=reason,
    )
    # First the record: should the removal be cut off, nothing is missing without a reason.
    ledger.append("pruned", act.to_json())
    for one in now:
        remove_tree(one.path)
    return act
