"""Figure 2: the l_p norm as a landscape on the sphere, rendered."""

from __future__ import annotations

import functools

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from elldict._old.report.style import LIGHT, Palette
from experiments.reproduction.experiment import Claim, Experiment, Picture, Section, Size, Verdict
from experiments.reproduction.report import drawing
from experiments.reproduction.report.words import percent
from experiments.reproduction.results import Results

EXPONENTS = (3, 4, 6, 10)
RELIEF = 0.42
PIXELS = 640
REACH = 1.46

Field = NDArray[np.float64]


def heights(points: Field, p: float) -> Field:
    """||a||_p^p on the sphere for points (..., 3) of any length, from 0 at its least to 1 at the axes."""
    directions = np.abs(points) / np.linalg.norm(points, axis=-1, keepdims=True)
    least = 3 ** (1 - p / 2)
    return np.asarray((np.sum(directions**p, axis=-1) - least) / (1 - least))


def section(results: Results, size: Size) -> Section:  # noqa: ARG001  nothing is run for it
    """The figure and its claim."""
    return Section(
        "Why the sparsest directions win",
        "Every p above 2 peaks on the axes, where all but one coordinate is zero: the sparse directions.",
        "The sum of |a|ᵖ over the unit sphere in three dimensions, as height and colour. A larger p "
        "makes the peaks narrower and the plains between them flatter. It is geometry: no method is run.",
        pictures=(
            Picture(
                "figure2",
                "The landscape of the ℓₚ norm for p = " + ", ".join(map(str, EXPONENTS)) + ". Peaks are the directions "
                "that are sparse.",
                "Four spheres with six peaks each on the axes, which get narrower as p grows",
                draw,
                smooth=True,
            ),
        ),
        claims=(_claim(),),
    )


def _claim() -> Claim:
    """Climb from many starts and see where one ends."""
    text = "Maximising any ℓₚ norm with p > 2 over the sphere leads to the coordinates."
    starts = np.random.default_rng(0).standard_normal((2000, 3))
    starts /= np.linalg.norm(starts, axis=1, keepdims=True)
    worst = 1.0
    for p in EXPONENTS:
        points = starts
        for _ in range(200):
            points = np.sign(points) * np.abs(points) ** (p - 1)  # the power method on one sample of each axis
            points /= np.linalg.norm(points, axis=1, keepdims=True)
        worst = min(worst, float(np.mean(np.max(np.abs(points), axis=1) > 1 - 1e-9)))
    found = f"{percent(worst)} of 2000 random starts end there, or more, for each of the exponents drawn."
    return Claim(text, found, Verdict.HOLDS if worst > 0.999 else Verdict.FAILS)


# --- rendering --------------------------------------------------------------------------------------------------------


@functools.cache
def rendered(p: float) -> tuple[Field, Field]:
    """Height and light at each pixel (h, w) of a view of the landscape; height is NaN beside it.

    The surface has radius 1 + RELIEF height. Rays march towards it, and bisection finds where they meet it.
    """
    across = np.linspace(-REACH, REACH, PIXELS)
    x, y = (grid.ravel() for grid in np.meshgrid(across, -across))
    height, light = np.full(x.size, np.nan), np.zeros(x.size)
    hit, depth = _march(x, y, p)
    height[hit] = heights(np.stack([x[hit], y[hit], depth], axis=-1) @ _view(), p)
    light[hit] = _light(x[hit], y[hit], depth, p)
    return height.reshape(PIXELS, PIXELS), light.reshape(PIXELS, PIXELS)


def _march(x: Field, y: Field, p: float) -> tuple[NDArray[np.intp], Field]:
    """Rays that meet the surface, and how near to the viewer they do."""
    step = REACH / 60
    flying = np.flatnonzero(np.hypot(x, y) < 1 + RELIEF)
    hits, depths = [], []
    for z in np.arange(REACH, -REACH, -step):
        inside = _distance(x[flying], y[flying], np.full(flying.size, z), p) < 0
        hits.append(flying[inside])
        depths.append(np.full(hits[-1].size, z))
        flying = flying[~inside]
    hit, below = np.concatenate(hits), np.concatenate(depths)
    above = below + step
    for _ in range(14):
        middle = (above + below) / 2
        inside = _distance(x[hit], y[hit], middle, p) < 0
        below, above = np.where(inside, middle, below), np.where(inside, above, middle)
    return hit, below


def _view() -> Field:
    """Rows: right, up and towards the viewer, in the coordinates of the sphere; the axes point at three corners."""
    towards = np.array([1.0, 0.72, 0.62])
    towards /= np.linalg.norm(towards)
    right = np.cross([0, 0, 1.0], towards)
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(towards, right), towards])


def _distance(x: Field, y: Field, z: Field, p: float) -> Field:
    """Below zero inside the surface."""
    points = np.stack([x, y, z], axis=-1)
    return np.asarray(np.linalg.norm(points, axis=-1) - 1 - RELIEF * heights(points @ _view() + 1e-12, p))


def _light(x: Field, y: Field, z: Field, p: float) -> Field:
    """Light from the upper left, by the slope of the surface."""
    eps = 1e-4
    normal = np.stack(
        [
            _distance(x + eps, y, z, p) - _distance(x - eps, y, z, p),
            _distance(x, y + eps, z, p) - _distance(x, y - eps, z, p),
            _distance(x, y, z + eps, p) - _distance(x, y, z - eps, p),
        ],
        axis=-1,
    )
    normal /= np.maximum(np.linalg.norm(normal, axis=-1, keepdims=True), 1e-12)
    lamp = np.array([-0.45, 0.6, 0.66])
    return np.asarray(np.clip(normal @ (lamp / np.linalg.norm(lamp)), 0, 1))


def coloured(p: float, palette: Palette) -> Field:
    """Pixels (h, w, 4): colour by height, brightness by light."""
    height, light = rendered(p)
    low = "#dfe3f6" if palette is LIGHT else "#39436b"
    ramp = LinearSegmentedColormap.from_list("land", [low, palette.curves[0], palette.curves[2]])
    pixels = np.asarray(ramp(np.nan_to_num(np.clip(height, 0, 1))))
    shine = 0.16 * light[..., None] ** 10
    pixels[..., :3] = np.clip(pixels[..., :3] * (0.58 + 0.48 * light[..., None]) + shine, 0, 1)
    pixels[..., 3] = np.where(np.isnan(height), 0, 1)
    return pixels


def draw(palette: Palette, narrow: bool) -> Figure:
    """The landscapes beside each other."""
    rows, columns = (2, 2) if narrow else (1, len(EXPONENTS))
    width = drawing.NARROW_INCHES if narrow else drawing.WIDE_INCHES
    figure = Figure(figsize=(width, 1.14 * width * rows / columns), layout="constrained")
    for p, axes in zip(EXPONENTS, figure.subplots(rows, columns).ravel(), strict=True):
        axes.imshow(coloured(p, palette), interpolation="antialiased")
        axes.set_title(f"p = {p}", size=11.5, weight="bold", color=palette.ink)
        axes.axis("off")
    return figure


EXPERIMENT = Experiment("figure2", "Figure 2", lambda _: [], section)
