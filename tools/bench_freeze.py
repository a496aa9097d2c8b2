"""Freezing a tree of 10,000 files and 1 GB, beside ``cp -r`` and ``sha256sum`` of the same tree.

The whole command is timed, from its start to its last sync, once for a plain folder and once for a git
work tree. Dirty pages are flushed before each part, so that none pays for another; the yardstick itself does not sync.
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
LIMIT = 1.5
CONFIG = """
name = "bench-freeze"
baseline_first = false
[baseline]
source = "source"
adapter = "adapter:build"
python = "{python}"
[[workload]]
name = "one"
production = true
config = {{ size = 1 }}
"""


def make_tree(root: Path, num_files: int, num_bytes: int) -> None:
    """Write files of equal size and different contents, 100 a folder."""
    size = num_bytes // num_files
    block = os.urandom(size + num_files)
    root.mkdir()
    (root / "adapter.py").write_text("def build(config, *, seed, device): ...\n", encoding="utf-8")
    for number in range(num_files):
        folder = root / f"part{number // 100:04}"
        folder.mkdir(exist_ok=True)
        (folder / f"file{number:06}.bin").write_bytes(block[number : number + size])


def make_repository(root: Path, git_folder: Path) -> None:
    """Commit everything; git's own folder lies outside, so that ``cp -r`` does not copy it."""
    identity = ["-c", "user.name=bench", "-c", "user.email=bench@example.org", "-c", "core.compression=0"]
    for arguments in (
        ["init", "--quiet", f"--separate-git-dir={git_folder}"],
        ["add", "--all"],
        ["commit", "--quiet", "--message=bench"],
    ):
        subprocess.run(["git", *identity, *arguments], cwd=root, check=True)


def timed(command: Sequence[str], cwd: Path) -> float:
    """Flush what is dirty, run a command and return its seconds."""
    os.sync()
    begin = time.perf_counter()
    subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begin


def remove(path: Path) -> None:
    """Remove a folder, read-only parts included."""
    if path.exists():
        subprocess.run(["chmod", "-R", "u+w", str(path)], check=True)
        shutil.rmtree(path)


def measure(folder: Path, label: str, rounds: int) -> float:
    """Print each round and return the median ratio."""
    environment = [f"PYTHONPATH={ROOT}", sys.executable, "-P", "-c", "from campaign.cli.main import run; run()"]
    freeze = ["env", *environment, "freeze", "campaign.toml", "--home", "home"]
    ratios = []
    for number in range(1, rounds + 1):
        copy_s = timed(["cp", "-r", "source", "copy"], folder)
        hash_s = timed(["sh", "-c", "find source -type f -print0 | xargs -0 sha256sum > sums"], folder)
        remove(folder / "copy")
        freeze_s = timed(freeze, folder)
        remove(folder / "home")
        ratios.append(freeze_s / (copy_s + hash_s))
        parts = f"cp -r {copy_s:.2f} s + sha256sum {hash_s:.2f} s = {copy_s + hash_s:.2f} s"
        print(f"{label}, round {number}: {parts}; campaign freeze {freeze_s:.2f} s; ratio {ratios[-1]:.3f}", flush=True)
    return statistics.median(ratios)


def main() -> int:
    """Measure, print the ratios, and return 1 if one is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=1_000_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "campaign.toml").write_text(CONFIG.format(python=sys.executable), encoding="utf-8")
        make_tree(folder / "source", arguments.files, arguments.bytes)
        medians = {"plain folder": measure(folder, "plain folder", arguments.rounds)}
        make_repository(folder / "source", folder / "git")
        medians["git work tree"] = measure(folder, "git work tree", arguments.rounds)
    for label, ratio in medians.items():
        print(f"freeze of a {label}: {ratio:.3f} x (cp -r + sha256sum), median of {arguments.rounds}; limit {LIMIT}")
    return 0 if all(ratio <= LIMIT for ratio in medians.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
