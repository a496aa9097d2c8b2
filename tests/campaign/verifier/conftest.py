from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lifelike import all_families

Stamp = tuple[int, ...]


class Workbench:
    """A copy of a home that a test damages and that is mended after it: copying hundreds of files each time is slow."""

    def __init__(self, whole: Path, folder: Path) -> None:
        self.whole, self.folder, self.root = whole, folder, folder / "home"
        shutil.copytree(whole, self.root, ignore=shutil.ignore_patterns("acceptance"))
        self.stamps = dict(self._look())

    def _look(self) -> Iterator[tuple[str, Stamp]]:
        for folder, _, names in os.walk(self.root):
            yield os.path.relpath(folder, self.root), (0,)
            for name in names:
                path = os.path.join(folder, name)  # noqa: PTH118 - thousands of them
                found = os.lstat(path)
                yield os.path.relpath(path, self.root), stamp_of(found)

    def mend(self) -> None:
        """Make the copy what it was."""
        for path in self.folder.iterdir():
            if path != self.root:
                remove(path)
        found = dict(self._look())
        for name in sorted(set(found) - set(self.stamps)):
            remove(self.root / name)
        for name, stamp in list(self.stamps.items()):
            path = self.root / name
            if found.get(name) == stamp and not path.is_symlink():
                continue
            if stamp == (0,):
                if path.is_symlink():
                    remove(path)
                path.mkdir(exist_ok=True)
            else:
                remove(path)
                shutil.copyfile(self.whole / name, path)
                self.stamps[name] = stamp_of(path.lstat())


def stamp_of(found: os.stat_result) -> Stamp:
    """Return what differs once a file was written to: the time of an inode's last change cannot be set back."""
    return found.st_ino, found.st_size, found.st_ctime_ns


def remove(path: Path) -> None:
    """Remove whatever has a name."""
    if not os.path.lexists(path):
        return
    if stat.S_ISDIR(path.lstat().st_mode):
        shutil.rmtree(path)
    else:
        path.unlink()


@pytest.fixture(scope="session")
def whole_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small home of every family in which nothing is wrong; never written to."""
    root = tmp_path_factory.mktemp("whole") / "home"
    all_families(root)
    return root


@pytest.fixture(scope="session")
def workbench(whole_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    """Where `home` lies."""
    return Workbench(whole_home, tmp_path_factory.mktemp("bench"))


@pytest.fixture
def home(workbench: Workbench) -> Iterator[Path]:
    """A copy of it, to be damaged; without the acceptance program, at which these checks do not look."""
    yield workbench.root
    workbench.mend()
