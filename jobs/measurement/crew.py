"""A side of several processes, its ranks: started together, asked together, and judged as one.

One clock counts, the parent's, from before the first of them is asked to after the last one has answered.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from ..common.endings import EndedError, Ending
from ..common.strict import compact_json
from ..processes import opened
from ..processes.channel import Channel, Ears, await_answers
from ..processes.keeper import Exit
from ..processes.ranks import Rank
from ..processes.sidelog import Output, RankLog
from ..processes.steps import Begun, Step
from .blocks import Block
from .session import MOST_ENGAGED_BYTES, Result, Session, Setting, SideRecord, running

T = TypeVar("T")
_FURTHER_S = 10.0
"""How much longer a further node may take than its own limit: it says itself which of its ranks does not answer."""


@dataclass(slots=True, kw_only=True)
class RankRecord:
    """What is known of one rank of a side."""

    rank: Rank
    node: str
    device: str
    record: SideRecord
    pid: int = 0
    affinity: str = ""
    affinity_after: str = ""
    """At the end of the windows; it may have left some, or have taken others."""
    peaks: tuple[int, int] | None = None

    @property
    def rss_bytes(self) -> int:
        """Its peak resident memory."""
        found = self.record.exit or Exit()
        return max(found.max_rss_bytes, self.record.peak_rss_bytes)

    def as_json(self) -> dict[str, Any]:
        """Return its entry of a receipt."""
        found = self.record.exit or Exit()
        allocated, reserved = self.peaks or (None, None)
        return {
            "rank": self.rank.rank,
            "local_rank": self.rank.local_rank,
            "node": self.node,
            "device": self.device,
            "pid": self.pid,
            "affinity": self.affinity,
            "affinity_after": self.affinity_after,
            "exit_code": found.exit_code,
            "signal": found.signal,
            "wall_s": self.record.wall_s,
            "cpu_s": found.cpu_s,
            "max_rss_bytes": self.rss_bytes,
            "peak_allocated_bytes": allocated,
            "peak_reserved_bytes": reserved,
        }


class Member(Protocol):
    """One rank, or all ranks of a further node, behind one conversation. Its steps are those of a `Session`."""

    @property
    def channel(self) -> Channel:
        """The conversation."""

    def start(self) -> Step[object]:
        """Let them import the adapter."""

    def build(self) -> Step[object]:
        """Let the adapter build its objects."""

    def updates(self, updates: int, what: str, limit_s: float | None) -> Step[list[Block]]:
        """Do updates on the production path."""

    def result(self) -> Step[list[Result]]:
        """Collect losses, execution paths and peaks of memory."""

    def examples(self, step: int) -> Step[list[tuple[int, ...]]]:
        """Ask which examples they take in one update."""

    def leave(self) -> Step[object]:
        """Look where their code came from, and let them close."""


class LocalRank:
    """A rank whose process was started here.

    Args:
        session: The running process.
        told: Filled as far as it goes.
    """

    def __init__(self, session: Session, told: RankRecord) -> None:
        self._session = session
        self._told = told

    @property
    def channel(self) -> Channel:
        """See `Member`."""
        return self._session.channel

    def start(self) -> Step[None]:
        """See `Member`."""
        yield from self._session.start()
        self._told.pid, self._told.affinity = self._session.worker_pid, self._session.affinity()

    def build(self) -> Step[float]:
        """See `Member`."""
        return self._session.build()

    def updates(self, updates: int, what: str, limit_s: float | None) -> Step[list[Block]]:
        """See `Member`."""
        block, _ = yield from self._session.updates(updates, what, limit_s)
        return [block]

    def result(self) -> Step[list[Result]]:
        """See `Member`."""
        found = yield from self._session.result()
        self._told.peaks, self._told.affinity_after = found.peaks, self._session.affinity()
        return [found]

    def examples(self, step: int) -> Step[list[tuple[int, ...]]]:
        """See `Member`."""
        found = yield from self._session.examples(step)
        return [found]

    def leave(self) -> Step[None]:
        """See `Member`."""
        return self._session.leave()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered(Generic[T]):
    """What all members answered, in their order, and the clock around it."""

    values: list[T]
    asked_s: float
    answered_s: float


def gather(
    members: Sequence[Member], make: Callable[[Member], Step[T]], limit_s: float, *, may_end: bool = False
) -> Gathered[T]:
    """Let all members make a step at the same time.

    Args:
        members: Those who make it.
        make: Returns one member's step.
        limit_s: How long each answer may take.
        may_end: Whether a process may end once it has answered.

    Raises:
        EndedError: One of them ends the attempt.
        InterruptedAttemptError: A signal came.
    """
    asked_s = time.monotonic()
    begun = [(member, Begun(make(member))) for member in members]
    waiting = begun
    while waiting := [(member, step) for member, step in waiting if not step.has_ended]:
        await_answers([member.channel for member, _ in waiting], limit_s, may_end=may_end)
        for _, step in waiting:
            step.advance()
    answered_s = max(member.channel.answered_s for member in members)
    return Gathered(values=[step.finish() for _, step in begun], asked_s=asked_s, answered_s=answered_s)


@dataclass(slots=True, kw_only=True)
class Crew:
    """A running side of several processes. Its methods are the steps of a `Session`, and go on beside nothing else."""

    setting: Setting
    """Of rank 0."""
    record: SideRecord
    """Of the whole side."""
    members: list[Member]
    """Those of the first node, one by one, and then the further nodes; so in the order of the ranks."""
    told: list[RankRecord]
    """Records of all ranks, in their order."""

    def _gather(self, make: Callable[[Member], Step[T]], limit_s: float, *, may_end: bool = False) -> Gathered[T]:
        further_s = _FURTHER_S if self.told[-1].rank.node else 0.0
        return gather(self.members, make, limit_s + further_s, may_end=may_end)

    def start(self) -> Step[None]:
        """Wait for all processes and let them import the adapter."""
        yield from ()
        self._gather(lambda member: member.start(), self.setting.limits.import_s)

    def build(self) -> Step[float]:
        """Let the adapter build its objects; return when that began."""
        yield from ()
        built = self._gather(lambda member: member.build(), self.setting.limits.startup_s)
        self.record.offers = self.told[0].record.offers
        return built.asked_s

    def refuse_missing(self, missing: Sequence[str]) -> None:
        """End the attempt if methods are missing, and say so in the record."""
        self.record.missing = tuple(missing)
        if missing:
            raise EndedError(Ending.ADAPTER_INCOMPLETE, f"the adapter's object does not offer {', '.join(missing)}")

    def warm_up(self) -> Step[tuple[Block, float]]:
        """Do the warm-up; return it, and when it was done."""
        rules, limits = self.setting.protocol.rules, self.setting.limits
        return (yield from self.updates(rules.warmup_updates, "warm-up", limits.startup_s))

    def updates(self, updates: int, what: str, limit_s: float | None = None) -> Step[tuple[Block, float]]:
        """Do updates on the production path; return them as one block, and when they were done."""
        yield from ()
        found = self._gather(
            lambda member: member.updates(updates, what, limit_s), limit_s or self.setting.limits.stall_s
        )
        blocks = [block for of_member in found.values for block in of_member]
        return combine_blocks(blocks, found.answered_s - found.asked_s, what), found.answered_s

    def result(self) -> Step[Result]:
        """Collect losses, execution paths and peaks of memory."""
        yield from ()
        found = self._gather(lambda member: member.result(), self.setting.limits.stall_s)
        results = [result for of_member in found.values for result in of_member]
        for rank, result in enumerate(results):
            if result.loss is not None and not math.isfinite(float(result.loss)):
                raise EndedError(Ending.NON_FINITE, f"rank {rank}: the loss of the last update is {result.loss}")
        peaks = [result.peaks for result in results]
        return Result(
            # What one of them does not know, nobody knows of all.
            peaks=(_sum(one for one, _ in peaks), _sum(one for _, one in peaks)),
            loss=results[0].loss,
            answered_s=found.answered_s,
        )

    def examples(self, step: int) -> list[tuple[int, ...]]:
        """Return which examples each rank takes in one update."""
        found = self._gather(lambda member: member.examples(step), self.setting.limits.stall_s)
        return [examples for of_member in found.values for examples in of_member]

    def leave(self) -> Step[None]:
        """Look where the side's code came from, let all processes close, and wait until they have ended."""
        yield from ()
        self._gather(lambda member: member.leave(), self.setting.limits.stall_s, may_end=True)

    def affinity(self) -> str:
        """Return the processors of rank 0 at the end of the windows."""
        return self.told[0].affinity_after


