"""A campaign of both families whose trainer is small: counting for throughput, torch for matched updates alone."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.matched import TRAINER

ADAPTER = '''"""Counts where time is measured; loads torch where updates are matched."""
import time


class Runner:
    def __init__(self, config, seed, device, work, variant):
        self._given, self._work, self._variant = (config, seed, device), work, variant
        self._total, self._made = 0.0, None

    def _trainer(self):
        if self._made is None:
            import trainer

            config, seed, device = self._given
            self._made = getattr(trainer, self._variant)(config, seed=seed, device=device)
        return self._made

    def updates(self, n):
        if not self._total and self._variant == "build":
            time.sleep(0.5)  # the baseline warms up for longer
        for _ in range(n * self._work):
            self._total += 1.0
        return n, n, 0, n * self._given[0]["tokens"]

    def sync(self):
        pass

    def loss(self):
        return 1.0 / (1.0 + self._total)

    def engaged(self):
        return {"path": self._variant, "work": self._work}

    def state(self, quantity):
        return self._trainer().state(quantity)

    def load_state(self, tensors, step):
        self._trainer().load_state(tensors, step)

    def batch(self, step):
        return self._trainer().batch(step)

    def update_on(self, batch):
        return self._trainer().update_on(batch)

    def optimizer_check(self, parameters, gradients, steps):
        return self._trainer().optimizer_check(parameters, gradients, steps)

    def mix(self, parameters, round):
        return self._trainer().mix(parameters, round)

    def close(self):
        pass


def baseline(config, *, seed, device):
    return Runner(config, seed, device, config["work"], "build")


def candidate(config, *, seed, device):
    return Runner(config, seed, device, config["work"] // 2, "build_other")
'''

OTHER = '''

class Other(Trainer):
    """The same arithmetic in another order: close, and not equal."""

    def forward(self, worker, batch):
        p = self.p[worker]
        hidden = torch.tanh(torch.addmm(p["first.bias"], batch["x"][worker], p["first.weight"].T))
        out = (hidden @ (p["scale"] * p["second.weight"]).T).squeeze(-1)
        return torch.nn.functional.mse_loss(out[batch["kept"]], batch["y"][worker][batch["kept"]])


def build_other(config, *, seed, device):
    return Other(config, seed, device)
'''

CONFIG = """
name = "matching"
baseline_first = {baseline_first}

[baseline]
source = "source"
adapter = "matching:baseline"
python = "{python}"

[candidate]
source = "source"
adapter = "matching:candidate"
python = "{python}"

[throughput]
repeats = {repeats}
window_s = "{window_s}"
window_margin = "4"
pilot_s = "0.05"
clock_absolute_s = "0.25"
solo = {baseline_first}
controls = {baseline_first}

[numerical]
updates = 3
isolated_steps = 2
required = ["optimizer_check", "mix"]

[slurm]
cpus = 1
minutes = 5

[matrix]
name = "{{mode}}"
axes.mode = {modes}
fixed = {{ work = 2000, tokens = 8, workers = 2 }}
production = ["plain"]
"""


def write_matching_campaign(
    folder: Path,
    *,
    modes: tuple[str, ...] = ("plain",),
    baseline_first: bool = False,
    repeats: int = 1,
    window_s: str = "0.02",
) -> Path:
    """Write the source tree and campaign.toml below a folder; return the file's path.

    Args:
        folder: The folder.
        modes: The workloads; the first is ``plain``, the production case.
        baseline_first: Whether the baseline is measured alone first, and against itself.
        repeats: Rounds of throughput.
        window_s: Shortest window.
    """
    source = folder / "source"
    source.mkdir(parents=True)
    (source / "matching.py").write_text(ADAPTER)
    (source / "trainer.py").write_text(TRAINER + OTHER)
    config = folder / "campaign.toml"
    config.write_text(
        CONFIG.format(
            python=sys.executable,
            baseline_first=str(baseline_first).lower(),
            repeats=repeats,
            window_s=window_s,
            modes=list(modes),
        )
    )
    return config
