"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from campaign.cli.output import Output
from campaign.errors import StateError
from campaign.paths import HomePaths


def find_home(given: Path | None, start: Path) -> HomePaths:
    """Find the campaign home.

    Args:
        given: What ``--home`` or ``CAMPAIGN_HOME`` names, if anything.
        start: The folder from which to look upward otherwise.

    Raises:
        StateError: There is no home there.
    """
    if given is not None:
        paths = HomePaths(given.resolve())
        if not paths.manifest.is_file():
            raise StateError("not a campaign home", where=str(given), hint="campaign freeze CONFIG --home DIR")
        return paths
    for folder in [start, *start.parents]:
        paths = HomePaths(folder)
        if paths.manifest.is_file() and paths.protocol.is_file():
            return paths
    raise StateError(
        "no campaign home found",
        where=str(start),
        why="neither this folder nor one above it holds manifest.json and protocol.json",
        hint="give --home DIR, set CAMPAIGN_HOME, or create one: campaign freeze CONFIG --home DIR",
    )


def home_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--home``; the command receives ``home: HomePaths``."""

    def resolve(ctx: click.Context, _parameter: click.Parameter, value: Path | None) -> HomePaths | None:
        return None if ctx.resilient_parsing else find_home(value, Path.cwd())

    option = click.option(
        "--home",
        type=click.Path(path_type=Path),
        envvar="CAMPAIGN_HOME",
        show_envvar=True,
        callback=resolve,
        help="Campaign home; default: found upward from the working directory.",
    )
    return option(function)


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--json``; the command receives ``output: Output``."""

    def build(ctx: click.Context, _parameter: click.Parameter, value: bool) -> Output:
        ctx.ensure_object(dict)["as_json"] = value  # for the edge that prints errors: a variable may have set it
        return Output(as_json=value)

    return click.option(
        "--json", "output", is_flag=True, callback=build, help="Print one JSON value on stdout and nothing else."
    )(function)
