"""How a freeze becomes visible: everything is put together in ``.freezing`` and moved into place at the end.

``.freezing`` is there from the first byte of a freeze until the ledger has its act. A freeze that was killed therefore
leaves a mark, and the next one removes what it left or completes it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from campaign import files
from campaign.errors import StateError
from campaign.paths import HomePaths


@dataclass(slots=True, kw_only=True)
class Staging:
    """A freeze that is being put together.

    Attributes:
        home: The staging folder, laid out like a home.
        is_publishing: Whether anything of it may have been moved into place.
    """

    home: HomePaths
    is_publishing: bool = False


@contextlib.contextmanager
def staging(paths: HomePaths) -> Iterator[Staging]:
    """Provide an empty staging folder, and remove it when the block ends.

    It stays when the block fails while things are being moved: it is then the mark by which the next freeze knows.

    Args:
        paths: The home, whose ledger the caller has open.

    Raises:
        InfrastructureError: The block, or the folder's making, met an error of the operating system.
    """
    remove_tree(paths.staging)
    staged = Staging(home=HomePaths(paths.staging))
    try:
        paths.staging.mkdir()
        yield staged
    except BaseException as error:
        if not staged.is_publishing:
            remove_tree(paths.staging)
        if isinstance(error, OSError):  # what is read is guarded where it is read: this is about what is written
            raise files.refusal(error, error.filename or paths.staging, "cannot be frozen") from error
        raise
    remove_tree(paths.staging)


def clean_unfinished(paths: HomePaths) -> bool:
    """Remove what a killed first freeze left in a home that has no manifest; return whether there was anything.

    Raises:
        StateError: The folder holds something that no freeze of ours left.
    """
    parts = [part for part in (paths.frozen, paths.protocol) if os.path.lexists(part)]
    if not paths.staging.is_dir():
        if parts:
            raise StateError(
                "the folder cannot become a campaign home",
                where=str(parts[0]),
                why="something of this name is there already, and no freeze left it",
                hint="give --home a new or empty folder",
            )
        return False
    for part in (paths.protocol, paths.frozen, paths.staging):
        remove_tree(part)
    return True


def publish_home(staged: Staging, paths: HomePaths, manifest: bytes) -> None:
    """Move a staged baseline into place, durably: the manifest comes last, and with it the home exists.

    Args:
        staged: A baseline, complete but for its manifest.
        paths: The home.
        manifest: The bytes of its manifest.
    """
    files.sync_file_system(staged.home.root)
    staged.is_publishing = True
    staged.home.frozen.rename(paths.frozen)
    os.link(staged.home.protocol, paths.protocol)
    files.sync_folder(paths.root)
    files.write_new(paths.manifest, manifest, mode=0o444)


def publish_candidate(staged: Staging, paths: HomePaths, candidate: str) -> None:
    """Move a staged candidate into place, durably and in one step.

    Args:
        staged: An unnamed candidate with its manifest.
        paths: The home.
        candidate: The candidate's id.
    """
    files.sync_file_system(staged.home.root)
    staged.is_publishing = True
    paths.candidates.mkdir(exist_ok=True)
    staged.home.unnamed_candidate.root.rename(paths.candidate(candidate).root)
    files.sync_folder(paths.candidates)
    files.sync_folder(paths.frozen)


def remove_tree(path: Path) -> None:
    """Remove a file or a folder with everything in it, read-only folders included; links are not followed.

    Raises:
        InfrastructureError: It cannot be removed.
    """
    if not os.path.lexists(path):
        return
    try:
        if not stat.S_ISDIR(path.lstat().st_mode):
            path.unlink()
            return
        for folder, _folders, _files in os.walk(path):
            Path(folder).chmod(0o700)
        shutil.rmtree(path)
    except OSError as error:
        raise files.refusal(error, path, "cannot be removed") from error
