"""``campaign show``."""

from __future__ import annotations

import difflib
import time

import click

from campaign.cli.options import home_option, json_option
from campaign.cli.output import Output
from campaign.documents import slot_for
from campaign.errors import StateError
from campaign.frozen import read_frozen
from campaign.paths import HomePaths
from campaign.submission.choose import find_candidate
from campaign.submission.desk import Desk, open_desk
from campaign.watching.observation import View
from campaign.watching.progress import describe_attempt, slot_text


@click.command()
@click.argument("slot")
@home_option
@json_option
def command(home: HomePaths, output: Output, slot: str) -> None:
    """Show one slot: its attempts, endings, node, job, the end of its log and where to look further.

    SLOT is a name as `campaign status` shows it; a candidate's may begin with `candidate/`.
    """
    desk = open_desk(home, read_frozen(home), time.time)
    view, name = find_slot(desk, slot)
    status = view.slots[name]
    python = desk.frozen.manifest.harness_python
    made = (*status.void, *status.attempts)
    described = [describe_attempt(home, view, attempt, harness_python=python) for attempt in made]
    value = {"slot": name, "phase": status.slot.phase, "kind": status.slot.kind, "state": status.state.value}
    output.result(slot_text(status, described), {**value, "attempts": described})


def find_slot(desk: Desk, slot: str) -> tuple[View, str]:
    """Return a view of the campaign that has a slot, and the slot's full name.

    Args:
        desk: The campaign's desk.
        slot: The slot's name; a candidate's may begin with ``candidate/``.

    Raises:
        StateError: There is no such slot.
    """
    history = desk.history()
    head = slot.partition("/")[0]
    given = head if head in desk.frozen.candidates else ""
    chosen = find_candidate(given, list(desk.frozen.candidates), history.candidates)
    view = desk.view(chosen, history)
    name = slot_for(slot, chosen)
    if name not in view.slots:
        raise StateError(f"no slot {slot!r}", where=str(desk.paths.protocol), hint=_suggest(slot, list(view.slots)))
    return view, name


def _suggest(slot: str, known: list[str]) -> str:
    close = difflib.get_close_matches(slot, known, n=3, cutoff=0.4)
    return "campaign status" + (f"; close to it: {', '.join(close)}" if close else "")
