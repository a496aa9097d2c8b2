"""Thousands of slots through Slurm's limit on the size of an array: submitted in chunks, run and collected."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaign.documents import Entry
from campaign.paths import HomePaths
from campaign.record.ledger import read_entries
from tests.slurm.cluster import Cluster, signal_daemon, start_controller, wait_until
from tests.support.cli import expect, expect_json
from tests.support.counting import ADAPTER

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
WORKLOADS, REPEATS, TOGETHER = 417, 5, 25
SLOTS = WORKLOADS * (1 + REPEATS)
"""A pilot and solo measurements of each: 2,502."""
MOST_TASKS = 41
"""Of one array here: more than a thousand tasks, as the cluster's default of 1,001 asks for before anything is chunked,
take Slurm alone minutes on one host. With 41 the same slots are 102 tasks, in arrays of 17, 41, 41 and 3."""
CONFIG = """
name = "scale"
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
solo = true
controls = false
[submission]
workloads_per_allocation = {together}
[slurm]
minutes = 10
[matrix]
name = "w{{work}}"
axes.work = [{works}]
fixed = {{ tokens = 8 }}
production = ["w1"]
"""


def restart_controller(cluster: Cluster, conf: str) -> None:
    def has_ended() -> bool:
        return subprocess.run(["scontrol", "ping"], capture_output=True, check=False).returncode != 0

    signal_daemon(cluster, "slurmctld", signal.SIGTERM)
    wait_until("the controller's end", has_ended, cluster.log("slurmctld"))
    cluster.conf.write_text(conf)
    start_controller(cluster)


@pytest.fixture
def chunking(slurm_cluster: Cluster) -> Iterator[None]:
    """The cluster, with arrays of few tasks."""
    before = slurm_cluster.conf.read_text()
    assert "MaxArraySize=1001\n" in before
    restart_controller(slurm_cluster, before.replace("MaxArraySize=1001\n", f"MaxArraySize={MOST_TASKS}\n"))
    yield
    restart_controller(slurm_cluster, before)


def write_campaign(folder: Path) -> Path:
    (folder / "source").mkdir()
    (folder / "source" / "counting.py").write_text(ADAPTER)
    works = ", ".join(map(str, range(1, WORKLOADS + 1)))
    # Of a small environment: what a large one takes at each start of a side is not what is tried here.
    venv.create(folder / "environment", with_pip=False, symlinks=True)
    python = folder / "environment" / "bin" / "python"
    config = folder / "campaign.toml"
    config.write_text(CONFIG.format(python=python, repeats=REPEATS, together=TOGETHER, works=works))
    return config


def _chunks(num_tasks: int) -> list[int]:
    return [min(MOST_TASKS, num_tasks - first) for first in range(0, num_tasks, MOST_TASKS)]


def acts(home: Path, act: str) -> list[Entry]:
    return [entry for entry in read_entries(HomePaths(home)) if entry.act == act]


@pytest.mark.usefixtures("chunking")
def test_2500_slots_go_through_arrays_of_few_tasks_and_are_collected(tmp_path: Path) -> None:
    home = tmp_path / "home"
    expect(0, "freeze", write_campaign(tmp_path), "--home", home)
    told = expect_json(0, "submit", "--home", home, "--cluster", "slurm", "--phase", "baseline", "--wait", "--yes")
    assert told["slots"] == {"completed": SLOTS}

    # Each array has as many tasks as fit, but the last of a phase; no allocation is in two of them.
    allocations = -(-WORKLOADS // TOGETHER)
    intended = [[one["allocation"] for one in entry.data["allocations"]] for entry in acts(home, "intent")]
    sizes = [len(chunk) for chunk in intended]
    assert sum(sizes) == allocations * (1 + REPEATS)
    assert sorted(sizes) == sorted([allocations, *_chunks(allocations * REPEATS)])
    assert len({one for chunk in intended for one in chunk}) == sum(sizes)
    assert len({entry.data["job"] for entry in acts(home, "submitted")}) == len(sizes)

    # Every attempt ran once, in the job that it was handed to, and is in the tables once.
    starts = [json.loads(path.read_bytes()) for path in home.glob("attempts/**/start.json")]
    assert len(starts) == len({start["slot"] for start in starts}) == SLOTS
    tasks = {(start["job"]["array_job_id"], start["job"]["array_task_id"]) for start in starts}
    assert len(tasks) == sum(sizes)
    expect(0, "collect", "--home", home)
    collected = [name for entry in acts(home, "collected") for name in entry.data["receipts"]]
    assert len(collected) == len(set(collected)) == SLOTS
    with sqlite3.connect(f"file:{home / 'campaign.sqlite'}?mode=ro", uri=True) as database:
        assert database.execute("select count(*) from attempts").fetchone() == (SLOTS,)
    expect(0, "verify", "--home", home)
