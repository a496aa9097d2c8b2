"""The comparer's process, as the parent holds it. What goes wrong in it is the harness's own error, never a side's."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..common.endings import EndedError, Ending
from ..common.plan import Limits
from ..common.strict import MOST_COUNT, Fields
from ..processes.channel import Channel
from ..processes.keeper import Command, Keeper
from ..processes.sidelog import SideLog
from ..processes.signals import Signals
from ..processes.steps import Step
from ..tensors.lockstep import Chunk
from ..tensors.sums import Sums

T = TypeVar("T")
_NAME = "the comparer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """The worst error of a piece in units of what is allowed."""

    worst: float | None
    nonfinite: int


def refuse_without_torch() -> None:
    """Refuse to begin a case that nobody could compare.

    Raises:
        EndedError: The harness's interpreter, which runs this very process, has no PyTorch.
    """
    if importlib.util.find_spec("torch") is None:
        text = f"the harness's interpreter {sys.executable} has no package torch, which compares the tensors of a case"
        hint = "install PyTorch there (its CPU build will do on a machine without GPUs)"
        raise EndedError(Ending.HARNESS_ERROR, f"{text}: {hint}, or freeze with another [harness] python that has it")


class Referee:
    """Compares what lies in the halves of both sides' staging memory.

    Args:
        channel: The conversation with the process.
        limits: How long an answer may take.
        threads: How many it may compute with; its results do not depend on it.
    """

    def __init__(self, channel: Channel, limits: Limits, threads: int) -> None:
        self._channel = channel
        self._limits = limits
        self._threads = threads

    def start(self) -> Step[None]:
        """Wait until it is there and has loaded what it needs."""
        yield
        with _as_harness_error():
            self._channel.receive("start", self._limits.import_s)
        # Without sources there is nothing to map yet.
        yield from self.stage([], limit_s=self._limits.import_s)

    def stage(
        self, sources: Sequence[dict[str, Any]], *, is_further: bool = False, limit_s: float | None = None
    ) -> Step[None]:
        """Let it map the staging memory: the reference's, then the value's.

        Args:
            sources: What to map.
            is_further: Whether it comes beside what is mapped already, instead of in its place.
            limit_s: How long the answer may take.
        """
        command = {"do": "stage", "sources": list(sources), "further": is_further, "threads": self._threads}
        yield from self._ask(command, "staging", lambda _: None, limit_s)

    def compare(self, half: int, pieces: Chunk, *, signs: bool, roll: bool) -> Step[list[Sums]]:
        """Compare the pieces in a half."""
        command = {"do": "compare", "half": half, "signs": signs, "roll": roll}
        command["pieces"] = [piece.compare() for piece in pieces]
        return (yield from self._ask(command, "comparing", lambda fields: _read_list(fields, "sums", _sums, pieces)))

    def ratio(self, half: int, pieces: Chunk, *, rtol: str, atol: str) -> Step[list[Ratio]]:
        """Compare the pieces in a half with an allowance."""
        command = {"do": "ratio", "half": half, "rtol": rtol, "atol": atol}
        command["pieces"] = [piece.compare() for piece in pieces]
        return (yield from self._ask(command, "comparing", lambda fields: _read_list(fields, "ratios", _ratio, pieces)))

    def close(self) -> Step[int]:
        """Let it end; return how many bytes of a device's memory it took at most, beside the staging memory."""
        peak_bytes = yield from self._ask({"do": "close"}, "close", lambda fields: fields.count("peak_bytes"))
        with _as_harness_error():
            self._channel.await_exit(self._limits.stall_s)
        return peak_bytes

    def _ask(
        self, command: dict[str, Any], what: str, read: Callable[[Fields], T], limit_s: float | None = None
    ) -> Step[T]:
        step = self._channel.request(command, what, lambda fields, _: read(fields), limit_s or self._limits.stall_s)
        with _as_harness_error():
            return (yield from step)


@contextlib.contextmanager
def _as_harness_error() -> Iterator[None]:
    try:
        yield
    except EndedError as error:
        # What a side did to the harness stays what it is.
        if error.ending is Ending.INTERFERENCE:
            raise
        raise EndedError(Ending.HARNESS_ERROR, error.reason) from error


@contextlib.contextmanager
def refereeing(command: Command, log: SideLog, signals: Signals, limits: Limits, threads: int) -> Iterator[Referee]:
    """Start the comparer; when the context is left it is gone.

    Args:
        command: What to run.
        log: Takes what it prints.
        signals: End every wait.
        limits: How long an answer may take.
        threads: How many it may compute with.
    """
    keeper = Keeper(command)
    channel = Channel(keeper, log, signals, _NAME)
    try:
        try:
            yield Referee(channel, limits, threads)
        except BaseException:
            keeper.kill()
            raise
        finally:
            keeper.wait()
    finally:
        with contextlib.suppress(EndedError):
            channel.drain()
        channel.close()
        keeper.close()


# --- reading its answers ----------------------------------------------------------------------------------------------


def _read_list(fields: Fields, name: str, read: Callable[[list[Any]], T], pieces: Chunk) -> list[T]:
    values = fields.items(name)
    if len(values) != len(pieces) or any(type(value) is not list for value in values):
        raise ValueError(f"{name} are not one list for each of {len(pieces)} pieces")
    return [read(value) for value in values]


def _number(value: Any) -> float | None:
    if value is not None and (type(value) is not float or not 0 <= value < math.inf):
        raise ValueError(f"not a finite, non-negative number: {value!r:.100}")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MOST_COUNT:
        raise ValueError(f"not a count: {value!r:.100}")
    return value


def _sums(value: list[Any]) -> Sums:
    if len(value) != 7:
        raise ValueError(f"not seven sums: {value!r:.100}")
    return Sums(
        reference_sq=_number(value[0]),
        difference_sq=_number(value[1]),
        largest_error=_number(value[2]),
        nonfinite_reference=_count(value[3]),
        nonfinite_value=_count(value[4]),
        sign_flips=None if value[5] is None else _count(value[5]),
        roll_sq=_number(value[6]),
    )


def _ratio(value: list[Any]) -> Ratio:
    if len(value) != 2:
        raise ValueError(f"not a ratio and a count: {value!r:.100}")
    return Ratio(worst=_number(value[0]), nonfinite=_count(value[1]))
