"""Where a side's code came from: its snapshot, its interpreter, or somewhere else.

Inside the worker every module that was loaded is looked at; from outside, the shared libraries that a process has
mapped.
"""

from __future__ import annotations

import re
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os.path import (
    abspath,
    exists,
    isabs,
    islink,
    join,
    realpath,
    split,
)  # bound here: a side may replace os.path's own
from types import ModuleType
from typing import Any

MOST_LISTED = 50
"""Most foreign origins that are named; one is enough to end the attempt."""
SYSTEM_LIBRARIES = (
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/local/cuda",
    "/usr/local/nvidia",
    "/opt/cuda",
    "/run/opengl-driver",
    "/.singularity.d/libs",
)
"""Folders of libraries that belong to the machine, not to anybody's source tree."""
LIBRARY = re.compile(r"\.so(\.[0-9.]+)?( \(deleted\))?$")
"""Name of a shared library in /proc/<pid>/maps."""
_FURTHER = ("bin", "share", "etc", "include", "libexec", "ssl", "nvvm", "targets", "conda-meta", "pyvenv.cfg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """The folders of an interpreter. All are real paths but `standard`, which is as the interpreter spells it."""

    standard: tuple[str, ...]
    packages: tuple[str, ...]
    libraries: tuple[str, ...]
    further: tuple[str, ...]
    """What else lies below its prefixes and is read, not loaded."""

    def as_json(self) -> dict[str, list[str]]:
        """Return them as a worker sends them."""
        return {name: list(getattr(self, name)) for name in self.__slots__}


def _unique(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(path for path in paths if path))


def read_roots() -> Roots:
    """Return the folders of this interpreter: of its own environment, and of the one below it."""
    prefixes = _unique((sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix))
    bases = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
    own = sysconfig.get_paths()
    below = sysconfig.get_paths(
        vars={**bases, "installed_base": bases["base"], "installed_platbase": bases["platbase"]}
    )
    archive = f"python{sys.version_info[0]}{sys.version_info[1]}.zip"
    standard = [paths[name] for paths in (own, below) for name in ("stdlib", "platstdlib")]
    standard += [f"{prefix}/{sys.platlibdir}/{archive}" for prefix in prefixes]
    packages = [paths[name] for paths in (own, below) for name in ("purelib", "platlib")]
    packages += site.getsitepackages(list(prefixes))
    libraries = [f"{prefix}/{folder}" for prefix in prefixes for folder in ("lib", "lib64")]
    further = [f"{prefix}/{name}" for prefix in prefixes for name in _FURTHER]
    return Roots(
        standard=_unique(abspath(path) for path in standard),  # noqa: PTH100 - resolve() would follow links
        packages=_unique(realpath(path) for path in packages),
        libraries=_unique(realpath(path) for path in libraries),
        further=_unique(realpath(path) for path in further),
    )


def is_below(path: str, roots: Iterable[str]) -> bool:
    """Return whether a path is one of some folders or lies in one."""
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


class Resolver:
    """Real paths of many files of few folders, each of which is looked at once."""

    def __init__(self) -> None:
        self._folders: dict[str, str] = {}

    def folder(self, path: str) -> str:
        """Return the real path of a folder."""
        if path not in self._folders:
            self._folders[path] = realpath(path)
        return self._folders[path]

    def file(self, path: str) -> str:
        """Return the real path of a file.

        Args:
            path: Absolute, without "." and "..".
        """
        head, name = split(path)
        found = join(self.folder(head), name)  # noqa: PTH118 - a plain function, thousands of calls
        return realpath(found) if islink(found) else found  # noqa: PTH114 - as above


def is_own(path: str, roots: Roots, private: Sequence[str], resolver: Resolver) -> bool:
    """Return whether a file belongs to the side.

    Its real path lies in the snapshot or among the installed packages; a link there that leads to a source tree does
    not count. Of the standard library the spelling counts: systems link single files of it to elsewhere.

    Args:
        path: An absolute path.
        roots: The interpreter's folders.
        private: Real paths of the private folders: snapshot, caches, harness.
        resolver: Knows the folders that were looked at before.
    """
    spelled = abspath(path)  # noqa: PTH100 - resolve() would follow links
    if is_below(resolver.file(spelled), (*private, *roots.packages)):
        return True
    installed = is_below(spelled, roots.packages) or is_below(resolver.folder(split(spelled)[0]), roots.packages)
    return is_below(spelled, roots.standard) and not installed


def _origins(module: ModuleType) -> Iterator[str]:
    attributes: dict[str, Any] = vars(module)
    spec = attributes.get("__spec__")
    found = [attributes.get("__file__"), getattr(spec, "origin", None)]
    for place in (attributes.get("__path__"), getattr(spec, "submodule_search_locations", None)):
        try:
            found += list(place) if place is not None and not isinstance(place, str) else [place]
        except Exception:  # noqa: BLE001, S112 - an object that only looks like a list of folders
            continue
    yield from (path for path in found if isinstance(path, str))


def find_foreign(modules: Mapping[str, Any], roots: Roots, private: Sequence[str]) -> list[str]:
    """Return ``module: path`` of every loaded module that comes from elsewhere.

    Args:
        modules: Loaded modules by name.
        roots: The interpreter's folders.
        private: Real paths of the private folders.
    """
    judged: dict[str, bool] = {}
    found: dict[str, None] = {}
    resolver = Resolver()
    for name, module in list(modules.items()):
        if not isinstance(module, ModuleType):
            continue
        for path in _origins(module):
            # Names such as "built-in", and invented ones of modules without a file, are no paths.
            if not isabs(path) and not exists(path):  # noqa: PTH110, PTH117 - plain functions, thousands of calls
                continue
            if path not in judged:
                judged[path] = is_own(abspath(path), roots, private, resolver)  # noqa: PTH100 - as above
            if not judged[path]:
                found[f"{name}: {path}"] = None
    return list(found)[:MOST_LISTED]


def mapped_paths(maps: str) -> set[str]:
    """Return the files that a process has mapped, as the kernel writes them: one that is gone has a suffix.

    Args:
        maps: Text of /proc/<pid>/maps.
    """
    parts = (line.split(maxsplit=5) for line in maps.splitlines())
    return {fields[5] for fields in parts if len(fields) == 6 and fields[5].startswith("/")}


def find_foreign_libraries(maps: str, allowed: Sequence[str]) -> list[str]:
    """Return the shared libraries that a process has mapped from elsewhere.

    Args:
        maps: Text of /proc/<pid>/maps.
        allowed: Real paths of the folders they may come from, beside the system's.
    """
    libraries = {path.removesuffix(" (deleted)") for path in mapped_paths(maps) if LIBRARY.search(path)}
    return sorted(path for path in libraries if not is_below(path, (*SYSTEM_LIBRARIES, *allowed)))[:MOST_LISTED]
