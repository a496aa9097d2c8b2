"""``campaign status``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from campaign.cli.hooking import happened, hook_option, open_hook
from campaign.cli.options import home_option, json_option
from campaign.cli.output import Output
from campaign.errors import EvidenceError, StateError
from campaign.files import read_if_there
from campaign.frozen import Frozen, check_recorded, read_frozen
from campaign.paths import HomePaths
from campaign.record.head import read_head
from campaign.record.ledger import head, parse_entries, read_entries
from campaign.submission.acts import History
from campaign.submission.choose import choose, find_candidate
from campaign.submission.desk import Desk, open_desk
from campaign.submission.hooks import Hook, finished
from campaign.submission.plans import pilots_after
from campaign.submission.wait import SLURM_PACE, pauses, progress_line
from campaign.terminal import can_draw
from campaign.watching.observation import View
from campaign.watching.progress import Progress, is_active, status_text, summarise

if TYPE_CHECKING:
    from campaign.watching.live import Screen


@click.command()
@click.option("--candidate", metavar="ID", default="", show_default="the one frozen last", help="Candidate to show.")
@click.option("--watch", is_flag=True, help="Show again until nothing is under way; on a terminal, a live view.")
@hook_option
@home_option
@json_option
def command(home: HomePaths, output: Output, candidate: str, watch: bool, hook: str) -> None:
    """Show the slots by phase and state, and what stands in the way.

    It only looks: nothing is recorded and no lock is taken. What the scheduler does not tell is shown as unknown.
    """
    desk = open_desk(home, read_frozen(home), time.time)
    history = desk.history()
    chosen = find_candidate(candidate, list(desk.frozen.candidates), history.candidates)
    hooked = open_hook(hook, desk, chosen, output, watches=watch)
    status = _Status(desk=desk, candidate=chosen, output=output, hook=hooked)
    if watch:
        status.watch()
    else:
        status.show(status.look(history)[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Status:
    """One run of the command."""

    desk: Desk
    candidate: str
    """Id; empty for the baseline alone."""
    output: Output
    hook: Hook | None

    def look(self, history: History) -> tuple[View, Progress]:
        """Look at everything that the ledger tells of."""
        desk, frozen = self.desk, self.desk.frozen
        view = desk.view(self.candidate, history)
        view = replace(view, troubles=(*view.troubles, *_changes(desk.paths, frozen)))
        return view, summarise(desk.paths, frozen.protocol, frozen.manifest, self.candidate, view, now=desk.clock())

    def watch(self) -> None:
        """Show everything again and again until nothing is under way."""
        waiting = pauses(SLURM_PACE)
        with ExitStack() as stack:
            screen = self._open_screen(stack)
            while True:
                view, progress = self.look(self.desk.history())
                self._tell_hook(view)
                if not is_active(view):
                    if screen is not None:
                        screen.vanish()
                    break
                if screen is not None:
                    screen.show(progress)
                elif not self.output.as_json:
                    self.show(progress)
                (time.sleep if screen is None else screen.pause)(next(waiting))
        self.show(progress)

    def show(self, progress: Progress) -> None:
        """Print what was found."""
        for trouble in progress.troubles:
            self.output.note(trouble)
        closed = _closed(self.desk.paths, self.desk.frozen)
        text = f"closed: {closed}\n\n{status_text(progress)}" if closed else status_text(progress)
        self.output.result(text, {**progress.to_json(), "closed": closed or None})

    def _open_screen(self, stack: ExitStack) -> Screen | None:
        if self.output.as_json or not can_draw(sys.stdout, os.environ):
            return None
        from campaign.watching.live import open_screen  # noqa: PLC0415 - rich is for terminals alone

        return stack.enter_context(open_screen(sys.stdout, self.desk.clock, time.sleep))

    def _tell_hook(self, view: View) -> None:
        if self.hook is None:
            return
        self.hook.tell(happened(self.desk, self.candidate, view))
        after = pilots_after(self.desk.frozen.protocol, self.candidate)
        if _is_finished(view, self.candidate, after):
            line = progress_line(view.slots)
            self.hook.tell([finished(self.candidate, ("", ""), len(view.history.allocations), line)])


def _is_finished(view: View, candidate: str, after: Mapping[str, str]) -> bool:
    """Return whether nothing is left that may be submitted or that is under way; see `choose`."""
    try:
        choice = choose(view.slots, candidate=candidate, after=after)
    except StateError:
        return False  # an adapter is incomplete: what failed is told, and a person has to decide
    return not (choice.slots or choice.active or choice.waiting)


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
