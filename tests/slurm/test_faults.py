"""Every fault that a cluster and its people can add to a campaign, made for real: docs/operator.md lists them.

After each one the campaign is completed by ``campaign submit`` alone. Nothing that was sealed is lost, nothing counts
twice or by half, and the ledger tells what happened.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from campaign.submission.transport import CHILD
from campaign.watching.processes import find_processes
from campaign.watching.state import AttemptState, SlotState
from tests.slurm import cluster as clusters
from tests.slurm.cluster import Cluster, crash, kill_node_daemon, restore, signal_daemon, start_node
from tests.slurm.held import (
    HeldCampaign,
    end_all,
    kept_stopped,
    make_held_campaign,
    poll,
    read_all,
    run_pilots,
)
from tests.support.cli import PROGRAM, run_campaign

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
Make = Callable[..., HeldCampaign]
SUBMITS_KILLED = 10
COLLECTS_KILLED = 6


@pytest.fixture
def make(tmp_path: Path, slurm_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Return what makes a campaign; its jobs are ended afterwards, and the cluster is whole again."""
    made: list[HeldCampaign] = []
    monkeypatch.setenv("CAMPAIGN_REGISTRY", str(tmp_path / "registry.jsonl"))

    def make_one(batches: tuple[int, ...], **options: Any) -> HeldCampaign:
        made.append(make_held_campaign(tmp_path / f"campaign{len(made)}", batches=batches, **options))
        return made[-1]

    yield make_one
    for held in made:
        end_all(held)
    restore(slurm_cluster)


def nodes_of(held: HeldCampaign, *batches: int) -> dict[str, list[int]]:
    """Return the pairs by the node on which they run."""
    found: dict[str, list[int]] = {}
    for batch in batches:
        found.setdefault(held.start(batch).host.node, []).append(batch)
    return found


def hold_all(held: HeldCampaign, *batches: int) -> None:
    """Submit, and wait until all pairs are amid their first side."""
    for batch in batches:
        held.hold(batch, "train")
    held.submit()
    held.await_sides(*batches)


def test_what_a_cluster_ends_is_made_again(make: Make, slurm_cluster: Cluster) -> None:
    """A node that dies, a job of more weight, and the time limit: heard, and not heard."""
    batches = (2, 4, 8, 16, 32, 64)
    held = make(batches, minutes=1)
    run_pilots(held)
    hold_all(held, *batches)
    (dying, dead), (urgent, preempted), (_, (heard, deaf)) = nodes_of(held, *batches).items()
    crash(slurm_cluster, dying)
    heavy = ["sbatch", "--parsable", "-p", "urgent", f"--nodelist={urgent}", "--exclusive", "--output=/dev/null"]
    read_all([*heavy, "--wrap=true"])
    with kept_stopped(held.harness_pid(deaf)):
        held.await_ended(*preempted, *dead)
        start_node(slurm_cluster, dying)
        held.await_ended()
    assert [held.endings(batch) for batch in preempted] == [["preempted"]] * 2
    assert [held.endings(batch) for batch in dead] == [["node_fail"]] * 2
    assert [held.endings(batch) for batch in (heard, deaf)] == [["time_limit"]] * 2
    for batch in batches:
        held.release(batch)
    held.submit_until_done()
    assert {tuple(held.endings(batch)[1:]) for batch in batches} == {("completed",)}
    # Who was told to stop sealed it; of who could not, the ledger has the scheduler's word.
    assert [held.told(batch) for batch in (*preempted, heard)] == [[]] * 3
    assert held.told(deaf) == [(1, "time_limit")]
    assert [held.told(batch) for batch in dead] == [[(1, "node_fail")]] * 2
    held.require_sound()


