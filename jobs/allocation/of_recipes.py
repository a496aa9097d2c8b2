"""Attempts at recipes: a segment of a run, a resumption, and pilots. Loaded where a job has one."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ..common.layout import AttemptFolder
from ..common.plan import RESUMPTION, RUN, PlannedAttempt, Recipe
from ..processes.sidelog import SideLog
from ..runs.pilot import run_recipe_pilot
from ..runs.resumption import run_resumption
from ..runs.run import RunBench, begin_record, run_segment
from .context import Context, set_up, undisturbed

if TYPE_CHECKING:
    from .kinds import Made


def run_recipe(context: Context, planned: PlannedAttempt, recipe: Recipe, folder: AttemptFolder, made: Made) -> None:
    """Run one segment of a run, a resumption, or the pilot of a recipe.

    Raises:
        EndedError: The attempt ends here.
        InterruptedAttemptError: A signal came.
    """
    rules, (record,) = context.protocol.convergence, made.records
    if rules is None:
        raise ValueError("the protocol declares no convergence family")
    log = SideLog(folder.log(record.side), context.protocol.limits.log_bytes)
    with (
        context.workspace.private_folder() as private,
        undisturbed(context, planned, record.side),
        contextlib.closing(log),
    ):
        bench = RunBench(
            allocation=context.allocation,
            planned=planned,
            recipe=recipe,
            checkpoint_s=rules.checkpoint_s,
            folder=folder,
            private=private,
            setting_of=lambda: set_up(context, planned, record.side),
            log=log,
            signals=context.signals,
            check_data=context.check_data,
            say=lambda text: context.log.write(f"{planned.name}: {text}"),
        )
        if planned.kind == RUN:
            made.run = begin_record(planned, recipe)
            run_segment(bench, made.run, record)
        elif planned.kind == RESUMPTION:
            run_resumption(bench, record)
        else:
            run_recipe_pilot(bench, record)
