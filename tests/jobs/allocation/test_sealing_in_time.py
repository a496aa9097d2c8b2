"""How long a harness that is told to stop needs at worst: the shortest time that a site leaves a job is 5 s."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from acceptance.formats import Ending
from tests.support.harness import LIMITS, PAIR, make_bench, misbehaving

KILL_WAIT_S = 5.0
NUM_FILES = 10_000
LOG_BYTES = 4 << 20
BUSY = misbehaving(
    """
def updates(self, n):
    import os, signal, sys
    if n == 10:
        for _ in range(16):
            if os.fork() == 0:
                os.setsid()
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                hoard = bytearray(os.urandom(1 << 20) * 16)
                time.sleep(300)
        sys.stdout.write("x" * (4 << 20))
        sys.stdout.flush()
        with open(self.config["fifo"], "wb") as fifo:
            fifo.write(b"in a window")
        time.sleep(300)
    return super().updates(n)
"""
)
"""Has printed all that it may, and has 16 daemons."""


@pytest.mark.slow
def test_a_large_snapshot_a_full_log_many_daemons_and_a_silent_scheduler_are_sealed_within_the_shortest_time(
    tmp_path: Path,
) -> None:
    fifo, tools = tmp_path / "fifo", tmp_path / "tools"
    os.mkfifo(fifo)
    tools.mkdir()
    (tools / "scontrol").write_text("#!/bin/sh\nexec sleep 300\n")
    (tools / "scontrol").chmod(0o755)
    sources = {f"package{number // 100}/module{number}.py": f"x = {number}\n" for number in range(NUM_FILES)}
    config = {"tokens": 5, "fifo": str(fifo)}
    limits = LIMITS.replace(log_bytes=LOG_BYTES)
    bench = make_bench(tmp_path, {**sources, "adapter.py": BUSY}, config=config, limits=limits)
    bench.environment = {"PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "17"}
    job = bench.start(bench.plan(PAIR))
    with fifo.open("rb") as pipe:
        assert pipe.read() == b"in a window"
    told = time.time()
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=60)
    receipt = bench.receipt(PAIR)
    print(f"sealed {bench.ended().at - told:.2f} s after SIGTERM")  # noqa: T201 - for docs/harness.md
    assert receipt.ending is Ending.CANCELLED
    assert bench.attempt(PAIR).table("baseline.log").stat().st_size == LOG_BYTES
    assert bench.ended().at - told < KILL_WAIT_S
