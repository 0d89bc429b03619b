"""Names and colours of the methods, the same in all pictures and tables."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.harness.axes import CURVES, MUTED, PLAIN


@dataclass(frozen=True)
class Style:
    """Name, colour and marker of a method."""

    label: str
    colour: str
    marker: str = "o"


STYLES = {
    "default": Style("elldict", CURVES[1]),
    # the larger p, the paler
    "l3": Style("ℓ₃", CURVES[0]),
    "l4": Style("ℓ₄", "#6d64d6", "s"),
    "l5": Style("ℓ₅", "#938ce4", "D"),
    "l6": Style("ℓ₆", "#b9b4ef", "v"),
    "fastica": Style("FastICA", CURVES[2], "^"),
    "picard": Style("Picard", MUTED, "P"),
    "rtr": Style("RTR", "#a21caf", "X"),
    "ksvd": Style("K-SVD", "#b98900", "d"),
    "gradient": Style("Gradient steps", PLAIN),
}
