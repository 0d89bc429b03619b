"""Style of the pictures of the experiments, in the colours of the library's plots."""

from __future__ import annotations

from matplotlib.axes import Axes

from elldict.report.figures import INK, LINE, MUTED, frame

__all__ = ["CURVES", "INK", "LINE", "MUTED", "PAPER", "PLAIN", "TILE", "quiet"]

CURVES = ("#4338ca", "#0f766e", "#c2410c")  # l_p, elldict, FastICA
PLAIN = "#9a9ca6"  # other baselines
PAPER, TILE = "#f6f5f1", "#f1f0eb"  # background of a page, and of an empty pixel


def quiet(axes: Axes) -> Axes:
    """Draw horizontal grid lines and no box; return the axes."""
    frame(axes)
    return axes
