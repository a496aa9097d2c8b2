"""One segment of a run: from the beginning or a checkpoint to the last update, or to where it is told to stop.

Between two steps (a chunk of updates, an evaluation, a checkpoint) the state alone says which one is next, so that a
segment which goes on anywhere does what the one before would have done.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..common.endings import EndedError, Ending, InterruptedAttemptError
from ..common.layout import AttemptFolder
from ..common.plan import Allocation, CheckpointName, PlannedAttempt, Recipe
from ..measurement.blocks import check_loss
from ..measurement.session import Session, Setting, SideRecord, running
from ..processes.sidelog import SideLog
from ..processes.signals import Signals
from ..processes.steps import alone
from .checkpoints import Account, Point, Restored, Sealed, identify, restore, store
from .pace import Pace
from .trainee import Times, Trainee, refuse_other_path

_SAME_LOSS = 1e-3
"""How much of a loss two evaluations of one state may differ by: devices need not give the same bits twice."""
_BEGINNING = Account(update=0, tokens=0, train_s=0.0, elapsed_s=0.0, curve=())


@dataclass(slots=True, kw_only=True)
class RunRecord:
    """What came of one segment of a run; filled as it goes, so that a failure leaves what came before."""

    recipe: str
    seed: int
    validation_targets: int
    resumed: CheckpointName | None
    """What it started from."""
    is_built: bool = False
    first_update: int = 0
    update: int = 0
    checkpoints: list[Sealed] = field(default_factory=list)
    """Those that the segment wrote, in order."""
    times: Times = field(default_factory=Times)
    whole: Account | None = None
    """The whole run; None unless the segment completed it."""

    def as_json(self) -> dict[str, Any] | None:
        """Return the receipt's entry; None if the side was not built."""
        if not self.is_built:
            return None
        resumed = self.resumed
        return {
            "recipe": self.recipe,
            "seed": self.seed,
            "resumed": None
            if resumed is None
            else {"segment": resumed.segment, "update": resumed.update, "sha256": resumed.sha256},
            "first_update": self.first_update,
            "update": self.update,
            "checkpoints": [sealed.as_json() for sealed in self.checkpoints],
            "train_s": self.times.train.seconds,
            "evaluate_s": self.times.evaluate.seconds,
            "save_s": self.times.save.seconds,
            "load_s": self.times.load.seconds,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBench:
    """What a segment of a run, or the pilot of a recipe, is run with."""

    allocation: Allocation
    planned: PlannedAttempt
    recipe: Recipe
    checkpoint_s: float
    folder: AttemptFolder
    """The segment's own, or the pilot's."""
    private: Path
    """A private folder, for what is saved and loaded."""
    setting_of: Callable[[], AbstractContextManager[Setting]]
    """Sets up one process of the side: folders of its own, which go when the context is left."""
    log: SideLog
    signals: Signals
    check_data: Callable[[], None]
    """Ends the attempt if a data set is not what was frozen."""
    say: Callable[[str], None]
    """Takes lines for the harness's log."""

    def restore(self, saved_by: PlannedAttempt) -> Restored:
        """Check the checkpoint that the plan names, and copy it for the side; before anything of that runs.

        Args:
            saved_by: The attempt at a run that left it, with the name of the checkpoint.

        Raises:
            EndedError: It is not what was sealed.
            InterruptedAttemptError: A signal came.
        """

        def pause(seconds: float) -> None:
            self.signals.wait(seconds)
            self.signals.check()

        identity = identify(self.allocation, saved_by, self.recipe)
        return restore(self.allocation.home, saved_by, identity, self.private / "load", pause=pause)


def begin_record(planned: PlannedAttempt, recipe: Recipe) -> RunRecord:
    """Return the record of a segment that has not begun."""
    targets = recipe.validation_targets
    return RunRecord(recipe=recipe.name, seed=planned.seed, validation_targets=targets, resumed=planned.resume)


def run_segment(bench: RunBench, record: RunRecord, side: SideRecord) -> None:
    """Run one segment and fill its records.

    Args:
        bench: What it is run with.
        record: Of the segment.
        side: Of the side's process.

    Raises:
        EndedError: The attempt ends here.
        InterruptedAttemptError: A signal came; what could be saved is.
    """
    # Before anything of the side runs: it sees the copy alone.
    restored = _restore(bench, record)
    with (
        bench.setting_of() as setting,
        bench.signals.watching(),
        running(setting, side, bench.log, bench.signals) as session,
    ):
        alone(session.start())
        training = Training(bench, record, session, restored)
        training.begin()
        training.conduct()


def _restore(bench: RunBench, record: RunRecord) -> Restored | None:
    if bench.planned.resume is None:
        return None
    began_s = time.monotonic()
    restored = bench.restore(bench.planned)
    record.times.load.own_s += time.monotonic() - began_s
    bench.say(f"goes on from update {restored.account.update}, checked and copied in {record.times.load.own_s:.3f} s")
    return restored


class Training:
    """A segment while its side runs.

    Args:
        bench: What it is run with.
        record: Filled as it goes.
        session: The side, which has imported its adapter.
        restored: What it goes on from; None for the beginning.
    """

    def __init__(self, bench: RunBench, record: RunRecord, session: Session, restored: Restored | None) -> None:
        self._bench = bench
        self._recipe = bench.recipe
        self._record = record
        self._session = session
        self._trainee = Trainee(session, bench.recipe, record.times)
        self._restored = restored
        self._before = restored.account if restored is not None else _BEGINNING
        self._update = self._before.update
        self._tokens = self._before.tokens
        self._curve, self._told = _split_curve(self._before, bench.recipe)
        self._path = restored.path if restored is not None else None
        self._pace = Pace(session.setting.limits.stall_s)
        self._began_s = 0.0
        self._saved_s = 0.0

    def begin(self) -> None:
        """Build, and take up the state that the segment goes on from."""
        self._began_s = self._trainee.build()
        record = self._record
        record.is_built, record.first_update, record.update = True, self._update, self._update
        if self._restored is not None:
            what = f"loading the checkpoint of update {self._update}"
            self._trainee.load(self._restored.files, self._restored.progress, what)
            # It is as large as what is saved next.
            shutil.rmtree(self._restored.files, ignore_errors=True)

    def conduct(self) -> None:
        """Go on to the last update and collect the result, or stop between two steps.

        Raises:
            InterruptedAttemptError: A signal came before the end.
        """
        signals = self._bench.signals
        with signals.deferring():
            while (step := self._next_step()) is not None:
                step()
                self._heed()
            self._conclude()

    def account(self) -> Account:
        """Return the whole run so far."""
        return Account(
            update=self._update,
            tokens=self._tokens,
            train_s=self._before.train_s + self._record.times.train.seconds,
            elapsed_s=self._before.elapsed_s + (time.monotonic() - self._began_s),
            curve=tuple(self._curve),
        )

    # --- which step is next -------------------------------------------------------------------------------------------

    def _next_step(self) -> Callable[[], None] | None:
        if self._owes_point():
            return self._evaluate
        if self._is_save_due():
            return self._save
        return self._train if self._update < self._recipe.updates else None

    def _owes_point(self) -> bool:
        is_point = self._update > 0 and self._recipe.next_point(self._update - 1) == self._update
        return is_point and not (self._curve and self._curve[-1].update == self._update)

    def _is_save_due(self) -> bool:
        if self._is_saved_here():
            return False
        if self._update == self._recipe.updates:
            return True
        if not self._has_trained():
            return False
        is_long_ago = time.monotonic() - self._saved_s >= self._bench.checkpoint_s
        return is_long_ago or not self._record.checkpoints

    def _has_trained(self) -> bool:
        return self._update > self._before.update

    def _is_saved_here(self) -> bool:
        """Return whether this segment has saved the state that it is in; that of its start is another one's."""
        saved = self._record.checkpoints
        return bool(saved) and saved[-1].update == self._update

    def _heed(self) -> None:
        """Stop if a signal was heard and a step is left to do, and save what would be lost.

        Raises:
            EndedError: It was the side's own.
            InterruptedAttemptError: It was not.
        """
        self._bench.signals.check()
        received = self._bench.signals.received
        if received is None or self._next_step() is None:
            return
        if self._has_trained() and not self._is_saved_here():
            self._save()
            self._bench.signals.check()
        raise InterruptedAttemptError(received.name)

    # --- the steps ----------------------------------------------------------------------------------------------------

    def _train(self) -> None:
        recipe = self._recipe
        updates = self._pace.next_chunk(recipe.next_point(self._update) - self._update)
        what = f"updates {self._update + 1} to {self._update + updates}"
        is_first = not self._has_trained()
        block = self._trainee.train(updates, what, is_first=is_first)
        self._update += updates
        self._tokens += block.tokens
        self._record.update = self._update
        self._check_tokens(what)
        self._pace.took(block)
        if is_first:
            self._path = self._trainee.check_path(self._path, f"after {what}")

    def _check_tokens(self, what: str) -> None:
        targets = self._recipe.targets
        is_last = self._update == self._recipe.updates
        if self._tokens > targets or (is_last and self._tokens != targets):
            text = f"{self._tokens} targets after {self._update} of {self._recipe.updates} updates"
            raise EndedError(Ending.COUNT_DISAGREEMENT, f"{what}: {text}; {self._recipe.name} has {targets}")

    def _evaluate(self) -> None:
        what = f"evaluation after update {self._update}"
        loss = self._trainee.evaluate(what)
        if self._told is not None and not (abs(loss - self._told.validation_loss) <= _SAME_LOSS * abs(loss)):
            text = f"the validation loss is {loss!r}, and the checkpoint says {self._told.validation_loss!r}"
            raise EndedError(Ending.STATE_MISMATCH, f"{what}: {text} of the same state")
        self._curve.append(Point(update=self._update, tokens=self._tokens, validation_loss=loss))

    def _save(self) -> None:
        bench, update = self._bench, self._update
        what = f"checkpoint of update {update}"
        self._path = self._trainee.check_path(self._path, what)
        progress, path = self._trainee.progress(what), self._path
        folder = bench.private / f"save-{update}"
        self._trainee.save(folder, what)
        account, began_s = self.account(), time.monotonic()
        with _removing(folder):
            # Nothing goes on from a state that may have come of other data.
            bench.signals.hear_during(bench.check_data)
            sealed = bench.signals.hear_during(
                lambda: store(
                    bench.folder,
                    folder,
                    identify(bench.allocation, bench.planned, bench.recipe),
                    segment=bench.planned.segment,
                    allocation=bench.allocation.id,
                    previous=bench.planned.resume,
                    account=account,
                    progress=progress,
                    path=path,
                    at=time.time(),
                )
            )
        self._saved_s = time.monotonic()
        self._record.times.save.own_s += self._saved_s - began_s
        self._record.checkpoints.append(sealed)
        bench.say(f"{what}: {sealed.num_bytes} bytes")

    def _conclude(self) -> None:
        result = alone(self._session.result(has_loss=self._has_trained()))
        refuse_other_path(
            self._session.record.path, self._path, f"result: engaged() says {self._session.record.engaged}"
        )
        check_loss(result.loss)
        self._trainee.check_clocks()
        # What follows is no part of the run.
        self._record.whole = self.account()
        alone(self._session.leave())


def _split_curve(before: Account, recipe: Recipe) -> tuple[list[Point], Point | None]:
    """Return the points that a segment takes over, and the one of the last update if it is told: it makes its own.

    The run's result is what a process says that seals a receipt, never what a document says that nothing has sealed.
    """
    curve = list(before.curve)
    is_told = before.update == recipe.updates and bool(curve) and curve[-1].update == before.update
    return (curve[:-1], curve[-1]) if is_told else (curve, None)


@contextlib.contextmanager
def _removing(folder: Path) -> Iterator[None]:
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
