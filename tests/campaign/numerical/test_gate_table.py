"""The terminal's gate table stays short with hundreds of gates of the numerical family."""

from __future__ import annotations

import json
from typing import Any

from campaign.judging.report import MOST_BLOCKING, gate_rows


def gate(workload: str, quantity: str, value: float | None, finding: str = "met") -> dict[str, Any]:
    return {
        "id": f"numerical/{workload}/{quantity}",
        "family": "numerical",
        "subject": workload,
        "statistic": "worst relative L2",
        "value": value,
        "threshold": 0.05,
        "comparison": "<",
        "margin": None if value is None else 0.05 - value,
        "lower": None,
        "upper": None,
        "n": 5,
        "outcome": "pass" if finding == "met" else "not_qualified",
        "finding": finding,
        "reason": "",
    }


def rows(*gates: dict[str, Any]) -> list[list[str]]:
    return gate_rows(json.dumps({"gates": list(gates)}).encode())


def test_what_passes_stands_in_one_row_a_quantity_with_the_value_nearest_to_its_threshold() -> None:
    found = rows(
        *(gate(f"w{number}", "gradients", 0.001 * number) for number in range(1, 40)),
        *(gate(f"w{number}", "gradients/tensors", 0.01) for number in range(1, 40)),
    )
    assert [row[0] for row in found] == [
        "numerical/*/gradients (39 workloads)",
        "numerical/*/gradients/tensors (39 workloads)",
    ]
    assert found[0][1:] == ["0.03900", "< 0.05", "+0.011000", "pass", "met"]


def test_what_does_not_pass_is_listed_first_and_by_itself() -> None:
    found = rows(gate("a", "gradients", 0.01), gate("b", "gradients", 0.07, "missed"), gate("c", "gradients", 0.02))
    assert [row[0] for row in found] == ["numerical/b/gradients", "numerical/*/gradients (2 workloads)"]
    assert found[0][4:] == ["not_qualified", "missed"]


def test_what_was_not_evaluated_stands_together_and_apart_from_what_passed() -> None:
    found = rows(
        gate("a", "consensus", 0.5),
        gate("b", "consensus", None, "not_evaluated"),
        gate("c", "consensus", None, "not_evaluated"),
    )
    assert {row[0]: row[5] for row in found} == {
        "numerical/*/consensus (1 workload)": "met",
        "numerical/*/consensus (2 workloads)": "not_evaluated",
    }


def test_more_than_a_screenful_of_failures_is_cut_and_says_so() -> None:
    missed = [gate(f"w{number}", "updates", 0.2, "missed") for number in range(MOST_BLOCKING + 30)]
    other = {**gate("sync", "x", 1.0), "id": "throughput/sync/repeat-1", "family": "throughput"}
    found = rows(*missed, gate("ok", "updates", 0.01), other)
    listed = [row[0] for row in found if row[5] == "missed"]
    assert len(listed) == MOST_BLOCKING
    assert found[MOST_BLOCKING][0] == "... and 30 more numerical gates (--json lists all)"
    assert [row[0] for row in found[MOST_BLOCKING + 1 :]] == ["numerical/*/updates (1 workload)", other["id"]]
