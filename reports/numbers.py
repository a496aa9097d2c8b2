"""Numbers as text. What is printed is never on another side of its gate than what was measured."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal
from typing import TypeAlias

ABSENT = "-"
"""Printed where there is no number."""

_LARGEST_ROUNDED = Decimal(10) ** 15
_KIBI = 1024
_FEWEST_ZEROS, _MOST_DIGITS = 4, 6

Number: TypeAlias = float | str | Decimal


def decimal_of(value: Number) -> Decimal:
    """Return the number whose shortest text this is; a float's is the one that Python prints."""
    return Decimal(str(value))


def _rounded(value: Decimal, digits: int) -> Decimal:
    return value.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_EVEN)


def _side(value: Decimal, gate: Decimal) -> int:
    return (value > gate) - (value < gate)


def against(value: Number | None, *gates: Number | None, digits: int = 3) -> str:
    """Format a number so that the text stands where the number stands: below, at or above each of its gates.

    Digits are added until rounding no longer moves the number onto, or across, a gate.

    Args:
        value: The number; None prints as `ABSENT`.
        gates: What it is compared with; None is no gate.
        digits: Decimals to print at least.
    """
    if value is None:
        return ABSENT
    exact = decimal_of(value)
    bounds = [decimal_of(gate) for gate in gates if gate is not None]
    if not exact.is_finite() or not abs(exact) < _LARGEST_ROUNDED:
        return str(exact)
    wanted = [_side(exact, bound) for bound in bounds]
    # The last rounding still fits the 28 digits of the default context.
    for count in range(digits, max(digits, 26 - max(0, exact.adjusted())) + 1):
        text = _rounded(exact, count)
        if [_side(text, bound) for bound in bounds] == wanted:
            return f"{text:f}"
    return f"{exact:f}"


def near(value: Number | None, *gates: Number | None, digits: int = 4) -> str:
    """Format a number with significant digits, so that the text stands where the number stands; see `against`.

    Args:
        value: The number; None prints as `ABSENT`.
        gates: What it is compared with; None is no gate.
        digits: Significant digits to print at least.
    """
    if value is None:
        return ABSENT
    exact = decimal_of(value)
    if not exact.is_finite() or exact == 0:
        return str(exact) if exact else "0"
    bounds = [decimal_of(gate) for gate in gates if gate is not None]
    wanted = [_side(exact, bound) for bound in bounds]
    for count in range(digits, 28):
        text = Decimal(f"{exact:.{count - 1}e}")
        if [_side(text, bound) for bound in bounds] == wanted:
            return _powered(text, count)
    return str(exact)


def _powered(value: Decimal, digits: int) -> str:
    """Return a number in full, or with a power of ten where zeros would hide its digits."""
    if -_FEWEST_ZEROS <= value.adjusted() <= _MOST_DIGITS:
        return f"{value:f}"
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    return f"{mantissa}e{int(exponent):+03d}"


def signed(value: Number | None, *, digits: int = 6) -> str:
    """Format a margin with its sign; only zero prints as zero."""
    if value is None:
        return ABSENT
    text = against(value, 0, digits=digits)
    return text if text.startswith("-") else f"+{text}"


def significant(value: Number | None, *, digits: int = 3) -> str:
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
