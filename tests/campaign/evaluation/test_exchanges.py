"""What is told of how the processes of a side exchanged what they computed."""

from __future__ import annotations

from typing import Any

from campaign.judging.exchanges import exchanges_of
from campaign.keys import AttemptKey
from tests.support.bare import make_receipt, make_side

WORKLOADS = {"c0/pair/w/r1": "w", "c0/pair/w/r2": "w"}


def receipt(processes: int = 2, *, kind: str = "pair", ending: str = "completed", **engaged: str | int) -> Any:
    """Return the receipt of a pair whose sides engaged the same."""
    sides = [
        make_side(side, place, engaged=engaged, topology={"processes": processes, "nodes": 1})
        for place, side in enumerate(("baseline", "candidate"), start=1)
    ]
    return make_receipt(sides, kind=kind, ending=ending)


def told(*receipts: Any) -> list[tuple[str, str, str, str]]:
    keys = [AttemptKey(slot, 1) for slot in WORKLOADS]
    found = exchanges_of(dict(zip(keys, receipts, strict=False)), WORKLOADS)
    return [(one.workload, one.side, one.exchange, one.synchronisation) for one in found]


def test_each_side_is_told_in_its_adapters_words() -> None:
    said: dict[str, Any] = {"exchange": "gloo", "synchronisation": "after last microbatch", "exchanges": 7}
    assert told(receipt(**said), receipt(**said)) == [
        ("w", "baseline", "gloo", "after last microbatch"),
        ("w", "candidate", "gloo", "after last microbatch"),
    ]


def test_what_differs_between_repeats_or_ranks_is_told_whole() -> None:
    ranks: dict[str, Any] = {"exchange[0]": "nccl", "exchange[1]": "gloo"}
    assert told(receipt(**ranks), receipt(exchange="mpi"))[0] == ("w", "baseline", "gloo | mpi | nccl", "")


def test_an_adapter_that_does_not_say_is_told_as_silent() -> None:
    assert told(receipt(exchange=3))[0] == ("w", "baseline", "", "")


def test_single_processes_other_kinds_and_other_endings_are_not_told() -> None:
    assert told(receipt(1, exchange="none")) == []
    assert told(receipt(kind="control_pair", exchange="gloo")) == []
    assert told(receipt(ending="crash", exchange="gloo")) == []
