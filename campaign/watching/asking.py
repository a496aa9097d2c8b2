"""What Slurm says of the jobs of several submissions: the queue, then accounting, then the controller by number.

Each source is asked only for what those before it did not settle, all within one limit of time. A source that does not
answer leaves what it would have settled open.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from campaign.errors import InfrastructureError
from campaign.submission.acts import Submission
from campaign.watching.hopeless import DOWN, nodes_wanted
from campaign.watching.scheduler import CLOCK_SLACK_S, JOBS_SHOWN, LOOK_S, Controller, JobRecord, Slurm, Stage, newest

HIDDEN = "another user submitted it, and this cluster shows nobody another's jobs (PrivateData)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What Slurm said in one look."""

    records: Mapping[str, JobRecord] | None
    """The newest record of each job; None if the queue did not answer."""
    troubles: tuple[str, ...] = ()
    """What did not answer, and why."""
    is_whole: bool = False
    """Whether every source answered: only then is a job absent that none of them knows."""
    unaccounted: str = ""
    """Why accounting is none of the sources, where a cluster keeps no accounts; that is no trouble."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """By submission, why its jobs cannot be asked for: they went to another cluster."""
    arrays: frozenset[str] = frozenset()
    """Numbers of the arrays of which the controller itself knows a task."""
    hides_jobs: bool = False
    """Whether jobs of other users would not be shown: then one that is not shown may be there."""
    down: frozenset[str] = frozenset()
    """Lists of nodes that jobs wait for, of which every node is down."""


def say(error: InfrastructureError) -> str:
    """Return an error in one line."""
    return f"{error.what}: {error.why}" if error.why else error.what


def cluster_of(submission: Submission) -> str:
    """Return the name of the cluster that a submission went to; empty where it was not recorded."""
    recorded = submission.submitted.cluster_name if submission.submitted is not None else ""
    return recorded or submission.intent.cluster_name


def why_elsewhere(submission: Submission, here: str) -> str:
    """Return why the jobs of a submission cannot be asked for, and must not be touched, from here; empty if they can.

    Args:
        submission: The submission.
        here: Name of the cluster that this host's commands reach; empty if it is not known.
    """
    there = cluster_of(submission)
    if not there or not here or there == here:
        return ""
    return f"submitted to cluster {there}; this host's commands reach {here}"


def is_foreign(folder: Path, uid: int) -> bool:
    """Return whether somebody else made a submission, and Slurm may keep its jobs from this user.

    Args:
        folder: The submission's, which its submitter has made.
        uid: As whom Slurm is asked; the superuser is shown everything.
    """
    try:
        return uid not in (0, folder.stat().st_uid)
    except OSError:
        return False


def ask_slurm(slurm: Slurm, submissions: Mapping[str, Submission], wanted: Mapping[str, str], now: float) -> Told:
    """Ask for jobs.

    Args:
        slurm: Slurm's commands.
        submissions: Submissions with a job, by key.
        wanted: The key of its submission by job: only those that nothing else settles.
        now: Seconds since the epoch.
    """
    look = slurm.within(LOOK_S)
    try:
        controller = look.controller() if any(map(cluster_of, submissions.values())) else None
        here = controller.cluster if controller is not None else ""
        elsewhere = {key: why for key, one in submissions.items() if (why := why_elsewhere(one, here))}
        near = {key: one for key, one in submissions.items() if key not in elsewhere}
        own = {job: key for job, key in wanted.items() if key in near}
        told = _ask_here(look, controller, near, own, now) if near else Told(records={}, is_whole=True)
    except InfrastructureError as error:
        return Told(records=None, troubles=(say(error),))
    far = tuple(dict.fromkeys(elsewhere.values()))
    return Told(
        records=told.records,
        troubles=(*told.troubles, *far),
        is_whole=told.is_whole,
        unaccounted=told.unaccounted,
        elsewhere=elsewhere,
        arrays=_arrays(told.records or {}),
        hides_jobs=controller is not None and controller.hides_jobs,
        down=_ask_nodes(look, told.records or {}, own),
    )


def _arrays(records: Mapping[str, JobRecord]) -> frozenset[str]:
    return frozenset(job.partition("_")[0] for job, one in records.items() if "_" in job and one.source != "sacct")


def _ask_here(
    look: Slurm,
    controller: Controller | None,
    submissions: Mapping[str, Submission],
    wanted: Mapping[str, str],
    now: float,
) -> Told:
    """Ask the sources in order; see `ask_slurm`. A silent queue raises InfrastructureError."""
    keys = list(submissions)
    oldest = min(one.intended_at for one in submissions.values())
    since = oldest - CLOCK_SLACK_S
    records = newest(look.queue(keys), since)
    if _open(records, wanted) == []:
        return Told(records=records, is_whole=True)
    troubles, is_whole, unaccounted = [], True, ""
    asked = list(dict.fromkeys(wanted[job] for job in _open(records, wanted)))
    try:
        # The queue is the newer source. Accounting may go on to call a job that is gone pending or running.
        records = {**newest(_accounting(look, asked, wanted, now - oldest), since), **records}
    except InfrastructureError as error:
        if _keeps_no_accounts(look, controller):
            unaccounted = say(error)
        else:
            troubles.append(say(error))
            is_whole = False
    try:
        shown = _show(look, _open(records, wanted), wanted)
        records |= newest(shown, since)
    except InfrastructureError as error:
        troubles.append(say(error))
        is_whole = False
    return Told(records=records, troubles=tuple(troubles), is_whole=is_whole, unaccounted=unaccounted)


def _accounting(look: Slurm, keys: Sequence[str], wanted: Mapping[str, str], age_s: float) -> list[JobRecord]:
    """Return what accounting says of submissions; jobs of which it says nothing may have been cancelled while held."""
    found = look.accounting(keys, age_s)
    known = {record.job for record in found}
    unsaid = {key for job, key in wanted.items() if job not in known}
    if left := [key for key in keys if key in unsaid]:
        found += look.accounting(left, age_s, is_cancelled=True)
    return found


def _open(records: Mapping[str, JobRecord], wanted: Collection[str]) -> list[str]:
    """Return the jobs that the records do not settle: what accounting alone says counts only if it is an end."""

    def settles(record: JobRecord | None) -> bool:
        return record is not None and (record.source != "sacct" or record.stage is Stage.ENDED)

    return [job for job in wanted if not settles(records.get(job))]


def _show(look: Slurm, jobs: Sequence[str], wanted: Mapping[str, str]) -> list[JobRecord]:
    """Return what the controller shows of the jobs that are left, of an array all tasks at once."""
    numbers = {job.partition("_")[0]: wanted[job] for job in jobs}
    return [record for number, key in list(numbers.items())[:JOBS_SHOWN] for record in look.show(number, key)]


def _keeps_no_accounts(look: Slurm, controller: Controller | None) -> bool:
    """Return whether a controller says that there is no accounting database; it is asked if it was not before."""
    try:
        known = controller if controller is not None else look.controller()
    except InfrastructureError:
        return False
    return known.keeps_accounts is False


def _ask_nodes(look: Slurm, records: Mapping[str, JobRecord], wanted: Collection[str]) -> frozenset[str]:
    """Return the lists of nodes that jobs wait for, of which every node is down; none that cannot be told."""
    waiting = (record.reason for job, record in records.items() if job in wanted and record.stage is Stage.PENDING)
    down = set()
    for nodes in filter(None, dict.fromkeys(map(nodes_wanted, waiting))):
        try:
            states = look.node_states(nodes)
        except InfrastructureError:
            break
        if states and states <= DOWN:
            down.add(nodes)
    return frozenset(down)
