"""The fixture that boots the real cluster, once for the whole run."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.slurm.cluster import Cluster, down, is_up, up, why_unavailable


@pytest.fixture(scope="session")
def booted_cluster() -> Iterator[Cluster]:
    """Boot the cluster, or use the one that is up; end it only if this run booted it."""
    if reason := why_unavailable():
        if os.environ.get("CI"):
            pytest.fail(f"{reason}; under CI these tests may not be skipped")
        pytest.skip(reason)
    cluster = Cluster()
    was_up = is_up(cluster)
    up(cluster)
    yield cluster
    if not was_up:
        down(cluster)


@pytest.fixture
def slurm_cluster(booted_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The cluster, with its variables set for the test."""
    for name, value in booted_cluster.environment.items():
        monkeypatch.setenv(name, value)
    return booted_cluster
