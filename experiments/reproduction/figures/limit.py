"""Beyond the paper: how close to the Cramer-Rao bound."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure

from elldict._old.report.style import Palette
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
from experiments.reproduction.report.looks import LOOKS
from experiments.reproduction.report.words import bare, duration, span, thousands, whole_percent
from experiments.reproduction.results import Results

N, R = 32, 10_000
DENSITIES = (0.1, 0.3)
NEAR = 0.15
"""Excess over the bound that counts as close to it."""

LOOK_NAMES = {"default": "default", "lp": "l3", "fastica": "fastica"}
METHOD_NAMES = {method: LOOKS[name].label for method, name in LOOK_NAMES.items()}
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
        _finding(results, size),
        f"No unbiased method can be better than the Cramér-Rao bound. n = {N}, r = {thousands(R)}, "
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
                    median = float(np.median(summary.numbers))
                    of_it = f"median {bare(median)}" if summary.mean > 2 * median else duration(summary.seconds or 0)
                    lines = (f"{summary.mean / least:.2f} times limit", of_it)
                    entries.append(Entry(bare(summary.mean), order=summary.mean, lines=lines))
            rows.append((*entries, Entry(bare(least), order=least)))
    columns = ("θ", "σ", *METHOD_NAMES.values(), "Limit")
    return Table(
        "limit",
        "Mean error in per cent beside the Cramér-Rao bound; the median where a few lost trials make the mean.",
        columns,
        tuple(rows),
        n_heads=2,
    )


def _compared(results: Results, size: Size) -> list[tuple[float, list[float]]]:
    """The bound and the errors of all methods, where all were run."""
    rows = []
    for density in DENSITIES:
        for noise_std in noises(size):
            means = [results.mean(trials(method, density, noise_std, size)) for method in METHOD_NAMES]
            known = [mean for mean in means if mean is not None]
            if len(known) == len(METHOD_NAMES):
                rows.append((bound(density, noise_std), known))
    return rows


def _finding(results: Results, size: Size) -> str:
    known = _compared(results, size)
    if not known:
        return "Not run yet."
    said = []
    for number, label in enumerate(METHOD_NAMES.values()):
        ratios = [errors[number] / least for least, errors in known]
        said.append(f"{label} {span(min(ratios), max(ratios), '.3g')}")
    return f"Error over limit, by noise and density: {', '.join(said)}."


def _claims(results: Results, size: Size) -> Iterator[Claim]:
    text = f"elldict is within {whole_percent(NEAR)} of the limit, and the most accurate of the three."
    known = _compared(results, size)
    if not known:
        yield Claim(text, "Not run.", Verdict.OPEN, ours=True)
        return
    ratios = [errors[0] / least for least, errors in known]
    close = [ratio < 1 + NEAR for ratio in ratios]
    best = [errors[0] == min(errors) for _, errors in known]
    found = (
        f"Error over bound {span(min(ratios), max(ratios))}; most accurate in {sum(best)} of {len(best)} "
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
        panel.plot(sigma, l3, color=LOOKS["l3"].colour(palette), linestyle=(0, (1, 2)), linewidth=1.6, zorder=2)
        for method, name in LOOK_NAMES.items():
            errors = [(s, results.numbers(trials(method, density, s, size))) for s in noises(size)]
            points = [(s, float(np.median(numbers))) for s, numbers in errors if numbers]
            if points:
                panel.plot(*zip(*points, strict=True), **drawing.line_style(name, palette))
        drawing.per_cent_on_y(panel, (1e-4, 1e-3, 1e-2, 1e-1))
        panel.set(xlabel="noise σ", ylabel="error", xlim=(0.03, 0.63), ylim=(2e-5, 0.15))
        drawing.titled(panel, f"θ = {density}")
    drawing.legend_above(figure, axes, palette, narrow)
    return figure


EXPERIMENT = Experiment("limit", "The limit", cells, section)
