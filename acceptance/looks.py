"""The bound on the paired differences of a recipe.

difference  d_i = candidate - baseline, the final losses of one seed, from the evidence's own decimal text
mean        m = sum d_i / n
SD          s = sqrt(sum (d_i - m)^2 / (n - 1))
bounds      m -+ q s / sqrt(n), with q from the protocol
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from acceptance import arithmetic
from acceptance.arithmetic import to_double
from acceptance.gates import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """The final losses of both sides with one seed."""

    seed: int
    baseline: Decimal
    candidate: Decimal

    @property
    def difference(self) -> Decimal:
        """Return candidate - baseline."""
        return arithmetic.subtract(self.candidate, self.baseline)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What some seeds show of a recipe."""

    number: int
    """1 or 2."""
    pairs: tuple[Paired, ...]
    quantile: Decimal
    mean: Decimal
    std_ddof1: Decimal
    lower: Decimal
    upper: Decimal
    finding: Finding
    reason: str


def take(
    pairs: Sequence[Paired], *, number: int, quantile: Decimal, margin: Decimal, snapshots_differ: bool
) -> Look | None:
    """Compute the bounds and say what they show.

    Args:
        pairs: The losses of every seed of the look; at least two, in any order.
        number: Which look it is.
        quantile: q.
        margin: What the upper bound must be strictly below.
        snapshots_differ: Whether the sides' snapshots do; what is the same program shows nothing by ending alike.

    Returns:
        The look; None where a number is too large to be shown.
    """
    ordered = tuple(sorted(pairs, key=lambda pair: pair.seed))
    differences = [pair.difference for pair in ordered]
    std = arithmetic.std_ddof1(differences)
    if std is None:
        raise ValueError("fewer than two seeds")
    centre = arithmetic.mean(differences)
    if len(set(differences)) == 1:  # the mean of equal values is rounded, the values are not
        centre, std = differences[0], Decimal(0)
    half = arithmetic.half_width(quantile, std, len(ordered))
    lower, upper = arithmetic.subtract(centre, half), arithmetic.add([centre, half])
    losses = [loss for pair in ordered for loss in (pair.baseline, pair.candidate)]
    if any(value.copy_abs() > arithmetic.LARGEST for value in (lower, upper, *losses)):
        return None
    finding, reason = _judge(differences, lower, upper, margin, snapshots_differ=snapshots_differ)
    return Look(
        number=number,
        pairs=ordered,
        quantile=quantile,
        mean=centre,
        std_ddof1=std,
        lower=lower,
        upper=upper,
        finding=finding,
        reason=reason,
    )


def _judge(
    differences: Sequence[Decimal], lower: Decimal, upper: Decimal, margin: Decimal, *, snapshots_differ: bool
) -> tuple[Finding, str]:
    """Compare as the doubles that the verdict shows, so that a reader can repeat the comparison."""
    if len(set(differences)) == 1:
        if differences[0] != 0:
            return Finding.INVALID, "all differences are equal and not zero, which independent runs do not give"
        if not snapshots_differ:
            return Finding.INVALID, "all differences are zero, and both sides are the same snapshot"
    if to_double(upper) < to_double(margin):
        return Finding.MET, ""
    if to_double(lower) >= to_double(margin):
        return Finding.MISSED, "the lower bound is not below the margin: the candidate is shown to be worse"
    return Finding.INCONCLUSIVE, "the margin lies between the bounds: shown neither to be met nor to be missed"
