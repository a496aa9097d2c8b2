from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.lifelike import all_families


@pytest.fixture(scope="session")
def whole_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small home of every family in which nothing is wrong; never written to."""
    root = tmp_path_factory.mktemp("whole") / "home"
    all_families(root)
    return root


@pytest.fixture
def home(whole_home: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged; without the acceptance program, at which these checks do not look."""
    ignored = shutil.ignore_patterns("acceptance")
    return Path(shutil.copytree(whole_home, tmp_path / "home", copy_function=shutil.copyfile, ignore=ignored))
