"""Options that several commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from campaign import files
from campaign.cli.output import Output
from campaign.errors import StateError
from campaign.paths import HomePaths


def working_folder() -> Path:
    """Return the working directory.

    Raises:
        StateError: It was deleted.
    """
    try:
        return Path.cwd()
    except OSError as error:
        raise StateError(
            f"the working directory cannot be used: {error.strerror}",
            why="it was deleted, or may not be entered",
            hint="cd to another folder; with --home DIR, give DIR as an absolute path",
        ) from error


def absolute(path: Path) -> Path:
    """Return a path resolved; the working directory is needed only for a relative one.

    Raises:
        StateError: It is relative, and the working directory was deleted; or it cannot be resolved.
    """
    start = path if path.is_absolute() else working_folder() / path
    try:
        return start.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: a link that leads to itself
        raise StateError(f"cannot be resolved: {error}", where=str(path)) from error


def find_home(given: Path | None) -> HomePaths:
    """Find the campaign home.

    Args:
        given: What ``--home`` or ``CAMPAIGN_HOME`` names, if anything; otherwise the working directory and the
            folders above it are looked at.

    Raises:
        StateError: There is no home there.
        InfrastructureError: The folder may not be looked into.
    """
    if given is not None:
        paths = HomePaths(absolute(given))
        if not _is_file(paths.manifest):
            raise StateError("not a campaign home", where=str(given), hint=_what_to_try(paths.root))
        return paths
    start = working_folder()
    for folder in [start, *start.parents]:
        paths = HomePaths(folder)
        if _is_file(paths.manifest) and _is_file(paths.protocol):
            return paths
    raise StateError(
        "no campaign home found",
        where=str(start),
        why="neither this folder nor one above it holds manifest.json and protocol.json",
        hint="give --home DIR, set CAMPAIGN_HOME, or create one: campaign freeze CONFIG --home DIR",
    )


def _what_to_try(place: Path) -> str:
    """Return what to try where no home is: who has an archive, or has unpacked one, is near it."""
    from campaign.verifier.archive import HOME  # noqa: PLC0415 - only an error needs it

    if _is_file(place):
        return f"an archive has to be unpacked first: campaign extract {place} FOLDER"
    unpacked = place / HOME
    if _is_file(HomePaths(unpacked).manifest):
        return f"what was unpacked here holds one: --home {unpacked}"
    return "campaign freeze CONFIG --home DIR"


def within(archive: Path, where: str) -> str:
    """Return the place of a finding about an archive, which is the archive itself or something in it."""
    return str(archive) if where == archive.name else f"{archive}: {where}"


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        raise files.refusal(error, path, "cannot be looked at") from error


def require_yes(doing: str, question: str, *, hint: str = "add --yes") -> None:
    """Ask whoever is at the terminal, and end the command unless the answer is yes.

    Args:
        doing: What needs a yes, for messages.
        question: What is asked.
        hint: What to try where nobody can be asked.

    Raises:
        StateError: There is no terminal.
    """
    if not sys.stdin.isatty():
        raise StateError(f"{doing} needs a yes", why="standard input is not a terminal", hint=hint)
    click.confirm(question, abort=True, err=True)


def home_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--home``; the command receives ``home: HomePaths``."""

    def resolve(ctx: click.Context, _parameter: click.Parameter, value: Path | None) -> HomePaths | None:
        return None if ctx.resilient_parsing else find_home(value)

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


def slice_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--slice``; the command receives ``chosen: str | None``."""
    option = click.option(
        "--slice", "chosen", metavar="NAME", help="The part of CONFIG that is meant, one of its [slices]; default: all."
    )
    return option(function)
