"""One name and one colour for each method, in every picture and table; as in the pictures of the README."""

from __future__ import annotations

from dataclasses import dataclass

from elldict._old.report.style import DARK, LIGHT, Palette


@dataclass(frozen=True)
class Look:
    """A method's name, and its colour on a light and on a dark page."""

    label: str
    light: str
    dark: str
    marker: str = "o"

    def colour(self, palette: Palette) -> str:
        """On this page."""
        return self.light if palette is LIGHT else self.dark


LOOKS = {
    "default": Look("elldict", LIGHT.curves[1], DARK.curves[1]),
    "annealed": Look("elldict, p annealed", LIGHT.ink, DARK.ink, "s"),
    # one family: the larger p, the paler
    "l3": Look("ℓ₃", LIGHT.curves[0], DARK.curves[0]),
    "l4": Look("ℓ₄", "#6d64d6", "#8790e6", "s"),
    "l5": Look("ℓ₅", "#938ce4", "#6c75c4", "D"),
    "l6": Look("ℓ₆", "#b9b4ef", "#555d9e", "v"),
    "fastica": Look("FastICA", LIGHT.curves[2], DARK.curves[2], "^"),
    "picard": Look("Picard", LIGHT.muted, DARK.muted, "P"),
    "rtr": Look("RTR", "#a21caf", "#f0abfc", "X"),
    "ksvd": Look("K-SVD", "#b98900", "#f2d04e", "d"),
    "gradient": Look("Gradient steps", LIGHT.plain, DARK.plain),
}

NAMES = {look.label: name for name, look in LOOKS.items()}
"""Methods by the headings of their columns."""


def variables(palette: Palette) -> dict[str, str]:
    """Colours as CSS variables."""
    return {f"--method-{name}": look.colour(palette) for name, look in LOOKS.items()}
