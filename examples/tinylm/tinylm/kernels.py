# ruff: noqa: ANN001  # Triton reads the annotations of a kernel's parameters itself, and wants none but its own
"""The update as one kernel: AdamW, consensus and shadows of all workers in one pass over memory. For CUDA alone.

The arithmetic is that of optim.advance. One program has some columns of an arena, and all workers' rows of them, so
that nobody else needs what it overwrites.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from tinylm.optim import EPSILON, NUM_CORRECTIONS, Schedule

VALUES = 1024
"""What a program holds of each tensor."""

_NEVER, _BEFORE, _AFTER = 0, 1, 2
"""When workers combine, seen from the optimizer's step."""


@triton.jit  # type: ignore[untyped-decorator]  # Triton is not there where types are checked
def _advance(  # type: ignore[no-untyped-def]  # noqa: ANN202, PLR0917  # as a kernel is written
    values,
    gradients,
    firsts,
    seconds,
    shadow,
    factors,
    rates,
    shares,
    corrections,
    position,
    step,
    switches,
    size,
    weight_decay,
    beta1: tl.constexpr,
    beta2: tl.constexpr,
    epsilon: tl.constexpr,
    num_corrections: tl.constexpr,
    workers: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    when: tl.constexpr,
    has_shadow: tl.constexpr,
):
    column = tl.program_id(0).to(tl.int64) * columns + tl.arange(0, columns)[None, :]
    worker = tl.arange(0, rows)[:, None]  # a power of two; those beyond the last worker do nothing
    is_there = (worker < workers) & (column < size)
    place = worker.to(tl.int64) * size + column
    before = ((worker + workers - 1) % workers).to(tl.int64) * size + column
    after = ((worker + 1) % workers).to(tl.int64) * size + column
    rate = tl.load(rates + tl.load(position))
    share = tl.load(shares + tl.load(position)) * tl.load(switches + 1)
    steps = tl.load(switches) > 0
    correction = corrections + 2 * tl.minimum(tl.load(step).to(tl.int32), num_corrections - 1)
    corrected_rate = tl.div_rn(rate, tl.load(correction))
    root = tl.load(correction + 1)

    base = tl.load(values + place, is_there, other=0.0)
    if when == 1:
        total = tl.load(values + before, is_there, other=0.0) + base
        count = 2.0
        if workers > 2:
            total += tl.load(values + after, is_there, other=0.0)
            count = 3.0
        base += share * (tl.div_rn(total, tl.zeros_like(total) + count) - base)
        tl.debug_barrier()  # all have read what is written below
    old_first = tl.load(firsts + place, is_there, other=0.0)
    old_second = tl.load(seconds + place, is_there, other=0.0)
    gradient = tl.load(gradients + place, is_there, other=0.0) * tl.load(factors + worker, worker < workers, other=0.0)
    first = old_first + (1 - beta1) * (gradient - old_first)
    second = beta2 * old_second + (1 - beta2) * gradient * gradient
    divisor = tl.div_rn(tl.sqrt_rn(second), tl.zeros_like(second) + root) + epsilon
    new = base - rate * weight_decay * base
    new = new - tl.div_rn(corrected_rate * first, divisor)
    new = tl.where(steps, new, base)
    tl.store(firsts + place, tl.where(steps, first, old_first), is_there)
    tl.store(seconds + place, tl.where(steps, second, old_second), is_there)
    if when == 2:
        tl.store(values + place, new, is_there)
        tl.debug_barrier()  # all have written what is read here
        total = tl.load(values + before, is_there, other=0.0) + new
        count = 2.0
        if workers > 2:
            total += tl.load(values + after, is_there, other=0.0)
            count = 3.0
        tl.debug_barrier()  # all have read what is written below
        new += share * (tl.div_rn(total, tl.zeros_like(total) + count) - new)
    tl.store(values + place, new, is_there)
    if has_shadow:
        tl.store(shadow + place, new.to(shadow.dtype.element_ty), is_there)


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
    """As optim.advance."""
    workers, size = values.shape
    rows = triton.next_power_of_2(workers)
    columns = max(VALUES // rows, 128)
    when = _NEVER if workers == 1 else _BEFORE if combines_first else _AFTER
    with torch.cuda.device(values.device):
        _advance[(triton.cdiv(size, columns),)](
            values,
            gradients,
            firsts,
            seconds,
            shadow,
            factors,
            *schedule,
            size,
            weight_decay,
            beta1=betas[0],
            beta2=betas[1],
            epsilon=EPSILON,
            num_corrections=NUM_CORRECTIONS,
            workers=workers,
            rows=rows,
            columns=columns,
            when=when,
            has_shadow=shadow is not values,
            num_warps=4,
        )
