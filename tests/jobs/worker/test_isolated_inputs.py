"""The inputs of the isolated checks are numbers that everybody can compute again."""

from __future__ import annotations

import hashlib
import struct
from statistics import NormalDist

import torch

from jobs.tensors.catalog import Tensor
from jobs.worker.isolated_inputs import Drawer, Drawn, levels, quantiles, stream_key

MASK = (1 << 64) - 1


def splitmix(key: int, element: int) -> int:
    """The generator by its published description, in Python's own integers."""
    state = (key + (element + 1) * 0x9E3779B97F4A7C15) & MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)


def entry(name: str, *shape: int, worker: int = 0) -> Tensor:
    return Tensor(worker=worker, name=name, dtype="float32", shape=shape)


def test_the_generator_is_splitmix() -> None:
    # The first numbers of SplitMix64 started with 0.
    assert [splitmix(0, element) for element in range(2)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]
    for key in (0, 1, 1 << 63, MASK, stream_key(5, "parameters", 0, 3)):
        expected = [splitmix(key, element) >> 48 for element in range(100, 1100)]
        assert levels(key, 100, 1100, torch, "cpu").tolist() == expected


def test_the_quantiles_are_symmetric_and_rounded() -> None:
    found = quantiles()
    assert len(found) == 1 << 16
    assert list(found) == sorted(found)
    assert all(low == -high for low, high in zip(found, reversed(found), strict=True))
    assert found[-1] == round(NormalDist().inv_cdf(1 - 0.5 / (1 << 16)), 6)
    digest = hashlib.sha256(struct.pack(f"<{len(found)}d", *found)).hexdigest()
    assert digest == "fc2f29f51da63b2baa3dcc90c72d902d25d93288ad136d0d0747004592f1315e"


def test_what_is_drawn_has_always_the_same_bits() -> None:
    drawn = Drawn(
        [entry("a", 2, 3), entry("b"), entry("a", 2, 3, worker=1)], "gradients/0", Drawer(7, 0.02, torch, "cpu")
    )
    assert list(drawn) == [(0, "a"), (0, "b"), (1, "a")]
    raw = b"".join(struct.pack(f"<{tensor.numel()}f", *tensor.reshape(-1).tolist()) for tensor in drawn.values())
    assert hashlib.sha256(raw).hexdigest() == "641deccafe99e6f446f48d2f9be2bc846178cebdcc7ec3acf977855a5e9662a7"


def test_long_tensors_are_drawn_in_blocks_without_a_seam() -> None:
    drawer = Drawer(7, 1.0, torch, "cpu")
    length = (1 << 20) + 5
    long = drawer.draw(entry("a", length), "parameters", 0)
    key = stream_key(7, "parameters", 0, 0)
    for element in (0, (1 << 20) - 1, 1 << 20, length - 1):
        assert float(long[element]) == float(torch.tensor(quantiles()[splitmix(key, element) >> 48]))


def test_role_worker_place_and_seed_each_make_another_stream() -> None:
    keys = {
        stream_key(seed, role, worker, index)
        for seed in (1, 2)
        for role in ("parameters", "gradients/0", "gradients/1", "consensus/0")
        for worker in (0, 1)
        for index in (0, 1)
    }
    assert len(keys) == 32
