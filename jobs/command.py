"""The three programs of the harness and their exit codes."""

from __future__ import annotations

import importlib
import sys

USAGE = 2


def main(arguments: list[str]) -> int:
    """Run ``allocation FILE...``, ``worker`` or ``compare COMMAND_FD ANSWER_FD``; return the exit code."""
    # Imported by need: a worker shall load as little as possible beside the user's code.
    if len(arguments) >= 2 and arguments[0] == "allocation":
        return int(importlib.import_module(".allocation.parent", __package__).main(arguments[1:]))
    if len(arguments) == 3 and arguments[0] == "worker":
        return int(importlib.import_module(".worker.worker", __package__).main(int(arguments[1]), int(arguments[2])))
    if len(arguments) == 3 and arguments[0] == "compare":
        return int(importlib.import_module(".tensors.comparer", __package__).main(int(arguments[1]), int(arguments[2])))
    usage = "usage: launch.py allocation FILE... | worker COMMAND_FD ANSWER_FD | compare COMMAND_FD ANSWER_FD"
    print(usage, file=sys.stderr)  # noqa: T201 - usage
    return USAGE
