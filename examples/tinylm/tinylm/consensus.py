"""Ring consensus: each worker averages with its two neighbours, in exact fp32.

x <- (1 - g) x + g W x, with W the doubly stochastic ring: thirds, or halves for two workers. Elementwise arithmetic
only: a matrix product could run in TF32 and would move the workers' mean.

Gradients are always those at a worker's own parameters. Adapt-then-combine averages after the optimizer's step, so
that an update ends with what the workers agree on. Adapt-while-combining averages before the step: the average does
not wait for the gradients, and the update ends with each worker's own step away from it. The decay of AdamW acts on
what it steps from.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tinylm.config import ADAPT_WHILE_COMBINING, Config


def neighbours(worker: int, workers: int) -> tuple[int, ...]:
    """The distinct members of a worker's average, itself included, in the order of summation."""
    return tuple(dict.fromkeys(((worker - 1) % workers, worker, (worker + 1) % workers)))


def combines_first(config: Config) -> bool:
    """Whether a round comes before the optimizer's step."""
    return config.consensus == ADAPT_WHILE_COMBINING


def in_order(config: Config, *, step: Callable[[], None], combine: Callable[[], None]) -> None:
    """Call the optimizer's step and the round of consensus of one update, in the order of the configuration."""
    first, second = (combine, step) if combines_first(config) else (step, combine)
    first()
    second()


def order_in_words(config: Config) -> str:
    """When a round takes place."""
    return "before the step" if combines_first(config) else "after the step"


@torch.no_grad()
def combine_one_by_one(models: Sequence[list[Tensor]], share: float) -> None:
    """Combine in place, worker by worker; for all parameters of one a call of each operation."""
    averages = []
    for worker in range(len(models)):
        first, second, *rest = (models[other] for other in neighbours(worker, len(models)))
        average = torch._foreach_add(first, second)  # noqa: SLF001  # torch has no other names for these
        for other in rest:
            torch._foreach_add_(average, other)
        torch._foreach_div_(average, len(rest) + 2)
        averages.append(average)
    for parameters, average in zip(models, averages, strict=True):
        torch._foreach_lerp_(parameters, average, share)


def combined(stacked: Tensor, share: Tensor) -> Tensor:
    """What a round makes of [workers, size]; share is a 0-d fp32 tensor on the same device.

    A share of 0 leaves what is finite as it is; one worker alone gets `stacked` itself.
    """
    workers = stacked.size(0)
    if workers == 1:
        return stacked
    average = stacked.roll(1, 0).add_(stacked)
    if workers > 2:
        average += stacked.roll(-1, 0)
    return stacked.lerp(average.div_(min(workers, 3)), share)
