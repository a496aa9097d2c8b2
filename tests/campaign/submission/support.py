"""A desk over a scheduler in memory."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from campaign.errors import InfrastructureError
from campaign.frozen import read_frozen
from campaign.submission.desk import Desk
from campaign.submission.transport import Answer, Request
from campaign.watching.observation import Observer
from campaign.watching.processes import read_machine
from campaign.watching.scheduler import Slurm
from campaign.watching.state import Patience
from tests.support.jobs import JobHome

SUBMITTER = """
import os, signal, subprocess, sys, time
from pathlib import Path
from campaign.frozen import read_frozen
from campaign.paths import HomePaths
from campaign.submission import desk as desks

step, home, cluster, candidate = sys.argv[1:]
die = lambda *args, **kwargs: os.kill(os.getpid(), signal.SIGKILL)
if step == "intended":
    desks.write_plans = die
elif step == "planned":
    desks.SubmititTransport.submit = die
elif step == "transporting":
    given = desks.SubmititTransport.submit
    def submit(self, request, key):
        subprocess.Popen.wait = die
        return given(self, request, key)
    desks.SubmititTransport.submit = submit
elif step == "transported":
    append = desks._append
    desks._append = lambda ledger, act, data: die() if act == "submitted" else append(ledger, act, data)
paths = HomePaths(Path(home))
desk = desks.open_desk(paths, read_frozen(paths), time.time)
wish = desks.Wish(candidate=candidate, cluster=cluster)
order = desk.order(wish, desk.view(candidate), desk.array_limit(cluster))
desk.hand_over(wish, order, print)
"""
"""Submits, and is killed at one step."""


def _names(command: Sequence[str]) -> list[str]:
    """Return the names of the jobs that a command asks for."""
    return next(part for part in command if part.startswith("--name=")).removeprefix("--name=").split(",")


class KilledError(BaseException):
    """Stands for the end of the submitter: nothing that catches Exception may survive it."""


@dataclass(slots=True)
class Cluster:
    """Slurm in memory: takes arrays, and answers squeue, sacct, scancel and scontrol; strict about anything else."""

    limit: int = 1001
    name: str = "there"
    submit_limit: int | None = None
    """MaxSubmitJobs of the user's association; None for a cluster that enforces no limits."""
    tells_limits: bool = True
    """Whether sacctmgr answers."""
    states: Literal["PENDING", "RUNNING"] = "PENDING"
    """In which state jobs begin."""
    reason: str = "None"
    """What the queue says of every job."""
    node_states: dict[str, str] = field(default_factory=lambda: dict.fromkeys(("n1", "n2", "n3"), "idle"))
    """What sinfo says of every node of the one partition."""
    partition_limit: str = "infinite"
    hides_jobs: bool = False
    """Whether users see their own jobs alone; nobody who asks here is who submitted."""
    node: str = ""
    """Where the queue says that every job is."""
    jobs: dict[str, tuple[str, str, float]] = field(default_factory=dict)
    """Job id to name, state and time of submission."""
    requests: list[Request] = field(default_factory=list)
    tested: list[int] = field(default_factory=list)
    """Sizes of the arrays that sbatch was asked about."""
    names: dict[tuple[str, ...], str] = field(default_factory=dict)
    """Job id by the command line that a node would run."""
    before: Callable[[], None] | None = None
    """Called when a request arrives, before any job exists."""
    after: Callable[[], None] | None = None
    """Called when the jobs exist, before the submitter learns of it."""
    refusal: str = ""
    """What sbatch says instead of a job's number."""
    made_all_the_same: bool = False
    """Whether there is a job although sbatch failed."""
    down: bool = False
    accounts: Literal["none", "empty", "full", "failing"] = "empty"
    """Whether the cluster has an accounting database, and what that says: nothing, or every job that there was."""
    forgotten: dict[str, tuple[str, str, float]] = field(default_factory=dict)
    """Jobs that left the queue."""
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(100))

    # --- as a transport

    def submit(self, request: Request, key: str) -> Answer:
        if self.before:
            self.before()
        self.requests.append(request)
        if self.refusal and not self.made_all_the_same:
            return Answer(job="", array=False, process_start=0, error=self.refusal)
        if over := self._over_limit(request):
            return Answer(job="", array=False, process_start=0, error=over)
        job = str(next(self._ids))
        array = len(request.payloads) > 1
        for index in range(len(request.payloads)):
            name = f"{job}_{index}" if array else job
            self.jobs[name] = (key, self.states, time.time())
            self.names[request.payloads[index]] = name
        if self.after:
            self.after()
        if self.refusal:
            return Answer(job="", array=False, process_start=0, error=self.refusal)
        return Answer(job=job, array=array, process_start=0, error="")

    def _num_live(self) -> int:
        return sum(state in ("PENDING", "RUNNING") for _, state, _ in self.jobs.values())

    def _over_limit(self, request: Request) -> str:
        if self.submit_limit is None or self._num_live() + len(request.payloads) <= self.submit_limit:
            return ""
        return "sbatch: error: AssocMaxSubmitJobLimit\nBatch job submission failed: Job violates accounting/QOS policy"

    def objection(self, request: Request) -> str:
        self.tested.append(len(request.payloads))
        return self._over_limit(request)

    def show(self, request: Request) -> str:
        return f"#!/bin/bash\n# {len(request.payloads)} jobs\n"

    # --- as commands

    def run(self, command: Sequence[str]) -> str:
        if self.down:
            raise InfrastructureError(f"{command[0]} did not answer")
        answers = {
            "scontrol": self._scontrol,
            "scancel": self._scancel,
            "sacctmgr": self._sacctmgr,
            "sinfo": self._sinfo,
            "squeue": self._squeue,
            "sacct": self._sacct,
        }
        return answers[command[0]](command)

    def _sinfo(self, _command: Sequence[str]) -> str:
        limit, states = self.partition_limit, self.node_states
        return "".join(f"{node}|main*|{limit}|{state}|fast,{node}|(null)\n" for node, state in states.items())

    def _scontrol(self, command: Sequence[str]) -> str:
        if "hostnames" in command:
            return "\n".join(command[-1].split(","))
        if "partition" in command:
            return "PartitionName=main Default=YES QoS=N/A State=UP\n"
        if "job" in command:
            return self._show(command[-1])
        plugin = "none" if self.accounts == "none" else "slurmdbd"
        return (
            f"AccountingStorageType   = accounting_storage/{plugin}\n"
            f"ClusterName             = {self.name}\n"
            f"MaxArraySize = {self.limit}\n"
            f"PrivateData             = {'jobs,users' if self.hides_jobs else 'none'}\n"
            f"AccountingStorageEnforce = {'none' if self.submit_limit is None else 'associations,limits'}\n"
        )

    def _scancel(self, command: Sequence[str]) -> str:
        for job in command[2:]:
            name, _, at = self.jobs[job]
            self.jobs[job] = (name, "CANCELLED", at)
        return ""

    def _squeue(self, command: Sequence[str]) -> str:
        if command[-1] == "--format=%u|%a|%q|%P":
            return "me|acc|normal|main\n" * self._num_live()
        shown = {} if self.hides_jobs else self.jobs
        found = {job: one for job, one in shown.items() if one[0] in _names(command)}
        return "".join(
            f"{job}|{one[0]}|{one[1]}|{self.node}|{int(one[2])}|{int(one[2])}|{self.reason}\n"
            for job, one in found.items()
        )

    def _sacctmgr(self, command: Sequence[str]) -> str:
        if not self.tells_limits:
            raise InfrastructureError("sacctmgr failed with exit code 1")
        if command[4] == "qos":
            return "normal|||\n"
        return "acc||\n" if "user=" in command else f"acc|||normal|{self.submit_limit}|\n"

    def _show(self, number: str) -> str:
        shown = {} if self.hides_jobs else self.jobs
        found = {job: one for job, one in shown.items() if job.partition("_")[0] == number}
        if not found:
            raise InfrastructureError(
                "scontrol failed with exit code 1", why="slurm_load_jobs error: Invalid job id specified"
            )
        lines = []
        for job, (name, state, at) in found.items():
            array, _, index = job.partition("_")
            which = f"JobId=9{array}{index} ArrayJobId={array} ArrayTaskId={index}" if index else f"JobId={job}"
            said = f"JobName={name} JobState={state} Reason=None Dependency=(null) SubmitTime={int(at)}"
            lines.append(f"{which} {said}\n")
        return "".join(lines)

    def _sacct(self, command: Sequence[str]) -> str:
        if self.accounts == "none":
            raise InfrastructureError("sacct failed with exit code 1", why="Slurm accounting storage is disabled")
        if self.accounts == "failing":
            raise InfrastructureError("sacct failed with exit code 1", why="Problem talking to the database")
        known = {**self.jobs, **self.forgotten} if self.accounts == "full" else {}
        found = {job: one for job, one in known.items() if one[0] in _names(command)}
        return "".join(f"{job}|{one[0]}|{one[1]}|n1|{int(one[2])}|{int(one[2])}\n" for job, one in found.items())

    def environment(self, argv: tuple[str, ...]) -> dict[str, str]:
        """Return the variables from which the command line of a job learns which one it is."""
        job, _, index = self.names[argv].partition("_")
        array = {"SLURM_ARRAY_JOB_ID": job, "SLURM_ARRAY_TASK_ID": index} if index else {}
        return {"SLURM_JOB_ID": f"9{job}" if index else job, **array}

    def forget(self) -> None:
        """Let every job leave the queue, as the controller does some minutes after a job's end."""
        self.forgotten |= self.jobs
        self.jobs = {}

    def become(self, state: str) -> None:
        """Put every job into one state."""
        self.jobs = {job: (name, state, at) for job, (name, _, at) in self.jobs.items()}


def make_desk(home: JobHome, cluster: Cluster, clock: Callable[[], float] = time.time) -> Desk:
    """Return a desk that hands everything to a cluster in memory."""
    slurm, machine = Slurm(cluster.run), read_machine()
    patience = Patience(visible_s=0.0)
    return Desk(
        paths=home.paths,
        frozen=read_frozen(home.paths),
        slurm=slurm,
        transport=cluster,
        machine=machine,
        observer=Observer(paths=home.paths, slurm=slurm, machine=machine, patience=patience),
        clock=clock,
        visible_devices="",
        user="me",
    )
