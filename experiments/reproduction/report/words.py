"""Numbers in words, the same everywhere in the report: plain decimals, three digits for an error, two for the rest."""

from __future__ import annotations

NARROW_SPACE = "\u202f"
SIGN = f"{NARROW_SPACE}%"
MINUTE, HOUR = 60, 3600

LEAST, ROUNDING = 1e-3, 1e-6
"""In per cent: the smallest error that is written out, and the size below which it is rounding."""

LEAST_SPREAD = 1e-4
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
LOWERED = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def percent(share: float) -> str:
    """A share in per cent."""
    return f"{bare(share)}{SIGN}"


def whole_percent(share: float) -> str:
    """A share in whole per cent."""
    return f"{100 * share:.0f}{SIGN}"


def bare(share: float) -> str:
    """A share in per cent without the sign, to three digits."""
    return _digits(100 * share, 3, LEAST)


def two_digits(share: float) -> str:
    """A spread in per cent without the sign."""
    return _digits(100 * share, 2, LEAST_SPREAD)


def _digits(number: float, n_digits: int, least: float) -> str:
    """A number to so many digits, without an exponent; what is smaller than the least is said to be."""
    if abs(number) < ROUNDING:
        return "0"
    if abs(number) < least:
        return f"<{NARROW_SPACE}{least:.{n_digits + 2}f}".rstrip("0")
    n_before = len(f"{int(abs(number))}") if abs(number) >= 1 else 0
    decimals = n_digits - n_before
    threshold = 0.1
    while n_before == 0 and abs(number) < threshold:
        decimals, threshold = decimals + 1, threshold / 10
    return f"{number:.{max(decimals, 0)}f}"


def printed(text: str) -> str:
    """A number of the paper with all of its digits, and a zero before the point."""
    return f"0{text}" if text.startswith(".") else text


def power_of_ten(exponent: int) -> str:
    """A power of ten; one is 1."""
    return f"10{exponent}".replace(str(exponent), str(exponent).translate(RAISED)) if exponent else "1"


def plural(number: int, what: str) -> str:
    """A number of things."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def norm(p: float) -> str:
    """The letter l with its index."""
    return "ℓ" + f"{p:g}".translate(LOWERED)


def duration(seconds: float) -> str:
    """Seconds in a unit that suits them, to two digits."""
    if seconds < 99.5:
        return f"{_two(seconds)}{NARROW_SPACE}s"
    if seconds < 99.5 * MINUTE:
        return f"{_two(seconds / MINUTE)}{NARROW_SPACE}min"
    return f"{_two(seconds / HOUR)}{NARROW_SPACE}h"


def _two(number: float) -> str:
    return f"{number:.2f}" if number < 0.995 else f"{number:.1f}" if number < 9.95 else f"{number:.0f}"


def span(least: float, most: float, digits: str = ".2f") -> str:
    """From the least to the most; one number if they are the same."""
    low, high = f"{least:{digits}}", f"{most:{digits}}"
    return low if low == high else f"{low} to {high}"


def thousands(number: int) -> str:
    """A number with its thousands set apart."""
    return f"{number:,}".replace(",", NARROW_SPACE) if number >= 10_000 else str(number)
