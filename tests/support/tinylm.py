"""Campaigns of the worked example, small enough for tests and measured for real."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support import tinylm_faults
from tests.support.cli import expect, expect_json, run_campaign

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "examples" / "tinylm"
CORPUS = ROOT / "build" / "corpus"

SLOWED = '''"""The native backend, slowed by a fixed share of its own time."""

import os
import time

import adapter


class Slowed:
    def __init__(self, inner, share):
        self._inner, self._share, self._owed_s = inner, share, 0.0

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def updates(self, n):
        begin = time.perf_counter()
        counts = self._inner.updates(n)
        self._inner.sync()
        self._owed_s += self._share * (time.perf_counter() - begin)
        return counts

    def sync(self):
        self._inner.sync()
        until = time.perf_counter() + self._owed_s
        while time.perf_counter() < until:
            pass
        self._owed_s = 0.0


def slowed(config, *, seed, device):
    return Slowed(adapter.native(config, seed=seed, device=device), float(os.environ["SLOWED_SHARE"]))
'''

CONFIG = """
name = "{name}"
baseline_first = false

[baseline]
source = "source"
adapter = "adapter:native"
python = "{python}"
environment = {{ TINYLM_DATA = "${{data.plays}}" }}

[candidate]
source = "{candidate}"
adapter = "{adapter}"
python = "{python}"
environment = {{ TINYLM_DATA = "${{data.plays}}"{extra} }}

[data.plays]
path = "{corpus}"

[throughput]
window_s = "{window_s}"
window_margin = "{window_margin}"
clock_absolute_s = "{clock_absolute_s}"
pilot_s = "{window_s}"
solo = false
controls = {controls}

[slurm]
cpus = 2

[matrix]
name = "{{size}}-{{mode}}-b{{batch}}"
axes.size = ["tiny"]
axes.mode = [
    {{ label = "sync", mode = "sync", workers = 1 }},
    {{ label = "packed4", mode = "packed", workers = 4 }},
]
axes.batch = [2]
fixed = {{ context = 64 }}
production = ["tiny-sync-b2", "tiny-packed4-b2"]

[[category]]
name = "sync"
mode = "sync"

[[category]]
name = "packed4"
mode = "packed4"
"""


def prepare_corpus() -> None:
    """Build the corpus, unless it is there."""
    if not (CORPUS / "train.bin").is_file():
        subprocess.run([sys.executable, SOURCE / "prepare_corpus.py", "--out", CORPUS], check=True)


def write_campaign(
    folder: Path,
    *,
    adapter: str,
    window_s: str = "0.3",
    window_margin: str = "1.5",
    clock_absolute_s: str = "0.05",
    controls: bool = False,
    slowed_share: float | None = None,
    candidate: str = "candidate",
) -> Path:
    """Write source trees and their campaign.toml; return the file's path.

    Args:
        folder: An empty or absent folder, or one with other candidates of the same campaign.
        adapter: The candidate's adapter; ``slowed:slowed`` is the native backend slowed by `slowed_share`.
        window_s: Shortest window.
        window_margin: How many times as long a window is at the pilot's rate.
        clock_absolute_s: How far the clocks of a side and of its parent may be apart.
        controls: Whether the baseline is also measured against itself.
        slowed_share: The slowed candidate's extra time as a share of its own.
        candidate: Name of the candidate's tree and of the file.
    """
    prepare_corpus()
    if not (folder / "source").exists():
        copy_source(folder / "source")
    copy_source(folder / candidate)
    (folder / candidate / "slowed.py").write_text(SLOWED)
    (folder / candidate / "CANDIDATE").write_text(f"{candidate}\n")  # trees that are the same are the same candidate
    extra = "" if slowed_share is None else f', SLOWED_SHARE = "{slowed_share!r}"'
    config = folder / f"{candidate}.toml"
    config.write_text(
        CONFIG.format(
            name=folder.name,
            candidate=candidate,
            python=sys.executable,
            adapter=adapter,
            corpus=CORPUS,
            window_s=window_s,
            window_margin=window_margin,
            clock_absolute_s=clock_absolute_s,
            controls=str(controls).lower(),
            extra=extra,
        )
    )
    return config


SIDE = """
[{side}]
source = "{source}"
adapter = "{adapter}"
python = "{python}"
environment = {{ TINYLM_DATA = "${{data.plays}}" }}
"""
SHORT_THROUGHPUT = """
[data.plays]
path = "{corpus}"

