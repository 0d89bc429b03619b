"""The page about a fitted model: components, their errors, how the fit ended, and codes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from elldict import summary
from elldict.report import figures
from elldict.report.page import embed_drawing, embed_image, list_versions, render
from elldict.report.reading import MOST_CODES, MOST_SAMPLES, choose_kind, encode, spread, take_rows
from elldict.samples.arrays import to_numpy
from elldict.samples.base import Array
from elldict.samples.whitening import find_scales

MOST_IMAGES, MOST_BARS = 120, 24
"""Components shown as images and as bars."""


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
    variance: Array  # (m,) fraction of the variance of the samples
    kurtosis: Array  # (m,) of the codes, 0 for Gaussian ones
    panels: list[Any]
    note: str


def make_report(
    model: Any, X: Any = None, *, names: Sequence[str] | None = None, shape: tuple[int, ...] | None = None
) -> str:
    """Make the page about a model, and about the codes of X if there is one."""
    check_is_fitted(model)
    labels = summary.find_names(model, names)
    kind, shape = choose_kind("auto", shape, labels, model.n_features_in_)
    codes = None if X is None else describe_samples(model, X)
    tiles = list(make_tiles(model, kind, shape, labels))
    errors, angles = summary.read_errors(model), summary.read_angles(model)
    return render(
        "own.html.j2",
        model=model,
        size=summary.describe_size(model),
        ended=summary.describe_end(model),
        figures=make_figures(model),
        kind=kind,
        tiles=tiles,
        map=embed_image(figures.paint(summary.read_components(model))) if kind == "map" else "",
        shown=figures.count(len(tiles), model.n_components_, "component"),
        is_color=shape is not None and len(shape) == 3,
        errors=embed_drawing(
            lambda axes: figures.draw_errors(axes, errors, angles, summary.NEAR),
            figures.describe_near(angles, summary.NEAR),
        ),
        source=summary.describe_source(model),
        exact=bool(np.all(errors < summary.EXACT)),
        convergence=embed_drawing(
            lambda axes: figures.draw_convergence(axes, model.history_, "step"), "Size of the step by iteration"
        ),
        codes=codes,
        rows=list(make_rows(model, codes)),
        facts=list(summary.list_facts(model)),
        versions=list_versions(),
    )


def make_figures(model: Any) -> Iterator[tuple[str, str]]:
    """List the most important numbers, and what they are."""
    errors, angles = summary.read_errors(model), summary.read_angles(model)
    known = ~np.isnan(errors)
    if not np.any(known):
        yield "–", "errors were not estimated"
    elif np.nanmax(errors) < summary.EXACT:
        yield "exact", f"up to rounding: {figures.count(int(np.sum(known)), len(errors), 'component')}"
    else:
        yield f"{summary.format_angle(float(np.median(angles[known])))}°", "median error of the components"
        near = summary.NEAR
        yield f"{np.sum(angles <= near)} of {len(angles)}", f"components with an error within {near:g}°"
    yield summary.format_percent(summary.mean_density(model)), "of the codes are not zero"
    yield f"{model.n_iter_:,}", f"iterations; {'converged' if model.converged_ else 'not converged'}"


def make_tiles(model: Any, kind: str, shape: tuple[int, ...] | None, names: Sequence[str] | None) -> Iterator[Tile]:
    """Make images or bars of the first components; for a map, there are none."""
    components = summary.read_components(model)[: {"images": MOST_IMAGES, "bars": MOST_BARS}.get(kind, 0)]
    for i, component in enumerate(components):
        error = summary.format_error(summary.read_errors(model)[i])
        if kind == "images" and shape is not None:
            yield Tile(i, error, image=embed_image(figures.paint_images(component.reshape(1, *shape))[0]))
        elif names is not None:
            index = summary.find_largest(component, figures.N_BARS)
            lengths = 100 * component[index] / (np.max(np.abs(component)) or 1)
            texts = [summary.shorten(names[j]) for j in index]
            yield Tile(i, error, bars=tuple(zip(texts, np.abs(lengths), lengths > 0, strict=True)))


def describe_samples(model: Any, X: Any) -> Codes:
    """Compute codes of a few thousand samples, and draw their distributions."""
    X = model._check_samples(X, "report")
    rows = take_rows(X, spread(X.shape[0], MOST_SAMPLES))
    Z, mixing = encode(model, rows), to_numpy(model.mixing_).astype(np.float64)
    rows -= model._offset
    if model.standardize:
        unit = find_scales(np.mean(rows**2, axis=0))
        rows, mixing = rows / unit, mixing / unit[:, None]
    total = float(np.sum(rows**2)) or 1.0
    squares = np.sum(Z**2, axis=0)
    draw = partial(figures.draw_histogram, histograms=figures.make_histograms(model, Z))
    return Codes(
        n_samples=len(rows),
        n_all=X.shape[0],
        explained=1 - float(np.sum((rows - Z @ mixing.T) ** 2)) / total,
        variance=np.sum(mixing**2, axis=0) * squares / total,
        kurtosis=len(Z) * np.sum(Z**4, axis=0) / np.where(squares > 0, squares, 1) ** 2 - 3,
        panels=[
            embed_drawing(partial(draw, i=i), f"Codes of component {i}", (2.1, 1.35))
            for i in range(min(MOST_CODES, Z.shape[1]))
        ],
        note=figures.describe_codes(model),
    )


def make_rows(model: Any, codes: Codes | None) -> Iterator[list[str]]:
    """List the cells of the table of all components."""
    density, scale = to_numpy(model.density_), to_numpy(model.scale_)
    for i, error in enumerate(summary.read_errors(model)):
        row = [str(i), summary.format_error(error), summary.format_percent(density[i]), f"{scale[i]:.3g}"]
        if codes is not None:
            row += [summary.format_percent(codes.variance[i]), f"{codes.kurtosis[i]:.1f}"]
        yield row
