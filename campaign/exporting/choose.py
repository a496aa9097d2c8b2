"""What of a home goes into an archive, and what is withheld as a digest."""

from __future__ import annotations

import enum
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from campaign import files
from campaign.collection.sealed import is_leftover
from campaign.errors import EvidenceError
from campaign.paths import TENSORS, HomePaths


class Withheld(enum.StrEnum):
    """What may be withheld as a whole."""

    SOURCE = "source"
    """The sources of both sides, and their patches."""
    CHECKPOINTS = "checkpoints"
    """What sides saved during trainings."""
    INPUTS = "inputs"
    """Canonical states and batches of numerical cases."""
    TENSORS = "tensors"
    """Comparisons of numerical cases tensor by tensor, which no gate reads."""
    LOGS = "logs"
    """What sides and the harness printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What somebody asked to withhold."""

    kinds: frozenset[Withheld] = frozenset()
    above_bytes: int | None = None
    """Withhold whatever of these kinds is larger than this; None for nothing by size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file of a home."""

    path: str
    """Relative to the home."""
    num_bytes: int
    sha256: str
    is_executable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What an archive holds, by path relative to the home."""

    files: tuple[File, ...]
    withheld: tuple[File, ...]
    folders: tuple[str, ...]
    """Those that would not be there otherwise: with nothing in them."""
    links: tuple[tuple[str, str], ...]
    """Path and target."""


def choose(paths: HomePaths, choice: Choice) -> Contents:
    """List a home, hash what is in it, and divide it into what an archive holds and what it withholds.

    Raises:
        EvidenceError: Something is neither file, folder nor link, or cannot be read.
    """
    held: list[File] = []
    withheld: list[File] = []
    folders: list[str] = []
    links: list[tuple[str, str]] = []
    kind_of = _kinds(paths)
    for path, entry in _walk(paths):
        whole = paths.root / path
        if stat.S_ISLNK(entry.st_mode):
            links.append((path, os.readlink(whole)))  # noqa: PTH115 - the very bytes: Path would tidy them
        elif stat.S_ISDIR(entry.st_mode):
            folders.append(path)
        elif stat.S_ISREG(entry.st_mode):
            file = File(
                path=path,
                num_bytes=entry.st_size,
                sha256=files.sha256_regular(whole),
                is_executable=bool(entry.st_mode & stat.S_IXUSR),
            )
            (withheld if _is_withheld(kind_of(whole), file, choice) else held).append(file)
        else:
            raise EvidenceError("neither a file nor a folder nor a link", where=str(whole))
    return Contents(files=tuple(held), withheld=tuple(withheld), folders=tuple(folders), links=tuple(links))


def _walk(paths: HomePaths) -> Iterator[tuple[str, os.stat_result]]:
    """Yield files, links and empty folders in the order of their names, but what belongs to this machine alone."""
    own = {paths.transport, paths.lock, paths.staging, paths.rebuilt_database}
    own |= {paths.database.with_name(paths.database.name + end) for end in ("-journal", "-wal", "-shm")}
    pending = [paths.root]
    while pending:
        folder = pending.pop()
        with os.scandir(folder) as listed:
            entries = sorted(listed, key=lambda item: os.fsencode(item.name))
        is_source = Path(folder).is_relative_to(paths.frozen)  # where a file may have any name
        kept = [one for one in entries if Path(one.path) not in own and (is_source or not is_leftover(one.name))]
        if not kept and folder != paths.root:
            yield os.path.relpath(folder, paths.root), folder.lstat()
        for entry in kept:
            if entry.is_dir(follow_symlinks=False):
                pending.append(Path(entry.path))
            else:
                yield os.path.relpath(entry.path, paths.root), entry.stat(follow_symlinks=False)


def _is_withheld(kind: Withheld | None, file: File, choice: Choice) -> bool:
    if kind is None:
        return False
    return kind in choice.kinds or (choice.above_bytes is not None and file.num_bytes > choice.above_bytes)


def _kinds(paths: HomePaths) -> Callable[[Path], Withheld | None]:
    """Return what says as what a file may be withheld: None for what no verification can do without."""
    sides = [paths.baseline, *(paths.candidate(one.name) for one in paths.candidates.glob("*"))]

    def kind_of(whole: Path) -> Withheld | None:
        if whole.is_relative_to(paths.frozen):
            is_source = any(whole == side.patch or whole.is_relative_to(side.tree) for side in sides)
            return Withheld.SOURCE if is_source else None
        if whole.is_relative_to(paths.inputs):
            return Withheld.INPUTS if whole.suffix == ".safetensors" else None
        if whole.is_relative_to(paths.attempts) and "checkpoints" in whole.relative_to(paths.attempts).parts:
            return Withheld.CHECKPOINTS if "files" in whole.relative_to(paths.attempts).parts else None
        if whole.is_relative_to(paths.attempts) and whole.name == TENSORS:
            return Withheld.TENSORS
        return Withheld.LOGS if whole.suffix == ".log" else None

    return kind_of
