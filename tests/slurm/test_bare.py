"""A cluster without accounting, and jobs that ask for all that a site may want of them."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from acceptance.formats import Ending
from campaign.frozen import read_frozen
from campaign.submission.desk import Desk, Wish, open_desk
from campaign.submission.wait import Pace, wait_for_jobs
from campaign.watching.state import AttemptState, Patience, SlotState
from tests.slurm import cluster as clusters
from tests.slurm.cluster import Cluster
from tests.slurm.held import poll, read_all
from tests.support import small
from tests.support.cli import expect, expect_json
from tests.support.jobs import JobHome, make_job_home

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
PACE = Pace(first_s=0.2, longest_s=0.5)


@pytest.fixture(scope="module")
def booted_bare(booted_cluster: Cluster) -> Iterator[Cluster]:
    """Boot the other cluster once for the module."""
    cluster = clusters.bare(booted_cluster)
    clusters.up(cluster)
    yield cluster
    clusters.down(cluster)


@pytest.fixture
def bare_cluster(booted_bare: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The cluster without accounting, with its variables set for the test."""
    for name, value in booted_bare.environment.items():
        monkeypatch.setenv(name, value)
    return booted_bare


SLURM = """
[slurm]
constraint = "fast&new"
gres = "gpu:1"
exclusive = true
reservation = "own"
wckey = "study"
setup = [
    "source {root}/profile.sh",
    "module load thing/1.0 || exit 1",
    "scontrol --oneliner show job $SLURM_JOB_ID > {root}/shown.$SLURM_JOB_ID",
]

[limits]
"""
PROFILE = """\
# As at sites where it is a shell function.
module() { export LOADED="$2"; }
"""
ADAPTER = """

def build_loaded(config, *, seed, device):
    import os
    if os.environ["LOADED"] != "thing/1.0":
        raise RuntimeError("the module is not loaded")
    return build(config, seed=seed, device=device)
"""


def write_equipped(root: Path) -> Path:
    """Write a small campaign whose jobs ask for much and load a module; return its configuration."""
    config = small.write_project(root)
    (root / "profile.sh").write_text(PROFILE)
    with (root / "trainer" / "adapter.py").open("a") as stream:
        stream.write(ADAPTER)
    text = config.read_text().replace("[limits]\n", SLURM.format(root=root))
    for adapter in ('adapter = "adapter:build"\n', 'adapter = "adapter:build_fast"\n'):
        text = text.replace(adapter, 'adapter = "adapter:build_loaded"\npass_environment = ["LOADED"]\n')
    config.write_text(text)
    return config


@pytest.fixture
def reservation(bare_cluster: Cluster) -> Iterator[str]:
    assert bare_cluster.conf.is_file()
    read_all(["scontrol", "create", "reservation", "ReservationName=own", "users=root", "nodes=n1", "starttime=now",
              "duration=60", "flags=ignore_jobs"])  # fmt: skip
    yield "own"
    read_all(["scontrol", "delete", "reservation=own"])


def test_a_campaign_goes_its_whole_way_without_accounting_and_its_jobs_get_what_they_ask_for(
    reservation: str, tmp_path: Path
) -> None:
    config, home = write_equipped(tmp_path), tmp_path / "home"
    small.freeze_both(config, home)
    expect(0, "submit", "--home", home, "--cluster", "slurm", "--only", "*b2*", "--yes", "--wait")
    shown = [path.read_text() for path in tmp_path.glob("shown.*")]
    assert len(shown) == 4
    for job in shown:
        said = dict(word.partition("=")[::2] for word in job.split())
        assert (said["Features"], said["Reservation"], said["NodeList"]) == ("fast&new", reservation, "n1")
        assert said["TresPerNode"].removeprefix("gres:") == "gpu:1"
        assert said["OverSubscribe"] == "NO"
        assert said["Requeue"] == "0"
    scripts = [path.read_text() for path in home.glob("transport/*/*_submission.sh")]
    assert ["#SBATCH --wckey=study\n" in script for script in scripts] == [True] * 2
    receipts = [json.loads(path.read_bytes()) for path in home.glob("attempts/**/receipt.json")]
    assert {(one["ending"], one["reason"]) for one in receipts} == {("completed", "")}
    expect(0, "collect", "--home", home)
    expect(0, "report", "--home", home, "--exit-zero")
    expect(0, "verify", "--home", home)


