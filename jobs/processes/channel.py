"""The parent's conversation with a worker: one JSON object a line, over two pipes of their own.

Every wait has an end, watches the worker's life, its output and the signals at the same time, and reads the clock the
moment an answer is complete. Whatever is not exactly the answer that was asked for ends the attempt as ``rubbish``.
Asking is sending and waiting, which can be done apart: so several workers compute at the same time.
"""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from ..common.endings import EndedError, Ending
from ..common.strict import Fields, compact_json, parse_json
from .keeper import Exit, Keeper
from .sidelog import Output
from .steps import Step

T = TypeVar("T")
MOST_ANSWER_BYTES = 16 << 20
_READ_BYTES = 1 << 16
_AGAIN_S = 0.01
"""How soon a pipe that was full is tried again."""
_SIGNAL_S = 0.25
"""How long the parent waits, after a side died, for the signal that may have been sent to both."""
_GRACE_S = 1.0
"""How long other workers are still heard after one has failed."""
_ERRORS = {
    "crash": Ending.CRASH,
    "rubbish": Ending.RUBBISH,
    "adapter_incomplete": Ending.ADAPTER_INCOMPLETE,
    "no_space": Ending.NO_SPACE,
    "foreign_import": Ending.FOREIGN_IMPORT,
    "state_mismatch": Ending.STATE_MISMATCH,
    "interference": Ending.INTERFERENCE,
}
"""What a worker may call an error of its side, and how the attempt ends then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A worker's answer and the parent's clock around it."""

    fields: Fields
    asked_s: float
    """Monotonic clock just before the command was written."""
    answered_s: float
    """Monotonic clock just after the answer was read."""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.answered_s - self.asked_s


class Ears(Protocol):
    """What hears that a wait shall end."""

    fd: int
    """Readable while there is something to hear."""

    def check(self) -> None:
        """Raise if a wait shall end."""

    def wait(self, seconds: float) -> None:
        """Wait for something to hear, but not longer."""


Explain: TypeAlias = Callable[[Exit, str, str], tuple[Ending, str]]
"""Takes how a process ended, what it was asked for, and its last lines; returns the ending and the reason."""


class _WorkerDiedError(Exception):
    """The worker has ended; how, the keeper knows."""


