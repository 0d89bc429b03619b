"""The picture of stated errors beside true ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from elldict._old.report.style import LIGHT
from experiments import IMAGES
from experiments.campaign.fits import EXACT, Comparison
from experiments.harness.axes import quiet

if TYPE_CHECKING:
    from experiments.campaign.grid import Result

LOWEST = 1e-6
"""Errors below that are not exact are drawn here, at the edge."""

EXACT_PLACE = 1.6e-7
"""Where exact errors are drawn: below all others, so that fits which are exact and say so are in the corner."""

UNWARNED, WARNED = LIGHT.curves[0], LIGHT.curves[2]
FACTOR = 2.0


def draw(results: Sequence[Result], folder: Path = IMAGES) -> None:
    """Write docs/images/stated-and-true.png."""
    found = [each.found for each in results if each.found is not None]
    style: Any = {"font.size": 12.5, "text.color": LIGHT.ink, "font.family": "sans-serif"}
    with mpl.rc_context(style):
        figure = Figure(figsize=(9.6, 9.6), layout="constrained", facecolor="white")
        show_errors(figure.subplots(), found)
        figure.savefig(folder / "stated-and-true.png", dpi=120, metadata={"Software": None})


def show_errors(ax: Axes, found: Sequence[Comparison]) -> None:
    """Every fit as a point, with the band of a factor 2."""
    show_band(ax)
    for warned, colour, label in ((False, UNWARNED, "no warning"), (True, WARNED, "the fit warned")):
        chosen = [each for each in found if each.warned == warned and not each.exact]
        places = [(place_error(each.true), place_error(each.stated)) for each in chosen]
        true, stated = np.array(places).reshape(-1, 2).T
        ax.plot(true, stated, "o", color=colour, ms=7.5, mec="white", mew=0.7, alpha=0.85, label=label, zorder=3)
    show_exact(ax, sum(each.exact for each in found))
    style_errors(ax, len(found))


def place_error(error: float | None) -> float:
    """Where an error is drawn; one that is not stated is not more than an exact one."""
    return EXACT_PLACE if error is None or error < EXACT else max(error, LOWEST)


def show_band(ax: Axes) -> None:
    """Where stated and true error are equal, and within a factor 2."""
    line = np.array([LOWEST / 2, 2.0])
    ax.fill_between(line, line / FACTOR, line * FACTOR, color=LIGHT.curves[1], alpha=0.13, lw=0, zorder=1)
    ax.plot(line, line, color=LIGHT.curves[1], lw=1.2, zorder=2)
    along: dict[str, Any] = {"rotation": 45, "rotation_mode": "anchor", "va": "top"}
    ax.text(1.2e-5, 1.2e-5 / FACTOR / 1.15, f"within a factor {FACTOR:g}", color=LIGHT.curves[1], **along)
    ax.text(3e-6, 0.03, "states too much", color=LIGHT.muted, size=15, va="center")
    ax.text(3e-3, 3e-6, "states too little", color=LIGHT.muted, size=15, va="center")


def show_exact(ax: Axes, count: int) -> None:
    """One mark for all fits that are exact and say so, whether they warn or not."""
    if count:
        ax.plot(EXACT_PLACE, EXACT_PLACE, "o", color=LIGHT.curves[1], ms=28, mec="white", zorder=3)
        ax.annotate(str(count), (EXACT_PLACE, EXACT_PLACE), color="white", ha="center", va="center", weight="bold")
        ax.text(
            3.2e-7, EXACT_PLACE, "exact, and said to be", color=LIGHT.curves[1], va="center", backgroundcolor="white"
        )


def style_errors(ax: Axes, count: int) -> None:
    """Axes in per cent, title and legend."""
    quiet(ax)
    ax.set(xscale="log", yscale="log", xlim=(6e-8, 1.6), ylim=(6e-8, 1.6), aspect="equal")
    places = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0]
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(FixedLocator([EXACT_PLACE, *places]))
        axis.set_minor_locator(NullLocator())
        axis.set_ticklabels(["exact", *(f"{100 * place:g} %" for place in places)])
    ax.grid(color=LIGHT.line, lw=0.8)
    ax.set_xlabel("true error")
    ax.set_ylabel("error that the fit states")
    ax.set_title(f"Stated and true error of {count} fits", size=18, weight="bold", loc="left", pad=40)
    ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 1), ncols=2, frameon=False, handletextpad=0.1)
