from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.common.endings import EndedError, Ending
from jobs.measurement.blocks import Block
from jobs.measurement.crew import Crew, RankRecord, check_alike, combine_blocks, merge_engaged, merge_records
from jobs.measurement.session import MOST_ENGAGED_BYTES, Result, SideRecord
from jobs.processes.keeper import Exit
from jobs.processes.ranks import Rank, number_ranks, parse_rank
from jobs.processes.steps import Step, alone

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


def test_a_side_is_what_all_its_ranks_are_and_unknown_where_one_of_them_is() -> None:
    first, second = ranks()
    record = SideRecord(side="baseline", position=1, missing=("examples",))
    own = [
        told(first, exit=Exit(exit_code=0, max_rss_bytes=100), has_other_user=True, missing=("sync",)),
        told(second, exit=Exit(exit_code=0, strays=2, survivors=1), has_other_user=False, undeclared=("/x",) * 60),
    ]
    merge_records(record, own)
    assert record.exit is not None
    assert (record.exit.strays, record.exit.survivors) == (2, 1)
    assert (record.has_other_user, record.ranks_rss_bytes) == (False, 0)
    assert (record.missing, record.undeclared) == (("examples",), ("/x",))
    record = SideRecord(side="baseline", position=1)
    merge_records(record, own)
    assert record.missing == ("sync",)


def answering(*results: Result) -> Crew:
    """Return a crew whose ranks are done, each with its result."""

    def member(result: Result) -> Any:
        def step() -> Step[list[Result]]:
            yield from ()
            return [result]

        return SimpleNamespace(result=step, channel=SimpleNamespace(answered_s=result.answered_s))

    setting = cast("Any", SimpleNamespace(limits=SimpleNamespace(stall_s=5.0)))
    record = SideRecord(side="baseline", position=1)
    own = [told(rank) for rank in ranks(len(results))]
    return Crew(setting=setting, record=record, members=[member(result) for result in results], told=own)


def test_the_memory_of_a_side_is_the_sum_of_its_ranks_and_unknown_where_one_is() -> None:
    one = Result(peaks=(3, 5), loss="1.5", answered_s=2.0)
    found = alone(answering(one, replace(one, peaks=(4, 6), loss=None, answered_s=3.0)).result())
    assert found == Result(peaks=(7, 11), loss="1.5", answered_s=3.0)
    assert alone(answering(one, replace(one, peaks=(0, 6))).result()).peaks == (0, 11)


@pytest.mark.parametrize("loss", ["nan", "inf", "-inf"])
def test_a_loss_that_is_not_finite_ends_the_side_whichever_rank_has_it(loss: str) -> None:
    one = Result(peaks=(3, 5), loss="1.5", answered_s=2.0)
    with pytest.raises(EndedError, match=f"rank 1: the loss of the last update is {loss}") as caught:
        alone(answering(one, replace(one, loss=loss)).result())
    assert caught.value.ending is Ending.NON_FINITE


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
    with pytest.raises(EndedError, match="or another image than rank 0"):
        check_alike([told(first, container_sha256="a"), told(second, container_sha256="b")])
    check_alike([told(first, environment_sha256="a"), told(second, environment_sha256="a")])


def test_ranks_are_numbered_node_by_node_as_torchrun_does() -> None:
    third = ranks(4, 2)[2]
    assert third.environment() == {
        "RANK": "2", "LOCAL_RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
    }  # fmt: skip
    assert (third.device("cpu"), ranks(4, 2)[3].device("cuda")) == ("cpu", "cuda:1")
    assert parse_rank(third.as_json()) == third
