"""What makes a measurement worth nothing once a side has run, by what its record says."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from jobs.allocation.kinds import _check_conditions, _check_processors
from jobs.allocation.ranked import check_same_ranks
from jobs.common.endings import EndedError, Ending
from jobs.measurement.session import SideRecord

STATE: dict[str, Any] = {
    "affinity": "0-1",
    "cgroup": {f"limit{number}": 1 for number in range(8)},
    "processors": {"governor": "performance"},
    "gpus": [],
    "unknown": {},
}
RANKS = tuple({"rank": rank, "node": "n1", "device": f"GPU-{rank}", "affinity": str(rank)} for rank in (0, 1))


def record(side: str, **fields: Any) -> SideRecord:
    return SideRecord(side=side, position=1, **fields)


def limited(names: int) -> dict[str, Any]:
    """Return a state in which so many limits are others."""
    state = copy.deepcopy(STATE)
    state["cgroup"] |= {f"limit{number}": 2 for number in range(names)}
    return state


@pytest.mark.parametrize(("affinity", "taken"), [("0-1", ""), ("1", ""), ("", ""), ("1-3", "2-3"), ("7", "7")])
def test_a_side_keeps_to_the_processors_that_it_was_given(affinity: str, taken: str) -> None:
    _check_processors(record("baseline", affinity=affinity))
    measured = record("baseline", affinity=affinity, after=STATE)
    if not taken:
        _check_processors(measured)
        return
    with pytest.raises(EndedError, match=f"baseline moved to the processors {taken}, and was given 0-1") as caught:
        _check_processors(measured)
    assert caught.value.ending is Ending.INTERFERENCE


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (("0", "1", "4-5"), ""),
        (("0-1", "0-2", "4"), "rank 1: baseline moved to the processors 2, and was given 0-1"),
        (("0", "1", "0"), "rank 2: baseline moved to the processors 0, and was given 4-5"),
    ],
)
def test_every_rank_keeps_to_the_processors_that_its_own_node_gave_it(after: tuple[str, ...], words: str) -> None:
    nodes = ("n1", "n1", "n2")
    ranks = tuple(
        {"rank": rank, "node": node, "affinity_after": cpus}
        for rank, (node, cpus) in enumerate(zip(nodes, after, strict=True))
    )
    state = {**STATE, "further": [{**STATE, "node": "n2", "affinity": "4-5"}]}
    measured = record("baseline", affinity=after[0], after=state, ranks=ranks)
    if not words:
        _check_processors(measured)
        return
    with pytest.raises(EndedError, match=words) as caught:
        _check_processors(measured)
    assert caught.value.ending is Ending.INTERFERENCE


def test_conditions_of_a_further_node_must_be_the_same_as_well() -> None:
    def on_two(there: dict[str, Any]) -> dict[str, Any]:
        return {**STATE, "further": [{**there, "node": "n2"}]}

    same = [record("baseline", before=on_two(STATE), after=on_two(STATE))]
    _check_conditions([*same, record("candidate", before=on_two(STATE))])
    with pytest.raises(EndedError, match=r"n2: cgroup.limit0 was 1 before baseline.*, 2 before candidate's windows"):
        _check_conditions([*same, record("candidate", before=on_two(limited(1)))])
    with pytest.raises(EndedError, match="n2: affinity was 0-1 before baseline's windows, absent before candidate"):
        _check_conditions([*same, record("candidate", before=STATE)])


def test_conditions_must_be_the_same_before_and_after_and_on_both_sides() -> None:
    same = [record("baseline", before=STATE, after=STATE), record("candidate", before=STATE)]
    _check_conditions(same)
    _check_conditions([record("baseline")])
    ran = [record("baseline", before=STATE, after=limited(1))]
    with pytest.raises(
        EndedError, match=r"while the side ran: cgroup.limit0 was 1 before baseline's .*after"
    ) as caught:
        _check_conditions(ran)
    assert caught.value.ending is Ending.NODE_FAIL
    with pytest.raises(
        EndedError, match=r"between the sides: cgroup.limit0 .*, 2 before candidate's windows; .*; and 3 more"
    ):
        _check_conditions([*same[:1], record("candidate", before=limited(8))])


@pytest.mark.parametrize("name", ["node", "device", "affinity"])
def test_ranks_of_both_sides_run_on_the_same_nodes_devices_and_processors(name: str) -> None:
    other = (RANKS[0], {**RANKS[1], name: "other"})
    check_same_ranks([record("baseline", ranks=RANKS), record("candidate", ranks=RANKS)])
    with pytest.raises(EndedError, match=f"{name} of rank 1 was {RANKS[1][name]} of baseline, other of cand") as caught:
        check_same_ranks([record("baseline", ranks=RANKS), record("candidate", ranks=other)])
    assert caught.value.ending is Ending.NODE_FAIL
    with pytest.raises(ValueError, match="argument 2"):
        check_same_ranks([record("baseline", ranks=RANKS), record("candidate", ranks=RANKS[:1])])
