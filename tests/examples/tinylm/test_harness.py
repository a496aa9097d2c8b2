"""The faulty variants as real candidates: through pilots, two workers, the comparer and the acceptance program."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import expect, expect_json
from tests.support.tinylm import write_faults_campaign, write_faulty
from tests.support.tinylm_faults import FAULTS, Fault, workload_of

pytestmark = pytest.mark.slow


def together(fault: Fault) -> tuple[Fault, ...]:
    """Return the faults of the candidate that has this one, each at a workload of its own."""
    by_workload: dict[str, list[Fault]] = {}
    for one in FAULTS:
        by_workload.setdefault(workload_of(one), []).append(one)
    place = by_workload[workload_of(fault)].index(fault)
    return tuple(faults[place] for faults in by_workload.values() if len(faults) > place)


class Home:
    """One campaign, whose candidates are frozen and compared one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.config = write_faults_campaign(folder)
        self.verdicts: dict[str, dict[str, Any]] = {}
        expect(0, "freeze", self.config, "--home", self.home)

    def compare_right(self) -> dict[str, Any]:
        """Compare the candidate without a fault at all workloads; return its verdict."""
        return self._compare(self.config, ["*/case/*"])

    def compare_faulty(self, fault: Fault) -> dict[str, Any]:
        """Compare the candidate that has a fault, once for all of its faults; return its verdict."""
        faults = together(fault)
        if faults[0].name not in self.verdicts:
            slots = [f"*/case/{workload_of(one)}" for one in faults]
            if len(faults) == len({workload_of(one) for one in FAULTS}):
                slots = ["*/case/*"]  # one job for all
            self.verdicts[faults[0].name] = self._compare(write_faulty(self.folder, faults), slots)
        return self.verdicts[faults[0].name]

    def _compare(self, config: Path, slots: Sequence[str]) -> dict[str, Any]:
        """Freeze a candidate, run its cases, and return its verdict."""
        expect(0, "freeze", "--candidate", "--config", config, "--home", self.home)
        for one in slots:
            expect(0, "submit", "--home", self.home, "--only", one, "--cluster", "local", "--wait", "--yes")
        expect_json(0, "report", "--home", self.home, "--exit-zero")
        newest = max(self.home.glob("evaluations/*/verdict.json"), key=lambda path: path.stat().st_mtime_ns)
        verdict: dict[str, Any] = json.loads(newest.read_bytes())
        return verdict


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("faults"))


def _findings(verdict: dict[str, Any], workload: str) -> dict[str, str]:
    prefix = f"numerical/{workload}/"
    return {
        gate["id"].removeprefix(prefix): gate["finding"] for gate in verdict["gates"] if gate["id"].startswith(prefix)
    }


def _flags(verdict: dict[str, Any], workload: str) -> set[str]:
    flags = verdict["observations"]["numerical"]["flags"]
    return {flag["quantity"] for flag in flags if flag["workload"] == workload and flag["kind"] == "tensor"}


def _consensus(fault: Fault) -> str:
    """Return what a required consensus check finds where nothing is wrong with it: one worker has nothing to mix."""
    return "met" if fault.entries.get("workers", 1) > 1 else "not_evaluated"


def test_the_right_backend_meets_every_gate_on_the_workloads_of_all_faults(home: Home) -> None:
    verdict = home.compare_right()
    for fault in FAULTS:
        findings = _findings(verdict, workload_of(fault))
        expected = dict.fromkeys(("loss", "gradients", "parameters", "updates", "optimizer"), "met")
        assert findings == expected | {"consensus": _consensus(fault)}
        assert _flags(verdict, workload_of(fault)) == set()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_faulty_candidate_misses_the_gates_that_are_said_to_catch_it(home: Home, fault: Fault) -> None:
    workload = workload_of(fault)
    verdict = home.compare_faulty(fault)
    findings = _findings(verdict, workload)
    assert {gate: findings[gate] for gate in fault.gates} == dict.fromkeys(fault.gates, "missed")
    unseen = {gate: finding for gate, finding in findings.items() if gate in fault.unseen}
    assert unseen == dict.fromkeys(unseen, "met") | ({"consensus": _consensus(fault)} if "consensus" in unseen else {})
    assert fault.flags <= _flags(verdict, workload)
