"""Beyond the paper: how close to the Cramer-Rao bound."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure

from elldict.report.style import Palette
from elldict.theory import cramer_rao_bound, expected_error
from experiments.reproduction.cells import Cell, Scalar, make_cell
from experiments.reproduction.experiment import (
    Claim,
    Entry,
    Experiment,
    Picture,
    Section,
    Size,
    Table,
    Verdict,
    absent_entry,
)
from experiments.reproduction.report import drawing
from experiments.reproduction.report.words import duration, percent
from experiments.reproduction.results import Results

N, R = 32, 10_000
DENSITIES = (0.1, 0.3)
METHOD_NAMES = {"default": "elldict", "lp": "ℓ₃", "fastica": "FastICA"}
OPTIONS: dict[str, dict[str, Scalar]] = {"default": {}, "lp": {"p": 3}, "fastica": {}}


def noises(size: Size) -> tuple[float, ...]:
    """Noise levels."""
    return (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6) if size.full else (0.1, 0.2, 0.4, 0.6)


def trials(method: str, density: float, noise_std: float, size: Size) -> list[Cell]:
    """Fits of one method."""
    setting: dict[str, Scalar] = {
        "n_features": N,
        "n_samples": R,
        "density": density,
        "noise_std": noise_std,
        "dtype": "float32",
    }
    return [make_cell("recovery", method, setting, seed, OPTIONS[method]) for seed in size.n_trials(quick=2)]


def cells(size: Size) -> list[Cell]:
    """Everything to run."""
    return [
        cell
        for density in DENSITIES
        for noise_std in noises(size)
        for method in METHOD_NAMES
        for cell in trials(method, density, noise_std, size)
    ]


def bound(density: float, noise_std: float) -> float:
    """The Cramer-Rao bound here."""
    return cramer_rao_bound(n_features=N, n_samples=R, density=density, noise_std=noise_std)


def section(results: Results, size: Size) -> Section:
    """The figure, the table, and the claims."""
    return Section(
        "Beyond the paper: the statistical limit",
        f"No unbiased method can be better than the Cramér-Rao bound. n = {N}, r = {R}, "
        f"{len(size.n_trials(quick=2))} trials.",
        pictures=(
            Picture(
                "limit",
                "Median error against noise. Shaded: below the bound. Dotted: what theory expects of ℓ₃.",
                "Error against noise for three methods, with the bound below",
                lambda palette, narrow: draw(results, size, palette, narrow),
            ),
        ),
        tables=(_table(results, size),),
        claims=tuple(_claims(results, size)),
    )


def _table(results: Results, size: Size) -> Table:
    rows = []
    for density in DENSITIES:
        for noise_std in noises(size):
            least = bound(density, noise_std)
            entries = [Entry(f"{density:g}", order=density), Entry(f"{noise_std:g}", order=noise_std)]
            for method in METHOD_NAMES:
                summary = results.summary(trials(method, density, noise_std, size))
                if summary.mean is None:
                    entries.append(absent_entry(summary))
                else:
                    lines = [f"{summary.mean / least:.2f} times the limit", duration(summary.seconds or 0)]
                    median = float(np.median(summary.numbers))
                    if summary.mean > 2 * median:
                        lines.insert(1, f"median {percent(median)}")
                    entries.append(Entry(percent(summary.mean), order=summary.mean, lines=tuple(lines)))
            rows.append((*entries, Entry(percent(least), order=least)))
    columns = ("θ", "σ", *METHOD_NAMES.values(), "Limit")
    return Table(
        "limit",
        "Mean error beside the Cramér-Rao bound; the median where a few lost trials make the mean.",
        columns,
        tuple(rows),
        n_heads=2,
    )


def _claims(results: Results, size: Size) -> Iterator[Claim]:
    text = "elldict is within 15 % of the limit, and the most accurate of the three."
    close, best, ratios = [], [], []
    for density in DENSITIES:
        for noise_std in noises(size):
            means = [results.mean(trials(method, density, noise_std, size)) for method in METHOD_NAMES]
            known = [mean for mean in means if mean is not None]
            if len(known) == len(METHOD_NAMES):
                ratios.append(known[0] / bound(density, noise_std))
                close.append(ratios[-1] < 1.15)
                best.append(known[0] == min(known))
    if not ratios:
        yield Claim(text, "Not run.", Verdict.OPEN, ours=True)
        return
    found = (
        f"Error over bound from {min(ratios):.2f} to {max(ratios):.2f}; most accurate in {sum(best)} of {len(best)} "
        "rows. Means of few trials may lie below a bound on the expectation."
    )
    yield Claim(text, found, Verdict.of(sum(close) + sum(best), 2 * len(best)), ours=True)


def draw(results: Results, size: Size, palette: Palette, narrow: bool) -> Figure:
    """A panel for each density."""
    figure, axes = drawing.panels(palette, narrow, len(DENSITIES), sharey=not narrow)
    sigma = np.linspace(0.04, 0.62, 40)
    for panel, density in zip(axes, DENSITIES, strict=True):
        least = [bound(density, s) for s in sigma]
        panel.fill_between(sigma, 1e-6, least, color=palette.line, alpha=0.7, linewidth=0)
        l3 = [expected_error(3, n_features=N, n_samples=R, density=density, noise_std=s) for s in sigma]
        panel.plot(sigma, l3, color=palette.ink, linestyle=(0, (1, 2)), linewidth=1.3, zorder=3)
        for (method, label), colour in zip(METHOD_NAMES.items(), drawing.series(palette), strict=False):
            errors = [(s, results.numbers(trials(method, density, s, size))) for s in noises(size)]
            points = [(s, float(np.median(numbers))) for s, numbers in errors if numbers]
            if points:
                panel.plot(*zip(*points, strict=True), "o-", color=colour, linewidth=2, markersize=5, label=label)
        drawing.per_cent_on_y(panel, (1e-4, 1e-3, 1e-2, 1e-1))
        panel.set(xlabel="noise σ", ylabel="error", xlim=(0.03, 0.63), ylim=(2e-5, 0.15))
        drawing.titled(panel, f"θ = {density}")
        drawing.legend(panel, palette, loc="lower right")
    return figure


EXPERIMENT = Experiment("limit", "The limit", cells, section)
