"""A side that is trained: what a run asks of it, and the time that each kind of step took."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..common.endings import EndedError, Ending
from ..common.plan import NEEDED_BY_RUNS, Recipe, Rules
from ..common.strict import MOST_COUNT, Fields
from ..measurement.blocks import Block, check_clock
from ..measurement.session import Session
from ..processes.channel import Answer
from ..processes.steps import alone

Progress = dict[str, int | float | str]
_MOST_SHOWN = 5
_MOST_WHAT = 1000


@dataclass(slots=True)
class Stopwatch:
    """The time that one kind of step took, all steps together."""

    side_s: float = 0.0
    """Of the side's part, on the parent's clock."""
    own_s: float = 0.0
    """Of the harness's own part: copying."""
    _claimed_s: float = 0.0
    _steps: int = 0

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.side_s + self.own_s

    def add(self, seconds: float, claimed_s: float) -> None:
        """Add a step of the side.

        Args:
            seconds: On the parent's clock.
            claimed_s: What the worker says.
        """
        self.side_s += seconds
        self._claimed_s += claimed_s
        self._steps += 1

    def check(self, rules: Rules, what: str) -> None:
        """Compare the two clocks over all steps.

        Not step by step: a run has thousands, and one that the machine holds up is no disagreement.

        Raises:
            EndedError: They disagree.
        """
        check_clock(self._claimed_s, self.side_s, rules, what, steps=self._steps)


@dataclass(slots=True, kw_only=True)
class Times:
    """What the steps of a segment took."""

    train: Stopwatch = field(default_factory=Stopwatch)
    evaluate: Stopwatch = field(default_factory=Stopwatch)
    save: Stopwatch = field(default_factory=Stopwatch)
    load: Stopwatch = field(default_factory=Stopwatch)


class Trainee:
    """A running side that is trained.

    Args:
        session: The side.
        recipe: What it is trained by.
        times: Takes what each step took.
    """

    def __init__(self, session: Session, recipe: Recipe, times: Times) -> None:
        self.session = session
        self._recipe = recipe
        self._times = times

    @property
    def _rules(self) -> Rules:
        return self.session.setting.protocol.rules

    def check_clocks(self) -> None:
        """Compare the side's clock with the parent's: over all updates, and over all evaluations.

        Raises:
            EndedError: They disagree.
        """
        self._times.train.check(self._rules, "all updates")
        self._times.evaluate.check(self._rules, "all evaluations")

    def build(self) -> float:
        """Let the adapter build its object, which must offer all that a run needs; return when that began."""
        began_s = alone(self.session.build())
        self.session.refuse_missing([name for name in NEEDED_BY_RUNS if name not in self.session.record.offers])
        return began_s

    def train(self, updates: int, what: str, *, is_first: bool = False) -> Block:
        """Make updates on the production path.

        Args:
            updates: How many.
            what: Which, for the reason of an ending.
            is_first: Whether the process makes its first ones, which may compile or capture.
        """
        limit_s = self.session.setting.limits.startup_s if is_first else None
        block, _ = alone(self.session.updates(updates, what, limit_s, is_timed=False))
        self._times.train.add(block.seconds, block.claimed_s)
        return block

    def evaluate(self, what: str) -> float:
        """Return the mean loss over the whole validation split, in nats.

        Raises:
            EndedError: It is not finite, or of another number of targets than the recipe's.
        """
        nats, targets, seconds, claimed_s = alone(self.session.ask({"do": "evaluate"}, what, _read_evaluation))
        self._times.evaluate.add(seconds, claimed_s)
        expected = self._recipe.validation_targets
        if targets != expected:
            text = f"evaluate() counted {targets} targets; the validation split of {self._recipe.name} has {expected}"
            raise EndedError(Ending.COUNT_DISAGREEMENT, f"{what}: {text}")
        loss = nats / targets
        if not math.isfinite(loss):
            raise EndedError(Ending.NON_FINITE, f"{what}: the validation loss is {loss}")
        return loss

    def progress(self, what: str) -> Progress:
        """Return what the side says of where it stands."""
        return alone(self.session.ask({"do": "progress"}, f"{what}: progress", _read_progress))

    def save(self, folder: Path, what: str) -> None:
        """Let the side write its state into a new folder."""
        folder.mkdir()
        command = {"do": "save", "folder": str(folder)}
        self._times.save.add(*alone(self.session.ask(command, what, _read_seconds)))

    def load(self, folder: Path, before: Mapping[str, int | float | str], what: str) -> None:
        """Let the side take up a state, and ask where it stands then.

        Args:
            folder: What it saved.
            before: Where it stood when it saved.
            what: What it is for, for the reason of an ending.

        Raises:
            EndedError: It stands elsewhere.
        """
        command = {"do": "restore", "folder": str(folder)}
        self._times.load.add(*alone(self.session.ask(command, what, _read_seconds)))
        if found := find_differences(before, self.progress(what)):
            shown = "; ".join(found[:_MOST_SHOWN])
            text = f"progress() differs in {len(found)} entries between saving and loading: {shown}"
            raise EndedError(Ending.STATE_MISMATCH, f"{what}: {text}")

    def check_path(self, before: str | None, what: str) -> str:
        """Ask for the execution path and return it: a run keeps to one.

        Args:
            before: What it was; None if nobody has asked yet.
            what: When, for the reason of an ending.

        Raises:
            EndedError: It is another one.
        """
        path = alone(self.session.engaged_path())
        refuse_other_path(path, before, f"{what}: engaged() says {self.session.record.engaged}")
        return path


def refuse_other_path(path: str, before: str | None, what: str) -> None:
    """Refuse an execution path that is not the one before.

    Raises:
        EndedError: It is not.
    """
    if before is not None and path != before:
        text = f"its text stands for the path {path!r}, before it was {before!r}; a run keeps to one path"
        raise EndedError(Ending.STATE_MISMATCH, f"{what:.{_MOST_WHAT}}: {text}")


def find_differences(before: Mapping[str, int | float | str], after: Mapping[str, int | float | str]) -> Sequence[str]:
    """Return in words how two answers of ``progress`` differ."""
    return [
        f"{name:.100} was {_shown(before, name)}, is {_shown(after, name)}"
        for name in sorted({*before, *after})
        if name not in before or name not in after or not _is_same(before[name], after[name])
    ]


def _is_same(before: float | str, after: float | str) -> bool:
    return type(before) is type(after) and before == after


def _shown(values: Mapping[str, int | float | str], name: str) -> str:
    return f"{values[name]!r:.100}" if name in values else "absent"


def _read_seconds(fields: Fields, answer: Answer) -> tuple[float, float]:
    return answer.seconds, fields.number("seconds")


def _read_evaluation(fields: Fields, answer: Answer) -> tuple[float, int, float, float]:
    nats = float(fields.text("nats"))
    return nats, fields.count("targets"), answer.seconds, fields.number("seconds")


def _read_progress(fields: Fields, _answer: Answer) -> Progress:
    found = fields.table("progress")
    for name, value in found.items():
        if type(value) not in (int, float, str) or (type(value) is int and abs(value) > MOST_COUNT):
            raise ValueError(f"progress holds something else than int, float and str at {name!r:.100}")
    return found
