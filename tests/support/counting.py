"""A campaign whose trainer is a few lines of Python: everything real but the training."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

ADAPTER = '''"""A trainer that counts: an update is a fixed amount of arithmetic."""


class Runner:
    def __init__(self, work, tokens):
        self._work, self._tokens, self._total = work, tokens, 0.0

    def updates(self, n):
        for _ in range(n * self._work):
            self._total += 1.0
        return n, n, 0, n * self._tokens

    def sync(self):
        pass

    def loss(self):
        return 1.0 / (1.0 + self._total)

    def engaged(self):
        return {"path": "counting", "work": self._work}

    def close(self):
        pass


def baseline(config, *, seed, device):
    return Runner(config["work"], config["tokens"])


def candidate(config, *, seed, device):
    return Runner(config["work"] // 2, config["tokens"])
'''

CONFIG = """
name = "{name}"
baseline_first = {solo}

[baseline]
source = "source"
adapter = "counting:baseline"
python = "{python}"

[candidate]
source = "source"
adapter = "counting:candidate"
python = "{python}"

[throughput]
repeats = {repeats}
window_s = "0.000001"
window_margin = "10"
pilot_s = "0.001"
windows = 1
warmup_updates = 0
solo = {solo}
controls = false

[submission]
workloads_per_allocation = {together}

[slurm]
minutes = 10

[matrix]
name = "w{{work}}"
axes.work = {works}
fixed = {{ tokens = 8 }}
production = {production}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting:
    """A campaign of next to no training: what is left is what its slots cost without it."""

    name: str
    works: range
    """The work of each workload; a workload is called ``w`` and this number."""
    production: tuple[str, ...]
    repeats: int = 3
    solo: bool = False
    """Whether the baseline's solo measurements, which come before a candidate, are planned."""
    together: int = 1
    """Workloads of one allocation."""


def write_counting_campaign(folder: Path, campaign: Counting, python: Path) -> Path:
    """Write the source tree and campaign.toml below a folder; return the file's path.

    Args:
        folder: Where.
        campaign: What.
        python: The interpreter of both sides.
    """
    source = folder / "source"
    source.mkdir(parents=True)
    (source / "counting.py").write_text(ADAPTER)
    config = folder / "campaign.toml"
    config.write_text(
        CONFIG.format(
            name=campaign.name,
            python=python,
            repeats=campaign.repeats,
            solo=str(campaign.solo).lower(),
            together=campaign.together,
            works=json.dumps([*campaign.works]),
            production=json.dumps(campaign.production),
        )
    )
    return config
