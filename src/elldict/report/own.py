"""The page about a fitted model: components, their errors, how the fit ended, and codes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from elldict import plot, summary
from elldict.report import figures
from elldict.report.page import embed_drawing, embed_image, list_versions, render
from elldict.report.reading import choose_kind, read_samples, spread
from elldict.samples.arrays import to_numpy
from elldict.samples.whitening import find_scales


@dataclass(frozen=True)
class Tile:
    """A component on the page: an image, or names, lengths in percent and signs of its largest features."""

    number: int
    error: str
    image: str = ""
    bars: tuple[tuple[str, float, bool], ...] = ()


@dataclass(frozen=True)
class Codes:
    """What a few thousand samples show: their number, explained variance, and distributions as drawings."""

    n_samples: int
    n_all: int
    explained: float
    panels: list[Any]
    note: str
    columns: list[list[str]]  # of the table of components: explained variance, and kurtosis, 0 for Gaussian codes


def make_report(
    model: Any, X: Any = None, *, names: Sequence[str] | None = None, shape: tuple[int, ...] | None = None
) -> str:
    """Make the page about a model, and about the codes of X if there is one."""
    check_is_fitted(model)
    labels = summary.find_names(model, names)
    kind, shape = choose_kind("auto", shape, labels, model.n_features_in_)
    codes = None if X is None else describe_samples(model, X)
    tiles = list(make_tiles(model, kind, shape, labels))
    table = summary.tabulate(model)
    if codes is not None:
        table = [row + more for row, more in zip(table, codes.columns, strict=True)]
    errors = summary.read_errors(model)
    return render(
        "own.html.j2",
        model=model,
        size=summary.describe_size(model),
        facts=list(summary.list_facts(model)),
        kind=kind,
        tiles=tiles,
        map=embed_image(figures.paint(summary.read_components(model))) if kind == "map" else "",
        shown=summary.count(model.n_components_, "component", len(tiles)),
        is_color=shape is not None and len(shape) == 3,
        has_angles=bool(np.any(errors >= summary.EXACT)),
        errors=embed_drawing(lambda axes: plot.errors(model, ax=axes), "Error of each component"),
        convergence=embed_drawing(lambda axes: plot.convergence(model, ax=axes), "Size of the step by iteration"),
        codes=codes,
        table=table,
        versions=list_versions(),
    )


def make_tiles(model: Any, kind: str, shape: tuple[int, ...] | None, names: Sequence[str] | None) -> Iterator[Tile]:
    """Make images or bars of the first components; for a map, there are none."""
    errors, most = summary.read_errors(model), {"images": 120, "bars": 24, "map": 0}[kind]
    for i, component in enumerate(summary.read_components(model)[:most]):
        error = summary.format_error(errors[i])
        if kind == "images" and shape is not None:
            yield Tile(i, error, image=embed_image(figures.paint_images(component.reshape(1, *shape))[0]))
        elif names is not None:
            index = summary.find_largest(component, 8)
            lengths = 100 * component[index] / (np.max(np.abs(component)) or 1)
            texts = [summary.shorten(names[j]) for j in index]
            yield Tile(i, error, bars=tuple(zip(texts, np.abs(lengths), lengths > 0, strict=True)))


def describe_samples(model: Any, X: Any) -> Codes:
    """Compute codes of a few thousand samples, and draw their distributions."""
    X = model._check_samples(X, "report")
    rows, Z = read_samples(model, X, spread(X.shape[0]))
    mixing = to_numpy(model.mixing_).astype(np.float64)
    if model.standardize:
        unit = find_scales(np.mean(rows**2, axis=0))
        rows, mixing = rows / unit, mixing / unit[:, None]
    total, squares = float(np.sum(rows**2)) or 1.0, np.sum(Z**2, axis=0)
    variance = np.sum(mixing**2, axis=0) * squares / total
    kurtosis = len(Z) * np.sum(Z**4, axis=0) / np.where(squares > 0, squares, 1) ** 2 - 3
    cells = [[summary.format_percent(v), f"{k:.1f}"] for v, k in zip(variance, kurtosis, strict=True)]
    draw = partial(figures.draw_histogram, histograms=figures.make_histograms(model, Z))
    return Codes(
        n_samples=len(rows),
        n_all=X.shape[0],
        explained=1 - float(np.sum((rows - Z @ mixing.T) ** 2)) / total,
        panels=[
            embed_drawing(partial(draw, i=i), f"Codes of component {i}", (2.1, 1.35)) for i in range(Z.shape[1])[:12]
        ],
        note=figures.describe_codes(model),
        columns=[["variance", "excess kurtosis"], *cells],
    )
