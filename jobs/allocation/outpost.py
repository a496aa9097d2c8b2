"""The harness on a further node of an allocation: runs the ranks of that node for the parent, which asks step by step.

It hears no signals, reads nothing but the parent's commands, and ends everything that it started once the parent says
so, says anything unasked, or is gone. It writes nothing into the home.
"""

from __future__ import annotations

import base64
import contextlib
import os
import select
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ..common import plan
from ..common.endings import EndedError, Ending, InterruptedAttemptError, is_no_space
from ..common.layout import AllocationFolder
from ..common.storage import read_regular, sha256_bytes
from ..common.strict import plain_unicode
from ..measurement.crew import Member, RankRecord, gather, running_rank
from ..measurement.session import SideRecord
from ..processes.keeper import become_subreaper, shield
from ..processes.ranks import parse_rank
from ..processes.serving import SideError, serve
from ..processes.sidelog import HeldLog
from ..processes.signals import Signals
from ..processes.steps import Step
from . import machine
from .conditions import Conditions
from .context import Context, set_up, undisturbed
from .harnesslog import HarnessLog
from .images import Images
from .parent import Job, find_standing, mark_of, prepare
from .snapshot import TreeError
from .telling import tell_block, tell_rank, tell_result
from .workspace import Workspace

T = TypeVar("T")
_PART_BYTES = 1 << 20
"""Of the output of the ranks, in one answer."""


class _Parent(Signals):
    """Hears nothing but the parent, which is silent while it waits for an answer.

    Args:
        fd: Where its commands come from.
    """

    def __init__(self, fd: int) -> None:
        super().__init__()
        self.fd = fd

    def check(self) -> None:
        """Raise if the parent is gone, or wants nothing further.

        Raises:
            InterruptedAttemptError: It is, or does.
        """
        if select.select([self.fd], [], [], 0)[0]:
            raise InterruptedAttemptError("the parent's end")

    def wait(self, seconds: float) -> None:
        """Wait for the parent, but not longer."""
        select.select([self.fd], [], [], seconds)


class _ErrorLog(HarnessLog):
    """Writes to standard error, which the parent puts into its own log."""

    def __init__(self) -> None:
        super().__init__(Path("/dev/stderr"))

    def write(self, text: str) -> None:
        """Write a line."""
        print(text, file=sys.stderr, flush=True)  # noqa: T201 - the parent's log


