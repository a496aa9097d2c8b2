"""How several workers share the tests: the cluster's are one worker's, and what takes long is begun first."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

CLUSTER = "tests/slurm"
LONG = (
    CLUSTER,
    "tests/slow/test_kills.py",
    "tests/examples/tinylm/test_harness.py",
    "tests/slow/test_convergence_faults.py",
    "tests/slow/test_fallback.py",
    "tests/jobs/cases/test_cases.py",
    "tests/campaign/collect/test_incremental.py",
    "tests/campaign/collect/test_local_runs.py",
    "tests/slow/test_full_disk.py",
    "tests/examples/tinylm/test_scaling_campaign.py",
    "tests/jobs/allocation/test_endings.py",
    "tests/examples/tinylm/test_demo_recipes.py",
    "tests/reports/test_numerical.py",
    "tests/campaign/numerical/test_local_run.py",
    "tests/reports/test_convergence.py",
    "tests/campaign/freeze/test_freeze.py",
    "tests/jobs/runs/test_run_endings.py",
)
"""Whose tests are begun first, longest first: begun last, each would keep one worker busy while the others have nothing
to do. ``--spent`` prints what files take."""


def unit_of(nodeid: str) -> str:
    """Return what a test is given to a worker with: its file, or all of the cluster's tests."""
    file = nodeid.partition("::")[0]
    return CLUSTER if file.startswith(f"{CLUSTER}/") else file


def order_of(nodeid: str) -> int:
    """Return a number that is smaller for what is begun earlier."""
    unit = unit_of(nodeid)
    return LONG.index(unit) if unit in LONG else len(LONG)


class Sharing(LoadFileScheduling):  # type: ignore[misc]
    """Gives whole files to the workers in their order, and all of the cluster's tests to one of them."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
