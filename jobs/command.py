"""The programs of the harness and their exit codes."""

from __future__ import annotations

import importlib
import os
import sys

USAGE = 2


def main(arguments: list[str]) -> int:
    """Run one of the programs that launch.py names; return the exit code."""
    # Imported by need: a worker shall load as little as possible beside the user's code.
    program, given = arguments[:1], arguments[1:]
    if program == ["allocation"] and given:
        return int(importlib.import_module(".allocation.parent", __package__).main(given))
    if program == ["detached"] and len(given) == 1:
        return int(importlib.import_module(".allocation.detached", __package__).main(given[0]))
    if program in (["worker"], ["compare"]) and len(given) == 2:
        module = {"worker": ".worker.worker", "compare": ".tensors.comparer"}[program[0]]
        return int(importlib.import_module(module, __package__).main(int(given[0]), int(given[1])))
    if arguments == ["node"]:
        return int(importlib.import_module(".allocation.outpost", __package__).main())
    if len(arguments) >= 4 and arguments[0] == "reach":
        return reach(arguments[1:-2], int(arguments[-2]), int(arguments[-1]))
    usage = (
        "usage: launch.py allocation FILE... | detached REQUEST | worker COMMAND_FD ANSWER_FD"
        " | compare COMMAND_FD ANSWER_FD | node | reach PROGRAM... COMMAND_FD ANSWER_FD"
    )
    print(usage, file=sys.stderr)  # noqa: T201 - usage
    return USAGE


def reach(program: list[str], command_fd: int, answer_fd: int) -> int:
    """Become a program that has commands as its input and gives answers as its output.

    Args:
        program: Its command line.
        command_fd: Where commands come from.
        answer_fd: Where answers go.

    Returns:
        An exit code, where there is no such program.
    """
    os.dup2(command_fd, 0)
    os.dup2(answer_fd, 1)
    try:
        os.execvp(program[0], program)  # noqa: S606 - the harness's own command
    except OSError as error:
        print(f"{program[0]}: {error}", file=sys.stderr)  # noqa: T201 - its log
    return USAGE
