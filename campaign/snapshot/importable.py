"""Code that git ignores, and that an import could find all the same: a build product that is missed, or a leftover."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

_CODE = (".py", ".so")
_MOST_LOOKED_AT = 20_000
"""Most files of ignored folders that are looked at: this is for a note."""


def find_importable(source: Path, ignored: Iterable[str], python_path: Iterable[str]) -> list[str]:
    """Return the ignored files that a statement `import` could name, relative to the source.

    Args:
        source: The source tree.
        ignored: What git ignores: files, and folders with a final slash, relative to the source.
        python_path: Folders of the source that are on the import path.
    """
    folders = [PurePosixPath(folder) for folder in python_path]
    found = [path for path in _files(source, ignored) if any(_is_module(path, folder) for folder in folders)]
    return sorted(map(str, found))


def _files(source: Path, ignored: Iterable[str]) -> Iterator[PurePosixPath]:
    left = _MOST_LOOKED_AT
    for name in ignored:
        if not name.endswith("/"):
            yield PurePosixPath(name)
            continue
        for folder, folders, names in os.walk(source / name):
            # No import statement leads into a folder that is called otherwise.
            folders[:] = [below for below in folders if below.isidentifier()]
            left -= len(names)
            if left < 0:
                return
            relative = PurePosixPath(Path(folder).relative_to(source).as_posix())
            yield from (relative / one for one in names)


def _is_module(path: PurePosixPath, folder: PurePosixPath) -> bool:
    if path.suffix not in _CODE or not path.is_relative_to(folder):
        return False
    *packages, name = path.relative_to(folder).parts
    return all(package.isidentifier() for package in packages) and name.partition(".")[0].isidentifier()
