"""Where the harness begins: loads the folder that holds this file as one package, whatever the folder is called.

PYTHON -P -s -X pycache_prefix=DIR launch.py allocation ALLOCATION.json [ALLOCATION.json ...]
PYTHON -P -s -X pycache_prefix=DIR launch.py worker COMMAND_FD ANSWER_FD
PYTHON -P -s -X pycache_prefix=DIR launch.py compare COMMAND_FD ANSWER_FD
PYTHON -P -s -X pycache_prefix=DIR launch.py node
PYTHON -P -s -X pycache_prefix=DIR launch.py reach PROGRAM [ARGUMENT ...] COMMAND_FD ANSWER_FD
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

PACKAGE = "campaign_harness"
"""A name that no user's package has: theirs may well be called jobs."""


def load_package() -> None:
    """Make the folder of this file importable under the harness's own name."""
    folder = Path(__file__).resolve().parent
    spec = importlib.util.spec_from_file_location(
        PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder} cannot be loaded as a package")
    package = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = package
    spec.loader.exec_module(package)


def main(arguments: list[str]) -> int:
    """Run one of the harness's programs; return the exit code."""
    if sys.pycache_prefix is None or not sys.flags.safe_path or not sys.flags.no_user_site:
        # Otherwise bytecode beside the sources, or a module of the working directory, could run instead of them.
        print("launch.py: start it with -P -s -X pycache_prefix=DIR", file=sys.stderr)  # noqa: T201 - no logger yet
        return 2
    load_package()
    return int(importlib.import_module(f"{PACKAGE}.command").main(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
