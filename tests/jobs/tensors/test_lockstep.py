"""How passes are cut into pieces, and that halves are never filled while they are compared."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobs.processes.steps import Step, alone, together
from jobs.tensors.catalog import Tensor
from jobs.tensors.dtypes import ITEM_BYTES
from jobs.tensors.lockstep import MOST_PIECES, Chunk, plan_chunks, run_pass

dtypes = st.sampled_from(["float32", "float64", "int64", "bool", "bfloat16"])
shapes = st.lists(st.integers(0, 9), max_size=3).map(tuple)
tensors = st.lists(st.tuples(dtypes, shapes), max_size=20).map(
    lambda found: [Tensor(worker=0, name=str(n), dtype=d, shape=s) for n, (d, s) in enumerate(found)]
)


@given(tensors, st.integers(1, 40).map(lambda pages: pages * 64))
def test_every_element_is_in_one_piece_in_order_within_a_half(offered: list[Tensor], half_bytes: int) -> None:
    seen: list[tuple[int, int]] = []
    for chunk in plan_chunks(offered, half_bytes):
        assert 0 < len(chunk) <= MOST_PIECES
        end = 0
        for piece in chunk:
            size = ITEM_BYTES[piece.dtype]
            assert piece.offset >= end
            assert piece.offset % size == 0
            assert piece.count > 0
            end = piece.offset + piece.count * size
            seen += [(piece.index, piece.start + element) for element in range(piece.count)]
        assert end <= half_bytes
    assert seen == [(index, element) for index, one in enumerate(offered) for element in range(one.numel)]


def test_a_command_for_many_small_tensors_stays_short() -> None:
    offered = [Tensor(worker=0, name=str(n), dtype="float32", shape=()) for n in range(3 * MOST_PIECES + 1)]
    assert [len(chunk) for chunk in plan_chunks(offered, 1 << 20)] == [MOST_PIECES] * 3 + [1]


class Half:
    """Two halves whose content is the number of the chunk, and what is allowed to be done with them."""

    def __init__(self) -> None:
        self.content: dict[int, Chunk] = {}
        self.busy: set[int] = set()

    def fill(self, half: int, pieces: Chunk) -> Step[None]:
        assert half not in self.busy
        self.busy.add(half)
        yield
        self.busy.remove(half)
        self.content[half] = pieces

    def judge(self, half: int, pieces: Chunk) -> Step[list[int]]:
        assert half not in self.busy
        assert self.content[half] == pieces
        self.busy.add(half)
        yield
        self.busy.remove(half)
        assert self.content[half] == pieces
        return [piece.start for piece in pieces]


def test_one_half_is_filled_while_the_other_one_is_compared() -> None:
    offered = [Tensor(worker=0, name=name, dtype="float32", shape=(40,)) for name in "ab"]
    chunks = list(plan_chunks(offered, 64))
    half = Half()
    spooled: list[Chunk] = []
    overlaps: list[int] = []

    def spool(number: int, chunk: Chunk) -> None:
        assert half.content[number] == chunk
        spooled.append(chunk)
        overlaps.append(len(half.busy))

    found = run_pass(chunks, [half], half.judge, spool)
    assert found == {0: [0, 16, 32], 1: [0, 16, 32]}
    assert spooled == chunks
    assert overlaps == [2] * (len(chunks) - 1) + [1]


def test_a_pass_over_nothing_finds_nothing() -> None:
    half = Half()
    assert run_pass([], [half, half], half.judge, None) == {}


def test_steps_go_on_side_by_side_until_each_has_ended() -> None:
    order: list[tuple[str, int]] = []

    def step(name: str, waits: int) -> Step[int]:
        for number in range(waits):
            order.append((name, number))
            yield
        return waits

    assert together(step("a", 1), step("b", 3), step("c", 0)) == [1, 3, 0]
    assert order == [("a", 0), ("b", 0), ("b", 1), ("b", 2)]
    assert alone(step("d", 2)) == 2