def test_a_set_up_line_that_fails_measures_nothing(bare_cluster: Cluster, tmp_path: Path) -> None:
    assert bare_cluster.conf.is_file()
    config, home = small.write_project(tmp_path), tmp_path / "home"
    config.write_text(config.read_text() + '[slurm]\nsetup = ["module load thing || exit 1"]\n')
    small.freeze_both(config, home)
    slot = "baseline/pilot/sync-b2"
    expect(0, "submit", "--home", home, "--cluster", "slurm", "--only", slot, "--yes")
    poll("the log", lambda: "command not found" in expect(0, "show", slot, "--home", home))
    assert not list(home.glob("attempts/**/start.json"))


@pytest.fixture
def home(bare_cluster: Cluster, tmp_path: Path) -> Iterator[JobHome]:
    assert bare_cluster.conf.is_file()
    made = make_job_home(tmp_path / "home", repeats=1, candidate=False)
    yield made
    made.hold.unlink(missing_ok=True)
    for submission in open_desk(made.paths, read_frozen(made.paths), time.time).history().submissions.values():
        subprocess.run(["scancel", "--quiet", f"--name={submission.key}"], check=False)


def make_desk(home: JobHome, absent_s: float) -> Desk:
    desk = open_desk(home.paths, read_frozen(home.paths), time.time)
    return replace(desk, observer=replace(desk.observer, patience=Patience(visible_s=1.0, absent_s=absent_s)))


def submit(desk: Desk) -> None:
    wish = Wish(candidate="", cluster="slurm")
    desk.hand_over(wish, desk.order(wish, desk.view(""), desk.array_limit("slurm")), lambda _line: None)


def test_a_job_that_was_cancelled_while_held_and_is_forgotten_is_lost_and_made_again(home: JobHome) -> None:
    desk = make_desk(home, absent_s=3600.0)
    read_all(["scontrol", "update", "PartitionName=main", "State=DOWN"])
    try:
        submit(desk)
        (submission,) = desk.history().submissions.values()
        assert submission.submitted is not None
        read_all(["scontrol", "hold", submission.submitted.job])
        assert {one.hopeless for one in desk.view("").attempts.values()} != {""}
        read_all(["scancel", submission.submitted.job])
    finally:
        read_all(["scontrol", "update", "PartitionName=main", "State=UP"])

    def are_forgotten() -> bool:
        attempts = desk.view("").attempts.values()
        return all(one.reason.startswith("not in the queue") for one in attempts)

    poll("forgotten", are_forgotten)
    assert {one.state for one in desk.view("").attempts.values()} == {AttemptState.UNKNOWN}
    # Nothing tells any more: it is no end until the deadline is over.
    late = make_desk(home, absent_s=0.0)
    late.settle(lambda _line: None)
    assert {one.ending for one in late.view("").attempts.values()} == {Ending.LOST}
    submit(late)
    view = wait_for_jobs(lambda: late.view(""), PACE, sleep=time.sleep, show=lambda _line: None)
    assert SlotState.COMPLETED in {status.state for status in view.slots.values()}
    assert home.doubles() == []


def test_cancelling_jobs_that_are_forgotten_at_once_ends_them_as_cancelled(home: JobHome) -> None:
    home.hold.touch()
    desk = make_desk(home, absent_s=0.0)
    submit(desk)
    expect_json(0, "cancel", "--home", home.paths.root, "--reason", "enough", "--yes", "--json")
    poll("the end", lambda: {one.ending for one in desk.view("").attempts.values()} == {Ending.CANCELLED})
