"""What is found of two runs of numbers: the sums that the comparer sends and the parent adds up. Needs no PyTorch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """What is known of one pair, in double precision."""

    reference_sq: float | None
    """Sum of squares of the reference; None if it is not finite."""
    difference_sq: float | None
    """Sum of squares of value - reference; None if it is not finite."""
    largest_error: float | None
    """The largest absolute difference; None like `difference_sq`."""
    nonfinite_reference: int = 0
    nonfinite_value: int = 0
    sign_flips: int | None = None
    """Elements whose signs differ, zero being a sign of its own; None unless asked for, or not all finite."""
    roll_sq: float | None = None
    """Sum of squares of the reference rolled by half its length, less itself; None unless asked for, or not finite."""

    @property
    def is_finite(self) -> bool:
        """Whether there are no numbers in it that are not finite."""
        return self.reference_sq is not None and self.difference_sq is not None

    def as_json(self) -> list[Any]:
        """Return it as the parent reads it."""
        return [getattr(self, name) for name in self.__slots__]


def exact_sum(values: Iterable[float | None]) -> float | None:
    """Return the sum, correctly rounded; None where a value is unknown or not finite, or the sum is beyond a double."""
    known = list(values)
    finite = [value for value in known if value is not None and math.isfinite(value)]
    if len(finite) != len(known):
        return None
    # fsum raises where the sum of finite numbers is beyond a double.
    try:
        return math.fsum(finite)
    except OverflowError:
        return None
