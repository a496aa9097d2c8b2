"""AdamW as both backends use it: torch's optimizer for one model, and one function for the rows of stacked ones."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tinylm.consensus import ring

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


class Rows(NamedTuple):
    """What the optimizer knows of some parameters: lists of one tensor [size] for each worker.

    Attributes:
        values: parameters, fp32.
        gradients: fp32.
        firsts: first moments, fp32.
        seconds: second moments, fp32.
        shadows: parameters in fewer bits; none where all is done in fp32.
    """

    values: list[Tensor]
    gradients: list[Tensor]
    firsts: list[Tensor]
    seconds: list[Tensor]
    shadows: list[Tensor]


def clip_factors(gradients: Sequence[Tensor], largest: float, scale: Tensor) -> Tensor:
    """What divides each worker's gradient by a scale and then brings it to at most `largest`, by its own norm [K].

    As torch.nn.utils.clip_grad_norm_ for one model, which over a stack would take a single norm of all workers.

    Args:
        gradients: [K, size] of all arenas; they are left as they are.
        largest: L2 norm; 0 for no clipping.
        scale: 0-d.
    """
    if not largest:
        return scale.reciprocal().expand(gradients[0].size(0))
    norms = torch.stack([torch.linalg.vector_norm(gradient, dim=1) for gradient in gradients])
    norm = torch.linalg.vector_norm(norms, dim=0) / scale
    factors: Tensor = (largest / (norm + 1e-6)).clamp(max=1.0) / scale
    return factors


def numbers(
    *, rates: Tensor, shares: Tensor, position: Tensor, switches: Tensor, step: Tensor, betas: tuple[float, float]
) -> tuple[Tensor, Tensor]:
    """What an update needs to know, from what is on the device.

    Args:
        rates: the schedule's learning rates, fp32 [updates].
        shares: the schedule's shares of the ring average, fp32 [updates].
        position: where the schedule stands, int64 [1].
        switches: fp32 [2], each 1 or 0: whether optimizers step, and whether workers combine.
        step: the updates that the optimizers have made, fp64 [1].
        betas: of AdamW.

    Returns:
        For `advance` fp32 [5]: learning rate, the same over the first bias correction, the root of the second one,
        share, and whether to step; and the new step.
    """
    steps, combines = switches.double().unbind()
    rate, share = (table[position].double() for table in (rates, shares))
    new = step + steps
    # In fp64, as torch does on the host: in fp32 1 - 0.95 would be off by a millionth.
    first, second = (1 - torch.pow(beta, new) for beta in betas)
    parts = [rate, rate / first, second.sqrt(), share * combines, steps.view(1)]
    return torch.cat(parts).float(), new


def advance(
    rows: Rows,
    *,
    factors: Tensor,
    known: Tensor,
    betas: tuple[float, float],
    weight_decay: float,
    combines_first: bool,
) -> None:
    """AdamW and a round of consensus, in place; one pass over all that the rows hold, where it is compiled.

    Gradients are left as they are. An update that is skipped leaves moments as they were, whatever its gradients hold,
    and parameters but for the round.

    Args:
        rows: of an arena.
        factors: what each worker's gradient is multiplied by, fp32 [workers].
        known: from `numbers`.
        betas: of AdamW.
        weight_decay: decoupled.
        combines_first: whether the round comes before the step.
    """
    rate, corrected_rate, root, share, steps = known.unbind()
    bases = ring(rows.values, share) if combines_first else rows.values
    news = []
    for worker, base in enumerate(bases):
        gradient = rows.gradients[worker] * factors[worker]
        first = rows.firsts[worker].lerp(gradient, 1 - betas[0])
        second = betas[1] * rows.seconds[worker] + (1 - betas[1]) * gradient * gradient
        new = base - rate * weight_decay * base
        new = new - corrected_rate * first / (second.sqrt() / root + EPSILON)
        news.append(torch.where(steps > 0, new, base))
        rows.firsts[worker].copy_(torch.where(steps > 0, first, rows.firsts[worker]))
        rows.seconds[worker].copy_(torch.where(steps > 0, second, rows.seconds[worker]))
    for worker, new in enumerate(news if combines_first else ring(news, share)):
        rows.values[worker].copy_(new)
        if rows.shadows:
            rows.shadows[worker].copy_(new)
