"""The parent's end of its conversations with the harness on further nodes."""

from __future__ import annotations

import base64
import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ..common.endings import EndedError, Ending, InterruptedAttemptError
from ..common.layout import allocation_folder
from ..common.plan import Allocation, PlannedAttempt, Protocol
from ..common.storage import sha256_file
from ..common.strict import Fields
from ..measurement.blocks import Block, check_clock
from ..measurement.crew import RankRecord
from ..measurement.session import Result
from ..processes.channel import Answer, Channel
from ..processes.keeper import Command, Exit, Keeper
from ..processes.sidelog import Output
from ..processes.signals import Signals
from ..processes.steps import Begun, Step, alone, finish_all
from .harnesslog import HarnessLog
from .nodes import step_command, step_environment
from .receipts import Place
from .telling import read_block, read_result, take_rank
from .workspace import LAUNCHER

T = TypeVar("T")
_REACH_S = 120.0
"""How long Slurm may take to start a step."""
_LOOK_S = 60.0
"""How long a node may take to say under what conditions it measures, of which the most is nvidia-smi's."""
_END_S = 60.0
"""How long a node may take to end its ranks, which it kills, and to say what it knows of them."""
_LEAVE_S = 15.0
"""How long it may take to leave once it was told to."""
_SIGNAL_S = 2.0
"""How long the parent waits, after a further node was lost, for the signal that says what happened to the job."""
_UNBOUNDED_S = 1e6
"""As at the parent, nothing but the job's time limit bounds how long data are hashed and snapshots copied."""
UNKNOWN = "unknown"
"""What stands for devices of which nothing is known."""
_ENDINGS = {ending.value: ending for ending in Ending}


def _explain_loss(found: Exit, what: str, last_lines: str) -> tuple[Ending, str]:
    """Say how an attempt ends when a further node is lost: as if the whole job had been."""
    shown = f"; last lines:\n{last_lines}" if last_lines else ""
    return Ending.NODE_FAIL, f"{what}: lost: {found.describe()}{shown}"


class _NodeLog:
    """Puts what a further node says into the allocation's log; never too much, as it is the harness's own.

    Args:
        log: The log.
        node: The node.
    """

    output_bytes = 0
    is_truncated = False

    def __init__(self, log: HarnessLog, node: str) -> None:
        self._log = log
        self._node = node
        self._last = ""

    def add(self, data: bytes) -> None:
        """Take what was said."""
        for line in data.decode("utf-8", "backslashreplace").splitlines():
            self._last = line
            self._log.write(f"{self._node}: {line}")

    def flush(self) -> None:
        """Do nothing: it is written already."""

    def tail(self) -> str:
        """Return the last line."""
        return self._last


