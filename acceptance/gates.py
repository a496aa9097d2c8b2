"""What a gate is, and what a fault in the evidence is."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal

from acceptance.arithmetic import difference, to_double

EVIDENCE = "evidence"
"""The family of the gates on the evidence itself."""

_SHOWN = 8
"""How many reasons are written out; the rest is counted."""


class Finding(enum.StrEnum):
    """Why a gate's outcome is what it is."""

    MET = "met"
    MISSED = "missed"
    INCONCLUSIVE = "inconclusive"
    MISSING = "missing"
    INVALID = "invalid"
    NOT_EVALUATED = "not_evaluated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One way in which parsed evidence disagrees with the protocol."""

    file: str
    finding: Finding
    """MISSING or INVALID."""
    reason: str
    """Names rows by key, never by line: the verdict does not depend on their order."""
    slots: tuple[str, ...] = ()
    """The slots whose evidence cannot be used for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One rule and its outcome."""

    id: str
    family: str
    subject: str
    statistic: str
    value: float | int | None
    threshold: float | int | None
    comparison: str
    margin: float | int | None
    """Distance from the threshold, positive on the passing side."""
    n: int
    """How many values entered the statistic."""
    finding: Finding
    reason: str
    lower: float | None = None
    """The lower bound; None for a point rule."""
    upper: float | None = None
    """The upper bound; None for a point rule."""

    @property
    def outcome(self) -> str:
        """Return ``pass`` if and only if the finding is ``met``."""
        return "pass" if self.finding is Finding.MET else "not_qualified"

    def to_json(self) -> dict[str, object]:
        """Return the gate as it stands in the verdict."""
        return {
            "id": self.id,
            "family": self.family,
            "subject": self.subject,
            "statistic": self.statistic,
            "value": self.value,
            "threshold": self.threshold,
            "comparison": self.comparison,
            "margin": self.margin,
            "lower": self.lower,
            "upper": self.upper,
            "n": self.n,
            "outcome": self.outcome,
            "finding": self.finding.value,
            "reason": self.reason,
        }


class Comparison(enum.StrEnum):
    """How a statistic must stand to its threshold."""

    AT_LEAST = ">="
    AT_MOST = "<="
    BELOW = "<"


_SHORTFALL = {
    Comparison.AT_LEAST: "is below the threshold",
    Comparison.AT_MOST: "is above the threshold",
    Comparison.BELOW: "is not below the threshold",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PointRule:
    """A rule on a single number, without an interval."""

    id: str
    family: str
    subject: str
    statistic: str
    comparison: Comparison
    threshold: Decimal

    def holds(self, value: Decimal) -> bool:
        """Return whether a value is on the passing side.

        Both sides are compared as the doubles that the verdict shows, so that a reader can repeat the comparison.
        """
        shown, threshold = to_double(value), to_double(self.threshold)
        if self.comparison is Comparison.AT_LEAST:
            return shown >= threshold
        return shown < threshold if self.comparison is Comparison.BELOW else shown <= threshold

    def unevaluated(self, finding: Finding, reason: str, n: int = 0) -> Gate:
        """Return the gate without a value."""
        return self._gate(finding, reason, value=None, margin=None, n=n)

    def evaluated(self, value: Decimal, n: int, place: str = "") -> Gate:
        """Return the gate for a value.

        Args:
            value: The statistic.
            n: How many values entered it.
            place: Where it was reached, if that is not the whole.
        """
        shown, threshold = to_double(value), to_double(self.threshold)
        above = difference(shown, threshold)
        margin = above if self.comparison is Comparison.AT_LEAST else 0.0 - above
        if self.holds(value):
            return self._gate(Finding.MET, place, value=shown, margin=margin, n=n)
        reason = f"the {self.statistic.replace('_', ' ')} {_SHORTFALL[self.comparison]}"
        reason += f": {place}" if place else ""
        return self._gate(Finding.MISSED, reason, value=shown, margin=margin, n=n)

    def _gate(self, finding: Finding, reason: str, *, value: float | None, margin: float | None, n: int) -> Gate:
        return Gate(
            id=self.id,
            family=self.family,
            subject=self.subject,
            statistic=self.statistic,
            value=value,
            threshold=to_double(self.threshold),
            comparison=self.comparison.value,
            margin=margin,
            n=n,
            finding=finding,
            reason=reason,
        )


def guarded(rule: PointRule, compute: Callable[[], Gate]) -> Gate:
    """Return the computed gate; whatever goes wrong inside becomes an invalid gate, never a pass."""
    try:
        return compute()
    except Exception as error:  # noqa: BLE001 - an unforeseen exception must block, whatever it is
        return rule.unevaluated(Finding.INVALID, f"the gate could not be computed: {type(error).__name__}: {error}")


def join_reasons(reasons: Iterable[str]) -> str:
    """Return distinct reasons in a fixed order, the first ones in full."""
    ordered = sorted(set(reasons))
    rest = len(ordered) - _SHOWN
    return "; ".join(ordered[:_SHOWN]) + (f"; and {rest} more" if rest > 0 else "")


def worst(problems: Iterable[Problem]) -> Finding:
    """Return INVALID if any problem is, else MISSING."""
    return Finding.INVALID if any(p.finding is Finding.INVALID for p in problems) else Finding.MISSING


def missing_family(family: str, reason: str) -> Gate:
    """Return the gate of a declared family in which nothing could be evaluated: it is missing, not absent."""
    return Gate(
        id=f"{family}/family",
        family=family,
        subject=family,
        statistic="gates",
        value=None,
        threshold=None,
        comparison=Comparison.AT_LEAST,
        margin=None,
        n=0,
        finding=Finding.MISSING,
        reason=reason,
    )


def evidence_gate(name: str, count: int, n: int, finding: Finding, reason: str) -> Gate:
    """Return a gate of the family ``evidence``: the number of disagreements, of which none is allowed."""
    evaluated = finding is not Finding.NOT_EVALUATED
    return Gate(
        id=f"{EVIDENCE}/{name}",
        family=EVIDENCE,
        subject=name,
        statistic="disagreements",
        value=count if evaluated else None,
        threshold=0,
        comparison="<=",
        margin=-count if evaluated else None,
        n=n,
        finding=finding,
        reason=reason,
    )
