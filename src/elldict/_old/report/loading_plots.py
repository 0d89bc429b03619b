"""Drawing rotated loadings: a panel a factor, with standard errors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from elldict._old.report.atom_plots import LETTER_INCHES, measure_ratio, measure_width, shorten
from elldict._old.report.style import LIGHT, Caption, frame_axes

Matrix = NDArray[np.float64]

MOST_ROWS, MOST_FACTORS = 40, 8
"""Rows whose names can be read, and factors that fit beside each other."""

MOST_LETTERS = 28
"""Of a name."""

TITLE_INCHES = 0.25
"""Room above a panel for its title."""

N_ERRORS = 2.0
"""Standard errors of a bar to each side, and of a loading that is drawn in colour: about 95 %."""


def choose_size(shape: tuple[int, ...]) -> tuple[float, float]:
    """Width and height of a figure, in inches."""
    p, k = min(shape[0], MOST_ROWS), min(shape[1], MOST_FACTORS)
    return 2.2 + max(1.75 * k, 3.0), 1.2 + 0.21 * max(p, 6)


def sort_rows(loadings: Matrix) -> NDArray[np.intp]:
    """Rows with the largest communalities, by the factor of their largest loading, and by its size within a factor."""
    size = np.abs(loadings)
    chosen = np.sort(np.argsort(-np.sum(size**2, axis=1), kind="stable")[:MOST_ROWS])
    order = np.lexsort((-np.max(size[chosen], axis=1), np.argmax(size[chosen], axis=1)))
    return np.asarray(chosen[order])


def draw_loadings(
    axes: Axes, loadings: Matrix, errors: Matrix | None, names: Sequence[str], source: str | None
) -> Caption:
    """Loadings (p, k) with errors (p, k), in a panel for each factor within the axes; rows are the same in all."""
    rows, k = sort_rows(loadings), min(loadings.shape[1], MOST_FACTORS)
    labels = [shorten(names[row], MOST_LETTERS) for row in rows]
    left = min(0.5, LETTER_INCHES * (max(map(len, labels)) + 2) / measure_width(axes))
    reach = 1.08 * float(np.max(np.abs(loadings[rows]) + (0 if errors is None else N_ERRORS * errors[rows])))
    tick = _choose_tick(reach)
    width, height = (1 - left) / k, 1 - min(0.3, TITLE_INCHES * measure_ratio(axes) / measure_width(axes))
    for factor in range(k):
        panel = axes.inset_axes((left + factor * width, 0.0, 0.92 * width, height))
        _draw_panel(panel, loadings[rows, factor], None if errors is None else errors[rows, factor])
        panel.set(xlim=(-reach, reach), xticks=[-tick, 0, tick])
        panel.set_title(f"factor {factor + 1}", size="medium", color=LIGHT.ink, pad=4)
        panel.set_yticks(range(len(rows)), labels if factor == 0 else [""] * len(rows), parse_math=False)
        panel.tick_params(axis="y", labelcolor=LIGHT.ink, labelsize="small")
    axes.axis("off")
    return _describe(loadings.shape, (len(rows), k), source)


def _choose_tick(reach: float) -> float:
    """The largest 1, 2 or 5 times a power of ten whose label does not meet that of the next panel."""
    most = 0.8 * reach
    power = 10.0 ** math.floor(math.log10(most))
    return max(step * power for step in (1, 2, 5) if step * power <= most)


def _draw_panel(panel: Axes, values: Matrix, errors: Matrix | None) -> None:
    """One factor: a point and a bar for each row, in colour where the bar leaves out zero."""
    places = np.arange(len(values))
    clear = np.ones(len(values), dtype=bool) if errors is None else np.abs(values) > N_ERRORS * errors
    colours = np.where(clear, np.where(values > 0, LIGHT.positive, LIGHT.negative), LIGHT.plain)
    frame_axes(panel, "y")
    panel.axvline(0, color=LIGHT.muted, linewidth=0.8, zorder=1)
    if errors is not None:
        reach = N_ERRORS * errors
        panel.hlines(places, values - reach, values + reach, colors=colours.tolist(), linewidth=1.6, zorder=2)
    panel.scatter(values, places, s=22, color=colours.tolist(), zorder=3)
    panel.set_ylim(len(values) - 0.4, -0.6)
    panel.tick_params(axis="x", labelsize="small")


def _describe(shape: tuple[int, ...], shown: tuple[int, int], source: str | None) -> Caption:
    """How many loadings are shown, and what bars and colours are."""
    parts = [f"{n}" if n == m else f"{n} of {m}" for n, m in zip(shown, shape, strict=True)]
    title = f"Loadings of {parts[0]} variables on {parts[1]} {'factor' if shape[1] == 1 else 'factors'}"
    if source is None:
        return title, "blue is positive, orange negative; no standard errors"
    return title, f"bars: twice the standard error over {source}; in grey where they reach zero"
