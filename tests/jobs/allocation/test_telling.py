"""What a further node tells of its ranks comes back as it was, and nothing else is taken for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobs.allocation.telling import read_block, read_result, take_rank, tell_block, tell_rank, tell_result
from jobs.common.strict import compact_json, parse_json
from jobs.measurement.blocks import Block
from jobs.measurement.crew import RankRecord
from jobs.measurement.session import Result, SideRecord
from jobs.processes.keeper import Exit
from jobs.processes.ranks import number_ranks

FIRST, SECOND = number_ranks(2, 2, "127.0.0.1", 29500)
BLOCK = Block(updates=4, microbatches=8, skipped=1, tokens=40, seconds=1.0, claimed_s=0.9)
RESULT = Result(peaks=(5, 7), loss="nan", answered_s=0.0)
RECORD = SideRecord(
    side="candidate",
    position=2,
    exit=Exit(exit_code=None, signal=9, cpu_s=1.5, max_rss_bytes=4096, strays=1, survivors=2, failure="so"),
    wall_s=2.5,
    peak_rss_bytes=2048,
    engaged={"path": "fast", "n": -1},
    versions={"python": "3"},
    bytecode="installed",
    offers=("updates", "sync"),
    missing=("examples",),
    foreign=("x: /x",),
    undeclared=("/y",),
    interpreter={"path": "/python"},
    environment_sha256="e",
    container_sha256="c",
    has_other_user=True,
)
TOLD = RankRecord(rank=SECOND, node="n2", device="GPU-1", record=RECORD, pid=77, affinity="0-3", peaks=(1, 2))


def sent(value: Any) -> Any:
    return parse_json(compact_json(value))


def blank() -> RankRecord:
    return RankRecord(rank=SECOND, node="", device="", record=SideRecord(side="candidate", position=2))


@pytest.mark.parametrize("told", [TOLD, blank()])
def test_what_a_node_knows_of_a_rank_comes_back_whole(told: RankRecord) -> None:
    found = blank()
    take_rank(found, sent(tell_rank(told)))
    assert found == told


def test_blocks_and_results_come_back_whole() -> None:
    assert read_block(sent(tell_block(BLOCK))) == BLOCK
    for result in (RESULT, replace(RESULT, loss=None)):
        assert read_result(sent(tell_result(result))) == result


@pytest.mark.parametrize("name", [*tell_rank(TOLD), "more"])
def test_a_rank_that_is_told_with_less_or_more_is_refused(name: str) -> None:
    value = sent(tell_rank(TOLD))
    if value.pop(name, None) is None:
        value[name] = 1
    with pytest.raises(ValueError, match=name):
        take_rank(blank(), value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rank", 0),
        ("pid", -1),
        ("peaks", [1]),
        ("peaks", [1, -1]),
        ("peaks", [1, True]),
        ("wall_s", 1),
        ("engaged", {"n": 1.5}),
        ("has_other_user", 1),
        ("exit", {**RECORD.exit.as_json(), "signal": -9} if RECORD.exit else None),
        ("exit", {**RECORD.exit.as_json(), "exit_code": True} if RECORD.exit else None),
        ("exit", {**RECORD.exit.as_json(), "more": 0} if RECORD.exit else None),
        ("exit", {}),
    ],
)
def test_a_rank_that_is_told_otherwise_than_it_can_be_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        take_rank(blank(), {**sent(tell_rank(TOLD)), name: value})


@pytest.mark.parametrize("name", [*tell_block(BLOCK), "more"])
def test_updates_that_are_told_with_less_or_more_are_refused(name: str) -> None:
    value = sent(tell_block(BLOCK))
    if value.pop(name, None) is None:
        value[name] = 1
    with pytest.raises(ValueError, match=name):
        read_block(value)
