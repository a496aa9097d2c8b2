"""Ending jobs before their time, because a person asked."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from campaign.documents import Phase, Slot
from campaign.errors import InfrastructureError, StateError
from campaign.record import ledger as ledgers
from campaign.submission import acts
from campaign.submission.desk import Desk, Say
from campaign.watching.observation import View, require_here
from campaign.watching.processes import Process, is_alive, terminate
from campaign.watching.state import AttemptState

LOCAL_GRACE_S = 60.0
"""How long the harness of a local job may take to stop its side and seal its receipt."""
REMIND_S = 2.0
"""A signal is lost if it comes before the harness has taken the process over from submitit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancellation:
    """What was asked to end."""

    allocations: tuple[str, ...]
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which slots' attempts a person wants to end; by default all."""

    candidate: str = ""
    """Only slots of the candidate with this id."""
    phase: Phase | None = None
    only: str = ""
    """Only slots whose names match this pattern."""

    def holds(self, name: str, slot: Slot | None) -> bool:
        """Return whether a slot is among them.

        Args:
            name: The slot's name.
            slot: The slot of the protocol.
        """
        return (
            (not self.candidate or name.partition("/")[0] == self.candidate)
            and (self.phase is None or (slot is not None and slot.phase == self.phase))
            and (not self.only or fnmatchcase(name, self.only))
        )


ALL = Selection()


@dataclass(frozen=True, slots=True, kw_only=True)
class Doomed:
    """What a cancellation would end."""

    allocations: tuple[str, ...]
    """In order."""
    states: Mapping[str, int]
    """Number of the attempts that end, by their state."""
    besides: tuple[str, ...]
    """Slots that were not asked for and end all the same: they share an allocation, or the local job."""
    asked: tuple[str, ...]
    """Those of the allocations of which somebody asked for the end before."""

    @property
    def text(self) -> str:
        """The same in words."""
        states = ", ".join(f"{number} {state}" for state, number in self.states.items())
        said = f"{len(self.allocations)} allocation(s) with {sum(self.states.values())} attempt(s): {states}"
        if self.besides:
            more = f" and {len(self.besides) - 1} more" if len(self.besides) > 1 else ""
            said += f"; with them, since jobs end as a whole, slots that were not asked for: {self.besides[0]}{more}"
        return said


def find_doomed(view: View, slots: Mapping[str, Slot], selection: Selection = ALL) -> Doomed:
    """Return what a cancellation would end now.

    Args:
        view: What is known of all attempts.
        slots: The slots of the protocol, by name.
        selection: What is to end.
    """
    # What is in a bundle runs where nobody can end it, and is given up by its own command.
    live = [one for one in view.attempts.values() if one.state not in (AttemptState.ENDED, AttemptState.AWAY)]
    wanted = {one.allocation for one in live if selection.holds(one.slot, slots.get(one.slot))}
    chosen = _whole(view.history, wanted, {one.allocation for one in live})
    ending = [one for one in live if one.allocation in chosen]
    states = Counter(one.state.value for one in ending)
    return Doomed(
        allocations=tuple(sorted(chosen)),
        states={state.value: states[state.value] for state in AttemptState if states[state.value]},
        besides=tuple(dict.fromkeys(one.slot for one in ending if not selection.holds(one.slot, slots.get(one.slot)))),
        asked=tuple(sorted(name for name in chosen if view.history.allocations[name].cancelled is not None)),
    )


def _whole(history: acts.History, wanted: set[str], live: set[str]) -> set[str]:
    """Return the allocations that end with some: all of a local job, and of a submission that has no job.

    One process makes all allocations of a local job. A submission without a job is made again as a whole, or given up.
    """
    keys = {history.allocations[name].submission for name in wanted}
    undivided = {key for key in keys if _ends_as_a_whole(history.submissions[key])}
    return wanted | {name for name in live if history.allocations[name].submission in undivided}


def _ends_as_a_whole(submission: acts.Submission) -> bool:
    return submission.submitted is None or submission.submitted.cluster == "local"


def _submissions(history: acts.History, names: Iterable[str]) -> dict[str, acts.Submission]:
    keys = dict.fromkeys(history.allocations[name].submission for name in names)
    return {key: history.submissions[key] for key in keys}


def _slurm_jobs(history: acts.History, names: Sequence[str]) -> list[str]:
    jobs = []
    for name in names:
        allocation = history.allocations[name]
        submission = history.submissions[allocation.submission]
        if submission.submitted is not None and submission.submitted.cluster == "slurm":
            jobs.append(submission.job_of(allocation.index))
    return jobs


def _local_processes(desk: Desk, history: acts.History, names: Sequence[str]) -> list[Process]:
    processes = []
    for submission in _submissions(history, names).values():
        data = submission.submitted
        if data is None or data.cluster != "local":
            continue
        if data.host != desk.machine.host:
            raise StateError(
                f"a local job runs on {data.host}",
                why=f"process {data.job} can be ended only there",
                hint=f"run campaign cancel on {data.host}",
            )
        if data.boot_id == desk.machine.boot_id:
            processes.append(Process(pid=int(data.job), start=data.process_start))
    return processes


def end_processes(processes: Sequence[Process], sleep: Callable[[float], None] = time.sleep) -> None:
    """Ask processes to end and wait until they have.

    Raises:
        InfrastructureError: One has not ended within its grace.
    """
    waited = 0.0
    while alive := [process for process in processes if is_alive(process)]:
        if waited >= LOCAL_GRACE_S:
            raise InfrastructureError(
                f"process {alive[0].pid} has not ended within {LOCAL_GRACE_S:.0f} s",
                hint=f"campaign status; to end it without a receipt: kill -KILL {alive[0].pid}",
            )
        if waited % REMIND_S < 0.1:
            for process in alive:
                terminate(process)
        sleep(0.1)
        waited += 0.1


def cancel(desk: Desk, reason: str, say: Say, selection: Selection = ALL) -> Cancellation:
    """Ask for the end of the allocations that have not ended; asking again records nothing new.

    Args:
        desk: Where jobs are handed over.
        reason: Why, for the ledger.
        say: Where progress is told.
        selection: What is to end.

    Raises:
        InfrastructureError: A scheduler did not answer, or a local job does not end.
        StateError: A local job runs on another host, a Slurm job on another cluster, or the campaign is closed.
    """
    desk.require_open("nothing of it can be cancelled")
    desk.settle(say)
    with ledgers.Ledger.open(desk.paths, desk.clock) as ledger:
        view = desk.view("", acts.fold(ledger.entries))
        require_here(view, "nothing is cancelled")
        doomed = find_doomed(view, desk.frozen.slots(), selection)
        names = doomed.allocations
        if not names:
            return Cancellation(allocations=(), jobs=())
        processes = _local_processes(desk, view.history, names)
        slurm_jobs = _slurm_jobs(view.history, names)
        # The wish first: should the next step fail, the record says why jobs may have vanished.
        if fresh := tuple(name for name in names if name not in doomed.asked):
            ledger.append("cancelled", acts.Cancelled(allocations=fresh, reason=reason).to_json())
        if slurm_jobs:
            desk.slurm.cancel(slurm_jobs)
    end_processes(processes)
    desk.settle(say)
    jobs = (*slurm_jobs, *(str(process.pid) for process in processes))
    return Cancellation(allocations=names, jobs=jobs)
