"""Turnaround of many small allocations on the test cluster, beside submitit's own array of functions that do nothing.

A campaign of near-empty pairs (one window of an update, no training) is frozen and its pilots run. Then its pairs are
submitted and waited for: as one array with a pair in each task, and in a second home with many pairs in each. Between
them, on the same cluster, submitit's `map_array` of as many functions that return at once, and an array of ``true``.

Everything of the sides and of submitit's tasks runs on interpreters of small environments, made here: what a large
environment costs at each start would be measured on both sides, and would hide what is compared.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.slurm.cluster import Cluster
from tests.support.counting import Counting, write_counting_campaign

MOST_RATIO = 1.5
"""Of the pairs' time to that of submitit's functions."""
REPEATS = 3
FUNCTIONS = """
import sys
import submitit

executor = submitit.SlurmExecutor(folder=sys.argv[1])
executor.update_parameters(time=5)
jobs = executor.map_array(int, range(int(sys.argv[2])))
assert [job.result() for job in jobs] == list(range(int(sys.argv[2])))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where everything is made."""

    folder: Path
    num_workloads: int

    @property
    def num_pairs(self) -> int:
        """Pairs of one home."""
        return REPEATS * self.num_workloads


def seconds_of(command: list[str]) -> float:
    """Run a command and return how long it took."""
    begin = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return time.perf_counter() - begin


def make_python(folder: Path, *names: str) -> Path:
    """Make an environment of copies of some installed distributions and nothing else; return its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    for name in names:
        for file in distribution(name).files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), site / file)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "compileall", "-q", str(site)], check=True)
    return python


def write_config(bench: Bench, python: Path, together: int) -> Path:
    """Write the source tree and campaign.toml; return the file's path."""
    works = range(1000, 1000 + bench.num_workloads)
    production = tuple(f"w{work}" for work in works)
    campaign = Counting(name="bench-slurm", works=works, production=production, repeats=REPEATS, together=together)
    return write_counting_campaign(bench.folder / f"{together}-together", campaign, python)


def run_pairs(bench: Bench, python: Path, together: int) -> float:
    """Freeze a campaign and run its pilots; return how long its pairs took after that, in seconds."""
    program = str(Path(sys.executable).with_name("campaign"))
    config = write_config(bench, python, together)
    home = str(config.with_name("home"))
    submit = [program, "submit", "--home", home, "--cluster", "slurm", "--wait", "--yes"]
    seconds_of([program, "freeze", str(config), "--home", home])
    seconds_of([program, "freeze", "--candidate", "--config", str(config), "--home", home])
    pilots_s = seconds_of([*submit, "--phase", "pilot"])
    print(f"   ({2 * bench.num_workloads} pilots before them: {pilots_s:.1f} s)", flush=True)
    return seconds_of([*submit, "--phase", "throughput"])


def run_functions(bench: Bench) -> float:
    """Return how long submitit's array of functions took, in seconds."""
    python = make_python(bench.folder / "submitit-python", "submitit", "cloudpickle", "typing_extensions")
    program = bench.folder / "functions.py"
    program.write_text(FUNCTIONS)
    return seconds_of([str(python), str(program), str(bench.folder / "functions"), str(bench.num_pairs)])


def run_true(bench: Bench) -> float:
    """Return how long an array of ``true`` took, in seconds."""
    return seconds_of(["sbatch", "--wait", "--output=/dev/null", f"--array=0-{bench.num_pairs - 1}", "--wrap=true"])


def main() -> int:
    """Print the times and their ratios; the exit code is 1 if the ratio is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=int, default=117, help="each has three pairs")
    parser.add_argument("--together", type=int, default=39, help="pairs of one allocation in the second home")
    arguments = parser.parse_args()
    os.environ.update(Cluster().environment)
    with tempfile.TemporaryDirectory() as temporary:
        bench = Bench(folder=Path(temporary), num_workloads=arguments.workloads)
        python = make_python(bench.folder / "side-python")
        number = bench.num_pairs
        apart_s = run_pairs(bench, python, 1)
        print(f"{number} pairs, one in each array task       {apart_s:7.1f} s", flush=True)
        functions_s = run_functions(bench)
        print(f"{number} functions of submitit's map_array   {functions_s:7.1f} s", flush=True)
        true_s = run_true(bench)
        print(f"{number} tasks of true                       {true_s:7.1f} s", flush=True)
        together_s = run_pairs(bench, python, arguments.together)
        print(f"{number} pairs, {arguments.together} in each array task       {together_s:7.1f} s", flush=True)
        subprocess.run(["chmod", "-R", "u+w", str(bench.folder)], check=True)
    ratio = apart_s / functions_s
    is_met = ratio <= MOST_RATIO
    print(f"pairs / functions {ratio:.2f}, at most {MOST_RATIO}: {'met' if is_met else 'MISSED'}")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
