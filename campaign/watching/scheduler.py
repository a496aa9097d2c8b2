"""Questions to Slurm: batched, bounded in time, in epoch seconds, with nothing of the caller's SLURM_* variables.

A question that fails is an `InfrastructureError`, never an empty answer: only a scheduler that answered and does not
know a job may make it absent.
"""

from __future__ import annotations

import enum
import math
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from campaign.errors import InfrastructureError

Run: TypeAlias = Callable[[Sequence[str]], str]

NAMES_PER_QUESTION = 50
"""Bounds the length of a command line and the load of one answer."""
TIMEOUT_S = 60.0
"""For one answer, whatever its size."""
LOOK_S = 120.0
"""For all answers of one look: no further question is asked after it."""
CLOCK_SLACK_S = 86400.0
"""How far the clocks of the controller and of this host may be apart: one of them may be set to another time zone's."""
JOBS_SHOWN = 50
"""Most jobs of a look that `scontrol` is asked for, one question each."""
DEFAULT_ARRAY_LIMIT = 1000
NO_ACCOUNTS = frozenset({"accounting_storage/none", "(null)", ""})
"""What ``AccountingStorageType`` is on a cluster without an accounting database; newer releases name no plugin."""

KEPT_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SLURM_CONF")
"""What of the caller's environment reaches a scheduler's commands, and so a job. SLURM_CPU_BIND, SBATCH_*, PYTHONPATH,
CUDA_VISIBLE_DEVICES and the rest would silently change where and how a job runs."""


class Stage(enum.Enum):
    """How far a job has come, from the scheduler's word for it."""

    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"
    UNKNOWN = "unknown"


