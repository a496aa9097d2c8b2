"""The fast backend: all workers as one stacked model, one fused optimizer, consensus by rolling the stack."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from tinylm import consensus, model, schedule
from tinylm.config import Config
from tinylm.data import Batch
from tinylm.model import EMBEDDING, HEAD
from tinylm.parallel import ALONE, Group
from tinylm.scaling import DeviceScale
from tinylm.stacked import Arena, clip_per_worker, stacked_nats
from tinylm.trainer import GRADIENTS, PARAMETERS, attention_kernel, autocast

MOST_KEPT = 64


class Fast:
    """Stacked workers. Learning rate, mixing share and target counts are device data; no step waits for the device."""

    name: ClassVar[str] = "fast"

    def __init__(self, config: Config, *, seed: int, device: torch.device) -> None:
        self._config = config
        self._device = device
        initial = model.initial_state(config, seed)
        self._names = [*initial, HEAD] if config.tied else list(initial)
        # The embedding has an arena of its own: a lookup across workers needs the rows of all workers without gaps.
        embedding = {EMBEDDING: initial.pop(EMBEDDING)}
        decayed = {name: tensor for name, tensor in initial.items() if model.decays(name)}
        plain = {name: tensor for name, tensor in initial.items() if not model.decays(name)}
        self._arenas = [
            Arena(decayed, config.workers, weight_decay=config.weight_decay, device=device),
            Arena(plain, config.workers, weight_decay=0.0, device=device),
            Arena(embedding, config.workers, weight_decay=0.0, device=device),
        ]
        steps = range(config.updates_total + 1)
        self._lr_table = _table([schedule.learning_rate(config, step) for step in steps], device)
        self._share_table = _table([schedule.mixing_share(config, step) for step in steps], device)
        self._inverse: dict[tuple[int, ...], Tensor] = {}
        self._scale = DeviceScale(config, device) if config.loss_scale else None
        self._overflowed = torch.zeros((), device=device) if config.loss_scale else None
        self._group: Group = ALONE

    def join(self, group: Group) -> None:
        """Add up gradients with other processes."""
        self._group = group

    def local_update(self, batches: Sequence[Batch], update: int, *, combines: bool = False) -> Tensor:
        """Train all workers on all microbatches at once."""
        inverse = self._inverse_targets(batches)
        self.clear_gradients()
        losses = torch.stack([self._backward(batch, inverse) for batch in batches]).sum(0) * inverse
        self._group.add([*(arena.gradients for arena in self._arenas), losses])
        self._unscale()
        self._clip()
        consensus.in_order(
            self._config,
            step=lambda: self.step(update),
            combine=lambda: self.combine(update) if combines else None,
        )
        return losses

    def make_gradients(self) -> None:
        """One tensor per arena."""
        for arena in self._arenas:
            arena.values.grad = torch.zeros_like(arena.values)

    def clear_gradients(self) -> None:
        """As every update begins."""
        for arena in self._arenas:
            arena.values.grad = None

    def step(self, update: int) -> None:
        """One fused kernel per arena, which does nothing where the last gradients have overflowed."""
        lr = self._lr_table[self._row(update)]
        for arena in self._arenas:
            arena.optimizer.step(arena.gradients, lr, self._overflowed)

    def combine(self, update: int) -> None:
        """Average over the ring, all parameters of all workers at once."""
        share = self._share_table[self._row(update)]
        for arena in self._arenas:
            consensus.combine_stacked(arena.values, share)

    def state(self, quantity: str) -> Iterator[tuple[int, str, Tensor]]:
        """Each worker's slice of the stacks under its canonical name."""
        named: dict[str, Tensor] = {}
        for arena in self._arenas:
            named |= arena.views(_stack(arena, quantity))
        if self._config.tied:
            named[HEAD] = named[EMBEDDING]
        for worker in range(self._config.workers):
            for name in self._names:  # the shared head comes last, as it does in the modules
                yield worker, name, named[name][worker]

    def set_step(self, step: int) -> None:
        """Set the step of the optimizers."""
        for arena in self._arenas:
            arena.optimizer.set_step(step)
        if self._scale and self._overflowed is not None:
            self._scale.reset()
            self._overflowed.zero_()

    def optimizer_step(self) -> int:
        """Of any arena, since all skip the same updates."""
        return self._arenas[0].optimizer.num_steps()

    def scaling(self) -> tuple[float, int]:
        """Read from the device."""
        return self._scale.position() if self._scale else (1.0, 0)

    def set_scaling(self, value: float, streak: int) -> None:
        """Go on with a loss scale."""
        if self._scale:
            self._scale.set_position(value, streak)

    def loss_scale(self) -> float:
        """Read from the device."""
        return float(self._scale.value) if self._scale else 1.0

    def num_skipped(self) -> int:
        """Read from the device."""
        return int(self._scale.num_skipped) if self._scale else 0

    def description(self) -> dict[str, str]:
        """The execution path in words."""
        sequences = self._config.workers * self._config.batch // self._group.world
        return {
            "backend": self.name,
            "stacked": "yes",
            "attention": attention_kernel(self._config, sequences, self._device),
            "optimizer": "adamw fused over arenas",
            "loss scaling": "on the device" if self._scale else "off",
            "clipping": "per worker over arenas" if self._config.clip else "off",
            "consensus": f"roll, {consensus.order_in_words(self._config)}" if self._config.workers > 1 else "none",
        }

    def _backward(self, batch: Batch, inverse: Tensor) -> Tensor:
        """Add one microbatch to the gradients; nats of each worker [K]."""
        parameters = {name: part for arena in self._arenas for name, part in arena.views(arena.values).items()}
        with autocast(self._config.precision, self._device):
            nats = stacked_nats(parameters, batch.tokens, batch.targets, self._config)
        # Workers do not share parameters: weighting their sums gives each its own mean gradient.
        loss = torch.dot(nats, inverse)
        (loss * self._scale.value if self._scale else loss).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return nats.detach()

    def _unscale(self) -> None:
        if self._scale:
            self._overflowed = self._scale.unscale([arena.gradients for arena in self._arenas])
            self._scale.settle(self._overflowed)

    def _clip(self) -> None:
        if self._config.clip:
            clip_per_worker([arena.gradients for arena in self._arenas], self._config.clip)

    def _inverse_targets(self, batches: Sequence[Batch]) -> Tensor:
        """1 / targets of the whole update, per worker [K]; the few patterns of full batches stay on the device."""
        counts = tuple(map(sum, zip(*(batch.all_targets for batch in batches), strict=True)))
        if counts not in self._inverse:
            if len(self._inverse) == MOST_KEPT:
                self._inverse.clear()
            self._inverse[counts] = _table([1 / max(count, 1) for count in counts], self._device)
        return self._inverse[counts]

    def _row(self, update: int) -> int:
        return min(update, self._config.updates_total)


def _stack(arena: Arena, quantity: str) -> Tensor:
    if quantity == PARAMETERS:
        return arena.values.detach()
    if quantity == GRADIENTS:
        return arena.gradients
    return {"exp_avg": arena.optimizer.exp_avg, "exp_avg_sq": arena.optimizer.exp_avg_sq}[quantity]


def _table(values: Sequence[float], device: torch.device) -> Tensor:
    """fp32 on the device; from pinned memory there, so that nothing waits."""
    table = torch.tensor(values, dtype=torch.float32)
    return table if device.type == "cpu" else table.pin_memory().to(device, non_blocking=True)
