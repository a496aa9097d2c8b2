"""How a worker or comparer serves its parent: one JSON object a line, over two pipes of their own."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NoReturn, Protocol

from ..common.endings import is_no_space
from ..common.strict import compact_json, parse_json, plain_unicode

_TRACE_CHARACTERS = 4000
_OURS = str(Path(__file__).parent.parent) + os.sep
"""The harness's own folder, whose frames say nothing of what a side did."""


class SideError(Exception):
    """The side did something that ends the attempt.

    Args:
        kind: One of the kinds that the parent knows.
        text: What it did.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


class Server(Protocol):
    """What answers: each command ``X`` is a method ``do_X`` that takes the command and returns the answer's fields."""

    is_closed: bool

    def ready(self) -> dict[str, Any]:
        """Say who this is, unasked and once."""


def serve(make: Callable[[], Server], command_fd: int, answer_fd: int) -> int:
    """Answer commands until the server is closed, which ends the process, or the parent is gone.

    Args:
        make: Returns what answers.
        command_fd: Where commands come from.
        answer_fd: Where answers go.
    """
    for fd in (command_fd, answer_fd):
        os.set_inheritable(fd, False)  # noqa: FBT003 - the call has no names
    _leave_signals_to_parent()
    server = make()
    with os.fdopen(command_fd, "rb") as commands, os.fdopen(answer_fd, "wb") as answers:
        _send(answers, {"id": 0, "ok": server.ready()})
        for line in commands:
            _send(answers, _answer(server, parse_json(line)))
            if server.is_closed:
                _leave()
    return 1


def _leave_signals_to_parent() -> None:
    """Let the scheduler's signals pass here, and act as usual in processes that this one starts itself."""
    numbers = (signal.SIGTERM, signal.SIGUSR2)
    for number in numbers:
        signal.signal(number, lambda *_: None)
        signal.siginterrupt(number, False)  # noqa: FBT003 - the call has no names
    os.register_at_fork(after_in_child=lambda: [signal.signal(number, signal.SIG_DFL) for number in numbers])


def _within_side(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback from where the side's own code begins; all of it where none does."""
    inner = trace
    while inner is not None and inner.tb_frame.f_code.co_filename.startswith(_OURS):
        inner = inner.tb_next
    return inner or trace


def _as_error(error: Exception) -> dict[str, str]:
    if isinstance(error, SideError):
        return {"kind": error.kind, "text": plain_unicode(error.text)}
    lines = traceback.format_exception(type(error), error, _within_side(error.__traceback__))
    text = plain_unicode("".join(lines)[-_TRACE_CHARACTERS:])
    return {"kind": "no_space" if is_no_space(error) else "crash", "text": text}


def _answer(server: Server, command: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"id": command["id"], "ok": getattr(server, f"do_{command['do']}")(command)}
    except Exception as error:  # noqa: BLE001 - whatever a side raises is an ending of the attempt
        traceback.print_exc()
        return {"id": command["id"], "error": _as_error(error)}


def _send(stream: BinaryIO, value: dict[str, Any]) -> None:
    stream.write(compact_json(value) + b"\n")
    stream.flush()


def _leave() -> NoReturn:
    """End the process without taking the interpreter down piece by piece.

    With a large framework loaded that takes most of a second, and what a side wants done at its end it does in
    ``close``.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
