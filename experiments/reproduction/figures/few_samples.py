"""Beyond the paper: exact recovery from few samples."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure

from elldict._old.report.style import Palette
from experiments.reproduction.cells import ANNEALED, Cell, Scalar, make_cell
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
from experiments.reproduction.report.words import SIGN, bare, whole_percent
from experiments.reproduction.results import Results, Summary

DENSITY = 0.3
EXACT = 1e-6
EXACT_WORDS = f"0.0001{SIGN}"
ROUNDING = 1e-16
"""Errors below this, or below zero, are drawn here."""

ENOUGH = 4
"""Samples an atom from which recovery is promised to be exact."""

SMALL = 30
"""Features of the problem that is drawn."""

LOOK_NAMES = {"default": "default", "annealed": "annealed", "lp": "l3", "fastica": "fastica"}
METHOD_NAMES = {method: LOOKS[name].label for method, name in LOOK_NAMES.items()}
OURS = ("default", "annealed")
OPTIONS: dict[str, dict[str, Scalar]] = {"default": {}, "annealed": {}, "lp": {"p": 3}, "fastica": {}}


def settings(size: Size) -> list[tuple[int, int]]:
    """Numbers of features and samples."""
    if not size.full:
        return [(SMALL, r) for r in (90, 180, 240, 400)]
    fewest = [(SMALL, r) for r in (60, 75, 90, 105, 120)]
    few = [(SMALL, r) for r in (150, 180, 210, 240, 300, 400)]
    return [*fewest, *few, (60, 300), (60, 360), (60, 420), (100, 600)]


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
    found = {
        (method, n, r): numbers
        for method in METHOD_NAMES
        for n, r in settings(size)
        if (numbers := results.numbers(trials(method, n, r, size)))
    }
    return Section(
        "Beyond the paper: exact, from few samples",
        _finding(found),
        f"No noise, θ = {DENSITY}, from {_fewest(size)} samples an atom on, "
        f"{len(size.n_trials(quick=4, full=20))} trials. Recovery is exact if the error is below {EXACT_WORDS}: "
        "rounding, not statistics. Annealed: p = " + ", ".join(f"{p:g}" for p in ANNEALED) + ", one after the other.",
        pictures=(
            Picture(
                "few-samples",
                f"Share of exact recoveries, and the median error, against the number of samples; n = {SMALL}. On the "
                f"left ℓ₃ lies below FastICA; on the right, errors below {drawing.per_cent_tick(ROUNDING)} are drawn "
                "there.",
                "Exact recoveries and errors of four methods against the number of samples",
                lambda palette, narrow: draw(found, palette, narrow),
            ),
        ),
        tables=(_table(results, size),),
        claims=tuple(_claims(found)),
    )


Errors = dict[tuple[str, int, int], list[float]]
"""By method, features and samples."""


def _finding(found: Errors) -> str:
    """The fewest samples an atom from which every trial is exact."""
    said = []
    for method in OURS:
        needed = _always_exact_from(found, method)
        if needed is not None:
            said.append(f"{METHOD_NAMES[method]} from {needed:g} samples an atom on")
    return f"Every trial is exact: {'; '.join(said)}." if said else "Not run yet, or never exact."


def _always_exact_from(found: Errors, method: str) -> float | None:
    """Samples an atom from which on no trial of any size missed; None if the most of them did."""
    at = sorted((r / n, _exact(errors)) for (name, n, r), errors in found.items() if name == method)
    missed = [ratio for ratio, share in at if share < 1]
    return next((ratio for ratio, _ in at if not missed or ratio > missed[-1]), None)


def _fewest(size: Size) -> str:
    return f"{min(r / n for n, r in settings(size)):g}"


def _exact(errors: list[float]) -> float:
    """Share of exact recoveries."""
    return float(np.mean(np.array(errors) < EXACT))


def _mean_share(shares: list[float]) -> str:
    return whole_percent(float(np.mean(shares)))


def _table(results: Results, size: Size) -> Table:
    rows = []
    for n, r in settings(size):
        entries = [_entry(results.summary(trials(method, n, r, size))) for method in METHOD_NAMES]
        rows.append((Entry(str(n), order=n), Entry(str(r), order=r), *entries))
    columns = ("n", "r", *METHOD_NAMES.values())
    caption = f"Fits with an error below {EXACT_WORDS}, of all fits, and the median error in per cent."
    return Table("few", caption, columns, tuple(rows), n_heads=2)


def _entry(summary: Summary) -> Entry:
    errors = list(summary.numbers)
    if not errors:
        return absent_entry(summary)
    median = f"median {bare(float(np.median(errors)))}"
    n_exact = sum(error < EXACT for error in errors)
    return Entry(f"{n_exact} of {len(errors)}", order=_exact(errors), lines=(median,))


def _claims(found: Errors) -> Iterator[Claim]:
    text = "Annealed p and refinement recover dictionaries exactly where ℓ₃ and FastICA never do."
    ours = [_exact(errors) for (method, n, r), errors in found.items() if method == "annealed" and r >= ENOUGH * n]
    theirs = [_exact(errors) for (method, _, _), errors in found.items() if method not in OURS]
    if not ours or not theirs:
        yield Claim(text, "Not run.", Verdict.OPEN, ours=True)
        return
    said = (
        f"With {ENOUGH} samples an atom or more: {_mean_share(ours)} exact; the others, {_mean_share(theirs)} anywhere."
    )
    yield Claim(text, said, Verdict.of((min(ours) >= 0.95) + (max(theirs) == 0), 2), ours=True)


def draw(found: Errors, palette: Palette, narrow: bool) -> Figure:
    """Shares and errors against samples."""
    figure, (left, right) = drawing.panels(palette, narrow, 2, height=3.6)
    for method, name in LOOK_NAMES.items():
        curve = [(r, errors) for (other, n, r), errors in found.items() if other == method and n == SMALL]
        if not curve:
            continue
        r, style = [at for at, _ in curve], drawing.line_style(name, palette)
        left.plot(r, [_exact(errors) for _, errors in curve], **style)
        right.plot(r, [max(float(np.median(errors)), ROUNDING) for _, errors in curve], **style)
    drawing.shares_on_y(left)
    left.set(xlabel="samples r")
    right.set(xlabel="samples r")
    drawing.per_cent_on_y(right, [1, 1e-4, 1e-8, 1e-12, ROUNDING])
    right.set_ylim(ROUNDING / 2, 2)
    drawing.titled(left, "Exact recoveries")
    drawing.titled(right, "Median error")
    drawing.legend_above(figure, [left, right], palette, narrow)
    return figure


EXPERIMENT = Experiment("few-samples", "Few samples", cells, section)
