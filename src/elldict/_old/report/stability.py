"""Drawing how stable atoms are: values in, axes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from elldict._old.report.style import LIGHT, frame_axes

Values = Sequence[NDArray[Any]]


def draw_values(axes: Axes, n_components: Sequence[int], values: Values, threshold: float) -> None:
    """Sorted values of the atoms of one fit."""
    ordered = np.sort(values[0])[::-1]
    stable = int(np.sum(ordered >= threshold))
    _draw_threshold(axes, threshold)
    numbers = np.arange(1, len(ordered) + 1)
    axes.vlines(numbers, 0, ordered, color=LIGHT.line, linewidth=1.2, zorder=1)
    for part, colour in ((slice(None, stable), LIGHT.curves[0]), (slice(stable, None), LIGHT.plain)):
        axes.plot(numbers[part], ordered[part], "o", color=colour, markersize=5, zorder=3)
    axes.set(xlim=(0.3, len(ordered) + 0.7), xlabel="atoms, most stable first", ylabel="stability")
    title = f"{stable} of {n_components[0]} atoms are stable"
    axes.set_title(title, loc="left", color=LIGHT.ink, weight="bold")
    _style(axes)


def draw_path(axes: Axes, n_components: Sequence[int], values: Values, threshold: float) -> None:
    """Every atom a dot at its number of components, the most stable on the left, and how many of them are stable."""
    order = np.argsort(n_components)
    ks = np.asarray(n_components)[order]
    shown = [np.sort(values[index])[::-1] for index in order]
    counts = [int(np.sum(row >= threshold)) for row in shown]
    width = 0.36 * float(np.min(np.diff(ks)))
    _draw_threshold(axes, threshold)
    for k, row, count in zip(ks, shown, counts, strict=True):
        across = k + width * (2 * (np.arange(len(row)) + 0.5) / len(row) - 1)
        for part, colour in ((slice(None, count), LIGHT.curves[0]), (slice(count, None), LIGHT.plain)):
            axes.plot(across[part], row[part], "o", color=colour, markersize=4, alpha=0.7, markeredgewidth=0, zorder=2)
        axes.hlines(np.median(row), k - width, k + width, color=LIGHT.ink, linewidth=1.8, zorder=3)
        weight = "bold" if count == max(counts) else "normal"
        axes.text(k, 1.04, str(count), color=LIGHT.curves[0], weight=weight, ha="center", va="bottom")
    margin = 1.6 * width + 0.01 * float(ks[-1] - ks[0])
    axes.set(xlim=(ks[0] - margin, ks[-1] + margin), xlabel="number of components", ylabel="stability of an atom")
    axes.set_xticks(ks)
    beside = axes.get_yaxis_transform()  # x in shares of the axes, y in values
    axes.text(-0.01, 1.04, "stable", color=LIGHT.curves[0], transform=beside, ha="right", va="bottom")
    axes.text(1.01, float(np.median(shown[-1])), "median", color=LIGHT.ink, transform=beside, va="center")
    title = "How many atoms come back from other samples"
    axes.set_title(title, loc="left", color=LIGHT.ink, weight="bold", pad=24)
    _style(axes)


def _draw_threshold(axes: Axes, threshold: float) -> None:
    axes.axhline(threshold, color=LIGHT.curves[0], linewidth=1.2, linestyle=(0, (5, 4)), alpha=0.75, zorder=1)


def _style(axes: Axes) -> None:
    axes.set_ylim(0, 1.02)
    frame_axes(axes, "y")
