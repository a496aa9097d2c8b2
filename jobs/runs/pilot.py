"""The pilot of a recipe: how fast a side trains, and that it goes on from its checkpoint in another process."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

from ..common.plan import Recipe, Rules
from ..measurement.blocks import Block, Calibration, calibrate, check_loss
from ..measurement.session import SideRecord, running
from ..processes.steps import alone
from .checkpoints import copy_saved
from .run import RunBench
from .trainee import Progress, Times, Trainee, refuse_other_path


def run_recipe_pilot(bench: RunBench, side: SideRecord) -> None:
    """Calibrate one side on a recipe, prove that it can be cut, and fill its record.

    Args:
        bench: What it is run with.
        side: Filled as far as the pilot goes, whatever happens.

    Raises:
        EndedError: The attempt ends here.
        InterruptedAttemptError: A signal came.
    """
    times = Times()
    kept = bench.folder.root / ".trial.tmp"
    with bench.signals.watching():
        try:
            calibration, progress = _first_process(bench, side, times, kept)
            copy_saved(kept, bench.private / "load")
        finally:
            shutil.rmtree(kept, ignore_errors=True)
        _second_process(bench, side, times, progress)
    side.calibration = calibration


def split_updates(recipe: Recipe, rules: Rules) -> tuple[int, int]:
    """Return how many updates the warm-up and the calibration may make.

    With the one update after loading they are no more than the recipe has, which are two at least: a schedule or a data
    set may end there.
    """
    warm_up = min(rules.warmup_updates, (recipe.updates - 1) // 2)
    return warm_up, max(1, recipe.updates - 1 - warm_up)


def _first_process(bench: RunBench, side: SideRecord, times: Times, kept: Path) -> tuple[Calibration, Progress]:
    """Calibrate, evaluate and save; return what was found and where the side stands."""
    saved = bench.private / "save"
    with bench.setting_of() as setting, running(setting, side, bench.log, bench.signals) as session:
        alone(session.start())
        trainee = Trainee(session, bench.recipe, times)
        rules = setting.protocol.rules
        warm_up, most = split_updates(bench.recipe, rules)
        began_s = trainee.build()
        _, warm_s = alone(session.updates(warm_up, "warm-up", setting.limits.startup_s))

        def block(updates: int) -> Block:
            return alone(session.updates(updates, f"block of {updates} updates"))[0]

        found = calibrate(block, rules, warm_s - began_s, most=most)
        trainee.evaluate("evaluation")
        path = trainee.check_path(None, "before saving")
        progress = trainee.progress("before saving")
        trainee.save(saved, "saving")
        copied_s = time.monotonic()
        files = bench.signals.hear_during(lambda: copy_saved(saved, kept))
        times.save.own_s += time.monotonic() - copied_s
        result = alone(session.result())
        refuse_other_path(side.path, path, f"result: engaged() says {side.engaged}")
        check_loss(result.loss)
        trainee.check_clocks()
        alone(session.leave())
    shutil.rmtree(saved, ignore_errors=True)
    num_bytes = sum(file.num_bytes for file in files)
    costs = replace(found, evaluate_s=times.evaluate.seconds, checkpoint_bytes=num_bytes, save_s=times.save.seconds)
    return costs, progress


def _second_process(bench: RunBench, side: SideRecord, times: Times, progress: Progress) -> None:
    """Load what the first process saved, and make one update."""
    path = side.path
    with bench.setting_of() as setting, running(setting, side, bench.log, bench.signals) as session:
        alone(session.start())
        trainee = Trainee(session, bench.recipe, times)
        trainee.build()
        trainee.load(bench.private / "load", progress, "loading in another process")
        trainee.train(1, "update after loading", is_first=True)
        result = alone(session.result())
        refuse_other_path(side.path, path, f"after loading in another process: engaged() says {side.engaged}")
        check_loss(result.loss)
        alone(session.leave())
