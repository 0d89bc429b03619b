"""Beyond the paper: errors compared with the Cramer-Rao bound."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from elldict.theory import cramer_rao_bound, expected_error
from experiments.harness.axes import LINE
from experiments.reproduction.cells import Cell, Scalar, make_cell
from experiments.reproduction.experiment import (
    Claim,
    Entry,
    Experiment,
    Picture,
    Section,
    Size,
    Table,
    absent_entry,
    judge,
)
from experiments.reproduction.figures.few_samples import METHODS
from experiments.reproduction.report import drawing
from experiments.reproduction.report.styles import STYLES
from experiments.reproduction.report.words import bare, duration, span, thousands, whole_percent
from experiments.reproduction.results import Results

N, R = 32, 10_000
DENSITIES = (0.1, 0.3)
NEAR = 0.15  # relative excess over the bound that counts as close


def list_settings(size: Size) -> list[tuple[float, float]]:
    """List densities and noise levels."""
    noises = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6) if size.full else (0.1, 0.2, 0.4, 0.6)
    return [(density, noise_std) for density in DENSITIES for noise_std in noises]


def list_trials(name: str, density: float, noise_std: float, size: Size) -> list[Cell]:
    """List the fits of a method."""
    setting: dict[str, Scalar] = {"n_features": N, "n_samples": R, "density": density, "noise_std": noise_std}
    method, options = METHODS[name]
    seeds = size.n_trials(quick=2)
    return [make_cell("recovery", method, setting | {"dtype": "float32"}, seed, options) for seed in seeds]


def list_cells(size: Size) -> list[Cell]:
    """List all cells."""
    return [cell for at in list_settings(size) for name in METHODS for cell in list_trials(name, *at, size)]


def compute_bound(density: float, noise_std: float) -> float:
    """Compute the Cramer-Rao bound."""
    return cramer_rao_bound(n_features=N, n_samples=R, density=density, noise_std=noise_std)


def make_section(results: Results, size: Size) -> Section:
    """Make the section of the report."""
    ratios = measure_ratios(results, size)
    listed = ", ".join(f"{STYLES[name].label} {span(some, '.3g')}" for name, some in ratios.items() if some)
    return Section(
        "Beyond the paper: the statistical limit",
        f"Error over bound, by noise and density: {listed or 'not run yet'}.",
        f"The Cramér-Rao bound holds for all unbiased methods. n = {N}, r = {thousands(R)}, "
        f"{len(size.n_trials(quick=2))} trials.",
        claims=[_judge(ratios)],
        picture=Picture(
            "Median error against noise. Shaded: below the bound. Dotted: theory of ℓ₃.",
            "Error against noise for three methods, and the bound",
            lambda: draw(results, size),
        ),
        table=_make_table(results, size),
    )


def measure_ratios(results: Results, size: Size) -> dict[str, list[float]]:
    """Compute mean errors over the bound, by method, where all methods were run."""
    ratios: dict[str, list[float]] = {name: [] for name in METHODS}
    for at in list_settings(size):
        means = {name: results.mean(list_trials(name, *at, size)) for name in METHODS}
        if None not in means.values():
            for name, mean in means.items():
                ratios[name].append((mean or 0.0) / compute_bound(*at))
    return ratios


def _make_table(results: Results, size: Size) -> Table:
    rows = []
    for density, noise_std in list_settings(size):
        bound = compute_bound(density, noise_std)
        entries = [Entry(f"{density:g}"), Entry(f"{noise_std:g}")]
        for name in METHODS:
            summary = results.summary(list_trials(name, density, noise_std, size))
            if summary.mean is None:
                entries.append(absent_entry(summary))
                continue
            lines = f"{summary.mean / bound:.2f} times the bound", f"median {bare(np.median(summary.numbers))}"
            entries.append(Entry(bare(summary.mean), (*lines, duration(summary.seconds))))
        rows.append((*entries, Entry(bare(bound))))
    columns = ("θ", "σ", *(STYLES[name].label for name in METHODS), "Bound")
    return Table("Mean error in per cent, and the Cramér-Rao bound.", columns, tuple(rows), n_heads=2)


def _judge(ratios: dict[str, list[float]]) -> Claim:
    text = f"The error of elldict is within {whole_percent(NEAR)} of the bound, and the smallest of the three."
    ours = ratios["default"]
    close = [ratio < 1 + NEAR for ratio in ours]
    best = [ratio == min(all_) for ratio, *all_ in zip(ours, *ratios.values(), strict=True)]
    found = (
        f"Error over bound {span(ours)}; smallest in {sum(best)} of {len(best)} rows. Means of few trials may be "
        "below a bound on the expectation."
    )
    return judge(text, [*close, *best], found, ours=True)


def draw(results: Results, size: Size) -> Figure:
    """Draw a panel for each density."""
    figure, axes = drawing.make_panels(len(DENSITIES), sharey=True)
    sigma = np.linspace(0.04, 0.62, 40)
    for panel, density in zip(axes, DENSITIES, strict=True):
        panel.fill_between(sigma, 1e-6, [compute_bound(density, s) for s in sigma], color=LINE, alpha=0.7, linewidth=0)
        l3 = [expected_error(3, n_features=N, n_samples=R, density=density, noise_std=s) for s in sigma]
        panel.plot(sigma, l3, color=STYLES["l3"].colour, linestyle=(0, (1, 2)), linewidth=1.6, zorder=2)
        for name in METHODS:
            at = {s: results.numbers(list_trials(name, d, s, size)) for d, s in list_settings(size) if d == density}
            points = {s: float(np.median(numbers)) for s, numbers in at.items() if numbers}
            if points:
                panel.plot(list(points), list(points.values()), **drawing.style_line(name))
        drawing.scale_errors(panel, (-4, -3, -2, -1))
        panel.set(xlabel="noise σ", ylabel="error", xlim=(0.03, 0.63), ylim=(2e-5, 0.15))
        drawing.set_title(panel, f"θ = {density}")
    drawing.add_legend(figure, axes)
    return figure


EXPERIMENT = Experiment("limit", "The limit", list_cells, make_section)
