"""Figure 1: how often the dictionary is recovered, against the number of samples."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.optimize import brentq

from elldict.report.style import Palette
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
from experiments.reproduction.report.words import thousands, whole_percent
from experiments.reproduction.results import Results

N, DENSITY = 30, 0.3
EXPONENTS = (3, 4, 5, 6)
STEEP = 1.5
"""Factor from one p to the next that an exponential has to have at least."""

RECOVERED = 0.01
"""Error below which the dictionary counts as recovered; the paper does not say. Two mixed atoms of 30 cost 3 %."""


def sample_sizes(size: Size) -> list[int]:
    """Numbers of samples, evenly on a log scale."""
    return [int(round(r, -1)) for r in np.geomspace(250, 64_000, 17 if size.full else 13)]


def trials(p: int, r: int, size: Size) -> list[Cell]:
    """The trials of a point of a curve."""
    setting: dict[str, Scalar] = {"n_features": N, "n_samples": r, "density": DENSITY, "dtype": "float32"}
    return [make_cell("recovery", "lp", setting, seed, {"p": p}) for seed in size.n_trials(quick=5, full=20)]


def cells(size: Size) -> list[Cell]:
    """Everything to run."""
    return [cell for p in EXPONENTS for r in sample_sizes(size) for cell in trials(p, r, size)]


def section(results: Results, size: Size) -> Section:
    """The figure, the samples needed, and the claims."""
    curves = {p: list(_curve(results, size, p)) for p in EXPONENTS}
    return Section(
        "How many samples it takes",
        f"The share of {len(size.n_trials(quick=5, full=20))} trials in which the dictionary was recovered (error "
        f"below {whole_percent(RECOVERED)}), n = {N}, θ = {DENSITY}. The paper does not say when it counts a "
        "dictionary as recovered.",
        pictures=(
            Picture(
                "figure1",
                "Recovered dictionaries against the number of samples. Dotted: where theory expects the error to fall "
                f"below {whole_percent(RECOVERED)}.",
                "Four curves, one for each exponent: the share recovered against the number of samples",
                lambda palette, narrow: draw(curves, palette, narrow),
            ),
        ),
        tables=(_table(curves, results, size),),
        claims=tuple(_claims(curves)),
    )


Curve = list[tuple[int, float]]
"""Numbers of samples, shares recovered."""


def _curve(results: Results, size: Size, p: int) -> Iterator[tuple[int, float]]:
    for r in sample_sizes(size):
        errors = results.numbers(trials(p, r, size))
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
        if share0 < 0.5 <= share1:
            way = (0.5 - share0) / (share1 - share0)
            return float(r0 * (r1 / r0) ** way)
    return None


def _table(curves: dict[int, Curve], results: Results, size: Size) -> Table:
    rows = []
    for p, curve in curves.items():
        needs, theory = measured_needs(curve), theory_needs(p)
        planned = [cell for r in sample_sizes(size) for cell in trials(p, r, size)]
        measured = (
            absent_entry(results.summary(planned)) if needs is None else Entry(thousands(round(needs)), order=needs)
        )
        rows.append((Entry(f"p = {p}", order=p), measured, Entry(thousands(round(theory)), order=theory)))
    caption = (
        "Samples needed for half of the trials to succeed, and those at which theory expects an error of "
        f"{whole_percent(RECOVERED)}."
    )
    return Table("samples-needed", caption, ("Exponent", "Measured", "Theory"), tuple(rows))


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


def draw(curves: dict[int, Curve], palette: Palette, narrow: bool) -> Figure:
    """Shares against samples."""
    figure, (axes,) = drawing.panels(palette, narrow, 1)
    for (p, curve), colour in zip(curves.items(), drawing.series(palette), strict=False):
        axes.axvline(theory_needs(p), color=colour, linestyle=(0, (1, 3)), linewidth=1.6)
        if curve:
            r, shares = zip(*curve, strict=True)
            axes.plot(r, shares, "o-", color=colour, linewidth=2.4, markersize=5.5, label=f"p = {p}", clip_on=False)
    drawing.counts_on_x(axes, (300, 1000, 3000, 10_000, 30_000))
    axes.set(ylim=(-0.02, 1.02), xlabel="samples r", ylabel="recovered", xlim=(220, 72_000))
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    drawing.legend(axes, palette, loc="center left")
    return figure


EXPERIMENT = Experiment("figure1", "Figure 1", cells, section)