def test_what_people_end_is_made_again(make: Make, slurm_cluster: Cluster) -> None:
    """``scancel`` before, during and between the sides; a requeue, heard and not; a daemon that its job outlives."""
    before, during, between, requeued, deaf, outliving = batches = (2, 4, 8, 16, 32, 64)
    held = make(batches)
    run_pilots(held)
    held.hold(between, "close")
    for batch in (during, requeued, deaf, outliving):
        held.hold(batch, "train")
    with closed_partition():
        held.submit()
        assert held.attempts(before)[-1].state is AttemptState.PENDING
        read_all(["scancel", held.job(before)])
    held.await_sides(during, between, requeued, deaf, outliving)
    node = held.start(outliving).host.node
    assert nodes_of(held, during, between, requeued, deaf, outliving)[node] == [outliving]
    kill_node_daemon(slurm_cluster, node)
    for batch in (during, between):
        read_all(["scancel", held.job(batch)])
    with kept_stopped(held.harness_pid(deaf)):
        for batch in (requeued, deaf):
            read_all(["scontrol", "update", f"JobId={held.job(batch)}", "Requeue=1"])
            read_all(["scontrol", "requeue", held.job(batch)])
        poll("the end of the harness", lambda: not Path(f"/proc/{held.harness_pid(deaf)}").exists())
    # Slurm holds a requeued job for two minutes. Then it runs again, and finds that its allocation was begun.
    for batch in (requeued, deaf):
        poll("the requeued job", partial(is_pending, held.job(batch)))
        read_all(["scontrol", "update", f"JobId={held.job(batch)}", "StartTime=now"])
    held.await_ended()
    assert [held.endings(batch) for batch in (before, during, between, requeued)] == [["cancelled"]] * 4
    assert held.endings(deaf) == ["lost"]
    assert held.endings(outliving) == ["node_fail"]
    for batch in (during, between, requeued, deaf):
        held.release(batch)
    held.submit()
    # The harness that nobody hears any more seals while the same pair is made again.
    poll("the second attempt", lambda: held.attempts(outliving)[-1].state is AttemptState.RUNNING)
    held.release(outliving)
    held.submit_until_done()
    start_node(slurm_cluster, node)
    assert {tuple(held.endings(batch)[1:]) for batch in batches} == {("completed",)}
    assert [held.told(batch) for batch in (during, between, requeued)] == [[]] * 3
    assert held.told(before) == [(1, "cancelled")]
    assert held.told(deaf) == [(1, "lost")]
    # Its own word counts, not the scheduler's, and the second measurement does not.
    assert held.told(outliving) == [(1, "node_fail")]
    assert held.endings(outliving) == ["completed", "completed"]
    held.require_sound(surplus=1)


@contextmanager
def closed_partition() -> Iterator[None]:
    """Let jobs be submitted, and none begin."""
    read_all(["scontrol", "update", "PartitionName=main", "State=DOWN"])
    try:
        yield
    finally:
        read_all(["scontrol", "update", "PartitionName=main", "State=UP"])


def is_pending(job: str) -> bool:
    """Return whether a job waits in the queue."""
    return read_all(["squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={job}"]).strip() == "PENDING"


def test_jobs_go_on_while_no_daemon_answers(make: Make, slurm_cluster: Cluster) -> None:
    """The controller and accounting are killed: nothing is known, nothing is lost, and nothing is submitted twice."""
    held = make((2, 4))
    clusters.restart_controller(slurm_cluster)  # it knows of accounting, and may be killed
    run_pilots(held)
    held.hold(2, "train")
    held.submit("--only", "*/pair/b2/*")
    held.await_sides(2)
    try:
        for name in ("slurmctld", "slurmdbd"):
            signal_daemon(slurm_cluster, name, signal.SIGKILL)
        with start_submitting(held) as submitter:
            assert held.attempts(2)[-1].state is AttemptState.UNKNOWN
            assert submitter.wait() == 6
        held.release(2)
        poll("the receipt", held.paths.attempt(held.pair(2), 1).receipt.is_file)
        clusters.start_controller(slurm_cluster)
        held.submit()
        poll("the other receipt", lambda: held.endings(4) == ["completed"])
    finally:
        clusters.start_database(slurm_cluster)
    held.submit_until_done()
    assert [held.endings(batch) for batch in (2, 4)] == [["completed"]] * 2
    assert len(held.entries("ended")) == 0
    held.require_sound()


