"""The comparer's own process, over its pipes and memory that others have filled."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.serving import RefusedError, Served, Stage, raw_bytes

REFERENCE = torch.tensor([3.0, -4.0, 0.0])
VALUE = torch.tensor([3.0, 4.0, 0.5])


@pytest.fixture(scope="module")
def comparer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served("compare", tmp_path_factory.mktemp("comparer"))
    yield served
    served.end()


class Staged:
    """Two sources with the same layout."""

    def __init__(self, comparer: Served, folder: Path) -> None:
        self.comparer = comparer
        self.stages = [Stage(folder / name) for name in ("reference", "value")]
        sources = [{"kind": "host", "path": str(one.path), "half_bytes": one.half_bytes} for one in self.stages]
        # As the parent does: one at a time.
        for place, source in enumerate(sources):
            assert comparer.ask("stage", sources=[source], further=place > 0, threads=2) == {}

    def put(self, reference: Any, value: Any, *, half: int = 0, offset: int = 0) -> None:
        for stage, tensor in zip(self.stages, (reference, value), strict=True):
            stage.write(half, raw_bytes(tensor), offset)

    def compare(self, *pieces: list[Any], half: int = 0, signs: bool = False, roll: bool = False) -> Any:
        return self.comparer.ask("compare", half=half, pieces=pieces, signs=signs, roll=roll)["sums"]

    def ratio(self, *pieces: list[Any], rtol: str = "1e-6", atol: str = "1e-8") -> Any:
        return self.comparer.ask("ratio", half=0, pieces=pieces, rtol=rtol, atol=atol)["ratios"]


@pytest.fixture
def staged(comparer: Served, tmp_path: Path) -> Staged:
    return Staged(comparer, tmp_path)


def test_it_says_who_it_is(comparer: Served) -> None:
    assert comparer.ready == {"pid": comparer.process.pid}


def test_pieces_are_compared_one_by_one(staged: Staged) -> None:
    staged.put(REFERENCE, VALUE)
    staged.put(REFERENCE.double(), REFERENCE.double(), offset=64)
    assert staged.compare(["float32", 3, 0], ["float64", 3, 64], ["float32", 0, 0], half=0) == [
        [25.0, 64.25, 8.0, 0, 0, None, None],
        [25.0, 0.0, 0.0, 0, 0, None, None],
        [0.0, 0.0, 0.0, 0, 0, None, None],
    ]


def test_signs_and_the_rolled_reference_are_compared_if_asked_for(staged: Staged) -> None:
    staged.put(REFERENCE, VALUE)
    rolled = sum((a - b) ** 2 for a, b in zip([0.0, 3.0, -4.0], [3.0, -4.0, 0.0], strict=True))
    assert staged.compare(["float32", 3, 0], signs=True, roll=True) == [[25.0, 64.25, 8.0, 0, 0, 2, rolled]]


def test_the_halves_are_apart(staged: Staged) -> None:
    staged.put(REFERENCE, REFERENCE)
    staged.put(REFERENCE, VALUE, half=1)
    assert staged.compare(["float32", 3, 0], half=0)[0][1] == 0.0
    assert staged.compare(["float32", 3, 0], half=1)[0][1] == 64.25


def test_the_same_pieces_are_compared_anew_each_time(staged: Staged, tmp_path: Path) -> None:
    for value, flips in ((VALUE, 2), (REFERENCE, 0), (-VALUE, 2)):
        staged.put(REFERENCE, value)
        error = float(((value - REFERENCE) ** 2).sum())
        assert staged.compare(["float32", 3, 0], signs=True)[0][1:6:4] == [error, flips]
    (tmp_path / "other").mkdir()
    other = Staged(staged.comparer, tmp_path / "other")
    other.put(VALUE, VALUE)
    assert other.compare(["float32", 3, 0])[0][:2] == [25.25, 0.0]


def test_what_is_not_finite_is_counted_and_never_a_number(staged: Staged) -> None:
    staged.put(torch.tensor([math.inf, 1.0]), torch.tensor([math.nan, math.nan]))
    assert staged.compare(["float32", 2, 0], signs=True, roll=True) == [[None, None, None, 1, 2, None, None]]
    assert staged.ratio(["float32", 2, 0]) == [[None, 3]]


def test_ratios_are_those_of_the_worst_element(staged: Staged) -> None:
    staged.put(torch.tensor([1.0, 0.0], dtype=torch.float64), torch.tensor([1.0 + 1e-6, 2e-8], dtype=torch.float64))
    ((worst, nonfinite),) = staged.ratio(["float64", 2, 0])
    assert (worst, nonfinite) == (2.0, 0)


def test_a_ratio_beyond_a_double_is_counted_as_not_finite(staged: Staged) -> None:
    staged.put(torch.zeros(2), torch.tensor([1e38, 1.0]))
    assert staged.ratio(["float32", 2, 0], rtol="0", atol="1e-300") == [[None, 1]]
    assert staged.ratio(["float32", 2, 0], rtol="0", atol="1")[0][1] == 0


@pytest.mark.parametrize("piece", [["float32", 1, 1 << 20], ["float32", 1, 2], ["float32", -1, 8], ["int64", 1, 0]])
def test_a_piece_that_is_none_is_refused(staged: Staged, piece: list[Any]) -> None:
    with pytest.raises(RefusedError) as refused:
        staged.compare(piece)
    assert refused.value.kind == "crash"


def test_memory_of_another_size_is_refused(comparer: Served, tmp_path: Path) -> None:
    stage = Stage(tmp_path / "stage")
    source = {"kind": "host", "path": str(stage.path), "half_bytes": 2 * stage.half_bytes}
    with pytest.raises(RefusedError, match="not 2 halves of"):
        comparer.ask("stage", sources=[source, source], further=False, threads=1)


def test_device_memory_without_a_device_is_refused(comparer: Served) -> None:
    source = {"kind": "device", "handle": {"ipc": "00" * 64, "bus": "0000:00:00.0", "bytes": 8192}, "half_bytes": 4096}
    with pytest.raises(RefusedError, match="CUDA"):
        comparer.ask("stage", sources=[source, source], further=False, threads=1)


def test_it_leaves_when_it_is_closed(tmp_path: Path) -> None:
    served = Served("compare", tmp_path)
    assert served.ask("close") == {"peak_bytes": 0}
    assert served.process.wait(timeout=10) == 0
    served.end()
