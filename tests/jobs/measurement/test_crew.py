from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.common.endings import EndedError, Ending
from jobs.measurement.blocks import Block
from jobs.measurement.crew import RankRecord, check_alike, combine_blocks, merge_engaged, merge_records
from jobs.measurement.session import MOST_ENGAGED_BYTES, SideRecord
from jobs.processes.keeper import Exit
from jobs.processes.ranks import Rank, number_ranks, parse_rank

BLOCK = Block(updates=4, microbatches=8, skipped=1, tokens=40, seconds=1.0, claimed_s=0.9)


def told(rank: Rank, **fields: object) -> RankRecord:
    record = SideRecord(side="baseline", position=1)
    for name, value in fields.items():
        setattr(record, name, value)
    return RankRecord(rank=rank, node=f"n{rank.node + 1}", device="cpu:x", record=record)


def ranks(processes: int = 2, nodes: int = 1) -> tuple[Rank, ...]:
    return number_ranks(processes, nodes, "127.0.0.1", 29500)


def test_microbatches_and_tokens_of_all_ranks_are_summed() -> None:
    combined = combine_blocks([BLOCK, replace(BLOCK, microbatches=6, tokens=30, claimed_s=1.1)], 1.25, "window 1")
    assert combined == Block(updates=4, microbatches=14, skipped=1, tokens=70, seconds=1.25, claimed_s=1.1)


@pytest.mark.parametrize("name", ["updates", "skipped"])
def test_ranks_that_disagree_on_their_updates_end_the_side(name: str) -> None:
    other = replace(BLOCK, **{name: getattr(BLOCK, name) + 1})
    with pytest.raises(EndedError, match=f"window 1: rank 2 says .* {name}, rank 0 says") as caught:
        combine_blocks([BLOCK, BLOCK, other], 1.0, "window 1")
    assert caught.value.ending is Ending.COUNT_DISAGREEMENT


def test_what_ranks_engage_alike_stands_once_and_the_rest_with_their_numbers() -> None:
    found = merge_engaged([{"path": "fast", "saves": "yes", "n": 1}, {"path": "fast", "n": 2}])
    assert found == {"path": "fast", "saves[0]": "yes", "n[0]": 1, "n[1]": 2}
    assert merge_engaged([{"path": "fast"}, None]) is None


def test_too_much_that_is_engaged_ends_the_side() -> None:
    text = "x" * (MOST_ENGAGED_BYTES // 2)
    with pytest.raises(EndedError) as caught:
        merge_engaged([{"path": f"{text}a"}, {"path": f"{text}b"}])
    assert caught.value.ending is Ending.RUBBISH


def test_a_side_counts_the_time_and_the_memory_of_all_its_ranks() -> None:
    first, second = ranks()
    own = [
        told(first, exit=Exit(exit_code=0, cpu_s=1.5, max_rss_bytes=100, strays=1), wall_s=2.0, offers=("a", "b")),
        told(second, exit=Exit(exit_code=3, cpu_s=2.5, max_rss_bytes=300), wall_s=2.5, offers=("b",), foreign=("x",)),
    ]
    record = SideRecord(side="baseline", position=1)
    merge_records(record, own)
    assert record.exit == Exit(exit_code=0, cpu_s=4.0, max_rss_bytes=300, strays=1)
    assert (record.wall_s, record.ranks_rss_bytes) == (2.5, 400)
    assert (record.offers, record.foreign) == (("b",), ("x",))
    assert [one["exit_code"] for one in record.ranks] == [0, 3]


def test_a_side_whose_ranks_never_started_has_a_record_all_the_same() -> None:
    record = SideRecord(side="baseline", position=1)
    merge_records(record, [told(rank) for rank in ranks()])
    assert record.exit is None
    assert [one["pid"] for one in record.ranks] == [0, 0]


def test_a_node_with_other_packages_is_refused() -> None:
    first, second = ranks(2, 2)
    with pytest.raises(EndedError, match="node n2: rank 1 has another interpreter") as caught:
        check_alike([told(first, environment_sha256="a"), told(second, environment_sha256="b")])
    assert caught.value.ending is Ending.NODE_FAIL


def test_ranks_are_numbered_node_by_node_as_torchrun_does() -> None:
    third = ranks(4, 2)[2]
    assert third.environment() == {
        "RANK": "2", "LOCAL_RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
    }  # fmt: skip
    assert (third.device("cpu"), ranks(4, 2)[3].device("cuda")) == ("cpu", "cuda:1")
    assert parse_rank(third.as_json()) == third