class Channel:
    """Commands out, answers in.

    Args:
        keeper: The running side.
        log: Takes what the side prints.
        signals: Ends every wait.
        name: Stands before the reason of an ending, where it would not be clear whose it is.
        errors: What the other end may call an error, and how the attempt ends then.
        explain: What it means that the other end died instead of answering.
        signal_s: How long to wait then for the signal that may have been sent to both.
    """

    def __init__(
        self,
        keeper: Keeper,
        log: Output,
        signals: Ears,
        name: str = "",
        *,
        errors: Mapping[str, Ending] = _ERRORS,
        explain: Explain | None = None,
        signal_s: float = _SIGNAL_S,
    ) -> None:
        self._errors = errors
        self._explain = explain or explain_death
        self._signal_s = signal_s
        self._is_waiting = False
        self._keeper = keeper
        self._log = log
        self._signals = signals
        self._prefix = f"{name}: " if name else ""
        self._what = ""
        self._asked_s = 0.0
        self._unsent = b""
        self._received = bytearray()
        self._answered_s = 0.0
        self._number = 0
        self._selector = selectors.DefaultSelector()
        for fd in (keeper.answer_fd, keeper.log_fd, keeper.report_fd, signals.fd):
            self._selector.register(fd, selectors.EVENT_READ)

    @property
    def answered_s(self) -> float:
        """When the last answer was read, on the monotonic clock."""
        return self._answered_s

    def named(self, text: str) -> str:
        """Return a reason with the name of this end of the conversation before it."""
        return f"{self._prefix}{text}"

    def receive(self, what: str, limit_s: float) -> Answer:
        """Wait for what the worker says unasked, once, when it is ready."""
        self._what, self._asked_s = self.named(what), time.monotonic()
        return self.answer(limit_s)

    def ask(self, command: dict[str, Any], what: str, limit_s: float) -> Answer:
        """Send a command and wait for its answer: `send` and `answer` in one."""
        self.send(command, what)
        return self.answer(limit_s)

    def send(self, command: dict[str, Any], what: str) -> None:
        """Send a command, of which `answer` takes the answer.

        Args:
            command: The command; a number is added.
            what: What it is for, for the reason of an ending.

        Raises:
            EndedError: Something was said unasked.
        """
        self._what = self.named(what)
        if self._received:
            raise EndedError(Ending.RUBBISH, f"{self._what}: the side sent {bytes(self._received[:80])!r} unasked")
        self._number += 1
        message = self._unsent + compact_json({**command, "id": self._number}) + b"\n"
        self._asked_s = time.monotonic()
        self._is_waiting = True
        self._unsent = message[_write(self._keeper.command_fd, message) :]

    def answer(self, limit_s: float) -> Answer:
        """Wait for the answer to the last command.

        Args:
            limit_s: How long to wait from now: meanwhile another worker may have been waited for.

        Raises:
            EndedError: There is no such answer.
            InterruptedAttemptError: A signal came first.
        """
        deadline = time.monotonic() + limit_s
        try:
            while (end := self._received.find(b"\n")) < 0:
                self._step(deadline)
        except _WorkerDiedError:
            raise self.death() from None
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        self._is_waiting = False
        self._log.flush()
        fields = self._parse(line)
        if self._received:
            raise EndedError(Ending.RUBBISH, f"{self._what}: more than one answer")
        return Answer(fields=fields, asked_s=self._asked_s, answered_s=self._answered_s)

    def ask_instead(self, command: dict[str, Any], what: str, limit_s: float) -> Answer:
        """Send a command and wait for its answer, where that to the last one may still be missing: it is dropped.

        Raises:
            EndedError: There is no such answer.
            InterruptedAttemptError: A signal came first.
        """
        is_missing, deadline = self._is_waiting, time.monotonic() + limit_s
        received, self._received = self._received, bytearray()
        self.send(command, what)
        self._received = received + self._received
        try:
            while is_missing and not self.has_answer:
                self._step(deadline)
        except _WorkerDiedError:
            raise self.death() from None
        if is_missing:
            del self._received[: self._received.find(b"\n") + 1]
        return self.answer(deadline - time.monotonic())

    def request(
        self, command: dict[str, Any], what: str, read: Callable[[Fields, Answer], T], limit_s: float
    ) -> Step[T]:
        """Send a command and take its answer, with room for other processes' steps in between; see `take`."""
        self.send(command, what)
        yield
        return self.take(self.answer(limit_s), what, read)

    def take(self, answer: Answer, what: str, read: Callable[[Fields, Answer], T]) -> T:
        """Read an answer, in which what is missing, of another type or too much is rubbish.

        Args:
            answer: The answer.
            what: What it is for, for the reason of an ending.
            read: Takes the answer's fields.

        Raises:
            EndedError: It is not what was asked for.
        """
        try:
            found = read(answer.fields, answer)
            answer.fields.done()
        except ValueError as error:
            raise EndedError(Ending.RUBBISH, self.named(f"{what}: {error}")) from error
        return found

    def await_exit(self, limit_s: float) -> None:
        """Wait until the worker has ended.

        Raises:
            EndedError: It says something more, or does not end.
        """
        deadline = time.monotonic() + limit_s
        self._what = self.named("leaving")
        try:
            while True:
                self._step(deadline)
                if self._received:
                    said = bytes(self._received[:80])
                    text = f"the side sent {said!r} after its last answer"
                    raise EndedError(Ending.RUBBISH, self.named(text))
        except _WorkerDiedError:
            return

    # --- beside other channels ----------------------------------------------------------------------------------------

    def fileno(self) -> int:
        """Return a descriptor that is readable whenever `look` has something to take."""
        return self._selector.fileno()

    @property
    def has_answer(self) -> bool:
        """Whether an answer is complete, so that `answer` takes no time."""
        return b"\n" in self._received

    @property
    def has_error(self) -> bool:
        """Whether an answer is complete that says that the command failed."""
        line, found, _ = self._received.partition(b"\n")
        try:
            return bool(found) and "error" in parse_json(bytes(line))
        except ValueError:
            return True

    @property
    def is_sending(self) -> bool:
        """Whether a part of the last command is still to be written."""
        return bool(self._unsent)

    def look(self) -> bool:
        """Take whatever is there, without waiting; return whether the worker has ended after an answer.

        Raises:
            EndedError: It ended before, or printed or sent too much.
            InterruptedAttemptError: A signal came.
        """
        try:
            ended = self._take_ready(0.0)
        except _WorkerDiedError:
            raise self.death() from None
        return ended

    def hang(self) -> EndedError:
        """Return the ending of an attempt whose worker does not answer within the limit."""
        shown = f"; last lines:\n{self._log.tail()}" if self._log.tail() else ""
        return EndedError(Ending.HANG, f"{self._what}: no answer within the limit{shown}")

    def failure(self) -> EndedError:
        """Return the ending that an answer with an error means."""
        try:
            self.answer(0.0)
        except EndedError as error:
            return error
        return EndedError(Ending.RUBBISH, f"{self._what}: an error that is none")

    def death(self) -> EndedError:
        """Return the ending of an attempt whose worker has ended although it is still needed."""
        found = self._keeper.wait()
        self.drain()
        self._signals.wait(self._signal_s)
        self._signals.check()
        return EndedError(*self._explain(found, self._what, self._log.tail()))

    def drain(self) -> None:
        """Take what the side printed and nobody has read yet; for after its end."""
        while data := _read(self._keeper.log_fd):
            self._log.add(data)

    def close(self) -> None:
        """Stop watching."""
        self._selector.close()

    def _step(self, deadline: float) -> None:
        """Wait for one event and take it."""
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise self.hang()
        self._take_ready(left_s)

    def _take_ready(self, left_s: float) -> bool:
        """Wait for at most so long for one event and take it; return whether the worker has ended after an answer."""
        if self._unsent:
            self._unsent = self._unsent[_write(self._keeper.command_fd, self._unsent) :]
        # A pipe that is full is tried again soon: that happens only with a configuration of more than 64 KiB.
        ready = {key.fd for key, _ in self._selector.select(min(left_s, _AGAIN_S) if self._unsent else left_s)}
        self._signals.check()
        if self._keeper.answer_fd in ready:
            self._take_answer()
        if self._keeper.log_fd in ready:
            self._take_log()
        if self._keeper.report_fd not in ready:
            return False
        if not self.has_answer:
            self._take_answer()
            if not self.has_answer:
                raise _WorkerDiedError
        return True

    def _take_answer(self) -> None:
        data = _read(self._keeper.answer_fd)
        self._answered_s = time.monotonic()
        self._received += data
        if not data and self._keeper.answer_fd in self._selector.get_map():
            self._selector.unregister(self._keeper.answer_fd)
        if len(self._received) > MOST_ANSWER_BYTES:
            raise EndedError(Ending.RUBBISH, f"{self._what}: an answer of more than {MOST_ANSWER_BYTES} bytes")

    def _take_log(self) -> None:
        data = _read(self._keeper.log_fd)
        if not data:
            self._selector.unregister(self._keeper.log_fd)
        self._log.add(data)

    def _parse(self, line: bytes) -> Fields:
        try:
            value, error = _parse_reply(line, self._number, self._errors)
        except ValueError as fault:
            raise EndedError(Ending.RUBBISH, f"{self._what}: {fault}: {line[:200]!r}") from fault
        if error is not None:
            raise EndedError(error[0], f"{self._what}: {error[1]}")
        return Fields(value, self._what)


