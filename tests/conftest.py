"""What all tests share: golden files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Golden = Callable[[Path, bytes], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files instead of comparing")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare bytes with a golden file; ``make golden`` is the only thing that writes one."""

    def compare(path: Path, data: bytes) -> None:
        if request.config.getoption("--update-golden"):
            path.write_bytes(data)
            return
        assert path.is_file(), f"{path} is missing: run make golden"
        assert data == path.read_bytes(), f"{path} is not up to date: run make golden and look at the difference"

    return compare
