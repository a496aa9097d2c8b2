"""A home whose frozen harness stands in for the real one in bundles: it measures nothing, and keeps what it was asked.

What it shall do stands in ``wish.json`` beside the bundle's home: after how many attempts it leaves, and a named pipe
that it opens, and reads from until it is told to stop, before its first attempt; whether it plays a side that tells
run.py to stop, and keeps by what the harness then hears of that; whether it is killed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from campaign import files
from campaign.paths import BundlePaths
from campaign.snapshot.digest import read_entries
from campaign.snapshot.listing import dump_listing
from tests.support import jobs

HARNESS = '''"""A stand-in for the harness in a bundle: see tests/support/standin.py."""
import json, os, signal, subprocess, sys
from pathlib import Path

heard, waits = [], False


def hear(number, _frame):
    heard.append(signal.Signals(number).name)
    if waits:
        raise InterruptedError


for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2):
    signal.signal(number, hear)
assert sys.argv[1] == "detached", sys.argv
request = json.loads(Path(sys.argv[2]).read_text())
home = Path(request["home"])
wish = home.parent / "wish.json"
wish = json.loads(wish.read_text()) if wish.exists() else {}
told = {"request": request, "environment": dict(os.environ), "prefix": sys.pycache_prefix, "path": sys.path,
        "safe_path": sys.flags.safe_path, "executable": sys.executable}
(home.parent / "told.json").write_text(json.dumps(told))
if "pipe" in wish:
    waits = True
    try:
        with open(wish["pipe"], "rb", buffering=0) as pipe:
            pipe.read(1)
    except InterruptedError:
        pass
    waits = False
if wish.get("side"):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    side = subprocess.Popen(["sh", "-c", f"kill -TERM {os.getppid()}; read _"], stdin=subprocess.PIPE)
    info = signal.sigtimedwait({signal.SIGTERM}, 30)
    (home.parent / "sent.json").write_text(json.dumps([info.si_signo, info.si_code]))
    side.communicate()
if wish.get("dies"):
    os.kill(os.getpid(), signal.SIGKILL)
made = 0
for one in request["allocations"]:
    folder = home / "allocations" / one["id"]
    plan = json.loads((folder / "allocation.json").read_text())
    for attempt in plan["attempts"]:
        own = home.joinpath("attempts", *attempt["slot"].split("/"), str(attempt["attempt"]))
        if own.exists() or heard or made >= wish.get("most", 1000):
            continue
        own.mkdir(parents=True)
        (own / "start.json").write_text("{}")
        (own / "baseline.log").write_text("said\\n")
        (own / "receipt.json").write_text(json.dumps({"ending": "completed", "reason": ""}))
        made += 1
    if all(home.joinpath("attempts", *one["slot"].split("/")).exists() for one in plan["attempts"]):
        (folder / "ended.json").write_text("{}")
(home.parent / "heard.json").write_text(json.dumps(heard))
'''
BARE = getattr(sys, "_base_executable", sys.executable)
"""An interpreter for which nothing of ours is installed."""


def make_home(root: Path, monkeypatch: pytest.MonkeyPatch, **asked: Any) -> jobs.JobHome:
    """Return a home with that harness, and a baseline whose tree holds everything that a tree may.

    Args:
        root: Where.
        monkeypatch: Puts the harness in place of the usual one.
        asked: Arguments of `tests.support.jobs.make_job_home`.
    """
    monkeypatch.setattr(jobs, "HARNESS", HARNESS)
    home = jobs.make_job_home(root, **{"candidate": False, **asked})
    tree = home.paths.baseline.tree
    tree.mkdir(parents=True)
    (tree / "adapter.py").write_text("x = 1\n")
    (tree / "tool.sh").write_text("#!/bin/sh\n")
    (tree / "tool.sh").chmod(0o755)
    (tree / "again.py").symlink_to("adapter.py")
    (tree / "empty").mkdir()
    (tree / os.fsdecode(b"lat\xe9.txt")).write_text("bytes\n")
    home.paths.baseline.listing.write_bytes(dump_listing(read_entries(tree)))
    return home


def call(folder: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run run.py of a bundle with an interpreter that has nothing of ours, from another folder."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere", "PYTHONPATH": "/nowhere", "OTHER": "x"}
    return subprocess.run(
        [BARE, str(BundlePaths(folder).program), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd="/",
        env={**environment, **options.pop("env", {})},
        **options,
    )


def wish(folder: Path, **value: Any) -> None:
    """Say what the harness of a bundle shall do."""
    (folder / "wish.json").write_bytes(files.dump_json(value))


def told(folder: Path) -> dict[str, Any]:
    """Return what the harness was asked the last time."""
    value: dict[str, Any] = json.loads((folder / "told.json").read_bytes())
    return value
