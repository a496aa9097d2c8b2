from __future__ import annotations

from decimal import Decimal

import pytest

from reports.gate_tables import chips, gate_table, group_tables
from reports.matched import place_of
from reports.status import Mark
from reports.verdict import Gate
from tests.reports.test_verdict import make_gate


def numerical(workload: str, quantity: str = "parameters", finding: str = "met", value: str = "0.001") -> Gate:
    found = None if finding in ("missing", "invalid", "not_evaluated") else Decimal(value)
    return make_gate(
        f"numerical/{workload}/{quantity}",
        finding,
        family="numerical",
        statistic="worst_rel_l2",
        value=found,
        threshold=Decimal("0.02"),
        comparison="<",
        margin=None if found is None else Decimal("0.02") - found,
        reason="a side does not offer mix()" if finding == "not_evaluated" else "",
    )


def many(number: int, quantity: str = "parameters", finding: str = "met") -> list[Gate]:
    return [numerical(f"w{index}", quantity, finding, f"0.0{index % 10}1") for index in range(number)]


@pytest.mark.parametrize(
    ("name", "workload", "label"),
    [
        ("numerical/20m-sync/loss", "20m-sync", "loss"),
        ("numerical/a/b/exp_avg_sq/tensors", "a/b", "exp_avg_sq, per tensor"),
        ("numerical/loss/loss", "loss", "loss"),
        ("numerical/tensors/gradients/tensors", "tensors", "gradients, per tensor"),
    ],
)
def test_a_gate_says_what_it_is_about(name: str, workload: str, label: str) -> None:
    place = place_of(make_gate(name, family="numerical"))
    assert place is not None
    assert (place.workload, place.label) == (workload, label)


@pytest.mark.parametrize(
    ("name", "family"), [("numerical/family", "numerical"), ("numerical/w/loss", "evidence"), ("a", "numerical")]
)
def test_other_gates_are_about_no_quantity(name: str, family: str) -> None:
    assert place_of(make_gate(name, family=family)) is None


def test_passing_numerical_gates_share_a_chip_that_shows_the_tightest() -> None:
    (first, group) = chips([make_gate("a"), *many(9)])
    assert first.gate == "a"
    assert (group.gate, group.mark) == ("numerical, parameters: 9 workloads", Mark.PASS)
    assert group.value == "0.08100"
    assert "numerical/w8/parameters" in group.reason
    (table,) = group_tables([make_gate("a"), *many(9)])
    assert table.name == group.target
    assert len(table.rows) == 9
    assert table.long


def test_every_gate_that_blocks_keeps_an_open_row_in_front() -> None:
    gates = [*many(117), *many(60, "gradients", "missed"), *many(57, "updates", "invalid")]
    table = gate_table(gates)
    assert not table.long
    assert [row[0].text for row in table.rows] == [gate.id for gate in gates[117:]]
    assert {row[0].text for own in group_tables(gates) for row in own.rows} == {gate.id for gate in gates[:117]}


def test_no_gate_is_lost_or_shown_twice() -> None:
    gates = [
        *many(3),
        *many(2, "updates", "missed"),
        *many(7, "loss", "missing"),
        *many(4, "consensus", "not_evaluated"),
        numerical("alone", "optimizer"),
        make_gate("evidence/folder"),
    ]
    shown = [row[0].text for table in (gate_table(gates), *group_tables(gates)) for row in table.rows]
    assert sorted(shown) == sorted(gate.id for gate in gates)


def test_a_few_failures_have_chips_of_their_own_and_many_share_one() -> None:
    few = chips(many(4, "updates", "missed"))
    assert [chip.gate for chip in few] == [f"numerical/w{index}/updates" for index in range(4)]
    (group,) = chips(many(117, "updates", "missed"))
    assert (group.gate, group.mark, group.target) == ("numerical, updates: 117 workloads", Mark.MISSED, "gates")


def test_the_strip_starts_with_what_failed() -> None:
    gates = [
        *many(20),
        make_gate("b", "inconclusive"),
        *many(20, "loss", "not_evaluated"),
        *many(2, "updates", "missed"),
    ]
    marks = [chip.mark for chip in chips(gates)]
    assert marks == [Mark.MISSED, Mark.MISSED, Mark.INCONCLUSIVE, Mark.NOT_EVALUATED, Mark.PASS]


def test_what_was_not_evaluated_says_why() -> None:
    (chip,) = chips(many(3, "consensus", "not_evaluated"))
    assert (chip.value, chip.reason) == ("-", "a side does not offer mix()")


def test_gates_with_other_rules_are_not_put_together() -> None:
    gates = [*many(2), *(numerical(f"x{index}", value="0.5") for index in range(2))]
    stricter = [
        Gate(**{**{n: getattr(g, n) for n in Gate.__dataclass_fields__}, "threshold": Decimal(1)}) for g in gates[2:]
    ]
    names = {table.name for table in group_tables([*gates[:2], *stricter])}
    assert names == {"gates-parameters-pass-below-0.02", "gates-parameters-pass-below-1"}


def test_a_value_on_its_threshold_is_not_shown_below_it() -> None:
    (chip,) = chips([numerical("w", finding="missed", value="0.0200000001")])
    assert (chip.value, chip.rule) == ("0.0200000001", "< 0.02")
