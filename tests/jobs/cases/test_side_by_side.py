"""How both sides and the comparer agree on the memory that they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from jobs.cases.partner import DEVICE, HOST, Partner
from jobs.cases.referee import Referee
from jobs.cases.side_by_side import staged
from jobs.common.endings import EndedError, Ending
from jobs.processes.steps import Step


@dataclass
class Side:
    """Takes whatever it is offered, or refuses device memory."""

    refusal: EndedError | None = None
    asked: list[tuple[str, bool]] = field(default_factory=list)

    def stage(self, path: Path, half_bytes: int, transport: str) -> Step[dict[str, Any] | None]:
        self.asked.append((transport, path.is_file() and path.stat().st_size == 2 * half_bytes))
        yield
        if transport == DEVICE and self.refusal is not None:
            raise self.refusal
        return {"of": id(self)} if transport == DEVICE else None


@dataclass
class Comparer:
    """The same for the comparer."""

    refusal: EndedError | None = None
    kinds: list[list[str]] = field(default_factory=list)

    def stage(self, sources: Sequence[dict[str, Any]], *, is_further: bool = False) -> Step[None]:
        assert is_further == (self.kinds[-1:] == [["host"]])
        self.kinds.append([source["kind"] for source in sources])
        yield
        if self.refusal is not None and "device" in self.kinds[-1]:
            raise self.refusal


def stage(folder: Path, sides: Sequence[Side], comparer: Comparer, *, wants_device: bool) -> tuple[bool, str]:
    partners = cast("Sequence[Partner]", sides)
    with staged(partners, cast("Referee", comparer), 5000, lambda _: folder, wants_device=wants_device) as found:
        # The names are gone as soon as everybody has mapped the files.
        assert list(folder.iterdir()) == []
        assert found.half_bytes == 8192
        return found.is_device, found.reason


def test_on_the_host_both_sides_share_files(tmp_path: Path) -> None:
    sides, comparer = (Side(), Side()), Comparer()
    assert stage(tmp_path, sides, comparer, wants_device=False) == (False, "")
    assert [side.asked for side in sides] == [[(HOST, True)]] * 2
    assert comparer.kinds == [["host"], ["host"]]


def test_on_a_device_nothing_leaves_it(tmp_path: Path) -> None:
    sides, comparer = (Side(), Side()), Comparer()
    assert stage(tmp_path, sides, comparer, wants_device=True) == (True, "")
    assert [side.asked for side in sides] == [[(DEVICE, False)]] * 2
    assert comparer.kinds == [["device", "device"]]


@pytest.mark.parametrize("place", [0, 1])
def test_a_side_without_device_memory_to_share_falls_back_to_files(tmp_path: Path, place: int) -> None:
    sides, comparer = (Side(), Side()), Comparer()
    sides[place].refusal = EndedError(Ending.CRASH, "candidate: staging: Traceback\nCudaError: not permitted")
    assert stage(tmp_path, sides, comparer, wants_device=True) == (False, "CudaError: not permitted")
    assert sides[0].asked[-1] == sides[1].asked[-1] == (HOST, True)
    assert comparer.kinds == [["host"], ["host"]]


def test_a_comparer_that_cannot_open_device_memory_falls_back_to_files(tmp_path: Path) -> None:
    sides, comparer = (Side(), Side()), Comparer(EndedError(Ending.HARNESS_ERROR, "the comparer: no peer access"))
    assert stage(tmp_path, sides, comparer, wants_device=True) == (False, "the comparer: no peer access")
    assert comparer.kinds == [["device", "device"], ["host"], ["host"]]


@pytest.mark.parametrize("ending", [Ending.HANG, Ending.RUBBISH, Ending.INTERFERENCE])
def test_what_is_no_lack_of_device_memory_ends_the_case(tmp_path: Path, ending: Ending) -> None:
    sides = (Side(EndedError(ending, "x")), Side())
    with pytest.raises(EndedError) as caught:
        stage(tmp_path, sides, Comparer(), wants_device=True)
    assert caught.value.ending is ending
