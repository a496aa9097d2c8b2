"""The comparison itself: what its sums are, and what becomes of every number that is not an ordinary one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from jobs.tensors import compare, packed
from jobs.tensors.compare import Comparer
from jobs.tensors.packed import Packer
from jobs.tensors.sums import Sums

NAN, INF = math.nan, math.inf
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


class PackedComparer(Comparer):
    """Goes about numbers on the host as it does about a device's."""

    def _packer(self, pairs: Any) -> Packer | None:
        return Packer(torch, torch.device("cpu")) if pairs else None


@pytest.fixture(scope="module", params=[Comparer, PackedComparer], ids=["host", "device"])
def comparer(request: pytest.FixtureRequest) -> Iterator[Comparer]:
    threads = torch.get_num_threads()
    made: Comparer = request.param(torch, threads=2)
    yield made
    made.close()
    torch.set_num_threads(threads)


def one(comparer: Comparer, reference: Any, value: Any, **asked: bool) -> Sums:
    (found,) = comparer.sums([(reference, value)], **asked)
    return found


def tensor(*values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def random(length: int, seed: int = 1, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(length, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def relative(found: Sums) -> float:
    assert found.difference_sq is not None
    assert found.reference_sq is not None
    return math.sqrt(found.difference_sq / found.reference_sq)


# --- ordinary numbers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("length", [1, 7, compare.HOST_BLOCK, 3 * compare.HOST_BLOCK + 5])
def test_sums_are_those_of_exact_arithmetic(comparer: Comparer, dtype: torch.dtype, length: int) -> None:
    reference, value = random(length, 1, dtype), random(length, 2, dtype)
    ours = one(comparer, reference, value)
    pairs = list(zip(reference.tolist(), value.tolist(), strict=True))
    assert ours.reference_sq == pytest.approx(math.fsum(a * a for a, _ in pairs), rel=1e-13)
    assert ours.difference_sq == pytest.approx(math.fsum((b - a) ** 2 for a, b in pairs), rel=1e-13)
    assert ours.largest_error == max(abs(b - a) for a, b in pairs)


def test_equal_runs_differ_by_nothing(comparer: Comparer) -> None:
    numbers = random(1000)
    found = one(comparer, numbers, numbers.clone(), signs=True)
    assert (found.difference_sq, found.largest_error, found.sign_flips) == (0.0, 0.0, 0)


def test_pairs_are_compared_apart_from_one_another(comparer: Comparer) -> None:
    lengths = [0, 1, compare.HOST_BLOCK + 1, 0, 5, 2 * compare.HOST_BLOCK, 0]
    pairs = [(random(length, 1), random(length, 2)) for length in lengths]
    together = comparer.sums(pairs, signs=True, roll=True)
    assert together == [one(comparer, *pair, signs=True, roll=True) for pair in pairs]


def test_the_number_of_threads_changes_no_bit() -> None:
    pairs = [(random(length, 1), random(length, 2)) for length in (7, 5 * compare.HOST_BLOCK + 11, 3)]
    before = torch.get_num_threads()
    found = []
    for threads in (1, 2, 3, 8):
        comparer = Comparer(torch, threads)
        found += [comparer.sums(pairs, signs=True, roll=True) for _ in range(3)]
        comparer.close()
    torch.set_num_threads(before)
    assert all(sums == found[0] for sums in found)


def test_what_was_prepared_is_compared_as_it_is_now(comparer: Comparer) -> None:
    lengths = [3 * packed.ROW + 1, 7, 0, 2 * packed.ROW]
    pairs = [(random(length, 1), random(length, 2)) for length in lengths]
    prepared = comparer.prepare(pairs)
    for _ in range(2):
        assert comparer.sums(prepared, signs=True, roll=True) == comparer.sums(pairs, signs=True, roll=True)
        assert comparer.worst_ratios(prepared, rtol=1.0, atol=1.0) == comparer.worst_ratios(pairs, rtol=1.0, atol=1.0)
        for reference, value in pairs:
            value.copy_(reference * 2)


def test_how_many_rows_are_packed_at_once_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [5, packed.ROW, 0, 70 * packed.ROW + 3, 130 * packed.ROW, 1]
    pairs = [(random(length, 1), random(length, 2)) for length in lengths]
    found = []
    for rows in (1, 2, 64, 1000):
        monkeypatch.setattr(packed, "STRIP_ROWS", rows)
        packer = Packer(torch, torch.device("cpu"))
        plan = packer.plan(pairs)
        found.append((packer.sums(plan, signs=True), packer.ratios(plan, rtol=1.0, atol=1.0)))
    assert [len(own.most) for own in found[0][0]] == [1, 1, 0, 2, 3, 1]
    assert all(one == found[0] for one in found)


def test_where_the_runs_lie_in_memory_changes_no_bit(comparer: Comparer) -> None:
    memory = torch.zeros(20_001, dtype=torch.float64)
    numbers, other = random(20_000, 1, torch.float64), random(20_000, 2, torch.float64)
    expected = one(comparer, numbers, other)
    memory[1:] = numbers
    assert one(comparer, memory[1:], other) == expected


# --- numbers at the edges ---------------------------------------------------------------------------------------------


def test_squares_beyond_fp16_are_right(comparer: Comparer) -> None:
    numbers = torch.full((1000,), 300.0, dtype=torch.float16)
    found = one(comparer, numbers, -numbers)
    assert found.reference_sq is not None
    assert math.sqrt(found.reference_sq) == 9486.832980505138
    assert (found.difference_sq, found.largest_error) == (3.6e8, 600.0)


@pytest.mark.parametrize("size", [1e20, 1e-25, 3e38, 1e-38])
def test_squares_beyond_fp32_are_right(comparer: Comparer, size: float) -> None:
    exact = float(tensor(size))
    found = one(comparer, torch.full((16,), size), torch.full((16,), size / 2))
    assert found.reference_sq == 16 * exact**2
    assert found.difference_sq == 4 * exact**2
    assert found.largest_error == exact / 2


def test_the_smallest_numbers_of_fp32_count(comparer: Comparer) -> None:
    smallest = 2.0**-149
    found = one(comparer, tensor(smallest, 0.0), tensor(0.0, -smallest), signs=True)
    assert found.reference_sq == smallest**2
    assert found.difference_sq == pytest.approx(2 * smallest**2, rel=1e-15, abs=0.0)
    assert (found.largest_error, found.sign_flips) == (smallest, 2)


def test_more_ones_than_fp32_counts_are_counted(comparer: Comparer) -> None:
    length = (1 << 24) + 3
    found = one(comparer, torch.ones(length), torch.zeros(length))
    assert (found.reference_sq, found.difference_sq) == (float(length), float(length))


def test_a_small_error_beside_large_numbers_is_not_lost(comparer: Comparer) -> None:
    reference, value = torch.full((1000,), 1e4), torch.full((1000,), 1e4)
    value[500] += 1e-3
    error = float(value[500]) - 1e4
    found = one(comparer, reference, value)
    assert (found.difference_sq, found.largest_error) == (error**2, error)
    assert 0 < error < 2e-3


def test_what_even_fp64_cannot_hold_is_not_finite_rather_than_wrong(comparer: Comparer) -> None:
    found = one(comparer, tensor(1e200, dtype=torch.float64), tensor(0.0, dtype=torch.float64))
    assert found == Sums(reference_sq=None, difference_sq=None, largest_error=None)


# --- not finite -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_a_reference_that_is_not_finite_has_no_sum(comparer: Comparer, dtype: torch.dtype, bad: float) -> None:
    found = one(comparer, tensor(1.0, bad, dtype=dtype), tensor(1.0, 2.0, dtype=dtype), signs=True, roll=True)
    assert found == Sums(reference_sq=None, difference_sq=None, largest_error=None, nonfinite_reference=1)


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_a_value_that_is_not_finite_leaves_the_reference(comparer: Comparer, bad: float) -> None:
    found = one(comparer, tensor(3.0, 4.0), tensor(3.0, bad))
    assert found == Sums(reference_sq=25.0, difference_sq=None, largest_error=None, nonfinite_value=1)


@pytest.mark.parametrize("bad", [NAN, INF])
def test_the_same_on_both_sides_is_no_agreement(comparer: Comparer, bad: float) -> None:
    found = one(comparer, tensor(bad), tensor(bad))
    assert found == Sums(
        reference_sq=None, difference_sq=None, largest_error=None, nonfinite_reference=1, nonfinite_value=1
    )


def test_one_bad_number_in_the_last_block_is_found(comparer: Comparer) -> None:
    reference = torch.ones(3 * compare.HOST_BLOCK + 1)
    value = reference.clone()
    value[-1] = NAN
    found = one(comparer, reference, value)
    assert (found.reference_sq, found.difference_sq, found.nonfinite_value) == (float(len(reference)), None, 1)


# --- nothing, and zeros -----------------------------------------------------------------------------------------------


def test_an_empty_run_has_no_error(comparer: Comparer) -> None:
    found = one(comparer, tensor(), tensor(), signs=True, roll=True)
    assert found == Sums(reference_sq=0.0, difference_sq=0.0, largest_error=0.0, sign_flips=0, roll_sq=0.0)
    assert comparer.sums([]) == []


def test_a_zero_reference_is_zero(comparer: Comparer) -> None:
    zeros = torch.zeros(16)
    assert one(comparer, zeros, zeros).reference_sq == 0.0
    assert one(comparer, zeros, torch.ones(16)) == Sums(reference_sq=0.0, difference_sq=16.0, largest_error=1.0)


def test_zero_is_a_sign_of_its_own_and_has_none(comparer: Comparer) -> None:
    reference = tensor(1.0, -1.0, 0.0, 0.0, -0.0, 2.0)
    value = tensor(-1.0, -2.0, 1.0, -0.0, 0.0, 0.0)
    assert one(comparer, reference, value, signs=True).sign_flips == 3
    assert one(comparer, tensor(0.0), tensor(-0.0)).difference_sq == 0.0


# --- the rolled reference ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 3, 10, 2 * compare.HOST_BLOCK + 3])
def test_the_reference_is_rolled_by_half_its_length(comparer: Comparer, length: int) -> None:
    numbers = random(length)
    expected = float(((numbers.roll(length // 2).double() - numbers.double()) ** 2).sum())
    found = one(comparer, numbers, numbers, roll=True).roll_sq
    assert found == pytest.approx(expected, rel=1e-12)
    assert (found == 0.0) == (length == 1)


# --- allowances -------------------------------------------------------------------------------------------------------


def test_the_worst_ratio_is_against_the_references_own_allowance(comparer: Comparer) -> None:
    reference, value = tensor(1000.0, 0.0, dtype=torch.float64), tensor(1001.0, 0.5, dtype=torch.float64)
    assert comparer.worst_ratios([(reference, value)], rtol=1e-3, atol=1.0) == [(0.5, 0)]
    assert comparer.worst_ratios([(value, reference)], rtol=1e-3, atol=1.0) == [(0.5 / (1e-3 * 0.5 + 1.0), 0)]
    assert (reference.tolist(), value.tolist()) == ([1000.0, 0.0], [1001.0, 0.5])


def test_an_empty_run_is_within_any_allowance(comparer: Comparer) -> None:
    assert comparer.worst_ratios([(tensor(), tensor())], rtol=0.0, atol=1e-8) == [(0.0, 0)]


def test_a_worst_ratio_in_a_later_block_is_found(comparer: Comparer) -> None:
    reference = torch.zeros(2 * compare.HOST_BLOCK + 2)
    value = reference.clone()
    value[-1] = 4.0
    assert comparer.worst_ratios([(reference, value)], rtol=0.0, atol=2.0) == [(2.0, 0)]


def test_ratios_of_what_is_not_finite_are_counted(comparer: Comparer) -> None:
    pairs = [(tensor(NAN, 1.0), tensor(NAN, INF)), (tensor(1.0), tensor(1.0))]
    assert comparer.worst_ratios(pairs, rtol=1e-6, atol=1e-8) == [(None, 3), (0.0, 0)]


@pytest.mark.parametrize(("rtol", "atol"), [(0.0, 0.0), (NAN, 1.0), (1.0, NAN), (-1.0, 1.0), (INF, 1.0), (1.0, -1.0)])
def test_an_allowance_that_is_none_is_refused(comparer: Comparer, rtol: float, atol: float) -> None:
    with pytest.raises(ValueError, match="is none"):
        comparer.worst_ratios([(tensor(1.0), tensor(1.0))], rtol=rtol, atol=atol)


# --- what is not comparable -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        (tensor(1.0), tensor(1.0, 2.0)),
        (tensor(1.0), tensor(1.0, dtype=torch.float64)),
        (torch.ones(2, 2), torch.ones(2, 2)),
        (torch.ones(2, dtype=torch.int64), torch.ones(2, dtype=torch.int64)),
    ],
)
def test_what_cannot_be_compared_is_refused(comparer: Comparer, reference: Any, value: Any) -> None:
    with pytest.raises(ValueError, match="compared"):
        comparer.sums([(reference, value)])
