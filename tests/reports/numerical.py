"""Evaluations whose numerical part of the verdict is written by hand: whatever a test wants to see shown."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acceptance.formats import MUTATIONS, NUMERICAL, VACUITY
from campaign import documents
from tests.reports.evaluations import case_of

UPDATES = 5
THRESHOLDS = {"loss": 1.0, "gradients": 0.05, "parameters": 0.02, "updates": 0.1, "optimizer": 1.0, "consensus": 1.0}
CURVES = ("loss", "gradients", "parameters", "updates", "exp_avg", "exp_avg_sq", "optimizer", "consensus")
ORDER = ("loss", "gradients", "parameters", "updates", "exp_avg", "exp_avg_sq", "moments", "optimizer", "consensus")

PUBLISHED = {
    "parameters": (6.48159e-05, 2.8181e-05),
    "gradients": (0.00575311, 0.00555054),
    "updates": (0.0777747, 0.0244179),
    "exp_avg": (0.00515174, 0.0046918),
    "exp_avg_sq": (0.0031, 0.0029),
    "loss": (0.21, 0.18),
    "optimizer": (0.42, 0.0),
    "consensus": (0.031, 0.0),
}
"""Worst of the candidate and of the control, over all workloads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """The numerical part of a verdict and of its provenance, still to be spoilt."""

    workloads: list[str]
    gates: list[dict[str, Any]] = field(default_factory=list)
    observed: dict[str, Any] = field(default_factory=dict)
    cases: list[dict[str, Any]] = field(default_factory=list)
    rules: dict[str, Any] = field(default_factory=dict)

    def gate(self, name: str) -> dict[str, Any]:
        """Return a gate by id."""
        return next(gate for gate in self.gates if gate["id"] == name)

    def case(self, workload: str, comparison: str = "candidate") -> dict[str, Any]:
        """Return an observed case."""
        cases = self.observed["cases"]
        return next(case for case in cases if (case["workload"], case["comparison"]) == (workload, comparison))

    def quantity(self, name: str) -> dict[str, Any]:
        """Return what was observed of a quantity."""
        return next(seen for seen in self.observed["quantities"] if seen["quantity"] == name)


def make_matched(workloads: Sequence[str], *, tensor: str = "blocks.3.attention.query.weight") -> Matched:
    """Make cases that all pass; the last workload reaches `PUBLISHED`, which flags the updates at 3.19 times."""
    matched = Matched(workloads=list(workloads), rules=documents.NumericalRules().to_json())
    matched.gates.extend(_gate(name, q, _peak(name, q, workloads)) for name in workloads for q in THRESHOLDS)
    matched.observed.update(
        moments="fresh",
        updates=UPDATES,
        isolated_scalars="fp64",
        quantities=[_quantity(name, workloads[-1], tensor) for name in ORDER],
        cases=[_case(name, side, workloads) for side in ("candidate", "control") for name in workloads],
        flags=[],
        vacuity=list(_vacuity(workloads)),
    )
    matched.cases.extend(case_of(name, side) for side in ("candidate", "control") for name in workloads)
    return matched


def _share(name: str, workloads: Sequence[str]) -> float:
    return (workloads.index(name) + 1) / len(workloads)


def _peak(name: str, quantity: str, workloads: Sequence[str], side: str = "candidate") -> float:
    return PUBLISHED[quantity][side == "control"] * _share(name, workloads)


def _gate(name: str, quantity: str, value: float) -> dict[str, Any]:
    threshold = THRESHOLDS[quantity]
    return {
        "id": f"numerical/{name}/{quantity}",
        "family": "numerical",
        "subject": name,
        "statistic": "worst_share" if threshold == 1 else "worst_rel_l2",
        "value": value,
        "threshold": threshold,
        "comparison": "<=" if threshold == 1 else "<",
        "margin": threshold - value,
        "lower": None,
        "upper": None,
        "n": UPDATES,
        "outcome": "pass",
        "finding": "met",
        "reason": "",
    }


def _worst(value: float, workload: str, tensor: str) -> dict[str, Any]:
    return {
        "value": value,
        "workload": workload,
        "update": UPDATES,
        "worker": 3,
        "tensor": tensor,
        "tensor_value": value * 1.5,
    }


def _quantity(name: str, workload: str, tensor: str) -> dict[str, Any]:
    candidate, control = PUBLISHED["exp_avg" if name == "moments" else name]
    ratio = candidate / control if control else None
    named = "" if name == "loss" else tensor
    return {
        "quantity": name,
        "gated": name in THRESHOLDS,
        "threshold": THRESHOLDS.get(name),
        "candidate": _worst(candidate, workload, named),
        "control": _worst(control, workload, named),
        "ratio": ratio,
        "flagged": ratio is not None and ratio > 3,
    }


def _case(name: str, side: str, workloads: Sequence[str]) -> dict[str, Any]:
    steps = {"optimizer": 1}
    return {
        "workload": name,
        "comparison": side,
        "attempt": 1,
        "executor": "independent",
        "serialized": False,
        "workers": 8,
        "curves": {
            quantity: [
                _peak(name, quantity, workloads, side) * (update + 1) / steps.get(quantity, UPDATES)
                for update in range(steps.get(quantity, UPDATES))
            ]
            for quantity in CURVES
        },
    }


