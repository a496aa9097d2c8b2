"""The parent: runs the attempts of one allocation, or of several in turn, and leaves each in order."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ..common import plan
from ..common.endings import EndedError, Ending, InterruptedAttemptError, is_no_space
from ..common.layout import AllocationFolder, protocol_path
from ..common.storage import write_new
from ..common.strict import dump_json, readable
from ..processes import signals
from ..processes.keeper import become_subreaper, shield
from ..processes.marks import Mark, own_mark
from . import machine
from .attempt import Outcome, run_attempt
from .conditions import Conditions
from .context import Context, Further
from .data import WatchedData
from .frozen import WatchedFrozen
from .gpu_states import GpuReader
from .harnesslog import HarnessLog
from .images import Images
from .receipts import Place
from .snapshot import TreeError
from .standing import Standing
from .surroundings import Surroundings
from .workspace import Workspace

DONE = 0
ALREADY_STARTED = 3
CANNOT_RUN = 4
_SIGNALLED = 128
ALL_DONE = "done"
"""Reason in ended.json when every attempt was made; any other reason is the ending of those that were not."""


@dataclass(slots=True, kw_only=True)
class Account:
    """What ended.json will say of an allocation; filled as it goes."""

    began: float
    sides_s: float = 0.0
    receipts: dict[str, str] = field(default_factory=dict)
    """Name of an attempt or segment to the SHA-256 of its receipt. No side runs any more when they are published."""
    detail: str = ""
    """Why attempts were not made, in words; empty if all were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What all allocations of one job share."""

    environment: Mapping[str, str]
    identity: dict[str, object]
    workspace: Workspace
    signals: signals.Signals
    conditions: Conditions
    images: Images
    harness_source: Path


def complain(path: Path, text: str) -> None:
    """Say on the job's own log what is wrong with an allocation."""
    print(f"{path}: {text}", file=sys.stderr, flush=True)  # noqa: T201 - the job's own log


def mark_of(job: Job) -> Mark:
    """Return by what this harness and all that it starts are known."""
    return own_mark(machine.read_boot_id(), str(job.identity["job_id"]))


def started_bytes(allocation: plan.Allocation, job: Job, mark: Mark) -> bytes:
    """Return the bytes of started.json."""
    return dump_json(
        {
            "format": "started/1",
            "allocation": allocation.id,
            "job": job.identity,
            "host": machine.read_host_name(),
            "boot_id": mark.boot_id,
            "pid": mark.pid,
            "process_start": mark.process_start,
            "at": time.time(),
        }
    )


def ended_bytes(allocation: plan.Allocation, reason: str, account: Account) -> bytes:
    """Return the bytes of ended.json."""
    wall_s = time.monotonic() - account.began
    return dump_json(
        {
            "format": "ended/1",
            "allocation": allocation.id,
            "reason": reason,
            "detail": readable(account.detail),
            "at": time.time(),
            "wall_s": wall_s,
            "sides_s": account.sides_s,
            "overhead_s": wall_s - account.sides_s,
            "receipts": account.receipts,
        }
    )


def _check_attempt(attempt: plan.PlannedAttempt, protocol: plan.Protocol) -> None:
    """Check that the protocol knows what an attempt is to run.

    Raises:
        ValueError: It does not.
    """
    is_of_recipe = attempt.kind in (*plan.OF_RECIPES, "pilot") and protocol.recipe(attempt.workload) is not None
    is_of_workload = attempt.kind not in plan.OF_RECIPES and attempt.workload in protocol.workloads
    if not (is_of_recipe or is_of_workload):
        what = "recipe" if attempt.kind in plan.OF_RECIPES else "workload"
        raise ValueError(f"{attempt.slot}: the protocol has no {what} {attempt.workload}")
    if attempt.kind in plan.CASES and protocol.workloads[attempt.workload].processes > 1:
        raise ValueError(f"{attempt.slot}: a case of several processes, which none has")
    if attempt.kind == "pilot" and attempt.order == ("candidate",) and is_of_workload:
        several = protocol.workloads[attempt.workload].processes > 1
        if several != bool(attempt.examples_sha256):
            raise ValueError(f"{attempt.slot}: the digest of the baseline's examples belongs to several processes")
    if attempt.kind in plan.CASES and protocol.numerical is None:
        raise ValueError(f"{attempt.slot}: the protocol declares no numerical family")
    if protocol.convergence is not None and attempt.segment > protocol.convergence.max_segments:
        most = protocol.convergence.max_segments
        raise ValueError(f"{attempt.slot}: segment {attempt.segment}, and the protocol allows {most}")


def prepare(allocation: plan.Allocation, job: Job, log: HarnessLog, standing: Standing) -> Context:
    """Check that protocol and harness are the frozen ones, and look at the machine and the data.

    Raises:
        ValueError, TreeError, OSError: Nothing can run here.
        InterruptedAttemptError: A signal came while the data were hashed.
    """
    protocol = plan.read_protocol(protocol_path(allocation.home), allocation.protocol_sha256)
    job.workspace.harness(job.harness_source, allocation.harness_sha256)
    for attempt in allocation.attempts:
        _check_attempt(attempt, protocol)
    device = machine.read_device(protocol.device, job.environment)
    return Context(
        allocation=allocation,
        protocol=protocol,
        place=Place(
            job=dict(job.identity),
            host=machine.read_host(job.environment),
            device=device,
            threads=protocol.threads,
        ),
        workspace=job.workspace,
        harness_source=job.harness_source,
        environment=job.environment,
        signals=job.signals,
        conditions=job.conditions,
        log=log,
        data=WatchedData.hashed(allocation.data, job.signals.check),
        frozen=WatchedFrozen.read(allocation.home, standing.started),
        standing=standing,
        images=job.images,
        surroundings=Surroundings(gpus=GpuReader(device.devices)),
        further=Further(),
    )


