"""Whole allocations on a node, or under conditions, that make their measurements worth nothing."""

from __future__ import annotations

import hashlib
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acceptance.formats import Ending
from campaign import documents
from campaign.watching.processes import find_processes
from jobs.processes.marks import VARIABLE
from tests.support.harness import ADAPTER, PAIR, SOLO, Bench, make_bench, misbehaving

DAEMON = misbehaving(
    """
def updates(self, n):
    import os
    if n == 10:
        if os.fork() == 0:
            os.setsid()
            while True:
                time.sleep(300)
        fifo = os.open(self.config["fifo"], os.O_WRONLY)
        os.write(fifo, b"in a window")
        time.sleep(300)
    return super().updates(n)
"""
)
"""Hangs in its first window, beside a daemon, after it has said so through a named pipe that both keep open."""


def rewrite(bench: Bench, module: str, old: str, new: str) -> None:
    """Change the harness of one bench, before anything is planned."""
    path = bench.paths.harness / module
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def name_mark(bench: Bench) -> str:
    """Give a bench a mark of its own: what one test leaves must not refuse the node to those beside it."""
    name = f"{VARIABLE}_{secrets.token_hex(8)}"
    rewrite(bench, "processes/marks.py", f'VARIABLE = "{VARIABLE}"', f'VARIABLE = "{name}"')
    return name


def receipt_of(bench: Bench) -> documents.Receipt:
    bench.run(bench.plan(PAIR))
    return bench.receipt(PAIR)


