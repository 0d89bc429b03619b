"""Numbers as text, in one style: plain decimals, three digits for an error, two for a time."""

from __future__ import annotations

import math

NARROW_SPACE = "\u202f"
SIGN = f"{NARROW_SPACE}%"
LEAST, ROUNDING = 1e-5, 1e-8  # smallest error that is written out, and error below which it is rounding
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def bare(fraction: float) -> str:
    """Format a fraction in per cent, without the sign, with three digits."""
    if abs(fraction) < ROUNDING:
        return "0"
    if abs(fraction) < LEAST:
        return f"<{NARROW_SPACE}{100 * LEAST:g}"
    decimals = max(0, 2 - math.floor(math.log10(100 * abs(fraction))))
    return f"{100 * fraction:.{decimals}f}"


def percent(fraction: float) -> str:
    """Format a fraction in per cent."""
    return f"{bare(fraction)}{SIGN}"


def whole_percent(fraction: float) -> str:
    """Format a fraction in whole per cent."""
    return f"{100 * fraction:.0f}{SIGN}"


def power_of_ten(exponent: int) -> str:
    """Format a power of ten; one is 1."""
    return "10" + str(exponent).translate(RAISED) if exponent else "1"


def duration(seconds: float) -> str:
    """Format seconds with a suitable unit, to two digits."""
    scale, unit = (1, "s") if seconds < 99.5 else (60, "min") if seconds < 5970 else (3600, "h")
    number = seconds / scale
    digits = f"{number:.2f}" if number < 0.995 else f"{number:.1f}" if number < 9.95 else f"{number:.0f}"
    return f"{digits}{NARROW_SPACE}{unit}"


def span(numbers: list[float], digits: str = ".2f") -> str:
    """Format the range of numbers; one number if its ends are equal; nothing if there are none."""
    if not numbers:
        return ""
    low, high = f"{min(numbers):{digits}}", f"{max(numbers):{digits}}"
    return low if low == high else f"{low} to {high}"


def thousands(number: int) -> str:
    """Format a number with separated thousands."""
    return f"{number:,}".replace(",", NARROW_SPACE) if number >= 10_000 else str(number)