def _sum(values: Iterable[int]) -> int:
    found = list(values)
    return sum(found) if all(found) else 0


def combine_blocks(blocks: Sequence[Block], seconds: float, what: str) -> Block:
    """Return what all ranks did as one block: microbatches and tokens are summed.

    Args:
        blocks: Of the ranks, in their order.
        seconds: On the parent's clock.
        what: What the updates were for.

    Raises:
        EndedError: They disagree on how many updates they made, or skipped.
    """
    first = blocks[0]
    for rank, block in enumerate(blocks):
        for name in ("updates", "skipped"):
            own, expected = getattr(block, name), getattr(first, name)
            if own != expected:
                text = f"rank {rank} says {own} {name}, rank 0 says {expected}"
                raise EndedError(Ending.COUNT_DISAGREEMENT, f"{what}: {text}")
    return Block(
        updates=first.updates,
        microbatches=sum(block.microbatches for block in blocks),
        skipped=first.skipped,
        tokens=sum(block.tokens for block in blocks),
        seconds=seconds,
        claimed_s=max(block.claimed_s for block in blocks),
    )


# --- from the ranks' records to the side's ----------------------------------------------------------------------------


def merge_engaged(found: Sequence[dict[str, int | str] | None]) -> dict[str, int | str] | None:
    """Return what all ranks engaged: what they do not agree on stands there once for each, with its rank.

    Raises:
        EndedError: It is too much to be repeated in receipts.
    """
    if any(one is None for one in found):
        return None
    offered = [one for one in found if one is not None]
    merged: dict[str, int | str] = {}
    for name in sorted({name for one in offered for name in one}):
        values = [(rank, one[name]) for rank, one in enumerate(offered) if name in one]
        if len(values) == len(offered) and all(value == values[0][1] for _, value in values):
            merged[name] = values[0][1]
        else:
            merged |= {f"{name}[{rank}]": value for rank, value in values}
    if len(compact_json(merged)) > MOST_ENGAGED_BYTES:
        raise EndedError(Ending.RUBBISH, f"engaged() of all ranks returned more than {MOST_ENGAGED_BYTES} bytes")
    return merged


