"""Comparing the losses of two stretches from one checkpoint: does the other side resume it? Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from acceptance.formats import Ending
from campaign import documents
from campaign.fallback.subject import Side, Source, Subject
from campaign.fallback.trial import Made


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How much a loss may differ from the owner's."""

    atol: str
    rtol: str
    source: Literal["protocol", "default"]

    def allowed(self, own: float) -> Fraction:
        """Return the most that a loss may differ: atol + rtol * |own|."""
        return Fraction(self.atol) + Fraction(self.rtol) * abs(Fraction(own))


def tolerance_of(protocol: documents.Protocol) -> Tolerance:
    """Return the loss tolerance of the numerical family; the default one where the family is not declared."""
    rules = protocol.numerical
    if rules is not None:
        return Tolerance(atol=rules.loss_atol, rtol=rules.loss_rtol, source="protocol")
    default = documents.NumericalRules()
    return Tolerance(atol=default.loss_atol, rtol=default.loss_rtol, source="default")


def stretch_of(side: Side, made: Made) -> documents.FallbackStretch:
    """Return what is told of one stretch."""
    found, receipt = made.resumption, made.sealed.receipt
    return documents.FallbackStretch(
        side=side,
        receipt_sha256=made.sealed.receipt_sha256,
        ending=receipt.ending,
        reason=receipt.reason,
        is_loaded=found is not None and found.is_loaded,
        losses=found.losses if found is not None else (),
    )


def differences_of(own: Sequence[float], other: Sequence[float]) -> tuple[float, ...]:
    """Return |other - own| update by update, as far as both have a loss."""
    return tuple(
        float(abs(Fraction(theirs) - Fraction(mine)))
        for mine, theirs in zip(own, other, strict=False)  # one that ended early has fewer
    )


def why_not(own: documents.FallbackStretch, other: documents.FallbackStretch, first: int, tolerance: Tolerance) -> str:
    """Return why the other side does not resume a checkpoint; empty if it does.

    Args:
        own: The side that saved it, from it.
        other: The other side, from it.
        first: Updates behind the checkpoint.
        tolerance: How much a loss may differ.
    """
    for one, words in ((own, f"the {own.side} itself does not"), (other, f"the {other.side} does not")):
        if one.ending is not Ending.COMPLETED:
            return f"{words}: {one.ending}: {one.reason}"
    if not own.losses or len(own.losses) != len(other.losses):
        return f"there are {len(own.losses)} losses of the {own.side} and {len(other.losses)} of the {other.side}"
    for update, (mine, theirs) in enumerate(zip(own.losses, other.losses, strict=True), start=first + 1):
        allowed = tolerance.allowed(mine)
        if not abs(Fraction(theirs) - Fraction(mine)) <= allowed:
            text = f"the loss of update {update} is {theirs!r}, and {mine!r} of the {own.side}"
            return f"{text}: they differ by {abs(theirs - mine):.6g}, allowed is {float(allowed):.6g}"
    return ""


def judge(
    subject: Subject, made: Sequence[Made], tolerance: Tolerance
) -> tuple[documents.FallbackDirection, documents.FallbackDirection]:
    """Return what each checkpoint's two stretches say, in the order of `stretches`."""
    first, second = subject.sources
    return _direct(subject, first, made[:2], tolerance), _direct(subject, second, made[2:], tolerance)


def _direct(
    subject: Subject, source: Source, made: Sequence[Made], tolerance: Tolerance
) -> documents.FallbackDirection:
    other_side: Side = "candidate" if source.owner == "baseline" else "baseline"
    own, other = (stretch_of(side, one) for side, one in zip((source.owner, other_side), made, strict=True))
    reason, key = why_not(own, other, source.update, tolerance), source.status.key
    return documents.FallbackDirection(
        owner=source.owner,
        checkpoint=documents.FallbackCheckpoint(
            slot=key.slot,
            attempt=key.attempt,
            segment=key.segment,
            update=source.update,
            sha256=source.sealed.sha256,
            updates_left=subject.recipe.updates - source.update,
        ),
        own=own,
        other=other,
        differences=differences_of(own.losses, other.losses),
        resumes=not reason,
        reason=reason,
    )
