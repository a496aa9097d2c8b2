"""AdamW as both backends use it: torch's optimizer for one model, its fused kernel for stacked ones."""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.optim.adamw import adamw

BETAS = (0.9, 0.95)
EPSILON = 1e-8


def make_adamw(
    decayed: Iterable[Tensor], plain: Iterable[Tensor], *, lr: float, weight_decay: float, fused: bool
) -> torch.optim.AdamW:
    """torch.optim.AdamW over two groups, with and without weight decay, its state present from the start."""
    groups = [
        {"params": list(decayed), "weight_decay": weight_decay},
        {"params": list(plain), "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=BETAS, eps=EPSILON, fused=fused or None)
    for parameter in parameters_of(optimizer):
        # As AdamW does itself at its first step; done here so that a state may be loaded before it.
        optimizer.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device if fused else "cpu"),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    return optimizer


def parameters_of(optimizer: torch.optim.AdamW) -> list[Tensor]:
    """All parameters in the optimizer's order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def set_step(optimizer: torch.optim.AdamW, step: int) -> None:
    """Let the optimizer believe in `step` earlier updates, in place."""
    for parameter in parameters_of(optimizer):
        optimizer.state[parameter]["step"].fill_(step)


def step_of(optimizer: torch.optim.AdamW) -> int:
    """How many updates the optimizer made; the same for all its parameters. Waits for the device if it is there."""
    return int(optimizer.state[parameters_of(optimizer)[0]]["step"])


class FusedAdamW:
    """AdamW over one large tensor; all its state is on the device.

    It calls torch's functional AdamW, which takes the learning rate as a tensor and costs no Python per parameter.
    """

    def __init__(self, parameter: Tensor, *, weight_decay: float) -> None:
        self.betas = BETAS
        self.exp_avg = torch.zeros_like(parameter, requires_grad=False)
        self.exp_avg_sq = torch.zeros_like(parameter, requires_grad=False)
        self._parameter = parameter
        self._step = torch.zeros((), device=parameter.device)
        self._weight_decay = weight_decay

    @torch.no_grad()
    def step(self, gradient: Tensor, lr: Tensor, overflowed: Tensor | None = None) -> None:
        """One update.

        Args:
            gradient: of the parameter's shape.
            lr: a 0-d fp32 tensor on the parameter's device.
            overflowed: a 0-d fp32 tensor there, too; where it is 1 the kernel leaves everything as it was.
        """
        adamw(
            [self._parameter],
            [gradient],
            [self.exp_avg],
            [self.exp_avg_sq],
            [],
            [self._step],
            fused=True,
            capturable=lr.is_cuda,
            found_inf=overflowed,
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=lr,
            weight_decay=self._weight_decay,
            eps=EPSILON,
            maximize=False,
        )

    def num_steps(self) -> int:
        """How many updates it made; waits for the device."""
        return int(self._step)

    def set_step(self, step: int) -> None:
        """Believe in `step` earlier updates, in place."""
        self._step.fill_(step)
