"""Thousands of slots through Slurm's limit on the size of an array: submitted in chunks, run and collected."""

from __future__ import annotations

import json
import sqlite3
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaign.documents import Entry
from campaign.paths import HomePaths
from campaign.record.ledger import read_entries
from tests.slurm.cluster import Cluster, restart_controller
from tests.support.cli import expect, expect_json
from tests.support.counting import Counting, write_counting_campaign

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
WORKLOADS, REPEATS, TOGETHER = 417, 5, 25
SLOTS = WORKLOADS * (1 + REPEATS)
"""A pilot and solo measurements of each: 2,502."""
MOST_TASKS = 41
"""Of one array here: more than a thousand tasks, as the cluster's default of 1,001 asks for before anything is chunked,
take Slurm alone minutes on one host. With 41 the same slots are 102 tasks, in arrays of 17, 41, 41 and 3."""


@pytest.fixture
def chunking(slurm_cluster: Cluster) -> Iterator[None]:
    """The cluster, with arrays of few tasks."""
    before = slurm_cluster.conf.read_text()
    assert "MaxArraySize=1001\n" in before
    slurm_cluster.conf.write_text(before.replace("MaxArraySize=1001\n", f"MaxArraySize={MOST_TASKS}\n"))
    restart_controller(slurm_cluster)
    yield
    slurm_cluster.conf.write_text(before)
    restart_controller(slurm_cluster)


def write_campaign(folder: Path) -> Path:
    # Of a small environment: what a large one takes at each start of a side is not what is tried here.
    venv.create(folder / "environment", with_pip=False, symlinks=True)
    works = range(1, WORKLOADS + 1)
    campaign = Counting(name="scale", works=works, production=("w1",), repeats=REPEATS, solo=True, together=TOGETHER)
    return write_counting_campaign(folder, campaign, folder / "environment" / "bin" / "python")


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
