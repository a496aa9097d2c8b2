"""Run a package from bytes that came through standard input. A script on its own: it imports nothing of ours.

The request is one JSON object: ``root`` (where the package's folder is said to be), ``package`` (its name), ``files``
(path below the folder to Base64 of the bytes) and ``arguments``. No file of that folder is opened, compiled or cached:
what runs is what was hashed, whatever lies on the disk.
"""

from __future__ import annotations

import base64
import importlib.abc
import importlib.machinery
import json
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from types import CodeType, ModuleType


class MemoryLoader(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds and loads one package, all of it from memory.

    Args:
        package: The package's name.
        root: The folder that its modules name as theirs.
        files: Content by path below the root.
    """

    def __init__(self, package: str, root: str, files: Mapping[str, bytes]) -> None:
        self._package = package
        self._root = root
        self._files = files

    def _path(self, fullname: str) -> str | None:
        """Return the path of a module's source below the root; None if the package has no such module."""
        inner = fullname.split(".")[1:]
        for path in ("/".join([*inner, "__init__.py"]), "/".join(inner) + ".py"):
            if path in self._files:
                return path
        return None

    def _place(self, path: str) -> str:
        """Return the name that a file of the package goes by."""
        return f"{self._root}/{path}"

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return where a module of the package comes from; None for every other module."""
        del path, target
        if fullname.partition(".")[0] != self._package:
            return None
        source = self._path(fullname)
        if source is None:
            raise ModuleNotFoundError(f"the frozen package has no module {fullname!r}", name=fullname)
        spec = importlib.machinery.ModuleSpec(
            fullname, self, origin=self._place(source), is_package=self.is_package(fullname)
        )
        spec.has_location = True  # gives the module its __file__, by which pkgutil.get_data names files
        return spec

    def is_package(self, fullname: str) -> bool:
        """Return whether a module is a package."""
        return (self._path(fullname) or "").endswith("__init__.py")

    def get_source(self, fullname: str) -> str:
        """Return a module's source."""
        path = self._path(fullname)
        if path is None:
            raise ImportError(f"the frozen package has no module {fullname!r}", name=fullname)
        return self._files[path].decode("utf-8")

    def get_code(self, fullname: str) -> CodeType:
        """Return a module compiled from its source, here and now."""
        source = self.get_source(fullname)
        return compile(source, self._place(self._path(fullname) or ""), "exec", dont_inherit=True)

    def get_data(self, path: str) -> bytes:
        """Return a file of the package by the path under which its modules name it.

        Raises:
            OSError: There is none.
        """
        relative = os.path.relpath(path, self._root)
        if relative not in self._files:
            raise FileNotFoundError(2, "no such file in the frozen package", path)
        return self._files[relative]


def main() -> None:
    """Read the request and run the package as ``__main__``."""
    request = json.load(sys.stdin.buffer)
    files = {path: base64.b64decode(text, validate=True) for path, text in request["files"].items()}
    sys.meta_path.insert(0, MemoryLoader(request["package"], request["root"], files))
    sys.argv[1:] = request["arguments"]
    runpy.run_module(request["package"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
