"""The harness in a bundle: goes on with allocations on a machine that the driver does not reach.

An allocation is one machine, in which several commands may run one after the other. Each takes down what it was and
what it made. An attempt that has a receipt is not made again, nor is one that was begun and has none.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..common import plan
from ..common.endings import Ending
from ..common.layout import AllocationFolder, allocation_folder, attempt_folder
from ..common.storage import read_regular, sha256_bytes, sync_folder, write_new
from ..common.strict import Fields, dump_json, parse_json, readable
from ..processes import signals
from ..processes.marks import Mark
from . import machine
from .context import Context
from .deadline import Deadline
from .frozen import WatchedFrozen
from .harnesslog import HarnessLog
from .parent import (
    ALL_DONE,
    CANNOT_RUN,
    DONE,
    Account,
    Job,
    complain,
    conclude,
    ended_bytes,
    find_standing,
    make_attempt,
    mark_of,
    prepare,
    run_all,
    started_bytes,
    working,
)
from .relocation import Place
from .standing import Standing

FORMAT = "request/1"
NO_TIME = 3
"""Exit code of a command that left something for want of time alone."""
DEADLINE = "deadline"
"""Reason of a command that left before its time was over, because the next attempt did not fit."""
_NEAR_END_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What one command asks for."""

    bundle: str
    place: Place
    allocations: Mapping[str, Mapping[str, float | None]]
    """By id, in order: what each attempt is expected to take."""
    stop_at: float
    """When its time is over, on the monotonic clock of this boot."""
    argv: tuple[str, ...]


def _expected(value: Any) -> dict[str, float | None]:
    if type(value) is not dict or any(type(one) not in (float, type(None)) for one in value.values()):
        raise ValueError("request.allocations: expected_s is not a table of seconds")
    return value


def parse_request(data: bytes) -> Request:
    """Parse what run.py wrote.

    Raises:
        ValueError: It is no such document.
    """
    fields = Fields(parse_json(data), "request")
    if fields.text("format") != FORMAT:
        raise ValueError(f"request: not of format {FORMAT}")
    allocations = {}
    for value in fields.items("allocations"):
        one = Fields(value, "request.allocations")
        allocations[one.text("id")] = _expected(one.table("expected_s"))
        one.done()
    request = Request(
        bundle=fields.text("bundle"),
        place=Place(home=Path(fields.text("home")), python=fields.text_table("python"), data=fields.text_table("data")),
        allocations=allocations,
        stop_at=fields.number("stop_at"),
        argv=fields.texts("argv"),
    )
    fields.done()
    return request


# --- who calls --------------------------------------------------------------------------------------------------------


def _check_machine(folder: AllocationFolder, mark: Mark) -> int:
    """Return the number of this command, if the allocation may be gone on with here.

    Raises:
        ValueError: It has ended, or was begun on another machine, or in another boot.
        OSError: What is there cannot be read.
    """
    if folder.ended.exists():
        raise ValueError("the allocation has ended: nothing more is made in it")
    here, number = (machine.read_host_name(), mark.boot_id), 1
    while folder.call(number).exists():
        _check_same(folder.call(number), here)
        number += 1
    if folder.started.exists():
        _check_same(folder.started, here)
    return number


def _check_same(path: Path, here: tuple[str, str]) -> None:
    fields = Fields(parse_json(read_regular(path)), path.name)
    there = fields.text("host"), fields.text("boot_id")
    if there != here:
        text = f"begun on {there[0]} in boot {there[1]}, and this is {here[0]} in boot {here[1]}"
        raise ValueError(f"{text}: an allocation is one machine, and nothing more of it is made")


def _call_bytes(allocation: plan.Allocation, request: Request, number: int, mark: Mark) -> bytes:
    return dump_json(
        {
            "format": "call/1",
            "allocation": allocation.id,
            "bundle": request.bundle,
            "number": number,
            "host": machine.read_host_name(),
            "boot_id": mark.boot_id,
            "pid": mark.pid,
            "process_start": mark.process_start,
            "argv": [readable(one) for one in request.argv],
            "home": readable(str(request.place.home)),
            "python": dict(request.place.python),
            "data": dict(request.place.data),
            "at": time.time(),
        }
    )


