"""``campaign unlock``."""

from __future__ import annotations

import time

import click

from campaign.cli.options import home_option, json_option
from campaign.cli.output import Output
from campaign.paths import HomePaths
from campaign.record.amendments import require_text
from campaign.record.ledger import unlock


@click.command
@click.option("--reason", required=True, help="Why the lock's owner is surely gone; goes into the ledger.")
@home_option
@json_option
def command(*, reason: str, home: HomePaths, output: Output) -> None:
    """Remove the lock that a process left which is gone for good, such as on a host that crashed.

    A lock whose owner was on this host and is dead needs no unlocking: the next command takes it over. The lock of a
    process that is alive on this host is not removed.
    """
    owner = unlock(home, time.time, require_text(reason, "--reason"))
    if owner is None:
        output.result("there is no lock", {"unlocked": False, "owner": None})
    else:
        output.result(f"removed the lock of {owner.describe()}", {"unlocked": True, "owner": owner.to_json()})
