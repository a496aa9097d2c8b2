"""Waiting for what was submitted: polling that slows down while nothing happens, and a line that says how it stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from campaign.errors import InfrastructureError
from campaign.keys import AttemptKey
from campaign.watching.observation import View
from campaign.watching.state import AttemptState, SlotState, SlotStatus

SILENT_POLLS = 10
"""Polls in a row without an answer from the scheduler after which waiting is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Pauses between polls, in seconds: from the first to the longest, each longer by a factor."""

    first_s: float
    longest_s: float
    factor: float = 1.5


LOCAL_PACE = Pace(first_s=0.2, longest_s=2.0)
SLURM_PACE = Pace(first_s=2.0, longest_s=60.0)


def pauses(pace: Pace) -> Iterator[float]:
    """Yield the pauses between polls while nothing changes."""
    pause_s = pace.first_s
    while True:
        yield pause_s
        pause_s = min(pause_s * pace.factor, pace.longest_s)


def counts(slots: Mapping[str, SlotStatus]) -> dict[str, int]:
    """Return the number of slots in each state that occurs, in the order of the states."""
    found = Counter(status.state for status in slots.values())
    return {state.value: found[state] for state in SlotState if found[state]}


def progress_line(slots: Mapping[str, SlotStatus]) -> str:
    """Return one line that says how the slots stand."""
    return f"{len(slots)} slots: " + ", ".join(f"{number} {state}" for state, number in counts(slots).items())


_NO_JOB = (AttemptState.ENDED, AttemptState.INTERRUPTED)
"""States in which there is nothing to wait for: whether an interrupted submission reached anybody is found out by
settling it, and one that did not is made again."""


def _is_settled(view: View) -> bool:
    return all(status.state in _NO_JOB for status in view.attempts.values())


def _fingerprint(view: View) -> tuple[tuple[AttemptKey, str], ...]:
    return tuple((status.key, status.state.value) for status in view.attempts.values())


def wait_for_jobs(
    look: Callable[[], View], pace: Pace, *, sleep: Callable[[float], None], show: Callable[[str], None]
) -> View:
    """Poll until no attempt has a job that may still run; return the last view.

    Args:
        look: Looks at everything.
        pace: Pauses between polls; it starts again whenever something changes.
        sleep: Waits so many seconds.
        show: Shows one line of progress.

    Raises:
        InfrastructureError: The scheduler gave no answer for too long.
    """
    waiting, last, silent = pauses(pace), None, 0
    while True:
        view = look()
        show(progress_line(view.slots))
        if _is_settled(view):
            return view
        silent = silent + 1 if view.troubles else 0
        if silent >= SILENT_POLLS:
            raise InfrastructureError(
                "the scheduler does not answer",
                why=view.troubles[0],
                hint="the jobs go on; later: campaign submit --wait",
            )
        now = _fingerprint(view)
        if now != last:
            waiting, last = pauses(pace), now
        sleep(next(waiting))
