"""Start-up of the command line beside ``import click, pydantic``, alternating in one run."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

LIMIT = 3.0
YARDSTICK = [sys.executable, "-c", "import click, pydantic"]


def seconds_of(command: list[str]) -> float:
    """Run a command and return how long it took."""
    begin = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - begin


def compare(name: str, command: list[str], rounds: int) -> float:
    """Measure a command and the yardstick in turn; print medians and return their ratio."""
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(seconds_of(command))
        theirs.append(seconds_of(YARDSTICK))
    ratio = statistics.median(ours) / statistics.median(theirs)
    print(
        f"{name:<18} {1e3 * statistics.median(ours):6.0f} ms   import click, pydantic "
        f"{1e3 * statistics.median(theirs):6.0f} ms   ratio {ratio:.2f} (limit {LIMIT})"
    )
    return ratio


def main() -> int:
    """Measure ``--help`` and, where a home is given, ``status``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path("build/demo"), help="a campaign home for status")
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    program = str(Path(sys.executable).with_name("campaign"))
    ratios = [compare("campaign --help", [program, "--help"], options.rounds)]
    if (options.home / "manifest.json").is_file():
        ratios.append(compare("campaign status", [program, "status", "--home", str(options.home)], options.rounds))
    else:
        print(f"campaign status    not measured: no campaign home at {options.home} (make demo)")
    return int(not max(ratios) <= LIMIT)


if __name__ == "__main__":
    sys.exit(main())
