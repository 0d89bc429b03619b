"""Figure 1: how often the dictionary is recovered, against the number of samples."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.optimize import brentq

from elldict.theory import expected_error
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
from experiments.reproduction.report import drawing
from experiments.reproduction.report.styles import STYLES
from experiments.reproduction.report.words import thousands, whole_percent
from experiments.reproduction.results import Results

N, DENSITY = 30, 0.3
EXPONENTS = (3, 4, 5, 6)
METHODS: dict[str, tuple[str, dict[str, Scalar]]] = {
    **{f"l{p}": ("lp", {"p": p}) for p in EXPONENTS},
    "default": ("default", {}),
}
HALF, MOST = 0.5, 0.9  # fractions of the trials
STEEP = 1.5  # ratio of samples needed from one p to the next, at least, if they rise exponentially
RECOVERED = 0.01  # error below which the dictionary counts as recovered; two mixed atoms of 30 have 3 %

Curve = dict[int, float]  # fractions recovered, by number of samples


def list_sizes(size: Size) -> list[int]:
    """List numbers of samples, evenly on a log scale."""
    return [int(round(r, -1)) for r in np.geomspace(250, 64_000, 17 if size.full else 13)]


def list_trials(name: str, r: int, size: Size) -> list[Cell]:
    """List the trials of a point of a curve."""
    setting: dict[str, Scalar] = {"n_features": N, "n_samples": r, "density": DENSITY, "dtype": "float32"}
    method, options = METHODS[name]
    return [make_cell("recovery", method, setting, seed, options) for seed in size.n_trials(quick=5, full=20)]


def list_cells(size: Size) -> list[Cell]:
    """List all cells."""
    return [cell for name in METHODS for r in list_sizes(size) for cell in list_trials(name, r, size)]


def make_section(results: Results, size: Size) -> Section:
    """Make the section of the report."""
    curves: dict[str, Curve] = {name: {} for name in METHODS}
    for name, curve in curves.items():
        for r in list_sizes(size):
            if errors := results.numbers(list_trials(name, r, size)):
                curve[r] = float(np.mean(np.array(errors) < RECOVERED))
    needs = {name: _format_needs(curves[name]) for name in ("l3", "l6", "default")}
    listed = ", ".join(f"{number} for {STYLES[name].label}" for name, number in needs.items() if number)
    return Section(
        "How many samples are needed",
        f"Samples from which half of the trials recover {N} atoms: {listed or 'not run yet'}.",
        f"Fraction of {len(size.n_trials(quick=5, full=20))} trials that recover the dictionary (error below "
        f"{whole_percent(RECOVERED)}), n = {N}, θ = {DENSITY}. The paper does not define recovery.",
        claims=list(_judge({p: curves[f"l{p}"] for p in EXPONENTS})),
        picture=Picture(
            "Recovered dictionaries against the number of samples. Dotted: where the theoretical error of ℓₚ is "
            f"{whole_percent(RECOVERED)}.",
            "Fraction recovered against the number of samples, for four exponents and elldict",
            lambda: draw(curves),
        ),
        table=_make_table(curves, results, size),
    )


@functools.cache
def compute_needs(p: float) -> float:
    """Compute the number of samples at which the theoretical error is RECOVERED."""

    def excess(log_r: float) -> float:
        return expected_error(p, n_features=N, n_samples=round(10**log_r), density=DENSITY) - RECOVERED

    return float(10 ** brentq(excess, 2, 7, xtol=1e-4))


def measure_needs(curve: Curve) -> float | None:
    """Interpolate the number of samples at which half of the trials succeed."""
    for (r0, fraction0), (r1, fraction1) in itertools.pairwise(curve.items()):
        if fraction0 < HALF <= fraction1:
            return float(r0 * (r1 / r0) ** ((HALF - fraction0) / (fraction1 - fraction0)))
    return None


def _format_needs(curve: Curve) -> str:
    needs = measure_needs(curve)
    if needs is not None:
        return thousands(round(needs))
    fewest = min(curve, default=0)
    return f"fewer than {thousands(fewest)}" if curve and curve[fewest] >= HALF else ""


def _make_table(curves: dict[str, Curve], results: Results, size: Size) -> Table:
    rows = []
    for name, curve in curves.items():
        cells = [cell for r in list_sizes(size) for cell in list_trials(name, r, size)]
        measured = _format_needs(curve)
        theory = "" if name == "default" else thousands(round(compute_needs(float(name[1:]))))
        entry = Entry(measured) if measured else absent_entry(results.summary(cells))
        rows.append((Entry(STYLES[name].label), entry, Entry(theory)))
    caption = f"Samples at which half of the trials succeed, and at which theory has an error of {RECOVERED:.0%}."
    return Table(caption, ("Method", "Measured", "Theory"), tuple(rows))


def _judge(curves: dict[int, Curve]) -> Iterator[Claim]:
    ends = [curve[max(curve)] for curve in curves.values() if curve]
    text = "The dictionary is recovered with high probability for p = 3, 4, 5 and 6."
    more = f"With the most samples: {', '.join(map(whole_percent, ends))}."
    yield judge(text, [fraction > MOST for fraction in ends], more)
    needs = {p: r for p, curve in curves.items() if (r := measure_needs(curve)) is not None}
    fewest, rises = "ℓ₃ needs the fewest samples.", "The number of samples needed rises exponentially with p."
    if len(needs) < len(curves):
        yield judge(fewest, [], "")
        yield judge(rises, [], "")
        return
    listed = ", ".join(f"{thousands(round(r))} for p = {p}" for p, r in needs.items())
    yield judge(fewest, [needs[3] == min(needs.values())], f"{listed}.")
    p, logs = np.array(list(needs), dtype=float), np.log(list(needs.values()))
    ratios = np.exp(np.diff(logs))
    exponential, power = (compute_misfit(x, logs) for x in (p, np.log(p)))
    more = (
        f"From each p to the next by factors of {', '.join(f'{ratio:.1f}' for ratio in ratios)}. Root mean square "
        f"residual of the logarithm: {exponential:.2f} for an exponential in p, {power:.2f} for a power of p."
    )
    yield judge(rises, [min(ratios) > STEEP, exponential <= power], more)


def compute_misfit(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Compute the root mean square distance of y from a straight line in x."""
    return float(np.sqrt(np.mean((y - np.polyval(np.polyfit(x, y, 1), x)) ** 2)))


def draw(curves: dict[str, Curve]) -> Figure:
    """Draw fractions against samples."""
    figure, (axes,) = drawing.make_panels(1)
    for name, curve in curves.items():
        if name != "default":
            needs = compute_needs(float(name[1:]))
            axes.axvline(needs, color=STYLES[name].colour, linestyle=(0, (1, 3)), linewidth=1.6)
        if curve:
            axes.plot(list(curve), list(curve.values()), **drawing.style_line(name))
    drawing.scale_counts(axes, (300, 1000, 3000, 10_000, 30_000))
    axes.set(xlabel="samples r", ylabel="recovered", xlim=(220, 72_000))
    drawing.scale_fractions(axes)
    drawing.add_legend(figure, [axes])
    return figure


EXPERIMENT = Experiment("figure1", "Figure 1", list_cells, make_section)
