"""What a verification costs: of the demo, of 10,000 attempts, and its hashing beside ``sha256sum`` of the same files.

The whole command is timed, both runs of the acceptance included. Hashing is measured on large files and on the many
small ones of the large home, in turns with ``sha256sum`` over all of them, after both have read every file once. Homes
and files are made in a folder of their own, which is removed again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

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
    begin = time.perf_counter()
    done = subprocess.run(command, cwd=cwd, check=False, capture_output=True, encoding="utf-8")
    seconds = time.perf_counter() - begin
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return seconds


def campaign(*arguments: str) -> float:
    """Run a command of the driver and return its seconds."""
    return timed([sys.executable, "-c", "from campaign.cli.main import run; run()", *arguments])


def measure_home(name: str, home: Path, rounds: int, limit_s: float) -> bool:
    """Time the verification of a home; return whether it stayed below the limit."""
    median_s: float = statistics.median([campaign("verify", "--home", str(home)) for _ in range(rounds)])
    num_files = sum(len(files) for _, _, files in os.walk(home))
    print(f"verify {name:<20} {num_files:7d} files  {median_s:6.2f} s (limit {limit_s:g} s)")
    return median_s < limit_s


def measure_hashing(name: str, folder: Path, rounds: int) -> bool:
    """Compare our rate with that of sha256sum; return whether it is high enough."""
    ours = [sys.executable, "-c", HASH_ALL, str(folder)]
    theirs = ["sh", "-c", 'find "$1" -type f -print0 | xargs -0 -n 1000000 -s 2000000 sha256sum', "sh", str(folder)]
    timed(ours)
    timed(theirs)
    pairs = [(timed(ours), timed(theirs)) for _ in range(rounds)]
    ours_s = statistics.median([pair[0] for pair in pairs])
    theirs_s = statistics.median([pair[1] for pair in pairs])
    sizes = [(Path(place) / file).stat().st_size for place, _, files in os.walk(folder) for file in files]
    megabytes, ratio = sum(sizes) / 1e6, theirs_s / ours_s
    print(
        f"hash   {name:<20} {len(sizes):7d} files  {megabytes / ours_s:6.0f} MB/s   sha256sum "
        f"{megabytes / theirs_s:6.0f} MB/s   ratio {ratio:.2f} (at least {RATE_LIMIT})"
    )
    return ratio >= RATE_LIMIT


def make_large_files(folder: Path, num_bytes: int) -> None:
    """Write eight files of random bytes."""
    folder.mkdir()
    for number in range(8):
        with (folder / f"shard{number}.bin").open("wb") as stream:
            for _ in range(num_bytes // 8 >> 20):
                stream.write(os.urandom(1 << 20))


def measure_large(folder: Path, args: argparse.Namespace) -> list[bool]:
    """Make what is large, and measure it."""
    home = folder / "home"
    build_large(home, args.attempts)
    campaign("report", "--exit-zero", "--home", str(home))
    campaign("seal", "--home", str(home))
    make_large_files(folder / "shards", args.megabytes << 20)
    return [
        measure_home(f"{args.attempts} attempts", home, 1, LARGE_LIMIT_S),
        measure_hashing("large files", folder / "shards", args.rounds),
        measure_hashing("a home's small files", home, args.rounds),
    ]


def main() -> int:
    """Measure and compare with the limits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path("build/demo"), help="a finished campaign such as the demo's")
    parser.add_argument("--attempts", type=int, default=10_000)
    parser.add_argument("--megabytes", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scratch", type=Path, help="folder for temporary files; default: the system's")
    args = parser.parse_args()
    held = []
    if args.home.is_dir():
        held.append(measure_home(str(args.home), args.home.resolve(), args.rounds, DEMO_LIMIT_S))
    else:
        print(f"verify {args.home}: not there; make demo makes one")
    folder = Path(tempfile.mkdtemp(prefix="bench-verify-", dir=args.scratch))
    try:
        held += measure_large(folder, args)
    finally:
        for place, _, _ in os.walk(folder):
            Path(place).chmod(0o700)  # frozen programs are read-only
        shutil.rmtree(folder)
    return int(not all(held))


if __name__ == "__main__":
    sys.exit(main())
