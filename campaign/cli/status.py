"""``campaign status``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import click

from campaign.cli.options import home_option, json_option
from campaign.cli.output import Output
from campaign.errors import EvidenceError
from campaign.files import read_if_there
from campaign.frozen import Frozen, check_recorded, read_frozen
from campaign.paths import HomePaths
from campaign.record.head import read_head
from campaign.record.ledger import head, parse_entries, read_entries
from campaign.submission.choose import find_candidate
from campaign.submission.desk import open_desk
from campaign.submission.wait import SLURM_PACE, pauses
from campaign.watching.progress import is_active, status_text, summarise


@click.command()
@click.option("--candidate", metavar="ID", default="", show_default="the one frozen last", help="Candidate to show.")
@click.option("--watch", is_flag=True, help="Show again until nothing is under way.")
@home_option
@json_option
def command(home: HomePaths, output: Output, candidate: str, watch: bool) -> None:
    """Show the slots by phase and state, and what stands in the way.

    It only looks: nothing is recorded and no lock is taken. What the scheduler does not tell is shown as unknown.
    """
    desk = open_desk(home, read_frozen(home), time.time)
    waiting = pauses(SLURM_PACE)
    while True:
        history = desk.history()
        chosen = find_candidate(candidate, list(desk.frozen.candidates), history.candidates)
        view = desk.view(chosen, history)
        view = replace(view, troubles=(*view.troubles, *_changes(home, desk.frozen)))
        progress = summarise(home, desk.frozen.protocol, desk.frozen.manifest, chosen, view)
        for trouble in progress.troubles:
            output.note(trouble)
        last = not watch or not is_active(view)
        if last or not output.as_json:
            if watch and sys.stdout.isatty():
                click.clear()
            closed = _closed(home, desk.frozen)
            text = f"closed: {closed}\n\n{status_text(progress)}" if closed else status_text(progress)
            output.result(text, {**progress.to_json(), "closed": closed or None})
        if last:
            return
        time.sleep(next(waiting))


def _closed(home: HomePaths, frozen: Frozen) -> str:
    """Return the head line of a closed campaign; empty if it is open."""
    data = read_if_there(home.ledger) or b""
    closed = read_head(frozen.manifest.campaign, parse_entries(data, where=str(home.ledger)), head(data))
    return closed.line if closed is not None else ""


def _changes(home: HomePaths, frozen: Frozen) -> Iterator[str]:
    """Yield what of the frozen documents is not what the ledger recorded: a trouble here, an error elsewhere."""
    try:
        check_recorded(home, frozen, read_entries(home))
    except EvidenceError as error:
        yield f"{error.where}: {error.what}: {error.why}"
