"""Looking: what the jobs left on disk and what their schedulers say, as facts for `campaign.watching.state`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from campaign.documents import Ended, JobIdentity, Protocol, Receipt, Start, Started
from campaign.errors import EvidenceError, StateError
from campaign.files import read_regular, sha256_bytes
from campaign.keys import AttemptKey
from campaign.paths import AllocationPaths, HomePaths
from campaign.submission.acts import Allocation, Attempt, History, Submission
from campaign.watching.asking import HIDDEN, Told, ask_slurm, is_foreign
from campaign.watching.extension import Extension, read_extension
from campaign.watching.hopeless import why_hopeless
from campaign.watching.processes import Machine, Process, is_alive
from campaign.watching.scheduler import Slurm, Stage
from campaign.watching.state import (
    AllocationFacts,
    AttemptFacts,
    AttemptStatus,
    Job,
    JobStage,
    Patience,
    SlotStatus,
    resolve_attempt,
    resolve_slots,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything that is known of a campaign's slots at one moment."""

    history: History
    slots: Mapping[str, SlotStatus]
    """By name, in the order of the protocol: the baseline's and those of one candidate."""
    attempts: Mapping[AttemptKey, AttemptStatus]
    """Every attempt of every candidate; of a run every segment."""
    troubles: tuple[str, ...]
    """Schedulers that did not answer, and why."""
    extension: Extension = field(default_factory=Extension)
    """Which extensions are due for the candidate."""
    elsewhere: tuple[str, ...] = ()
    """Why jobs that may be under way cannot be asked for from here: they went to another cluster."""


