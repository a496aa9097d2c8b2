from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from reports.status import Mark, mark_of_gate
from reports.verdict import Gate, failed_first, summarise


def make_gate(name: str, finding: str = "met", **changes: Any) -> Gate:
    fields: dict[str, Any] = {
        "id": name,
        "family": "throughput",
        "subject": "sync",
        "statistic": "median_ratio",
        "value": Decimal("1.06"),
        "threshold": Decimal("1.05"),
        "comparison": ">=",
        "margin": Decimal("0.01"),
        "lower": None,
        "upper": None,
        "n": 3,
        "outcome": "pass" if finding == "met" else "not_qualified",
        "finding": finding,
        "reason": "",
    }
    return Gate(**(fields | changes))


def sentence(gates: list[Gate], *, outcome: str = "not_qualified", families: tuple[str, ...] = ("throughput",)) -> str:
    return summarise({"outcome": outcome}, gates, {"families": list(families)}).sentence


def test_a_pass_permits_retirement_and_names_what_was_not_declared() -> None:
    gates = [make_gate("a"), make_gate("b")]
    assert sentence(gates, outcome="pass") == (
        "The baseline may be retired, because all 2 gates pass; "
        "numerical, convergence and device were not declared, so nothing is known of them."
    )


def test_a_failure_blocks_retirement_and_names_its_gates() -> None:
    gates = [make_gate("a"), make_gate("b", "missing"), make_gate("c", "missed")]
    assert sentence(gates).startswith(
        "Retiring the baseline is blocked, because 2 of 3 gates do not pass (1 missed and 1 missing): c and b; "
    )


def test_many_failures_are_counted_not_listed() -> None:
    gates = [make_gate(name, "missed") for name in "abcde"]
    assert "(5 missed): a, b, c and 2 more; " in sentence(gates)


def test_gates_that_were_not_evaluated_do_not_count() -> None:
    gates = [make_gate("a"), make_gate("b", "not_evaluated")]
    assert "the one gate passes" in sentence(gates, outcome="pass")


def test_a_verdict_without_gates_blocks() -> None:
    assert sentence([]).startswith("Retiring the baseline is blocked, because a declared family has no gate")


def test_one_undeclared_family_is_named_in_the_singular() -> None:
    families = ("throughput", "numerical", "convergence")
    assert "device was not declared, so nothing is known of it." in sentence([make_gate("a")], families=families)


def test_what_blocks_comes_first_and_the_rest_keeps_its_order() -> None:
    gates = [make_gate("a"), make_gate("b", "inconclusive"), make_gate("c"), make_gate("d", "missed")]
    assert [gate.id for gate in failed_first(gates)] == ["d", "b", "a", "c"]


@pytest.mark.parametrize(
    ("outcome", "finding", "mark"),
    [
        ("pass", "met", Mark.PASS),
        ("pass", "missed", Mark.INVALID),
        ("not_qualified", "met", Mark.INVALID),
        ("not_qualified", "missed", Mark.MISSED),
        ("not_qualified", "not_evaluated", Mark.NOT_EVALUATED),
    ],
)
def test_only_a_pass_that_met_its_rule_is_shown_as_one(outcome: str, finding: str, mark: Mark) -> None:
    assert mark_of_gate(outcome, finding) is mark


def test_counts_are_shown_without_decimals() -> None:
    gate = make_gate("evidence/pairs.csv", value=0, threshold=0, margin=0, comparison="<=")
    assert (gate.shown(gate.value), gate.rule, gate.shown_margin) == ("0", "\u2264 0", "+0")


def test_a_value_just_below_its_threshold_is_shown_below_it() -> None:
    gate = make_gate("a", "missed", value=Decimal("1.0499999"))
    assert gate.shown(gate.value) == "1.0499999"
