"""A small home and a scheduler in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign.submission.support import Cluster
from tests.support.jobs import JobHome, make_job_home


@pytest.fixture
def home(tmp_path: Path) -> JobHome:
    return make_job_home(tmp_path / "home", repeats=1)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()