_PENDING = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
)
_RUNNING = frozenset(
    {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING", "EXPEDITING"}
)
_ENDED = frozenset(
    {
        "COMPLETED",
        "FAILED",
        "CANCELLED",
        "TIMEOUT",
        "NODE_FAIL",
        "BOOT_FAIL",
        "LAUNCH_FAILED",
        "DEADLINE",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
    }
)


def stage_of(state: str) -> Stage:
    """Return the stage of a Slurm state; a word that is not known is UNKNOWN, never an end."""
    if state in _PENDING:
        return Stage.PENDING
    if state in _RUNNING:
        return Stage.RUNNING
    return Stage.ENDED if state in _ENDED else Stage.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """One job, or one task of an array, as one of Slurm's commands shows it."""

    job: str
    """``123`` or ``123_4``."""
    name: str
    state: str
    reason: str
    node: str
    submitted_at: float
    ended_at: float
    """0 while unknown."""
    source: str
    """``squeue``, ``sacct`` or ``scontrol``."""

    @property
    def stage(self) -> Stage:
        """How far it has come."""
        return stage_of(self.state)


def clean_environment(environment: Mapping[str, str], also: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables that may reach a scheduler's command.

    Args:
        environment: The caller's environment.
        also: Further names to keep, such as a side's ``pass_environment``.
    """
    kept = {*KEPT_VARIABLES, *also}
    return {name: value for name, value in environment.items() if name in kept}


def run_command(command: Sequence[str], environment: Mapping[str, str], timeout_s: float = TIMEOUT_S) -> str:
    """Run one of the scheduler's commands and return what it printed.

    Raises:
        InfrastructureError: It is not installed, failed, or did not answer in time.
    """
    # Epoch seconds: a local time would be ambiguous twice a year and wrong from another time zone. The tasks of an
    # array are cut off after 64 characters unless all are asked for.
    variables = {**clean_environment(environment), "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
    program = command[0]
    try:
        done = subprocess.run(
            command,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError as error:
        raise InfrastructureError(
            f"{program} is not installed here", hint="run on a login node of the cluster, or use --cluster local"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(
            f"{program} did not answer within {timeout_s:.0f} s", hint="try again later"
        ) from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise InfrastructureError(f"{program} failed with exit code {done.returncode}", why=said)
    return done.stdout


def _epoch(text: str) -> float:
    return float(text) if re.fullmatch(r"[0-9]+", text) else 0.0


def _state(text: str) -> str:
    """Return the state without additions such as ``CANCELLED by 1000``."""
    return text.split(" ", 1)[0].rstrip("+")


def tasks_of(job: str) -> Iterator[str]:
    """Yield the job ids that one shown id stands for: ``7_[0-2,5%4]`` is four tasks, ``7_[1-7:2]`` as well."""
    match = re.fullmatch(r"([0-9]+)_\[([0-9,:-]+)(?:%[0-9]+)?\]", job)
    if match is None:
        yield job
        return
    for part in match[2].split(","):
        ends, _, step = part.partition(":")
        first, _, last = ends.partition("-")
        for index in range(int(first), int(last or first) + 1, int(step or 1)):
            yield f"{match[1]}_{index}"


def parse_squeue(text: str) -> list[JobRecord]:
    """Parse ``squeue`` output in `SQUEUE_FORMAT`.

    Raises:
        InfrastructureError: A line has another shape.
    """
    records = []
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) != 7:
            raise InfrastructureError("squeue answered in a form that is not understood", why=line)
        job, name, state, node, submitted, ended, reason = fields
        records += [
            JobRecord(
                job=task,
                name=name,
                state=_state(state),
                reason="" if reason == "None" else reason,
                node=node,
                submitted_at=_epoch(submitted),
                ended_at=_epoch(ended) if stage_of(_state(state)) is Stage.ENDED else 0.0,
                source="squeue",
            )
            for task in tasks_of(job)
        ]
    return records


def parse_shown(text: str, key: str) -> list[JobRecord]:
    """Parse ``scontrol --oneliner show job``.

    Args:
        text: What it printed.
        key: The submission's key: a job with another name and another comment has only got the number.

    Raises:
        InfrastructureError: A line has another shape.
    """
    records: list[JobRecord] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        found: dict[str, str] = {}
        for match in re.finditer(r"(\w+)=(\S*)", line):
            found.setdefault(match[1], match[2])
        missing = [name for name in ("JobId", "JobName", "JobState", "SubmitTime") if name not in found]
        if missing:
            raise InfrastructureError("scontrol answered in a form that is not understood", why=line[:200])
        if key not in (found["JobName"], found.get("Comment")):
            continue
        records += _shown_records(found, line)
    return records


def _shown_records(found: Mapping[str, str], line: str) -> Iterator[JobRecord]:
    reason = re.search(r" Reason=(.*?) Dependency=", line)
    node = found.get("NodeList", "")
    job = found["JobId"]
    if "ArrayJobId" in found and "ArrayTaskId" in found:
        tasks = found["ArrayTaskId"]
        job = f"{found['ArrayJobId']}_{tasks if tasks.isdecimal() else f'[{tasks}]'}"
    for task in tasks_of(job):
        yield JobRecord(
            job=task,
            name=found["JobName"],
            state=_state(found["JobState"]),
            reason="" if reason is None or reason[1] == "None" else reason[1],
            node="" if node == "(null)" else node,
            submitted_at=_epoch(found["SubmitTime"]),
            ended_at=_epoch(found.get("EndTime", "")) if stage_of(_state(found["JobState"])) is Stage.ENDED else 0.0,
            source="scontrol",
        )


SQUEUE_FORMAT = "%i|%j|%T|%N|%V|%e|%r"
SACCT_FORMAT = "JobID,JobName,State,NodeList,Submit,End"


ACCOUNTS_FORMAT = "JobID,JobIDRaw,Cluster,JobName,User,State,ExitCode,Submit,Start,End,NodeList"
"""What is kept of a campaign's jobs: nothing before the name can hold the separator."""


def parse_sacct(text: str) -> list[JobRecord]:
    """Parse ``sacct --parsable2 --noheader`` output in `SACCT_FORMAT`.

    Raises:
        InfrastructureError: A line has another shape.
    """
    records = []
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) != 6:
            raise InfrastructureError("sacct answered in a form that is not understood", why=line)
        job, name, state, node, submitted, ended = fields
        if "." in job:
            continue
        records += [
            JobRecord(
                job=task,
                name=name,
                state=_state(state),
                reason=state if " " in state else "",
                node="" if node == "None assigned" else node,
                submitted_at=_epoch(submitted),
                ended_at=_epoch(ended),
                source="sacct",
            )
            for task in tasks_of(job)
        ]
    return records


def newest(records: Iterable[JobRecord], since: float) -> dict[str, JobRecord]:
    """Return each job's newest record, by time of submission, of those submitted since a time.

    Job ids are used again after a while, and a requeued job has one record for each time that it ran.
    """
    found: dict[str, JobRecord] = {}
    for record in records:
        known = found.get(record.job)
        if record.submitted_at >= since and (known is None or record.submitted_at >= known.submitted_at):
            found[record.job] = record
    return found


def _batches(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), NAMES_PER_QUESTION):
        yield names[start : start + NAMES_PER_QUESTION]


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """What a controller says of itself."""

    cluster: str
    """The cluster's name; empty if it does not tell."""
    array_limit: int
    """Most tasks of one array."""
    keeps_accounts: bool | None
    """Whether there is an accounting database at all, whether or not it answers; None if it does not tell."""
    enforces: frozenset[str]
    """What of accounting is enforced, such as ``limits``."""
    hides_jobs: bool = False
    """Whether it shows nobody but administrators the jobs of another user."""


