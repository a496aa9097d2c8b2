"""Ending jobs before their time, because a person asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

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


def unfinished(view: View) -> list[str]:
    """Return the allocations with an attempt that has not ended, in order."""
    return sorted({status.allocation for status in view.attempts.values() if status.state is not AttemptState.ENDED})


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


def cancel(desk: Desk, reason: str, say: Say) -> Cancellation:
    """Ask for the end of every allocation that has not ended.

    Args:
        desk: Where jobs are handed over.
        reason: Why, for the ledger.
        say: Where progress is told.

    Raises:
        InfrastructureError: A scheduler did not answer, or a local job does not end.
        StateError: A local job runs on another host, a Slurm job on another cluster, or the campaign is closed.
    """
    desk.require_open("nothing of it can be cancelled")
    desk.settle(say)
    with ledgers.Ledger.open(desk.paths, desk.clock) as ledger:
        view = desk.view("")
        require_here(view, "nothing is cancelled")
        names = unfinished(view)
        if not names:
            return Cancellation(allocations=(), jobs=())
        processes = _local_processes(desk, view.history, names)
        slurm_jobs = _slurm_jobs(view.history, names)
        # The wish first: should the next step fail, the record says why jobs may have vanished.
        ledger.append("cancelled", acts.Cancelled(allocations=tuple(names), reason=reason).to_json())
        if slurm_jobs:
            desk.slurm.cancel(slurm_jobs)
    end_processes(processes)
    desk.settle(say)
    jobs = (*slurm_jobs, *(str(process.pid) for process in processes))
    return Cancellation(allocations=tuple(names), jobs=jobs)
