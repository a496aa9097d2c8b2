"""``campaign submit``."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

import click

from campaign.cli.hooking import happened, hook_option, open_hook
from campaign.cli.options import home_option, json_option, require_yes
from campaign.cli.output import Output
from campaign.documents import Phase
from campaign.errors import ExitCode
from campaign.frozen import read_frozen
from campaign.paths import HomePaths
from campaign.submission import text
from campaign.submission.choose import find_candidate
from campaign.submission.desk import Desk, Order, Wish, open_desk
from campaign.submission.held import since
from campaign.submission.hooks import Hook, finished
from campaign.submission.limits import NoRoomError
from campaign.submission.wait import (
    LOCAL_PACE,
    SLURM_PACE,
    Squeeze,
    counts,
    never,
    progress_line,
    wait_for_jobs,
    when_room_may_have_come,
)
from campaign.terminal import can_draw
from campaign.watching.extension import sentences
from campaign.watching.observation import View
from campaign.watching.progress import summarise

if TYPE_CHECKING:
    from campaign.watching.live import Screen


@click.command()
@click.option(
    "--phase", type=click.Choice(get_args(Phase)), help="Only this phase; default: every phase that can be submitted."
)
@click.option("--candidate", metavar="ID", default="", show_default="the one frozen last", help="Candidate to measure.")
@click.option(
    "--cluster",
    type=click.Choice(("slurm", "local")),
    show_default="slurm where sbatch is installed, else local",
    help="Where to run.",
)
@click.option(
    "--only", metavar="GLOB", default="", help="Only slots whose names match, with the pilots that they need."
)
@click.option(
    "--dry-run",
    is_flag=True,
    allow_from_autoenv=False,
    help="Print the very scripts and command lines; write and submit nothing.",
)
@click.option(
    "--wait",
    is_flag=True,
    allow_from_autoenv=False,
    help="Wait for the jobs, and submit what becomes possible, retries included.",
)
@click.option("--yes", is_flag=True, allow_from_autoenv=False, help="Do not ask.")
@hook_option
@home_option
@json_option
def command(  # noqa: PLR0917 - click passes every option by name
    home: HomePaths,
    output: Output,
    phase: Phase | None,
    candidate: str,
    cluster: Literal["slurm", "local"] | None,
    only: str,
    dry_run: bool,
    wait: bool,
    yes: bool,
    hook: str,
) -> int:
    """Submit what is missing, and only that.

    A side's pilot goes first: its rates fix the number of updates of every window. Running the command again never
    doubles anything: what is under way or complete is left alone, and a submission that was interrupted is found again.

    With --wait it exits with 4 if a slot that was asked for can no longer be completed, or is left to a person: one
    that was cancelled meanwhile, and a run whose segments leave no checkpoint. A run whose newest checkpoint is damaged
    is left out, and the command exits with 5 once the rest is done.
    """
    desk = open_desk(home, read_frozen(home), time.time)
    desk.require_open("nothing more is submitted")
    desk.check_frozen()
    chosen = find_candidate(candidate, list(desk.frozen.candidates), desk.history().candidates)
    wish = Wish(candidate=chosen, cluster=cluster or _default_cluster(), phase=phase, only=only)
    hooked = open_hook(hook, desk, chosen, output, watches=wait and not dry_run)
    run = _Run(desk=desk, wish=wish, output=output, wait=wait, yes=yes, hook=hooked)
    return run.dry() if dry_run else run.submit()


def _default_cluster() -> Literal["slurm", "local"]:
    return "slurm" if shutil.which("sbatch") else "local"


@dataclass(slots=True, kw_only=True)
class _Run:
    """One run of the command."""

    desk: Desk
    wish: Wish
    output: Output
    wait: bool
    yes: bool
    hook: Hook | None = None
    confirmed: bool = False
    num_left: int = 0
    """Allocations for which there was no room in the last order."""

    def dry(self) -> ExitCode:
        """Show what would be submitted; return the exit code."""
        view = self.desk.view(self.wish.candidate)
        order = self._order(view, None)
        for submission in view.history.open_submissions():
            if submission.not_submitted is None:
                self.output.note(f"an interrupted submission would be looked for first: {submission.key}")
        shown = text.dry_run(self.desk, order)
        if order.all:
            self.output.note(text.plan_text(self.desk.frozen, order, view.slots))
        self._tell(order, view)
        self.output.result(text.dry_run_text(shown) or "nothing to submit", {"dry_run": shown})
        return ExitCode.TAMPERED if order.refused else ExitCode.DONE

    def submit(self) -> ExitCode:
        """Submit, and with ``--wait`` go on until nothing is left to do; return the exit code."""
        jobs: list[str] = []
        squeeze = Squeeze(sleep=time.sleep)
        if self.wait:
            self.wish = replace(self.wish, since=since(self.desk.history()))
        while True:
            if self.wait:
                self._wait()
            self.desk.settle(self.output.note)
            view = self.desk.view(self.wish.candidate)
            order = self._order(view, squeeze.cap)
            if not order.all and not order.num_left:
                self._tell(order, view)
                self._finish(jobs, view)
                self._tell_hook_of_the_end(view)
                return self._code(order)
            try:
                jobs += self._stage(order, view)
            except NoRoomError as error:
                if not self.wait:
                    raise
                self.output.note(f"{error.what}: {error.why}")
                squeeze.refused(error)
                continue
            squeeze.took()
            if not self.wait:
                self._finish(jobs, self.desk.view(self.wish.candidate))
                return self._code(order)

    def _order(self, view: View, cap: int | None) -> Order:
        room = self.desk.room(self.wish.cluster).capped(cap)
        order = self.desk.order(self.wish, view, self.desk.array_limit(self.wish.cluster), room)
        self.num_left = order.num_left
        return order

    def _code(self, order: Order) -> ExitCode:
        if order.refused:
            return ExitCode.TAMPERED
        is_wanting = bool(order.choice.out_of_reach or order.choice.held)
        return ExitCode.WANTING if self.wait and is_wanting else ExitCode.DONE

    def _stage(self, order: Order, view: View) -> list[str]:
        if self.wish.cluster == "local":
            self.desk.refuse_two_local_jobs(view)
        if not order.all:
            raise order.no_room()
        self.output.note(text.plan_text(self.desk.frozen, order, view.slots))
        self._tell(order, view)
        self._confirm()
        try:
            return [done.job for done in self.desk.hand_over(self.wish, order, self.output.note)]
        except KeyboardInterrupt:
            self.output.note("what was submitted goes on, and nothing is lost; to go on from here: campaign submit")
            raise

    def _confirm(self) -> None:
        if self.yes or self.confirmed:
            return
        also = " This, and later what becomes possible?" if self.wait else ""
        require_yes("submitting", f"Submit?{also}", hint="look at the plan, then add --yes")
        self.confirmed = True

    def _tell(self, order: Order, view: View) -> None:
        extension = sentences(self.desk.frozen.protocol, view.extension, view.slots)
        refused = [line for error in order.refused for line in error.lines()]
        left = [order.left_text] if order.left_text else []
        for line in [*text.reasons(order, view.slots), *left, *extension, *view.troubles, *refused]:
            self.output.note(line)

    def _finish(self, jobs: list[str], view: View) -> None:
        value = {"candidate": self.wish.candidate, "jobs": jobs, "slots": counts(view.slots)}
        said = f"submitted job {', '.join(jobs)}" if jobs else "nothing to submit"
        self.output.result(f"{said}\n{progress_line(view.slots)}", value)

    def _look(self, screen: Screen | None) -> View:
        """Look at everything; show it, and tell the hook."""
        view = self.desk.view(self.wish.candidate)
        if screen is not None:
            frozen, candidate = self.desk.frozen, self.wish.candidate
            now = self.desk.clock()
            screen.show(summarise(self.desk.paths, frozen.protocol, frozen.manifest, candidate, view, now=now))
        if self.hook is not None:
            self.hook.tell(happened(self.desk, self.wish.candidate, view))
        return view

    def _tell_hook_of_the_end(self, view: View) -> None:
        if self.hook is None:
            return
        self.hook.tell(happened(self.desk, self.wish.candidate, view))
        asked = (self.wish.phase or "", self.wish.only)
        line = progress_line(view.slots)
        self.hook.tell([finished(self.wish.candidate, asked, len(view.history.allocations), line)])

    def _wait(self) -> None:
        pace = LOCAL_PACE if self.wish.cluster == "local" else SLURM_PACE
        is_enough = when_room_may_have_come() if self.num_left else never
        try:
            with _screen(self.desk) as screen:
                wait_for_jobs(
                    lambda: self._look(screen),
                    pace,
                    sleep=time.sleep if screen is None else screen.pause,
                    show=_say_nothing if screen is not None else _Changes(output=self.output).say,
                    is_enough=is_enough,
                    has_ended=lambda allocation: self.desk.paths.allocation(allocation).ended.exists(),
                )
        except KeyboardInterrupt:
            self.output.note("the jobs go on; to go on waiting: campaign submit --wait")
            raise


def _say_nothing(_line: str) -> None:
    """Say nothing: the live view shows it."""


@dataclass(slots=True, kw_only=True)
class _Changes:
    """Says how the slots stand, where nothing can be drawn, whenever that has changed."""

    output: Output
    last: str = ""

    def say(self, line: str) -> None:
        """Say a line unless it is the last one again."""
        if line != self.last:
            self.last = line
            self.output.note(line)


@contextmanager
def _screen(desk: Desk) -> Iterator[Screen | None]:
    """Yield the live view on standard error; None where nothing can be drawn there."""
    if not can_draw(sys.stderr, os.environ):
        yield None
        return
    from campaign.watching.live import open_screen  # noqa: PLC0415 - rich is for terminals alone

    with open_screen(sys.stderr, desk.clock, time.sleep) as screen:
        yield screen
