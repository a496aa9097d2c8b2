"""How fast tensors are compared, beside the plain way of writing it, on the same operands in the same run.

Two fp32 tensors of 256 MiB, two threads, no compiler: `(a.double() - b.double()).norm() / b.double().norm()` against
the harness's own comparison, which finds the largest error as well. Several rounds, one after the other each; the
shortest time of each over all rounds counts, since whatever else the machine does only ever adds to one. Reading both
operands once, as a sum, shows what memory allows.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from jobs.tensors.compare import Comparer

LIMIT = 15.0
THREADS = 2
ELEMENTS = 64 << 20
ROUNDS = 5
RUNS = 3
TOLERANCE = 1e-9
"""How far the two may be apart: both sum in fp64, the plain one without care for what is lost on the way."""


def shortest_s(work: Callable[[], float], runs: int) -> tuple[float, float]:
    """Return the shortest time of some runs, and what the work gave."""
    best, value = math.inf, math.nan
    for _ in range(runs):
        began = time.perf_counter()
        value = work()
        best = min(best, time.perf_counter() - began)
    return best, value


def plain(reference: torch.Tensor, value: torch.Tensor) -> float:
    """Return the relative L2 norm of the difference, written as anybody would."""
    return float((value.double() - reference.double()).norm() / reference.double().norm())


def ours(comparer: Comparer, reference: torch.Tensor, value: torch.Tensor) -> float:
    """Return the same by the harness."""
    (found,) = comparer.sums([(reference, value)])
    return math.sqrt((found.difference_sq or 0.0) / (found.reference_sq or math.nan))


def describe(gigabytes: float, times: tuple[float, float, float]) -> str:
    """Return rates and ratio of the times of the plain way, of ours and of reading."""
    plain, own, read = (gigabytes / seconds for seconds in times)
    return f"plain {plain:5.2f}, ours {own:5.2f}, read {read:5.2f} GB/s, ours / plain {own / plain:.1f}"


def main() -> int:
    """Print GB/s and the ratio of each round; fail where the ratio of the shortest times is under the limit."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    generator = torch.Generator().manual_seed(1)
    reference = torch.randn(ELEMENTS, generator=generator)
    value = reference + 1e-3 * torch.randn(ELEMENTS, generator=generator)
    gigabytes = 2 * reference.nbytes / 1e9
    comparer = Comparer(torch, THREADS)
    times: list[tuple[float, float, float]] = []
    for number in range(1, ROUNDS + 1):
        torch.set_num_threads(THREADS)
        plain_s, expected = shortest_s(lambda: plain(reference, value), 1)
        read_s, _ = shortest_s(lambda: float(reference.sum() + value.sum()), RUNS)
        torch.set_num_threads(1)
        ours_s, found = shortest_s(lambda: ours(comparer, reference, value), RUNS)
        if not abs(found / expected - 1) <= TOLERANCE:
            print(f"round {number}: {found} is not {expected}")
            return 1
        times.append((plain_s, ours_s, read_s))
        print(f"round {number}: {describe(gigabytes, times[-1])}")
    comparer.close()
    best = tuple(min(column) for column in zip(*times, strict=True))
    ratio = best[0] / best[1]
    print(f"shortest: {describe(gigabytes, (best[0], best[1], best[2]))}")
    print(f"comparison         {ratio:.1f} x the plain one (limit {LIMIT:.0f})")
    return int(not ratio >= LIMIT)


if __name__ == "__main__":
    sys.exit(main())
