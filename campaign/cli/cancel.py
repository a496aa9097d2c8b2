"""``campaign cancel``."""

from __future__ import annotations

import time

import click

from campaign.cli.options import home_option, json_option, require_yes
from campaign.cli.output import Output
from campaign.frozen import read_frozen
from campaign.paths import HomePaths
from campaign.record.amendments import require_text
from campaign.submission.desk import open_desk
from campaign.submission.ending import cancel, unfinished


@click.command()
@click.option("--reason", default="no reason given", help="Why; kept in the ledger.")
@click.option("--yes", is_flag=True, allow_from_autoenv=False, help="Do not ask.")
@home_option
@json_option
def command(home: HomePaths, output: Output, reason: str, yes: bool) -> None:
    """End every job of this campaign that has not ended, and give up submissions that never reached a scheduler.

    What is sealed stays. Attempts that are cut off end as `cancelled`, which allows another attempt.
    """
    said_why = require_text(reason, "--reason")
    desk = open_desk(home, read_frozen(home), time.time)
    names = unfinished(desk.view(""))
    if names and not yes:
        require_yes("cancelling", f"End {len(names)} allocation(s)?")
    done = cancel(desk, said_why, output.note)
    said = f"asked {len(done.allocations)} allocation(s) to end" if done.allocations else "nothing is under way"
    output.result(said, {"allocations": list(done.allocations), "jobs": list(done.jobs), "reason": said_why})