def await_answers(channels: Sequence[Channel], limit_s: float, *, may_end: bool = False) -> None:
    """Wait until every one of some workers has answered; what each of them prints is taken meanwhile.

    Args:
        channels: The conversations, in each of which a command was sent.
        limit_s: How long to wait, for all of them together.
        may_end: Whether a worker may end once it has answered, as it does when it was told to close.

    Raises:
        EndedError: One did not answer, ended, or printed or sent too much.
        InterruptedAttemptError: A signal came.
    """
    deadline = time.monotonic() + limit_s
    failed: Channel | None = None
    with selectors.DefaultSelector() as selector:
        for channel in channels:
            selector.register(channel, selectors.EVENT_READ, channel)
        while missing := [channel for channel in channels if not channel.has_answer]:
            if failed is None and (failed := next((one for one in channels if one.has_error), None)) is not None:
                # What it lacks may be another one, whose end says more than the error that came of it.
                deadline = min(deadline, time.monotonic() + _GRACE_S)
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise missing[0].hang() if failed is None else failed.failure()
            sending = [channel for channel in missing if channel.is_sending]
            ready = {key.data for key, _ in selector.select(min(left_s, _AGAIN_S) if sending else left_s)}
            for channel in (one for one in channels if one in ready or one in sending):
                if channel.look():
                    if not may_end:
                        raise channel.death()
                    selector.unregister(channel)


def _parse_reply(
    line: bytes, number: int, errors: Mapping[str, Ending]
) -> tuple[dict[str, Any], tuple[Ending, str] | None]:
    """Return the value of a worker's reply to the command of a number; or its error, as ending and reason.

    Raises:
        ValueError: It is no such reply.
    """
    reply = Fields(parse_json(line), "answer")
    answered = reply.count("id")
    if answered != number:
        raise ValueError(f"answers command {answered}, asked was {number}")
    if not reply.has("error"):
        value = reply.table("ok")
        reply.done()
        return value, None
    error = reply.fields("error")
    reply.done()
    kind, text = error.text("kind"), error.text("text")
    error.done()
    if kind not in errors:
        raise ValueError(f"an error of unknown kind {kind!r}")
    return {}, (errors[kind], text)


def explain_death(found: Exit, what: str, last_lines: str) -> tuple[Ending, str]:
    """Return the ending of an attempt whose worker died instead of answering, and the reason."""
    if found.exit_code == 0 and not found.failure:
        return Ending.NO_RESULT, f"{what}: the side exited with code 0 and gave no result"
    shown = f"; last lines:\n{last_lines}" if last_lines else ""
    return Ending.CRASH, f"{what}: {found.describe()}{shown}"


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, _READ_BYTES)
    except BlockingIOError:
        return b""


def _write(fd: int, data: bytes) -> int:
    try:
        return os.write(fd, data)
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        # The worker is gone; the keeper will say so.
        return len(data)