SBATCH = """#!/bin/sh
# The real sbatch, whose answer gets lost.
mode=$(cat {folder}/mode)
[ $mode = deaf ] && kill -STOP $(cat {controller})
{real} "$@" > "{folder}/said"
code=$?
[ $mode = deaf ] && kill -CONT $(cat {controller})
[ $code = 0 ] || exit $code
case $mode in
    timeout) echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2; exit 1 ;;
    killed) kill -KILL $PPID $$ ;;
    stuck) touch {folder}/stuck; while true; do sleep 0.1; done ;;
    whole) cat "{folder}/said" ;;
esac
"""


def lose_answers(folder: Path, environment: dict[str, str], cluster: Cluster) -> Callable[[str], int]:
    """Put an sbatch before the real one; return what sets how it behaves from then on."""
    folder.mkdir()
    program, controller = folder / "sbatch", cluster.pid_file("slurmctld")
    program.write_text(SBATCH.format(real=shutil.which("sbatch"), folder=folder, controller=controller))
    program.chmod(0o755)
    environment["PATH"] = f"{folder}:{os.environ['PATH']}"
    return (folder / "mode").write_text


def test_a_job_whose_sbatch_did_not_say_so_is_found_by_its_key(
    make: Make, slurm_cluster: Cluster, tmp_path: Path
) -> None:
    """Slurm accepted; sbatch reports a timeout, is killed with who called it, or does not return."""
    held = make((2, 4, 8))
    behave = lose_answers(tmp_path / "bin", held.environment, slurm_cluster)
    behave("timeout")
    assert "Socket timed out" in held.submit("--phase", "pilot", code=6)
    assert [entry.data["source"] for entry in held.entries("submitted")] == ["squeue"]
    held.await_ended()
    behave("killed")
    held.submit("--only", "*/pair/b2/*", code=6)
    behave("stuck")
    found = held.submit("--only", "*/pair/b2/*")
    assert found["jobs"] == []
    with start_submitting(held, "--only", "*/pair/b4/*") as submitter:
        poll("the job of a stuck sbatch", (tmp_path / "bin" / "stuck").exists)
        submitter.kill()
    with start_submitting(held, "--only", "*/pair/b4/*") as waiting:
        kill_transport(held)
        assert waiting.wait(60) == 0
    # For real: the controller hears of the job when sbatch has given up.
    behave("deaf")
    assert "Socket timed out" in held.submit(code=6)
    behave("whole")
    held.submit_until_done()
    assert len(held.entries("intent")) == len(held.entries("submitted")) == 4
    assert not held.entries("not_submitted")
    assert {one.attempt for one in held.view().attempts.values()} == {1}
    held.require_sound()


def start_submitting(held: HeldCampaign, *options: str) -> subprocess.Popen[bytes]:
    """Run ``campaign submit`` beside this process, in a session of its own."""
    command = [sys.executable, str(PROGRAM), *held.submitting, *options]
    around = {**os.environ, **held.environment}
    return subprocess.Popen(command, env=around, stdout=subprocess.DEVNULL, start_new_session=True)


def kill_transport(held: HeldCampaign) -> None:
    """Kill what hands a submission over, sbatch included."""
    for needle in (f"{CHILD}\0submit\0{held.paths.transport}/", f"sbatch\0{held.paths.transport}/"):
        for process in find_processes(needle):
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


def test_commands_that_are_killed_neither_lose_nor_double(make: Make) -> None:
    """``submit`` with and without its child, and ``collect``, are killed at random moments."""
    chance = random.Random(7)  # noqa: S311 - decides when to kill, only repeatable
    held = make((2, 4, 8))
    codes = []
    for number in range(SUBMITS_KILLED):
        with start_submitting(held) as submitter:
            with suppress(subprocess.TimeoutExpired):
                submitter.wait(chance.uniform(0.3, 1.2))
            with suppress(ProcessLookupError):  # a fast machine may be done
                os.killpg(submitter.pid, signal.SIGKILL)
        codes.append(submitter.returncode)
        if number % 2:
            kill_transport(held)
    assert -signal.SIGKILL in codes
    held.submit_until_done()
    for _ in range(COLLECTS_KILLED):
        collector = subprocess.Popen([sys.executable, str(PROGRAM), "collect", "--home", str(held.paths.root)])
        with suppress(subprocess.TimeoutExpired):
            collector.wait(chance.uniform(0.1, 0.8))
        collector.kill()
        collector.wait()
    assert {one.attempt for one in held.view().attempts.values()} == {1}
    held.require_sound()