class Link:
    """The conversation with the harness on one further node.

    Args:
        node: The node, by Slurm's name.
        command: What reaches it.
        log: Takes what it says beside its answers.
        signals: End every wait.
    """

    def __init__(self, node: str, command: Command, log: HarnessLog, signals: Signals) -> None:
        self.node = node
        self._keeper = Keeper(command)
        self.channel = Channel(
            self._keeper,
            _NodeLog(log, node),
            signals,
            f"node {node}",
            errors=_ENDINGS,
            explain=_explain_loss,
            signal_s=_SIGNAL_S,
        )

    def prepare(self, plan: Path, first: Place) -> Step[None]:
        """Wait until it is there, and let it check what is frozen.

        Args:
            plan: allocation.json.
            first: The first node, of whose kind it must be.
        """
        yield
        answer = self.channel.receive("reaching it", _REACH_S)
        self.channel.take(answer, "reaching it", self._read_ready)
        command = {"do": "prepare", "plan": str(plan), "sha256": sha256_file(plan)}
        kind = yield from self.channel.request(command, "preparing", _read_kind, _UNBOUNDED_S)
        for name, own in kind_of(first.host, first.device.devices).items():
            if own == kind[name] == UNKNOWN:
                text = f"its {name} and those of the first node are not known, and so not whether they are alike"
                raise EndedError(Ending.NODE_FAIL, self.channel.named(text))
            if kind[name] != own:
                text = f"its {name} is {kind[name]}, that of the first node is {own}"
                raise EndedError(Ending.NODE_FAIL, self.channel.named(text))

    def _read_ready(self, fields: Fields, _answer: Answer) -> None:
        fields.count("pid")
        if (found := fields.text("node")) != self.node:
            raise ValueError(f"it is {found}")

    def look(self) -> Step[dict[str, Any]]:
        """Ask under what conditions its ranks are measured, as they are now."""

        def read(fields: Fields, _answer: Answer) -> dict[str, Any]:
            return {"node": self.node, **fields.table("state")}

        return self.channel.request({"do": "look"}, "conditions", read, _LOOK_S)

    def open(self, planned: PlannedAttempt, told: Sequence[RankRecord]) -> Step[None]:
        """Start ranks.

        Args:
            planned: The attempt.
            told: Their records.
        """
        command = {
            "do": "open",
            "attempt": planned.name,
            "side": told[0].record.side,
            "position": told[0].record.position,
            "ranks": [one.rank.as_json() for one in told],
        }
        return self.channel.request(command, "starting its ranks", _read_nothing, _UNBOUNDED_S)

    def end(self, told: Sequence[RankRecord], log: Output) -> EndedError | None:
        """End all ranks; fill their records and return how that judges them.

        Args:
            told: Their records.
            log: Takes what they printed.

        Raises:
            EndedError: It cannot be asked.
        """

        def take(fields: Fields, _answer: Answer) -> EndedError | None:
            for one, value in zip(told, fields.items("told"), strict=True):
                take_rank(one, value)
            ended = fields.optional("ended", dict)
            return None if ended is None else EndedError(_ENDINGS[ended["ending"]], str(ended["reason"]))

        found = self.channel.take(self.channel.ask_instead({"do": "end"}, "ending", _END_S), "ending", take)
        while part := alone(self.channel.request({"do": "output"}, "output", _read_output, _END_S)):
            log.add(part)
        log.flush()
        return found

    def close(self) -> None:
        """Let it end, and make sure that it has."""
        with contextlib.suppress(EndedError, InterruptedAttemptError):
            self.channel.ask({"do": "close"}, "closing", _LEAVE_S)
            self.channel.await_exit(_LEAVE_S)
        self.give_up(is_gone=True)

    def give_up(self, *, is_gone: bool = False) -> None:
        """End it: where its input ends it ends everything of its own, and Slurm ends what does not.

        Args:
            is_gone: Whether there is nothing to wait for: it has left, or Slurm is ending the job.
        """
        self._keeper.hang_up()
        if is_gone:
            self._keeper.kill()
        self._keeper.wait()
        self.channel.close()
        self._keeper.close()


def _read_nothing(_fields: Fields, _answer: Answer) -> None:
    pass


