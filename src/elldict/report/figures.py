"""Drawings shared by plots and pages: arrays in, axes or pixels out. No setting of matplotlib is changed."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import cumulative_trapezoid

from elldict.samples.base import Array, Index
from elldict.summary import find_largest, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, MUTED, LINE, BAND = "#191b22", "#5c606c", "#dfddd6", "#f4f3ee"
POSITIVE, NEGATIVE, WEAK, PALE = "#4338ca", "#c2410c", "#9a9ca6", "#d9d6f7"

Pixels = NDArray[np.uint8]


def require(package: str) -> Any:
    """Import an optional package, or raise an error that says how to install it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        name = package.partition(".")[0]
        raise ImportError(
            f"{name} is needed for plots and pages. Install it with: pip install 'elldict[plot]'"
        ) from error


def open_axes(width: float, height: float) -> Axes:
    """Open a figure of a size in inches, and return its axes."""
    plt = require("matplotlib.pyplot")
    axes: Axes = plt.figure(figsize=(width, height), layout="constrained").add_subplot()
    return axes


def set_title(axes: Axes, title: str, note: str) -> None:
    """Write what is shown above the axes, and below it how to read it."""
    axes.set_title(title, loc="left", color=INK, weight="bold", pad=22)
    place: dict[str, Any] = {"xy": (0, 1), "xycoords": "axes fraction", "xytext": (0, 7), "textcoords": "offset points"}
    text = axes.annotate(note, **place, color=MUTED, size="small", annotation_clip=False)
    text.set_in_layout(False)  # a long one would make narrow axes still narrower


def frame(axes: Axes, grid: Any = "y", *, whole: bool = False) -> None:
    """Draw lines to read values by, and no box; label whole numbers along x only if asked to."""
    if whole:
        axes.xaxis.set_major_locator(require("matplotlib.ticker").MaxNLocator(integer=True, min_n_ticks=1))
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(LINE)
    axes.grid(axis=grid, color=LINE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, which="both", labelcolor=MUTED)
    axes.xaxis.label.set_color(MUTED)
    axes.yaxis.label.set_color(MUTED)


def label_values(axes: Axes, unit: str = "") -> None:
    """Label 1, 2 and 5 times powers of ten along a logarithmic axis, which has few powers of ten."""
    axes.yaxis.set_major_locator(require("matplotlib.ticker").LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}{unit}")


def choose_columns(n: int) -> int:
    """Choose the number of columns of a grid of n cells, about 1.5 times that of rows."""
    return max(1, min(n, round(math.sqrt(1.5 * n))))


