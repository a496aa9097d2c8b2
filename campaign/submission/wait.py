"""Waiting for what was submitted: polling that slows down while nothing happens, and a line that says how it stands.

Between two looks at everything, which ask the scheduler, only one thing is looked for, and by files alone: whether all
allocations under way have left word that they ended. Then there is nothing more to wait for.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from campaign.errors import InfrastructureError
from campaign.keys import AttemptKey
from campaign.submission.limits import NoRoomError
from campaign.watching.observation import View, require_here
from campaign.watching.state import AttemptState, SlotState, SlotStatus

SILENT_POLLS = 10
"""Polls in a row without an answer from the scheduler after which waiting is given up."""
SURE_S = 20.0
"""How long nothing but jobs that will not start may be left before waiting is given up: a node may come back."""
GLANCE_S = 0.5
"""Seconds between two glances at the files of what is under way."""
LOOK_SHARE = 10
"""A pause is at least so many times as long as the look before it: jobs may run on this very machine."""
SHARE = 4
"""While allocations wait for room, the next are submitted once one in so many of those under way has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Pauses between polls, in seconds: from the first to the longest, each longer by a factor."""

    first_s: float
    longest_s: float
    factor: float = 1.5


LOCAL_PACE = Pace(first_s=0.2, longest_s=2.0)
SLURM_PACE = Pace(first_s=2.0, longest_s=60.0)
ROOM_PACE = Pace(first_s=15.0, longest_s=600.0, factor=2.0)
ROOM_TRIES = 20
"""Tries in a row without room for a single job after which waiting is given up: about two and a half hours."""


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


_NO_JOB = (AttemptState.ENDED, AttemptState.INTERRUPTED, AttemptState.AWAY)
"""States in which there is nothing to wait for: whether an interrupted submission reached anybody is found out by
settling it, and one that did not is made again; a bundle comes back when somebody brings it."""


def _is_settled(view: View) -> bool:
    return all(status.state in _NO_JOB for status in view.attempts.values())


def _fingerprint(view: View) -> tuple[tuple[AttemptKey, str], ...]:
    return tuple((status.key, status.state.value) for status in view.attempts.values())


def _under_way(view: View) -> set[str]:
    """Return the allocations with an attempt whose job may still run."""
    return {status.allocation for status in view.attempts.values() if status.state not in _NO_JOB}


def when_room_may_have_come() -> Callable[[View], bool]:
    """Return what says of view after view whether so many jobs have ended since the first that more may fit."""
    first: list[int] = []

    def is_enough(view: View) -> bool:
        number = len(_under_way(view))
        first.append(number)
        return number <= first[0] - max(1, first[0] // SHARE)

    return is_enough


def hopeless_jobs(view: View) -> dict[str, list[str]]:
    """Return the jobs that wait for what will not come, by the reason, if nothing else is under way; else nothing."""
    active = [status for status in view.attempts.values() if status.state not in _NO_JOB]
    if not all(status.hopeless for status in active):
        return {}
    jobs: dict[str, dict[str, None]] = {}
    for status in active:
        jobs.setdefault(status.reason, {}).setdefault(status.job)
    return {reason: list(named) for reason, named in jobs.items()}


def _hopeless_error(jobs: Mapping[str, list[str]]) -> InfrastructureError:
    said = [f"{len(named)} job(s), such as {named[0]}: {reason}" for reason, named in jobs.items()]
    return InfrastructureError(
        "nothing is left but jobs that will not start by themselves",
        why="; ".join(said),
        hint='mend what they wait for, or campaign cancel --reason "..." ends them: campaign submit makes them again',
    )


def _is_told(view: View) -> bool:
    """Return whether the scheduler tells of a job that waits or runs, whatever else it does not answer."""
    return any(status.state in (AttemptState.PENDING, AttemptState.RUNNING) for status in view.attempts.values())


def nobody(_allocation: str) -> bool:
    """Return False: no allocation says by itself that it ended."""
    return False


def _pause(view: View, seconds: float, sleep: Callable[[float], None], has_ended: Callable[[str], bool]) -> None:
    """Sleep, but wake up once all allocations under way have left word that they ended.

    Where all had before, the last look has found that there is more to wait for.
    """
    left = [one for one in sorted(_under_way(view)) if not has_ended(one)]
    if has_ended is nobody or not left:
        sleep(seconds)
        return
    while seconds > 0 and left:
        step_s = min(GLANCE_S, seconds)
        sleep(step_s)
        seconds -= step_s
        # From the end: of hundreds that still run, one is looked at.
        while left and has_ended(left[-1]):
            left.pop()


def never(_view: View) -> bool:
    """Return False: nothing ends a wait before its jobs."""
    return False


def wait_for_jobs(
    look: Callable[[], View],
    pace: Pace,
    *,
    sleep: Callable[[float], None],
    show: Callable[[str], None],
    is_enough: Callable[[View], bool] = never,
    has_ended: Callable[[str], bool] = nobody,
    clock: Callable[[], float] = time.perf_counter,
) -> View:
    """Poll until no attempt has a job that may still run; return the last view.

    Args:
        look: Looks at everything.
        pace: Pauses between polls; it starts again whenever something changes.
        sleep: Waits so many seconds.
        show: Shows one line of progress.
        is_enough: Says of a view whether there is something to do although jobs run.
        has_ended: Says of an allocation, by files alone, whether it has left word that it ended.
        clock: Measures how long looks take, in seconds.

    Raises:
        InfrastructureError: The scheduler gave no answer for too long, or only jobs are left that will not start.
        StateError: Jobs went to another cluster than the one that is reached.
    """
    waiting, last, silent, stuck_s = pauses(pace), None, 0, -1.0
    while True:
        began = clock()
        view = look()
        look_s = clock() - began
        show(progress_line(view.slots))
        if _is_settled(view) or is_enough(view):
            return view
        require_here(view, "they cannot be waited for from here")
        jobs = hopeless_jobs(view)
        if jobs and stuck_s >= SURE_S:
            raise _hopeless_error(jobs)
        stuck_s = max(stuck_s, 0.0) if jobs else -1.0
        silent = silent + 1 if view.troubles and not _is_told(view) else 0
        if silent >= SILENT_POLLS:
            raise InfrastructureError(
                "the scheduler does not answer",
                why=view.troubles[0],
                hint="the jobs go on; later: campaign submit --wait",
            )
        now = _fingerprint(view)
        if now != last:
            waiting, last = pauses(pace), now
        pause_s = min(max(next(waiting), LOOK_SHARE * look_s), pace.longest_s)
        if jobs:
            stuck_s += pause_s
        _pause(view, pause_s, sleep, has_ended)


@dataclass(slots=True, kw_only=True)
class Squeeze:
    """How a waiting submission goes on where Slurm takes no more jobs, or not as many at a time."""

    sleep: Callable[[float], None]
    cap: int | None = None
    """Most jobs that are tried at a time; None for no such limit."""
    tries: int = 0
    _pauses: Iterator[float] = field(default_factory=lambda: pauses(ROOM_PACE))

    def took(self) -> None:
        """Note that jobs were taken: as many as fit are tried next."""
        self.cap, self.tries, self._pauses = None, 0, pauses(ROOM_PACE)

    def refused(self, error: NoRoomError) -> None:
        """Note a refusal: half as many are tried next, and where a single job was too many, later.

        Raises:
            NoRoomError: It has been so for too long.
        """
        if error.num_jobs > 1 and (self.cap is None or self.cap > 1):
            self.cap = max(1, error.num_jobs // 2)
            return
        self.cap = None
        self.tries += 1
        if self.tries >= ROOM_TRIES:
            raise error
        self.sleep(next(self._pauses))
