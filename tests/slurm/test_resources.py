"""What jobs ask the real cluster for: time that follows from the plan, nodes that are avoided, containers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acceptance.formats import Ending
from campaign.documents import Start
from campaign.frozen import read_frozen
from campaign.paths import HomePaths
from campaign.submission.nodes import Place
from campaign.submission.place import parse_minutes, read_place
from campaign.watching.scheduler import local_slurm
from tests.slurm.cluster import NODES, Cluster
from tests.slurm.test_submission import make_real_desk, quiet, wait
from tests.support import small
from tests.support.cli import expect, expect_json
from tests.support.home import CANDIDATE
from tests.support.jobs import RESOURCES, JobHome, make_job_home

pytestmark = pytest.mark.slurm


def time_limits(job: str) -> set[int | None]:
    """Return the time limits of a job's tasks, in minutes, as the controller has them."""
    command = ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%l"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return {parse_minutes(line) for line in lines}


def make_home(root: Path, **changes: Any) -> JobHome:
    return make_job_home(
        root, repeats=1, resources={**RESOURCES, "slurm": {**RESOURCES["slurm"], "minutes": None, **changes}}
    )


@pytest.fixture
def home(tmp_path: Path, slurm_cluster: Cluster) -> Iterator[JobHome]:
    assert slurm_cluster.conf.is_file()
    made = make_home(tmp_path / "home", exclude_after=1)
    yield made
    made.hold.unlink(missing_ok=True)
    for submission in make_real_desk(made).history().submissions.values():
        subprocess.run(["scancel", "--quiet", f"--name={submission.key}"], check=False)


def submit(home: JobHome, only: str) -> dict[str, Any]:
    arguments = ("--home", home.paths.root, "--cluster", "slurm", "--only", only, "--yes")
    said: dict[str, Any] = expect_json(0, "submit", *arguments)
    return said


def test_the_cluster_says_which_nodes_there_are(slurm_cluster: Cluster) -> None:
    slurm = local_slurm()
    assert slurm_cluster.conf.is_file()
    assert read_place(slurm, {}) == Place(nodes=frozenset(NODES))
    assert read_place(slurm, {"partition": "urgent", "exclude": "n[1-2]"}) == Place(nodes=frozenset({"n3"}))
    assert read_place(slurm, {"partition": "main", "constraint": "no-such-feature"}).nodes == frozenset()
    assert read_place(slurm, {"partition": "main", "gres": "gpu:1"}).nodes == frozenset()


@pytest.mark.slow
def test_a_job_asks_for_the_time_that_follows_from_limits_and_pilots(home: JobHome) -> None:
    desk = make_real_desk(home)
    submit(home, "baseline/solo/sync-b4/*")
    wait(desk)
    submit(home, "baseline/solo/sync-b4/*")
    wait(desk)
    asked = []
    for submission in desk.history().submissions.values():
        assert submission.submitted is not None
        (minutes,) = {one.minutes for one in submission.intent.allocations}
        assert time_limits(submission.submitted.job) == {minutes}
        asked.append(minutes)
    assert len(asked) == 2
    assert asked[0] > asked[1]


def test_a_node_that_failed_gets_no_more_jobs(home: JobHome) -> None:
    slot = f"{CANDIDATE}/pilot/sync-b4"
    home.wish(die={f"{slot}/1": True})
    desk = make_real_desk(home)
    submit(home, slot)
    wait(desk)
    desk.settle(quiet)
    (first,) = desk.view(CANDIDATE).slots[slot].attempts
    assert first.ending is Ending.LOST
    assert first.node in NODES
    submit(home, slot)
    wait(desk)
    second = desk.view(CANDIDATE).slots[slot].attempts[-1]
    assert second.ending is Ending.COMPLETED
    assert second.node in set(NODES) - {first.node}
    start = Start.read(home.paths.attempt(second.slot, second.attempt).start)
    assert start.host.node == second.node
    last = list(desk.history().submissions.values())[-1]
    assert set(last.intent.excluded) == {first.node}
    request = json.loads(home.paths.submission(last.key).request.read_bytes())
    assert request["parameters"]["exclude"] == first.node
    shown = expect_json(0, "status", "--home", home.paths.root)
    assert set(shown["excluded_nodes"]) == {first.node}


# --- containers, and a login node that runs nothing of a side ---------------------------------------------------------

RUNTIME = """\
#!/bin/sh
# A container's runtime: it runs what the image allows, and keeps an account of where it ran.
read -r first < "$1" || exit 3
[ "$first" = "an image with Python" ] || exit 4
echo "$SLURMD_NODENAME$CAMPAIGN_ALLOCATION" >> "$0.ran"
shift
exec "$@"
"""
LAUNCH = 'launch = ["{root}/runtime", "${{container}}"]\ncontainer = "image.sqsh"\n'


def write_contained(root: Path) -> Path:
    """Write a small campaign whose sides run in a container; return its configuration."""
    config = small.write_project(root)
    (root / "runtime").write_text(RUNTIME)
    (root / "runtime").chmod(0o755)
    (root / "image.sqsh").write_text("an image with Python\n")
    text = config.read_text()
    for key in ("[candidate]\n", "\n[execution]\n"):
        text = text.replace(key, LAUNCH.format(root=root) + key)
    config.write_text(text.replace("[execution]\n", '[execution]\nlogin_node = "differs"\n'))
    return config


@pytest.mark.slow
def test_sides_in_containers_run_on_the_nodes_alone_and_as_frozen(slurm_cluster: Cluster, tmp_path: Path) -> None:
    assert slurm_cluster.conf.is_file()
    config, home = write_contained(tmp_path), tmp_path / "home"
    small.freeze_both(config, home)
    assert not (tmp_path / "runtime.ran").exists(), "something of a side ran on the login node"
    submit_all = ("submit", "--home", home, "--cluster", "slurm", "--only", "*b2*", "--yes", "--wait")
    expect(0, *submit_all)
    expect(0, "collect", "--home", home)
    expect(0, "verify", "--home", home)
    frozen = read_frozen(HomePaths(home))
    image = frozen.manifest.baseline.container
    assert image is not None
    receipts = [json.loads(path.read_bytes()) for path in home.glob("attempts/**/receipt.json")]
    assert receipts
    assert {side["container_sha256"] for one in receipts for side in one["sides"]} == {image.sha256}
    assert frozen.manifest.baseline.interpreter is None
    identities = {side["environment_sha256"] for one in receipts for side in one["sides"]}
    assert len(identities) == 1, "the nodes' interpreter was not recorded by what ran there"
    assert identities != {""}
    (tmp_path / "image.sqsh").write_text("an image with Python\nand something else\n")
    expect(4, *[part if part != "*b2*" else "*b4*" for part in submit_all])
    shown = expect(0, "show", "baseline/pilot/sync-b4", "--home", home)
    assert "snapshot_changed" in shown
    assert "image.sqsh" in shown
