"""Plots of fitted models: atoms, their errors, how the fit converged, codes, stability; and of rotated loadings.

Each function draws into `ax`, or into a figure of its own, and returns the axes. Nothing is shown and no setting of
matplotlib is changed. Needs the extra ``plot``.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from elldict._old.backend.base import to_numpy
from elldict._old.data.file import import_optional
from elldict._old.rotation_result import Rotation, choose_names
from elldict._old.summary import WITHIN, read_atoms, read_errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["atoms", "codes", "convergence", "errors", "loadings", "stability"]

KINDS = ("auto", "images", "bars", "map")
MOST_IMAGES, MOST_PANELS, MOST_ROWS = 400, 12, 12
"""Atoms that are drawn as images, with bars, and with their codes, unless others are asked for."""

LEAST_SIDE = 4
"""Pixels a side from which a square number of features is taken for an image."""

MOST_SAMPLES, MOST_CONSECUTIVE = 5000, 1000
"""Samples whose codes are drawn, and those of a series."""


def atoms(
    model: Any,
    *,
    shape: tuple[int, ...] | None = None,
    names: Sequence[str] | None = None,
    which: Sequence[int] | None = None,
    kind: str = "auto",
    ax: Axes | None = None,
) -> Axes:
    """Draw atoms: as images, as bars of their strongest features, or as one map.

    Parameters
    ----------
    model : LpDictionaryLearning or LpICA
        Fitted model.
    shape : tuple of int, default=None
        Height and width of an image, and 3 if features are its colours: (h, w) or (h, w, 3).
    names : sequence of str, default=None
        Names of the features; None takes those of the model, if it has any.
    which : sequence of int, default=None
        Atoms to draw; None is all of them, of images the first 400 and of bars the first 12.
    kind : {'auto', 'images', 'bars', 'map'}, default='auto'
        'images': a tile an atom, with its error below if there are at most 60. 'bars': the eight strongest features of
        each, by name. 'map': a row an atom, a column a feature. 'auto': images if there is a shape, bars if there are
        names, images if the number of features is a square of at least 4 pixels a side, and otherwise a map.
    ax : matplotlib axes, default=None
        Where to draw; None makes a figure.

    Returns
    -------
    matplotlib axes
        The axes; bars are in panels within them.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import elldict
    >>> model = elldict.LpICA(12, random_state=0, refine=None).fit(load_digits().data)
    >>> ax = elldict.plot.atoms(model, shape=(8, 8))
    >>> ax.get_title(loc="left")
    '12 atoms, strongest first'
    """
    if isinstance(model, Rotation):
        raise TypeError("plot.atoms draws a fitted model, found a Rotation: plot.loadings draws it.")
    check_is_fitted(model)
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}, expected one of {', '.join(map(repr, KINDS))}.")
    found, labels = read_atoms(model), find_names(model, names)
    chosen_kind, image = choose_kind(kind, shape, labels, found.shape[1])
    most = {"images": MOST_IMAGES, "bars": MOST_PANELS, "map": len(found)}[chosen_kind]
    numbers = _check_which(which, len(found), most)
    shown, wrong = found[numbers], read_errors(model)
    _require_matplotlib()
    drawing = importlib.import_module("elldict._old.report.atom_plots")
    if chosen_kind == "images":
        n_columns = drawing.choose_columns(len(numbers), 1.5 if ax is None else drawing.measure_ratio(ax))
        n_rows = -(-len(numbers) // n_columns)
        tall = 1.35 if len(numbers) <= drawing.MOST_LABELLED else 1.0
        side = min(0.9, 10 / n_columns)
        inches = (max(side * n_columns, 4.0), max(side * n_rows * image[0] / image[1] * tall, 0.8) + 0.6)
        with _open_axes(ax, inches) as axes:
            _set_title(
                axes, drawing.draw_images(axes, shown.reshape(-1, *image), numbers, wrong, len(found), n_columns)
            )
    elif chosen_kind == "bars":
        n_columns = drawing.choose_columns(len(numbers), 1.5 if ax is None else drawing.measure_ratio(ax))
        width, height = drawing.PANEL_INCHES
        inches = (max(width * n_columns, 4.0), height * -(-len(numbers) // n_columns) + 0.7)
        texts = labels if labels is not None else [str(number) for number in range(found.shape[1])]
        with _open_axes(ax, inches) as axes:
            _set_title(axes, drawing.draw_bars(axes, shown, texts, numbers, wrong, len(found), n_columns))
    else:
        with _open_axes(ax, (8.0, min(1.6 + 0.12 * len(numbers), 6.0))) as axes:
            _set_title(axes, drawing.draw_map(axes, shown, labels, numbers, len(found)))
    return axes


def errors(model: Any, *, within: float = WITHIN, ax: Axes | None = None) -> Axes:
    """Draw the error of each atom, as the fit states it.

    Parameters
    ----------
    model : LpDictionaryLearning or LpICA
        Fitted model.
    within : float, default=0.1
        Error up to which an atom counts as known, drawn as a dashed line; 0.1 is an angle of 13 degrees.
    ax : matplotlib axes, default=None
        Where to draw; None makes a figure.

    Returns
    -------
    matplotlib axes
        The axes. Triangles are exact atoms, crosses atoms of which samples say nothing.
    """
    check_is_fitted(model)
    if not 0 < within <= 1:
        raise ValueError(f"within={within!r}, expected an error above 0 and at most 1.")
    _require_matplotlib()
    drawing = importlib.import_module("elldict._old.report.fit_plots")
    with _open_axes(ax, (8.0, 4.2)) as axes:
        _set_title(axes, drawing.draw_errors(axes, read_errors(model), model.expected_error_, within))
    return axes


def convergence(model: Any, *, quantity: str = "step", ax: Axes | None = None) -> Axes:
    """Draw how a fit converged: each iteration against the passes over the samples that it took.

    Parameters
    ----------
    model : LpDictionaryLearning or LpICA
        Fitted model.
    quantity : {'step', 'objective'}, default='step'
        'step': how far atoms moved. 'objective': what was maximised, which phases do not share: those of a
        refinement have another one.
    ax : matplotlib axes, default=None
        Where to draw; None makes a figure.

    Returns
    -------
    matplotlib axes
        The axes; bands tell phases of the fit apart.
    """
    check_is_fitted(model)
    if quantity not in ("step", "objective"):
        raise ValueError(f"quantity={quantity!r}, expected 'step' or 'objective'.")
    _require_matplotlib()
    drawing = importlib.import_module("elldict._old.report.fit_plots")
    with _open_axes(ax, (8.0, 4.2)) as axes:
        drawing.draw_convergence(axes, model.history_, quantity)
        _set_title(axes, describe_end(model))
    return axes


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
    """Draw linear codes: their distribution beside the law that was fitted, or those of consecutive samples.

    Parameters
    ----------
    model : LpDictionaryLearning or LpICA
        Fitted model.
    X : array-like of shape (n_samples, n_features), path or Dataset
        Samples, as rows; whatever `fit` takes. A few thousand are read.
    which : sequence of int, default=None
        Atoms to draw; None is the first 12.
    over_time : bool, default=False
        Draw the codes of consecutive samples.
    first : int, default=0
        The first of the consecutive samples.
    n_samples : int, default=None
        Number of samples; None is 5000 drawn at random, or 1000 consecutive ones.
    ax : matplotlib axes, default=None
        Where to draw; None makes a figure.

    Returns
    -------
    matplotlib axes
        The axes.
    """
    check_is_fitted(model)
    numbers = _check_which(which, model.n_components_, MOST_ROWS)
    _require_matplotlib()
    sampling = importlib.import_module("elldict._old.report.sampling")
    drawing = importlib.import_module("elldict._old.report.fit_plots")
    samples = sampling.open_source(model, X, "codes")
    r = samples.n_samples
    most = n_samples or (MOST_CONSECUTIVE if over_time else MOST_SAMPLES)
    if most < 1 or not 0 <= first < r:
        raise ValueError(f"first={first!r}, n_samples={n_samples!r}: expected samples among the {r} of X.")
    index = np.arange(first, min(first + most, r)) if over_time else sampling.choose_samples(r, most)
    found = sampling.take_codes(model, samples, index)[:, numbers]
    with _open_axes(ax, (8.0, 1.2 + 0.42 * len(numbers))) as axes:
        if over_time:
            _set_title(axes, drawing.draw_series(axes, found, numbers, first, model.n_components_))
        else:
            _set_title(axes, drawing.draw_codes(axes, found, numbers, read_laws(model), model.n_components_))
    return axes


def stability(found: Any, *, threshold: float = 0.9, ax: Axes | None = None) -> Axes:
    """Draw how stable atoms are: sorted values of one fit, or a path over numbers of components.

    Parameters
    ----------
    found : Stability
        What :func:`elldict.stability` returned.
    threshold : float, default=0.9
        Least value of a stable atom.
    ax : matplotlib axes, default=None
        Where to draw; None makes a figure.

    Returns
    -------
    matplotlib axes
        The axes.
    """
    _require_matplotlib()
    drawing = importlib.import_module("elldict._old.report.stability")
    draw = drawing.draw_path if len(found.n_components) > 1 else drawing.draw_values
    with _open_axes(ax, (8.0, 4.5)) as axes:
        draw(axes, found.n_components, found.values, threshold)
    return axes


def loadings(found: Rotation, *, names: Sequence[str] | None = None, ax: Axes | None = None) -> Axes:
    """Draw rotated loadings with twice their standard errors, in a panel for each factor.

    Parameters
    ----------
    found : Rotation
        What :func:`elldict.rotate` returned.
    names : sequence of str, default=None
        Names of the rows; None takes those of the data frame, or numbers.
    ax : matplotlib axes, default=None
        Where to draw; None makes a figure.

    Returns
    -------
    matplotlib axes
        The axes; panels are within them. Rows are by the factor of their largest loading; of many, the 40 with the
        largest communality, and the first 8 factors. In colour are loadings above twice their standard error.
    """
    if not isinstance(found, Rotation):
        raise TypeError(
            f"plot.loadings draws a Rotation, as elldict.rotate returns it, found a {type(found).__name__}."
        )
    values = np.asarray(to_numpy(found.loadings), dtype=np.float64)
    wrong = None if found.standard_errors is None else np.asarray(to_numpy(found.standard_errors), dtype=np.float64)
    texts = choose_names(names, found.names, len(values))
    _require_matplotlib()
    drawing = importlib.import_module("elldict._old.report.loading_plots")
    with _open_axes(ax, drawing.choose_size(values.shape)) as axes:
        _set_title(axes, drawing.draw_loadings(axes, values, wrong, texts, found.error_source))
    return axes


# --- what pages draw of a model too -----------------------------------------------------------------------------------


def find_names(model: Any, names: Sequence[str] | None) -> list[str] | None:
    """Names of the features, given or those of the model."""
    if names is None:
        names = getattr(model, "feature_names_in_", None)
    if names is None:
        return None
    texts = [str(name) for name in names]
    if len(texts) != model.n_features_in_:
        raise ValueError(f"names has {len(texts)} entries, expected one for each of {model.n_features_in_} features.")
    return texts


def choose_kind(
    kind: str, shape: tuple[int, ...] | None, names: Sequence[str] | None, n_features: int
) -> tuple[str, tuple[int, ...]]:
    """How atoms are drawn, and the shape of an image."""
    side = math.isqrt(n_features)
    square = side * side == n_features and side >= LEAST_SIDE
    if shape is not None:
        shape = tuple(int(size) for size in shape)
        usual = len(shape) == 2 or (len(shape) == 3 and shape[2] == 3)
        if not usual or min(shape) < 1 or math.prod(shape) != n_features:
            raise ValueError(f"shape={shape}, expected (h, w) or (h, w, 3) with a product of {n_features} features.")
    if kind == "auto":
        kind = "images" if shape is not None else "bars" if names is not None else "images" if square else "map"
    if kind == "images" and shape is None:
        if not square:
            raise ValueError(f"{n_features} features are no square image: give shape=(h, w) or (h, w, 3).")
        shape = (side, side)
    return kind, shape or (1, n_features)


def read_laws(model: Any) -> Any:
    """Laws of the codes of a model, to be drawn."""
    drawing = importlib.import_module("elldict._old.report.fit_plots")
    density, scale = (np.asarray(to_numpy(law), dtype=np.float64) for law in (model.density_, model.scale_))
    return drawing.CodeLaws(density, scale, model.noise_std_, model._mixture)


def describe_end(model: Any) -> tuple[str, str]:
    """How a fit ended, as a title and a note."""
    ended = "Converged" if model.converged_ else "Not converged"
    passes = f"{round(model.n_passes_, 1):g}"
    note = f"{passes} passes over the samples in all, with those for statistics, tests and error bars"
    return f"{ended} after {model.n_iter_} iterations", note


def _check_which(which: Sequence[int] | None, n_atoms: int, most: int) -> NDArray[np.intp]:
    """Numbers of the atoms to draw."""
    if which is None:
        return np.arange(min(n_atoms, most))
    numbers = np.atleast_1d(np.asarray(which))
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or not len(numbers):
        raise ValueError(f"which={which!r}, expected numbers of atoms, such as range(10).")
    if np.min(numbers) < 0 or np.max(numbers) >= n_atoms:
        raise ValueError(f"which={which!r}, expected numbers of atoms from 0 to {n_atoms - 1}.")
    return numbers.astype(np.intp)


def _require_matplotlib() -> None:
    import_optional("matplotlib", "plot")


def _set_title(axes: Axes, caption: tuple[str, str]) -> None:
    importlib.import_module("elldict._old.report.style").set_title(axes, caption)


@contextmanager
def _open_axes(ax: Axes | None, inches: tuple[float, float]) -> Iterator[Axes]:
    """The axes that were given, or those of a new figure on white."""
    if ax is not None:
        yield ax
        return
    card = importlib.import_module("elldict._old.report.style").LIGHT.card
    look = {"font.size": 10, "axes.facecolor": card, "figure.facecolor": card, "savefig.facecolor": "auto"}
    with import_optional("matplotlib", "plot").rc_context(look):
        figure = import_optional("matplotlib.pyplot", "plot").figure(figsize=inches, layout="constrained")
        yield figure.add_subplot()
