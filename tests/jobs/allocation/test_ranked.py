"""Sides of several processes on one node, run by the real harness."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaign.documents import PlannedAttempt, Receipt
from tests.support.harness import LIMITS, PAIR, SOLO, make_attempt
from tests.support.ranks import ADAPTER, make_ranked_bench, misbehaving

PILOT = make_attempt("pilot", ("baseline",))


def run(root: Path, planned: PlannedAttempt, baseline: str = ADAPTER, *, processes: int = 2) -> Receipt:
    bench = make_ranked_bench(root, baseline, processes=processes)
    done = bench.run(bench.plan(planned))
    assert bench.ended().reason == "done", done.stderr + done.stdout
    return bench.receipt(planned)


def test_a_pair_of_several_processes_is_measured_as_one(tmp_path: Path) -> None:
    bench = make_ranked_bench(tmp_path, processes=3)
    bench.run(bench.plan(PAIR))
    receipt = bench.receipt(PAIR)
    assert (receipt.ending, receipt.reason) == ("completed", "")
    for side in receipt.sides:
        assert (side.topology.processes, side.topology.nodes) == (3, 1)
        assert [rank.rank for rank in side.ranks] == [rank.local_rank for rank in side.ranks] == [0, 1, 2]
        assert len({rank.pid for rank in side.ranks}) == 3
        assert {rank.exit_code for rank in side.ranks} == {0}
        assert side.engaged == {"path": "meeting", "sum": 15, "device": "cpu"}
    rows = bench.rows(PAIR, "pairs.csv")
    for row, side in zip(rows, receipt.sides, strict=True):
        assert row.values["tokens"] == 2 * 10 * 5 * 3
        assert row.values["peak_allocated_bytes"] == sum(rank.peak_allocated_bytes or 0 for rank in side.ranks)
    for row in bench.rows(PAIR, "windows.csv"):
        assert (row.values["updates"], row.values["microbatches"]) == (10, 30)


def test_a_pilot_proves_that_the_ranks_take_what_one_process_would(tmp_path: Path) -> None:
    two, three = (run(tmp_path / str(number), PILOT, processes=number) for number in (2, 3))
    assert (two.ending, two.reason) == ("completed", "")
    assert len(two.sides[0].examples) == 8
    assert len(set(two.sides[0].examples)) == 8
    assert two.sides[0].examples == three.sides[0].examples
    assert two.calibration is not None
    assert two.calibration.tokens_per_update == 2 * 5
    assert [rank.exit_code for rank in two.sides[0].ranks] == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "def examples(self, step):\n    return iter(range(step * BATCH + self.rank, step * BATCH + self.rank + 2))",
            "step 0: ranks 0 and 1 both take example 1",
        ),
        (
            (
                "def examples(self, step):\n    end = (step + 1) * BATCH - (self.world > 1)\n"
                "    return iter(range(step * BATCH, end)[self.rank :: self.world])"
            ),
            "step 0: the ranks lack 1 of the 12 examples of one process, among them 11",
        ),
        ("def examples(self, step):\n    return iter(())", "step 0: one process alone takes no example at all"),
    ],
)
def test_a_pilot_whose_ranks_do_not_divide_the_work_ends(tmp_path: Path, body: str, reason: str) -> None:
    receipt = run(tmp_path, PILOT, misbehaving(body))
    assert (receipt.ending, receipt.reason) == ("state_mismatch", reason)


def test_a_pilot_of_several_processes_asks_for_examples(tmp_path: Path) -> None:
    receipt = run(tmp_path, PILOT, ADAPTER.replace("def examples", "def samples"))
    assert (receipt.ending, receipt.sides[0].missing) == ("adapter_incomplete", ("examples",))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "ending", "reason"),
    [
        (
            "def updates(self, n):\n    os.kill(os.getpid(), 9 * self.rank)\n    return super().updates(n)",
            "crash",
            "rank 1: warm-up: killed by SIGKILL",
        ),
        (
            "def updates(self, n):\n    assert self.rank != 1, 'oops'\n    return super().updates(n)",
            "crash",
            "AssertionError: oops",
        ),
        (
            "def updates(self, n):\n    done = super().updates(n)\n    return (*done[:2], self.rank, done[3])",
            "count_disagreement",
            "warm-up: rank 1 says 1 skipped, rank 0 says 0",
        ),
        (
            "def loss(self):\n    return float('nan') if self.rank == 1 else 1.0",
            "non_finite",
            "rank 1: the loss of the last update is nan",
        ),
        (
            "def close(self):\n    if self.rank == 1:\n        os._exit(3)",
            "crash",
            "rank 1: close: exit code 3",
        ),
    ],
)
def test_what_one_rank_does_ends_the_whole_side(tmp_path: Path, body: str, ending: str, reason: str) -> None:
    receipt = run(tmp_path, SOLO, misbehaving(body))
    assert receipt.ending == ending
    assert reason in receipt.reason
    assert [rank.rank for rank in receipt.sides[0].ranks] == [0, 1]


@pytest.mark.slow
def test_a_rank_that_hangs_is_named_and_no_rank_is_left(tmp_path: Path) -> None:
    body = "def updates(self, n):\n    time.sleep(100 if self.rank == 1 else 0)\n    return n, n, 0, n"
    bench = make_ranked_bench(tmp_path, misbehaving(body), limits=LIMITS.replace(startup_s=1))
    bench.run(bench.plan(SOLO))
    receipt = bench.receipt(SOLO)
    assert (receipt.ending, receipt.reason) == ("hang", "rank 1: warm-up: no answer within the limit")
    assert {rank.signal for rank in receipt.sides[0].ranks} == {9}
    assert not any(Path(f"/proc/{rank.pid}").exists() for rank in receipt.sides[0].ranks)


def test_what_ranks_print_is_kept_with_their_numbers(tmp_path: Path) -> None:
    body = "def sync(self):\n    print('at', self.count, flush=True)"
    bench = make_ranked_bench(tmp_path, misbehaving(body))
    bench.run(bench.plan(SOLO))
    lines = bench.side_log(SOLO, "baseline").splitlines()
    for rank in (0, 1):
        assert [line for line in lines if line.startswith(f"[{rank}] ")] == [f"[{rank}] at {n}" for n in (3, 13, 23)]
    assert len(lines) == 6


@pytest.mark.slow
def test_ranks_share_no_folder(tmp_path: Path) -> None:
    body = "def sync(self):\n    print(os.environ['HOME'], os.environ['TMPDIR'], os.getcwd(), sep='\\n', flush=True)"
    bench = make_ranked_bench(tmp_path, misbehaving(body))
    bench.run(bench.plan(SOLO))
    lines = set(bench.side_log(SOLO, "baseline").splitlines())
    first, second = ({line[4:] for line in lines if line.startswith(f"[{rank}] ")} for rank in (0, 1))
    assert len(first) == len(second) == 3
    assert not first & second
