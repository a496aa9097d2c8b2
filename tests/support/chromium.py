"""Whether the browser tests can run: a developer may lack chromium, a build server may not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

PROGRAM = Path("/usr/bin/chromium")


def require_chromium(program: Path, environment: Mapping[str, str]) -> None:
    """Skip a module whose tests need chromium where it is missing; under CI fail instead."""
    if program.exists():
        return
    if environment.get("CI"):
        pytest.fail(f"{program} is not installed; under CI these tests may not be skipped", pytrace=False)
    pytest.skip(f"{program} is not installed", allow_module_level=True)
