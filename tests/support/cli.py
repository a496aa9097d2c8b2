"""Running the installed command line, as a user does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROGRAM = Path(sys.executable).with_name("campaign")


def run_campaign(
    *arguments: str | Path, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``campaign`` with arguments; the caller looks at exit code and output."""
    return subprocess.run(
        [sys.executable, str(PROGRAM), *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def expect(code: int, *arguments: str | Path, cwd: Path | None = None) -> str:
    """Run ``campaign``, insist on its exit code and return its standard output."""
    done = run_campaign(*arguments, cwd=cwd)
    assert done.returncode == code, f"campaign {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}"
    return done.stdout


def expect_json(code: int, *arguments: str | Path) -> Any:
    """Run ``campaign … --json``, insist on its exit code and return the one JSON value."""
    return json.loads(expect(code, *arguments, "--json"))
