"""Plots of fitted models: components, errors, convergence, codes; of stability; and of rotated loadings.

Each function draws into `ax`, or into a new figure, and returns the axes. Nothing is shown, and no setting of
matplotlib is changed. Needs the extra ``plot``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from elldict import summary
from elldict.report import figures, reading
from elldict.samples.arrays import to_numpy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["atoms", "codes", "convergence", "errors", "loadings", "stability"]


def atoms(
    model: Any,
    *,
    shape: tuple[int, ...] | None = None,
    names: Sequence[str] | None = None,
    which: Sequence[int] | None = None,
    kind: str = "auto",
    ax: Axes | None = None,
) -> Axes:
    """Draw components: as images, as bars of their largest features, or all of them as a map.

    Parameters
    ----------
    model : LpDictionaryLearning or LpICA
        Fitted model. Components are the columns of `mixing_`.
    shape : tuple of int, default=None
        Shape of the samples if they are images: (h, w) or (h, w, 3).
    names : sequence of str, default=None
        Names of the features. None: those of the data frame of the fit, if there was one.
    which : sequence of int, default=None
        Components to draw. None: the first 400 as images, the first 12 as bars, or all as a map.
    kind : {'auto', 'images', 'bars', 'map'}, default='auto'
        'images': one image per component. 'bars': its eight largest features, by name. 'map': one row per component,
        one column per feature. 'auto': images if there is a shape, bars if there are names, otherwise a map.
    ax : matplotlib axes, default=None
        Axes to draw into. None: those of a new figure.

    Returns
    -------
    matplotlib axes
        The axes. Up to 60 images, and all bars, have the estimated error of the component, as an angle.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from elldict import LpICA, plot
    >>> ica = LpICA(10).fit(load_digits().data)
    >>> ax = plot.atoms(ica, shape=(8, 8))
    >>> ax.get_title(loc="left")
    '10 components'
    """
    check_is_fitted(model)
    labels, found = summary.find_names(model, names), summary.read_components(model)
    kind, shape = reading.choose_kind(kind, shape, labels, found.shape[1])
    most = {"images": 400, "bars": 12, "map": len(found)}[kind]
    index = reading.choose_components(which, len(found), most)
    shown, known = found[index], summary.read_errors(model)
    texts = [str(i) if np.isnan(known[i]) else f"{i}: {summary.format_error(known[i])}" for i in index]
    n_columns = figures.choose_columns(len(index))
    n_rows = math.ceil(len(index) / n_columns)
    if kind == "images":
        assert shape is not None
        ax = ax or figures.open_axes(max(4.0, min(9.0, 0.9 * n_columns)), max(1.5, min(9.0, 1.2 * n_rows)))
        legible = texts if len(index) <= 60 else []
        figures.draw_images(ax, shown.reshape(-1, *shape), n_columns, legible)
        note = "each scaled to its largest entry" + ("" if len(shape) == 3 else "; blue positive, orange negative")
    elif kind == "bars":
        ax = ax or figures.open_axes(max(4.0, 2.4 * n_columns), 0.6 + 2 * n_rows)
        for panel, component, text in zip(figures.divide(ax, len(index), n_columns), shown, texts, strict=True):
            figures.draw_bars(panel, component, labels or [str(j) for j in range(found.shape[1])], text)
        note = "largest features, and the estimated error of each component"
    else:
        ax = ax or figures.open_axes(8.0, min(6.0, 1.6 + 0.12 * len(index)))
        figures.draw_map(ax, shown, index)
        note = "each scaled to its largest entry; blue positive, orange negative"
    figures.set_title(ax, summary.count(len(found), "component", len(index)), note)
    return ax


def errors(model: Any, *, within: float = summary.NEAR, ax: Axes | None = None) -> Axes:
    """Draw the estimated error of each component, as an angle.

    Parameters
    ----------
    model : LpDictionaryLearning or LpICA
        Fitted model.
    within : float, default=15.0
        Angle in degrees of the dashed line, up to which components are counted in the title.
    ax : matplotlib axes, default=None
        Axes to draw into. None: those of a new figure.

    Returns
    -------
    matplotlib axes
        The axes. Triangles are exact components; those without an estimate are left out.
    """
    check_is_fitted(model)
    if not 0 < within <= 90:
        raise ValueError(f"within must be an angle in the range (0, 90]. Got {within!r} instead.")
    ax = ax or figures.open_axes(7.0, 3.8)
    known = summary.read_errors(model)
    numbers, angles, exact = np.arange(len(known)), summary.to_degrees(known), known < summary.EXACT
    lowest = float(np.nanmin(np.r_[angles[~exact], within])) / 2
    ax.axhline(within, color=figures.POSITIVE, linewidth=1, linestyle=(0, (5, 4)), alpha=0.7)
    size = 5.0 if len(known) <= 100 else 3.0
    for some, color in ((angles <= within, figures.POSITIVE), (angles > within, figures.WEAK)):
        ax.plot(numbers[some & ~exact], angles[some & ~exact], "o", color=color, markersize=size)
    ax.plot(numbers[exact], np.full(np.sum(exact), 1.2 * lowest), "v", color=figures.POSITIVE, markersize=size)
    ax.set(yscale="log", ylim=(lowest, 100), xlabel="component", ylabel="estimated error")
    ticks = {angle: f"{angle:g}°" for angle in (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 90) if angle > 1.5 * lowest}
    if np.any(exact):
        ticks[1.2 * lowest] = "exact"
    ax.set_yticks(list(ticks), list(ticks.values()))
    ax.set_yticks([], minor=True)
    figures.frame(ax, whole=True)
    near = f"{np.sum(angles <= within)} of {len(angles)} components within {within:g}°"
    title = "Errors were not estimated" if np.all(np.isnan(known)) else near
    figures.set_title(ax, title, "angle between each component and the true one; triangles: exact")
    return ax


def convergence(model: Any, *, quantity: str = "step", ax: Axes | None = None) -> Axes:
    """Draw how a fit converged.

    Parameters
    ----------
    model : LpDictionaryLearning or LpICA
        Fitted model.
    quantity : {'step', 'objective'}, default='step'
        'step': size of the steps. 'objective': what each stage maximises. Stages have different objectives, or the
        same one on different samples, so that their values are drawn relative to the last one of each stage.
    ax : matplotlib axes, default=None
        Axes to draw into. None: those of a new figure.

    Returns
    -------
    matplotlib axes
        The axes, with one line per stage. Shaded bands separate stages.
    """
    check_is_fitted(model)
    if quantity not in ("step", "objective"):
        raise ValueError(f"quantity must be 'step' or 'objective'. Got {quantity!r} instead.")
    ax = ax or figures.open_axes(7.0, 3.8)
    stages = np.array([iteration.stage for iteration in model.history_], dtype=int)
    values = np.array([getattr(iteration, quantity) for iteration in model.history_])
    for stage in np.unique(stages):
        some = np.flatnonzero(stages == stage)
        if stage % 2 == 0:
            ax.axvspan(some[0] + 0.5, some[-1] + 1.5, color=figures.BAND, zorder=0, linewidth=0)
        y = values[some] - (values[some[-1]] if quantity == "objective" else 0)
        ax.plot(some + 1, y, "-o", color=figures.POSITIVE, markersize=3.5, linewidth=1.3)
    if quantity == "step" and np.any(values > 0):
        ax.set_yscale("log")
        ax.set_yticks([], minor=True)
        if np.max(values) < 100 * np.min(values[values > 0]):
            figures.label_values(ax)
    labels = {"step": "size of the step", "objective": "objective, relative to the end of its stage"}
    ax.set(xlabel="iteration", ylabel=labels[quantity])
    figures.frame(ax, whole=True)
    ended = "Converged" if model.converged_ else "Not converged"
    note = "bands: stages, each with its own objective or samples"
    figures.set_title(ax, f"{ended} after {summary.count(model.n_iter_, 'iteration')}", note)
    return ax


def codes(
    model: Any,
    X: Any,
    *,
    which: Sequence[int] | None = None,
    over_time: bool = False,
    first: int = 0,
    n_samples: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw linear codes: their distributions with the fitted densities, or those of consecutive samples.

    Parameters
    ----------
    model : LpDictionaryLearning or LpICA
        Fitted model.
    X : array-like of shape (n_samples, n_features)
        Samples as rows.
    which : sequence of int, default=None
        Components to draw. None: the first 12.
    over_time : bool, default=False
        Whether to draw the codes of consecutive samples as series.
    first : int, default=0
        First of the consecutive samples.
    n_samples : int, default=None
        Number of samples. None: 5000 that are evenly spaced, or 1000 consecutive ones.
    ax : matplotlib axes, default=None
        Axes to draw into. None: those of a new figure.

    Returns
    -------
    matplotlib axes
        The axes; distributions are in panels inside of them, with a logarithmic axis. If the fit normalised the
        samples, they are those of normalised codes.
    """
    check_is_fitted(model)
    index = reading.choose_components(which, model.n_components_, 12)
    X = model._check_samples(X, "plot.codes")
    r, most = X.shape[0], n_samples or (1000 if over_time else 5000)
    if most < 1 or not 0 <= first < r:
        raise ValueError(f"first={first!r} and n_samples={n_samples!r} must select some of the {r} samples of X.")
    places = np.arange(first, min(first + most, r)) if over_time else reading.spread(r, most)
    _, Z = reading.read_samples(model, X, places)
    title = f"Codes of {summary.count(model.n_components_, 'component', len(index))}"
    if over_time:
        ax = ax or figures.open_axes(8.0, 1.2 + 0.45 * len(index))
        figures.draw_series(ax, Z[:, index], [str(i) for i in index], places)
        figures.set_title(ax, title, "each scaled to its largest value")
        return ax
    n_columns = figures.choose_columns(len(index))
    ax = ax or figures.open_axes(2.2 * n_columns, 0.8 + 1.5 * math.ceil(len(index) / n_columns))
    histograms = figures.make_histograms(model, Z)
    for panel, i in zip(figures.divide(ax, len(index), n_columns), index, strict=True):
        figures.draw_histogram(panel, histograms, int(i))
    figures.set_title(ax, title, figures.describe_codes(model))
    return ax


