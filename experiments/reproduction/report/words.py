"""Numbers in words, the same everywhere in the report."""

from __future__ import annotations

NARROW_SPACE = "\u202f"
MINUTE, HOUR = 60, 3600


def percent(share: float) -> str:
    """A share in per cent."""
    return f"{bare(share)}{NARROW_SPACE}%"


def whole_percent(share: float) -> str:
    """A share in whole per cent."""
    return f"{100 * share:.0f}{NARROW_SPACE}%"


def bare(share: float) -> str:
    """A share in per cent without the sign, to three digits; what is below a millionth of a per cent is rounding."""
    number = 100 * share
    if abs(number) < 1e-6:
        return "0"
    if abs(number) < 1e-3:
        return f"{number:.1e}".replace("e-0", "e-")
    return f"{number:.{4 if abs(number) < 0.1 else 3 if abs(number) < 1 else 2 if abs(number) < 10 else 1}f}"


def two_digits(share: float) -> str:
    """A spread in per cent without the sign."""
    number = 100 * share
    return "0" if number < 1e-6 else f"{number:.1e}".replace("e-0", "e-") if number < 1e-3 else f"{number:.2g}"


def plural(number: int, what: str) -> str:
    """A number of things."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def norm(p: float) -> str:
    """The letter l with its index."""
    return "ℓ" + f"{p:g}".translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


def duration(seconds: float) -> str:
    """Seconds in a unit that suits them."""
    if seconds < 0.995:
        return f"{seconds:.2f}{NARROW_SPACE}s"
    if seconds < 99.5:
        return f"{seconds:.3g}{NARROW_SPACE}s"
    if seconds < 10 * MINUTE:
        return f"{seconds:.0f}{NARROW_SPACE}s"
    if seconds < 99.5 * MINUTE:
        return f"{seconds / MINUTE:.0f}{NARROW_SPACE}min"
    return f"{seconds / HOUR:.1f}{NARROW_SPACE}h"


def thousands(number: int) -> str:
    """A number with its thousands set apart."""
    return f"{number:,}".replace(",", NARROW_SPACE) if number >= 10_000 else str(number)
