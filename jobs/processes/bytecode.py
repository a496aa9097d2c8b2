"""Whether the bytecode that an interpreter's packages were installed with is used.

A fresh private folder of bytecode costs seconds for each side of each job: torch alone is thousands of modules. The
private copies of snapshot and harness hold no bytecode, so none that was planted can run from there; that of the
interpreter's own packages deserves exactly the trust that their sources do.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable

_LEAST_SHARE = 0.9
"""An installer compiles all packages or none; the rest are packages with sources in no folder of their own."""


def _is_compiled(folder: str) -> bool | None:
    """Return whether a package has bytecode beside its source; None if the folder is no package."""
    source = os.path.join(folder, "__init__.py")  # noqa: PTH118 - counted in milliseconds of every start
    if not os.path.isfile(source):  # noqa: PTH113 - as above
        return None
    return os.path.isfile(importlib.util.cache_from_source(source))  # noqa: PTH113 - as above


def are_packages_compiled(folders: Iterable[str]) -> bool:
    """Return whether the packages in an interpreter's folders were installed with bytecode.

    Where there are none, the standard library alone tells.

    Args:
        folders: The folders of installed packages.
    """
    found: list[bool] = []
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                states = [_is_compiled(entry.path) for entry in entries if entry.is_dir()]
        except OSError:
            continue
        found += [state for state in states if state is not None]
    if not found:
        return os.path.isfile(importlib.util.cache_from_source(os.__file__))  # noqa: PTH113 - as above
    return sum(found) >= _LEAST_SHARE * len(found)


def use_installed_bytecode(folders: Iterable[str]) -> bool:
    """Read bytecode from where it was installed, if it was, and write none; return whether it is so.

    Else it goes to the private folder that the interpreter was started with.

    Args:
        folders: The folders of installed packages.
    """
    folders = list(folders)
    sys.pycache_prefix, sys.dont_write_bytecode = None, True
    if are_packages_compiled(folders):
        return True
    sys.pycache_prefix, sys.dont_write_bytecode = _given_prefix(), False
    return False


def _given_prefix() -> str | None:
    given = sys._xoptions.get("pycache_prefix")  # noqa: SLF001 - the documented place of ``-X``
    return given if isinstance(given, str) else os.environ.get("PYTHONPYCACHEPREFIX")
