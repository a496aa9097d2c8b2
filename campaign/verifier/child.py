"""Run a package from bytes that came through standard input. A script on its own: it imports nothing of ours.

The request is one JSON object: ``root`` (where the package's folder is said to be), ``package`` (its name), ``files``
(path below the folder to Base64 of the bytes) and ``arguments``. No file of that folder is opened, compiled or cached:
what runs is what was hashed, whatever lies on the disk.

With ``runs``, a list of lists of arguments, in the place of ``arguments`` the package runs once for each, every time
from new modules, and the answer is one JSON list: of each run its ``exit`` and Base64 of its ``stdout`` and ``stderr``.

``limits`` names limits of the process by their names in the module ``resource``: they hold before anything of the
package is compiled.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import importlib.abc
import importlib.machinery
import io
import json
import os
import resource
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
        self._compiled: dict[str, CodeType] = {}

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
        """Return a module compiled from its source, here and once."""
        if fullname not in self._compiled:
            place = self._place(self._path(fullname) or "")
            self._compiled[fullname] = compile(self.get_source(fullname), place, "exec", dont_inherit=True)
        return self._compiled[fullname]

    def get_data(self, path: str) -> bytes:
        """Return a file of the package by the path under which its modules name it.

        Raises:
            OSError: There is none.
        """
        relative = os.path.relpath(path, self._root)
        if relative not in self._files:
            raise FileNotFoundError(2, "no such file in the frozen package", path)
        return self._files[relative]


def run(package: str, arguments: Sequence[str]) -> None:
    """Run the package as ``__main__``; SystemExit and whatever else it raises pass through."""
    sys.argv[1:] = arguments
    runpy.run_module(package, run_name="__main__", alter_sys=True)


def run_apart(package: str, arguments: Sequence[str]) -> dict[str, object]:
    """Run the package from new modules, and return how it ended and what it wrote."""
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]
    written = {"stdout": io.BytesIO(), "stderr": io.BytesIO()}
    out, err = (io.TextIOWrapper(stream, encoding="utf-8", write_through=True) for stream in written.values())
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            run(package, arguments)
        except SystemExit as end:
            code = exit_code(end)
        except Exception as error:  # noqa: BLE001 - whatever a run raises is its own end, and not that of the others
            sys.excepthook(type(error), error, error.__traceback__)
            code = 1
    return {"exit": code, **{name: base64.b64encode(stream.getvalue()).decode() for name, stream in written.items()}}


def exit_code(end: SystemExit) -> int:
    """Return the status that an interpreter would end with; a text goes to the standard error."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    sys.stderr.write(f"{end.code}\n")
    return 1


def limit(limits: Mapping[str, int]) -> None:
    """Set limits of this process, each as low as is asked or lower."""
    for name, most in limits.items():
        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        own = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (own, own))


def main() -> None:
    """Read the request and run the package as it asks."""
    request = json.load(sys.stdin.buffer)
    limit(request.get("limits", {}))
    files = {path: base64.b64decode(text, validate=True) for path, text in request["files"].items()}
    package = request["package"]
    sys.meta_path.insert(0, MemoryLoader(package, request["root"], files))
    if "runs" not in request:
        # Of a million rows none is garbage while they are used: to look for it every 700 takes a part of the time.
        gc.set_threshold(200_000, 50, 50)
        run(package, request["arguments"])
        return
    gc.disable()  # of many short runs nothing is worth collecting
    answers = [run_apart(package, arguments) for arguments in request["runs"]]
    sys.stdout.write(json.dumps(answers) + "\n")


if __name__ == "__main__":
    main()
