"""``campaign prune``."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from campaign.cli.options import home_option, json_option, require_yes
from campaign.cli.output import Output
from campaign.frozen import read_frozen
from campaign.paths import HomePaths
from campaign.record.amendments import require_text
from campaign.record.ledger import Ledger, read_entries, require_open
from campaign.record.pruning import REFUSAL, Prunable, find_prunable, prune
from campaign.submission.desk import Desk, open_desk
from campaign.table import table


@click.command
@click.option("--reports", is_flag=True, help="Reports too, where they can be rendered again.")
@click.option("--reason", default="to free space", help="Why; kept in the ledger.")
@click.option("--yes", is_flag=True, allow_from_autoenv=False, help="Do not ask.")
@home_option
@json_option
def command(*, home: HomePaths, output: Output, reports: bool, reason: str, yes: bool) -> None:
    """Remove what can be made again, and record it: compiled code, and what killed writers left.

    Attempts, checkpoints, inputs and everything frozen stay. It shows first what would go, and asks.
    """
    said = require_text(reason, "--reason")
    require_open(home, read_entries(home), REFUSAL)
    desk = open_desk(home, read_frozen(home), time.time)
    shown = _find(desk, reports=reports)
    value = {"what": [_relative(home, one) for one in shown], "files": 0, "bytes": 0, "reason": said}
    if not shown:
        output.result("nothing can go", value)
        return
    for line in _lines(home, shown):
        output.note(line)
    if not yes:
        require_yes("pruning", f"Remove {len(shown)} item(s)?")
    with Ledger.open(home, time.time) as ledger:
        done = prune(home, ledger, shown, _find(desk, reports=reports), said)
    output.result(f"removed {done.files} file(s), {done.bytes} bytes", done.to_json())


def _find(desk: Desk, *, reports: bool) -> list[Prunable]:
    return find_prunable(desk.paths, desk.view(""), read_entries(desk.paths), reports=reports)


def _relative(home: HomePaths, one: Prunable) -> str:
    return one.path.relative_to(home.root).as_posix()


def _lines(home: HomePaths, shown: Sequence[Prunable]) -> list[str]:
    rows = [(_relative(home, one), str(one.num_files), str(one.num_bytes), one.why) for one in shown]
    total = ("in all", str(sum(one.num_files for one in shown)), str(sum(one.num_bytes for one in shown)), "")
    return table(("what", "files", "bytes", "why"), [*rows, total]).splitlines()
