"""The two backends compute the same thing, and each computes what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tinylm import consensus, model, schedule
from tinylm.checkpoint import CheckpointError
from tinylm.config import read_config
from tinylm.consensus import combine_one_by_one
from tinylm.data import Batch
from tinylm.optim import clip_factors
from tinylm.trainer import GRADIENTS, MOMENTS, PARAMETERS, Trainer

from .conftest import BASE, MakeTrainer

PACKED4: dict[str, Any] = {"mode": "packed", "workers": 4}
PACKED8: dict[str, Any] = {"mode": "packed", "workers": 8}
REMAINDER: dict[str, Any] = {"accumulation": 4, "epoch": 6}
TIGHT = 0.05  # far below the gradients' norms, so that every worker is clipped in every update

CASES: dict[str, dict[str, Any]] = {
    "sync": {},
    "sync-clipped": {"clip": TIGHT},
    "sync-unclipped": {"clip": 0},
    "sync-remainder": REMAINDER,
    "packed2": {"mode": "packed", "workers": 2},
    "packed4-clipped": {**PACKED4, "clip": TIGHT},
    "packed4-unclipped": {**PACKED4, "clip": 0},
    "packed4-remainder": {**PACKED4, **REMAINDER},
    "packed4-adaptive": {**PACKED4, "gamma": "adaptive"},
    "packed4-partial": {**PACKED4, "gamma": 0.3},
    "packed4-while-combining": {**PACKED4, "consensus": "awc"},
    "packed8": PACKED8,
    "packed8-all": {**PACKED8, **REMAINDER, "clip": TIGHT, "gamma": "adaptive"},
    "packed8-all-while-combining": {**PACKED8, **REMAINDER, "clip": TIGHT, "gamma": "adaptive", "consensus": "awc"},
}


def _rel_l2(reference: Trainer, value: Trainer, quantity: str) -> float:
    difference = norm = 0.0
    pairs = zip(reference.backend.state(quantity), value.backend.state(quantity), strict=True)
    for (worker, name, expected), (other_worker, other_name, got) in pairs:
        assert (worker, name, expected.shape) == (other_worker, other_name, got.shape)
        difference += float((expected.double() - got.double()).square().sum())
        norm += float(expected.double().square().sum())
    assert norm > 0
    return float((difference / norm) ** 0.5)


def _copy(trainer: Trainer, *quantities: str) -> dict[tuple[str, int, str], torch.Tensor]:
    return {
        (quantity, worker, name): tensor.clone()
        for quantity in quantities
        for worker, name, tensor in trainer.backend.state(quantity)
    }


def _batch(tokens: torch.Tensor, targets: torch.Tensor, num_targets: tuple[int, ...]) -> Batch:
    return Batch(tokens=tokens, targets=targets, num_targets=num_targets, all_targets=num_targets)


@pytest.mark.parametrize("case", CASES)
def test_fast_equals_native_after_several_updates(make: MakeTrainer, case: str) -> None:
    native, fast = make("native", **CASES[case]), make("fast", **CASES[case])
    assert native.train(8) == fast.train(8)
    torch.testing.assert_close(fast.losses(), native.losses(), rtol=1e-5, atol=0)
    for quantity in (PARAMETERS, GRADIENTS, *MOMENTS):
        assert _rel_l2(native, fast, quantity) <= 1e-5, quantity


@pytest.mark.parametrize("backend", ["native", "fast"])
def test_looking_at_clipped_gradients_changes_neither_them_nor_the_training(make: MakeTrainer, backend: str) -> None:
    looking, training = (make(backend, **PACKED4, clip=TIGHT) for _ in range(2))
    looking.train(1)
    once, again = (list(_copy(looking, GRADIENTS).values()) for _ in range(2))
    assert all(map(torch.equal, once, again))
    looking.train(1)
    training.train(2)
    assert all(_rel_l2(training, looking, quantity) == 0 for quantity in (PARAMETERS, GRADIENTS, *MOMENTS))


@pytest.mark.parametrize("past", [-1, 0, 1, 7])
def test_backends_agree_about_the_end_of_the_schedule_and_what_comes_after_it(make: MakeTrainer, past: int) -> None:
    native, fast = (make(name, **PACKED4, gamma="adaptive") for name in ("native", "fast"))
    native.train(1)
    state = _copy(native, PARAMETERS, *MOMENTS)
    for trainer in (native, fast):
        trainer.load_state(state, trainer.config.updates_total + past)
        trainer.train(1)
    assert all(_rel_l2(native, fast, quantity) <= 1e-5 for quantity in (PARAMETERS, GRADIENTS, *MOMENTS))


@pytest.mark.parametrize("entries", [{}, PACKED4], ids=["sync", "packed4"])
def test_fast_stays_close_to_native_in_bf16_with_fp32_masters(make: MakeTrainer, entries: dict[str, Any]) -> None:
    native, fast = (make(name, precision="bf16", **entries) for name in ("native", "fast"))
    native.train(3)
    fast.train(3)
    assert all(tensor.dtype == torch.float32 for _, _, tensor in fast.backend.state(PARAMETERS))
    assert 0 < _rel_l2(native, fast, PARAMETERS) < 0.01


@pytest.mark.parametrize("backend", ["native", "fast"])
def test_two_runs_are_equal_to_the_bit_and_another_seed_is_not(make: MakeTrainer, backend: str) -> None:
    first, second, other = (make(backend, seed=seed, **PACKED4) for seed in (1, 1, 2))
    for trainer in (first, second, other):
        trainer.train(4)
    assert torch.equal(first.losses(), second.losses())
    assert _rel_l2(first, second, PARAMETERS) == 0
    assert _rel_l2(first, other, PARAMETERS) > 0.1


@pytest.mark.parametrize("backend", ["native", "fast"])
def test_training_in_two_calls_equals_training_in_one(make: MakeTrainer, backend: str) -> None:
    whole, parts = make(backend, **PACKED4, **REMAINDER), make(backend, **PACKED4, **REMAINDER)
    whole.train(5)
    parts.train(2)
    parts.train(3)
    assert _rel_l2(whole, parts, PARAMETERS) == 0


@pytest.mark.parametrize("backend", ["native", "fast"])
@pytest.mark.parametrize("entries", [{}, PACKED4], ids=["sync", "packed4"])
def test_loading_a_state_continues_the_same_trajectory(
    make: MakeTrainer, backend: str, entries: dict[str, Any]
) -> None:
    straight, resumed = make(backend, **entries), make(backend, seed=1, **entries)
    straight.train(3)
    resumed.train(1)
    addresses = [tensor.data_ptr() for _, _, tensor in resumed.backend.state(PARAMETERS)]
    resumed.load_state(_copy(straight, PARAMETERS, *MOMENTS), 3)
    straight.train(3)
    resumed.train(3)
    assert _rel_l2(straight, resumed, PARAMETERS) == 0
    assert [tensor.data_ptr() for _, _, tensor in resumed.backend.state(PARAMETERS)] == addresses


def test_each_backend_continues_from_the_others_state(make: MakeTrainer) -> None:
    native, fast = make("native", **PACKED4), make("fast", **PACKED4)
    native.train(3)
    fast.load_state(_copy(native, PARAMETERS, *MOMENTS), 3)
    native.train(3)
    fast.train(3)
    assert _rel_l2(native, fast, PARAMETERS) <= 1e-5


@pytest.mark.parametrize("backend", ["native", "fast"])
def test_absent_moments_become_zero_and_absent_or_unknown_tensors_are_refused(make: MakeTrainer, backend: str) -> None:
    trainer = make(backend, **PACKED4)
    trainer.train(2)
    state = _copy(trainer, PARAMETERS)
    trainer.load_state(state, 0)
    assert not any(bool(tensor.any()) for moment in MOMENTS for _, _, tensor in trainer.backend.state(moment))
    with pytest.raises(KeyError, match="no such tensor"):
        trainer.load_state({**state, (PARAMETERS, 4, "tokens.weight"): torch.zeros(1)}, 0)
    del state[PARAMETERS, 2, "norm.weight"]
    with pytest.raises(KeyError, match=r"norm\.weight"):
        trainer.load_state(state, 0)


@pytest.mark.parametrize("backend", ["native", "fast"])
def test_accumulation_weighs_every_target_alike(make: MakeTrainer, backend: str) -> None:
    """Two microbatches with unlike numbers of targets give the gradient of all sequences in one batch."""
    split, whole = make(backend, **PACKED4, clip=0), make(backend, **PACKED4, clip=0, batch=6)
    first, second = split.microbatches(0)[0], split.microbatches(1)[0]
    mask = torch.zeros_like(second.targets, dtype=torch.bool)
    mask[1, :, 4:] = True
    second = _batch(second.tokens, second.targets.masked_fill(mask, -1), (48, 12, 48, 48))
    both = _batch(
        torch.cat([first.tokens, second.tokens], 1),
        torch.cat([first.targets, second.targets], 1),
        (96, 60, 96, 96),
    )
    split.local_update([first, second])
    whole.local_update([both])
    torch.testing.assert_close(split.losses(), whole.losses(), rtol=1e-5, atol=0)
    assert _rel_l2(whole, split, GRADIENTS) <= 1e-5


@pytest.mark.parametrize("backend", ["native", "fast"])
def test_a_worker_is_clipped_by_its_own_norm(make: MakeTrainer, backend: str) -> None:
    free, clipped = make(backend, **PACKED4, clip=0), make(backend, **PACKED4, clip=1)
    norms = _worker_norms(free)
    limit = float(norms.mean())
    assert norms.min() < limit < norms.max()
    clipped = make(backend, **PACKED4, clip=limit)
    torch.testing.assert_close(_worker_norms(clipped), norms.clamp(max=limit), rtol=1e-4, atol=0)


def _worker_norms(trainer: Trainer) -> torch.Tensor:
    trainer.local_update(trainer.microbatches(0))
    squares = torch.zeros(trainer.config.workers)
    for worker, name, gradient in trainer.backend.state(GRADIENTS):
        if name != model.HEAD:  # shares the embedding
            squares[worker] += gradient.square().sum()
    return squares.sqrt()


def test_stacked_clipping_is_torchs_clipping_of_each_worker() -> None:
    generator = torch.Generator().manual_seed(0)
    scale = torch.tensor([[0.01], [1.0], [30.0]])
    parts = [torch.randn(3, size, generator=generator) * scale for size in (7, 50)]
    expected = [part.clone() for part in parts]
    for worker in range(3):
        parameters = [torch.zeros_like(part[worker]).requires_grad_() for part in expected]
        for parameter, part in zip(parameters, expected, strict=True):
            parameter.grad = part[worker]
        torch.nn.utils.clip_grad_norm_(parameters, 2.0)
    factors = clip_factors([part * 8 for part in parts], 2.0, torch.tensor(8.0))
    scaled = [part * 8 * factors.unsqueeze(1) for part in parts]
    torch.testing.assert_close(scaled, expected, rtol=1e-6, atol=0)
    assert torch.equal(scaled[0][0], expected[0][0])
    assert torch.equal(clip_factors(parts, 2.0, None), factors * 8)


@pytest.mark.parametrize("workers", [2, 3, 4, 8])
@pytest.mark.parametrize("share", [1.0, 0.35])
def test_both_combinations_are_the_doubly_stochastic_ring(workers: int, share: float) -> None:
    values = torch.randn(workers, 40, generator=torch.Generator().manual_seed(workers))
    ring = torch.zeros(workers, workers, dtype=torch.float64)
    for worker in range(workers):
        for other in {worker, (worker + 1) % workers, (worker - 1) % workers}:
            ring[worker, other] = 1 / min(workers, 3)
    expected = ((1 - share) * values.double() + share * (ring @ values.double())).float()
    separate = values.clone()
    stacked = consensus.combined(values, torch.tensor(share))
    assert torch.equal(consensus.combined(values, torch.tensor(0.0)), values)
    combine_one_by_one([[separate[worker]] for worker in range(workers)], share)
    torch.testing.assert_close(stacked, expected, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(separate, expected, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(stacked.mean(0), values.mean(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backend", ["native", "fast"])
def test_consensus_comes_after_the_update_and_brings_workers_closer(make: MakeTrainer, backend: str) -> None:
    local, combined = make(backend, **PACKED4), make(backend, **PACKED4)
    local.local_update(local.microbatches(0))
    combined.train(1)
    before = _stacks(local)
    expected = (before.roll(1, 0) + before + before.roll(-1, 0)) / 3
    torch.testing.assert_close(_stacks(combined), expected, rtol=1e-5, atol=1e-7)
    assert 0 < _stacks(combined).var(0).sum() < before.var(0).sum()
    assert _rel_l2(local, combined, MOMENTS[0]) == 0


@pytest.mark.parametrize("decay", [0.0, 0.5])
@pytest.mark.parametrize("backend", ["native", "fast"])
def test_workers_that_combine_while_they_adapt_take_their_own_step_from_the_average(
    make: MakeTrainer, backend: str, decay: float
) -> None:
    """The gradient is that before the average, AdamW's decay that of the average."""
    entries = {**PACKED4, "consensus": "awc", "gamma": 0.7, "weight_decay": decay}
    combined, local = (make(backend, **entries) for _ in range(2))
    combined.train(2)
    local.load_state(_copy(combined, PARAMETERS, *MOMENTS), 2)
    before = _stacks(local)
    ring = before + 0.7 * ((before.roll(1, 0) + before + before.roll(-1, 0)) / 3 - before)
    assert (ring - before).norm() > 1e-3 * before.norm()
    local.local_update(local.microbatches(2))
    combined.train(1)
    rate = schedule.learning_rate(combined.config, 2) * decay * _decayed(combined)
    torch.testing.assert_close(_stacks(combined), ring * (1 - rate) + _stacks(local) - before * (1 - rate))
    assert all(_rel_l2(local, combined, quantity) == 0 for quantity in (GRADIENTS, *MOMENTS))
    assert combined.executed() == {"updates": 3, "combinations": 3}
    assert local.executed() == {"updates": 1, "combinations": 0}