def kind_of(host: Mapping[str, Any], devices: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return what all nodes of a side have in common, as texts by what a person calls them."""
    return {
        "processor": str(host["cpu"]),
        "machine type": str(host["machine"]),
        "kernel": str(host["kernel"]),
        "number of processors": str(len(host["affinity"])),
        "devices": ", ".join(sorted(f"{one['name']} {one['driver']}".strip() for one in devices)) or UNKNOWN,
    }


def _read_kind(fields: Fields, _answer: Answer) -> dict[str, str]:
    found = kind_of(fields.table("host"), fields.items("devices"))
    fields.text("device")
    return found


def _read_output(fields: Fields, _answer: Answer) -> bytes:
    return base64.b64decode(fields.text("data"), validate=True)


# --- while a side runs ------------------------------------------------------------------------------------------------


class FurtherRanks:
    """The ranks of a side on one further node, as a member of its crew.

    Args:
        link: The conversation.
        protocol: The rules.
    """

    def __init__(self, link: Link, protocol: Protocol) -> None:
        self._link = link
        self._limits = protocol.limits
        self._rules = protocol.rules

    @property
    def channel(self) -> Channel:
        """The conversation."""
        return self._link.channel

    def _ask(self, name: str, limit_s: float, read: Callable[[Any], T], **further: Any) -> Step[list[T]]:
        command = {"do": "step", "name": name, "limit_s": limit_s, **further}
        what = str(further.get("what", name))

        def take(fields: Fields, answer: Answer) -> list[T]:
            seconds = fields.number("seconds")
            if name == "updates":
                # The parent's clock counts; that of the node must agree with it, as a worker's must.
                check_clock(seconds, answer.seconds, self._rules, self.channel.named(what))
            return [read(value) for value in fields.items("values")]

        return self.channel.request(command, what, take, limit_s)

    def start(self) -> Step[object]:
        """See `Member`."""
        return self._ask("start", self._limits.import_s, _refuse)

    def build(self) -> Step[object]:
        """See `Member`."""
        return self._ask("build", self._limits.startup_s, _refuse)

    def updates(self, updates: int, what: str, limit_s: float | None) -> Step[list[Block]]:
        """See `Member`."""
        return self._ask("updates", limit_s or self._limits.stall_s, read_block, n=updates, what=what)

    def result(self) -> Step[list[Result]]:
        """See `Member`."""
        return self._ask("result", self._limits.stall_s, read_result)

    def examples(self, step: int) -> Step[list[tuple[int, ...]]]:
        """See `Member`."""
        return self._ask("examples", self._limits.stall_s, _read_examples, step=step)

    def leave(self) -> Step[object]:
        """See `Member`."""
        return self._ask("leave", self._limits.stall_s, _refuse)


def _refuse(value: Any) -> object:
    raise ValueError(f"said {value!r:.80} unasked")


def _read_examples(value: Any) -> tuple[int, ...]:
    if type(value) is not list or not all(type(item) is int for item in value):
        raise ValueError("examples hold something else than whole numbers")
    return tuple(value)


@dataclass(slots=True, kw_only=True)
class Links:
    """The conversations with all further nodes of an allocation, each begun when it is first needed."""

    allocation: Allocation
    protocol: Protocol
    place: Place
    """The first node."""
    environment: Mapping[str, str]
    """The parent's."""
    signals: Signals
    log: HarnessLog
    source: Path
    """The harness in the home, from which every node makes a copy of its own."""
    _links: dict[str, Link] = field(default_factory=dict)

    def reach(self, nodes: Sequence[str]) -> list[Link]:
        """Return the conversations with some nodes, all of which are ready.

        Raises:
            EndedError: A node cannot be reached, or does not hold what was frozen.
        """
        new = [node for node in nodes if node not in self._links]
        plan = allocation_folder(self.allocation.home, self.allocation.id).plan
        try:
            for node in new:
                self._links[node] = Link(node, self._reaching(node), self.log, self.signals)
            finish_all([Begun(self._links[node].prepare(plan, self.place)) for node in new])
        except BaseException as error:
            for node in new:
                self._give_up(node, error)
            if isinstance(error, EndedError) and error.ending is Ending.HANG:
                raise EndedError(Ending.NODE_FAIL, error.reason) from error
            raise
        return [self._links[node] for node in nodes]

    def _reaching(self, node: str) -> Command:
        python = [sys.executable, "-P", "-s", "-X", f"pycache_prefix={sys.pycache_prefix}", str(self.source / LAUNCHER)]
        return Command(
            argv=[*python, "reach", *step_command(node, self.environment, [*python, "node"])],
            environment=step_environment(self.environment),
            working=Path("/"),
        )

    def _give_up(self, node: str, error: BaseException) -> None:
        if (link := self._links.pop(node, None)) is not None:
            link.give_up(is_gone=isinstance(error, InterruptedAttemptError))

    @contextlib.contextmanager
    def manned(
        self, planned: PlannedAttempt, links: Sequence[Link], told: Sequence[RankRecord], log: Output
    ) -> Iterator[list[FurtherRanks]]:
        """Start the ranks of some nodes; when the context is left nothing of them is alive.

        Args:
            planned: The attempt.
            links: The conversations with the nodes, in the order of the ranks.
            told: Records of all ranks of the side; those of these nodes are filled at the end.
            log: Takes what they printed.

        Raises:
            EndedError: The attempt ends here.
        """
        manned = [
            (link, [one for one in told if one.rank.node == number]) for number, link in enumerate(links, start=1)
        ]
        try:
            finish_all([Begun(link.open(planned, own)) for link, own in manned])
            yield [FurtherRanks(link, self.protocol) for link in links]
        except BaseException as error:
            for link, own in manned:
                self._break_off(link, own, log, error)
            raise
        judged = [link.end(own, log) for link, own in manned]
        for ended in filter(None, judged):
            raise ended

    def _break_off(self, link: Link, told: Sequence[RankRecord], log: Output, error: BaseException) -> None:
        """End what runs on a node after something failed; a node that does not say what became of it is given up."""
        if not isinstance(error, InterruptedAttemptError):
            try:
                link.end(told, log)
            except (EndedError, InterruptedAttemptError) as second:
                self.log.write(f"{link.node} is given up: {second}")
            else:
                return
        self._give_up(link.node, error)

    def close(self) -> None:
        """End all conversations."""
        while self._links:
            self._links.popitem()[1].close()
