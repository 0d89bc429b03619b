"""Figure 1: how often the dictionary is recovered, against the number of samples."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.optimize import brentq

from elldict._old.report.style import Palette
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
    Verdict,
    absent_entry,
)
from experiments.reproduction.report import drawing
from experiments.reproduction.report.looks import LOOKS
from experiments.reproduction.report.words import thousands, whole_percent
from experiments.reproduction.results import Results

N, DENSITY = 30, 0.3
EXPONENTS = (3, 4, 5, 6)
METHOD_OPTIONS: dict[str, tuple[str, dict[str, Scalar]]] = {
    **{f"l{p}": ("lp", {"p": p}) for p in EXPONENTS},
    "default": ("default", {}),
}
"""Curves: the paper's, one for each exponent, and elldict as it comes."""

HALF = 0.5
STEEP = 1.5
"""Factor from one p to the next that an exponential has to have at least."""

RECOVERED = 0.01
"""Error below which the dictionary counts as recovered; the paper does not say. Two mixed atoms of 30 cost 3 %."""


def sample_sizes(size: Size) -> list[int]:
    """Numbers of samples, evenly on a log scale."""
    return [int(round(r, -1)) for r in np.geomspace(250, 64_000, 17 if size.full else 13)]


def trials(name: str, r: int, size: Size) -> list[Cell]:
    """The trials of a point of a curve."""
    setting: dict[str, Scalar] = {"n_features": N, "n_samples": r, "density": DENSITY, "dtype": "float32"}
    method, options = METHOD_OPTIONS[name]
    return [make_cell("recovery", method, setting, seed, options) for seed in size.n_trials(quick=5, full=20)]


def cells(size: Size) -> list[Cell]:
    """Everything to run."""
    return [cell for name in METHOD_OPTIONS for r in sample_sizes(size) for cell in trials(name, r, size)]


def section(results: Results, size: Size) -> Section:
    """The figure, the samples needed, and the claims."""
    curves = {name: list(_curve(results, size, name)) for name in METHOD_OPTIONS}
    return Section(
        "How many samples it takes",
        _finding(curves),
        f"The share of {len(size.n_trials(quick=5, full=20))} trials in which the dictionary was recovered (error "
        f"below {whole_percent(RECOVERED)}), n = {N}, θ = {DENSITY}. The paper does not say when it counts a "
        "dictionary as recovered.",
        pictures=(
            Picture(
                "figure1",
                "Recovered dictionaries against the number of samples. Dotted: where theory expects the error of ℓₚ to "
                f"fall below {whole_percent(RECOVERED)}.",
                "Five curves, four exponents and elldict: the share recovered against the number of samples",
                lambda palette, narrow: draw(curves, palette, narrow),
            ),
        ),
        tables=(_table(curves, results, size),),
        claims=tuple(_claims({p: curves[f"l{p}"] for p in EXPONENTS})),
    )


Curve = list[tuple[int, float]]
"""Numbers of samples, shares recovered."""


def _finding(curves: dict[str, Curve]) -> str:
    """Samples that the smallest and the largest exponent need, and elldict."""
    found = [(LOOKS[name].label, _needs_words(curves[name])) for name in ("l3", "l6", "default")]
    listed = ", ".join(f"{needs} for {label}" for label, needs in found if needs)
    return f"Samples from which half of the trials recover {N} atoms: {listed}." if listed else "Not run yet."


def _needs_words(curve: Curve) -> str:
    needs = measured_needs(curve)
    if needs is not None:
        return thousands(round(needs))
    return f"fewer than {thousands(curve[0][0])}" if curve and curve[0][1] >= HALF else ""


def _curve(results: Results, size: Size, name: str) -> Iterator[tuple[int, float]]:
    for r in sample_sizes(size):
        errors = results.numbers(trials(name, r, size))
        if errors:
            yield r, float(np.mean(np.array(errors) < RECOVERED))


@functools.cache
def theory_needs(p: float) -> float:
    """Number of samples at which theory expects the error to be RECOVERED."""

    def excess(log_r: float) -> float:
        n_samples = round(10**log_r)
        return expected_error(p, n_features=N, n_samples=n_samples, density=DENSITY) - RECOVERED

    return float(10 ** brentq(excess, 2, 7, xtol=1e-4))


