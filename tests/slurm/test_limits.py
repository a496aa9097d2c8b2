"""The real limits on submitted jobs, jobs that will never start, a renamed job, and a cluster that is named."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from campaign.cli.main import main
from campaign.errors import InfrastructureError
from campaign.frozen import read_frozen
from campaign.paths import HomePaths
from campaign.record.ledger import read_entries
from campaign.submission.desk import Desk, Wish, open_desk
from campaign.submission.limits import Room, is_refusal
from campaign.submission.wait import Pace, wait_for_jobs
from campaign.watching.state import AttemptState, Patience, SlotState
from tests.slurm.cluster import CLUSTER, Cluster, signal_daemon, start_controller
from tests.support.cli import expect, expect_json
from tests.support.jobs import RESOURCES, JobHome, make_job_home
from tests.support.small import write_project

pytestmark = pytest.mark.slurm
WISH = Wish(candidate="", cluster="slurm")
PACE = Pace(first_s=0.2, longest_s=0.5)
ENFORCE = "AccountingStorageEnforce=associations,limits,qos\n"


def quiet(_line: str) -> None:
    """Drop what the desk says."""


def call(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def wait_until(what: str, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def restart_controller(cluster: Cluster, conf: str) -> None:
    signal_daemon(cluster, "slurmctld", signal.SIGTERM)
    wait_until("the controller ends", lambda: subprocess.run(["scontrol", "ping"], check=False).returncode != 0)
    cluster.conf.write_text(conf)
    start_controller(cluster)


@pytest.fixture
def limiting(slurm_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, with limits that count."""
    before = slurm_cluster.conf.read_text()
    restart_controller(slurm_cluster, before + ENFORCE)
    yield slurm_cluster
    none = ("MaxSubmitJobsPerUser=-1", "MaxSubmitJobsPerAccount=-1", "GrpSubmitJobs=-1")
    call("sacctmgr", "-i", "modify", "qos", "normal", "set", *none)
    call("sacctmgr", "-i", "modify", "account", "root", "set", "GrpSubmitJobs=-1")
    call("sacctmgr", "-i", "modify", "user", "root", "set", "MaxSubmitJobs=-1")
    restart_controller(slurm_cluster, before)


def make_home(tmp_path: Path, **slurm: object) -> JobHome:
    # Another manifest than other tests': accounting would take these jobs for theirs, by the beginning of the name.
    resources = {**RESOURCES, "slurm": {**RESOURCES["slurm"], "max_running": 250, **slurm}}
    return make_job_home(tmp_path / "home", repeats=1, candidate=False, resources=resources)


def make_desk(home: JobHome) -> Desk:
    desk = open_desk(home.paths, read_frozen(home.paths), time.time)
    return replace(desk, observer=replace(desk.observer, patience=Patience(visible_s=1.0)))


def submit(desk: Desk) -> None:
    order = desk.order(WISH, desk.view(""), desk.array_limit("slurm"), desk.room("slurm"))
    desk.hand_over(WISH, order, quiet)


def end(home: JobHome) -> None:
    """End what a test left in the queue."""
    home.hold.unlink(missing_ok=True)
    for submission in make_desk(home).history().submissions.values():
        subprocess.run(["scancel", "--quiet", f"--name={submission.key}"], check=False)


