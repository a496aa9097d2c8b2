"""AdamW as both backends use it: torch's optimizer for one model, and one function for stacked ones."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tinylm.consensus import combined

BETAS = (0.9, 0.95)
EPSILON = 1e-8
NUM_CORRECTIONS = 1024


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


class Schedule(NamedTuple):
    """Where a training stands, on the device, so that no number of it is a Python value.

    Attributes:
        rates: learning rates, fp32 [updates].
        shares: shares of the ring average, fp32 [updates].
        corrections: AdamW's, from `bias_corrections`.
        position: the update, int64 [1]; as far as the tables go.
        step: the optimizers' steps, this one included, fp32 [1].
        switches: fp32 [2], each 1 or 0: whether optimizers step, and whether workers combine.
    """

    rates: Tensor
    shares: Tensor
    corrections: Tensor
    position: Tensor
    step: Tensor
    switches: Tensor


def bias_corrections(betas: tuple[float, float]) -> list[list[float]]:
    """1 - beta1^step and the root of 1 - beta2^step for the first steps; in fp32 the last ones are 1.

    Worked out in fp64, as torch does: in fp32 1 - 0.95 would be off by a millionth.
    """
    steps = range(1, NUM_CORRECTIONS)
    return [[1.0, 1.0], *([1 - betas[0] ** step, math.sqrt(1 - betas[1] ** step)] for step in steps)]


def clip_factors(gradients: Sequence[Tensor], largest: float, scale: Tensor | None) -> Tensor:
    """What divides each worker's gradient by a scale and then brings it to at most `largest`, by its own norm [K].

    As torch.nn.utils.clip_grad_norm_ for one model, which over a stack would take a single norm of all workers.

    Args:
        gradients: [K, size] of all arenas; they are left as they are.
        largest: L2 norm.
        scale: 0-d; None for 1.
    """
    norms = torch.stack([torch.linalg.vector_norm(gradient, dim=1) for gradient in gradients])
    norm = torch.linalg.vector_norm(norms, dim=0)
    if scale is None:
        return torch.clamp(largest / (norm + 1e-6), max=1.0)
    return torch.clamp(largest / (norm / scale + 1e-6), max=1.0) / scale


def advance(
    values: Tensor,
    gradients: Tensor,
    firsts: Tensor,
    seconds: Tensor,
    shadow: Tensor,
    *,
    factors: Tensor,
    schedule: Schedule,
    betas: tuple[float, float],
    weight_decay: float,
    combines_first: bool,
) -> None:
    """AdamW and a round of consensus, in place; kernels.py does the same on a GPU in one pass.

    Gradients are left as they are. An update that is skipped leaves moments as they were, whatever its gradients hold,
    and parameters but for the round.

    Args:
        values: parameters, fp32 [workers, size].
        gradients: likewise.
        firsts: first moments, likewise.
        seconds: second moments, likewise.
        shadow: parameters in fewer bits, likewise; or `values` itself.
        factors: what each worker's gradient is multiplied by, fp32 [workers].
        schedule: where the training stands.
        betas: of AdamW.
        weight_decay: decoupled.
        combines_first: whether the round comes before the step.
    """
    share = (schedule.shares[schedule.position] * schedule.switches[1]).to(values.dtype)
    if combines_first:
        values.copy_(combined(values, share))
    # What torch.optim.AdamW(fused=True) calls; where it is told of an overflow it does nothing.
    torch._fused_adamw_(
        [values],
        [gradients * factors.unsqueeze(1)],
        [firsts],
        [seconds],
        [],
        [schedule.step[0]],
        lr=schedule.rates[schedule.position][0],
        beta1=betas[0],
        beta2=betas[1],
        weight_decay=weight_decay,
        eps=EPSILON,
        amsgrad=False,
        maximize=False,
        found_inf=1 - schedule.switches[0],
    )
    if not combines_first:
        values.copy_(combined(values, share))
    if shadow is not values:
        shadow.copy_(values)
