"""Beyond the paper: exact recovery from few samples."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure

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
from experiments.reproduction.report.words import SIGN, bare, whole_percent
from experiments.reproduction.results import Results

DENSITY = 0.3
EXACT, EXACT_WORDS = 1e-6, f"0.0001{SIGN}"  # error below which only rounding is left
ROUNDING = 1e-16  # smallest error that is drawn
ENOUGH = 5  # samples per atom from which recovery should be exact
ALMOST_ALL = 0.95  # fraction of the trials that have to be
SMALL = 30  # features of the problem that is drawn

METHODS: dict[str, tuple[str, dict[str, Scalar]]] = {
    "default": ("default", {}),
    "l3": ("lp", {"p": 3}),
    "fastica": ("fastica", {}),
}
Errors = dict[tuple[str, int, int], list[float]]  # by name, features and samples


def list_settings(size: Size) -> list[tuple[int, int]]:
    """List numbers of features and samples."""
    if not size.full:
        return [(SMALL, r) for r in (90, 180, 240, 400)]
    few = [(SMALL, r) for r in (60, 75, 90, 105, 120, 150, 180, 210, 240, 300, 400)]
    return [*few, (60, 300), (60, 360), (60, 420), (100, 600)]


def list_trials(name: str, n: int, r: int, size: Size) -> list[Cell]:
    """List the fits of a method."""
    setting: dict[str, Scalar] = {"n_features": n, "n_samples": r, "density": DENSITY}
    method, options = METHODS[name]
    return [make_cell("recovery", method, setting, seed, options) for seed in size.n_trials(quick=4, full=20)]


def list_cells(size: Size) -> list[Cell]:
    """List all cells."""
    return [cell for n, r in list_settings(size) for name in METHODS for cell in list_trials(name, n, r, size)]


def make_section(results: Results, size: Size) -> Section:
    """Make the section of the report."""
    keys = [(name, n, r) for name in METHODS for n, r in list_settings(size)]
    found = {key: errors for key in keys if (errors := results.numbers(list_trials(*key, size)))}
    return Section(
        "Beyond the paper: exact recovery from few samples",
        _summarise(found),
        f"No noise, θ = {DENSITY}, {len(size.n_trials(quick=4, full=20))} trials. Recovery is exact if the error is "
        f"below {EXACT_WORDS}.",
        claims=list(_judge(found)),
        picture=Picture(
            f"Fraction of exact recoveries, and the median error, against the number of samples; n = {SMALL}. Left: "
            "ℓ₃ is covered by FastICA.",
            "Exact recoveries and errors of three methods against the number of samples",
            lambda: draw(found),
        ),
        table=_make_table(results, size),
    )


def _count_exact(errors: list[float]) -> float:
    """Compute the fraction of exact recoveries."""
    return float(np.mean(np.array(errors) < EXACT))


def _summarise(found: Errors) -> str:
    """Find the samples per atom above which all trials of elldict are exact."""
    at = sorted((r / n, _count_exact(errors)) for (name, n, r), errors in found.items() if name == "default")
    missed = max((ratio for ratio, fraction in at if fraction < 1), default=0.0)
    exact = [ratio for ratio, _ in at if ratio > missed]
    return (
        f"elldict is exact in all trials from {exact[0]:g} samples per atom." if exact else "Not run, or never exact."
    )


def _make_table(results: Results, size: Size) -> Table:
    rows = []
    for n, r in list_settings(size):
        entries = [Entry(str(n)), Entry(str(r))]
        for name in METHODS:
            summary = results.summary(list_trials(name, n, r, size))
            errors = summary.numbers
            text = f"{sum(error < EXACT for error in errors)} of {len(errors)}"
            entries.append(Entry(text, (f"median {bare(np.median(errors))}",)) if errors else absent_entry(summary))
        rows.append(tuple(entries))
    caption = f"Fits with an error below {EXACT_WORDS}, and the median error in per cent."
    return Table(caption, ("n", "r", *(STYLES[name].label for name in METHODS)), tuple(rows), n_heads=2)


def _judge(found: Errors) -> Iterator[Claim]:
    text = "elldict recovers dictionaries exactly where ℓ₃ and FastICA never do."
    ours = [_count_exact(errors) for (name, n, r), errors in found.items() if name == "default" and r >= ENOUGH * n]
    others = [_count_exact(errors) for (name, _, _), errors in found.items() if name != "default"]
    if not ours or not others:
        yield judge(text, [], "", ours=True)
        return
    fractions = [whole_percent(float(np.mean(some))) for some in (ours, others)]
    more = f"From {ENOUGH} samples per atom: {fractions[0]} exact; the others, {fractions[1]} of all trials."
    yield judge(text, [min(ours) >= ALMOST_ALL, max(others) == 0], more, ours=True)


def draw(found: Errors) -> Figure:
    """Draw fractions and errors against samples."""
    figure, (left, right) = drawing.make_panels(2, height=3.6)
    for name in METHODS:
        curve = {r: errors for (other, n, r), errors in found.items() if other == name and n == SMALL}
        if curve:
            style = drawing.style_line(name)
            left.plot(list(curve), [_count_exact(errors) for errors in curve.values()], **style)
            right.plot(list(curve), [max(np.median(errors), ROUNDING) for errors in curve.values()], **style)
    drawing.scale_fractions(left)
    drawing.scale_errors(right, (0, -4, -8, -12, -16))
    right.set_ylim(ROUNDING / 2, 2)
    for panel, title in ((left, "Exact recoveries"), (right, "Median error")):
        panel.set_xlabel("samples r")
        drawing.set_title(panel, title)
    drawing.add_legend(figure, [left, right])
    return figure


EXPERIMENT = Experiment("few-samples", "Few samples", list_cells, make_section)
