"""``campaign cancel``."""

from __future__ import annotations

import time
from typing import get_args

import click

from campaign.cli.options import home_option, json_option, require_yes
from campaign.cli.output import Output
from campaign.documents import Phase
from campaign.frozen import read_frozen
from campaign.paths import HomePaths
from campaign.record.amendments import require_text
from campaign.submission.choose import find_candidate
from campaign.submission.desk import Desk, open_desk
from campaign.submission.ending import ALL, Cancellation, Doomed, Selection, cancel, find_doomed


@click.command()
@click.option("--reason", default="no reason given", help="Why; kept in the ledger.")
@click.option("--phase", type=click.Choice(get_args(Phase)), help="Only slots of this phase; default: all.")
@click.option("--candidate", metavar="ID", default="", show_default="all", help="Only slots of this candidate.")
@click.option("--only", metavar="GLOB", default="", help="Only slots whose names match.")
@click.option("--yes", is_flag=True, allow_from_autoenv=False, help="Do not ask.")
@home_option
@json_option
def command(  # noqa: PLR0917 - click passes every option by name
    home: HomePaths, output: Output, reason: str, phase: Phase | None, candidate: str, only: str, yes: bool
) -> None:
    """End every job of this campaign that has not ended, and give up submissions that never reached a scheduler.

    What is sealed stays. Attempts that are cut off end as `cancelled`, which allows another attempt. With --phase,
    --candidate or --only it ends the jobs that hold such slots, each job as a whole. Giving the command again changes
    nothing, but asks jobs that have not ended once more.
    """
    said_why = require_text(reason, "--reason")
    desk = open_desk(home, read_frozen(home), time.time)
    selection = Selection(candidate=_find(desk, candidate), phase=phase, only=only)
    doomed = find_doomed(desk.view(""), desk.frozen.slots(), selection)
    if doomed.allocations:
        output.note(f"this ends {doomed.text}")
        if not yes:
            require_yes("cancelling", f"End {len(doomed.allocations)} allocation(s)?")
    done = cancel(desk, said_why, output.note, selection)
    value = {"allocations": list(done.allocations), "jobs": list(done.jobs), "reason": said_why}
    output.result(_said(done, doomed, selection), value)


def _find(desk: Desk, given: str) -> str:
    if not given:
        return ""
    return find_candidate(given, list(desk.frozen.candidates), desk.history().candidates)


def _said(done: Cancellation, doomed: Doomed, selection: Selection) -> str:
    if not done.allocations:
        return "nothing is under way" if selection == ALL else "nothing of that is under way"
    again = f", {len(doomed.asked)} of them once more" if doomed.asked else ""
    return f"asked {len(done.allocations)} allocation(s) to end{again}"
