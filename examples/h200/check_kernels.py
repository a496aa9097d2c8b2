"""tinylm's update kernel on a GPU beside the plain function that CPUs run, on the same numbers.

    python examples/h200/check_kernels.py

For 1 to 8 workers, with consensus before and after the step and without, with and without shadows, and for an update
that is skipped. Both are compared with the plain function in fp64; a distance is in units of fp32 rounding of the
value and of what it is made of. Ends with 1 if the kernel is more than LIMIT roundings away anywhere.
"""

import itertools
import sys
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tinylm"))

from tinylm import kernels, optim

SIZE = 100_003
ROUNDING = 2.0**-24
LIMIT = 8.0
PARTS = {"values": 0.02, "firsts": 0.01, "seconds": 1e-30}
"""How large the parts are of which a value may be the difference."""


def made(workers: int, shadow: torch.dtype) -> list[Tensor]:
    """Parameters, gradients, moments and shadows, with a few zeros among the second moments and gradients."""
    generator = torch.Generator().manual_seed(workers)
    values, gradients, firsts, seconds = (torch.randn(workers, SIZE, generator=generator) for _ in range(4))
    values, gradients, firsts = values * 0.02, gradients * 0.01, firsts * 0.01
    seconds = (seconds * 0.01).square()
    gradients[:, :7], firsts[:, :7], seconds[:, :7] = 0, 0, 0
    tensors = [tensor.cuda() for tensor in (values, gradients, firsts, seconds)]
    return [*tensors, tensors[0] if shadow == torch.float32 else tensors[0].to(shadow)]


def compare(workers: int, shadow: torch.dtype, *, combines_first: bool, share: float, steps: float) -> float:
    """Run all three; the largest distance of the kernel from fp64, in roundings. Prints a line."""
    factors = torch.linspace(0.1, 1.0, workers, device="cuda")
    schedule = optim.Schedule(
        rates=torch.tensor([0.0, 1e-3], device="cuda"),
        shares=torch.tensor([0.0, share], device="cuda"),
        corrections=torch.tensor(optim.bias_corrections(optim.BETAS), device="cuda"),
        position=torch.tensor([1], device="cuda"),
        step=torch.tensor([3.0], device="cuda"),
        switches=torch.tensor([steps, 1.0], device="cuda"),
    )
    plain, fused = made(workers, shadow), made(workers, shadow)
    if steps == 0:
        for tensors in (plain, fused):
            tensors[1][:, 9] = float("nan")
    exact = [tensor.double() for tensor in plain]
    exact[4] = exact[0]
    for advance, tensors in ((optim.advance, plain), (kernels.advance, fused), (optim.advance, exact)):
        dtype = tensors[0].dtype
        advance(
            *tensors,
            factors=factors.to(dtype),
            schedule=schedule,
            betas=optim.BETAS,
            weight_decay=0.1,
            combines_first=combines_first,
        )
    places = dict(zip(PARTS, (0, 2, 3), strict=True))
    distances = {}
    for name, place in places.items():
        size = exact[place].abs() + PARTS[name]
        one, other = (
            ((found[place].double() - exact[place]).abs() / size / ROUNDING).max() for found in (plain, fused)
        )
        distances[name] = (float(one), float(other))
    shadows_follow = torch.equal(fused[4], fused[0].to(shadow))
    text = "  ".join(f"{name} {one:.2f} {other:.2f}" for name, (one, other) in distances.items())
    order = "none" if share == 0 else "before" if combines_first else "after"
    print(f"K={workers} consensus {order:6} steps {steps:g} {shadow!s:14} plain, kernel: {text}  {shadows_follow}")
    judged = [found[place] for found in (fused, exact) for place in places.values()]  # max() passes over NaN
    if not shadows_follow or any(not tensor.isfinite().all() for tensor in judged):
        return float("inf")
    return max(other for _, other in distances.values())


def main() -> int:
    """All combinations."""
    worst = 0.0
    for workers, shadow in itertools.product((1, 2, 3, 4, 8), (torch.bfloat16, torch.float32)):
        for combines_first, share, steps in itertools.product((False, True), (0.0, 0.3, 1.0), (0.0, 1.0)):
            found = compare(workers, shadow, combines_first=combines_first, share=share, steps=steps)
            worst = found if not found <= worst else worst
    print(f"worst: {worst:.2f} roundings, limit {LIMIT:g}")
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
