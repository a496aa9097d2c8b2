"""A small campaign of every family with the real programs; its trainer is that of `tests.support.matching`, trained."""

from __future__ import annotations

from pathlib import Path

from tests.support.matching import write_matching_campaign

TRAINING = '''

import json
from pathlib import Path

import matching


class Trained(matching.Runner):
    """Training that saves: a level falls with every update, by a rule of the seed and of the side's rounding."""

    def __init__(self, config, seed, device, work, variant):
        super().__init__(config, seed, device, work, variant)
        self._level, self._count, self._seed = 1.0 + seed / 1000, 0, seed
        self._shift = 0.0 if variant == "build" else 1e-4 * (seed % 3 - 1)

    def updates(self, n):
        for _ in range(n):
            self._count += 1
            self._level *= 1 - 0.1 / (self._count + 2 + self._seed % 7)
        return super().updates(n)

    def loss(self):
        return 2.0 + self._level

    def evaluate(self):
        targets = 16
        return targets * (2.0 + self._level + self._shift), targets

    def save(self, folder):
        (Path(folder) / "state.json").write_text(json.dumps([self._level, self._count, self._seed]))

    def load(self, folder):
        self._level, self._count, self._seed = json.loads((Path(folder) / "state.json").read_text())

    def progress(self):
        return {"updates": self._count, "level": self._level}


def baseline(config, *, seed, device):
    return Trained(config, seed, device, config["work"], "build")


def candidate(config, *, seed, device):
    return Trained(config, seed, device, config["work"] // 2, "build_other")
'''
RECIPE = """
[convergence]
power_waiver = "made to be looked at, not to decide anything"
checkpoint_s = 1

[[recipe]]
name = "walk"
config = { work = 200, tokens = 8, workers = 2 }
updates = 40
targets = 320
validation_targets = 16
evaluate_every = 20
"""


def write_whole_campaign(folder: Path, *, repeats: int = 2) -> Path:
    """Write the source tree and campaign.toml below a folder; return the file's path."""
    config = write_matching_campaign(folder, modes=("plain", "other"), repeats=repeats)
    (folder / "source" / "trained.py").write_text(TRAINING.lstrip("\n"))
    text = config.read_text().replace('"matching:', '"trained:').replace("controls = false", "controls = true")
    category = '\n[[category]]\nname = "small"\nmode = "plain"\n'
    config.write_text(text + category + RECIPE)
    return config