def _vacuity(workloads: Sequence[str]) -> Iterable[dict[str, Any]]:
    tried: Mapping[str, Mapping[str, float]] = {
        "loss": {"previous_batch": 3.1},
        "gradients": {"shuffled": 1.41, "previous_batch": 1.2},
        "parameters": {"no_update": 0.0041, "negated": 0.0082, "shuffled": 1.4, "previous_batch": 0.003},
        "updates": {"no_update": 1.0, "negated": 2.0, "shuffled": 1.41, "previous_batch": 0.9},
    }
    for name in workloads:
        for quantity, readings in tried.items():
            seen = [mutation for mutation, value in readings.items() if not value < THRESHOLDS[quantity]]
            yield {
                "workload": name,
                "quantity": quantity,
                "readings": {mutation: readings.get(mutation) for mutation in MUTATIONS},
                "seen": seen,
                "unseen": [mutation for mutation in readings if mutation not in seen],
                "discriminating": bool(seen),
            }


def make_blind(matched: Matched, workload: str, quantity: str = "parameters") -> None:
    """Let a gate see nothing that was tried on it."""
    entry = next(
        entry for entry in matched.observed["vacuity"] if (entry["workload"], entry["quantity"]) == (workload, quantity)
    )
    tried = [*entry["seen"], *entry["unseen"]]
    entry.update(seen=[], unseen=tried, discriminating=False, readings=dict.fromkeys(MUTATIONS, 0.0061))


def fail_gate(matched: Matched, name: str, finding: str, reason: str, value: float | None = None) -> None:
    """Let a gate not pass."""
    gate = matched.gate(name)
    margin = None if value is None else gate["threshold"] - value
    gate.update(outcome="not_qualified", finding=finding, reason=reason, value=value, margin=margin)


def do_not_offer(matched: Matched, quantity: str) -> None:
    """Let the adapter not offer an isolated check."""
    for workload in matched.workloads:
        name = f"numerical/{workload}/{quantity}"
        fail_gate(matched, name, "not_evaluated", "the adapter does not offer it")
        for side in ("candidate", "control"):
            matched.case(workload, side)["curves"][quantity] = []
    matched.quantity(quantity).update(candidate=None, control=None, ratio=None)


def add_attempts(evaluation: Path, matched: Matched) -> Path:
    """Add an attempt at the pilots and cases of every workload, as a whole campaign has them."""
    path = evaluation / "provenance.json"
    provenance = json.loads(path.read_bytes())
    like, candidate = provenance["attempts"][0], provenance["candidate"]["id"]
    for side, kind in (("baseline", "pilot"), (candidate, "pilot"), ("baseline", "control-case"), (candidate, "case")):
        provenance["attempts"] += [{**like, "slot": f"{side}/{kind}/{name}"} for name in matched.workloads]
    path.write_text(json.dumps(provenance))
    return evaluation


def _rollup(gates: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    counted = [gate for gate in gates if gate["finding"] != "not_evaluated"]
    passed = sum(gate["outcome"] == "pass" for gate in counted)
    outcome = "pass" if counted and passed == len(counted) else "not_qualified"
    return {"outcome": outcome, "passed": passed, "total": len(counted)}


def workloads_of(evaluation: Path) -> list[str]:
    """Return the workloads of an evaluation."""
    protocol = json.loads((evaluation / "protocol.json").read_bytes())
    return [workload["name"] for workload in protocol["workloads"]]


def add_numerical(evaluation: Path, matched: Matched) -> Path:
    """Declare the family in an evaluation that was made without it, and write its part of every document."""
    protocol_path, verdict_path = evaluation / "protocol.json", evaluation / "verdict.json"
    provenance_path = evaluation / "provenance.json"
    protocol = json.loads(protocol_path.read_bytes())
    protocol.update(families=[*protocol["families"], "numerical"], numerical=matched.rules)
    protocol_path.write_text(json.dumps(protocol))
    digest = hashlib.sha256(protocol_path.read_bytes()).hexdigest()

    verdict = json.loads(verdict_path.read_bytes())
    verdict["protocol_sha256"] = digest
    verdict["gates"] += matched.gates
    verdict["families"]["numerical"] = _rollup(matched.gates)
    verdict["observations"]["numerical"] = matched.observed or None
    verdict["outcome"] = _rollup(verdict["gates"])["outcome"]
    verdict_path.write_text(json.dumps(verdict))

    provenance = json.loads(provenance_path.read_bytes())
    provenance.update(protocol_sha256=digest, undeclared_families=["convergence", "device"], cases=matched.cases)
    provenance_path.write_text(json.dumps(provenance))
    _write_tables(evaluation / "evidence", matched)
    return evaluation


def _write_tables(evidence: Path, matched: Matched) -> None:
    """Write a row of each table and workload, so that there is something to download."""
    numerical = [",".join(NUMERICAL.header)]
    vacuity = [",".join(VACUITY.header)]
    for name in matched.workloads:
        if "," in name or '"' in name:
            continue
        numerical.append(f"{name},candidate,1,1,0,parameters,10,0.001,0.0001,w,0.0002,0,independent,false")
        vacuity.append(f"{name},1,negated,1,0,parameters,0.0082")
    (evidence / NUMERICAL.file).write_text("\n".join(numerical) + "\n")
    (evidence / VACUITY.file).write_text("\n".join(vacuity) + "\n")
