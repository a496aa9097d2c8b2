"""Resumptions in a small campaign home: a side goes on from a checkpoint that a side has saved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from campaign import documents
from tests.support.harness import CANDIDATE, RECIPE, Bench, make_bench, make_convergence
from tests.support.segments import TRAINER, UPDATES, targets

LIMITS = documents.Limits(import_s=20, startup_s=20, stall_s=2, log_bytes=4096)


def make_two(root: Path, baseline: str | Mapping[str, str] = TRAINER, candidate: str = TRAINER) -> Bench:
    """Create a home with one recipe and two sides that may differ."""
    convergence = make_convergence(updates=UPDATES, evaluate_every=10, validation_targets=7, targets=targets())
    return make_bench(root, baseline, candidate, limits=LIMITS, convergence=convergence)


def make_resumption(
    side: documents.SideName, owner: str, resume: documents.CheckpointName, *, updates: int = 3
) -> documents.PlannedAttempt:
    """Return a planned resumption of the first attempt at a run of the one recipe.

    Args:
        side: Which side goes on.
        owner: Whose checkpoint it is: ``baseline``, or the candidate's id.
        resume: The checkpoint.
        updates: How many updates it makes.
    """
    name = CANDIDATE if side == "candidate" else "baseline"
    return documents.PlannedAttempt(
        slot=f"{name}/resumption/{RECIPE}/s45/from-{owner}",
        attempt=1,
        kind="resumption",
        workload=RECIPE,
        repeat=0,
        pair=0,
        order=(side,),
        updates=updates,
        resume=resume,
    )


def plan_resumptions(bench: Bench, *attempts: documents.PlannedAttempt, allocation: str) -> Path:
    """Write allocation.json of resumptions, which names both sides; return its path."""
    path = bench.plan(*attempts, allocation=allocation)
    sides = {"baseline": bench.runnables["baseline"], "candidate": bench.runnables["candidate"]}
    path.write_bytes(documents.AllocationPlan.read(path).replace(sides=sides).to_bytes())
    return path


def read_resumption(bench: Bench, planned: documents.PlannedAttempt) -> documents.Resumption:
    """Return what a resumption left beside its receipt."""
    return documents.Resumption.read(bench.attempt(planned).resumption)