def test_a_home_that_is_full_gives_no_evidence_and_the_pair_is_made_again(make: Make, disk: Path) -> None:
    """A job that measures while the file system fills up, and one that begins on a full one."""
    held = make((2, 4), disk=disk)
    run_pilots(held)
    held.hold(2, "train")
    held.submit("--only", "*/pair/b2/*")
    held.await_sides(2)
    with closed_partition():
        held.submit()
        fill(disk)
    held.release(2)
    held.await_ended()
    ballast = fill(disk)  # the harness gave back what it had kept for the receipt
    assert "space" in held.submit(code=6).lower()
    ballast.unlink()
    held.submit_until_done()
    assert held.endings(2) == ["no_space", "completed"]
    assert held.endings(4) == ["lost", "completed"]
    held.require_sound()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return a small file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160M", "campaign-test", str(place)], check=True)
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Fill a file system to its last byte; return the file that does it."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as stream:
        os.posix_fallocate(stream.fileno(), 0, shutil.disk_usage(disk).free)
    return ballast


def test_two_people_who_submit_and_collect_at_once_do_not_disturb_one_another(make: Make) -> None:
    """Each goes on until all is complete; now and then one is told that the other is at work."""
    held = make((2, 4, 8))
    done, troubles = threading.Event(), []

    def go_on() -> None:
        while not done.is_set():
            for command in (held.submitting, ["collect", "--home", str(held.paths.root)]):
                said = run_campaign(*command)
                if said.returncode not in (0, 2):
                    troubles.append(said.stderr)
                    done.set()

    people = [threading.Thread(target=go_on) for _ in range(2)]
    for one in people:
        one.start()
    try:
        poll("the end of it", lambda: troubles or all_complete(held))
    finally:
        done.set()
        for one in people:
            one.join()
    assert not troubles
    assert {one.attempt for one in held.view().attempts.values()} == {1}
    held.require_sound()


def all_complete(held: HeldCampaign) -> bool:
    """Return whether all slots are complete."""
    return {status.state for status in held.view().slots.values()} == {SlotState.COMPLETED}


@pytest.fixture
def binding_cluster(slurm_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Boot another cluster, which binds processes to CPUs, and set its variables for the test."""
    cluster = clusters.binding(slurm_cluster)
    clusters.up(cluster)
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    yield cluster
    clusters.down(cluster)


INSIDE = ("srun", "--cpu-bind=map_cpu:0")
LOOK = "import os; print(sorted(os.sched_getaffinity(0)))"


@pytest.mark.usefixtures("binding_cluster")
def test_a_submission_from_within_an_allocation_leaves_the_affinity_of_its_jobs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAMPAIGN_REGISTRY", str(tmp_path / "registry.jsonl"))
    # What happens to a job whose submitter's binding comes along: all of its CPUs but one are left idle.
    said = tmp_path / "said"
    job = ["sbatch", "--wait", "--cpus-per-task=2", f"--output={said}", f"--wrap=srun {sys.executable} -c '{LOOK}'"]
    read_all(job)
    free = said.read_text()
    read_all([*INSIDE, *job])
    assert said.read_text() != free
    held = make_held_campaign(tmp_path / "campaign", batches=(2,), cpus=2)
    held.submit("--only", "baseline/pilot/*")
    held.await_ended()
    read_all([*INSIDE, sys.executable, str(PROGRAM), *held.submitting, "--phase", "pilot"])
    held.await_ended()
    starts = [json.loads(path.read_bytes()) for path in held.paths.attempts.rglob("start.json")]
    outside, inside = (start["host"]["affinity"] for start in sorted(starts, key=lambda start: start["at"]))
    assert len(inside) == 2
    assert inside == outside
    held.submit_until_done()
    held.require_sound()
