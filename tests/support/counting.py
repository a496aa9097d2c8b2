"""A campaign whose trainer is a few lines of Python: everything real but the training."""

from __future__ import annotations

import sys
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
name = "counting"
baseline_first = {baseline_first}

[baseline]
source = "source"
adapter = "counting:baseline"
python = "{python}"

[candidate]
source = "source"
adapter = "counting:candidate"
python = "{python}"

[throughput]
window_s = "{window_s}"
window_margin = "4"
pilot_s = "0.05"
solo = {baseline_first}

[slurm]
cpus = 1
minutes = 5

[matrix]
name = "{{mode}}-w{{work}}"
axes.mode = ["plain", "packed"]
axes.work = [2000, 4000]
fixed = {{ tokens = 8 }}
production = ["plain-w4000"]

[[category]]
name = "plain"
mode = "plain"

[[category]]
name = "packed"
mode = "packed"
"""


def write_counting_campaign(folder: Path, *, baseline_first: bool = False, window_s: str = "0.05") -> Path:
    """Write the source tree and campaign.toml below a folder; return the file's path."""
    source = folder / "source"
    source.mkdir(parents=True)
    (source / "counting.py").write_text(ADAPTER)
    config = folder / "campaign.toml"
    config.write_text(
        CONFIG.format(python=sys.executable, baseline_first=str(baseline_first).lower(), window_s=window_s)
    )
    return config
