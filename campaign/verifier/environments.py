"""The digest of what is installed for an interpreter, computed again from its folders: docs/formats.md defines it.

The interpreter itself is not asked, since starting it runs code that is installed there. So it is not known which of
the folders near it are on its import path, nor in what order: all are tried in which there is just what was frozen.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

DOMAIN = b"campaign-environment/1\n"
_METADATA = (".dist-info", ".egg-info")
_LISTED = re.compile(rb"^(.+),sha256=[^,\n]*,[0-9]*\r?$", re.MULTILINE)
_MOST_ORDERED = 5
"""Of more folders than this not every order is tried, but the one in which they were found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder of installed packages.

    Attributes:
        path: The folder.
        distributions: Name and version, digest of RECORD and sizes, of every distribution in it, by name.
        hooks: Name and digest of every path configuration file in it, by name.
    """

    path: str
    distributions: tuple[tuple[str, str, str], ...]
    hooks: tuple[tuple[str, str], ...]

    @property
    def stems(self) -> frozenset[str]:
        """Name and version of every distribution."""
        return frozenset(stem for stem, _, _ in self.distributions)


def read_folder(path: str) -> Folder:
    """Read what is installed in a folder; what cannot be read there counts as it does where a side runs."""
    try:
        names = sorted(os.listdir(path))  # noqa: PTH208 - paths are texts here
    except OSError:
        names = []
    hooks = ((name, hashlib.sha256(_read(f"{path}/{name}")).hexdigest()) for name in names if name.endswith(".pth"))
    found = (_distribution(path, name) for name in names if name.endswith(_METADATA))
    return Folder(path=path, distributions=tuple(found), hooks=tuple(hooks))


def _distribution(folder: str, name: str) -> tuple[str, str, str]:
    record = _read(f"{folder}/{name}/RECORD")
    sizes = ",".join(_size(folder, path) for path in _LISTED.findall(record))
    return name.rpartition(".")[0], hashlib.sha256(record).hexdigest() if record else "", sizes


def _size(folder: str, listed: bytes) -> str:
    spelled = listed[1:-1].replace(b'""', b'"') if listed.startswith(b'"') else listed
    try:
        return str(os.stat(os.fsencode(folder) + b"/" + spelled).st_size)  # noqa: PTH116 - tens of thousands of calls
    except OSError:
        return "-"


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:  # noqa: PTH123 - paths are texts here
            return stream.read()
    except OSError:
        return b""


def digest(version: str, executable_sha256: str, folders: Sequence[Folder]) -> str:
    """Return the digest of an environment.

    Args:
        version: Of the interpreter.
        executable_sha256: Of its executable.
        folders: Those on its import path, in order.
    """
    fields = [version, executable_sha256]
    for folder in folders:
        for distribution in folder.distributions:
            fields += distribution
    hooks = {name: sha256 for folder in folders for name, sha256 in folder.hooks}
    for hook in hooks.items():
        fields += hook
    whole = hashlib.sha256(DOMAIN)
    for field in map(os.fsencode, fields):
        whole.update(b"%d:%s," % (len(field), field))
    return whole.hexdigest()


def paths_with(folders: Sequence[Folder], installed: Collection[str]) -> Iterator[tuple[Folder, ...]]:
    """Yield every import path of some folders that holds just the distributions that were frozen.

    Args:
        folders: All that there are near the interpreter, those of its virtual environment first.
        installed: Name and version of what was frozen.
    """
    wanted = frozenset(installed)
    own = [folder for folder in folders if folder.stems <= wanted]
    for size in range(len(own), -1, -1):
        for chosen in combinations(own, size):
            if frozenset[str]().union(*(folder.stems for folder in chosen)) == wanted:
                yield from permutations(chosen) if size <= _MOST_ORDERED else iter((chosen,))


def added(folders: Sequence[Folder], installed: Collection[str]) -> list[str]:
    """Return what lies beside what was frozen, in the first folder that holds each of those, and was not frozen."""
    holders = {next((folder for folder in folders if stem in folder.stems), None) for stem in installed}
    beside = frozenset[str]().union(*(folder.stems for folder in holders if folder is not None))
    return sorted(beside - frozenset(installed))