class Outpost:
    """What answers the parent.

    Args:
        fd: Where its commands come from.
    """

    def __init__(self, fd: int) -> None:
        self.is_closed = False
        self._environment = dict(os.environ)
        self._parent = _Parent(fd)
        self._workspace = Workspace.create()
        self._context: Context | None = None
        self._log = HeldLog(0)
        self._told: list[RankRecord] = []
        self._members: list[Member] = []
        self._run = contextlib.ExitStack()
        self._have_left = False
        """Whether the ranks have ended by themselves, as they were told to."""

    def ready(self) -> dict[str, Any]:
        """Say where this is."""
        return {"node": str(machine.read_host(self._environment)["node"]), "pid": os.getpid()}

    def shut(self) -> None:
        """End and remove everything, however far it got."""
        with contextlib.suppress(Exception):
            self._break_off(InterruptedAttemptError("the end"))
        with contextlib.suppress(OSError):
            self._workspace.remove()

    # --- commands -----------------------------------------------------------------------------------------------------

    def do_prepare(self, command: dict[str, Any]) -> dict[str, Any]:
        """Check that harness, protocol and data are the frozen ones here as well; say what this node is."""
        context = self._guard(lambda: self._prepare(Path(command["plan"]), command["sha256"]))
        self._context = context
        return {
            "host": context.place.host,
            "device": context.place.device.identity,
            "devices": list(context.place.device.devices),
        }

    def do_open(self, command: dict[str, Any]) -> dict[str, Any]:
        """Start the ranks of one side that belong here."""
        self._guard(lambda: self._open(command))
        return {}

    def do_step(self, command: dict[str, Any]) -> dict[str, Any]:
        """Let all ranks make one step; return what each of them answered, and the clock around it."""
        return self._guard(lambda: self._step(command))

    def do_look(self, _command: dict[str, Any]) -> dict[str, Any]:
        """Say under what conditions the ranks here are measured, as they are now."""
        return {"state": self._guard(self._look)}

    def do_end(self, _command: dict[str, Any]) -> dict[str, Any]:
        """End the ranks if they live, and judge their ends; return what is known of them."""
        ended: EndedError | None = None
        try:
            self._guard(self._run.close if self._have_left else self._kill)
        except SideError as error:
            ended = EndedError(Ending(error.kind), error.text)
        self._run, self._members = contextlib.ExitStack(), []
        return {
            "told": [tell_rank(one) for one in self._told],
            "ended": None if ended is None else {"ending": ended.ending.value, "reason": ended.reason},
        }

    def do_output(self, _command: dict[str, Any]) -> dict[str, Any]:
        """Return the next part of what the ranks printed; empty at the end."""
        return {"data": base64.b64encode(self._log.fetch(_PART_BYTES)).decode("ascii")}

    def do_close(self, _command: dict[str, Any]) -> dict[str, Any]:
        """End for good."""
        self.shut()
        self.is_closed = True
        return {}

    # --- what they do -------------------------------------------------------------------------------------------------

    def _guard(self, work: Callable[[], T]) -> T:
        """Do work; what goes wrong ends the attempt the way it would at the parent.

        Raises:
            SideError: It went wrong; what runs is ended by then.
        """
        try:
            return work()
        except Exception as error:
            found = _as_ended(error)
            # A second failure on the way down says no more than the first one.
            with contextlib.suppress(Exception):
                self._break_off(error)
            raise SideError(found.ending.value, plain_unicode(found.reason)) from error

    def _break_off(self, error: Exception) -> None:
        """End whatever runs as after an error; what is found meanwhile beside it is raised."""
        run, self._run = self._run, contextlib.ExitStack()
        run.__exit__(type(error), error, error.__traceback__)

    def _kill(self) -> None:
        self._break_off(InterruptedAttemptError("the parent ended it"))

    def _prepare(self, path: Path, sha256: str) -> Context:
        data = read_regular(path)
        if sha256_bytes(data) != sha256:
            raise EndedError(Ending.NODE_FAIL, f"{path} is another one here than the parent's")
        allocation, folder = plan.parse_allocation(data, path.parent.name), AllocationFolder(path.parent)
        job = Job(
            environment=self._environment,
            identity=machine.read_job(self._environment),
            workspace=self._workspace,
            signals=self._parent,
            conditions=Conditions.now(),
            images=Images(),
            harness_source=Path(__file__).resolve().parent.parent,
        )
        standing = find_standing(folder.started, read_regular(folder.started), job, mark_of(job))
        standing.check()
        return prepare(allocation, job, _ErrorLog(), standing)

    def _look(self) -> dict[str, Any]:
        if self._context is None:
            raise ValueError("look before prepare")
        return self._context.surroundings.read()

    def _open(self, command: dict[str, Any]) -> None:
        context = self._context
        if context is None:
            raise ValueError("open before prepare")
        (planned,) = (one for one in context.allocation.attempts if one.name == command["attempt"])
        side, place = command["side"], context.place
        ranks = [parse_rank(value) for value in command["ranks"]]
        self._log, self._members, self._have_left = HeldLog(context.protocol.limits.log_bytes), [], False
        self._told = [
            RankRecord(
                rank=rank,
                node=str(place.host["node"]),
                device=place.device.of_rank(rank.local_rank),
                record=SideRecord(side=side, position=command["position"]),
            )
            for rank in ranks
        ]
        context.standing.check()
        context.check_data()
        settings = [self._run.enter_context(set_up(context, planned, side, rank)) for rank in ranks]
        self._run.enter_context(undisturbed(context, planned, side))
        for setting, told in zip(settings, self._told, strict=True):
            self._members.append(self._run.enter_context(running_rank(setting, told, self._log, self._parent)))

    def _step(self, command: dict[str, Any]) -> dict[str, Any]:
        name, limit_s = command["name"], float(command["limit_s"])
        found = gather(self._members, _STEPS[name](command), limit_s, may_end=name == "leave")
        self._have_left = name == "leave"
        values = [value for of_member in found.values for value in of_member]
        return {"values": values, "seconds": found.answered_s - found.asked_s}


def _as_ended(error: Exception) -> EndedError:
    if isinstance(error, EndedError):
        return error
    if isinstance(error, InterruptedAttemptError):
        return EndedError(Ending.CANCELLED, str(error))
    if isinstance(error, TreeError):
        return EndedError(Ending.HARNESS_ERROR, str(error))
    if is_no_space(error):
        return EndedError(Ending.NO_SPACE, str(error))
    return EndedError(Ending.HARNESS_ERROR, f"{type(error).__name__}: {error}")


def _nothing(step: Step[Any]) -> Step[list[Any]]:
    yield from step
    return []


def _updates(command: dict[str, Any]) -> Callable[[Member], Step[list[Any]]]:
    def make(member: Member) -> Step[list[Any]]:
        blocks = yield from member.updates(command["n"], command["what"], float(command["limit_s"]))
        return [tell_block(block) for block in blocks]

    return make


def _results(member: Member) -> Step[list[Any]]:
    results = yield from member.result()
    return [tell_result(result) for result in results]


def _examples(command: dict[str, Any]) -> Callable[[Member], Step[list[Any]]]:
    def make(member: Member) -> Step[list[Any]]:
        found = yield from member.examples(command["step"])
        return [list(examples) for examples in found]

    return make


_STEPS: dict[str, Callable[[dict[str, Any]], Callable[[Member], Step[list[Any]]]]] = {
    "start": lambda _command: lambda member: _nothing(member.start()),
    "build": lambda _command: lambda member: _nothing(member.build()),
    "updates": _updates,
    "result": lambda _command: _results,
    "examples": _examples,
    "leave": lambda _command: lambda member: _nothing(member.leave()),
}


def main() -> int:
    """Serve the parent over standard input and output until it says that this is the end, or is gone."""
    command_fd, answer_fd = os.dup(0), os.dup(1)
    # Whatever else prints here shall not be taken for an answer.
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - for its descriptor
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    become_subreaper()
    shield()
    outpost = Outpost(command_fd)
    try:
        return serve(lambda: outpost, command_fd, answer_fd)
    finally:
        outpost.shut()