@pytest.fixture
def orphaned(tmp_path: Path) -> Iterator[Bench]:
    """Kill a harness and its keeper at the same moment, while a side has a daemon."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    bench = make_bench(tmp_path, DAEMON, config={"tokens": 5, "fifo": str(fifo)})
    name_mark(bench)
    job = bench.start(bench.plan(PAIR))
    with fifo.open("rb", buffering=0) as pipe:
        assert pipe.read(11) == b"in a window"
        keepers = [one for one in children(job.pid) if children(one)]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in (job.pid, *keepers):
                os.kill(pid, number)
        job.communicate(timeout=60)
    try:
        yield bench
    finally:
        for process in find_processes(str(tmp_path)):
            os.kill(process.pid, signal.SIGKILL)


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_node_that_holds_what_a_killed_job_left_is_refused_until_it_is_gone(orphaned: Bench, tmp_path: Path) -> None:
    (daemon,) = [one.pid for one in find_processes(str(tmp_path))]
    done = orphaned.run(orphaned.plan(SOLO, allocation="a00002"))
    assert done.returncode == 4
    ended = orphaned.ended("a00002")
    assert (ended.reason, ended.receipts) == (Ending.NODE_FAIL, {})
    assert f"process {daemon} (" in ended.detail
    assert "pycache_prefix" in ended.detail
    assert not orphaned.attempt(SOLO).root.exists()
    os.kill(daemon, signal.SIGKILL)
    # The trainer is the one that hangs: that it was begun says enough.
    job = orphaned.start(orphaned.plan(SOLO.replace(attempt=2), allocation="a00003"))
    with (tmp_path / "fifo").open("rb", buffering=0) as pipe:
        assert pipe.read(11) == b"in a window"
    job.terminate()
    job.communicate(timeout=60)
    assert orphaned.receipt(SOLO.replace(attempt=2)).ending is Ending.CANCELLED


@pytest.mark.slow
def test_an_orphan_that_comes_while_a_pair_is_measured_makes_it_worth_nothing(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    waits = misbehaving(
        f"def close(self):\n    with open({str(fifo)!r}, 'wb') as pipe:\n        pipe.write(b'x')\n"
        f"    with open({str(fifo)!r}, 'rb') as pipe:\n        pipe.read()"
    )
    bench = make_bench(tmp_path, ADAPTER, waits, reads=(str(fifo),))
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    environment = {name_mark(bench): f"{boot_id}:1:1:an earlier job"}
    job = bench.start(bench.plan(PAIR))
    with fifo.open("rb") as pipe:
        assert pipe.read() == b"x"
    with subprocess.Popen([sys.executable, "-c", "input()"], env=environment, stdin=subprocess.PIPE) as stray:
        with fifo.open("wb") as pipe:
            pipe.write(b"y")
        job.communicate(timeout=60)
        stray.communicate(b"\n")
    receipt = bench.receipt(PAIR)
    assert receipt.ending is Ending.NODE_FAIL
    assert f"process {stray.pid} (" in receipt.reason
    assert "an earlier job" in receipt.reason
    assert len(receipt.sides) == 2
    assert not bench.attempt(PAIR).table("pairs.csv").exists()


# --- the job ----------------------------------------------------------------------------------------------------------


def test_a_job_that_the_scheduler_restarted_begins_nothing(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    bench.environment = {"SLURM_JOB_ID": "17", "SLURM_RESTART_COUNT": "1"}
    assert bench.run(bench.plan(PAIR)).returncode == 4
    ended = bench.ended()
    assert (ended.reason, ended.receipts) == (Ending.NODE_FAIL, {})
    assert "restarted this job (1 times)" in ended.detail
    assert not bench.attempt(PAIR).root.exists()


@pytest.mark.slow
def test_a_side_that_makes_its_allocation_look_like_another_jobs_gets_no_other_attempt(tmp_path: Path) -> None:
    head = "import json, pathlib"
    body = (
        "def close(self):\n    path = pathlib.Path(self.config['started'])\n"
        "    value = json.loads(path.read_text())\n    value['job']['job_id'] = '18'\n"
        "    path.write_text(json.dumps(value))"
    )
    started = tmp_path / "home" / "allocations" / "a00001" / "started.json"
    config = {"tokens": 5, "started": str(started)}
    bench = make_bench(tmp_path, misbehaving(body, head=head), config=config, reads=(str(started),))
    receipt = receipt_of(bench)
    assert receipt.ending is Ending.INTERFERENCE
    assert "while baseline ran, allocations/a00001/started.json in the home changed" in receipt.reason
    assert [side.side for side in receipt.sides] == ["baseline"]
    assert bench.ended().receipts.keys() == {f"{PAIR.slot}/1"}


def test_a_pair_that_was_stopped_for_a_while_is_worth_nothing(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    body = (
        "def updates(self, n):\n    if n == 10 and self.count < 10:\n        import os\n"
        "        os.close(os.open(self.config['fifo'], os.O_WRONLY))\n    return super().updates(n)"
    )
    bench = make_bench(tmp_path, misbehaving(body), config={"tokens": 5, "fifo": str(fifo)})
    job = bench.start(bench.plan(PAIR))
    with fifo.open("rb", buffering=0) as pipe:
        assert pipe.read() == b""
    # As a scheduler that suspends a job does: all of its processes, and later all of them again.
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for process in find_processes(str(tmp_path)):
            os.kill(process.pid, number)
    job.communicate(timeout=60)
    receipt = bench.receipt(PAIR)
    assert receipt.ending is Ending.PREEMPTED
    assert "SIGCONT" in receipt.reason
    assert [side.side for side in receipt.sides] == ["baseline"]
    assert not bench.attempt(PAIR).table("pairs.csv").exists()


# --- the conditions ---------------------------------------------------------------------------------------------------


def limit(bench: Bench, root: Path) -> Path:
    """Show a bench control groups of our own; return the folder of its job's."""
    (root / "cgroup").mkdir()
    (root / "cgroup" / "cgroup.controllers").write_text("cpu cpuset memory\n")
    folder = root / "cgroup" / "job"
    folder.mkdir()
    for name, text in (("cpu.max", "200000 100000"), ("cpuset.cpus.effective", "0-1"), ("cpuset.mems.effective", "0")):
        (folder / name).write_text(text + "\n")
    (root / "memberships").write_text("0::/job\n")
    rewrite(bench, "allocation/cgroups.py", 'Path("/sys/fs/cgroup")', f"Path({str(root / 'cgroup')!r})")
    rewrite(bench, "allocation/cgroups.py", 'Path("/proc/self/cgroup")', f"Path({str(root / 'memberships')!r})")
    return folder


def lowering(path: Path, text: str) -> str:
    """Return an adapter during whose windows, the last update left out, somebody writes a file."""
    head = f"PATH, TEXT = {str(path)!r}, {text!r}"
    return misbehaving("def close(self):\n    open(PATH, 'w').write(TEXT)", head=head)


