from __future__ import annotations

import copy
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from campaign.submission.plans import examples_digest
from campaign.verifier import ranks
from campaign.verifier.facts import Facts, Sealed, Slot
from campaign.verifier.findings import EvidenceError

EXAMPLES = ["a" * 64, "b" * 64]


def make_slot(kind: str, side: str = "candidate") -> Slot:
    order = ("baseline", "candidate") if kind == "pair" else (side,)
    candidate = "c0" if side == "candidate" else ""
    return Slot(
        slot=f"{candidate or side}/{kind}/w",
        side=side,
        phase="x",
        kind=kind,
        workload="w",
        repeat=1,
        pair=1,
        order=order,
        candidate=candidate,
    )


def make_sealed(slot: Slot, sides: list[dict[str, Any]], examples_sha256: str = "") -> Sealed:
    planned = SimpleNamespace(slot=slot.slot, examples_sha256=examples_sha256)
    found = SimpleNamespace(folder="attempts/x", receipt={"ending": "completed", "sides": sides}, planned=planned)
    return cast("Sealed", found)


def make_facts(processes: int, nodes: int, *others: tuple[Slot, Sealed]) -> Facts:
    workload = {"name": "w", "processes": processes, "nodes": nodes} if processes > 1 else {"name": "w"}
    facts = SimpleNamespace(
        protocol={"workloads": [workload]},
        memo={},
        slots={slot.slot: slot for slot, _ in others},
        sealed={str(number): sealed for number, (_, sealed) in enumerate(others)},
    )
    return cast("Facts", facts)


def side(processes: int, nodes: int, **further: Any) -> dict[str, Any]:
    per_node = processes // nodes
    entries = [
        {
            "rank": number,
            "local_rank": number % per_node,
            "node": f"n{number // per_node}",
            "device": f"d{number % per_node}",
            "affinity": "0-1",
            "exit_code": 0,
        }
        for number in range(processes if processes > 1 else 0)
    ]
    return {"topology": {"processes": processes, "nodes": nodes}, "ranks": entries, **further}


def said(facts: Facts, slot: Slot, sealed: Sealed) -> list[str]:
    return [what for _, what in ranks.faults(facts, sealed, slot)]


def test_receipts_of_earlier_releases_and_of_one_process_are_right() -> None:
    slot = make_slot("pair")
    assert not said(make_facts(1, 1), slot, make_sealed(slot, [{}, {}]))
    assert not said(make_facts(1, 1), slot, make_sealed(slot, [side(1, 1), side(1, 1)]))


@pytest.mark.parametrize(("processes", "nodes"), [(2, 1), (4, 2), (3, 3)])
def test_ranks_as_planned_are_right(processes: int, nodes: int) -> None:
    slot = make_slot("pair")
    sealed = make_sealed(slot, [side(processes, nodes), side(processes, nodes)])
    assert not said(make_facts(processes, nodes), slot, sealed)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda side: side["topology"].update(nodes=1), "ran as 4 processes on 1 nodes, planned were 4 on 2"),
        (lambda side: side.pop("topology"), "ran as 1 processes on 1 nodes"),
        (lambda side: side["ranks"].pop(), "3 entries of 4 processes"),
        (lambda side: side["ranks"][2].update(exit_code=1), "rank 2 did not end with exit code 0"),
        (lambda side: side["ranks"][1].update(node="n1"), "where 2 belong on each of 2 nodes"),
        (lambda side: [rank.update(node="n0") for rank in side["ranks"]], "where 2 belong on each of 2 nodes"),
        (lambda side: side["ranks"][3].update(device="d7"), "not on the same nodes, devices and processors"),
        (lambda side: side["ranks"][0].update(affinity="5"), "not on the same nodes, devices and processors"),
    ],
)
def test_ranks_that_are_not_as_planned_are_found(edit: Callable[[dict[str, Any]], object], reason: str) -> None:
    slot, sides = make_slot("pair"), [side(4, 2), copy.deepcopy(side(4, 2))]
    edit(sides[1])
    assert any(reason in what for what in said(make_facts(4, 2), slot, make_sealed(slot, sides)))


@pytest.mark.parametrize("name", ["rank", "local_rank"])
def test_a_rank_in_the_place_of_another_is_found(name: str) -> None:
    slot, sides = make_slot("pair"), [side(4, 2), side(4, 2)]
    sides[1]["ranks"][3][name] = 0
    with pytest.raises(EvidenceError, match=re.escape(f"sides[1].ranks[3].{name}: is 0, its place says")):
        said(make_facts(4, 2), slot, make_sealed(slot, sides))


def pilots(own: list[str], planned: list[str]) -> list[str]:
    first, second = make_slot("pilot", "baseline"), make_slot("pilot")
    baseline = make_sealed(first, [side(2, 1, examples=EXAMPLES)])
    candidate = make_sealed(second, [side(2, 1, examples=own)], examples_digest(planned))
    return said(make_facts(2, 1, (first, baseline)), second, candidate)


def test_pilots_of_both_sides_take_the_same_examples() -> None:
    assert not pilots(EXAMPLES, EXAMPLES)
    other = ["c" * 64, "b" * 64]
    assert any("planned were" in what for what in pilots(other, EXAMPLES))
    assert "no completed pilot of the baseline took the same examples" in pilots(other, other)
    assert "names the examples of 0 steps, of several processes" in pilots([], EXAMPLES)


def test_a_pilot_of_one_process_names_no_examples() -> None:
    slot = make_slot("pilot", "baseline")
    sealed = make_sealed(slot, [side(1, 1, examples=EXAMPLES)])
    assert said(make_facts(1, 1), slot, sealed) == ["names the examples of 2 steps, of one process"]
