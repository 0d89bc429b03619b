"""The pictures of the documentation, from stored results; those of atoms, stability and denoising need a fit.

python -m experiments.benchmarks.pictures                 # all whose results are stored, 1 minute
python -m experiments.benchmarks.pictures --only speed    # writes docs/images/speed.png
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from elldict.theory import cramer_rao_bound, expected_error
from experiments import IMAGES
from experiments.benchmarks import denoise, error_bars, limit, real, speed, stability, stream, which_one
from experiments.benchmarks.data import SETS
from experiments.benchmarks.study import EXACT, Row, group, no_warnings, show_time

OURS, PLAIN, PALE, THIRD, LINE = "#4338ca", "#5c606c", "#c3c5cc", "#c2410c", "#dfddd6"
COLOURS = (OURS, THIRD, "#0f766e", "#a16207", PLAIN, PALE, "#be185d", "#0369a1")
FOUND = 10.0  # mean angle in degrees up to which atoms count as found
CROP = (slice(60, 220), slice(170, 330))


def open_figure(width: float, height: float, n: int = 1) -> tuple[Figure, list[Axes]]:
    """Make a figure of n panels side by side, without boxes."""
    figure: Any = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    panels = list(np.ravel(figure.subplots(1, n)))
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(color=LINE, linewidth=0.8)
        panel.set_axisbelow(True)
    return figure, panels


def draw_real(rows: list[Row]) -> Figure:
    """Draw the gain of every method on every set, relative to the best peer."""
    figure, (ax,) = open_figure(9, 6.4)
    names = []
    for (name,), found in group(rows, "set").items():
        gains = {row["method"]: row["gain"] for row in found}
        best = max(gain for method, gain in gains.items() if method != real.OURS)
        if best <= 0:
            continue
        for colour, method in zip((PLAIN, PALE, THIRD, OURS), real.METHODS, strict=True):
            ratio = gains.get(method, np.nan) / best
            ax.plot(
                min(ratio, 1.75), len(names), "o", color=colour, ms=10, label=None if names else method, mec="white"
            )
        names.append(name)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.axvline(1, color=LINE)
    ax.set_xlabel("held-out gain, relative to the best peer")
    ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=4)
    return figure


def draw_speed(rows: list[Row]) -> Figure:
    """Draw errors against seconds, one panel per problem."""
    shown = [(n, noise) for n in (32, 100) for noise in (0.0, 0.4)]
    figure, panels = open_figure(15, 4.2, len(shown))
    for panel, (n, noise) in zip(panels, shown, strict=True):
        found = [row for row in rows if row["n"] == n and row["noise"] == noise and row["error"] is not None]
        for colour, method in zip(COLOURS, speed.METHODS, strict=True):
            own = [row for row in found if row["method"] == method]
            if own:
                error = max(float(np.mean([row["error"] for row in own])), speed.EXACT)
                panel.loglog(
                    np.median([row["seconds"] for row in own]), 100 * error, "o", color=colour, ms=11, label=method
                )
        panel.set(title=f"n = {n}, {f'noise {noise:g}' if noise else 'no noise'}", xlabel="seconds")
    panels[0].set_ylabel("error, %")
    panels[0].legend(frameon=False, fontsize=8)
    return figure


def draw_limit(rows: list[Row]) -> Figure:
    """Draw the error over the bound by noise, and the error by the number of samples."""
    figure, (left, right) = open_figure(12, 4.6, 2)
    for colour, method in zip(COLOURS, ("default", "l_3", "FastICA"), strict=False):
        own = [row for row in rows if row["method"] == method and row["n"] == 32 and not row["corruption"]]
        by_noise = [row for row in own if row["r"] == 10_000 and row["density"] == 0.3 and row["noise"]]
        by_samples = sorted(
            (row for row in own if row["noise"] == 0.2 and row["density"] == 0.3), key=lambda row: row["r"]
        )
        left.plot(
            [row["noise"] for row in by_noise],
            [row["error"] / limit.find_bound(row) for row in by_noise],
            "o-",
            color=colour,
            label=method,
        )
        right.loglog([row["r"] for row in by_samples], [100 * row["error"] for row in by_samples], "o-", color=colour)
        if method == "default":
            bounds = [100 * limit.find_bound(row) for row in by_samples]
            right.loglog([row["r"] for row in by_samples], bounds, "--", color="black", label="Cramér-Rao bound")
    left.set(xlabel="noise", ylabel="error / Cramér-Rao bound", yscale="log", title="n = 32, r = 10 000, density 0.3")
    right.set(xlabel="samples", ylabel="error, %", title="n = 32, noise 0.2")
    for panel in (left, right):
        panel.legend(frameon=False)
    return figure


def draw_errors(rows: list[Row]) -> Figure:
    """Draw estimated errors against true errors."""
    figure, (ax,) = open_figure(7.5, 7.5)
    for has_warned, colour, label in ((False, OURS, "no warning"), (True, THIRD, "with a warning")):
        own = [row for row in rows if bool(row["warnings"]) == has_warned and row["stated"] is not None]
        pairs = np.maximum([(row["true"], row["stated"]) for row in own], EXACT).reshape(-1, 2)
        ax.loglog(pairs[:, 0], pairs[:, 1], "o", color=colour, ms=6, mec="white", mew=0.5, alpha=0.85, label=label)
    ends = np.array([EXACT, 1])
    for factor in (0.5, 1, 2):
        ax.loglog(ends, factor * ends, color=PALE, linewidth=1, zorder=1)
    ax.set(xlabel="true error", ylabel="estimated error", title=f"{len(rows)} data sets; lines: within a factor of two")
    ax.legend(frameon=False)
    return figure


def draw_stream(rows: list[Row]) -> Figure:
    """Draw the error on the way of one pass, and errors while the dictionary rotates."""
    figure, (left, right) = open_figure(13, 5, 2)
    for row in (row for row in rows if row["half_life"] is None and row["noise"] == 0.2):
        colour, name = (THIRD, "l_3") if row["refine"] is None else (OURS, "default")
        seen, errors = np.transpose(row["path"])
        left.loglog(seen, 100 * errors, color=colour, linewidth=2.5, label=f"stream, {name}")
        setting: Any = {"n_features": row["n"], "density": stream.DENSITY, "noise_std": row["noise"]}
        theory = [
            expected_error(3, n_samples=int(r), **setting)
            if row["refine"] is None
            else cramer_rao_bound(n_samples=int(r), **setting)
            for r in seen
        ]
        left.loglog(seen, 100 * np.array(theory), "--", color=colour, label=f"theory of a fit, {name}")
    for colour, ((half_life,), found) in zip(
        COLOURS, group((r for r in rows if r["speed"]), "half_life").items(), strict=False
    ):
        right.loglog(
            [row["speed"] for row in found],
            [100 * row["error"] for row in found],
            "o",
            color=colour,
            label=f"half life {half_life}",
        )
        right.loglog([row["speed"] for row in found], [100 * stream.predict(row) for row in found], color=colour)
    left.set(xlabel="samples seen, each once", ylabel="error, %")
    right.set(xlabel="rotation per sample, radians", ylabel="error, %", title="lines: prediction")
    for panel in (left, right):
        panel.legend(frameon=False)
    return figure


def draw_which_one(rows: list[Row], *, tall: bool = False) -> Figure:
    """Draw angles as a table of cells; for phones one panel per kind of data."""
    kinds, methods = list(which_one.KINDS), list(which_one.METHODS)
    figure: Any = Figure(figsize=(6.4, 11.8) if tall else (13, 6.4), layout="constrained", facecolor="white")
    panels = list(np.ravel(figure.subplots(len(kinds) if tall else 1, 1)))
    for row in rows:
        i, j = kinds.index(row["kind"]), methods.index(row["method"])
        ax, y = (panels[i], 0) if tall else (panels[0], i)
        is_found = row["angle"] is not None and row["angle"] < FOUND
        ax.fill_between([j - 0.46, j + 0.46], y - 0.44, y + 0.44, color=OURS if is_found else "#f4f3ee")
        text = "-" if row["angle"] is None else f"{row['angle']:.1f}°\n{show_time(row['seconds'])}"
        ax.text(j, y, text, ha="center", va="center", color="white" if is_found else PLAIN, size=13)
    labels = [method.replace("DictionaryLearning", "Dict.Learn.") for method in methods]
    for i, ax in enumerate(panels):
        ax.spines[:].set_visible(False)
        ax.set_xticks(range(len(methods)), labels)
        ax.set_yticks([] if tall else range(len(kinds)), [] if tall else kinds)
        ax.tick_params(length=0, labeltop=True, labelbottom=False)
        ax.set_ylim(0.5 if tall else len(kinds) - 0.5, -0.5)
        if tall:
            ax.set_title(kinds[i], loc="left")
    figure.suptitle("Mean angle between true atoms and those found")
    return figure  # type: ignore[no-any-return]


def draw_stability(*, tall: bool = False) -> Figure:
    """Draw the values of components of the digits."""
    figure, (ax,) = open_figure(*((4.4, 5.0) if tall else (8.0, 4.5)))
    with no_warnings():
        stability.find_path(SETS["handwritten digits"].load(), stability.PATH, 10).plot(ax)
    return figure


def draw_denoised() -> Figure:
    """Draw a part of a photograph, denoised with several methods."""
    truth, noisy = denoise.load_noisy("camera", 25.0)
    methods = ("DCT, threshold", "elldict, denoise", "elldict, threshold", "NL-means")
    images = {"photograph": truth, "noisy": noisy, **{name: denoise.denoise("camera", 25.0, name) for name in methods}}
    figure: Any = Figure(figsize=(9, 6.4), layout="constrained", facecolor="white")
    for ax, (name, image) in zip(np.ravel(figure.subplots(2, 3)), images.items(), strict=True):
        ax.imshow(image[CROP], cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        ax.set(xticks=[], yticks=[], title=name)
    return figure  # type: ignore[no-any-return]


PICTURES: dict[str, Callable[[], Figure | None]] = {
    "real-data": lambda: draw_stored(real, draw_real),
    "speed": lambda: draw_stored(speed, draw_speed),
    "limit-noise": lambda: draw_stored(limit, draw_limit),
    "stated-and-true": lambda: draw_stored(error_bars, draw_errors),
    "stream": lambda: draw_stored(stream, draw_stream),
    "which-one": lambda: draw_stored(which_one, draw_which_one),
    "which-one-tall": lambda: draw_stored(which_one, lambda rows: draw_which_one(rows, tall=True)),
    "stability": draw_stability,
    "stability-tall": lambda: draw_stability(tall=True),
    "clean": draw_denoised,
}


def draw_stored(module: Any, draw: Callable[[list[Row]], Figure]) -> Figure | None:
    """Draw the stored results of a study; None if there are none."""
    rows = [row for row in module.STUDY.read() if row["status"] == "done"]
    return draw(rows) if rows else None


def main() -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PICTURES), default=list(PICTURES))
    for name in parser.parse_args().only:
        with mpl.rc_context({"font.size": 12}):
            figure = PICTURES[name]()
            if figure is not None:
                figure.savefig(IMAGES / f"{name}.png", dpi=110, metadata={"Software": None})
        print(f"{name}: {'no results' if figure is None else 'written'}", flush=True)


if __name__ == "__main__":
    main()