def merge_records(record: SideRecord, told: Sequence[RankRecord]) -> None:
    """Fill a side's record from those of its ranks, as far as they got.

    Raises:
        EndedError: What they engaged is too much.
    """
    ranks = [one.record for one in told]
    exits = [one.exit for one in ranks if one.exit is not None]
    if exits:
        record.exit = replace(
            exits[0],
            cpu_s=math.fsum(one.cpu_s for one in exits),
            max_rss_bytes=max(one.max_rss_bytes for one in exits),
            strays=sum(one.strays for one in exits),
            survivors=sum(one.survivors for one in exits),
        )
    first = ranks[0]
    record.wall_s = max(one.wall_s for one in ranks)
    record.peak_rss_bytes = max(one.peak_rss_bytes for one in ranks)
    record.ranks_rss_bytes = _sum(one.rss_bytes for one in told)
    record.versions, record.bytecode, record.container_sha256 = first.versions, first.bytecode, first.container_sha256
    record.interpreter, record.environment_sha256 = first.interpreter, first.environment_sha256
    record.offers = tuple(name for name in first.offers if all(name in one.offers for one in ranks))
    record.missing = record.missing or _union([one.missing for one in ranks])
    record.foreign = _union([one.foreign for one in ranks])
    record.undeclared = _union([one.undeclared for one in ranks])[: opened.MOST_LISTED]
    record.has_other_user = all(one.has_other_user for one in ranks)
    record.ranks = tuple(one.as_json() for one in told)
    record.engaged = merge_engaged([one.engaged for one in ranks])


def _union(texts: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for own in texts for text in own))


def check_alike(told: Sequence[RankRecord]) -> None:
    """Refuse ranks that ran on different interpreters, with different packages, or in different images.

    Raises:
        EndedError: They did.
    """
    first = told[0].record
    for one in told[1:]:
        own = one.record
        if own.environment_sha256 != first.environment_sha256 or own.container_sha256 != first.container_sha256:
            what = "another interpreter, other packages or another image than rank 0"
            raise EndedError(Ending.NODE_FAIL, f"node {one.node}: {one.rank.name} has {what}")


# --- processes of this node -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def running_rank(setting: Setting, told: RankRecord, log: Output, signals: Ears) -> Iterator[LocalRank]:
    """Start one rank on this node; when the context is left nothing of it is alive, and its end has been judged.

    Args:
        setting: What to run.
        told: Filled as far as it goes.
        log: Takes what the side prints.
        signals: End every wait.

    Raises:
        EndedError: The attempt ends here.
    """
    own = RankLog(log, told.rank.rank)
    try:
        with running(setting, told.record, own, signals, name=told.rank.name) as session:
            yield LocalRank(session, told)
    except BaseException:
        with contextlib.suppress(EndedError):
            own.close()
        raise
    own.close()


@contextlib.contextmanager
def manning(
    settings: Sequence[Setting], record: SideRecord, told: list[RankRecord], log: Output, signals: Ears
) -> Iterator[tuple[Crew, contextlib.ExitStack]]:
    """Start the ranks of this node; further members may join. When the context is left, the side's record is filled.

    Args:
        settings: What to run here, one for each rank, rank 0 first.
        record: Of the whole side; filled as far as the run goes, whatever happens.
        told: Records of all ranks of the side, in their order.
        log: Takes what they print.
        signals: End every wait.

    Yields:
        The crew, and a stack for what must end before the record is filled.

    Raises:
        EndedError: The attempt ends here.
    """
    try:
        with contextlib.ExitStack() as stack:
            crew = Crew(setting=settings[0], record=record, members=[], told=told)
            for setting, own in zip(settings, told, strict=False):  # those of the first node come first
                crew.members.append(stack.enter_context(running_rank(setting, own, log, signals)))
            yield crew, stack
    finally:
        record.output_bytes, record.output_truncated = log.output_bytes, log.is_truncated
        merge_records(record, told)
    check_alike(told)
