"""``campaign collect``."""

from __future__ import annotations

import time

import click

from campaign.cli.options import home_option, json_option
from campaign.cli.output import Output
from campaign.collection.collect import Collection, collect, require_intact
from campaign.judging.remarks import read_remarks
from campaign.paths import HomePaths
from campaign.record.accounting import account_home
from campaign.record.ledger import Ledger
from campaign.submission.desk import settle_home


def describe(collection: Collection) -> str:
    """Return a collection in one line."""
    unsealed = collection.attempts - collection.sealed
    parts = [
        f"{collection.attempts} attempts ({collection.sealed} sealed, {unsealed} ended without a receipt)",
        f"{collection.rows} rows",
        f"{collection.running} attempts without an ending yet",
    ]
    return ", ".join(parts)


@click.command
@click.option("--rebuild", is_flag=True, help="Build the cache again from the attempts' files.")
@home_option
@json_option
def command(*, rebuild: bool, home: HomePaths, output: Output) -> None:
    """Check what the attempts left and store it in campaign.sqlite.

    What the file system says is untouched since an earlier collection found it right is not read again; with
    --rebuild everything is, as it is by report and seal. A file that was changed, added or removed after it was
    sealed, or that does not parse, is named with its place and ends the command with 5; the other attempts are stored
    all the same.
    """
    settle_home(home, time.time, output.note)
    account_home(home, time.time, output.note)
    with Ledger.open(home, time.time) as ledger:
        collection = collect(home, ledger, rebuild=rebuild)
    if collection.findings:
        output.note(describe(collection))
    require_intact(collection)
    remarks = read_remarks(home, collection)
    for remark in remarks:
        output.note(f"remark: {remark}")
    value = {
        "attempts": collection.attempts,
        "sealed": collection.sealed,
        "running": collection.running,
        "rows": collection.rows,
        "rows_sha256": collection.rows_sha256,
        "remarks": list(remarks),
    }
    output.result(describe(collection), value)
