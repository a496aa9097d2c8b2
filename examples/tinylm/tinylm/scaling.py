"""Dynamic loss scaling, as both backends use it: with numbers on the host, or with tensors that stay on the device.

Losses are multiplied by a power of two, so that small gradients survive fp16, and gradients are divided by it before
anything looks at them. The scale changes between updates alone: it halves after an update whose gradients are not all
finite, which is skipped, and doubles after `scale_growth` updates in a row without one. One scale serves all workers;
an overflow in one of them skips the update of all, so that their optimizers keep the same step.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from tinylm.config import LARGEST_SCALE, Config

SMALLEST_SCALE = 2.0**-24


class HostScale:
    """The scale as a Python number; looking for an overflow waits for the device."""

    def __init__(self, config: Config) -> None:
        self._initial = config.loss_scale
        self._growth = config.scale_growth
        self.num_skipped = 0
        self.reset()

    def reset(self) -> None:
        """Return to the initial scale."""
        self.value = self._initial
        self._streak = 0

    def position(self) -> tuple[float, int]:
        """The scale, and the updates in a row without overflow."""
        return self.value, self._streak

    def set_position(self, value: float, streak: int) -> None:
        """Go on from such a position."""
        self.value, self._streak = value, streak

    @torch.no_grad()
    def unscale(self, gradients: Iterable[Tensor]) -> bool:
        """Divide the gradients in place; whether any value is not finite."""
        overflowed = False
        for gradient in gradients:
            gradient.mul_(1 / self.value)
            overflowed |= not bool(gradient.isfinite().all())
        return overflowed

    def settle(self, *, overflowed: bool) -> None:
        """The scale of the next update."""
        self._streak = 0 if overflowed else self._streak + 1
        if overflowed:
            self.num_skipped += 1
            self.value = max(self.value / 2, SMALLEST_SCALE)
        elif self._streak == self._growth:
            self.value = min(self.value * 2, LARGEST_SCALE)
            self._streak = 0


class DeviceScale:
    """The scale as a 0-d fp32 tensor; nothing waits for the device."""

    def __init__(self, config: Config, device: torch.device) -> None:
        self._initial = config.loss_scale
        self._growth = config.scale_growth
        self.value = torch.empty((), device=device)
        self.num_skipped = torch.zeros((), dtype=torch.int64, device=device)
        self._streak = torch.empty((), device=device)
        self.reset()

    def reset(self) -> None:
        """Return to the initial scale."""
        self.value.fill_(self._initial)
        self._streak.zero_()

    def position(self) -> tuple[float, int]:
        """The scale, and the updates in a row without overflow; waits for the device."""
        return float(self.value), int(self._streak)

    def set_position(self, value: float, streak: int) -> None:
        """Go on from such a position."""
        self.value.fill_(value)
        self._streak.fill_(streak)

    @torch.no_grad()
    def overflowed(self, gradients: Iterable[Tensor]) -> Tensor:
        """1 if any value of the gradients is not finite, else 0; they are left as they are."""
        extremes = [extreme for gradient in gradients for extreme in torch.aminmax(gradient)]
        return 1 - torch.stack(extremes).isfinite().all().float()

    @torch.no_grad()
    def settle(self, overflowed: Tensor) -> None:
        """The scale of the next update."""
        self.num_skipped += overflowed.long()
        self._streak.add_(1).mul_(1 - overflowed)
        grows = (self._streak == self._growth).float()
        self._streak.mul_(1 - grows)
        self.value.mul_((1 + grows) / (1 + overflowed)).clamp_(SMALLEST_SCALE, LARGEST_SCALE)