def make_attempt(context: Context, planned: plan.PlannedAttempt, account: Account) -> Outcome:
    """Make one attempt, if the allocation may go on.

    Raises:
        EndedError: It may not.
        InterruptedAttemptError: A signal came before it.
    """
    context.signals.check()
    context.standing.check()
    if changes := context.conditions.changes():
        text = f"{'; '.join(changes)}: changed by a side, and cannot be restored"
        raise EndedError(Ending.HARNESS_ERROR, text)
    outcome = run_attempt(context, planned)
    account.sides_s += outcome.sides_s
    account.receipts[planned.name] = outcome.receipt_sha256
    context.log.write(f"{planned.name}: {outcome.ending} {outcome.reason}".rstrip())
    return outcome


def _run_attempts(allocation: plan.Allocation, job: Job, log: HarnessLog, account: Account, standing: Standing) -> str:
    """Make all attempts; return the reason for ended.json.

    Raises:
        EndedError: Those that are left cannot be made.
        InterruptedAttemptError: A signal came between two of them.
    """
    # Before data are hashed that nothing will read.
    standing.check()
    context = prepare(allocation, job, log, standing)
    with contextlib.closing(context.further):
        for planned in allocation.attempts:
            make_attempt(context, planned, account)
    # A signal during the last attempt left nothing undone.
    return ALL_DONE


def conclude(work: Callable[[], str], job: Job, log: HarnessLog, account: Account) -> str:
    """Do the work of an allocation; return why it ended.

    Args:
        work: Makes the attempts, and returns the reason.
        job: The job.
        log: Where it is told what stopped it.
        account: Gets the detail.
    """
    try:
        return work()
    except InterruptedAttemptError:
        ending, account.detail = job.signals.meaning()
        return ending
    except EndedError as error:
        log.write(f"stopped: {error}")
        account.detail = error.reason
        return error.ending
    except (ValueError, TreeError) as error:
        log.write(f"cannot run: {error}")
        account.detail = str(error)
        return Ending.HARNESS_ERROR
    except Exception as error:  # noqa: BLE001 - an error of the harness's own ends the allocation, and says so
        log.trace(error)
        account.detail = f"{type(error).__name__}: {error}"
        return Ending.NO_SPACE if is_no_space(error) else Ending.HARNESS_ERROR


def find_standing(started: Path, written: bytes, job: Job, mark: Mark) -> Standing:
    """Return what an allocation is as it begins on this node.

    Args:
        started: Its started.json, or what a command wrote that goes on with it.
        written: What that must go on saying.
        job: The job.
        mark: Of this harness.
    """

    def pause(seconds: float) -> None:
        job.signals.wait(seconds)
        job.signals.check()

    return Standing(
        started=started,
        written=written,
        job=job.identity,
        mark=mark,
        host=machine.read_host_name(),
        conditions=job.conditions,
        pause=pause,
    )


def run_allocation(path: Path, job: Job) -> int:
    """Run one allocation, unless a job has begun it before.

    Args:
        path: Its allocation.json.
        job: What all allocations of this job share.

    Returns:
        An exit code.
    """
    account = Account(began=time.monotonic())
    try:
        allocation = plan.parse_allocation(path.read_bytes(), path.parent.name)
    except (OSError, ValueError) as error:
        complain(path, str(error))
        return CANNOT_RUN
    folder = AllocationFolder(path.parent)
    mark = mark_of(job)
    written = started_bytes(allocation, job, mark)
    try:
        write_new(folder.started, written)
    except FileExistsError:
        complain(path, f"another job has begun it: {folder.started} is there; nothing was touched")
        return ALREADY_STARTED
    log = HarnessLog(folder.log)
    standing = find_standing(folder.started, written, job, mark)
    reason = conclude(lambda: _run_attempts(allocation, job, log, account, standing), job, log, account)
    log.write(f"ended: {reason}")
    write_new(folder.ended, ended_bytes(allocation, reason, account))
    return DONE if reason == ALL_DONE else CANNOT_RUN


@contextlib.contextmanager
def working(environment: Mapping[str, str], identity: dict[str, object], explain: signals.Explain) -> Iterator[Job]:
    """Become the harness of a job: hear its signals, and have a private folder, which goes when the context is left.

    Args:
        environment: This process's own.
        identity: The scheduler's names for the job.
        explain: What a signal means.
    """
    heard = signals.Signals()
    heard.install(explain)
    become_subreaper()
    shield()
    workspace = Workspace.create()
    try:
        yield Job(
            environment=environment,
            identity=identity,
            workspace=workspace,
            signals=heard,
            conditions=Conditions.now(),
            images=Images(),
            harness_source=Path(__file__).resolve().parent.parent,
        )
    finally:
        workspace.remove()


def run_all(job: Job, work: Iterator[Callable[[], int]]) -> int:
    """Run allocations one after the other until one is interrupted; return the exit code."""
    code = DONE
    for run in work:
        if job.signals.received is None:
            code = max(code, run())
    return code if job.signals.received is None else _SIGNALLED + job.signals.received


def main(paths: list[str]) -> int:
    """Run allocations one after the other; return the exit code.

    Args:
        paths: Their allocation.json files.
    """
    environment = dict(os.environ)
    identity = machine.read_job(environment)
    on_slurm = identity["scheduler"] == "slurm"
    explain = signals.slurm_explainer(environment, time.time) if on_slurm else signals.explain_locally
    with working(environment, identity, explain) as job:
        return run_all(job, (partial(run_allocation, Path(path), job) for path in paths))