@pytest.mark.slow
def test_a_campaign_gets_through_a_limit_on_submitted_jobs(
    tmp_path: Path, limiting: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert limiting.conf.is_file()
    call("sacctmgr", "-i", "modify", "user", "root", "set", "MaxSubmitJobs=1")
    monkeypatch.setattr("campaign.cli.submit.SLURM_PACE", PACE)
    home = make_home(tmp_path)
    desk = make_desk(home)
    wait_until("the limit is known", lambda: desk.room("slurm").num_jobs == 1)
    order = desk.order(WISH, desk.view(""), desk.array_limit("slurm"))
    (batch,) = order.all
    assert len(batch.allocations) == 2
    wait_until("sbatch knows the limit", lambda: is_refusal(desk.transport.objection(desk.request(batch))))
    assert "AssocMaxSubmitJobLimit" in desk.transport.objection(desk.request(batch))
    assert call("squeue", "--noheader", f"--name={batch.key}") == ""
    assert main(["submit", "--home", str(home.paths.root), "--cluster", "slurm", "--yes", "--wait"]) == 0
    assert {one.state for one in desk.view("").slots.values()} == {SlotState.COMPLETED}
    intents = [entry.data for entry in read_entries(home.paths) if entry.act == "intent"]
    assert {len(one["allocations"]) for one in intents} == {1}
    assert {one["cluster_name"] for one in intents} == {CLUSTER}
    assert "not_submitted" not in home.acts()
    assert home.doubles() == []
    call("sacctmgr", "-i", "modify", "qos", "normal", "set", "MaxSubmitJobsPerUser=7")
    assert desk.room("slurm").why == "MaxSubmitJobsPerUser of the QOS normal is 7 and 0 of that are used up"
    call("sacctmgr", "-i", "modify", "account", "root", "set", "GrpSubmitJobs=5")
    assert desk.room("slurm").why == "GrpSubmitJobs of the account root is 5 and 0 of that are used up"
    call("sacctmgr", "-i", "modify", "qos", "normal", "set", "GrpSubmitJobs=3", "MaxSubmitJobsPerAccount=4")
    assert desk.room("slurm").why == "GrpSubmitJobs of the QOS normal is 3 and 0 of that are used up"


@pytest.mark.slow
def test_waiting_for_what_a_partition_never_starts_ends_with_the_command_that_ends_it(
    tmp_path: Path, slurm_cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert slurm_cluster.conf.is_file()
    monkeypatch.setattr("campaign.cli.submit.SLURM_PACE", PACE)
    monkeypatch.setattr("campaign.submission.wait.SURE_S", 2.0)
    home = make_home(tmp_path, minutes=30)
    where = ["--home", str(home.paths.root)]
    call("scontrol", "update", "partition=main", "MaxTime=10")
    try:
        assert main(["submit", *where, "--cluster", "slurm", "--yes", "--wait"]) == 6
        told = capsys.readouterr().err
        assert "2 job(s)" in told
        assert "PartitionTimeLimit: its time limit is over the partition's" in told
        assert "campaign cancel" in told
        assert main(["cancel", *where, "--yes", "--reason", "too long"]) == 0
        wait_for_jobs(lambda: make_desk(home).view(""), PACE, sleep=time.sleep, show=quiet)
        assert {one.ending for one in make_desk(home).view("").attempts.values()} == {"cancelled"}
    finally:
        call("scontrol", "update", "partition=main", "MaxTime=INFINITE")
        end(home)


def test_a_job_that_an_administrator_renamed_is_found_by_its_number(tmp_path: Path, slurm_cluster: Cluster) -> None:
    assert slurm_cluster.conf.is_file()
    home = make_home(tmp_path)
    home.hold.touch()
    desk = make_desk(home)
    try:
        submit(desk)

        def running() -> set[tuple[AttemptState, str]]:
            return {(one.state, one.source) for one in desk.view("").attempts.values()}

        wait_until("both run", lambda: running() == {(AttemptState.RUNNING, "squeue")})
        for one in desk.view("").attempts.values():
            call("scontrol", "update", f"jobid={one.job}", "name=renamed")
        assert running() == {(AttemptState.RUNNING, "scontrol")}
        home.hold.unlink()
        wait_for_jobs(lambda: desk.view(""), PACE, sleep=time.sleep, show=quiet)
        assert {one.ending for one in desk.view("").attempts.values()} == {"completed"}
    finally:
        end(home)


def test_a_cluster_that_is_named_is_the_one_that_is_asked(tmp_path: Path, slurm_cluster: Cluster) -> None:
    assert slurm_cluster.conf.is_file()
    home = make_home(tmp_path, cluster=CLUSTER)
    desk = make_desk(home)
    submit(desk)
    wait_for_jobs(lambda: desk.view(""), PACE, sleep=time.sleep, show=quiet)
    assert {one.ending for one in desk.view("").attempts.values()} == {"completed"}
    (script,) = home.paths.transport.glob("*/*_submission.sh")
    assert f"#SBATCH --clusters={CLUSTER}" in script.read_text().splitlines()


def test_a_cluster_that_does_not_exist_is_refused_before_anything_is_recorded(
    tmp_path: Path, slurm_cluster: Cluster
) -> None:
    assert slurm_cluster.conf.is_file()
    home = make_home(tmp_path, cluster="nowhere")
    with pytest.raises(InfrastructureError, match="scontrol failed"):
        submit(make_desk(home))
    assert "intent" not in home.acts()


@pytest.mark.slow
def test_an_array_that_sbatch_refuses_is_cut_smaller_and_the_campaign_verifies(
    tmp_path: Path, limiting: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert limiting.conf.is_file()
    config, home = write_project(tmp_path), tmp_path / "home"
    expect(0, "freeze", config, "--home", home)
    desk = open_desk(HomePaths(home), read_frozen(HomePaths(home)), time.time)
    only = ["submit", "--home", str(home), "--cluster", "slurm", "--yes", "--only", "baseline/pilot/*"]
    monkeypatch.setattr("campaign.cli.submit.SLURM_PACE", PACE)
    call("sacctmgr", "-i", "modify", "user", "root", "set", "MaxSubmitJobs=1")
    wait_until("the limit is known", lambda: desk.room("slurm").num_jobs == 1)
    with monkeypatch.context() as patch:  # the limit came in between
        patch.setattr("campaign.submission.desk.read_room", lambda *_: Room())
        assert main(only) == 6
    assert main([*only, "--wait"]) == 0
    entries = read_entries(HomePaths(home))
    sizes = [len(entry.data["allocations"]) for entry in entries if entry.act == "intent"]
    assert sizes == [2, 1, 1]
    assert [entry.act for entry in entries].count("not_submitted") == 1
    assert {(one.attempt, one.ending) for one in desk.view("").attempts.values()} == {(1, "completed")}
    expect(0, "collect", "--home", home)
    assert {one["state"] for one in expect_json(0, "verify", home)["findings"]} == {"incomplete"}
