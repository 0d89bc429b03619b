"""Names and colours of the methods, the same in all pictures and tables."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.harness.axes import CURVES, MUTED, PLAIN


@dataclass(frozen=True)
class Look:
    """Name, colour and marker of a method."""

    label: str
    colour: str
    marker: str = "o"


LOOKS = {
    "default": Look("elldict", CURVES[1]),
    # the larger p, the paler
    "l3": Look("ℓ₃", CURVES[0]),
    "l4": Look("ℓ₄", "#6d64d6", "s"),
    "l5": Look("ℓ₅", "#938ce4", "D"),
    "l6": Look("ℓ₆", "#b9b4ef", "v"),
    "fastica": Look("FastICA", CURVES[2], "^"),
    "picard": Look("Picard", MUTED, "P"),
    "rtr": Look("RTR", "#a21caf", "X"),
    "ksvd": Look("K-SVD", "#b98900", "d"),
    "gradient": Look("Gradient steps", PLAIN),
}