def require_here(view: View, what: str) -> None:
    """Refuse what needs the word of the cluster to which jobs went that may be under way, where another one is reached.

    Args:
        view: What is known of all slots.
        what: What is not done.

    Raises:
        StateError: There are such jobs.
    """
    if view.elsewhere:
        raise StateError(
            f"jobs of this campaign are under way on another cluster: {what}",
            why="; ".join(view.elsewhere),
            hint="give the command on a login node of that cluster, or with its SLURM_CONF",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Observer:
    """Where to look, and with what."""

    paths: HomePaths
    slurm: Slurm
    machine: Machine
    patience: Patience = field(default_factory=Patience)
    uid: int = field(default_factory=os.geteuid)
    """As whom schedulers are asked."""

    def view(self, protocol: Protocol, candidate: str, history: History, now: float) -> View:
        """Look at everything and judge it.

        Args:
            protocol: The frozen protocol.
            candidate: Id of the candidate whose slots are wanted; empty for none.
            history: What the ledger says.
            now: Seconds since the epoch.
        """
        facts = {
            attempt.key: self._read(history, attempt) for slot in history.slots for attempt in history.attempts(slot)
        }
        seen = self._jobs(history, _unresolved(history, facts), now)
        places = {name: self._allocation(history, name, seen, now) for name in history.allocations}
        # A job may have sealed an attempt after its files were read and ended before it was asked for: look again.
        open_keys = [key for key, found in facts.items() if found.receipt is None]
        facts |= {key: self._read(history, history.attempt(key)) for key in open_keys}
        attempts = {
            key: resolve_attempt(
                history.attempt(key),
                history.allocations[history.attempt(key).allocation],
                found,
                places[history.attempt(key).allocation],
                now=now,
                patience=self.patience,
            )
            for key, found in facts.items()
        }
        extension = read_extension(self.paths, protocol, candidate, history.reported)
        slots = resolve_slots(protocol, candidate, history, attempts, extension.due)
        return View(
            history=history,
            slots=slots,
            attempts=attempts,
            troubles=seen.troubles,
            extension=extension,
            elsewhere=seen.elsewhere,
        )

    def _read(self, history: History, attempt: Attempt) -> AttemptFacts:
        facts = read_attempt(self.paths, attempt, history.sealed.get(attempt.key.receipt_name, ""))
        return only_returned(facts, attempt, history) if history.is_detached(attempt.allocation) else facts

    def _ended(self, history: History, name: str) -> Ended | None:
        """Return how an allocation ended; one in a bundle has not before the ledger says that this came back."""
        path = self.paths.allocation(name).ended
        if history.is_detached(name):
            returned = history.ingested.get(history.allocations[name].submission)
            if returned is None or path.relative_to(self.paths.root).as_posix() not in returned.records:
                return None
        return _read_ended(self.paths.allocation(name))

    def _allocation(self, history: History, name: str, seen: _Jobs, now: float) -> AllocationFacts:
        allocation = history.allocations[name]
        submission = history.submissions[allocation.submission]
        job = seen.jobs.get(name)
        if job is None:
            # Every attempt of it has a receipt or an ending: nobody was asked.
            known = submission.job_of(allocation.index)
            return AllocationFacts(
                started=None, ended=None, job=Job(job=known, stage=JobStage.UNKNOWN), last_sign_at=now
            )
        folder, started = self.paths.allocation(name), seen.started.get(name)
        signs = [submission.submitted_at, started.at if started else 0.0, _modified(folder.log), _modified(folder.root)]
        folders = [self.paths.attempt(one.slot, one.attempt, one.segment) for one in allocation.attempts]
        signs += [_modified(path) for own in folders for path in (own.root, own.checkpoints)]
        return AllocationFacts(started=started, ended=self._ended(history, name), job=job, last_sign_at=max(signs))

    def _jobs(self, history: History, names: Sequence[str], now: float) -> _Jobs:
        """Return the jobs of some allocations, as far as those who run them tell."""
        jobs: dict[str, Job] = {}
        on_slurm: list[Allocation] = []
        by_submission: dict[str, Job] = {}
        for allocation in (history.allocations[name] for name in names):
            submission = history.submissions[allocation.submission]
            if submission.submitted is not None and submission.submitted.cluster == "slurm":
                on_slurm.append(allocation)
                continue
            if submission.key not in by_submission:
                by_submission[submission.key] = self._other_job(submission)
            jobs[allocation.allocation] = by_submission[submission.key]
        started = {name: one for name in names if (one := _read_started(self.paths.allocation(name))) is not None}
        told = self._ask(history, on_slurm, started, now) if on_slurm else Told(records={}, is_whole=True)
        for allocation in on_slurm:
            submission = history.submissions[allocation.submission]
            is_hidden = told.hides_jobs and is_foreign(self.paths.submission(submission.key).root, self.uid)
            jobs[allocation.allocation] = slurm_job(
                submission, allocation, started.get(allocation.allocation), told, is_hidden=is_hidden
            )
        return _Jobs(
            jobs=jobs,
            started=started,
            troubles=told.troubles,
            elsewhere=tuple(dict.fromkeys(told.elsewhere.values())),
        )

    def _other_job(self, submission: Submission) -> Job:
        """Return the job of a submission that Slurm does not have."""
        if submission.submitted is None:
            reason = submission.not_submitted.reason if submission.not_submitted else ""
            return Job(job="", stage=JobStage.NONE, reason=reason)
        return bundle_job(submission) if submission.is_detached else local_job(submission, self.machine)

    def _ask(
        self, history: History, allocations: Sequence[Allocation], started: Mapping[str, Started], now: float
    ) -> Told:
        submissions = {one.submission: history.submissions[one.submission] for one in allocations}
        wanted = {
            job_id(submissions[one.submission], one, started.get(one.allocation)): one.submission for one in allocations
        }
        return ask_slurm(self.slurm, submissions, wanted, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Jobs:
    """What is known of the allocations that nothing else settles."""

    jobs: Mapping[str, Job]
    started: Mapping[str, Started]
    """Who runs those that began."""
    troubles: tuple[str, ...]
    elsewhere: tuple[str, ...]


def _unresolved(history: History, facts: Mapping[AttemptKey, AttemptFacts]) -> list[str]:
    """Return the allocations of which an attempt has neither a receipt nor an ending in the ledger."""
    names: dict[str, None] = {}
    for key, found in facts.items():
        attempt = history.attempt(key)
        if found.receipt is None and attempt.ended is None:
            names.setdefault(attempt.allocation)
    return list(names)


def local_job(submission: Submission, machine: Machine) -> Job:
    """Return the state of a local job: whether its controller still runs, if this host and boot can tell."""
    data = submission.submitted
    if data is None:
        raise ValueError(f"{submission.key} has no job")
    if data.host != machine.host:
        reason = f"it runs on {data.host}: only that host can tell whether it still does"
        return Job(job=data.job, stage=JobStage.UNKNOWN, reason=reason, source="process")
    process = Process(pid=int(data.job), start=data.process_start)
    if data.boot_id == machine.boot_id and is_alive(process):
        return Job(job=data.job, stage=JobStage.RUNNING, state="RUNNING", node=data.host, source="process")
    return Job(job=data.job, stage=JobStage.ENDED, state="gone", node=data.host, source="process")


def bundle_job(submission: Submission) -> Job:
    """Return what stands for the job of a bundle: nobody can be asked about it."""
    data = submission.submitted
    if data is None:
        raise ValueError(f"{submission.key} has no bundle")
    written = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(submission.submitted_at))
    place = f"{data.host}:{data.place}" if data.place else data.host
    reason = f"bundle {data.job}, written {written} at {place}"
    return Job(job=data.job, stage=JobStage.AWAY, reason=reason, source="bundle")


def job_name(identity: JobIdentity) -> str:
    """Return the id under which Slurm shows a job: of a task of an array, both numbers."""
    if identity.array_job_id and identity.array_task_id:
        return f"{identity.array_job_id}_{identity.array_task_id}"
    return identity.job_id


_STAGES = {
    Stage.PENDING: JobStage.PENDING,
    Stage.RUNNING: JobStage.RUNNING,
    Stage.ENDED: JobStage.ENDED,
    Stage.UNKNOWN: JobStage.UNKNOWN,
}


def job_id(submission: Submission, allocation: Allocation, started: Started | None) -> str:
    """Return the id of an allocation's job.

    Should a submission that was given up have reached the queue after all, the job that began is the one that counts.
    """
    return job_name(started.job) if started is not None else submission.job_of(allocation.index)


def slurm_job(
    submission: Submission, allocation: Allocation, started: Started | None, told: Told, *, is_hidden: bool = False
) -> Job:
    """Return the state of an allocation's Slurm job.

    Args:
        submission: Its submission.
        allocation: The allocation.
        started: Who runs it, if anybody began.
        told: What Slurm said.
        is_hidden: Whether it would not show the job to whoever asks.
    """
    job = job_id(submission, allocation, started)
    if why := told.elsewhere.get(submission.key):
        return Job(job=job, stage=JobStage.UNKNOWN, reason=why, source="scontrol")
    if told.records is None:
        return Job(job=job, stage=JobStage.UNKNOWN, reason="; ".join(told.troubles), source="squeue")
    record = told.records.get(job)
    if record is None and started is None and told.is_whole and job.partition("_")[0] in told.arrays:
        # A task that is cancelled while it waits leaves its array without a trace; the others are still known. Where
        # no accounting says that it never ran, it may have been unable to start the harness.
        state = "" if told.troubles or told.unaccounted else "CANCELLED"
        return Job(job=job, stage=JobStage.ENDED, state=state, reason="not in its array", source="squeue")
    outdated = record is not None and record.source == "sacct" and record.stage is not Stage.ENDED
    if record is None or outdated:
        said = f"not in the queue; accounting says {record.state}" if record is not None else "not in the queue"
        reason = "; ".join(filter(None, [said, HIDDEN if is_hidden else "", told.unaccounted, *told.troubles]))
        # Accounting that is only silent may know how a job ended that the queue has forgotten.
        stage = JobStage.ABSENT if told.is_whole and not is_hidden else JobStage.UNKNOWN
        return Job(job=job, stage=stage, reason=reason, source=record.source if record else "squeue")
    return Job(
        job=job,
        stage=_STAGES[record.stage],
        state=record.state,
        reason=record.reason or (f"state {record.state}" if record.stage is Stage.UNKNOWN else ""),
        node=record.node,
        ended_at=record.ended_at,
        source=record.source,
        hopeless=why_hopeless(record.reason, told.down) if record.stage is Stage.PENDING else "",
    )


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _refresh(folder: Path) -> None:
    """Make a network file system look again: opening a folder fetches its attributes, and forgets absent names."""
    try:
        os.scandir(folder).close()
    except OSError:
        return


def _names(folder: Path) -> frozenset[str]:
    """Return what is in a folder, as a network file system has it now; nothing if there is none.

    Raises:
        OSError: It cannot be listed.
    """
    try:
        with os.scandir(folder) as entries:
            return frozenset(entry.name for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()


def _read_started(folder: AllocationPaths) -> Started | None:
    """Return who runs an allocation; None if nobody began, or what is there cannot be read: it only names a job."""
    _refresh(folder.root)
    try:
        return Started.read(folder.started) if folder.started.exists() else None
    except (EvidenceError, OSError):
        return None


def _read_ended(folder: AllocationPaths) -> Ended | None:
    """Return how an allocation ended; None if it has not, or what is there cannot be read: then its job tells."""
    try:
        return Ended.read(folder.ended) if folder.ended.exists() else None
    except (EvidenceError, OSError):
        return None


def _check_receipt(receipt: Receipt, attempt: Attempt) -> str:
    said = AttemptKey(receipt.slot, receipt.attempt, receipt.segment)
    if (said, receipt.allocation) == (attempt.key, attempt.allocation):
        return ""
    return f"the receipt in its folder is that of {said.text} in {receipt.allocation}"


def _check_seen(seen: str, digest: str) -> str:
    if not seen or digest == seen:
        return ""
    return f"a receipt with SHA-256 {seen} was seen there before, now {digest or 'there is none'}"


def _read_seen(paths: HomePaths, attempt: Attempt, seen: str) -> AttemptFacts | None:
    """Return what an attempt left of which the ledger names the receipt, and the receipt the start record.

    Nothing more of it can follow, and what does not agree with its receipt is a collection's to find. None if it is not
    the receipt that was seen, or cannot be used.
    """
    try:
        places = paths.attempt_documents(attempt.slot, attempt.attempt, attempt.segment)
        start, data = map(read_regular, places)
    except EvidenceError:
        return None
    if sha256_bytes(data) != seen:
        return None
    receipt = Receipt.parse_again(data)
    if sha256_bytes(start) != receipt.start_sha256 or _check_receipt(receipt, attempt):
        return None
    node = Start.parse_again(start).host.node
    return AttemptFacts(began=True, node=node, receipt=receipt, receipt_sha256=seen, problem="")


def read_attempt(paths: HomePaths, attempt: Attempt, seen: str = "") -> AttemptFacts:
    """Read what an attempt left so far.

    A document that cannot be used is a problem, never an ending; so is one that its allocation did not leave, or one
    that it left and that is gone.

    Args:
        paths: The home.
        attempt: The attempt as the ledger knows it.
        seen: SHA-256 of the receipt that an earlier command saw there; empty for none.
    """
    if seen and (facts := _read_seen(paths, attempt, seen)) is not None:
        return facts
    folder = paths.attempt(attempt.slot, attempt.attempt, attempt.segment)
    # First of all: every receipt that it names is there already.
    ended = _read_ended(paths.allocation(attempt.allocation))
    began, node, receipt, problem, digest = False, "", None, "", ""
    try:
        names = _names(folder.root)
        began = folder.start.name in names
        if began:
            node = Start.read(folder.start).host.node
        if folder.receipt.name in names:
            data = read_regular(folder.receipt)
            digest = sha256_bytes(data)
            receipt = Receipt.parse(data, where=str(folder.receipt))
            problem = _check_receipt(receipt, attempt)
        if ended is not None and not problem:
            problem = ended.contradiction(attempt.key.receipt_name, digest)
        problem = problem or _check_seen(seen, digest)
    except EvidenceError as error:
        problem = f"{error.where}: {error.what}"
    except OSError as error:
        problem = f"{error.filename or folder.root}: cannot be looked at: {error.strerror}"
    is_usable = receipt is not None and not problem
    return AttemptFacts(
        began=began,
        node=node,
        receipt=receipt if is_usable else None,
        receipt_sha256=digest if is_usable else "",
        problem=problem,
    )


NOT_INGESTED = "it is in the home, and no act of the ledger says that it was ingested"


def only_returned(facts: AttemptFacts, attempt: Attempt, history: History) -> AttemptFacts:
    """Return what an attempt of a bundle left, as far as the ledger says that it came back.

    Files alone may be those of an ingestion that was killed, or somebody's own.

    Args:
        facts: What is there.
        attempt: The attempt.
        history: What the ledger says.
    """
    is_sealed = attempt.key.receipt_name in history.sealed
    is_known = is_sealed if facts.receipt is not None else history.is_returned(attempt.key)
    if is_known or not (facts.began or facts.receipt is not None or facts.problem):
        return facts
    problem = f"{NOT_INGESTED}: campaign bundle ingest PATH, once more"
    return replace(facts, receipt=None, receipt_sha256="", problem=facts.problem or problem)


def live_local_jobs(history: History, machine: Machine, allocations: Iterable[str]) -> list[str]:
    """Return the local jobs that still run on this host, among those of some allocations."""
    keys = {history.allocations[name].submission for name in allocations}
    submissions = [history.submissions[key] for key in sorted(keys)]
    return [
        submission.submitted.job
        for submission in submissions
        if submission.submitted is not None
        and submission.submitted.cluster == "local"
        and local_job(submission, machine).stage is JobStage.RUNNING
    ]