def parse_controller(text: str) -> Controller:
    """Parse ``scontrol show config``."""

    def value(name: str) -> str | None:
        match = re.search(rf"^{name}\s*=[ \t]*(.*?)[ \t]*$", text, flags=re.MULTILINE)
        return match[1] if match else None

    plugin, limit = value("AccountingStorageType"), value("MaxArraySize") or ""
    return Controller(
        cluster=value("ClusterName") or "",
        # The largest index is one less than this number, and every array of ours begins at 0.
        array_limit=max(1, int(limit)) if limit.isdecimal() else DEFAULT_ARRAY_LIMIT,
        keeps_accounts=None if plugin is None else plugin not in NO_ACCOUNTS,
        enforces=frozenset((value("AccountingStorageEnforce") or "").lower().split(",")),
        hides_jobs="jobs" in (value("PrivateData") or "").lower().split(","),
    )


@dataclass(frozen=True, slots=True)
class Slurm:
    """Slurm's commands. `run` executes one and returns what it printed, or raises InfrastructureError."""

    run: Run
    cluster: str = ""
    """The cluster that is asked; empty for the one that this host's commands reach by themselves."""
    clock: Callable[[], float] = time.monotonic
    deadline: float = math.inf
    """By `clock`: no question is asked after it."""

    def within(self, seconds: float) -> Slurm:
        """Return the same commands for one look: after so many seconds no further question is asked."""
        return replace(self, deadline=self.clock() + seconds)

    def ask(self, command: Sequence[str]) -> str:
        """Run a command on the cluster that is meant, and return what it printed.

        Raises:
            InfrastructureError: It failed, or the time for the whole look is over.
        """
        program, *rest = command
        if not self.clock() < self.deadline:
            raise InfrastructureError(
                f"{program} was not asked", why="the answers before it took too long", hint="try again later"
            )
        # sacctmgr has no such option: it is asked about a cluster by name.
        chosen = [f"--clusters={self.cluster}"] if self.cluster and program != "sacctmgr" else []
        return self.run([program, *chosen, *rest])

    def queue(self, names: Sequence[str]) -> list[JobRecord]:
        """Return the jobs with these names that the controller knows, ended ones that it still remembers included."""
        records: list[JobRecord] = []
        for batch in _batches(names):
            # --all: a partition may have been hidden from this user since.
            command = ["squeue", "--noheader", "--all", "--array", "--states=all", f"--name={','.join(batch)}"]
            records += parse_squeue(self.ask([*command, f"--format={SQUEUE_FORMAT}"]))
        return records

    def accounting(self, names: Sequence[str], age_s: float, *, is_cancelled: bool = False) -> list[JobRecord]:
        """Return the jobs with these names in the accounting database, every run of a requeued one.

        Args:
            names: Job names.
            age_s: How long ago, in seconds, the oldest of them was submitted.
            is_cancelled: Whether those alone are wanted that were cancelled. Of them a job that was held until then is
                shown as well: unless it is asked for states, accounting leaves out what was never eligible to begin.
        """
        records: list[JobRecord] = []
        # Relative times have no time zone. Both ends allow for clocks that differ: what began after this host's now,
        # by the controller's clock, would not be shown.
        slack_s = int(CLOCK_SLACK_S)
        period = [f"--starttime=now-{int(max(age_s, 0.0)) + slack_s}seconds", f"--endtime=now+{slack_s}seconds"]
        period += ["--state=CANCELLED"] if is_cancelled else []
        for batch in _batches(names):
            command = ["sacct", "--noheader", "--parsable2", "--duplicates", "--allocations", *period]
            records += parse_sacct(self.ask([*command, f"--name={','.join(batch)}", f"--format={SACCT_FORMAT}"]))
        return records

    def show(self, job: str, key: str) -> list[JobRecord]:
        """Return what the controller shows of a job by its number, of an array each task; nothing if it has none.

        Args:
            job: The job's number; of an array, the array's.
            key: The submission's key, which the job has as name or comment.
        """
        try:
            text = self.ask(["scontrol", "--oneliner", "show", "job", job])
        except InfrastructureError as error:
            if "Invalid job id" in error.why:
                return []
            raise
        return parse_shown(text, key)

    def node_states(self, nodes: str) -> set[str]:
        """Return the states of some nodes, in lower case and without the marks behind them."""
        text = self.ask(["sinfo", "--noheader", "--Node", "--all", f"--nodes={nodes}", "--format=%T"])
        return {word.lower().rstrip("*~#!%$@^+-") for word in text.split()}

    def print_accounts(self, names: Sequence[str], jobs: Sequence[str], age_s: float) -> list[str]:
        """Return what accounting prints of this user's jobs and of those with some names or numbers, whosever they are.

        Args:
            names: Job names.
            jobs: Numbers: a job that was held until it was cancelled is shown only to who asks for it by number.
            age_s: How long ago, in seconds, the oldest of them was submitted.

        Returns:
            Lines in `ACCOUNTS_FORMAT`, the header first; none twice.
        """
        since = f"now-{int(max(age_s, 0.0)) + 3600}seconds"
        command = ["sacct", "--parsable2", "--duplicates", "--allocations", f"--starttime={since}"]
        chosen = [("--name", batch) for batch in _batches(names)] + [("--jobs", batch) for batch in _batches(jobs)]
        questions = [[], *(["--allusers", f"{option}={','.join(batch)}"] for option, batch in chosen)]
        lines: dict[str, None] = {ACCOUNTS_FORMAT.replace(",", "|"): None}
        for question in questions:
            text = self.ask([*command, *question, f"--format={ACCOUNTS_FORMAT}"])
            # A name may hold what splitlines takes for the end of a line.
            header, *rest = text.removesuffix("\n").split("\n")
            if header not in lines:
                raise InfrastructureError("sacct answered in a form that is not understood", why=header)
            lines.update(dict.fromkeys(rest))
        return list(lines)

    def controller(self) -> Controller:
        """Return what the controller says of itself.

        Raises:
            InfrastructureError: It does not answer.
        """
        return parse_controller(self.ask(["scontrol", "show", "config"]))

    def cluster_name(self) -> str:
        """Return the name of the cluster; empty if the controller does not tell."""
        try:
            return self.controller().cluster
        except InfrastructureError:
            return ""

    def keeps_accounts(self) -> bool:
        """Return whether this cluster has an accounting database at all, whether or not it answers now.

        Raises:
            InfrastructureError: The controller does not tell.
        """
        found = self.controller().keeps_accounts
        if found is None:
            raise InfrastructureError("scontrol does not say whether this cluster keeps accounts")
        return found

    def cancel(self, jobs: Sequence[str]) -> None:
        """End jobs; one that is already gone is no error."""
        for batch in _batches(jobs):
            self.ask(["scancel", "--quiet", *batch])

    def array_limit(self) -> int:
        """Return the most tasks that one array may have."""
        try:
            return self.controller().array_limit
        except InfrastructureError:
            return DEFAULT_ARRAY_LIMIT


def configured_cluster(resources: Mapping[str, Any]) -> str:
    """Return the cluster that frozen resources name; empty for the one that this host's commands reach."""
    return str(resources.get("slurm", {}).get("cluster") or "")


def local_slurm(environment: Mapping[str, str] | None = None, cluster: str = "") -> Slurm:
    """Return Slurm as this host's commands reach it; another cluster than its own by that cluster's name."""
    variables = dict(os.environ if environment is None else environment)
    return Slurm(lambda command: run_command(command, variables), cluster)
