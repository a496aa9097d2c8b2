"""The matrix of the worked example on a CPU: three of its workloads, frozen and run from the file that has them all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acceptance.formats import Ending
from campaign.documents import Protocol, Receipt
from campaign.errors import ExitCode
from campaign.paths import HomePaths
from tests.support.cli import expect, run_campaign
from tests.support.tinylm import ROOT, prepare_corpus

pytestmark = pytest.mark.slow
MATRIX = ROOT / "examples" / "h200" / "matrix.toml"
NAMES = ("micro-sync-b4-c64-clip1", "micro-packed4-b4-c64-clipoff", "micro-packed8-b4-c64-clip1")


def test_three_workloads_of_the_matrix_run_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAMPAIGN_REGISTRY", str(tmp_path / "registry.jsonl"))
    prepare_corpus()
    home = HomePaths(tmp_path / "home")
    expect(0, "freeze", MATRIX, "--slice", "cpu", "--home", home.root)
    assert home.config.read_bytes() == b'slice = "cpu"\n' + MATRIX.read_bytes()
    assert tuple(workload.name for workload in Protocol.read(home.protocol).workloads) == NAMES
    expect(0, "freeze", "--candidate", "--config", MATRIX, "--home", home.root)
    submission = ("submit", "--home", home.root, "--cluster", "local", "--wait", "--yes")
    if run_campaign(*submission).returncode == ExitCode.WANTING:  # a window was short: one more attempt is allowed
        expect(0, *submission)
    endings = [Receipt.read(path).ending for path in home.attempts.rglob("receipt.json")]
    assert endings.count(Ending.COMPLETED) == 3 * 4  # pilots of both sides, pairs, cases
    expect(0, "report", "--home", home.root, "--exit-zero")
    (verdict,) = home.root.glob("evaluations/*/verdict.json")
    gates = {gate["id"]: gate["finding"] for gate in json.loads(verdict.read_text())["gates"]}
    assert {gate.partition("/")[2] for gate in gates if gate.startswith("throughput/")} == {
        f"{mode}/repeat-1" for mode in ("sync", "packed4", "packed8")
    }
    assert {finding for gate, finding in gates.items() if gate.startswith("evidence/")} == {"met"}
    for quantity in ("loss", "gradients", "parameters", "updates", "optimizer"):
        assert [gates[f"numerical/{name}/{quantity}"] for name in NAMES] == ["met"] * 3
    assert [gates[f"numerical/{name}/consensus"] for name in NAMES[1:]] == ["met"] * 2
    expect(0, "verify", home.root)
