"""A campaign of a few seconds with the real programs, by the command line; its trainer is plain Python."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from campaign.watching.processes import find_processes
from tests.support.cli import expect
from tests.support.harness import ADAPTER

CONFIG = """
name = "small"
baseline_first = false

[baseline]
source = "trainer"
adapter = "adapter:build"
python = "{python}"
[candidate]
source = "trainer"
adapter = "adapter:build_fast"
python = "{python}"

[execution]
device = "cpu"
threads = 1
[throughput]
clock_absolute_s = "0.25"
repeats = 1
warmup_updates = 3
windows = 2
window_s = "0.03"
pilot_s = "0.03"
solo = true
controls = true
[limits]
import_s = 60
startup_s = 60
stall_s = 60

[matrix]
name = "{{mode}}-b{{batch}}"
axes.mode = ["sync"]
axes.batch = [2, 4]
fixed = {{ tokens = 64 }}
[[category]]
name = "sync"
mode = "sync"
small_batch = {{ batch = [2, 4] }}
"""
FAST = """

class Fast(Runner):
    def updates(self, n):
        time.sleep(0.001 * n)
        self.count += n
        return n, 2 * n, 0, n * self.config["tokens"]


def build_fast(config, *, seed, device):
    return Fast(config, seed, device)
"""


def write_project(root: Path) -> Path:
    """Write trainer and configuration; return the configuration."""
    (root / "trainer").mkdir(parents=True)
    (root / "trainer" / "adapter.py").write_text(ADAPTER + FAST)
    config = root / "campaign.toml"
    config.write_text(CONFIG.format(python=sys.executable))
    return config


def freeze_both(config: Path, home: Path) -> None:
    """Freeze the baseline and the candidate."""
    expect(0, "freeze", config, "--home", home)
    expect(0, "freeze", "--candidate", "--config", config, "--home", home)


def run_all(home: Path) -> None:
    """Submit everything and wait for it."""
    expect(0, "submit", "--home", home, "--cluster", "local", "--wait", "--yes")


@contextmanager
def no_process_left(root: Path) -> Iterator[None]:
    """Kill what still runs below a folder at the end."""
    try:
        yield
    finally:
        for process in find_processes(str(root)):
            os.kill(process.pid, signal.SIGKILL)
