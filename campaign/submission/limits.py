"""How many jobs the scheduler takes now: the limits on what a user, an account and a QOS may have in the queue.

Every task of an array counts as one job. A limit on what runs at the same time is none of these: it makes jobs wait.
What cannot be asked is no limit here; sbatch knows it, and refuses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from campaign.errors import InfrastructureError
from campaign.watching.scheduler import LOOK_S, Slurm

REFUSALS = (
    "Job violates accounting/QOS policy",
    "Slurm temporarily unable to accept job",
    "Resource temporarily unavailable",
)
"""What of sbatch's words means that it would take fewer jobs, or the same ones later, if no other limit is named."""
_NAMED = re.compile(r"\b(?:Assoc|QOS)[A-Z][A-Za-z]*")
"""A limit by name: of these, those on submitted jobs have that in their names, such as AssocMaxSubmitJobLimit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How many jobs may be submitted now."""

    num_jobs: int | None = None
    """None: no limit is known."""
    why: str = ""
    """Which limit that is, and how far it is used up."""
    is_enforced: bool = False
    """Whether the controller keeps to such limits: then sbatch is asked first whether it would take an array."""

    def capped(self, most: int | None) -> Room:
        """Return the room if no more than some jobs shall be tried; None for no such wish."""
        if most is None or (self.num_jobs is not None and self.num_jobs <= most):
            return self
        return replace(self, num_jobs=most, why=self.why or f"Slurm refused more than {most} job(s)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """One job that is in the queue."""

    user: str
    account: str
    qos: str
    partition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit on the jobs in the queue."""

    name: str
    most: int
    counts: Callable[[Queued], bool]
    """Whether a job counts."""
    question: tuple[str, ...]
    """Which jobs of the queue may count, as `squeue` is asked for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """As whom jobs are submitted."""

    user: str
    account: str
    partition: str
    qos: str
    partition_qos: str


class NoRoomError(InfrastructureError):
    """Slurm takes no more jobs, or not as many at a time; nothing of them is used up.

    Args:
        what: One sentence that says what is wrong.
        num_jobs: How many were too many.
        where: The place; see `CampaignError`.
        why: The reason.
        hint: What to try next.
    """

    def __init__(self, what: str, num_jobs: int, *, where: str = "", why: str = "", hint: str = "") -> None:
        super().__init__(what, where=where, why=why, hint=hint)
        self.num_jobs = num_jobs


def is_refusal(said: str) -> bool:
    """Return whether sbatch's words name a limit on the jobs in the queue."""
    named = _NAMED.findall(said)
    return any("Submit" in name for name in named) or (not named and any(word in said for word in REFUSALS))


def fit(room: Room, array_limit: int) -> int:
    """Return the size of arrays with which the room is used up best; 0 where there is none.

    As few arrays as the controller allows, all of one size: at most one job less than there are arrays is left over.
    """
    if room.num_jobs is None:
        return array_limit
    arrays = -(-room.num_jobs // array_limit)
    return room.num_jobs // arrays if arrays else 0


def read_room(slurm: Slurm, resources: Mapping[str, Any], user: str) -> Room:
    """Ask how many jobs a user may submit now; no limit where there is no association database, or it is silent.

    Args:
        slurm: Slurm's commands.
        resources: The frozen ``[slurm]`` table.
        user: Name of the user.

    Raises:
        InfrastructureError: The controller does not answer.
    """
    look = slurm.within(LOOK_S)
    controller = look.controller()
    if not user or not controller.enforces & {"limits", "safe", "all"}:
        return Room()
    try:
        limits = list(_limits(look, resources, user, controller.cluster))
    except InfrastructureError:
        return Room(is_enforced=True)
    queue = {question: _queued(look, question) for question in {one.question for one in limits}}
    rooms = [(max(0, one.most - sum(map(one.counts, queue[one.question]))), one) for one in limits]
    if not rooms:
        return Room(is_enforced=True)
    num_jobs, tightest = min(rooms, key=lambda pair: pair[0])
    why = f"{tightest.name} is {tightest.most} and {tightest.most - num_jobs} of that are used up"
    return Room(num_jobs=num_jobs, why=why, is_enforced=True)


def _table(look: Slurm, *command: str) -> list[list[str]]:
    """Return what sacctmgr answers, as fields."""
    return [line.split("|") for line in look.ask(["sacctmgr", "--noheader", "--parsable2", *command]).splitlines()]


def _number(text: str) -> int | None:
    """Return a limit; None for none: sacctmgr prints nothing, and some releases -1."""
    return int(text) if text.isdecimal() else None


def _limits(look: Slurm, resources: Mapping[str, Any], user: str, cluster: str) -> Iterator[Limit]:
    """Yield the limits that count for a user, as the controller chooses them: a QOS before the association."""
    whose = [f"cluster={cluster}"] if cluster else []
    partition, partition_qos = _partition(look, str(resources.get("partition") or ""))
    fields = "format=Account,Partition,DefaultQOS,QOS,MaxSubmit,GrpSubmit"
    rows = _table(look, "show", "associations", "where", f"user={user}", *whose, fields)
    account = str(resources.get("account") or "") or _default_account(look, rows, user)
    own = [row for row in rows if len(row) == 6 and row[0] == account and row[1] in ("", partition)]
    if not own:
        return
    _, at, default, qoses, max_submit, grp_submit = max(own, key=lambda row: bool(row[1]))
    qos = str(resources.get("qos") or "") or default or (qoses if qoses and "," not in qoses else "normal")
    who = Identity(user=user, account=account, partition=at, qos=qos, partition_qos=partition_qos)
    of_qos = _qos_limits(look, who, partition)
    yield from of_qos.values()
    fields = "format=Account,User,GrpSubmit"
    above = _table(look, "show", "associations", "where", f"account={account}", "user=", *whose, fields)
    if _PER_USER not in of_qos and (most := _number(max_submit)) is not None:
        yield _of_association("MaxSubmitJobs of the association", most, who)
    if _GROUP not in of_qos and (most := _number(grp_submit)) is not None:
        yield _of_association("GrpSubmitJobs of the association", most, who)
    for row in above:
        is_right = _GROUP not in of_qos and len(row) == 3 and row[:2] == [account, ""]
        if is_right and (most := _number(row[2])) is not None:
            yield Limit(
                name=f"GrpSubmitJobs of the account {account}",
                most=most,
                counts=lambda job: job.account == account,
                question=(f"--account={account}",),
            )


def _of_association(name: str, most: int, who: Identity) -> Limit:
    def counts(job: Queued) -> bool:
        return (job.user, job.account) == (who.user, who.account) and who.partition in ("", job.partition)

    return Limit(name=name, most=most, counts=counts, question=(f"--user={who.user}",))


_GROUP, _PER_USER, _PER_ACCOUNT = range(3)


def _qos_limits(look: Slurm, who: Identity, partition: str) -> dict[int, Limit]:
    """Return the limits of the partition's QOS and of the job's, by kind; the partition's comes first."""
    names = [name for name in dict.fromkeys((who.partition_qos, who.qos)) if name]
    rows = _table(
        look, "show", "qos", "where", f"name={','.join(names)}", "format=Name,GrpSubmit,MaxSubmitPU,MaxSubmitPA"
    )
    found = {row[0]: [_number(text) for text in row[1:]] for row in rows if len(row) == 4}
    limits: dict[int, Limit] = {}
    for name in names:
        for kind, most in enumerate(found.get(name, [])):
            if most is not None:
                limits.setdefault(kind, _of_qos(name, kind, most, who, partition if name == who.partition_qos else ""))
    return limits


def _of_qos(name: str, kind: int, most: int, who: Identity, partition: str) -> Limit:
    what = ("GrpSubmitJobs", "MaxSubmitJobsPerUser", "MaxSubmitJobsPerAccount")[kind]
    question = ((), (f"--user={who.user}",), (f"--account={who.account}",))[kind]

    def counts(job: Queued) -> bool:
        is_own = kind == _GROUP or (job.user == who.user if kind == _PER_USER else job.account == who.account)
        return is_own and (job.qos == name or (bool(partition) and job.partition == partition))

    return Limit(name=f"{what} of the QOS {name}", most=most, counts=counts, question=question)


def _default_account(look: Slurm, rows: Sequence[Sequence[str]], user: str) -> str:
    accounts = {row[0] for row in rows}
    if len(accounts) == 1:
        return accounts.pop()
    found = _table(look, "show", "user", "where", f"name={user}", "format=DefaultAccount")
    return found[0][0] if found else ""


def _partition(look: Slurm, wanted: str) -> tuple[str, str]:
    """Return the partition that a job goes to, and its QOS; empty where several are named, or it has none."""
    if "," in wanted:
        return "", ""
    text = look.ask(["scontrol", "--oneliner", "show", "partition", *([wanted] if wanted else [])])
    for line in text.splitlines():
        name, default = re.search(r"\bPartitionName=(\S+)", line), re.search(r"\bDefault=(\S+)", line)
        if name and (name[1] == wanted if wanted else default is not None and default[1] == "YES"):
            qos = re.search(r"\bQoS=(\S+)", line)
            return name[1], "" if qos is None or qos[1] == "N/A" else qos[1]
    return wanted, ""


def _queued(look: Slurm, question: Sequence[str]) -> list[Queued]:
    """Return the jobs in the queue that a question is about, each task of an array."""
    states = "--states=PENDING,RUNNING,SUSPENDED"
    text = look.ask(["squeue", "--noheader", "--all", "--array", states, *question, "--format=%u|%a|%q|%P"])
    jobs = []
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) != 4:
            raise InfrastructureError("squeue answered in a form that is not understood", why=line)
        user, account, qos, partition = fields
        jobs.append(Queued(user=user, account=account, qos=qos, partition=partition))
    return jobs
