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
from tinylm.optim import bias_corrections, clip_factors


class ClipOverStack(Fast):
    """One clip norm over all stacked workers."""

    def _clip_factors(self) -> Tensor:
        together = [gradients.view(1, -1) for gradients in self._gradients()]
        return clip_factors(together, self._config.clip, None).expand(self._config.workers)


class DecayOnGains(Fast):
    """Gains decay, since a stacked gain has two dimensions."""

    def __init__(self, config: Config, *, seed: int, device: torch.device) -> None:
        super().__init__(config, seed=seed, device=device)
        self._arenas.plain.weight_decay = config.weight_decay


class MomentsMixed(Fast):
    """Consensus averages Adam's moments as well."""

    def _advance(self) -> None:
        super()._advance()
        share = self._schedule.shares[self._schedule.position] * self._schedule.switches[1]
        for arena in self._arenas:
            for moments in (arena.firsts, arena.seconds):
                moments.copy_(consensus.combined(moments, share))


class Beta2Rounded(Fast):
    """beta2 is kept in bf16: 0.94921875 instead of 0.95."""

    def __init__(self, config: Config, *, seed: int, device: torch.device) -> None:
        super().__init__(config, seed=seed, device=device)
        beta1, beta2 = self._betas
        self._betas = (beta1, float(torch.tensor(beta2, dtype=torch.bfloat16)))
        self._schedule.corrections.copy_(torch.tensor(bias_corrections(self._betas)))


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

    def local_update(self, batches: Sequence[Batch], update: int, *, combines: bool = False) -> Tensor:
        self._num_microbatches = len(batches)
        return super().local_update(batches, update, combines=combines)

    def _microbatch(self, batch: Batch, *, is_first: bool) -> None:
        right = self._inverse.clone()
        self._inverse.copy_(self._inverse_targets([batch]) / self._num_microbatches)
        super()._microbatch(batch, is_first=is_first)
        self._inverse.copy_(right)


class SchedulePerMicrobatch(Fast):
    """The learning rate moves on with every microbatch."""

    _microbatches = 0

    def set_step(self, step: int) -> None:
        super().set_step(step)
        self._microbatches = step

    def local_update(self, batches: Sequence[Batch], update: int, *, combines: bool = False) -> Tensor:
        self._microbatches += len(batches)
        return super().local_update(batches, update, combines=combines)

    def _set(self, update: int, *, steps: bool, combines: bool) -> None:
        super()._set(max(self._microbatches - 1, update), steps=steps, combines=combines)


class ClipOnScaled(Fast):
    """Gradients are clipped before they are divided by the loss scale."""

    def _clip_factors(self) -> Tensor:
        factors = clip_factors(self._gradients(), self._config.clip, None)
        return factors / self._scale.value if self._scale else factors


class ScaleInsideAccumulation(Fast):
    """The loss scale doubles after so many microbatches, in the middle of an accumulation."""

    _microbatches = 0

    def set_step(self, step: int) -> None:
        super().set_step(step)
        self._microbatches = 0

    def _microbatch(self, batch: Batch, *, is_first: bool) -> None:
        super()._microbatch(batch, is_first=is_first)
        self._microbatches += 1
        if self._scale and self._microbatches % self._config.scale_growth == 0:
            self._scale.value.mul_(2)


class Negated(Fast):
    """Updates have the wrong sign."""

    def _advance(self) -> None:
        before = [arena.values.clone() for arena in self._arenas]
        super()._advance()
        for arena, values in zip(self._arenas, before, strict=True):
            arena.values.copy_(2 * values - arena.values)
            arena.refresh()


class Skipped(Fast):
    """Every third update does nothing and says nothing."""

    def _set(self, update: int, *, steps: bool, combines: bool) -> None:
        super()._set(update, steps=steps and update % 3 != 2, combines=combines)


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
