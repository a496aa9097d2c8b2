"""A campaign of the convergence family whose trainer takes no time, and whose candidate fails with one seed."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.harness import trainer

FAILING = """
def updates(self, n):
    import os

    if str(self.seed) == os.environ.get("FAILING_SEED") and self.count + n > 20:
        raise RuntimeError(f"the loss of seed {self.seed} exploded")
    for number in range(self.count, self.count + n):
        self.state *= 1 - 0.1 / (number + 2 + self.seed % 7)
    return super().updates(n)
"""
CONFIG = """
name = "failing"
baseline_first = false

[baseline]
source = "source"
adapter = "trained:build"
python = "{python}"

[candidate]
source = "source"
adapter = "trained:build"
python = "{python}"
environment = {{ FAILING_SEED = "{seed}" }}

[throughput]
repeats = 1
window_s = "0.02"
window_margin = "4"
pilot_s = "0.05"
clock_absolute_s = "0.25"
solo = false
controls = false

[convergence]
power_waiver = "a run that fails is tried here, not the gate"

[slurm]
cpus = 1
minutes = 5

[[workload]]
name = "short"
production = true
config = {workload}

[[recipe]]
name = "whole"
config = {recipe}
targets = {targets}
validation_targets = 1000
updates = 40
evaluate_every = 10
"""


def write_failing_campaign(folder: Path, *, failing_seed: int) -> Path:
    """Write the source tree and campaign.toml below a folder; return the file's path.

    Args:
        folder: The folder.
        failing_seed: The seed with which the candidate's trainings end in an error, each time.
    """
    source = folder / "source"
    source.mkdir(parents=True)
    (source / "trained.py").write_text(trainer(FAILING))
    entries = "{ tokens = 5, validation_targets = 1000, kind = %s }"
    config = folder / "campaign.toml"
    config.write_text(
        CONFIG.format(
            python=sys.executable,
            seed=failing_seed,
            workload=entries % '"short"',
            recipe=entries % '"whole"',
            targets=5 * 40,
        )
    )
    return config
