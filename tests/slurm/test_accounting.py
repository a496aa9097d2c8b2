"""The real accounting: what it says of a campaign's jobs is kept, and a job that was submitted by hand is found."""

from __future__ import annotations

import secrets
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from campaign.cli.main import main
from campaign.documents import Entry
from campaign.frozen import read_frozen
from campaign.record.accounting import HEADER
from campaign.record.ledger import read_entries
from campaign.submission.desk import Wish, open_desk
from campaign.submission.plans import key_prefix
from campaign.submission.wait import Pace, wait_for_jobs
from campaign.watching.scheduler import local_slurm
from campaign.watching.state import Patience
from tests.slurm.cluster import CLUSTER, Cluster
from tests.support.jobs import JobHome, make_job_home

pytestmark = pytest.mark.slurm
PACE = Pace(first_s=0.2, longest_s=0.5)


def quiet(_line: str) -> None:
    """Drop what the desk says."""


def run_pilots(home: JobHome) -> None:
    """Submit the baseline's pilots, and wait for them."""
    desk = open_desk(home.paths, read_frozen(home.paths), time.time)
    desk = replace(desk, observer=replace(desk.observer, patience=Patience(visible_s=1.0)))
    wish = Wish(candidate="", cluster="slurm", phase="pilot")
    desk.hand_over(wish, desk.order(wish, desk.view(""), desk.array_limit("slurm")), quiet)
    wait_for_jobs(lambda: desk.view(""), PACE, sleep=time.sleep, show=quiet)


def until_ended(name: str) -> None:
    """Wait until accounting says that a job has ended."""
    command = ["sacct", "--noheader", "--parsable2", "--allocations", "--format=State", f"--name={name}"]
    deadline = time.monotonic() + 60
    while "COMPLETED" not in subprocess.run(command, check=True, capture_output=True, text=True).stdout:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def accounted(home: JobHome) -> list[Entry]:
    return [entry for entry in read_entries(home.paths) if entry.act == "accounted"]


def test_a_job_by_hand_with_the_campaigns_name_is_a_finding(
    tmp_path: Path, slurm_cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert slurm_cluster.conf.is_file()
    home = make_job_home(tmp_path / "home", repeats=1, candidate=False)
    # The stand-in harness measures nothing: what it leaves can be collected where it says that a side crashed.
    home.wish(endings={f"baseline/pilot/{name}-b4/1": "crash" for name in ("sync", "packed")})
    run_pilots(home)
    (submitted,) = [entry.data for entry in read_entries(home.paths) if entry.act == "submitted"]
    until_ended(submitted["submission"])
    assert main(["collect", "--home", str(home.paths.root)]) == 0
    (act,) = accounted(home)
    header, *lines = home.paths.accounts(1).read_text().splitlines()
    assert (header, act.data["cluster"], act.data["jobs"]) == (HEADER, CLUSTER, 2)
    assert sorted(line.split("|")[0] for line in lines) == [f"{submitted['job']}_0", f"{submitted['job']}_1"]
    assert {line.split("|")[3] for line in lines} == {submitted["submission"]}

    name = f"{key_prefix('synthetic', read_frozen(home.paths).manifest_sha256)}by-hand"
    command = ["sbatch", "--parsable", f"--job-name={name}", "--output=/dev/null", "--time=1", "--wrap=true"]
    job = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path).stdout.strip()
    until_ended(name)
    capsys.readouterr()
    for _ in range(2):
        assert main(["collect", "--home", str(home.paths.root)]) == 5
        told = capsys.readouterr().err
        assert f"job {job} of " in told
        assert f"no intent of the ledger has the key {name}" in told
    assert len(accounted(home)) == 2
    assert main(["seal", "--home", str(home.paths.root)]) == 5


def ask_database(cluster: Cluster, statement: str) -> None:
    """Change what the accounting database holds."""
    socket = cluster.base / "mysqld" / "mysql.sock"
    command = ["mysql", "--no-defaults", f"--socket={socket}", "--user=root", "slurm_acct_db", f"--execute={statement}"]
    subprocess.run(command, check=True, capture_output=True)


def test_a_job_that_ran_across_midnight_is_found_the_day_after(tmp_path: Path, slurm_cluster: Cluster) -> None:
    name = f"midnight-{secrets.token_hex(4)}"
    command = ["sbatch", "--parsable", f"--job-name={name}", "--output=/dev/null", "--time=1", "--wrap=true"]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    until_ended(name)
    now = time.time()
    today = time.mktime((*time.localtime(now)[:3], 0, 0, 0, 0, 0, -1))
    before, after = int(today) - 20, int(today) + 20
    times = f"time_submit={before}, time_eligible={before}, time_start={before}, time_end={after}"
    statement = f"update {CLUSTER}_job_table set {times} where job_name='{name}'"  # noqa: S608 - our own words alone
    ask_database(slurm_cluster, statement)
    for at in (now, now + 86400):  # a day later the same question begins a day earlier
        (record,) = local_slurm().accounting([name], at - before)
        assert (record.state, record.submitted_at, record.ended_at) == ("COMPLETED", before, after)


def test_a_job_that_was_cancelled_while_it_was_held_is_found(tmp_path: Path, slurm_cluster: Cluster) -> None:
    assert slurm_cluster.conf.is_file()
    name = f"held-{secrets.token_hex(4)}"
    command = ["sbatch", "--parsable", "--hold", "--array=0-2", f"--job-name={name}", "--output=/dev/null"]
    done = subprocess.run([*command, "--wrap=true"], check=True, capture_output=True, text=True, cwd=tmp_path)
    job = done.stdout.strip()
    subprocess.run(["scancel", job], check=True)
    slurm, deadline = local_slurm(), time.monotonic() + 60
    while not (found := slurm.accounting([name], 60.0, is_cancelled=True)):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert {(one.job, one.state) for one in found} == {(f"{job}_{index}", "CANCELLED") for index in range(3)}
