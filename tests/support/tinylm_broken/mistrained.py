"""The fast backend with one fault each that shows, if at all, in where trainings end: `mistrained:NAME`.

Put beside a copy of the example. Each class is the fault that its first line names, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from offered import offer
from torch import Tensor

from tinylm.config import Config
from tinylm.data import Batch
from tinylm.fast import Fast
from tinylm.optim import bias_corrections

STUCK = 8


class HalfRate(Fast):
    """The learning rate is half of what the schedule says."""

    def __init__(self, config: Config, *, seed: int, device: torch.device) -> None:
        super().__init__(config, seed=seed, device=device)
        self._schedule.rates.mul_(0.5)


class StuckLoader(Fast):
    """Every batch is trained on eight times before the next one comes."""

    _kept: Sequence[Batch] = ()

    def local_update(self, batches: Sequence[Batch], update: int, *, combines: bool = False) -> Tensor:
        if update % STUCK == 0 or not self._kept:
            self._kept = batches
        return super().local_update(self._kept, update, combines=combines)


class NoMomentum(Fast):
    """beta1 is 0: the optimizer forgets every gradient at once."""

    def __init__(self, config: Config, *, seed: int, device: torch.device) -> None:
        super().__init__(config, seed=seed, device=device)
        self._betas = (0.0, self._betas[1])
        self._schedule.corrections.copy_(torch.tensor(bias_corrections(self._betas)))


class HigherRate(Fast):
    """The learning rate is 3% higher than what the schedule says, which makes no training worse."""

    def __init__(self, config: Config, *, seed: int, device: torch.device) -> None:
        super().__init__(config, seed=seed, device=device)
        self._schedule.rates.mul_(1.03)


FAULTS: dict[str, type[Fast]] = {
    "half_rate": HalfRate,
    "stuck_loader": StuckLoader,
    "no_momentum": NoMomentum,
    "higher_rate": HigherRate,
}
__getattr__ = offer(FAULTS)
