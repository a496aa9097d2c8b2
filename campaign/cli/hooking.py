"""The option ``--hook`` of the commands that watch."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import click

from campaign.cli.output import Output
from campaign.submission.desk import Desk
from campaign.submission.hooks import VARIABLE, Happening, Hook, events_of, find_told, parse_command
from campaign.watching.gates import gates_out_of_reach
from campaign.watching.observation import View
from campaign.watching.reach import read_obstacles


def hook_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--hook``; the command receives ``hook: str``."""
    return click.option(
        "--hook",
        metavar="COMMAND",
        default="",
        envvar=VARIABLE,
        show_envvar=True,
        help="While waiting, run this once for every gate missed, slot failed, and at the end; it gets JSON on stdin.",
    )(function)


def open_hook(given: str, desk: Desk, candidate: str, output: Output, *, watches: bool) -> Hook | None:
    """Return the hook that was asked for; None if there is none, or nothing is watched.

    Args:
        given: The command line; empty for none.
        desk: What watches.
        candidate: Id of the candidate; empty for none.
        output: Where it is said that a hook failed.
        watches: Whether the command waits at all.

    Raises:
        StateError: It is no command.
        click.UsageError: It was given to a command that does not wait.
    """
    if given and not watches:
        context = click.get_current_context()
        if context.get_parameter_source("hook") is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError("--hook is for a command that waits: add --wait, or --watch")
    if not given or not watches:
        return None
    return Hook(
        command=parse_command(given),
        campaign=desk.frozen.protocol.campaign,
        home=str(desk.paths.root),
        candidate=candidate,
        manifest_sha256=desk.frozen.manifest_sha256,
        told=find_told(os.environ),
        clock=desk.clock,
        say=output.note,
    )


def happened(desk: Desk, candidate: str, view: View) -> list[Happening]:
    """Return what a hook is told of a view."""
    out_of_reach = gates_out_of_reach(desk.frozen.protocol, view.slots)
    obstacles = read_obstacles(desk.paths, candidate, view.history, view.slots, out_of_reach)
    return events_of(candidate, view.slots, obstacles, amendment=max(view.history.amendments, default=0))
