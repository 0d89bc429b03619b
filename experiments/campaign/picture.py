"""The picture of stated errors beside true ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from elldict.report.style import LIGHT
from experiments import IMAGES
from experiments.campaign.fits import Comparison
from experiments.harness.axes import quiet

if TYPE_CHECKING:
    from experiments.campaign.grid import Result

LOWEST = 1e-5
"""Errors below are drawn here, at the edge."""

EXACT_PLACE = 2.2e-6
"""Where fits are drawn that are exact and say so: in the corner, below all others."""

UNWARNED, WARNED = LIGHT.curves[0], LIGHT.curves[2]
FACTOR = 2.0


def draw(results: Sequence[Result]) -> None:
    """Write docs/images/stated-and-true.png."""
    found = [each.found for each in results if each.found is not None]
    style: Any = {"font.size": 13, "text.color": LIGHT.ink, "font.family": "sans-serif"}
    with mpl.rc_context(style):
        figure = Figure(figsize=(9.6, 8.4), layout="constrained", facecolor="white")
        show_errors(figure.subplots(), found)
        figure.savefig(IMAGES / "stated-and-true.png", dpi=120, metadata={"Software": None})


def show_errors(ax: Axes, found: Sequence[Comparison]) -> None:
    """Every fit as a point, with the band of a factor 2."""
    show_band(ax)
    inexact = [each for each in found if not each.exact]
    for warned, colour, label in ((False, UNWARNED, "no warning"), (True, WARNED, "the fit warned")):
        chosen = [each for each in inexact if each.warned == warned]
        true, stated = (np.maximum(np.array(column), LOWEST) for column in collect_errors(chosen))
        ax.plot(true, stated, "o", color=colour, ms=7.5, mec="white", mew=0.7, alpha=0.85, label=label, zorder=3)
    show_exact(ax, len(found) - len(inexact))
    style_errors(ax, len(found))


def collect_errors(found: Sequence[Comparison]) -> tuple[list[float], list[float]]:
    """True errors and stated ones."""
    return [each.true for each in found], [0.0 if each.stated is None else each.stated for each in found]


def show_band(ax: Axes) -> None:
    """Where stated and true error are equal, and within a factor 2."""
    line = np.array([LOWEST / 2, 2.0])
    ax.fill_between(line, line / FACTOR, line * FACTOR, color=LIGHT.curves[1], alpha=0.13, lw=0, zorder=1)
    ax.plot(line, line, color=LIGHT.curves[1], lw=1.2, zorder=2)


def show_exact(ax: Axes, count: int) -> None:
    """One mark for all fits that are exact and say so."""
    if count:
        ax.plot(EXACT_PLACE, EXACT_PLACE, "o", color=UNWARNED, ms=26, mec="white", zorder=3)
        ax.annotate(str(count), (EXACT_PLACE, EXACT_PLACE), color="white", ha="center", va="center", weight="bold")


def style_errors(ax: Axes, count: int) -> None:
    """Axes in per cent, title and legend."""
    quiet(ax)
    ax.set(xscale="log", yscale="log", xlim=(1e-6, 1.6), ylim=(1e-6, 1.6), aspect="equal")
    places = [1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0]
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(FixedLocator([EXACT_PLACE, *places]))
        axis.set_minor_locator(NullLocator())
        axis.set_ticklabels(["exact", *(f"{100 * place:g} %" for place in places)])
    ax.grid(color=LIGHT.line, lw=0.8)
    ax.set_xlabel("true error")
    ax.set_ylabel("error that the fit states")
    ax.set_title(f"Stated and true error of {count} fits", size=18, weight="bold", loc="left", pad=40)
    ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 1), ncols=2, frameon=False, handletextpad=0.1)