@pytest.mark.parametrize("backend", ["native", "fast"])
def test_the_order_of_consensus_is_part_of_the_path_and_of_a_training(
    make: MakeTrainer, backend: str, tmp_path: Path
) -> None:
    after, before = make(backend, **PACKED4), make(backend, **PACKED4, consensus="awc")
    assert after.backend.description()["consensus"].endswith(", after the step")
    assert before.backend.description()["consensus"].endswith(", before the step")
    after.train(2)
    after.save(tmp_path)
    with pytest.raises(CheckpointError, match="consensus"):
        before.load(tmp_path)


def _decayed(trainer: Trainer) -> torch.Tensor:
    """1 where AdamW decays a parameter, else 0, in the order of _stacks for one worker."""
    named = [(name, tensor) for worker, name, tensor in trainer.backend.state(PARAMETERS) if worker == 0]
    return torch.cat([torch.full((tensor.numel(),), float(model.decays(name))) for name, tensor in named])


def _stacks(trainer: Trainer) -> torch.Tensor:
    rows: list[list[torch.Tensor]] = [[] for _ in range(trainer.config.workers)]
    for worker, _, tensor in trainer.backend.state(PARAMETERS):
        rows[worker].append(tensor.flatten())
    return torch.stack([torch.cat(row) for row in rows])


