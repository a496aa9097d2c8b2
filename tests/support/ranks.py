"""A small home whose one workload asks for several processes, and a trainer of plain Python whose ranks meet."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.support.harness import Bench, make_bench

BATCH = 12
ADAPTER = '''"""A trainer whose ranks add up what they did after every update, through rank 0."""
import os
import socket
import time

BATCH = 12


class Meeting:
    """Sums over all ranks."""

    def __init__(self):
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        self.others = []
        if self.world == 1:
            return
        if self.rank:
            self.others = [self._reach(place)]
        else:
            with socket.create_server(place) as server:
                self.others = [server.accept()[0] for _ in range(self.world - 1)]
        self.files = [other.makefile("rwb", buffering=0) for other in self.others]

    def _reach(self, place):
        while True:
            try:
                return socket.create_connection(place)
            except ConnectionRefusedError:
                time.sleep(0.005)

    def add(self, value):
        if self.world == 1:
            return value
        if self.rank:
            self.files[0].write(b"%d\\n" % value)
            return self._read(self.files[0])
        total = value + sum(self._read(file) for file in self.files)
        for file in self.files:
            file.write(b"%d\\n" % total)
        return total

    def _read(self, file):
        line = file.readline()
        if not line:
            raise ConnectionError("another rank is gone")
        return int(line)

    def close(self):
        for other in self.others:
            other.close()


class Runner:
    def __init__(self, config, seed, device):
        self.config, self.device, self.count, self.total = config, device, 0, 0
        self.meeting = Meeting()
        self.rank, self.world = self.meeting.rank, self.meeting.world

    def updates(self, n):
        for _ in range(n):
            time.sleep(0.002)
            self.total = self.meeting.add(self.config["tokens"])
            self.count += 1
        return n, n, 0, n * self.config["tokens"]

    def sync(self):
        pass

    def loss(self):
        return 1.0 / (1.0 + self.count)

    def examples(self, step):
        return iter(range(step * BATCH, (step + 1) * BATCH)[self.rank :: self.world])

    def engaged(self):
        return {"path": "meeting", "sum": self.total, "device": self.device}

    def close(self):
        self.meeting.close()


def build(config, *, seed, device):
    return Runner(config, seed, device)
'''


def misbehaving(body: str) -> str:
    """Return an adapter whose runner overrides something.

    Args:
        body: Methods of the class, not indented.
    """
    indented = "".join(f"    {line}\n" if line else "\n" for line in body.splitlines())
    start, end = ADAPTER.split("\n\ndef build")
    bad = f"{start}\n\nclass Bad(Runner):\n{indented}\n\ndef build{end}"
    return bad.replace("return Runner(config", "return Bad(config")


def make_ranked_bench(
    root: Path, baseline: str = ADAPTER, candidate: str = ADAPTER, *, processes: int = 2, nodes: int = 1, **changes: Any
) -> Bench:
    """Create a home with two frozen sides whose workload asks for several processes; see `make_bench`."""
    bench = make_bench(root, baseline, candidate, **changes)
    (workload,) = bench.protocol.workloads
    several = workload.replace(processes=processes, nodes=nodes)
    bench.protocol = bench.protocol.replace(workloads=(several,))
    bench.paths.protocol.write_bytes(bench.protocol.to_bytes())
    return bench


_SCONTROL = """#!/bin/sh
case "$2" in
hostnames) printf 'n1\\nn2\\nn3\\n' ;;
node) echo "NodeName=$4 NodeAddr=127.0.0.1" ;;
*) exit 1 ;;
esac
"""
_SRUN = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do
    case "$1" in --nodelist=*) SLURMD_NODENAME="${1#*=}"; export SLURMD_NODENAME ;; esac
    shift
done
test -e "$FURTHER_NODES_REFUSE" && { echo "srun: error: no such node" >&2; exit 1; }
exec "$@"
"""


def pretend_nodes(bench: Bench, folder: Path) -> Path:
    """Let the jobs of a bench take this host for three nodes: programs of Slurm's names start what they shall here.

    Returns:
        A file that lets no further node be reached while it exists.
    """
    folder.mkdir()
    for name, text in (("scontrol", _SCONTROL), ("srun", _SRUN)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    refusal = folder / "refuses"
    bench.environment |= {
        "PATH": f"{folder}:/usr/bin:/bin",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "n[1-3]",
        "SLURMD_NODENAME": "n1",
        "SLURM_STEP_ID": "0",
        "FURTHER_NODES_REFUSE": str(refusal),
    }
    return refusal


_CONFIG = """
name = "ranks"
baseline_first = false

[baseline]
source = "source"
adapter = "adapter:build"
python = "{python}"

[candidate]
source = "source"
adapter = "adapter:build"
python = "{python}"

[throughput]
repeats = 1
warmup_updates = 3
windows = 2
window_s = "0.05"
window_margin = "3"
pilot_s = "0.05"
solo = false

[slurm]
cpus = 1
minutes = 5

[[workload]]
name = "spread"
production = true
processes = {processes}
nodes = {nodes}
config = {{ tokens = 5 }}

[[workload]]
name = "alone"
production = true
config = {{ tokens = 5 }}
"""
_ALONE = 'int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])'
_MAYBE_ALONE = 'int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))'


def write_ranked_campaign(folder: Path, *, processes: int, nodes: int = 1) -> Path:
    """Write the source tree and campaign.toml of one workload of several processes and one of one; return its path."""
    source = folder / "source"
    source.mkdir(parents=True)
    text = ADAPTER.replace(_ALONE, _MAYBE_ALONE).replace(
        'place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])',
        'place = os.environ.get("MASTER_ADDR", ""), int(os.environ.get("MASTER_PORT", 0))',
    )
    (source / "adapter.py").write_text(text)
    config = folder / "campaign.toml"
    config.write_text(_CONFIG.format(python=sys.executable, processes=processes, nodes=nodes))
    return config
