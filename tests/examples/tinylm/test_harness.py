"""The faulty variants as real candidates: through pilots, two workers, the comparer and the acceptance program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import expect, expect_json
from tests.support.tinylm import write_candidate, write_faults_campaign
from tests.support.tinylm_faults import FAULTS, Fault, workload_of

pytestmark = pytest.mark.slow


class Home:
    """One campaign, whose candidates are frozen and compared one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.config = write_faults_campaign(folder)
        expect(0, "freeze", self.config, "--home", self.home)

    def compare(self, adapter: str, slots: str) -> dict[str, Any]:
        """Freeze a candidate, run its cases and their controls, and return its verdict."""
        config = self.config if adapter == "adapter:fast" else write_candidate(self.folder, adapter)
        expect(0, "freeze", "--candidate", "--config", config, "--home", self.home)
        expect(0, "submit", "--home", self.home, "--only", slots, "--cluster", "local", "--wait", "--yes")
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
    verdict = home.compare("adapter:fast", "*case/*")
    for fault in FAULTS:
        findings = _findings(verdict, workload_of(fault))
        expected = dict.fromkeys(("loss", "gradients", "parameters", "updates", "optimizer"), "met")
        assert findings == expected | {"consensus": _consensus(fault)}
        assert _flags(verdict, workload_of(fault)) == set()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_faulty_candidate_misses_the_gates_that_are_said_to_catch_it(home: Home, fault: Fault) -> None:
    workload = workload_of(fault)
    verdict = home.compare(f"broken:{fault.name}", f"*case/{workload}")
    findings = _findings(verdict, workload)
    assert {gate: findings[gate] for gate in fault.gates} == dict.fromkeys(fault.gates, "missed")
    unseen = {gate: finding for gate, finding in findings.items() if gate in fault.unseen}
    assert unseen == dict.fromkeys(unseen, "met") | ({"consensus": _consensus(fault)} if "consensus" in unseen else {})
    assert fault.flags <= _flags(verdict, workload)