def measured_needs(curve: Curve) -> float | None:
    """Number of samples at which half of the trials succeed, between the grid's."""
    for (r0, share0), (r1, share1) in itertools.pairwise(curve):
        if share0 < HALF <= share1:
            way = (HALF - share0) / (share1 - share0)
            return float(r0 * (r1 / r0) ** way)
    return None


def _table(curves: dict[str, Curve], results: Results, size: Size) -> Table:
    rows = []
    for name, curve in curves.items():
        planned = [cell for r in sample_sizes(size) for cell in trials(name, r, size)]
        said = _needs_words(curve)
        measured = Entry(said, order=measured_needs(curve) or 0.0) if said else absent_entry(results.summary(planned))
        theory = theory_needs(float(METHOD_OPTIONS[name][1]["p"])) if name != "default" else None
        expected = Entry("", order=0.0) if theory is None else Entry(thousands(round(theory)), order=theory)
        rows.append((Entry(LOOKS[name].label, order=name), measured, expected))
    caption = (
        "Samples needed for half of the trials to succeed, and those at which theory expects an error of "
        f"{whole_percent(RECOVERED)}."
    )
    return Table("samples-needed", caption, ("Method", "Measured", "Theory"), tuple(rows))


def _claims(curves: dict[int, Curve]) -> Iterator[Claim]:
    needs = [measured_needs(curve) for curve in curves.values()]
    text = "The dictionary is recovered with high probability for p = 3, 4, 5 and 6."
    ends = [curve[-1][1] for curve in curves.values() if curve]
    shares = ", ".join(f"{whole_percent(share)}" for share in ends)
    yield Claim(
        text,
        f"With the most samples: {shares}." if ends else "Not run.",
        Verdict.of(sum(s > 0.9 for s in ends), len(ends)),
    )
    known = {p: r for p, r in zip(curves, needs, strict=True) if r is not None}
    fewest, rises = "ℓ₃ needs the fewest samples.", "The number of samples needed rises exponentially with p."
    if len(known) < len(curves):
        yield Claim(fewest, "Not all curves reach one half.", Verdict.OPEN)
        yield Claim(rises, "Not all curves reach one half.", Verdict.OPEN)
        return
    listed = ", ".join(f"{thousands(round(r))} for p = {p}" for p, r in known.items())
    yield Claim(fewest, f"{listed}.", Verdict.of(int(known[3] == min(known.values())), 1))
    ratios = [b / a for a, b in itertools.pairwise(known.values())]
    exponential, power = (_misfit(scale(np.array(list(known))), list(known.values())) for scale in (np.asarray, np.log))
    found = (
        f"From each p to the next by factors of {', '.join(f'{ratio:.1f}' for ratio in ratios)}. An exponential in p "
        f"misses the logarithm of the number by {exponential:.2f}, a power of p by {power:.2f} (root mean square)."
    )
    yield Claim(rises, found, Verdict.of((min(ratios) > STEEP) + (exponential <= power), 2))


def _misfit(x: NDArray[np.float64], needs: list[float]) -> float:
    """Root mean square distance of the logarithms from a straight line in x."""
    logs = np.log(needs)
    return float(np.sqrt(np.mean((logs - np.polyval(np.polyfit(x, logs, 1), x)) ** 2)))


def draw(curves: dict[str, Curve], palette: Palette, narrow: bool) -> Figure:
    """Shares against samples."""
    figure, (axes,) = drawing.panels(palette, narrow, 1)
    for name, curve in curves.items():
        if name != "default":
            needs = theory_needs(float(METHOD_OPTIONS[name][1]["p"]))
            axes.axvline(needs, color=LOOKS[name].colour(palette), linestyle=(0, (1, 3)), linewidth=1.6)
        if curve:
            axes.plot(*zip(*curve, strict=True), **drawing.line_style(name, palette))
    drawing.counts_on_x(axes, (300, 1000, 3000, 10_000, 30_000))
    axes.set(xlabel="samples r", ylabel="recovered", xlim=(220, 72_000))
    drawing.shares_on_y(axes)
    drawing.legend_above(figure, [axes], palette, narrow)
    return figure


EXPERIMENT = Experiment("figure1", "Figure 1", cells, section)
