"""Where the verifier begins that travels with a campaign: loads the sources beside this file, and nothing else there.

python3 -P -s HOME/frozen/verifier/launch.py [verify] HOME [OPTION ...]
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        # Otherwise the modules beside this file would be taken for those of the standard library that have their names.
        del sys.path[0]
    sys.dont_write_bytecode = True

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
from collections.abc import Sequence
from types import CodeType, ModuleType

PACKAGE = "campaign_verifier"
"""A name that nothing else has."""


class SourceLoader(importlib.machinery.SourceFileLoader):
    """Compiles a module from its source each time: a compiled file beside it is never looked at."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the module's code."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


class SourceFinder(importlib.abc.MetaPathFinder):
    """Finds the package's modules as ``NAME.py`` in one folder: no folders, compiled files or libraries of that name.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return where a module of the package comes from; None for every other module."""
        del path, target
        package, _, module = fullname.partition(".")
        if package != PACKAGE:
            return None
        file = f"{self._folder}/{module or '__init__'}.py"
        if not os.path.isfile(file):  # noqa: PTH113 - pathlib is not needed to begin
            raise ModuleNotFoundError(f"the verifier has no module {fullname!r}", name=fullname)
        below = None if module else [self._folder]
        loader = SourceLoader(fullname, file)
        return importlib.util.spec_from_file_location(fullname, file, loader=loader, submodule_search_locations=below)


def main(arguments: list[str]) -> int:
    """Load the verifier and run it; return the exit code."""
    sys.meta_path.insert(0, SourceFinder(os.path.dirname(os.path.realpath(__file__))))  # noqa: PTH120 - as above
    return int(importlib.import_module(f"{PACKAGE}.command").main(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
