"""The pictures of `limit.py`, for the README and for talks."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import NDArray

from elldict._old.report.style import LIGHT
from elldict.theory import cramer_rao_bound, expected_error
from experiments import IMAGES
from experiments.benchmarks.limit.fits import Fits, Result, Setting
from experiments.harness.axes import quiet

DPI = 150
QUIET_TEXT: dict[str, Any] = {"color": LIGHT.muted, "size": 14, "ha": "right", "va": "top"}
EXACT = 1e-6
"""Errors below this are rounding."""


@dataclass(frozen=True)
class Look:
    """How a method is drawn and named: exponents are a family, from dark to light."""

    name: str
    colour: str
    marker: str
    width: float = 2.2


LOOKS = {
    "l3": Look("ℓ₃", LIGHT.curves[0], "o"),
    "l4": Look("ℓ₄", "#6d64d6", "s"),
    "l5": Look("ℓ₅", "#938ce4", "D"),
    "FastICA": Look("FastICA", LIGHT.curves[2], "^"),
    "refined": Look("refined", LIGHT.curves[1], "o", 3.4),
    "annealed": Look("annealed, refined", LIGHT.ink, "s", 2.2),
}


def draw(fits: Fits, names: Sequence[str], seeds: int | None, *, small: bool) -> None:
    """Draw the named pictures, running the fits that are missing."""
    figures: dict[str, Callable[[], Figure]] = {
        "few-samples": lambda: few_samples_figure(fits, seeds, small=small),
        "noise": lambda: noise_figure(fits, seeds),
        "corruption": lambda: corruption_figure(fits, seeds),
    }
    style: Any = {"font.size": 14, "text.color": LIGHT.ink}
    for name in names:
        with mpl.rc_context(style):
            path = IMAGES / f"limit-{name}.png"
            figures[name]().savefig(path, dpi=DPI, metadata={"Software": None})
            print(f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path.name} written")


# --- few samples ------------------------------------------------------------------------------------------------------

RATIOS = (2, 3, 4, 5, 6, 8, 12)
PANELS = {30: 20, 60: 12, 100: 6}
"""Numbers of features, and seeds: fewer where a fit that fails takes half a minute."""

AT_FEW = ("FastICA", "l4", "l3", "refined", "annealed")
Shares = dict[str, list[tuple[float, float]]]
"""For each method, r / n and the share of exact recoveries."""


def few_samples_figure(fits: Fits, seeds: int | None, *, small: bool) -> Figure:
    """Share of exact recoveries against samples per feature, one panel for each number of features."""
    panels = {n: _shares(fits, n, seeds or PANELS[n]) for n in PANELS if not (small and n > 32)}
    panels = {n: found for n, found in panels.items() if found[0]["refined"]}  # what is stored may be less
    layout = ConstrainedLayoutEngine(wspace=0.06)
    figure = Figure(figsize=(2.2 + 4.2 * len(panels), 5.2), layout=layout, facecolor=LIGHT.card)
    figure.suptitle("Without noise: exact recovery from few samples", x=0.01, ha="left", size=19, weight="bold")
    all_axes = np.ravel(np.array(figure.subplots(1, len(panels), sharey=True)))
    for axes, (n, (shares, n_seeds)) in zip(all_axes, panels.items(), strict=True):
        _draw_shares(axes, shares)
        axes.set_title(f"n = {n}", size=16, loc="left", weight="bold")
        axes.set_title(f"{n_seeds} fits each", size=13, loc="right", color=LIGHT.muted)
        axes.set_xlabel("samples per feature, r / n")
        quiet(axes).tick_params(labelsize=13)
    all_axes[0].set_ylabel("exact, to an error below 1e-6")
    _name_shares(all_axes[-1], panels[max(panels)][0])
    return figure


def _shares(fits: Fits, n: int, seeds: int) -> tuple[Shares, int]:
    """Shares of exact recoveries, and the number of seeds behind each."""
    settings = [Setting(n, ratio * n, dtype="float64") for ratio in RATIOS]
    columns, number = _columns(fits, settings, seeds, AT_FEW)
    shares = {
        method: [
            (float(ratio), float(np.mean([result.exact for result in results])))
            for ratio, results in zip(RATIOS, column, strict=True)
            if results
        ]
        for method, column in columns.items()
    }
    return shares, number


def _draw_shares(axes: Axes, shares: Shares) -> None:
    for method, points in shares.items():
        look = LOOKS[method]
        x, y = zip(*points, strict=True)
        axes.plot(x, y, color=look.colour, marker=look.marker, markersize=7, linewidth=look.width, clip_on=False)
    axes.set(ylim=(-0.02, 1.03), xlim=(RATIOS[0] - 0.3, RATIOS[-1] + 0.3))
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["never", "25 %", "50 %", "75 %", "always"])
    axes.set_xticks(RATIOS)


def _name_shares(axes: Axes, shares: Shares) -> None:
    """Names beside the last panel: methods that succeed from the top downwards, the others upwards from below."""
    last = {method: points[-1][1] for method, points in shares.items()}
    good = [method for method in reversed(AT_FEW) if last[method] > 0.5]
    poor = [method for method in reversed(AT_FEW) if last[method] <= 0.5]
    for methods, height, step in ((good, 1.0, -0.07), (poor, 0.0, 0.07)):
        for number, method in enumerate(methods):
            look = LOOKS[method]
            axes.text(
                1.05,
                height + number * step,
                look.name,
                transform=axes.get_yaxis_transform(),
                color=look.colour,
                weight="bold",
                size=15,
                va="center",
            )


# --- error against noise or corruption --------------------------------------------------------------------------------

SIGMAS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
CORRUPTIONS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
BASE = Setting(32, 10_000)
AT_NOISE = ("l3", "l4", "l5", "FastICA", "refined")
EXPONENTS = {"l3": 3, "l4": 4, "l5": 5}
LOWEST, EXACT_LINE, TOP = 3e-6, 5e-6, 0.25
"""Ends of the axis of errors; those that are rounding are drawn on a line of their own."""


def noise_figure(fits: Fits, seeds: int | None) -> Figure:
    """Error against the level of Gaussian noise, beside what theory expects and allows."""
    settings = [replace(BASE, noise_std=sigma) for sigma in SIGMAS]
    errors, number = _errors(fits, settings, seeds or 10)
    figure, axes = _single("With Gaussian noise: down to the limit", number)
    _draw_limit(axes, SIGMAS[-1], lambda sigma: sigma, "out of reach of any unbiased method (Cramér-Rao)")
    _draw_expected(axes, SIGMAS[-1])
    _draw_errors(axes, SIGMAS, errors)
    axes.set_xlabel("standard deviation of the noise (that of an active code is 1)")
    axes.text(0.98, 0.97, "dashed: what theory expects of ℓ₃, ℓ₄, ℓ₅", transform=axes.transAxes, **QUIET_TEXT)
    return figure


def corruption_figure(fits: Fits, seeds: int | None) -> Figure:
    """Error against the size of sparse corruption, beside the limit for Gaussian noise of the same power."""
    settings = [replace(BASE, corruption=size) for size in CORRUPTIONS]
    errors, number = _errors(fits, settings, seeds or 5)
    figure, axes = _single("With sparse corruption: one entry in ten is hit", number)
    same_power = BASE.corruption_rate**0.5
    label = "the limit, were it Gaussian noise of the same power"
    _draw_limit(axes, CORRUPTIONS[-1], lambda size: size * same_power, label)
    _draw_errors(axes, CORRUPTIONS, errors)
    axes.set_xlabel("size of the corruption (the standard deviation of an active code is 1)")
    return figure


def _single(title: str, n_seeds: int) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(10.0, 6.4), layout="constrained", facecolor=LIGHT.card)
    axes = figure.add_subplot()
    axes.set_title(f"{title}\n", size=19, weight="bold", loc="left", x=-0.09)
    axes.text(-0.09, 1.03, _described(n_seeds), transform=axes.transAxes, color=LIGHT.muted, size=14)
    return figure, axes


def _described(n_seeds: int) -> str:
    n_samples = f"{BASE.n_samples:,}".replace(",", "\u2009")
    return (
        f"error in finding {BASE.n_features} atoms from {n_samples} samples, density {BASE.density:g}; "
        f"medians of {n_seeds} seeds"
    )


def _errors(fits: Fits, settings: Sequence[Setting], seeds: int) -> tuple[dict[str, list[float]], int]:
    """Median error of each method at each setting, and the number of seeds behind each.

    Not the mean: one fit in a wrong basin should not bend a curve.
    """
    columns, number = _columns(fits, settings, seeds, AT_NOISE)
    medians = {
        method: [float(np.median([result.error for result in results])) if results else math.nan for results in column]
        for method, column in columns.items()
    }
    return medians, number


def _draw_errors(axes: Axes, levels: Sequence[float], errors: dict[str, list[float]]) -> None:
    """A curve for each method, with its name where curves are far apart."""
    for method, column in errors.items():
        look = LOOKS[method]
        shown = np.where(np.array(column) < EXACT, EXACT_LINE, np.array(column))
        axes.plot(
            levels,
            shown,
            color=look.colour,
            marker=look.marker,
            markersize=7.5 if method == "refined" else 6.5,
            linewidth=look.width,
            zorder=3,
            clip_on=False,
        )
        _name_curve(axes, look, levels, shown)
    axes.set(yscale="log", ylim=(LOWEST, TOP), xlim=(-0.015 * levels[-1], 1.015 * levels[-1]))
    ticks = [level for level in levels if level != 0.05]  # too near to its neighbours for a number of its own
    axes.set_xticks(ticks, [f"{level:g}" for level in ticks])
    names = {EXACT_LINE: "exact", 1e-5: "0.001 %", 1e-4: "0.01 %", 1e-3: "0.1 %", 1e-2: "1 %", 1e-1: "10 %"}
    axes.set_yticks(list(names), list(names.values()))
    axes.minorticks_off()
    quiet(axes).tick_params(labelsize=13)


def _name_curve(axes: Axes, look: Look, levels: Sequence[float], errors: NDArray[np.float64]) -> None:
    """Names stand above the left ends of curves; a curve that rises steeply has its name to the right of it."""
    steep = errors[2] > 4 * errors[0]
    place = (levels[2], errors[2]) if steep else (levels[0], errors[0])
    axes.annotate(
        look.name,
        xy=place,
        xytext=(12, -8) if steep else (0, 8),
        textcoords="offset points",
        color=look.colour,
        weight="bold",
        size=16,
        va="top" if steep else "bottom",
    )


def _draw_limit(axes: Axes, last: float, noise_of: Callable[[float], float], label: str) -> None:
    """Shade what no unbiased method can reach."""
    levels = np.linspace(0, last, 200)[1:]
    limits = [cramer_rao_bound(**_law(), noise_std=noise_of(level)) for level in levels]
    axes.fill_between(levels, limits, LOWEST, color=LIGHT.tile, zorder=0, linewidth=0)
    axes.plot(levels, limits, color=LIGHT.muted, linewidth=1.4, zorder=1)
    axes.text(0.98, 0.235, label, transform=axes.transAxes, **QUIET_TEXT)


def _draw_expected(axes: Axes, last: float) -> None:
    levels = np.linspace(0, last, 60)
    for method, p in EXPONENTS.items():
        errors = [expected_error(p, **_law(), noise_std=level) for level in levels]
        axes.plot(levels, errors, color=LOOKS[method].colour, linewidth=1.3, linestyle=(0, (5, 4)), zorder=2)


def _law() -> dict[str, Any]:
    return {"n_features": BASE.n_features, "n_samples": BASE.n_samples, "density": BASE.density}


# --- common -----------------------------------------------------------------------------------------------------------


def _columns(
    fits: Fits, settings: Sequence[Setting], seeds: int, methods: Sequence[str]
) -> tuple[dict[str, list[list[Result]]], int]:
    """Results of each method at each setting, from as many seeds everywhere as the setting with the fewest has."""
    rows = []
    for setting in settings:
        print(setting, file=sys.stderr, flush=True)  # progress, apart from the results
        rows.append(fits.results(setting, seeds, methods))
    number = min(len(row[methods[0]]) for row in rows)
    return {method: [row[method][:number] for row in rows] for method in methods}, number
