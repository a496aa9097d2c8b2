"""A run of the real trainer, gone on with in another process: the same numbers, to the bit."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest

from acceptance.formats import Ending
from tests.support.harness import LIMITS, make_bench, make_convergence, make_recipe_pilot, make_run
from tests.support.tinylm import SOURCE

UPDATES = 12
CONFIG: dict[str, Any] = {
    "size": "micro",
    "mode": "packed",
    "workers": 4,
    "batch": 3,
    "context": 16,
    "warmup": 3,
    "updates_total": UPDATES,
    "whole_windows": True,
    "precision": "fp16",
    "loss_scale": 2.0**24,
    "scale_growth": 2,
}
"""Skips its first updates, and has consensus, mixed precision and a schedule that ends with the run."""
TABLES = ("convergence.csv", "curves.csv")
VARYING = ("segments", "train_s", "elapsed_s", "checkpoint_sha256")


@pytest.mark.parametrize("backend", [pytest.param("native", marks=pytest.mark.slow), "fast"])
def test_a_training_that_goes_on_ends_as_one_that_was_never_cut(tmp_path: Path, backend: str) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for name, size in (("train.bin", 4001), ("val.bin", 700)):
        noise = hashlib.shake_256(name.encode()).digest(size)
        (corpus / name).write_bytes(bytes(32 + value % 95 for value in noise))
    sources = {path.relative_to(SOURCE).as_posix(): path.read_text() for path in SOURCE.rglob("*.py")}
    recipe = {"config": CONFIG, "targets": UPDATES * 4 * 3 * 16, "validation_targets": 699}
    bench = make_bench(
        tmp_path,
        sources,
        sources,
        limits=LIMITS.replace(import_s=120, startup_s=120, stall_s=120),
        convergence=make_convergence(updates=UPDATES, evaluate_every=5, **recipe),
        adapter=f"adapter:{backend}",
        environment={"TINYLM_DATA": str(corpus)},
        reads=(str(corpus),),
        python=sys.executable,
    )
    whole = make_run()
    bench.run(bench.plan(make_recipe_pilot("baseline"), whole))
    for planned in (make_recipe_pilot("baseline"), whole):
        assert bench.receipt(planned).ending is Ending.COMPLETED, bench.receipt(planned).reason
    again = make_run(segment=2, resume=bench.name_checkpoint(whole, 1))
    bench.run(bench.plan(again, allocation="a00002"))
    assert bench.receipt(again).ending is Ending.COMPLETED, bench.receipt(again).reason
    for table in TABLES:
        first, second = (
            [
                {name: value for name, value in row.values.items() if name not in VARYING}
                for row in bench.rows(one, table)
            ]
            for one in (whole, again)
        )
        assert first == second
    saved = [bench.checkpoints(planned)[UPDATES] for planned in (whole, again)]
    assert saved[0].progress == saved[1].progress
    assert saved[0].progress["successful_updates"] != saved[0].progress["attempted_updates"]