def test_names_and_shapes_are_those_of_the_model() -> None:
    config = read_config(BASE)
    built = {name: tuple(parameter.shape) for name, parameter in model.GPT(config).named_parameters()}
    assert list(built.items()) == list(model.parameter_shapes(config).items())


@pytest.mark.parametrize("backend", ["native", "fast"])
def test_only_matrices_of_attention_and_mlp_decay(make: MakeTrainer, backend: str) -> None:
    """Without gradients AdamW moves a parameter by its decay alone."""
    trainer = make(backend, weight_decay=0.5, lr=0.1, warmup=0, **PACKED4)
    before = _copy(trainer, PARAMETERS)
    batch = trainer.microbatches(0)[0]
    nothing = _batch(batch.tokens, torch.full_like(batch.targets, -1), (1, 1, 1, 1))
    trainer.local_update([nothing])
    for key, value in _copy(trainer, PARAMETERS).items():
        decays = ("qkv" in key[2]) or ("out" in key[2]) or ("up" in key[2]) or ("down" in key[2])
        factor = 1 - 0.1 * 0.5 if decays else 1.0
        torch.testing.assert_close(value, before[key] * factor, rtol=1e-6, atol=0)


def test_the_named_sizes_have_the_parameters_of_their_names() -> None:
    for size, low, high in (("20m", 19e6, 21.5e6), ("50m", 48e6, 51e6), ("90m", 89e6, 92e6)):
        config = read_config({"size": size, "batch": 4, "context": 512, "vocab": 16384})
        total = sum(torch.Size(shape).numel() for shape in model.parameter_shapes(config).values())
        assert low < total < high, size
