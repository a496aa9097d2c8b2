"""What a verification says: checks in a fixed order, each with a state and every finding."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


class State(enum.StrEnum):
    """What is known after a check, from best to worst."""

    INTACT = "intact"
    NOT_CHECKED = "not_checked"
    """It could not be looked at: something was withheld, was asked to be left out, or is not there to compare with."""
    INCOMPLETE = "incomplete"
    """Nothing contradicts it, and something is still to come: a running attempt, a campaign without a verdict."""
    UNREADABLE = "unreadable"
    """Something is there, and the machine or its modes do not let it be read: what it holds is not known."""
    TAMPERED = "tampered"
    """Something is not what was frozen, sealed or recorded, or is missing, or was added."""


_ORDER = tuple(State)
FAULTS = (State.UNREADABLE, State.TAMPERED)
"""States with which nothing is established: no tier, no verdict, and no closing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it should be."""

    check: str
    """Name of the check that found it."""
    state: State
    """TAMPERED, UNREADABLE, or INCOMPLETE."""
    where: str
    """A path relative to the home, with ``:line`` where there is one."""
    what: str
    """Why, with both values where two disagree."""


class Unread(str):
    """Why something that is there could not be read. Whoever passes it on as a reason accuses nobody by that."""

    __slots__ = ()


@dataclass(slots=True, kw_only=True)
class Check:
    """One check under way. Its state is the worst of what was said."""

    name: str
    title: str
    """What was looked at, in a few words."""
    findings: list[Finding] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    """What a reader should know beside the findings: why something was not checked, how many there were."""
    _not_checked: bool = False

    def tampered(self, where: str, what: str) -> None:
        """Say that something is not what it was; or, where the reason is that it cannot be read, just that."""
        state = State.UNREADABLE if isinstance(what, Unread) else State.TAMPERED
        self.findings.append(Finding(check=self.name, state=state, where=where, what=what))

    def incomplete(self, where: str, what: str) -> None:
        """Say that something is still to come."""
        self.findings.append(Finding(check=self.name, state=State.INCOMPLETE, where=where, what=what))

    def not_checked(self, why: str) -> None:
        """Say that something could not be looked at."""
        self._not_checked = True
        self.remarks.append(why)

    def remark(self, text: str) -> None:
        """Add something that a reader should know."""
        self.remarks.append(text)

    @contextmanager
    def each(self) -> Iterator[None]:
        """Let what is wrong with one document be a finding that ends the block, and not the whole check."""
        try:
            yield
        except EvidenceError as error:
            self.tampered(error.where, error.what)

    @property
    def state(self) -> State:
        """The worst of what was said."""
        said = [finding.state for finding in self.findings]
        if self._not_checked:
            said.append(State.NOT_CHECKED)
        return max(said, key=_ORDER.index, default=State.INTACT)

    @property
    def is_tampered(self) -> bool:
        """Whether it found something that is not what it was."""
        return self.state is State.TAMPERED


@dataclass(slots=True)
class Checks:
    """All checks of one verification, in order."""

    made: list[Check] = field(default_factory=list)

    @contextmanager
    def begin(self, name: str, title: str) -> Iterator[Check]:
        """Begin a check; what goes wrong while it is made is a finding of it and ends it, not the verification.

        Args:
            name: A word or two, joined by hyphens.
            title: What is looked at, in a few words.
        """
        check = Check(name=name, title=title)
        self.made.append(check)
        try:
            yield check
        except EvidenceError as error:
            check.tampered(error.where, error.what)
        except OSError as error:
            check.tampered(str(error.filename or ""), unread(error))

    @property
    def state(self) -> State:
        """The worst of all checks; NOT_CHECKED if none was made."""
        return max((check.state for check in self.made), key=_ORDER.index, default=State.NOT_CHECKED)

    @property
    def findings(self) -> list[Finding]:
        """Every finding, check by check."""
        return [finding for check in self.made for finding in check.findings]


def unread(error: OSError) -> Unread:
    """Return the reason of a failure to read something that is there."""
    return Unread(f"is there, and cannot be read: {error.strerror or error}")


class EvidenceError(Exception):
    """Something cannot be what was frozen, sealed or recorded, or cannot be read, which `Unread` as its reason says.

    Args:
        where: A path relative to the home, with ``:line`` where there is one.
        what: Why.
    """

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")
        self.where = where
        self.what = what

    @property
    def is_unread(self) -> bool:
        """Whether it is there and cannot be read, so that nothing is known of it."""
        return isinstance(self.what, Unread)