def _call_ended_bytes(allocation: plan.Allocation, number: int, reason: str, account: Account) -> bytes:
    return dump_json(
        {
            "format": "call_ended/1",
            "allocation": allocation.id,
            "number": number,
            "reason": reason,
            "detail": readable(account.detail),
            "at": time.time(),
            "wall_s": time.monotonic() - account.began,
            "sides_s": account.sides_s,
            "receipts": account.receipts,
        }
    )


# --- what is made -----------------------------------------------------------------------------------------------------


def _is_begun(allocation: plan.Allocation, planned: plan.PlannedAttempt) -> bool:
    folder = attempt_folder(allocation.home, planned.slot, planned.attempt, planned.segment)
    return folder.start.exists() or folder.receipt.exists()


def _refuse_unfit(context: Context) -> None:
    """Refuse a machine that lacks what the attempts need, before an attempt is used up.

    Raises:
        ValueError: It does.
    """
    if changes := context.data.describe_changes():
        raise ValueError(f"{changes}; nothing was begun: say where the data set is with --data NAME=PATH")
    device = context.place.device
    if context.protocol.device == "cuda" and not device.devices:
        raise ValueError(f"no GPU is seen here ({device.identity.partition(':')[2]}); nothing was begun")
    for runnable in context.allocation.sides.values():
        context.workspace.snapshot(runnable, context.signals.check)


