"""Figure 2: the l_p norm as a landscape on the sphere."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import LightSource, LinearSegmentedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from experiments.harness.axes import CURVES
from experiments.reproduction.experiment import Claim, Experiment, Picture, Section, Size, judge
from experiments.reproduction.report import drawing
from experiments.reproduction.report.words import percent
from experiments.reproduction.results import Results

EXPONENTS = (3, 4, 6, 10)
RELIEF = 0.42  # height of the peaks above the unit sphere
N_ANGLES = 240
COLOURS = LinearSegmentedColormap.from_list("heights", ["#dfe3f6", CURVES[0], CURVES[2]])

Field = NDArray[np.float64]


def compute_heights(points: Field, p: float) -> Field:
    """Compute ||a||_p^p on the unit sphere (..., 3), from 0 at its minimum to 1 at the axes."""
    least = 3 ** (1 - p / 2)
    return np.asarray((np.sum(np.abs(points) ** p, axis=-1) - least) / (1 - least))


def make_section(results: Results, size: Size) -> Section:  # noqa: ARG001  needs no results
    """Make the section of the report."""
    return Section(
        "Why the sparsest directions win",
        "For every p above 2 the maxima are on the axes, the sparse directions.",
        "The sum of |a|ᵖ over the unit sphere in three dimensions, as height and colour. For larger p the peaks are "
        "narrower and the plains between them flatter. No method is run.",
        claims=[_judge()],
        picture=Picture(
            f"The landscape of the ℓₚ norm for p = {', '.join(map(str, EXPONENTS))}. Peaks are the sparse directions.",
            "Four spheres with six peaks each on the axes, which are narrower for larger p",
            draw,
        ),
    )


def _judge() -> Claim:
    """Run the power method from many starts, with one sample on each axis."""
    starts = np.random.default_rng(0).standard_normal((2000, 3))
    fractions = []
    for p in EXPONENTS:
        points = starts
        for _ in range(200):
            points = points / np.linalg.norm(points, axis=1, keepdims=True)
            points = np.sign(points) * np.abs(points) ** (p - 1)
        largest = np.max(np.abs(points), axis=1) / np.linalg.norm(points, axis=1)
        fractions.append(float(np.mean(largest > 1 - 1e-9)))
    text = "Maximising any ℓₚ norm with p > 2 over the sphere leads to the coordinate axes."
    found = f"At least {percent(min(fractions))} of 2000 random starts end there, for each exponent drawn."
    return judge(text, [fraction > 0.999 for fraction in fractions], found)


def draw() -> Figure:
    """Draw the landscapes as surfaces."""
    figure = Figure(figsize=(drawing.WIDTH, 0.29 * drawing.WIDTH), layout="constrained")
    polar, around = np.meshgrid(np.linspace(0, np.pi, N_ANGLES), np.linspace(0, 2 * np.pi, 2 * N_ANGLES))
    points = np.stack([np.sin(polar) * np.cos(around), np.sin(polar) * np.sin(around), np.cos(polar)], axis=-1)
    for number, p in enumerate(EXPONENTS, start=1):
        heights = compute_heights(points, p)
        axes: Any = figure.add_subplot(1, len(EXPONENTS), number, projection="3d")
        axes.plot_surface(
            *np.moveaxis(points * (1 + RELIEF * heights[..., None]), -1, 0),
            facecolors=COLOURS(heights),
            lightsource=LightSource(azdeg=20, altdeg=50),
            rcount=N_ANGLES,
            ccount=N_ANGLES,
            antialiased=False,
        )
        axes.set(xlim=(-1, 1), ylim=(-1, 1), zlim=(-1, 1))
        axes.set_aspect("equal")
        axes.view_init(elev=27, azim=36)
        axes.axis("off")
        axes.set_title(f"p = {p}", size=11.5, weight="bold")
    return figure


EXPERIMENT = Experiment("figure2", "Figure 2", lambda _: [], make_section)
