"""The closed set of marks in a report: a shape, a word and a colour for each outcome."""

from __future__ import annotations

import enum


class Mark(enum.Enum):
    """How something stands. The value is the name of its shape and of its colour class."""

    PASS = "pass"  # noqa: S105 - an outcome
    MISSED = "missed"
    INCONCLUSIVE = "inconclusive"
    MISSING = "missing"
    INVALID = "invalid"
    NOT_EVALUATED = "not_evaluated"
    NOT_QUALIFIED = "not_qualified"
    FLAGGED = "flagged"
    """Worth a look; decides nothing."""

    @property
    def word(self) -> str:
        """Return the word that stands beside the shape."""
        return self.value.replace("_", " ")


_SEVERITY = (
    Mark.MISSED,
    Mark.NOT_QUALIFIED,
    Mark.INVALID,
    Mark.MISSING,
    Mark.INCONCLUSIVE,
    Mark.FLAGGED,
    Mark.NOT_EVALUATED,
    Mark.PASS,
)


def severity(mark: Mark) -> int:
    """Return the rank of a mark: what blocks most comes first, what passes last."""
    return _SEVERITY.index(mark)


def mark_of_gate(outcome: str, finding: str) -> Mark:
    """Return the mark of a gate; whatever is not plainly passed is not shown as passed."""
    if outcome == "pass":
        return Mark.PASS if finding == "met" else Mark.INVALID
    return Mark(finding) if finding != "met" else Mark.INVALID


def mark_of_outcome(outcome: str) -> Mark:
    """Return the mark of a roll-up."""
    return Mark.PASS if outcome == "pass" else Mark.NOT_QUALIFIED