def loadings(found: Any, *, names: Sequence[str] | None = None, ax: Axes | None = None) -> Axes:
    """Draw rotated loadings with twice their standard errors, one panel per factor.

    Parameters
    ----------
    found : Rotation
        Result of :func:`elldict.rotate`.
    names : sequence of str, default=None
        Names of the rows. None: those of the data frame, or numbers.
    ax : matplotlib axes, default=None
        Axes to draw into. None: those of a new figure.

    Returns
    -------
    matplotlib axes
        The axes, with panels inside of them: the first 8 factors, and the 40 rows of largest communality, sorted by the
        factor of their largest loading. Loadings within twice their standard error are grey.
    """
    values, k = to_numpy(found.loadings).astype(np.float64), min(found.loadings.shape[1], 8)
    wrong = None if found.standard_errors is None else to_numpy(found.standard_errors)
    known = found.names if names is None else names
    texts = [summary.shorten(str(name)) for name in (range(len(values)) if known is None else known)]
    if len(texts) != len(values):
        raise ValueError(f"names must have one entry per row, {len(values)}. Got {len(texts)} instead.")
    rows = figures.sort_rows(values, 40)
    ax = ax or figures.open_axes(2.2 + max(1.75 * k, 3.0), 1.4 + 0.21 * max(len(rows), 6))
    reach = 1.05 * float(np.max(np.abs(values[rows, :k]) + (0 if wrong is None else 2 * wrong[rows, :k])))
    for factor, panel in enumerate(figures.divide(ax, k, k)):
        figures.draw_loadings(panel, values[rows, factor], None if wrong is None else wrong[rows, factor], reach)
        panel.set_yticks(range(len(rows)), [texts[row] if factor == 0 else "" for row in rows], parse_math=False)
        panel.set_title(f"factor {factor + 1}", size="medium")
    source = "no standard errors" if wrong is None else f"bars: twice the standard error over {found.error_source}"
    title = f"Loadings of {summary.count(len(values), 'variable', len(rows))}"
    figures.set_title(ax, title, f"blue positive, orange negative; {source}")
    return ax


