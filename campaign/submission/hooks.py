"""A person's own command that is run when something happened: a gate missed, a slot failed, nothing left to do.

Each hook is told of an event once, whichever command sees it first: what was told stands in a file beside the registry
of freezes, outside every home. What a hook does, and whether it works, changes nothing.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from campaign.documents import Document
from campaign.errors import StateError
from campaign.files import sha256_bytes
from campaign.record.lines import append_once
from campaign.record.registry import find_registry
from campaign.watching.reach import Obstacle
from campaign.watching.state import OUT_OF_REACH, SlotStatus

VARIABLE = "CAMPAIGN_HOOK"
HOOK_S = 30.0
"""How long a hook may take; one that takes longer is ended, and not asked again by the same command."""
_SAID_BYTES = 4096
"""Of what a hook printed last, where it failed."""


class Event(enum.StrEnum):
    """What a hook is told of."""

    MISSED = "missed"
    """A gate was missed, or can no longer be passed."""
    FAILED = "failed"
    """A slot can no longer be completed."""
    FINISHED = "finished"
    """Nothing is left to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One event."""

    event: Event
    subject: str
    """Which one it is: the same in every command that sees it."""
    reason: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else is known, as JSON values."""


def events_of(
    candidate: str, slots: Mapping[str, SlotStatus], obstacles: Iterable[Obstacle], *, amendment: int
) -> list[Happening]:
    """Return what has failed or was missed so far.

    Args:
        candidate: Id of the candidate; empty for none.
        slots: The state of its slots and of the baseline's.
        obstacles: Why a pass can no longer be reached.
        amendment: The ledger's number of the last amendment: after one the same thing may happen again.
    """
    found = []
    for name, status in slots.items():
        if status.state in OUT_OF_REACH:
            last = status.attempts[-1]
            ending = last.ending.value if last.ending is not None else None
            facts = {"slot": name, "attempt": last.attempt, "segment": last.segment, "ending": ending}
            found.append(Happening(event=Event.FAILED, subject=last.key.receipt_name, reason=last.reason, facts=facts))
    for one in obstacles:
        subject = " ".join([candidate or "baseline", one.slot or one.gates[0], str(amendment)])
        facts = {"slot": one.slot or None, "gates": list(one.gates), "gate": one.gates[0]}
        found.append(Happening(event=Event.MISSED, subject=subject, reason=one.reason, facts=facts))
    return found


def finished(candidate: str, asked: Sequence[str], num_allocations: int, reason: str) -> Happening:
    """Return that nothing is left to do.

    Args:
        candidate: Id of the candidate; empty for none.
        asked: What was asked for: phase and pattern, empty for all.
        num_allocations: So many have been made: after more, it is another end.
        reason: How the slots stand.
    """
    subject = " ".join([candidate or "baseline", *asked, str(num_allocations)])
    return Happening(event=Event.FINISHED, subject=subject, reason=reason)


class Told(Document):
    """One line of the file that says what hooks were told."""

    format: Literal["told/1"] = "told/1"
    manifest_sha256: str
    """The campaign."""
    hook_sha256: str
    """Of the command, its parts separated by zero bytes."""
    event: str
    subject: str
    at: float


def find_told(environment: Mapping[str, str]) -> Path | None:
    """Return the path of that file; None where the environment names no place for it."""
    registry = find_registry(environment)
    return registry.with_name(f"{registry.stem}-told{registry.suffix}") if registry is not None else None


def parse_command(text: str) -> tuple[str, ...]:
    """Return a hook's command, split as a shell would; none of it is run by a shell.

    Raises:
        StateError: It is no command, or its program is not there.
    """
    try:
        command = tuple(shlex.split(text))
    except ValueError as error:
        raise StateError(f"not a command: {text!r}", where="--hook", why=str(error)) from error
    if not command:
        raise StateError("no command", where="--hook", hint="--hook 'PROGRAM ARGUMENT ...'")
    if shutil.which(command[0]) is None:
        raise StateError(
            f"no such program: {command[0]}",
            where="--hook",
            why="it is not on PATH, or may not be executed",
            hint="give the path of a program that may be executed",
        )
    return command


@dataclass(slots=True, kw_only=True)
class Hook:
    """A hook of one campaign, as one command uses it."""

    command: tuple[str, ...]
    campaign: str
    home: str
    candidate: str
    manifest_sha256: str
    told: Path | None
    """The file of what was told; None where there is no place for it."""
    clock: Callable[[], float]
    say: Callable[[str], None]
    patience_s: float = HOOK_S
    _seen: set[tuple[str, str]] = field(default_factory=set)
    _given_up: bool = False
    _said_trouble: bool = False

    def tell(self, happenings: Iterable[Happening]) -> None:
        """Run the hook for every event of which it was not told yet."""
        for one in happenings:
            name = (one.event.value, one.subject)
            if name in self._seen or self._given_up:
                continue
            self._seen.add(name)
            if self._claim(one):
                self._run(one)

    def _claim(self, one: Happening) -> bool:
        """Note that an event is being told; return False if it was before."""
        line = Told(
            manifest_sha256=self.manifest_sha256,
            hook_sha256=sha256_bytes("\0".join(self.command).encode("utf-8", "surrogateescape")),
            event=one.event.value,
            subject=one.subject,
            at=self.clock(),
        )
        if self.told is None:
            return True
        try:
            return append_once(self.told, line)
        except OSError as error:
            if not self._said_trouble:
                self._said_trouble = True
                why = error.strerror or str(error)
                self.say(f"what the hook was told cannot be kept ({self.told}: {why}): it may be told again")
            return True

    def _value(self, one: Happening) -> dict[str, Any]:
        return {
            "format": "hook/1",
            "campaign": self.campaign,
            "home": self.home,
            "candidate": self.candidate,
            "event": one.event.value,
            "reason": one.reason,
            "at": self.clock(),
            **one.facts,
        }

    def _run(self, one: Happening) -> None:
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as printed:
            given.write(json.dumps(self._value(one), sort_keys=True).encode() + b"\n")
            given.seek(0)
            try:
                # A session of its own: Ctrl-C ends the command, and the hook does what it has begun.
                child = subprocess.Popen(
                    self.command, stdin=given, stdout=printed, stderr=subprocess.STDOUT, start_new_session=True
                )
            except OSError as error:
                self._give_up(one, f"cannot be started: {error.strerror}")
                return
            try:
                child.wait(self.patience_s)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                self._give_up(one, f"has not ended within {self.patience_s:g} s")
                return
            if child.returncode != 0:
                self.say(f"the hook ended with {child.returncode} on {_named(one)}{_last_line(printed)}")

    def _give_up(self, one: Happening, why: str) -> None:
        self._given_up = True
        self.say(f"the hook {why} ({_named(one)}): this command does not run it again")


def _named(one: Happening) -> str:
    place = one.facts.get("slot") or one.facts.get("gate")
    return f"{one.event.value} {place}" if place else one.event.value


def _last_line(printed: IO[bytes]) -> str:
    size = printed.seek(0, os.SEEK_END)
    printed.seek(max(0, size - _SAID_BYTES))
    lines = printed.read().decode("utf-8", "replace").split("\n")
    said = [line.strip() for line in lines if line.strip()]
    return f": {said[-1]}" if said else ""