[throughput]
window_s = "0.05"
pilot_s = "0.1"
clock_absolute_s = "10"
solo = false
controls = false
"""
FAULTS_CONFIG = """
[numerical]
required = ["optimizer_check", "mix"]
controls = false
"""
FAULTY = '''"""The fast backend with a fault of its own for each workload."""

import broken

FAULTS = {faults!r}


def build(config, *, seed, device):
    (name,) = [name for entries, name in FAULTS if entries == config]
    return getattr(broken, name)(config, seed=seed, device=device)
'''


def head(name: str, **sides: tuple[str | Path, str]) -> str:
    """Return the beginning of a campaign.toml whose throughput family is as short as can be: something else is tried.

    Args:
        name: The campaign's.
        sides: Source folder and adapter, by ``baseline`` and ``candidate``.
    """
    parts = [f'name = "{name}"\nbaseline_first = false\n']
    for side, (source, adapter) in sides.items():
        parts.append(SIDE.format(side=side, source=source, adapter=adapter, python=sys.executable))
    return "".join([*parts, SHORT_THROUGHPUT.format(corpus=CORPUS)])


SCALING_RULES = """
repeats = 1
windows = 2
warmup_updates = 3
window_margin = "8"
"""
SCALING_CONFIG = """
[slurm]
cpus = 1

[matrix]
name = "tiny-p{processes}"
axes.processes = [1, 2]
fixed = { size = "tiny", batch = 4, context = 64, accumulation = 2 }
production = ["tiny-p1", "tiny-p2"]
"""


def write_scaling_campaign(folder: Path) -> Path:
    """Write a source tree and a campaign.toml of one configuration for one process and for two; return its path."""
    prepare_corpus()
    copy_source(folder / "source")
    sides = head("scaling", baseline=("source", "adapter:native"), candidate=("source", "adapter:fast"))
    # Windows far above their minimum, which a machine that is busy with something else then leaves unharmed.
    short = sides.replace("[throughput]", "[throughput]" + SCALING_RULES)
    path = folder / "campaign.toml"
    path.write_text(short + SCALING_CONFIG)
    return path


def inline(entries: Mapping[str, Any]) -> str:
    """Return a configuration as an inline table of TOML."""
    return "{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in entries.items()) + " }"


def write_faults_campaign(folder: Path) -> Path:
    """Write the baseline's source tree and a campaign.toml of the right candidate; return the latter's path.

    There is one workload for each configuration that a fault needs. `write_faulty` writes other candidates.
    """
    prepare_corpus()
    copy_source(folder / "source")
    return _write_candidate(folder, "right", "adapter:fast")


def write_faulty(folder: Path, faults: Sequence[tinylm_faults.Fault]) -> Path:
    """Write a candidate that has one fault at each of some workloads, and the campaign with it; return the file's path.

    Args:
        folder: Beside the right candidate.
        faults: No two of the same workload.
    """
    found = [({**tinylm_faults.COMMON, **fault.entries}, fault.name) for fault in faults]
    return _write_candidate(folder, faults[0].name, "faulty:build", FAULTY.format(faults=found))


def _write_candidate(folder: Path, name: str, adapter: str, text: str = "") -> Path:
    """Write a candidate's source tree, the faulty variants in it, and the campaign with it; return the file's path."""
    copy_variants(folder / name, adapter)
    (folder / name / "faulty.py").write_text(text)
    parts = [head("faults", baseline=("source", "adapter:native"), candidate=(name, adapter)), FAULTS_CONFIG]
    for fault in tinylm_faults.FAULTS:
        if tinylm_faults.workload_of(fault) != fault.name:
            continue
        config = inline({**tinylm_faults.COMMON, **fault.entries})
        parts.append(f'[[workload]]\nname = "{fault.name}"\nproduction = true\nconfig = {config}\n')
    path = folder / f"{name}.toml"
    path.write_text("\n".join(parts))
    return path


def copy_source(folder: Path) -> None:
    """Copy the example without what is built in it."""
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("__pycache__", "corpus"))


def copy_variants(folder: Path, adapter: str) -> None:
    """Copy the example with its faulty variants beside it.

    The tree holds a file with the adapter's name, since a campaign knows its candidates by the digests of their trees.
    """
    copy_source(folder)
    for path in tinylm_faults.FOLDER.glob("*.py"):
        shutil.copy(path, folder)
    (folder / "CANDIDATE").write_text(f"{adapter}\n")


def run_to_verdict(config: Path, *, cluster: str = "local") -> dict[str, Any]:
    """Freeze, submit, wait, collect and report; return the verdict.

    A home that is there beside the configuration gets one more candidate.
    """
    home = config.parent / "home"
    if not home.exists():
        expect(0, "freeze", config, "--home", home)
    candidate = str(expect_json(0, "freeze", "--candidate", "--config", config, "--home", home)["id"])
    expect(0, "submit", "--home", home, "--candidate", candidate, "--cluster", cluster, "--wait", "--yes")
    done = run_campaign("report", "--home", home, "--candidate", candidate, "--exit-zero")
    assert done.returncode == 0, done.stderr
    value: dict[str, Any] = json.loads((home / "evaluations" / candidate / "verdict.json").read_bytes())
    return value