def test_both_sides_of_a_pair_say_under_what_conditions_they_were_measured(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    limit(bench, tmp_path)
    receipt = receipt_of(bench)
    assert receipt.ending is Ending.COMPLETED
    for side in receipt.sides:
        found = side.conditions
        assert found is not None
        assert found.after is not None
        for look in (found.before, found.after):
            assert look.affinity == found.affinity
            assert (look.cgroup.cpus, look.cgroup.cpu_quota, look.cgroup.memory_bytes) == ("0-1", 2.0, None)
            assert look.gpus == ()


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is no other processor to move to")
def test_a_side_that_takes_processors_which_it_was_not_given_is_no_measurement(tmp_path: Path) -> None:
    given = os.sched_getaffinity(0)
    head = f"import os\nWANTED = {sorted(given)!r}"
    takes = misbehaving("def sync(self):\n    os.sched_setaffinity(0, WANTED)", head=head)
    leaves = misbehaving("def sync(self):\n    os.sched_setaffinity(0, WANTED[:1])", head=head)
    bench = make_bench(tmp_path, leaves, takes)
    plans = [bench.plan(PAIR), bench.plan(PAIR.replace(attempt=2), allocation="a00002")]
    bench.run(plans[0])
    os.sched_setaffinity(0, {min(given)})
    try:
        bench.run(plans[1])
    finally:
        os.sched_setaffinity(0, given)
    assert bench.receipt(PAIR).ending is Ending.COMPLETED
    receipt = bench.receipt(PAIR.replace(attempt=2))
    assert receipt.ending is Ending.INTERFERENCE
    assert "candidate moved to the processors" in receipt.reason


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("cpu.max", "100000 100000", "conditions changed between the sides: cgroup.cpu_quota was 2.0 before baseline"),
        pytest.param(
            "memory.max",
            "1048576",
            "cgroup.memory_bytes was none before baseline's windows, 1048576 before candidate's",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "cpuset.cpus.effective",
            "0",
            "the processors of this job were 0-1, and are 0 now",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_pair_whose_conditions_changed_from_outside_is_worth_nothing(
    tmp_path: Path, file: str, text: str, words: str
) -> None:
    bench = make_bench(tmp_path, lowering(tmp_path / "cgroup" / "job" / file, text))
    limit(bench, tmp_path)
    receipt = receipt_of(bench)
    assert receipt.ending is Ending.NODE_FAIL
    assert words in receipt.reason
    assert not bench.attempt(PAIR).table("pairs.csv").exists()


@pytest.mark.slow
def test_one_pair_with_other_conditions_than_the_next_compares_alike_with_alike(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, ADAPTER, lowering(tmp_path / "cgroup" / "job" / "cpu.max", "100000 100000"))
    limit(bench, tmp_path)
    second = PAIR.replace(attempt=2)
    bench.run(bench.plan(PAIR, second))
    quotas = [
        {side.conditions.before.cgroup.cpu_quota for side in bench.receipt(one).sides if side.conditions is not None}
        for one in (PAIR, second)
    ]
    assert quotas == [{2.0}, {1.0}]
    assert [bench.receipt(one).ending for one in (PAIR, second)] == [Ending.COMPLETED] * 2


# --- containers -------------------------------------------------------------------------------------------------------

RUNTIME = """#!/bin/sh
# What a container's runtime does, as far as anybody can see: it takes an image file, and runs a command "in" it.
read -r first < "$1" || exit 9
test "$first" = "an image" || exit 9
shift
exec "$@"
"""


def contain(root: Path) -> tuple[Path, dict[str, Any]]:
    """Make an image and what runs it; return the image, and the fields of a side that runs in it."""
    image, runtime = root / "image.sif", root / "runtime"
    image.write_bytes(b"an image\n" + bytes(1000))
    runtime.write_text(RUNTIME)
    runtime.chmod(0o755)
    identity = {"path": str(image), "bytes": 1009, "sha256": hashlib.sha256(image.read_bytes()).hexdigest()}
    return image, {"launch": (str(runtime), str(image)), "container": identity}


def test_a_side_runs_in_the_image_that_was_frozen_and_its_receipt_says_so(tmp_path: Path) -> None:
    image, changes = contain(tmp_path)
    receipt = receipt_of(make_bench(tmp_path, **changes))
    assert (receipt.ending, receipt.reason) == (Ending.COMPLETED, "")
    assert {side.container_sha256 for side in receipt.sides} == {hashlib.sha256(image.read_bytes()).hexdigest()}


def test_nothing_runs_in_another_image(tmp_path: Path) -> None:
    image, changes = contain(tmp_path)
    bench = make_bench(tmp_path, **changes)
    image.write_bytes(b"an image\n" + bytes(999) + b"x")
    receipt = receipt_of(bench)
    assert receipt.ending is Ending.SNAPSHOT_CHANGED
    assert f"the container {image}: its SHA-256 is" in receipt.reason
    assert [(side.side, side.wall_s, side.container_sha256) for side in receipt.sides] == [("baseline", 0.0, "")]


@pytest.mark.slow
def test_an_image_that_is_replaced_between_the_sides_ends_the_pair(tmp_path: Path) -> None:
    image, changes = contain(tmp_path)
    body = "def close(self):\n    import os\n    os.utime(self.config['image'])"
    config = {"tokens": 5, "image": str(image)}
    receipt = receipt_of(make_bench(tmp_path, misbehaving(body), config=config, **changes))
    assert receipt.ending is Ending.SNAPSHOT_CHANGED
    assert "changed since it was hashed" in receipt.reason
