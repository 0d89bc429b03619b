"""Beyond the paper: exact recovery from few samples."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure

from elldict.pages.palette import Palette
from elldict.reproduction import drawing
from elldict.reproduction.cell import Cell, Scalar
from elldict.reproduction.experiment import Claim, Entry, Experiment, Picture, Section, Size, Table, Verdict
from elldict.reproduction.methods import make_cell
from elldict.reproduction.results import Results
from elldict.reproduction.words import percent, whole_percent

DENSITY = 0.3
EXACT = 1e-6
METHOD_NAMES = {"annealed": "p = 3, 2.5, 2.2, then refined", "lp": "ℓ₃", "fastica": "FastICA"}
OPTIONS: dict[str, dict[str, Scalar]] = {"annealed": {}, "lp": {"p": 3}, "fastica": {}}


def settings(size: Size) -> list[tuple[int, int]]:
    """Numbers of features and samples."""
    few = [(30, r) for r in (150, 180, 210, 240, 300, 400)]
    return [*few, (60, 300), (60, 360), (60, 420), (100, 600)] if size.full else few[1::2]


def trials(method: str, n: int, r: int, size: Size) -> list[Cell]:
    """Fits of one method."""
    setting: dict[str, Scalar] = {"n_features": n, "n_samples": r, "density": DENSITY}
    seeds = size.n_trials(quick=4, full=20)
    return [make_cell("recovery", method, setting, seed, OPTIONS[method]) for seed in seeds]


def cells(size: Size) -> list[Cell]:
    """Everything to run."""
    return [cell for n, r in settings(size) for method in METHOD_NAMES for cell in trials(method, n, r, size)]


def section(results: Results, size: Size) -> Section:
    """The figure, the table, and the claims."""
    shares = {
        (method, n, r): numbers
        for method in METHOD_NAMES
        for n, r in settings(size)
        if (numbers := results.numbers(trials(method, n, r, size)))
    }
    return Section(
        "Beyond the paper: exact, from few samples",
        f"No noise, θ = {DENSITY}, five samples an atom and more. Recovery is exact if the error is below 1e-6: "
        "rounding, not statistics.",
        pictures=(
            Picture(
                "few-samples",
                "Share of exact recoveries against the number of samples, n = 30.",
                "The annealed and refined fit becomes exact within eight samples an atom; the others never do",
                lambda palette, narrow: draw(shares, palette, narrow),
            ),
        ),
        tables=(_table(shares, size),),
        claims=tuple(_claims(shares)),
    )


Shares = dict[tuple[str, int, int], list[float]]


def _mean_share(shares: list[float]) -> str:
    return whole_percent(float(np.mean(shares)))


def _exact(errors: list[float]) -> float:
    return float(np.mean(np.array(errors) < EXACT))


def _table(shares: Shares, size: Size) -> Table:
    rows = []
    for n, r in settings(size):
        entries = []
        for method in METHOD_NAMES:
            errors = shares.get((method, n, r))
            if errors is None:
                entries.append(Entry("–", tone="absent"))
            else:
                median = f"median error {percent(float(np.median(errors)))}"
                n_exact = sum(error < EXACT for error in errors)
                entries.append(Entry(f"{n_exact} of {len(errors)}", order=_exact(errors), lines=(median,)))
        rows.append((Entry(str(n), order=n), Entry(str(r), order=r), *entries))
    columns = ("n", "r", *METHOD_NAMES.values())
    return Table("few", "Exact recoveries.", columns, tuple(rows), n_heads=2)


def _claims(shares: Shares) -> Iterator[Claim]:
    text = "Annealed p and refinement recover dictionaries exactly where ℓ₃ and FastICA never do."
    ours = [_exact(errors) for (method, n, r), errors in shares.items() if method == "annealed" and r >= 8 * n]
    theirs = [_exact(errors) for (method, _, _), errors in shares.items() if method != "annealed"]
    if not ours or not theirs:
        yield Claim(text, "Not run.", Verdict.OPEN, ours=True)
        return
    found = f"With eight samples an atom or more: {_mean_share(ours)} exact; the others {_mean_share(theirs)}."
    yield Claim(text, found, Verdict.of((min(ours) >= 0.7) + (max(theirs) == 0), 2), ours=True)


def draw(shares: Shares, palette: Palette, narrow: bool) -> Figure:
    """Shares against samples."""
    figure, (axes,) = drawing.panels(palette, narrow, 1, height=3.4)
    for (method, label), colour in zip(METHOD_NAMES.items(), drawing.series(palette), strict=False):
        points = [(r, _exact(errors)) for (name, n, r), errors in shares.items() if name == method and n == 30]
        if points:
            r, share = zip(*points, strict=True)
            axes.plot(r, share, "o-", color=colour, linewidth=2.4, markersize=6, label=label, clip_on=False)
    axes.set(ylim=(-0.02, 1.02), xlabel="samples r", ylabel="exact")
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    drawing.legend(axes, palette, loc="center right")
    return figure


EXPERIMENT = Experiment("few-samples", "Few samples", cells, section)