def watch(home: Path) -> WatchedFrozen:
    """Take down what no side may touch, beside that which none may in any home.

    Until a bundle is home, nobody else knows what is in it. A side that could spoil its list, its program, a plan or
    what the commands took down would have all of it refused, and another attempt after that.

    Args:
        home: The bundle's home.

    Raises:
        OSError: It cannot be looked at.
    """
    listed = [home.parent / name for name in ("bundle.json", "run.py")]
    listed += [home / "frozen" / name for name in ("baseline", "candidates")]
    for root in sorted((home / "allocations").iterdir()):
        folder = AllocationFolder(root)
        listed += [folder.plan, folder.started, folder.ended, folder.calls]
    return WatchedFrozen.read(home, *listed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Visit:
    """One command's work on one allocation."""

    allocation: plan.Allocation
    job: Job
    log: HarnessLog
    account: Account
    standing: Standing
    deadline: Deadline
    expected_s: Mapping[str, float | None]

    def make(self) -> str:
        """Make the attempts that are left, as far as the time reaches; return the reason of the command's leaving.

        Raises:
            EndedError: Those that are left cannot be made.
            InterruptedAttemptError: A signal came between two of them.
        """
        left = [planned for planned in self.allocation.attempts if not _is_begun(self.allocation, planned)]
        if not left:
            return ALL_DONE
        self.standing.check()
        prepared = prepare(self.allocation, self.job, self.log, self.standing)
        context = replace(prepared, makes_inputs=True, frozen=watch(self.allocation.home))
        _refuse_unfit(context)
        with contextlib.closing(context.further):
            for planned in left:
                if objection := self.deadline.objection(planned, self.expected_s):
                    self.account.detail, self.deadline.is_over = objection, True
                    return DEADLINE
                self._make_one(context, planned)
        return ALL_DONE

    def _make_one(self, context: Context, planned: plan.PlannedAttempt) -> None:
        began = time.monotonic()
        outcome = make_attempt(context, planned, self.account)
        seconds = time.monotonic() - began
        self.deadline.note(planned, seconds)
        _say(planned.name, f"{outcome.ending} ({seconds:.1f} s) {outcome.reason}")


def _say(name: str, text: str) -> None:
    """Tell whoever started the command, in one line."""
    words = " ".join(text.split())
    line = f"{name}: {words}"[:500].encode("utf-8", "backslashreplace") + b"\n"
    # Whether anybody reads it, or the disk behind it has room, is nothing to a measurement.
    with contextlib.suppress(OSError):
        os.write(1, line)


# --- one allocation ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Sum:
    """What all commands on an allocation have written so far."""

    wall_s: float = 0.0
    sides_s: float = 0.0
    receipts: dict[str, str] = field(default_factory=dict)


def _sum_up(folder: AllocationFolder, number: int) -> _Sum:
    """Add up what the commands so far say that they did; one that was killed says nothing."""
    whole = _Sum()
    for path in map(folder.call_ended, range(1, number + 1)):
        if path.exists():
            fields = Fields(parse_json(read_regular(path)), path.name)
            whole.wall_s += fields.number("wall_s")
            whole.sides_s += fields.number("sides_s")
            whole.receipts |= fields.text_table("receipts")
    return whole


def _settle(allocation: plan.Allocation, folder: AllocationFolder, number: int) -> None:
    """Write ended.json once nothing more can be made: over all commands, whose receipts are as they wrote them."""
    if not all(_is_begun(allocation, planned) for planned in allocation.attempts):
        return
    whole, lost = _sum_up(folder, number), []
    for planned in allocation.attempts:
        path = attempt_folder(allocation.home, planned.slot, planned.attempt, planned.segment).receipt
        if path.exists():
            whole.receipts.setdefault(planned.name, sha256_bytes(read_regular(path)))
        elif planned.name not in whole.receipts:
            lost.append(planned.name)
    account = Account(began=time.monotonic() - whole.wall_s, sides_s=whole.sides_s, receipts=whole.receipts)
    if lost:
        account.detail = f"begun by a command that was killed, and left without a receipt: {', '.join(lost)}"
    write_new(folder.ended, ended_bytes(allocation, Ending.LOST if lost else ALL_DONE, account))


def _begin(folder: AllocationFolder, allocation: plan.Allocation, request: Request, job: Job) -> tuple[int, bytes]:
    """Take down that this command goes on with an allocation; return its number there and what was written.

    Raises:
        ValueError: It may not.
        OSError: It cannot be written, or another command begins at the same moment.
    """
    mark = mark_of(job)
    number = _check_machine(folder, mark)
    folder.calls.mkdir(exist_ok=True)
    sync_folder(folder.root)
    written = _call_bytes(allocation, request, number, mark)
    write_new(folder.call(number), written)
    if not folder.started.exists():
        write_new(folder.started, started_bytes(allocation, job, mark))
    return number, written


def go_on(name: str, request: Request, job: Job, deadline: Deadline) -> int:
    """Go on with one allocation; return an exit code.

    Args:
        name: Its id.
        request: What the command asks for.
        job: What all allocations of this command share.
        deadline: The end of the command's time.
    """
    account = Account(began=time.monotonic())
    folder = allocation_folder(request.place.home, name)
    try:
        allocation = request.place.relocate(plan.parse_allocation(read_regular(folder.plan), name))
        number, written = _begin(folder, allocation, request, job)
    except (OSError, ValueError) as error:
        complain(folder.root, str(error))
        return CANNOT_RUN
    log = HarnessLog(folder.log)
    visit = _Visit(
        allocation=allocation,
        job=job,
        log=log,
        account=account,
        standing=find_standing(folder.call(number), written, job, mark_of(job)),
        deadline=deadline,
        expected_s=request.allocations[name],
    )
    reason = conclude(visit.make, job, log, account)
    log.write(f"command {number} left: {reason} {account.detail}".rstrip())
    write_new(folder.call_ended(number), _call_ended_bytes(allocation, number, reason, account))
    _settle(allocation, folder, number)
    if reason not in (ALL_DONE, DEADLINE):
        complain(folder.root, f"{reason}: {account.detail}")
    return {ALL_DONE: DONE, DEADLINE: NO_TIME}.get(reason, CANNOT_RUN)


def explainer(environment: Mapping[str, str], deadline: Deadline) -> signals.Explain:
    """Return what explains a signal: SIGUSR2 at the end of the command's time is run.py's; Slurm sends others."""
    on_slurm = "SLURM_JOB_ID" in environment
    base = signals.slurm_explainer(environment, time.time) if on_slurm else signals.explain_locally

    def explain(number: signal.Signals) -> tuple[Ending, str]:
        if number is signal.SIGUSR2 and deadline.left_s <= _NEAR_END_S:
            return Ending.TIME_LIMIT, "the time that the command was given is over"
        return base(number)

    return explain


def main(path: str) -> int:
    """Go on with the allocations of a request; return the exit code.

    Args:
        path: The request.
    """
    request = parse_request(read_regular(Path(path)))
    environment = dict(os.environ)
    identity: dict[str, object] = {**machine.NO_JOB, "scheduler": "detached", "job_id": request.bundle}
    deadline = Deadline(stop_at=request.stop_at)
    with working(environment, identity, explainer(environment, deadline)) as job:
        return run_all(job, (partial(_next, name, request, job, deadline) for name in request.allocations))


def _next(name: str, request: Request, job: Job, deadline: Deadline) -> int:
    # What comes after an attempt for which there was no time has none, either.
    return NO_TIME if deadline.is_over else go_on(name, request, job, deadline)
