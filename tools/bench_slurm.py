"""Turnaround of many small allocations on the test cluster, beside an array of as many tasks of ``true``.

A campaign of near-empty pairs (one window of a millisecond, no training) is frozen, its pilots run, and then its pairs
are submitted as one array and waited for. What is left over the array of ``true`` is what two interpreters a pair, the
harness, submitit and the driver's own waiting cost.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.slurm.cluster import Cluster
from tests.support.counting import ADAPTER

CONFIG = """
name = "bench-slurm"
baseline_first = false
[baseline]
source = "source"
adapter = "counting:baseline"
python = "{python}"
[candidate]
source = "source"
adapter = "counting:candidate"
python = "{python}"
[throughput]
window_s = "0.001"
window_margin = "10"
pilot_s = "0.001"
windows = 1
warmup_updates = 0
solo = false
controls = false
[slurm]
minutes = 5
[matrix]
name = "w{{work}}"
axes.work = [{works}]
fixed = {{ tokens = 8 }}
production = [{names}]
"""


def seconds_of(command: list[str]) -> float:
    """Run a command and return how long it took."""
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begin


def write_config(folder: Path, num_workloads: int) -> Path:
    """Write the source tree and campaign.toml; return the file's path."""
    (folder / "source").mkdir()
    (folder / "source" / "counting.py").write_text(ADAPTER)
    works = range(1000, 1000 + num_workloads)
    config = folder / "campaign.toml"
    config.write_text(
        CONFIG.format(
            python=sys.executable,
            works=", ".join(map(str, works)),
            names=", ".join(f'"w{work}"' for work in works),
        )
    )
    return config


def main() -> int:
    """Print both times and the difference per allocation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=int, default=20, help="each has three allocations of pairs")
    num_workloads = parser.parse_args().workloads
    os.environ.update(Cluster().environment)
    program = str(Path(sys.executable).with_name("campaign"))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        config, home = write_config(folder, num_workloads), str(folder / "home")
        submit = [program, "submit", "--home", home, "--cluster", "slurm", "--wait", "--yes"]
        seconds_of([program, "freeze", str(config), "--home", home])
        seconds_of([program, "freeze", "--candidate", "--config", str(config), "--home", home])
        pilots_s = seconds_of([*submit, "--phase", "pilot"])
        pairs_s = seconds_of([*submit, "--phase", "throughput"])
        subprocess.run(["chmod", "-R", "u+w", str(folder)], check=True)
    number = 3 * num_workloads
    true_s = seconds_of(["sbatch", "--wait", "--output=/dev/null", f"--array=0-{number - 1}", "--wrap=true"])
    print(f"{number} tasks of true      {true_s:7.1f} s")
    print(f"{number} pairs              {pairs_s:7.1f} s   (pilots before them {pilots_s:.1f} s)")
    print(f"over true, per allocation {(pairs_s - true_s) / number:7.3f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
