"""What a verification costs: of the demo, of 10,000 attempts, and its hashing beside ``sha256sum`` of the same files.

The whole command is timed, both runs of the acceptance included. Hashing is measured on large files and on the many
small ones of the large home, in turns with ``sha256sum`` over all of them, after both have read every file once. Homes
and files are made in a folder of their own, which is removed again. Exits with 1 if a limit does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.large import build_large  # noqa: E402 - tests are importable from the root alone

DEMO_LIMIT_S = 5.0
LARGE_LIMIT_S = 60.0
RATE_LIMIT = 0.8
HASH_ALL = """
import sys
from campaign.verifier.digests import Digests, Kind
with Digests(sys.argv[1]) as digests:
    digests.hash_ahead()
    for found in digests.below(""):
        if found.kind is Kind.FILE:
            digests.sha256(found.path)
"""


def timed(command: Sequence[str], *, cwd: Path = ROOT) -> float:
    """Run a command, which must succeed, and return its seconds."""
    return timed_cpu(command, cwd=cwd)[0]


def timed_cpu(command: Sequence[str], *, cwd: Path = ROOT) -> tuple[float, float]:
    """Run a command, which must succeed, and return its seconds and those of processor time, of its children too."""
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=cwd, check=False, capture_output=True, encoding="utf-8")
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def campaign(*arguments: str) -> tuple[float, float]:
    """Run a command of the driver and return its seconds and those of processor time."""
    return timed_cpu([sys.executable, "-c", "from campaign.cli.main import run; run()", *arguments])


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeResult:
    """What the verification of a home took."""

    name: str
    files: int
    seconds: list[float]
    cpu_s: list[float]
    """Processor time, which other work on the machine changes little."""
    limit_s: float

    @property
    def median_s(self) -> float:
        """The middle of the repetitions."""
        return statistics.median(self.seconds)

    @property
    def is_held(self) -> bool:
        """Whether it stayed below the limit."""
        return self.median_s < self.limit_s

    def line(self) -> str:
        """Return it for a person."""
        said = f"(limit {self.limit_s:g} s: {_word(is_held=self.is_held)})"
        cpu = f"{statistics.median(self.cpu_s):.2f} s of processor time"
        return f"verify {self.name:<20} {self.files:7d} files  {self.median_s:6.2f} s, {cpu} {said}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HashingResult:
    """What hashing took, ours and that of ``sha256sum``, in turns."""

    name: str
    files: int
    bytes: int
    ours_s: list[float]
    theirs_s: list[float]
    least_ratio: float

    @property
    def ratio(self) -> float:
        """Our rate over theirs."""
        return statistics.median(self.theirs_s) / statistics.median(self.ours_s)

    @property
    def is_held(self) -> bool:
        """Whether our rate is high enough."""
        return self.ratio >= self.least_ratio

    def line(self) -> str:
        """Return it for a person."""
        ours, theirs = (self.bytes / 1e6 / statistics.median(each) for each in (self.ours_s, self.theirs_s))
        said = f"(at least {self.least_ratio:g}: {_word(is_held=self.is_held)})"
        rates = f"{ours:6.0f} MB/s   sha256sum {theirs:6.0f} MB/s   ratio {self.ratio:.2f}"
        return f"hash   {self.name:<20} {self.files:7d} files  {rates} {said}"


Result: TypeAlias = HomeResult | HashingResult


def _word(*, is_held: bool) -> str:
    return "holds" if is_held else "DOES NOT HOLD"


def measure_home(name: str, home: Path, rounds: int, limit_s: float) -> HomeResult:
    """Time the verification of a home."""
    taken = [campaign("verify", "--home", str(home)) for _ in range(rounds)]
    num_files = sum(len(files) for _, _, files in os.walk(home))
    seconds, cpu_s = ([one[index] for one in taken] for index in (0, 1))
    return HomeResult(name=name, files=num_files, seconds=seconds, cpu_s=cpu_s, limit_s=limit_s)


def measure_hashing(name: str, folder: Path, rounds: int) -> HashingResult:
    """Compare our rate with that of sha256sum."""
    ours = [sys.executable, "-c", HASH_ALL, str(folder)]
    theirs = ["sh", "-c", 'find "$1" -type f -print0 | xargs -0 -n 1000000 -s 2000000 sha256sum', "sh", str(folder)]
    timed(ours)
    timed(theirs)
    pairs = [(timed(ours), timed(theirs)) for _ in range(rounds)]
    sizes = [(Path(place) / file).stat().st_size for place, _, files in os.walk(folder) for file in files]
    return HashingResult(
        name=name,
        files=len(sizes),
        bytes=sum(sizes),
        ours_s=[pair[0] for pair in pairs],
        theirs_s=[pair[1] for pair in pairs],
        least_ratio=RATE_LIMIT,
    )


def make_large_files(folder: Path, num_bytes: int) -> None:
    """Write eight files of random bytes."""
    folder.mkdir()
    for number in range(8):
        with (folder / f"shard{number}.bin").open("wb") as stream:
            for _ in range(num_bytes // 8 >> 20):
                stream.write(os.urandom(1 << 20))


def measure_large(folder: Path, args: argparse.Namespace) -> Iterator[Result]:
    """Make what is large, and measure it."""
    home = folder / "home"
    build_large(home, args.attempts)
    campaign("report", "--exit-zero", "--home", str(home))
    campaign("seal", "--home", str(home))
    make_large_files(folder / "shards", args.megabytes << 20)
    yield measure_home(f"{args.attempts} attempts", home, 1, LARGE_LIMIT_S)
    yield measure_hashing("large files", folder / "shards", args.rounds)
    yield measure_hashing("a home's small files", home, args.rounds)


def measure_all(args: argparse.Namespace) -> Iterator[Result]:
    """Measure the finished campaign, if it is there, and then what is large."""
    if args.home.is_dir():
        yield measure_home(args.home.name, args.home.resolve(), args.rounds, DEMO_LIMIT_S)
    else:
        print(f"verify {args.home}: not there; make demo makes one")
    folder = Path(tempfile.mkdtemp(prefix="bench-verify-", dir=args.scratch))
    try:
        yield from measure_large(folder, args)
    finally:
        for place, _, _ in os.walk(folder):
            Path(place).chmod(0o700)  # frozen programs are read-only
        shutil.rmtree(folder)


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.machine(),
        "processors": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "load_1min": os.getloadavg()[0],
    }


def main() -> int:
    """Measure and compare with the limits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path("build/demo"), help="a finished campaign such as the demo's")
    parser.add_argument("--attempts", type=int, default=10_000)
    parser.add_argument("--megabytes", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scratch", type=Path, help="folder for temporary files; default: the system's")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write every repetition there, as JSON")
    args = parser.parse_args()
    found, where = [], machine()
    for one in measure_all(args):
        print(one.line(), flush=True)
        found.append(one)
    if args.out is not None:
        value = {"machine": where, "results": [{**asdict(one), "is_held": one.is_held} for one in found]}
        args.out.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    return int(not all(one.is_held for one in found))


if __name__ == "__main__":
    sys.exit(main())
