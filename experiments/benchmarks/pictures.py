"""Write the pictures of the documentation, from stored results; those of stability and denoising need fits.

python -m experiments.benchmarks.pictures                 # all whose results are stored, 1 minute
python -m experiments.benchmarks.pictures --only speed    # docs/images/speed.png
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from experiments import IMAGES
from experiments.benchmarks import denoise, error_bars, limit, real, speed, stability, stream, which_one
from experiments.benchmarks.data import SETS
from experiments.benchmarks.study import EXACT, Row, group, no_warnings, show_time

OURS, PLAIN, PALE, THIRD, LINE, PAPER = "#4338ca", "#5c606c", "#c3c5cc", "#c2410c", "#dfddd6", "#f4f3ee"
COLOURS = (OURS, THIRD, "#0f766e", "#a16207", PLAIN, PALE, "#be185d", "#0369a1")
FOUND = 10.0  # mean angle in degrees up to which atoms count as found
CROP = (slice(60, 220), slice(170, 330))


def open_panels(width: float, height: float, rows: int = 1, columns: int = 1) -> list[Any]:
    """Make a figure, and return its panels."""
    figure: Any = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    panels = list(np.ravel(figure.subplots(rows, columns)))
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(color=LINE, linewidth=0.8)
        panel.set_axisbelow(True)
    return panels


def draw_real(rows: list[Row]) -> Figure:
    """Draw the gain of every method on every set, relative to the best peer."""
    (ax,), names = open_panels(9, 6.4), []
    for (name,), found in group(rows, "set").items():
        gains = {row["method"]: row["gain"] for row in found}
        best = max((gain for method, gain in gains.items() if method != real.OURS), default=0)
        if best > 0:
            for colour, method in zip((PLAIN, PALE, THIRD, OURS), real.METHODS, strict=True):
                ratio, label = min(gains.get(method, np.nan) / best, 1.75), None if names else method
                ax.plot(ratio, len(names), "o", color=colour, ms=10, label=label, mec="white")
            names.append(name)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.axvline(1, color=LINE)
    ax.set_xlabel("held-out gain, relative to the best peer")
    ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=4)
    return ax.figure  # type: ignore[no-any-return]


def draw_speed(rows: list[Row]) -> Figure:
    """Draw errors against seconds, one panel per problem."""
    shown = [(n, noise) for n in (32, 100) for noise in (0.0, 0.4)]
    panels = open_panels(15, 4.2, 1, len(shown))
    for panel, (n, noise) in zip(panels, shown, strict=True):
        found = [row for row in rows if (row["n"], row["noise"]) == (n, noise) and row["error"] is not None]
        for colour, method in zip(COLOURS, speed.METHODS, strict=True):
            own = [row for row in found if row["method"] == method]
            if own:
                error = 100 * max(float(np.mean([row["error"] for row in own])), speed.EXACT)
                seconds = np.median([row["seconds"] for row in own])
                panel.loglog(seconds, error, "o", color=colour, ms=11, label=method)
        panel.set(title=f"n = {n}, noise {noise:g}", xlabel="seconds")
        panel.legend(frameon=False, fontsize=8)
    panels[0].set_ylabel("error, %")
    return panels[0].figure  # type: ignore[no-any-return]


def draw_limit(rows: list[Row]) -> Figure:
    """Draw the error over the Cramer-Rao bound, by noise and by the number of samples."""
    panels = open_panels(12, 4.6, 1, 2)
    plain = [row for row in rows if row["n"] == 32 and row["density"] == 0.3 and row["noise"] and not row["corruption"]]
    parts = {"noise": [row for row in plain if row["r"] == 10_000], "r": [row for row in plain if row["noise"] == 0.2]}
    for ax, (name, found) in zip(panels, parts.items(), strict=True):
        for colour, ((method,), own) in zip(COLOURS, group(found, "method").items(), strict=False):
            own.sort(key=lambda row: row[name])
            ratios = [row["error"] / limit.find_bound(row) for row in own]
            ax.loglog([row[name] for row in own], ratios, "o-", color=colour, label=method)
        ax.set(xlabel="samples" if name == "r" else name, ylabel="error / Cramér-Rao bound", title="n = 32")
        ax.legend(frameon=False)
    return panels[0].figure  # type: ignore[no-any-return]


def draw_errors(rows: list[Row]) -> Figure:
    """Draw estimated errors against true errors."""
    (ax,), ends = open_panels(7.5, 7.5), np.array([EXACT, 1])
    for has_warned, colour, label in ((False, OURS, "no warning"), (True, THIRD, "with a warning")):
        own = [row for row in rows if bool(row["warnings"]) == has_warned and row["stated"] is not None]
        true, stated = np.maximum([(row["true"], row["stated"]) for row in own], EXACT).reshape(-1, 2).T
        ax.loglog(true, stated, "o", color=colour, ms=6, mec="white", mew=0.5, alpha=0.85, label=label)
    for factor in (0.5, 1, 2):
        ax.loglog(ends, factor * ends, color=PALE, linewidth=1, zorder=1)
    ax.set(xlabel="true error", ylabel="estimated error", title=f"{len(rows)} data sets; lines: within a factor of two")
    ax.legend(frameon=False)
    return ax.figure  # type: ignore[no-any-return]


def draw_stream(rows: list[Row]) -> Figure:
    """Draw the error on the way of one pass, and errors while the dictionary rotates."""
    left, right = panels = open_panels(13, 5, 1, 2)
    for colour, row in zip(
        COLOURS, (row for row in rows if not row["half_life"] and row["noise"] == 0.2), strict=False
    ):
        seen, errors = np.transpose(row["path"])
        theory = [100 * stream.predict({**row, "r": int(r)}) for r in seen]
        left.loglog(seen, 100 * errors, color=colour, label=f"stream, {'default' if row['refine'] else 'l_3'}")
        left.loglog(seen, theory, "--", color=colour, label="theory of a fit to all samples")
    moving = group((row for row in rows if row["speed"]), "half_life")
    for colour, ((half_life,), found) in zip(COLOURS, moving.items(), strict=False):
        speeds, predicted = [row["speed"] for row in found], [100 * stream.predict(row) for row in found]
        right.loglog(speeds, [100 * row["error"] for row in found], "o", color=colour, label=f"half life {half_life}")
        right.loglog(speeds, predicted, color=colour)
    left.set(xlabel="samples seen, each once", ylabel="error, %")
    right.set(xlabel="rotation per sample, radians", ylabel="error, %", title="lines: prediction")
    for panel in panels:
        panel.legend(frameon=False)
    return left.figure  # type: ignore[no-any-return]


def draw_which_one(rows: list[Row], *, tall: bool = False) -> Figure:
    """Draw angles as a table of cells; for phones, one panel per kind of data."""
    kinds, methods = list(which_one.KINDS), list(which_one.METHODS)
    panels = open_panels(6.4, 11.8, len(kinds)) if tall else open_panels(13, 6.4)
    for row in rows:
        i, j = kinds.index(row["kind"]), methods.index(row["method"])
        ax, y = (panels[i], 0) if tall else (panels[0], i)
        is_found = row["angle"] is not None and row["angle"] < FOUND
        ax.fill_between([j - 0.46, j + 0.46], y - 0.44, y + 0.44, color=OURS if is_found else PAPER)
        text = "-" if row["angle"] is None else f"{row['angle']:.1f}°\n{show_time(row['seconds'])}"
        ax.text(j, y, text, ha="center", va="center", color="white" if is_found else PLAIN, size=13)
    for i, ax in enumerate(panels):
        ax.spines[:].set_visible(False)
        ax.grid(visible=False)
        ax.set_xticks(range(len(methods)), [name.replace("DictionaryLearning", "Dict.Learn.") for name in methods])
        ax.set_yticks([] if tall else range(len(kinds)), [] if tall else kinds)
        ax.tick_params(length=0, labeltop=True, labelbottom=False)
        ax.set(ylim=(0.5 if tall else len(kinds) - 0.5, -0.5), title=kinds[i] if tall else "")
    panels[0].figure.suptitle("Mean angle between true atoms and those found")
    return panels[0].figure  # type: ignore[no-any-return]


def draw_stability(width: float, height: float) -> Figure:
    """Draw the values of components of the digits."""
    (ax,) = open_panels(width, height)
    with no_warnings():
        stability.find_path(SETS["handwritten digits"].load(), stability.PATH, 10).plot(ax)
    return ax.figure  # type: ignore[no-any-return]


def draw_denoised() -> Figure:
    """Draw a part of a photograph, denoised with several methods."""
    panels, names = open_panels(9, 6.4, 2, 3), ("DCT, threshold", "denoise", "threshold", "NL-means")
    images = dict(zip(("photograph", "noisy"), denoise.load_noisy("camera", 25.0), strict=True))
    images |= {name: denoise.denoise("camera", 25.0, name) for name in names}
    for ax, (name, image) in zip(panels, images.items(), strict=True):
        ax.imshow(image[CROP], cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        ax.set(xticks=[], yticks=[], title=name)
    return panels[0].figure  # type: ignore[no-any-return]


PICTURES: dict[str, tuple[Any, Callable[..., Figure]]] = {
    "real-data": (real, draw_real),
    "speed": (speed, draw_speed),
    "limit": (limit, draw_limit),
    "stated-and-true": (error_bars, draw_errors),
    "stream": (stream, draw_stream),
    "which-one": (which_one, draw_which_one),
    "which-one-tall": (which_one, lambda rows: draw_which_one(rows, tall=True)),
    "stability": (None, lambda: draw_stability(8.0, 4.5)),
    "stability-tall": (None, lambda: draw_stability(4.4, 5.0)),
    "clean": (None, draw_denoised),
}
"""Pictures, with the module of the stored results that they show."""


def main() -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PICTURES), default=list(PICTURES))
    for name in parser.parse_args().only:
        module, draw = PICTURES[name]
        rows = [] if module is None else [module.STUDY.read()]
        if rows == [[]]:
            print(f"{name}: not measured yet")
            continue
        with mpl.rc_context({"font.size": 12}):
            draw(*rows).savefig(IMAGES / f"{name}.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