def divide(axes: Axes, n: int, n_columns: int) -> list[Axes]:
    """Divide axes into panels, row by row, with room for titles."""
    axes.axis("off")
    width, height = 1 / n_columns, 1 / math.ceil(n / n_columns)
    corners = [(k % n_columns * width, 1 - (k // n_columns + 1) * height) for k in range(n)]
    return [axes.inset_axes((x, y, 0.9 * width, 0.78 * height)) for x, y in corners]


# --- components -------------------------------------------------------------------------------------------------------


def paint(components: Array) -> Pixels:
    """Paint components (m, ...), each scaled to its largest entry: blue is positive, orange negative."""
    colors = [NEGATIVE, "white", POSITIVE]
    shades = require("matplotlib.colors").LinearSegmentedColormap.from_list(
        "signs", colors, N=511
    )  # odd: zero is white
    return np.asarray(shades((1 + scale(components)) / 2, bytes=True)[..., :3])


def paint_images(images: Array) -> Pixels:
    """Paint components that are images: (m, h, w), or (m, h, w, 3) as colours around grey."""
    return paint(images) if images.ndim == 3 else np.asarray(np.round(127.5 * (scale(images) + 1)), dtype=np.uint8)


def scale(components: Array) -> Array:
    """Scale components (m, ...) to a largest entry of one."""
    largest = np.max(np.abs(components), axis=tuple(range(1, components.ndim)), keepdims=True)
    return np.asarray(components / np.where(largest > 0, largest, 1))


def draw_images(axes: Axes, images: Array, n_columns: int, texts: Sequence[str]) -> None:
    """Draw components (m, h, w) or (m, h, w, 3) side by side, with texts below them if there are any."""
    h, w = images.shape[1:3]
    step_x, step_y = 1.12 * w, 1.12 * h + (0.3 * w if texts else 0)
    for k, image in enumerate(paint_images(images)):
        x, y = k % n_columns * step_x, k // n_columns * step_y
        axes.imshow(image, extent=(x, x + w, y + h, y), interpolation="nearest")
        axes.add_patch(require("matplotlib.patches").Rectangle((x, y), w, h, fill=False, edgecolor=LINE, linewidth=0.5))
        if texts:
            axes.text(x + w / 2, y + h + 0.05 * w, texts[k], ha="center", va="top", size="x-small", color=MUTED)
    n_rows = math.ceil(len(images) / n_columns)
    axes.set(xlim=(-0.02 * w, n_columns * step_x), ylim=(n_rows * step_y, -0.02 * h), aspect="equal")
    axes.axis("off")
    axes.set_anchor("NW")


def draw_map(axes: Axes, components: Array, numbers: Index) -> None:
    """Draw components (m, n) as rows of an image."""
    axes.imshow(paint(components), aspect="auto", interpolation="nearest")
    ends = np.unique([0, len(numbers) - 1])
    axes.set_yticks(ends, [str(number) for number in numbers[ends]])
    axes.set(xlabel="feature", ylabel="component")
    frame(axes, whole=True)
    axes.grid(visible=False)


def draw_bars(panel: Axes, component: Array, names: Sequence[str], title: str) -> None:
    """Draw the largest features of a component (n,), the largest at the top, with names on the other side of zero."""
    n_bars = 8
    index = find_largest(component, n_bars)
    values = component[index]
    panel.barh(range(len(index)), values, height=0.7, color=[POSITIVE if v > 0 else NEGATIVE for v in values])
    reach = float(np.max(np.abs(values), initial=0)) or 1.0
    for k, (j, value) in enumerate(zip(index, values, strict=True)):
        x, side = -math.copysign(0.05 * reach, value), "right" if value > 0 else "left"
        panel.text(x, k, shorten(names[j], 14), ha=side, va="center", size="small", color=INK, parse_math=False)
    panel.axvline(0, color=LINE, linewidth=1)
    panel.set(xlim=(-1.1 * reach, 1.1 * reach), ylim=(n_bars - 0.4, -0.6), xticks=[], yticks=[])
    panel.spines[:].set_visible(False)
    panel.set_title(title, loc="left", size="medium", color=INK, pad=2)


# --- codes ------------------------------------------------------------------------------------------------------------


def make_histograms(model: Any, Z: Array) -> tuple[Array, Array, Array]:
    """Count codes (r, m) in bins, and integrate their fitted densities over the same bins.

    Returns the edges of the bins, in standard deviations, and two densities (m, B) in these units. Codes are normalised
    if the fit normalised samples.
    """
    fitted = model._distribution
    x = Z if fitted.normalization is None else fitted.normalization.apply(Z)
    std = fitted.density.std
    reach, n_bins = 6.0, 61  # an odd number, so that one is around zero
    edges = np.linspace(-reach, reach, n_bins + 1)
    counts = np.stack([np.histogram(column, edges)[0] for column in (x / std).T])
    # peaks at zero as narrow as rounding errors have most of the mass of codes that are zero
    fine = np.geomspace(1e-18, reach, 800)
    grid = np.unique(np.r_[-fine, 0, fine, edges, np.linspace(-reach, reach, 10 * n_bins)])
    density = np.exp(fitted.density.log_density(grid[:, None] * std)) * std
    mass = cumulative_trapezoid(density, grid, axis=0, initial=0)
    masses = np.diff(mass[np.searchsorted(grid, edges)], axis=0).T
    return edges, counts / len(x) / np.diff(edges), masses / np.diff(edges)


def draw_histogram(panel: Axes, histograms: tuple[Array, Array, Array], i: int) -> None:
    """Draw the distribution of the codes of component i, and the fitted density as a line."""
    edges, found, fitted = histograms
    panel.stairs(found[i], edges, fill=True, color=PALE, baseline=1e-9)
    panel.plot((edges[1:] + edges[:-1]) / 2, fitted[i], color=POSITIVE, linewidth=1.3)
    smallest = np.min(found[i][found[i] > 0], initial=np.max(fitted[i]))
    panel.set(yscale="log", ylim=(0.5 * smallest, 3 * max(np.max(found[i]), np.max(fitted[i]))))
    panel.set(xlim=edges[[0, -1]], xticks=[-5, 0, 5])
    panel.set_yticks([])
    panel.set_yticks([], minor=True)
    frame(panel, "x")
    panel.tick_params(labelsize="small")
    panel.set_title(str(i), loc="left", size="small", color=INK, pad=1)


def describe_codes(model: Any) -> str:
    """Describe how to read the panels."""
    normalized = "" if model._distribution.normalization is None else " of normalised samples"
    return f"codes{normalized} in standard deviations, logarithmic; line: fitted density"


def draw_series(axes: Axes, Z: Array, labels: Sequence[str], times: Index) -> None:
    """Draw columns of Z (r, k) below each other, each scaled to its largest value."""
    for k, column in enumerate(scale(Z.T)):
        axes.plot(times, -k + 0.45 * column, color=POSITIVE, linewidth=0.8)
    axes.set_yticks(-np.arange(len(labels)), labels)
    axes.set(xlabel="sample", xlim=(times[0], times[-1] + (len(times) == 1)))
    frame(axes)


# --- loadings ---------------------------------------------------------------------------------------------------------


def sort_rows(values: Array, most: int) -> Index:
    """Find the rows of largest communality, sorted by the factor of their largest loading (p, k), then by its size."""
    some = np.sort(np.argsort(-np.sum(values**2, axis=1), kind="stable")[:most])
    size = np.abs(values[some])
    return np.asarray(some[np.lexsort((-np.max(size, axis=1), np.argmax(size, axis=1)))])


def draw_loadings(panel: Axes, values: Array, errors: Array | None, reach: float) -> None:
    """Draw the loadings (p,) of a factor with twice their standard errors; grey if these include zero."""
    places = np.arange(len(values))
    wide = np.zeros(len(values)) if errors is None else 2 * errors
    colors = np.where(np.abs(values) > wide, np.where(values > 0, POSITIVE, NEGATIVE), WEAK).tolist()
    panel.hlines(places, values - wide, values + wide, colors=colors, linewidth=1.5)
    panel.scatter(values, places, s=18, color=colors, zorder=3)
    panel.axvline(0, color=MUTED, linewidth=0.8, zorder=1)
    panel.set(xlim=(-reach, reach), ylim=(len(values) - 0.4, -0.6))
    frame(panel, "y")
    panel.tick_params(labelsize="small")


# --- stability --------------------------------------------------------------------------------------------------------


def draw_stability(axes: Axes, found: Any, counts: Sequence[int], threshold: float) -> None:
    """Draw the sorted values of each number of components, side by side, with the number of stable ones above."""
    margin = axes.get_yaxis_transform()  # x in parts of the axes, y in values
    axes.axhline(threshold, color=POSITIVE, linewidth=1, linestyle=(0, (5, 4)), alpha=0.7, zorder=1)
    axes.text(1.01, threshold, f"{threshold:g}", color=POSITIVE, size="small", va="center", transform=margin)
    order = np.argsort(found.n_components)
    frame(axes, whole=len(order) == 1)
    for place, i in enumerate(order):
        rank = np.argsort(-found.values[i], kind="stable")
        values, k = found.values[i][rank], len(rank)
        x = 1 + np.arange(k) if len(order) == 1 else place + 0.8 * ((np.arange(k) + 0.5) / k - 0.5)
        colors = np.where(values >= threshold, POSITIVE, WEAK).tolist()
        if len(order) == 1:
            spread = found.spread[i][rank]
            low, high = np.maximum(values - spread, 0), np.minimum(values + spread, 1)
            axes.vlines(x, low, high, colors=colors, linewidth=1.5, alpha=0.5)
        axes.scatter(x, values, s=26 if k <= 60 else 12, color=colors, linewidth=0, zorder=3)
    if len(order) == 1:
        axes.set(xlim=(0.3, len(found.values[0]) + 0.7), xlabel="component, in the order of stability")
    else:
        for place, i in enumerate(order):
            weight = "bold" if counts[i] == max(counts) else "normal"
            axes.text(place, 1.03, str(counts[i]), color=POSITIVE, weight=weight, ha="center", va="bottom")
        axes.text(-0.015, 1.03, "stable", color=POSITIVE, ha="right", va="bottom", transform=margin)
        axes.set_xticks(range(len(order)), [str(found.n_components[i]) for i in order])
        axes.set(xlim=(-0.6, len(order) - 0.4), xlabel="number of components")
    axes.set(ylim=(0, 1.02 if len(order) == 1 else 1.1), ylabel="stability", yticks=np.linspace(0, 1, 6))
