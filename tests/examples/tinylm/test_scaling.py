"""Loss scaling: exact where it can be, skipping where it must, the same in both backends."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tinylm import trainer as trainer_module
from tinylm.config import LARGEST_SCALE, ConfigError, read_config
from tinylm.scaling import SMALLEST_SCALE, DeviceScale, HostScale
from tinylm.schedule import learning_rate
from tinylm.trainer import GRADIENTS, MOMENTS, PARAMETERS, Trainer

from .conftest import BASE, MakeTrainer

PACKED4: dict[str, Any] = {"mode": "packed", "workers": 4}
BACKENDS = ("native", "fast")
CPU = torch.device("cpu")


def _tensors(trainer: Trainer, quantity: str) -> list[torch.Tensor]:
    return [tensor.clone() for _, _, tensor in trainer.backend.state(quantity)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("clip", [0, 0.05])
def test_a_power_of_two_changes_no_bit_in_fp32(make: MakeTrainer, backend: str, clip: float) -> None:
    """So gradients are divided before they are clipped, and the scale is one throughout an accumulation."""
    entries = {**PACKED4, "accumulation": 3, "clip": clip}
    plain = make(backend, **entries)
    scaled = make(backend, **entries, loss_scale=1024.0, scale_growth=1)
    assert plain.train(4) == scaled.train(4)
    assert scaled.backend.loss_scale() == 1024.0 * 2**4
    assert torch.equal(plain.losses(), scaled.losses())
    for quantity in (PARAMETERS, GRADIENTS, *MOMENTS):
        pairs = zip(_tensors(plain, quantity), _tensors(scaled, quantity), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs), quantity


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_update_that_overflows_is_skipped_and_halves_the_scale(make: MakeTrainer, backend: str) -> None:
    trainer = make(backend, **PACKED4, precision="fp16", loss_scale=LARGEST_SCALE)
    before = _tensors(trainer, PARAMETERS)
    trainer.local_update(trainer.microbatches(0))
    assert trainer.backend.loss_scale() == LARGEST_SCALE / 2
    assert all(torch.equal(one, other) for one, other in zip(before, _tensors(trainer, PARAMETERS), strict=True))
    assert not any(bool(tensor.any()) for moment in MOMENTS for tensor in _tensors(trainer, moment))
    assert not all(bool(tensor.isfinite().all()) for tensor in _tensors(trainer, GRADIENTS))
    assert bool(trainer.losses().isfinite().all())
    assert (trainer.update, trainer.skipped()) == (1, 1)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("consensus", ["atc", "awc"])
def test_workers_combine_in_an_update_that_is_skipped(make: MakeTrainer, backend: str, consensus: str) -> None:
    entries = {**PACKED4, "consensus": consensus, "gamma": 0.7}
    trainer = make(backend, **entries, precision="fp16", loss_scale=LARGEST_SCALE)
    state = trainer.backend.state(PARAMETERS)
    apart = {(PARAMETERS, worker, name): tensor * (1 + 0.1 * worker) for worker, name, tensor in state}
    trainer.load_state(apart, 0)
    before = torch.cat([tensor.flatten() for tensor in apart.values()]).view(4, -1)
    trainer.train(1)
    assert trainer.skipped() == 1
    after = torch.cat([tensor.flatten() for tensor in _tensors(trainer, PARAMETERS)]).view(4, -1)
    torch.testing.assert_close(after, before + 0.7 * ((before.roll(1, 0) + before + before.roll(-1, 0)) / 3 - before))


def test_both_backends_skip_the_same_updates_and_count_them_once(make: MakeTrainer) -> None:
    native, fast = (make(name, **PACKED4, precision="fp16", loss_scale=LARGEST_SCALE) for name in BACKENDS)
    counts = [native.train(12), fast.train(12)]
    assert counts[0] == counts[1]
    assert 0 < counts[0].skipped < 12
    assert native.backend.loss_scale() == fast.backend.loss_scale() == LARGEST_SCALE / 2 ** counts[0].skipped
    again = [native.train(2), fast.train(2)]
    assert [count.skipped for count in again] == [0, 0]
    assert native.skipped() == fast.skipped() == counts[0].skipped


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_skipped_update_does_not_move_the_optimizers_step_on(make: MakeTrainer, backend: str) -> None:
    """The first update that is made has the bias correction of a first one: parameters move by the rate.

    The schedule does move on: its rate is that of the updates attempted.
    """
    trainer = make(backend, precision="fp16", loss_scale=LARGEST_SCALE, warmup=0, weight_decay=0, lr=0.01)
    while True:
        before = _tensors(trainer, PARAMETERS)
        trainer.train(1)
        if trainer.skipped() < trainer.update:
            break
    moved = max(
        float((one - other).abs().max()) for one, other in zip(before, _tensors(trainer, PARAMETERS), strict=True)
    )
    assert trainer.update > 1
    assert moved == pytest.approx(learning_rate(trainer.config, trainer.update - 1), rel=1e-3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_loaded_state_begins_with_the_initial_scale_and_nothing_skipped(make: MakeTrainer, backend: str) -> None:
    trainer = make(backend, precision="fp16", loss_scale=LARGEST_SCALE)
    trainer.train(3)
    state = {(PARAMETERS, worker, name): tensor.clone() for worker, name, tensor in trainer.backend.state(PARAMETERS)}
    trainer.load_state(state, 7)
    assert (trainer.backend.loss_scale(), trainer.update, trainer.skipped()) == (LARGEST_SCALE, 7, 0)


def test_both_scales_follow_the_same_rule() -> None:
    config = read_config({**BASE, "loss_scale": 2.0**23, "scale_growth": 3})
    host, device = HostScale(config), DeviceScale(config, CPU)
    generator = torch.Generator().manual_seed(0)
    # Long runs of either kind, so that both limits are reached.
    overflows = [False] * 12 + [True] * 60 + (torch.rand(200, generator=generator) < 0.2).tolist()
    seen = []
    for overflowed in overflows:
        host.settle(overflowed=overflowed)
        device.settle(torch.tensor(float(overflowed)))
        seen.append(host.value)
        assert float(device.value) == host.value
        assert int(device.num_skipped) == host.num_skipped
    assert seen[:4] == [2.0**23, 2.0**23, 2.0**24, 2.0**24]
    assert (max(seen), min(seen)) == (LARGEST_SCALE, SMALLEST_SCALE)


@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
def test_one_bad_value_is_an_overflow_and_a_large_one_is_not(bad: float) -> None:
    config = read_config({**BASE, "loss_scale": 2.0})
    for value, expected in ((bad, True), (3e38, False)):
        gradients = [torch.ones(5), torch.full((3,), 3e38), torch.tensor([[1.0, value]])]
        assert bool(DeviceScale(config, CPU).overflowed(gradients)) is expected
        assert torch.equal(gradients[1], torch.full((3,), 3e38))
        assert HostScale(config).unscale(gradients) is expected
        assert torch.equal(gradients[0], torch.full((5,), 0.5))


def test_a_precision_that_torch_would_replace_is_refused(make: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    make("native", precision="fp16")
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _device: False)
    with pytest.raises(ConfigError, match=r"'precision'.*fp16 autocast on cpu"):
        trainer_module.check_precision("fp16", CPU)
    trainer_module.check_precision("fp32", CPU)
