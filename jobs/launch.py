"""Where the harness begins: loads the folder that holds this file as one package, whatever the folder is called.

PYTHON -P -s -X pycache_prefix=DIR launch.py allocation ALLOCATION.json [ALLOCATION.json ...]
PYTHON -P -s -X pycache_prefix=DIR launch.py detached REQUEST.json
PYTHON -P -s -X pycache_prefix=DIR launch.py worker COMMAND_FD ANSWER_FD
PYTHON -P -s -X pycache_prefix=DIR launch.py compare COMMAND_FD ANSWER_FD
PYTHON -P -s -X pycache_prefix=DIR launch.py node
PYTHON -P -s -X pycache_prefix=DIR launch.py reach PROGRAM [ARGUMENT ...] COMMAND_FD ANSWER_FD
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib import machinery
    from types import CodeType, ModuleType

PACKAGE = "campaign_harness"
"""A name that no user's package has: theirs may well be called jobs."""
COMPILED = "compiled"
"""Folder of bytecode in a private copy, made by the parent; see allocation/compiled.py."""
FROM_COPIES = ("worker", "compare")
"""What a parent starts from its private copy of the harness, whose every entry it has checked or made."""


def use_installed_standard_library() -> None:
    """Read the standard library's bytecode from where it was installed, if it was, and write none there.

    It deserves the trust that its sources do, and compiling it anew for each side of each job takes longer than all
    else of a start. To be called before anything is imported that interpreters do not hold within themselves.
    """
    folder = os.path.join(os.path.dirname(os.__file__), "__pycache__")  # noqa: PTH118, PTH120 - pathlib is not loaded yet
    if os.path.isfile(os.path.join(folder, f"contextlib.{sys.implementation.cache_tag}.pyc")):  # noqa: PTH113, PTH118 - as above
        sys.pycache_prefix, sys.dont_write_bytecode = None, True


def load_package(folder: str, pycache_prefix: str | None, *, writes: bool) -> None:
    """Make a folder importable under the harness's own name, with the bytecode of its modules in a place of their own.

    Args:
        folder: The harness.
        pycache_prefix: Where the bytecode of its modules is looked for.
        writes: Whether it may be written there.
    """
    from importlib import machinery, util  # noqa: PLC0415 - not before the standard library's bytecode is chosen

    class Loader(machinery.SourceFileLoader):
        def get_code(self, fullname: str) -> CodeType | None:
            before = sys.pycache_prefix, sys.dont_write_bytecode
            sys.pycache_prefix, sys.dont_write_bytecode = pycache_prefix, not writes
            try:
                return super().get_code(fullname)
            finally:
                sys.pycache_prefix, sys.dont_write_bytecode = before

    class Finder:
        @staticmethod
        def find_spec(
            name: str, path: Sequence[str] | None, _target: ModuleType | None = None, /
        ) -> machinery.ModuleSpec | None:
            if path is None or not name.startswith(f"{PACKAGE}."):
                return None
            return machinery.FileFinder(path[0], (Loader, machinery.SOURCE_SUFFIXES)).find_spec(name)

    sys.meta_path.insert(0, Finder)
    source = os.path.join(folder, "__init__.py")  # noqa: PTH118 - as above
    loader = Loader(PACKAGE, source)
    spec = util.spec_from_file_location(PACKAGE, source, loader=loader, submodule_search_locations=[folder])
    if spec is None:
        raise ImportError(f"{folder} cannot be loaded as a package")
    package = util.module_from_spec(spec)
    sys.modules[PACKAGE] = package
    loader.exec_module(package)


def main(arguments: list[str]) -> int:
    """Run one of the harness's programs; return the exit code."""
    if sys.pycache_prefix is None or not sys.flags.safe_path or not sys.flags.no_user_site:
        # Otherwise bytecode beside the sources, or a module of the working directory, could run instead of them.
        print("launch.py: start it with -P -s -X pycache_prefix=DIR", file=sys.stderr)  # noqa: T201 - no logger yet
        return 2
    given, writes = sys.pycache_prefix, not sys.dont_write_bytecode
    use_installed_standard_library()
    folder = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 - as above
    own = os.path.join(folder, COMPILED)  # noqa: PTH118 - as above
    if arguments[:1] and arguments[0] in FROM_COPIES and os.path.isdir(own):  # noqa: PTH112 - as above
        given, writes = own, False
    load_package(folder, given, writes=writes)
    command = __import__(f"{PACKAGE}.command", fromlist=["main"])
    return int(command.main(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
