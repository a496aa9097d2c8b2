"""The root command, the lazy table of commands and the one place that turns errors into text and exit codes."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import sys
import traceback
from dataclasses import dataclass
from typing import Any

import click

from campaign import __version__, files
from campaign.cli.output import Output, put, tell
from campaign.errors import CampaignError, ExitCode, InfrastructureError


@dataclass(frozen=True, slots=True)
class Entry:
    """One command: where it is, and what the list of commands says of it."""

    module: str
    """Its ``command`` is the command."""
    summary: str
    """The first sentence of the command's help, here so that the list imports no command; a test compares the two."""


COMMANDS = {
    "init": Entry("campaign.cli.init", "Write a commented campaign.toml and an adapter stub into DIR."),
    "plan": Entry("campaign.cli.plan", "Show slots, allocations, device-hours, disk and power of CONFIG."),
    "schema": Entry("campaign.cli.schema", "Print the JSON Schema of campaign.toml, for editors."),
    "freeze": Entry(
        "campaign.cli.freeze", "Freeze the rules, the programs and the baseline of CONFIG; or, later, a candidate."
    ),
    "submit": Entry("campaign.cli.submit", "Submit what is missing, and only that."),
    "bundle": Entry(
        "campaign.cli.bundle",
        "Take allocations to a machine that the driver does not reach, and bring back what came of them.",
    ),
    "status": Entry("campaign.cli.status", "Show the slots by phase and state, and what stands in the way."),
    "show": Entry(
        "campaign.cli.show",
        "Show one slot: its attempts, endings, node, job, the end of its log and where to look further.",
    ),
    "cancel": Entry(
        "campaign.cli.cancel",
        "End every job of this campaign that has not ended, and give up submissions that never reached a scheduler.",
    ),
    "amend": Entry(
        "campaign.cli.amend",
        "Record that something changed meanwhile, and that attempts before it do not count.",
    ),
    "unlock": Entry(
        "campaign.cli.unlock",
        "Remove the lock that a process left which is gone for good, such as on a host that crashed.",
    ),
    "collect": Entry("campaign.cli.collect", "Check what the attempts left and store it in campaign.sqlite."),
    "report": Entry(
        "campaign.cli.report", "Collect, let the frozen acceptance judge, render the report and print the gate table."
    ),
    "decide": Entry(
        "campaign.cli.decide",
        "Record who made which side the default, or asked for the baseline's retirement, and why; or list that.",
    ),
    "check-deployed": Entry(
        "campaign.cli.check_deployed",
        "Compare a deployed tree, lock file and interpreter with the snapshot that was qualified.",
    ),
    "seal": Entry(
        "campaign.cli.seal",
        "Close a campaign, and print one line to keep elsewhere: whoever has it can show that nothing changed since.",
    ),
    "export": Entry(
        "campaign.cli.export",
        "Write one archive with all that verification needs; the same home gives the same bytes.",
    ),
    "extract": Entry(
        "campaign.cli.extract",
        "Unpack an archive of `campaign export` into a new folder, refusing whatever its own listing does not name.",
    ),
    "selftest-tamper": Entry(
        "campaign.cli.selftest_tamper",
        "Tamper with copies of this campaign in many ways, and show that verify finds each of them.",
    ),
    "prune": Entry(
        "campaign.cli.prune",
        "Remove what can be made again, and record it: compiled code, and what killed writers left.",
    ),
    "verify": Entry(
        "campaign.cli.verify", "Check everything in a campaign home, read-only, and derive its verdict again."
    ),
    "rerun": Entry(
        "campaign.cli.rerun", "Run a completed numerical case again and compare its numbers with the retained ones."
    ),
    "fallback": Entry(
        "campaign.cli.fallback",
        "Try whether each side goes on from a checkpoint of the other, and keep what came of it.",
    ),
    "doctor": Entry("campaign.cli.doctor", "Look at everything around a campaign that can go wrong before it starts."),
}
"""In the order of a campaign's life."""


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is used, so that start-up stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the command names in the order of a campaign's life."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import and return one command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name].module).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """List the commands without importing one."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "CAMPAIGN",
        "show_default": True,
    },
)
@click.version_option(__version__, prog_name="campaign")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Decide, with rules frozen in advance, whether a candidate backend may replace the baseline."""
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def _fail(error: CampaignError, *, as_json: bool) -> int:
    """Say what went wrong, and return the exit code."""
    for line in error.lines():
        tell(line)
    if as_json:
        _put_error(
            {"what": error.what, "where": error.where, "why": error.why, "hint": error.hint}, int(error.exit_code)
        )
    return int(error.exit_code)


def _put_error(fields: dict[str, str], exit_code: int) -> None:
    with contextlib.suppress(CampaignError):  # stdout may be what fails; stderr has it all
        put(json.dumps({"error": fields, "exit_code": exit_code}))


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: The arguments after the program's name; default those of the process.
    """
    given = sys.argv[1:] if arguments is None else arguments
    state: dict[str, bool] = {}
    debug = "--debug" in given or os.environ.get("CAMPAIGN_DEBUG", "") not in ("", "0")
    try:
        result: Any = cli.main(args=given, prog_name="campaign", standalone_mode=False, obj=state)
    except (click.Abort, KeyboardInterrupt, click.ClickException, CampaignError, OSError, SystemExit) as error:
        if debug:
            traceback.print_exc()
        return _exit_code_of(error, state, as_json=state.get("as_json", "--json" in given))
    return int(result) if isinstance(result, int) else int(ExitCode.DONE)


def _exit_code_of(error: BaseException, state: dict[str, bool], *, as_json: bool) -> int:
    """Say what stopped a command, and return the exit code."""
    if isinstance(error, CampaignError):
        return _fail(error, as_json=as_json)
    if isinstance(error, click.ClickException):
        with contextlib.suppress(OSError):
            error.show()
        if as_json:
            _put_error({"what": error.format_message()}, error.exit_code)
        return int(ExitCode.USAGE)
    if isinstance(error, OSError):
        where = "" if error.filename is None else os.fsdecode(error.filename)
        return _fail(files.refusal(error, where, "the operating system refused"), as_json=as_json)
    if isinstance(error, SystemExit):  # what click makes of a pipe that was closed at its other end
        if "as_json" not in state:
            return int(ExitCode.DONE)  # no command had begun: only a help text was to be printed
        return _fail(InfrastructureError("a pipe was closed at its other end"), as_json=as_json)
    tell("interrupted")
    if as_json:
        _put_error({"what": "interrupted"}, int(ExitCode.INTERRUPTED))
    return int(ExitCode.INTERRUPTED)


def run() -> None:
    """Console script."""
    # Of thousands of documents none is garbage while they are used: to look for it every 700 takes a fifth of the time.
    gc.set_threshold(200_000, 50, 50)
    sys.exit(main())


__all__ = ["Output", "cli", "main", "run"]
