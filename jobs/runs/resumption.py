"""A resumption: a fresh process of a side goes on, update by update, from a checkpoint that either side has saved.

The other side's checkpoint need not mean anything to a side. Whatever it does with it ends the attempt as it would end
a run; the losses up to there are kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..common.endings import EndedError, Ending
from ..common.layout import RESUMPTION
from ..common.plan import CheckpointName, PlannedAttempt
from ..common.storage import write_table
from ..common.strict import dump_json
from ..measurement.session import Session, SideRecord, running
from ..processes.steps import alone
from . import copying
from .checkpoints import Restored
from .copying import SourceError
from .run import RunBench
from .trainee import Times, Trainee

FORMAT = "resumption/1"


@dataclass(slots=True, kw_only=True)
class ResumptionRecord:
    """What came of a resumption; filled as it goes, so that a failure leaves what came before."""

    planned: PlannedAttempt
    saved_by: PlannedAttempt
    """The attempt at a run that left the checkpoint."""
    resume: CheckpointName
    is_loaded: bool = False
    """Whether the state was loaded, and progress() then said what it had said before it was saved."""
    losses: list[float] = field(default_factory=list)
    """Of every update after that, in order."""

    def as_json(self) -> dict[str, Any]:
        """Return the document."""
        (side,), resume = self.planned.order, self.resume
        return {
            "format": FORMAT,
            "side": side,
            "recipe": self.planned.workload,
            "seed": self.planned.seed,
            "slot": self.saved_by.slot,
            "attempt": self.saved_by.attempt,
            "segment": resume.segment,
            "update": resume.update,
            "sha256": resume.sha256,
            "is_loaded": self.is_loaded,
            "losses": self.losses,
        }


def run_resumption(bench: RunBench, side: SideRecord) -> None:
    """Let a side go on from a checkpoint and keep the loss of every update.

    Args:
        bench: What it is run with.
        side: Filled as far as it goes, whatever happens.

    Raises:
        EndedError: The attempt ends here.
        InterruptedAttemptError: A signal came.
    """
    planned, saved_by = bench.planned, bench.planned.saved_by()
    if planned.resume is None:
        raise ValueError(f"{planned.name} goes on from nothing")
    record = ResumptionRecord(planned=planned, saved_by=saved_by, resume=planned.resume)
    try:
        _go_on(bench, side, record)
    finally:
        write_table(bench.folder.table(RESUMPTION), dump_json(record.as_json()))


def _go_on(bench: RunBench, side: SideRecord, record: ResumptionRecord) -> None:
    # Before anything of the side runs: it sees the copy alone.
    restored = bench.restore(record.saved_by)
    before = _look(restored.files)
    with (
        bench.signals.watching(),
        bench.setting_of() as setting,
        running(setting, side, bench.log, bench.signals) as session,
    ):
        alone(session.start())
        _make_updates(bench, session, restored, record)
        alone(session.leave())
    if _look(restored.files) != before:
        text = "the side changed the checkpoint that it was given to load; one that was resumed must stay as it was"
        raise EndedError(Ending.INTERFERENCE, text)


def _make_updates(bench: RunBench, session: Session, restored: Restored, record: ResumptionRecord) -> None:
    trainee, first = Trainee(session, bench.recipe, Times()), restored.account.update
    trainee.build()
    if "loss" not in session.record.offers:
        session.refuse_missing(["loss"])
    trainee.load(restored.files, restored.progress, f"loading the checkpoint of update {first}")
    record.is_loaded = True
    # The side that saved it took a path that the checkpoint names; the other one's is its own.
    path = restored.path if record.saved_by.order == record.planned.order else None
    for number in range(1, record.planned.updates + 1):
        what = f"update {first + number}"
        trainee.train(1, what, is_first=number == 1)
        record.losses.append(_read_loss(alone(session.result()).loss, what))
        if number == 1:
            trainee.check_path(path, f"after {what}")


def _read_loss(text: str | None, what: str) -> float:
    if text is None:
        raise EndedError(Ending.ADAPTER_INCOMPLETE, f"{what}: the adapter's object does not offer loss")
    loss = float(text)
    if not math.isfinite(loss):
        raise EndedError(Ending.NON_FINITE, f"{what}: its loss is {loss}")
    return loss


def _look(folder: Path) -> copying.Found | None:
    """Return what tells whether a private copy is still as it was; None if it cannot be looked at any more."""
    try:
        with copying.opened_source(folder) as reading:
            return copying.find_files(reading)
    except SourceError:
        return None
