"""The live view: progress bars by phase, what runs, what waits and what stands in the way, drawn over and over."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from campaign.terminal import plain
from campaign.watching.durations import duration
from campaign.watching.progress import NOT_REACHABLE, Progress, remaining_text
from campaign.watching.running import Running
from campaign.watching.state import SlotState

BAR_WIDTH = 24
STEP_S = 1.0
"""How often times are counted on between looks."""
_FEWEST_RUNNING = 3
"""Lines for what runs, however low the terminal is."""
_MOST_REASONS = 3


def _phase_rows(by_phase: Mapping[str, Mapping[str, int]]) -> RenderableType:
    """Return a bar for each phase, and behind it what is not complete by state."""
    rows = Table.grid(padding=(0, 2))
    for phase, found in by_phase.items():
        total = sum(number for state, number in found.items() if state != SlotState.NOT_DUE.value)
        done = found.get(SlotState.COMPLETED.value, 0)
        others = [f"{number} {state}" for state, number in found.items() if state != SlotState.COMPLETED.value]
        bar = ProgressBar(total=max(total, 1), completed=done, width=BAR_WIDTH)
        rows.add_row(_line(phase), bar, _line(f"{done}/{total}"), _line(", ".join(others)))
    return rows


def _running_rows(running: Sequence[Running], age_s: float, most: int) -> RenderableType:
    rows = Table.grid(padding=(0, 2))
    for one in running[:most]:
        since = "" if one.elapsed_s is None else duration(one.elapsed_s + age_s)
        cells = (f"  {one.slot}", one.side or "setting up", one.node, since)
        rows.add_row(*map(_line, cells))
    return rows


def _line(text: str, style: str = "") -> Text:
    """Return one line, cut where the terminal ends."""
    return Text(plain(text.replace("\n", " ")), style=style, no_wrap=True, overflow="ellipsis")


def _some(lines: Sequence[str], style: str = "") -> Iterator[Text]:
    """Yield the first lines, and how many are left out."""
    for line in lines[:_MOST_REASONS]:
        yield _line(f"  {line}", style)
    if len(lines) > _MOST_REASONS:
        yield _line(f"  ... and {len(lines) - _MOST_REASONS} more (campaign status)", style)


def draw(progress: Progress, *, age_s: float, height: int) -> RenderableType:
    """Return what is shown.

    Args:
        progress: What was found by the last look.
        age_s: Seconds since then.
        height: Lines of the terminal.
    """
    candidate = f" and candidate {progress.candidate}" if progress.candidate else ""
    above: list[RenderableType] = [
        _line(f"{progress.campaign}: baseline{candidate}", "bold"),
        _phase_rows(progress.by_phase),
    ]
    below: list[RenderableType] = []
    if progress.pending:
        below += [_line("waiting:"), *_some([f"{number} x {why}" for why, number in progress.pending.items()])]
    if progress.unknown:
        below += [_line("not known:"), *_some(progress.unknown, "yellow")]
    if progress.troubles:
        below += [_line("does not answer:"), *_some(progress.troubles, "yellow")]
    if progress.out_of_reach:
        below.append(_line(f"gates out of reach: {len(progress.out_of_reach)}", "yellow"))
    if progress.obstacles:
        below += [_line(f"{NOT_REACHABLE}:", "bold red"), *_some([one.text for one in progress.obstacles], "red")]
    below += [_line(remaining_text(progress)), _line(f"finish: {progress.finish.text}")]
    below.append(_line(f"looked {duration(age_s)} ago; Ctrl-C leaves, and the jobs go on", "dim"))
    room = max(_FEWEST_RUNNING, height - len(progress.by_phase) - len(below) - 4)
    middle: list[RenderableType] = []
    if progress.running:
        left = len(progress.running) - room
        middle = [_line(f"running: {len(progress.running)}"), _running_rows(progress.running, age_s, room)]
        middle += [_line(f"  ... and {left} more (campaign status)")] if left > 0 else []
    return Group(*above, *middle, *below)


@dataclass(slots=True, kw_only=True)
class Screen:
    """A live view on a terminal."""

    live: Live
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    _progress: Progress | None = field(default=None)
    _looked_at: float = 0.0

    def show(self, progress: Progress) -> None:
        """Show what a look found."""
        self._progress, self._looked_at = progress, self.clock()
        self._redraw()

    def vanish(self) -> None:
        """Leave nothing of the view when it ends: what is printed then says the same."""
        self.live.transient = True

    def pause(self, seconds: float) -> None:
        """Wait, and count the times on meanwhile."""
        left_s = seconds
        while left_s > 0:
            step_s = min(STEP_S, left_s)
            self.sleep(step_s)
            left_s -= step_s
            self._redraw()

    def _redraw(self) -> None:
        if self._progress is not None:
            age_s = max(0.0, self.clock() - self._looked_at)
            shown = draw(self._progress, age_s=age_s, height=self.live.console.height)
            self.live.update(shown, refresh=True)


@contextmanager
def open_screen(stream: TextIO, clock: Callable[[], float], sleep: Callable[[float], None]) -> Iterator[Screen]:
    """Draw on a terminal until the block ends; the last view stays, unless it is to vanish.

    Args:
        stream: The terminal.
        clock: Returns the seconds since the epoch.
        sleep: Waits so many seconds.
    """
    # Lines that are printed meanwhile go above the view; what leads into a file stays there.
    live = Live(
        console=Console(file=stream, highlight=False),
        auto_refresh=False,
        redirect_stdout=sys.stdout.isatty(),
        redirect_stderr=sys.stderr.isatty(),
    )
    with live:
        yield Screen(live=live, clock=clock, sleep=sleep)
