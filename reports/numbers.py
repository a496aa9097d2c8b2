"""Numbers as text. What is printed is never on another side of its gate than what was measured."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

ABSENT = "-"
"""Printed where there is no number."""

_MOST_DIGITS = 30
_KIBI = 1024


def decimal_of(value: float | str | Decimal) -> Decimal:
    """Return the number whose shortest text this is; a float's is the one that Python prints."""
    return Decimal(str(value))


def _rounded(value: Decimal, digits: int) -> Decimal:
    # Scaled by hand: quantize() refuses results longer than the context's precision.
    return value.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_EVEN)


def _side(value: Decimal, gate: Decimal) -> int:
    return (value > gate) - (value < gate)


def against(value: float | str | Decimal | None, gate: float | str | Decimal | None, *, digits: int = 3) -> str:
    """Format a number so that the text stands where the number stands: below, at or above its gate.

    Digits are added until rounding no longer moves the number onto, or across, the gate.

    Args:
        value: The number; None prints as `ABSENT`.
        gate: What it is compared with; None if nothing.
        digits: Decimals to print at least.
    """
    if value is None:
        return ABSENT
    exact = decimal_of(value)
    if not exact.is_finite() or abs(exact) >= Decimal(10) ** 15:
        return str(exact)
    if gate is None:
        return f"{_rounded(exact, digits):f}"
    bound = decimal_of(gate)
    wanted = _side(exact, bound)
    for count in range(digits, _MOST_DIGITS):
        if not abs(exact) < Decimal(10) ** (27 - count):
            break
        text = _rounded(exact, count)
        if _side(text, bound) == wanted:
            return f"{text:f}"
    return f"{exact:f}"


def signed(value: float | str | Decimal | None, *, digits: int = 6) -> str:
    """Format a margin with its sign; only zero prints as zero."""
    if value is None:
        return ABSENT
    text = against(value, 0, digits=digits)
    return text if text.startswith("-") else f"+{text}"


def significant(value: float | str | Decimal | None, *, digits: int = 3) -> str:
    """Format a quantity without a gate with some significant digits."""
    if value is None:
        return ABSENT
    exact = decimal_of(value)
    if not exact.is_finite():
        return str(exact)
    if exact == 0:
        return "0"
    decimals = max(0, digits - 1 - exact.adjusted())
    if decimals > 2 * digits or exact.adjusted() > 2 * digits + 6:
        return f"{exact:.{digits - 1}e}"
    return f"{_rounded(exact, decimals):,f}"


def count(value: int) -> str:
    """Format a count with thousands separated."""
    return f"{value:,d}"


def size(num_bytes: float | None) -> str:
    """Format a number of bytes in binary units."""
    if num_bytes is None:
        return ABSENT
    amount, unit = float(num_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < _KIBI:
            break
        amount, unit = amount / _KIBI, larger
    return f"{int(amount)} B" if unit == "B" else f"{amount:.1f} {unit}"


def plural(number: int, noun: str, several: str = "") -> str:
    """Return a count with its noun: ``1 gate``, ``2 gates``."""
    return f"{count(number)} {noun if number == 1 else several or noun + 's'}"


def listed(words: list[str]) -> str:
    """Join words for a sentence: ``a, b and c``."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
