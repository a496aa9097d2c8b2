"""Sides on several nodes: the real harness on each, reached by a stand-in for srun that starts it on this host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.allocation.links import kind_of
from tests.support.harness import LIMITS, PAIR, SOLO, Bench, make_attempt
from tests.support.ranks import make_ranked_bench, misbehaving, pretend_nodes

PILOT = make_attempt("pilot", ("baseline",))


def log_of(bench: Bench) -> str:
    return (bench.paths.allocation("a00001").root / "harness.log").read_text()


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_a_pair_on_several_nodes_is_measured_as_one(tmp_path: Path) -> None:
    bench = make_ranked_bench(tmp_path, processes=4, nodes=2)
    pretend_nodes(bench, tmp_path / "bin")
    bench.run(bench.plan(PAIR))
    receipt = bench.receipt(PAIR)
    assert (receipt.ending, receipt.reason) == ("completed", "")
    for side in receipt.sides:
        assert (side.topology.processes, side.topology.nodes) == (4, 2)
        assert [(rank.rank, rank.local_rank, rank.node) for rank in side.ranks] == [
            (0, 0, "n1"), (1, 1, "n1"), (2, 0, "n2"), (3, 1, "n2")
        ]  # fmt: skip
        assert {rank.exit_code for rank in side.ranks} == {0}
        assert all(rank.peak_allocated_bytes and rank.device.startswith("cpu:") for rank in side.ranks)
        assert side.engaged == {"path": "meeting", "sum": 20, "device": "cpu"}
        assert side.conditions is not None
        assert side.conditions.after is not None
        for look in (side.conditions.before, side.conditions.after):
            assert [(one.node, one.affinity) for one in look.further] == [("n2", look.affinity)]
        assert {rank.affinity_after for rank in side.ranks} == {side.conditions.after.affinity}
        assert side.conditions.affinity == side.ranks[0].affinity_after


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is no other processor to move to")
def test_a_rank_of_another_node_that_takes_processors_ends_the_side(tmp_path: Path) -> None:
    given = os.sched_getaffinity(0)
    body = f"def sync(self):\n    os.sched_setaffinity(0, {sorted(given)!r}) if self.rank else None"
    bench = make_ranked_bench(tmp_path, misbehaving(body), nodes=2)
    pretend_nodes(bench, tmp_path / "bin")
    os.sched_setaffinity(0, {min(given)})
    try:
        bench.run(bench.plan(SOLO))
    finally:
        os.sched_setaffinity(0, given)
    receipt = bench.receipt(SOLO)
    assert receipt.ending == "interference"
    assert "rank 1: baseline moved to the processors" in receipt.reason


@pytest.mark.slow
def test_a_pilot_asks_the_ranks_of_all_nodes_for_their_examples(tmp_path: Path) -> None:
    bench = make_ranked_bench(tmp_path, processes=3, nodes=3)
    pretend_nodes(bench, tmp_path / "bin")
    bench.run(bench.plan(PILOT))
    receipt = bench.receipt(PILOT)
    assert (receipt.ending, receipt.reason) == ("completed", "")
    assert [rank.node for rank in receipt.sides[0].ranks] == ["n1", "n2", "n3"]
    assert len(set(receipt.sides[0].examples)) == 8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("condition", "ending", "reason"),
    [
        ("os.kill(os.getpid(), 9 if self.rank == 2 else 0)", "crash", "rank 2: warm-up: killed by SIGKILL"),
        ("assert self.rank != 3, 'oops'", "crash", "AssertionError: oops"),
        ("assert self.rank != 1, 'oops'", "crash", "AssertionError: oops"),
        ("time.sleep(100 if self.rank == 3 else 0)", "hang", "rank 3: warm-up: no answer within the limit"),
        ("time.sleep(100 if self.rank == 0 else 0)", "hang", "rank 0: warm-up: no answer within the limit"),
    ],
)
def test_what_one_rank_does_ends_the_side_on_every_node(
    tmp_path: Path, condition: str, ending: str, reason: str
) -> None:
    body = f"def updates(self, n):\n    {condition}\n    return n, n, 0, n"
    bench = make_ranked_bench(tmp_path, misbehaving(body), processes=4, nodes=2, limits=LIMITS.replace(startup_s=2))
    pretend_nodes(bench, tmp_path / "bin")
    bench.run(bench.plan(SOLO))
    receipt = bench.receipt(SOLO)
    assert receipt.ending == ending
    assert reason in receipt.reason
    ranks = receipt.sides[0].ranks
    assert [rank.rank for rank in ranks] == [0, 1, 2, 3]
    assert all(rank.pid and is_gone(rank.pid) for rank in ranks)
    assert all(rank.signal == 9 for rank in ranks)


@pytest.mark.slow
def test_what_ranks_of_other_nodes_print_is_kept(tmp_path: Path) -> None:
    body = "def sync(self):\n    print('at', self.count, flush=True)"
    bench = make_ranked_bench(tmp_path, misbehaving(body), nodes=2)
    pretend_nodes(bench, tmp_path / "bin")
    bench.run(bench.plan(SOLO))
    lines = bench.side_log(SOLO, "baseline").splitlines()
    for rank in (0, 1):
        assert [line for line in lines if line.startswith(f"[{rank}] ")] == [f"[{rank}] at {n}" for n in (3, 13, 23)]


@pytest.mark.slow
def test_ranks_that_print_too_much_end_the_side_wherever_they_are(tmp_path: Path) -> None:
    body = "def sync(self):\n    print('x' * 3000 * self.rank, flush=True)"
    bench = make_ranked_bench(tmp_path, misbehaving(body), nodes=2)
    pretend_nodes(bench, tmp_path / "bin")
    bench.run(bench.plan(SOLO))
    assert bench.receipt(SOLO).ending == "output_flood"


def test_a_node_that_cannot_be_reached_is_no_fault_of_the_side(tmp_path: Path) -> None:
    bench = make_ranked_bench(tmp_path, nodes=2)
    pretend_nodes(bench, tmp_path / "bin").touch()
    bench.run(bench.plan(SOLO))
    receipt = bench.receipt(SOLO)
    assert receipt.ending == "node_fail"
    assert "node n2" in receipt.reason
    assert "no such node" in receipt.reason


@pytest.mark.slow
def test_a_node_that_is_lost_ends_the_attempt_as_such(tmp_path: Path) -> None:
    body = (
        "def updates(self, n):\n"
        "    if self.rank == 1:\n"
        "        keeper = os.getppid()\n"
        "        stat = open(f'/proc/{keeper}/stat').read()\n"
        "        os.kill(int(stat[stat.rindex(')') + 1 :].split()[1]), 9)\n"
        "    time.sleep(100)"
    )
    bench = make_ranked_bench(tmp_path, misbehaving(body), nodes=2)
    pretend_nodes(bench, tmp_path / "bin")
    bench.run(bench.plan(SOLO))
    receipt = bench.receipt(SOLO)
    assert (receipt.ending, receipt.reason.splitlines()[0]) == (
        "node_fail", "node n2: warm-up: lost: killed by SIGKILL (out of memory?)"
    )  # fmt: skip
    assert is_gone(receipt.sides[0].ranks[0].pid)


def test_several_nodes_need_a_slurm_job(tmp_path: Path) -> None:
    bench = make_ranked_bench(tmp_path, nodes=2)
    bench.run(bench.plan(SOLO))
    receipt = bench.receipt(SOLO)
    assert (receipt.ending, receipt.reason) == (
        "harness_error", "2 nodes are asked for, and only a Slurm job has several"
    )  # fmt: skip


def test_what_nodes_of_a_side_have_in_common_is_named() -> None:
    host = {"cpu": "X", "machine": "m", "kernel": "6", "affinity": [0, 1]}
    gpu = {"name": "H", "driver": "5", "uuid": "GPU-1"}
    kind = kind_of(host, [gpu, {**gpu, "uuid": "GPU-2"}])
    assert kind == kind_of({**host, "affinity": [2, 3], "node": "n2"}, [{**gpu, "uuid": "GPU-3"}, gpu])
    assert kind["devices"] == "H 5, H 5"
    for changes in ({"cpu": "Y"}, {"kernel": "5"}, {"affinity": [0]}):
        assert kind != kind_of({**host, **changes}, [gpu, gpu])
    assert kind != kind_of(host, [gpu])
