"""Trainings on the real cluster: cut three times in three ways, and failing for good."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.cluster import NODES, Cluster, crash, restore, start_node
from tests.support.cli import PROGRAM, expect, expect_json, run_campaign
from tests.support.failing import write_failing_campaign
from tests.support.tinylm import copy_source, head, prepare_corpus

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
RUN = "baseline/run/long/s45"
UPDATES = 5_000
"""More than a minute of training at `PACED`'s pace, on whatever machine: no allocation of one minute holds it."""
PACED = '''"""The native backend, which rests after every update."""
import time

import adapter


class Paced:
    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def updates(self, n):
        counts = self._inner.updates(n)
        time.sleep(0.014 * n)
        return counts


def native(config, *, seed, device):
    return Paced(adapter.native(config, seed=seed, device=device))
'''
TABLES = """
[convergence]
power_waiver = "one run is tried here, not the gate"

[slurm]
cpus = 1
minutes = 1

[[workload]]
name = "short"
production = true
config = {{ size = "tiny", batch = 4, context = 64 }}

[[recipe]]
name = "long"
config = {{ size = "tiny", batch = 4, context = 64, updates_total = {updates}, warmup = 50 }}
targets = {targets}
validation_targets = 471542
updates = {updates}
evaluate_every = 2000
"""


def write_config(folder: Path) -> Path:
    """Write a campaign with one recipe that takes longer than an allocation; return its file."""
    prepare_corpus()
    copy_source(folder / "source")
    (folder / "source" / "paced.py").write_text(PACED)
    path = folder / "campaign.toml"
    targets = UPDATES * 4 * 64
    tables = TABLES.format(updates=UPDATES, targets=targets)
    path.write_text(head("cut", baseline=("source", "paced:native")) + tables)
    return path


def poll(what: str, found: Callable[[], Any], seconds: float = 240.0) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := found():
            return value
        time.sleep(0.2)
    raise AssertionError(f"never: {what}")


def segment_folder(home: Path, number: int) -> Path:
    return home / "attempts" / RUN / "1" / "segments" / str(number)


def started_of(home: Path, number: int) -> dict[str, Any]:
    """Return the start record of a segment that has saved a checkpoint of its own."""
    folder = segment_folder(home, number)
    poll(f"a checkpoint of segment {number}", lambda: list(folder.glob("checkpoints/*/checkpoint.json")))
    value: dict[str, Any] = json.loads((folder / "start.json").read_bytes())
    return value


def finals(home: Path) -> tuple[list[str], list[list[str]]]:
    """Return of the completed run: what convergence.csv and curves.csv say without attempt, segments and seconds."""
    (table,) = home.glob(f"attempts/{RUN}/*/segments/*/convergence.csv")
    header, row = (line.split(",") for line in table.read_text().splitlines())
    kept = [row[header.index(name)] for name in ("final_loss", "target_tokens", "validation_tokens", "updates")]
    _, *points = ([*line.split(",")[4:]] for line in table.with_name("curves.csv").read_text().splitlines())
    return kept, points


def test_a_run_that_is_cut_three_times_ends_as_one_that_is_not(slurm_cluster: Cluster, tmp_path: Path) -> None:
    config = write_config(tmp_path)
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    for home in (cut, whole):
        expect(0, "freeze", config, "--home", home)
    uncut = threading.Thread(
        target=expect, args=(0, "submit", "--home", whole, "--cluster", "local", "--wait", "--yes", "--only", RUN)
    )
    uncut.start()
    only = ("submit", "--home", cut, "--cluster", "slurm", "--yes", "--only", RUN)
    with subprocess.Popen([sys.executable, PROGRAM, *map(str, only), "--wait"], stderr=subprocess.PIPE) as all_of_it:
        # 1: the time limit of one minute, which nobody has to bring about.
        poll("the end of the first segment", (segment_folder(cut, 1) / "receipt.json").is_file)
        # 2: a person's signal.
        job = started_of(cut, 2)["job"]["job_id"]
        subprocess.run(["scancel", "--signal=USR2", job], check=True)
        # 3: the node goes.
        node = started_of(cut, 3)["host"]["node"]
        crash(slurm_cluster, node)
        poll("the fourth segment", (segment_folder(cut, 4) / "start.json").is_file)
        start_node(slurm_cluster, node)
        assert all_of_it.wait(300) == 0, all_of_it.stderr.read().decode() if all_of_it.stderr else ""
    uncut.join()
    shown = expect_json(0, "show", RUN, "--home", cut)["attempts"]
    endings = [one["ending"] for one in shown]
    # Within an allocation this short every signal comes near the time limit.
    assert endings[:3] == ["time_limit", "time_limit", "node_fail"]
    assert endings[-1] == "completed"
    assert set(endings[3:-1]) <= {"time_limit"}
    assert not (segment_folder(cut, 3) / "receipt.json").exists()
    assert finals(cut) == finals(whole)
    expect(0, "collect", "--home", cut)
    restore(slurm_cluster)


@pytest.mark.usefixtures("slurm_cluster")
def test_a_run_that_fails_for_good_is_missing_and_never_passes(tmp_path: Path) -> None:
    config = write_failing_campaign(tmp_path, failing_seed=46)
    home = tmp_path / "home"
    expect(0, "freeze", config, "--home", home)
    expect(0, "freeze", "--candidate", "--config", config, "--home", home)
    expect(4, "submit", "--home", home, "--cluster", "slurm", "--wait", "--yes")
    assert run_campaign("report", "--home", home).returncode in (3, 4)
    (path,) = home.glob("evaluations/*/verdict.json")
    verdict = json.loads(path.read_bytes())
    (gate,) = [gate for gate in verdict["gates"] if gate["family"] == "convergence"]
    assert (gate["finding"], gate["outcome"]) == ("missing", "not_qualified")
    assert "s46" in gate["reason"]
    nodes = {json.loads(path.read_bytes())["host"]["node"] for path in home.glob("attempts/**/start.json")}
    assert nodes
    assert nodes <= set(NODES)
