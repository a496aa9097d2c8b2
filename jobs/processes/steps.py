"""Steps of several processes side by side: a step sends, yields while it waits, and then takes the answer."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")
Step: TypeAlias = Generator[None, None, T]
"""Runs up to a ``yield`` wherever it would wait for another process; its return value is what it found."""


class Begun(Generic[T]):
    """A step that has been begun: what it asked for is under way.

    Args:
        step: The step.
    """

    def __init__(self, step: Step[T]) -> None:
        self._step = step
        self._value: list[T] = []
        self.advance()

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it is left to do."""
        return bool(self._value)

    def advance(self) -> bool:
        """Go on to where it would wait again; return whether it has ended."""
        if not self._value:
            try:
                next(self._step)
            except StopIteration as ended:
                self._value.append(ended.value)
        return bool(self._value)

    def finish(self) -> T:
        """Go on to the end; return what was found."""
        while not self.advance():
            pass
        return self._value[0]


def alone(step: Step[T]) -> T:
    """Run a step with nothing beside it."""
    return Begun(step).finish()


def finish_all(begun: Sequence[Begun[Any]]) -> None:
    """Let steps go on side by side until all have ended."""
    waiting = begun
    while waiting:
        waiting = [one for one in waiting if not one.advance()]


def together(*steps: Step[T]) -> list[T]:
    """Run steps side by side; return what each found, in order."""
    begun = [Begun(step) for step in steps]
    finish_all(begun)
    return [one.finish() for one in begun]
