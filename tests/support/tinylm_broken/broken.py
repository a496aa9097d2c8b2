"""The fast backend with one fault each. Put beside a copy of the example, `broken:NAME` is a candidate's adapter.

Each class is the fault that its first line names, as it has been made in real trainers, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from offered import offer
from torch import Tensor

from tinylm import consensus
from tinylm.config import Config
from tinylm.data import Batch
from tinylm.fast import Fast
from tinylm.stacked import clip_per_worker


class ClipOverStack(Fast):
    """One clip norm over all stacked workers."""

    def _clip(self) -> None:
        if self._config.clip:
            stacks = [arena.gradients.view(1, -1) for arena in self._arenas]
            clip_per_worker(stacks, self._config.clip)


class DecayOnGains(Fast):
    """Gains decay, since a stacked gain has two dimensions."""

    def __init__(self, config: Config, *, seed: int, device: torch.device) -> None:
        super().__init__(config, seed=seed, device=device)
        gains = next(arena for arena in self._arenas if "norm.weight" in arena.views(arena.values))
        gains.optimizer._weight_decay = config.weight_decay


class MomentsMixed(Fast):
    """Consensus averages Adam's moments as well."""

    def combine(self, update: int) -> None:
        super().combine(update)
        share = self._share_table[self._row(update)]
        for arena in self._arenas:
            consensus.combine_stacked(arena.optimizer.exp_avg, share)
            consensus.combine_stacked(arena.optimizer.exp_avg_sq, share)


class Beta2Rounded(Fast):
    """beta2 is kept in bf16: 0.94921875 instead of 0.95."""

    def __init__(self, config: Config, *, seed: int, device: torch.device) -> None:
        super().__init__(config, seed=seed, device=device)
        for arena in self._arenas:
            beta1, beta2 = arena.optimizer.betas
            arena.optimizer.betas = (beta1, float(torch.tensor(beta2, dtype=torch.bfloat16)))


class StaleBatch(Fast):
    """Every update trains on the batch of the one before."""

    _previous: Sequence[Batch] = ()

    def local_update(self, batches: Sequence[Batch], update: int, *, combines: bool = False) -> Tensor:
        stale = self._previous or batches
        self._previous = batches
        return super().local_update(stale, update, combines=combines)


class WrongRemainder(Fast):
    """The last update of an epoch is divided by the microbatches of a full one."""

    def _inverse_targets(self, batches: Sequence[Batch]) -> Tensor:
        return super()._inverse_targets(batches) * (len(batches) / self._config.accumulation)


class MeanOfMeans(Fast):
    """Unequal numbers of targets: each microbatch is averaged by itself, then the averages are averaged."""

    def _inverse_targets(self, batches: Sequence[Batch]) -> Tensor:
        self._num_microbatches = len(batches)
        return super()._inverse_targets(batches)

    def _backward(self, batch: Batch, inverse: Tensor) -> Tensor:  # noqa: ARG002  # the right one is not used
        return super()._backward(batch, super()._inverse_targets([batch]) / self._num_microbatches)


class SchedulePerMicrobatch(Fast):
    """The learning rate moves on with every microbatch."""

    _microbatches = 0

    def set_step(self, step: int) -> None:
        super().set_step(step)
        self._microbatches = step

    def local_update(self, batches: Sequence[Batch], update: int, *, combines: bool = False) -> Tensor:
        self._microbatches += len(batches)
        return super().local_update(batches, update, combines=combines)

    def step(self, update: int) -> None:
        super().step(max(self._microbatches - 1, update))


class ClipOnScaled(Fast):
    """Gradients are clipped before they are divided by the loss scale."""

    def _unscale(self) -> None:
        super()._clip()
        super()._unscale()

    def _clip(self) -> None:
        pass


class ScaleInsideAccumulation(Fast):
    """The loss scale doubles after so many microbatches, in the middle of an accumulation."""

    _microbatches = 0

    def set_step(self, step: int) -> None:
        super().set_step(step)
        self._microbatches = 0

    def _backward(self, batch: Batch, inverse: Tensor) -> Tensor:
        nats = super()._backward(batch, inverse)
        self._microbatches += 1
        if self._scale and self._microbatches % self._config.scale_growth == 0:
            self._scale.value.mul_(2)
        return nats


class Negated(Fast):
    """Updates have the wrong sign."""

    def step(self, update: int) -> None:
        before = [arena.values.detach().clone() for arena in self._arenas]
        super().step(update)
        with torch.no_grad():
            for arena, values in zip(self._arenas, before, strict=True):
                arena.values.copy_(2 * values - arena.values)


class Skipped(Fast):
    """Every third update does nothing and says nothing."""

    def step(self, update: int) -> None:
        if update % 3 != 2:
            super().step(update)


FAULTS: dict[str, type[Fast]] = {
    "clip_over_stack": ClipOverStack,
    "decay_on_gains": DecayOnGains,
    "moments_mixed": MomentsMixed,
    "beta2_rounded": Beta2Rounded,
    "stale_batch": StaleBatch,
    "wrong_remainder": WrongRemainder,
    "mean_of_means": MeanOfMeans,
    "schedule_per_microbatch": SchedulePerMicrobatch,
    "clip_on_scaled": ClipOnScaled,
    "scale_inside_accumulation": ScaleInsideAccumulation,
    "negated": Negated,
    "skipped": Skipped,
}
__getattr__ = offer(FAULTS)
