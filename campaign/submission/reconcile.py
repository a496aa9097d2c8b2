"""Finding out what became of submissions whose submitter was killed before it could say.

An intent without outcome is looked for where its job would be: in the transport's own answer, among the processes of
this host, in what the job itself wrote, in the queue and in the accounting database. Found is recorded as submitted,
surely absent as not submitted, and what cannot be told is an error: it is never guessed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from campaign.documents import Started
from campaign.errors import InfrastructureError, StateError
from campaign.paths import HomePaths
from campaign.submission.acts import NotSubmitted, Submission, Submitted
from campaign.submission.transport import CHILD, read_answer
from campaign.watching.asking import HIDDEN, is_foreign, why_elsewhere
from campaign.watching.processes import Machine, Process, find_processes, is_alive
from campaign.watching.scheduler import JobRecord, Slurm

CHILD_GRACE_S = 120.0
"""How long to wait for a transport that outlived its driver."""
ELSEWHERE_GRACE_S = 900.0
"""Age after which a submission made on another host cannot still be under way there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciler:
    """Where to look."""

    paths: HomePaths
    slurm: Slurm
    machine: Machine
    sleep: Callable[[float], None] = time.sleep
    uid: int = field(default_factory=os.geteuid)
    """As whom Slurm is asked."""

    def outcome(self, submission: Submission, now: float) -> Submitted | NotSubmitted:
        """Return what became of a submission.

        Args:
            submission: One without a job.
            now: Seconds since the epoch.

        Raises:
            InfrastructureError: The scheduler did not answer.
            StateError: It cannot be told from this host.
        """
        if submission.intent.cluster == "detached":
            # The ledger has a bundle before it appears: one that it does not have never did.
            return NotSubmitted(submission=submission.key, reason="the command ended before the bundle was written")
        self._wait_for_child(submission, now)
        found = self._from_answer(submission)
        if found is None:
            found = (
                self._on_slurm(submission, now) if submission.intent.cluster == "slurm" else self._locally(submission)
            )
        if found is not None:
            return found
        return NotSubmitted(submission=submission.key, reason=self._why_absent(submission))

    def _why_absent(self, submission: Submission) -> str:
        answer = read_answer(self.paths.submission(submission.key))
        if answer is not None and answer.error:
            return answer.error
        place = (
            "neither the queue nor accounting" if submission.intent.cluster == "slurm" else "no process of this host"
        )
        return f"the submitter ended before it; {place} knows {submission.key}"

    def _wait_for_child(self, submission: Submission, now: float) -> None:
        """Wait until the transport's child process is gone: until then nothing can be told."""
        intent = submission.intent
        if (intent.host, intent.boot_id) != (self.machine.host, self.machine.boot_id):
            if intent.host != self.machine.host and not (now - submission.intended_at > ELSEWHERE_GRACE_S):
                raise StateError(
                    f"a submission of {intent.host} may still be under way",
                    why=f"{submission.key} was intended {now - submission.intended_at:.0f} s ago on another host",
                    hint=f"run campaign submit on {intent.host}, or here in {ELSEWHERE_GRACE_S / 60:.0f} minutes",
                )
            return
        children = list(find_processes(f"{CHILD}\0submit\0{self.paths.submission(submission.key).request}"))
        # sbatch outlives a child that is killed, and may still be talking to the controller.
        children += list(find_processes(f"sbatch\0{self.paths.submission(submission.key).root}/"))
        waited = 0.0
        while any(is_alive(child) for child in children):
            if waited >= CHILD_GRACE_S:
                raise InfrastructureError(
                    "a submission is still under way",
                    where=str(self.paths.submission(submission.key).log),
                    why=f"process {children[0].pid} has not ended within {CHILD_GRACE_S:.0f} s",
                    hint="try again later",
                )
            self.sleep(0.1)
            waited += 0.1

    def _submitted(
        self, submission: Submission, job: str, source: str, *, array: bool = False, start: int = 0
    ) -> Submitted:
        return Submitted(
            submission=submission.key,
            cluster=submission.intent.cluster,
            job=job,
            array=array,
            host=submission.intent.host,
            boot_id=submission.intent.boot_id,
            process_start=start,
            source=source,
            cluster_name=submission.intent.cluster_name,
        )

    def _from_answer(self, submission: Submission) -> Submitted | None:
        answer = read_answer(self.paths.submission(submission.key))
        if answer is None or answer.error:
            return None
        return self._submitted(submission, answer.job, "answer", array=answer.array, start=answer.process_start)

    def _require_here(self, submission: Submission) -> None:
        """Refuse to look for a submission on another cluster than its own: it would look as if it had never been."""
        name = submission.intent.cluster_name
        here = self.slurm.controller().cluster if name else ""
        if why := why_elsewhere(submission, here):
            raise StateError(
                f"it is open whether a submission reached Slurm: {submission.key}",
                why=why,
                hint=f"campaign submit on a login node of {name}; nothing is submitted or recorded until then",
            )

    def _require_shown(self, submission: Submission) -> None:
        """Refuse to take a job for absent that Slurm would not show to this user."""
        if is_foreign(self.paths.submission(submission.key).root, self.uid) and self.slurm.controller().hides_jobs:
            raise StateError(
                f"it is open whether a submission reached Slurm: {submission.key}",
                why=HIDDEN,
                hint="campaign submit by whoever made it; nothing is submitted or recorded until then",
            )

    def _on_slurm(self, submission: Submission, now: float) -> Submitted | None:
        self._require_here(submission)
        records = self.slurm.queue([submission.key])
        if not records and (started := self._started(submission)) is not None:
            identity = started.job
            job = identity.array_job_id or identity.job_id
            return self._submitted(submission, job, "started.json", array=bool(identity.array_task_id))
        records = [one for one in records or self._accounting(submission, now) if not _is_stillborn(one)]
        if not records:
            self._require_shown(submission)
            return None
        newest = max(records, key=lambda record: record.submitted_at)
        job, _, index = newest.job.partition("_")
        return self._submitted(submission, job, newest.source, array=bool(index))

    def _accounting(self, submission: Submission, now: float) -> list[JobRecord]:
        """Return what accounting knows; nothing where a site has none: then the queue's answer is all there is.

        Raises:
            InfrastructureError: It does not answer: a job that ran meanwhile would look as if it had never been.
        """
        try:
            return self.slurm.accounting([submission.key], now - submission.intended_at)
        except InfrastructureError as error:
            if not self.slurm.keeps_accounts():
                return []
            raise InfrastructureError(
                f"it is open whether a submission reached Slurm: {submission.key}",
                why=f"the queue does not hold it, and accounting does not answer: {error.what}: {error.why}",
                hint="campaign submit again once sacct answers; nothing is submitted until then",
            ) from error

    def _started(self, submission: Submission) -> Started | None:
        for planned in submission.intent.allocations:
            path = self.paths.allocation(planned.allocation).started
            if path.exists():
                return Started.read(path)
        return None

    def _locally(self, submission: Submission) -> Submitted | None:
        folder = self.paths.submission(submission.key).root
        controller = next(find_processes(f"submitit.local._local\0{folder}"), None)
        if controller is not None and submission.intent.host == self.machine.host:
            return self._submitted(submission, str(controller.pid), "process", start=controller.start)
        started = self._started(submission)
        if started is None:
            return None
        harness = Process(pid=started.pid, start=started.process_start)
        return self._submitted(submission, str(harness.pid), "started.json", start=harness.start)


def _is_stillborn(record: JobRecord) -> bool:
    """Return whether a record is what a refusal leaves: of a request that no node can meet Slurm keeps a failed job.

    A job that failed by itself had a node.
    """
    return record.state == "FAILED" and not record.node
