"""Makes whole evaluations for report tests: evidence by make_campaign, verdicts by the real acceptance program."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from campaign import documents
from reports.render import write_report
from tests.support.evidence import (
    BASELINE_SHA256,
    CANDIDATE,
    CANDIDATE_SHA256,
    PUBLISHED,
    Campaign,
    make_campaign,
)

HOSTILE = "</script><img src=x onerror=alert(1)>"
TEMPLATE = "{{7*7}}"

DEFAULT_REASONS = {"node_fail": "the node went away", "crash": "exit code 1"}


def _side(snapshot_sha256: str, *, name: str, frozen_seq: int) -> dict[str, Any]:
    return {
        "id": name,
        "frozen_seq": frozen_seq,
        "snapshot_sha256": snapshot_sha256,
        "files_sha256": hashlib.sha256(name.encode()).hexdigest(),
        "changes_sha256": hashlib.sha256(name.encode()).hexdigest(),
        "adapter": "adapter:native",
        "python": "/opt/venv/bin/python",
        "python_path": ["."],
        "environment": {},
        "pass_environment": [],
        "launch": [],
        "lockfile": {"path": "requirements.lock", "sha256": hashlib.sha256(b"lock").hexdigest()},
        "git": {
            "commit": hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest(),
            "modified": 2,
            "untracked": 1,
        },
        "distributions": None,
    }


def case_of(workload: str, comparison: str, **changes: Any) -> dict[str, Any]:
    """Return how a case ran, as provenance names it."""
    return {
        "workload": workload,
        "comparison": comparison,
        "attempt": 1,
        "executor": "independent",
        "serialized": False,
        "transport": "shared_memory",
        "transport_reason": "",
        "tied": ["head.weight = embedding.weight"],
        "load_s": 0.5,
        "train_s": 2.25,
        "compare_s": 0.75,
        "compared_bytes": 3 << 30,
        "inputs_sha256": hashlib.sha256(workload.encode()).hexdigest(),
        **changes,
    }


def provenance_of(
    campaign: Campaign, *, reasons: Mapping[str, str] = DEFAULT_REASONS, **changes: Any
) -> dict[str, Any]:
    """Return provenance that fits a campaign's evidence, as the driver would have written it."""
    attempts = [
        {
            **{name: row[name] for name in ("slot", "allocation", "node", "device", "ending")},
            "attempt": int(row["attempt"]),
            "sealed": row["sealed"] == "true",
            "reason": reasons.get(row["ending"], ""),
        }
        for row in campaign.tables["attempts.csv"]
    ]
    planned = {documents.slot_for(slot.slot, CANDIDATE) for slot in campaign.protocol.slots}
    protocol_json = campaign.protocol_path.read_bytes()
    return {
        "format": "provenance/1",
        "campaign": campaign.protocol.campaign,
        "manifest_sha256": campaign.identity["manifest_sha256"],
        "protocol_sha256": hashlib.sha256(protocol_json).hexdigest(),
        "acceptance_sha256": "a" * 64,
        "harness_sha256": "d" * 64,
        "baseline": _side(BASELINE_SHA256, name="baseline", frozen_seq=1),
        "candidate": _side(CANDIDATE_SHA256, name=CANDIDATE, frozen_seq=41),
        "data": {"plays": {"path": "/data/corpus", "sha256": "e" * 64, "bytes": 5_436_475, "files": 37}},
        "departures": ["throughput.window_s is 0.25, not 1: windows are short so that the demo is quick"],
        "left_out": {"baseline": [".git (version control)"], "candidate": []},
        "undeclared_families": [
            family
            for family in ("throughput", "numerical", "convergence", "device")
            if family not in campaign.protocol.families
        ],
        "cases": [
            case_of(slot.workload, "control" if slot.kind == "control_case" else "candidate")
            for slot in campaign.protocol.slots
            if slot.kind in {"case", "control_case"}
        ],
        "attempts": attempts,
        "missing_slots": sorted(planned - {row["slot"] for row in attempts}),
        "nodes": sorted({row["node"] for row in attempts if row["node"]}),
        "devices": sorted({row["device"] for row in attempts if row["device"]}),
        "machines": [
            {
                "node": node,
                "cpu": "Test CPU",
                "kernel": "6.1.0-test",
                "machine": "x86_64",
                "memory_bytes": 8 << 30,
                "devices": [{"name": "Test CPU", "driver": ""}],
            }
            for node in sorted({row["node"] for row in campaign.tables["attempts.csv"] if row["node"]})
        ],
        "frozen_on": {
            side: {
                "machine": {"node": "login1", "kernel": "Linux 6.1", "gpus": [], "slurm": None},
                "driver": {"campaign": "0.1.0", "distributions": {"click": "8.2.0", "scipy": None}},
            }
            for side in ("baseline", "candidate")
        },
        "caches": {
            "baseline": {"compile": "private, cold", "bytecode": "installed"},
            "candidate": {"compile": "private, cold", "bytecode": "installed | private"},
        },
        "versions": {"baseline": {"python": "3.11.7", "torch": "2.13.0"}, "candidate": {"python": "3.11.7"}},
        "ledger": {"entries": 97, "head": "9" * 64, "baseline_sealed_seq": 40},
        "other_candidates": [{"id": "c0123456789ab", "frozen_seq": 33, "outcome": None}],
        **changes,
    }


def write_evaluation(campaign: Campaign, **changes: Any) -> Path:
    """Write evidence, the real verdict on it, and provenance; return the evaluation's folder."""
    campaign.write()
    result = campaign.evaluate()
    assert result.verdict is not None, result.faults
    (campaign.folder / "verdict.json").write_bytes(result.verdict)
    provenance = documents.Provenance.of(provenance_of(campaign, **changes))
    (campaign.folder / "provenance.json").write_bytes(provenance.to_bytes())
    return campaign.folder


def make_evaluation(folder: Path, **options: Any) -> Path:
    """Make a clean campaign and its evaluation; see `make_campaign` for the options."""
    return write_evaluation(make_campaign(folder, **options))


def seed_size(folder: Path, **options: Any) -> Path:
    """Make an evaluation of 117 workloads in three repeats; see `make_campaign` for further options."""
    return make_evaluation(
        folder,
        **options,
        ratios=PUBLISHED,
        production={f"90m-production-recipe-{index}": ("1.00", "0.99", "1.01") for index in range(9)},
        workloads_per_category=36,
    )


def crash_one_pair(campaign: Campaign) -> Campaign:
    """Let the first category's second workload crash in repeat 2: its rows vanish, its attempt stays."""
    workload = campaign.protocol.categories[0].workloads[1]
    for file in ("pairs.csv", "windows.csv"):
        gone = campaign.rows(file, workload=workload, comparison="candidate", repeat=2)
        campaign.tables[file] = [row for row in campaign.tables[file] if row not in gone]
    for row in campaign.tables["attempts.csv"]:
        if row["slot"].endswith(f"/pair/{workload}/r2"):
            row["ending"] = "crash"
    return campaign


def report_of(evaluation: Path) -> Path:
    """Write the report of an evaluation made here; return its folder."""
    write_report(protocol_path=evaluation / "protocol.json", evaluation=evaluation, out=evaluation / "report")
    return evaluation / "report"