def stability(found: Any, *, threshold: float = 0.9, ax: Axes | None = None) -> Axes:
    """Draw how well components are reproduced: sorted values, for each number of components.

    Parameters
    ----------
    found : Stability
        Result of :func:`elldict.stability`.
    threshold : float, default=0.9
        Smallest value of a stable component.
    ax : matplotlib axes, default=None
        Axes to draw into. None: those of a new figure.

    Returns
    -------
    matplotlib axes
        The axes. Each dot is a component, and its bar is twice the spread over splits if there is a single number of
        components. For several, the number of stable components is above the dots.
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must be a number in the range (0, 1]. Got {threshold!r} instead.")
    ax = ax or figures.open_axes(7.0, 4.2)
    counts = found.count_stable(threshold)
    figures.draw_stability(ax, found, counts, threshold)
    best, k, n_splits = max(counts), found.n_components[0], found.n_splits
    note = f"similarity in {summary.count(n_splits, 'random pair')} of halves"
    if len(counts) == 1:
        title, bars = f"{best} of {summary.count(k, 'component')}", "bars: standard deviation"
    else:
        title, bars = f"At most {summary.count(best, 'component')}", "numbers: stable ones"
    figures.set_title(ax, f"{title} {'is' if best == 1 else 'are'} stable", f"{note}; {bars}")
    return ax
