"""What components mean: the samples with their largest codes, such as words, and how sparse these codes are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from elldict.blas import one_blas_thread
from elldict.exceptions import make_readable
from elldict.samples.arrays import to_numpy
from elldict.samples.base import Array, FieldwiseSum, Index, Samples
from elldict.samples.dask import is_dask
from elldict.samples.open import open_source
from elldict.samples.statistics import compute_statistics
from elldict.summary import read_errors
from elldict.validation import is_number

__all__ = ["Axes", "describe_axes"]


@dataclass(frozen=True, eq=False, repr=False)
class Axes:
    """The samples with the largest codes of each component, on both sides: result of :func:`elldict.describe_axes`.

    Attributes
    ----------
    strength : ndarray of shape (n_components,)
        ``E|z|**3 / E[z**2]**1.5`` of the codes z of a component, divided by its value for Gaussian codes: 1 if they
        look Gaussian, larger if few samples have large codes, below 1 if codes are sub-Gaussian.
    error : ndarray of shape (n_components,)
        `atom_error_` of the model.
    positive, negative : tuple of tuple of str
        Names of the samples with the largest and the smallest codes of each component, the most extreme first. Only
        codes of that sign are listed.
    positive_codes, negative_codes : tuple of ndarray
        Their codes, divided by the root mean square of the codes of the component.
    tail : ndarray of shape (n_components,)
        Side of the long tail: the sign of E z**3, 1 or -1.
    """

    strength: Array
    error: Array
    positive: tuple[tuple[str, ...], ...]
    negative: tuple[tuple[str, ...], ...]
    positive_codes: tuple[Array, ...]
    negative_codes: tuple[Array, ...]
    tail: NDArray[np.int64]

    @property
    def strongest(self) -> tuple[tuple[str, ...], ...]:
        """Names of the most extreme samples on the side of the long tail, for each component."""
        sides = zip(self.positive, self.negative, self.tail, strict=True)
        return tuple(up if tail > 0 else down for up, down, tail in sides)

    def summary(self, order: Sequence[int] | None = None, *, most: int | None = None) -> str:
        """Make a table with one line per component, in which the side of the long tail comes first.

        Parameters
        ----------
        order : sequence of int, default=None
            Components, in the order of the lines. None: the first 20, or `most`, by decreasing strength.
        most : int, default=None
            Maximum number of lines.

        Returns
        -------
        str
            Lines of text.
        """
        chosen = np.argsort(-self.strength, kind="stable") if order is None else np.asarray(order, dtype=np.intp)
        shown = chosen[: most or (20 if order is None else len(chosen))]
        lines = ["axis  strength  error  strongest samples"]
        for axis in shown:
            sides = [("+", self.positive[axis]), ("-", self.negative[axis])]
            texts = [f"{sign} {join_names(names)}" for sign, names in sides if names]
            listed = "   ".join(texts if self.tail[axis] > 0 else texts[::-1])
            lines.append(f"{axis:4d}  {self.strength[axis]:8.2f}  {self.error[axis]:5.2f}  {listed}")
        left = len(chosen) - len(shown) if order is None else 0
        return "\n".join([*lines, f"... and {left} more axes"] if left else lines)

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return f"<Axes: {len(self.strength)} axes, strength {np.min(self.strength):.2g} to {np.max(self.strength):.2g}>"


def describe_axes(model: Any, X: Any, names: Sequence[Any] | None = None, *, n_strongest: int = 7) -> Axes:
    """Find the samples with the largest codes of each component on either side, and how sparse its codes are.

    Parameters
    ----------
    model : LpDictionaryLearning or LpICA
        Fitted model.
    X : array-like of shape (n_samples, n_features)
        Samples as rows, such as vectors of words.
    names : sequence of shape (n_samples,), default=None
        Names of the samples. None: the index of a data frame of pandas, otherwise their numbers.
    n_strongest : int, default=7
        Number of samples on each side.

    Returns
    -------
    Axes
        Names, codes and strengths, which are printed as a table.

    See Also
    --------
    elldict.stability : Components that are reproducible on other samples.

    Examples
    --------
    >>> import numpy as np
    >>> from elldict import LpICA, describe_axes
    >>> rng = np.random.default_rng(0)
    >>> X = rng.laplace(size=(500, 3)) @ rng.normal(size=(3, 3))
    >>> found = describe_axes(LpICA().fit(X), X, [f"word{i}" for i in range(500)], n_strongest=2)
    >>> len(found.positive), len(found.positive[0])
    (3, 2)
    """
    if not is_number(n_strongest, Integral) or n_strongest < 1:
        raise ValueError(f"n_strongest must be an int in [1, inf). Got {n_strongest!r} instead.")
    if names is None and hasattr(X, "iloc") and not is_dask(X):
        names = X.index
    names = None if names is None else list(names)
    X = model._check_samples(X, "describe_axes")
    if names is not None and len(names) != X.shape[0]:
        raise ValueError(f"names must have one entry per sample, {X.shape[0]}. Got {len(names)} instead.")
    with one_blas_thread() as n_threads:
        unmixing = to_numpy(model.unmixing_).astype(np.float64)
        found = summarize_codes(open_source(X, n_threads), unmixing, model._offset, int(n_strongest))
    sides = zip(found.largest.values.T, found.largest.index.T, strict=True)
    listed = [(codes[codes > 0], name_samples(names, index[codes > 0])) for codes, index in sides]
    up, down = listed[: len(unmixing)], listed[len(unmixing) :]
    gaussian = 2 * math.sqrt(2 / math.pi)  # E |x|^3 for unit variance
    return Axes(
        strength=found.cubes / X.shape[0] / gaussian,
        error=read_errors(model),
        positive=tuple(named for _, named in up),
        negative=tuple(named for _, named in down),
        positive_codes=tuple(codes for codes, _ in up),
        negative_codes=tuple(-codes for codes, _ in down),
        tail=np.where(found.signed_cubes < 0, -1, 1),
    )


@dataclass(frozen=True)
class Largest:
    """The n largest values of each column, in decreasing order, and the numbers of their samples."""

    n: int
    values: Array  # (at most n, 2 m): codes, and codes with the other sign
    index: Index  # (at most n, 2 m)

    def __add__(self, other: Self) -> Self:
        values, index = np.concatenate([self.values, other.values]), np.concatenate([self.index, other.index])
        order = np.argsort(-values, axis=0, kind="stable")[: self.n]
        return type(self)(self.n, np.take_along_axis(values, order, 0), np.take_along_axis(index, order, 0))


@dataclass(frozen=True)
class CodeSums(FieldwiseSum):
    """What a pass over the samples finds about codes (r, m) of unit mean square."""

    cubes: Array  # (m,) sums of |z|^3
    signed_cubes: Array  # (m,) sums of z^3
    largest: Largest


def summarize_codes(samples: Samples, unmixing: Array, mean: Array, n: int) -> CodeSums:
    """Divide codes by their root mean square, and find the sums of their cubes and the n largest on either side."""
    statistics = compute_statistics(samples)
    shift = statistics.mean - mean / statistics.largest
    moments = statistics.covariance + np.outer(shift, shift)
    rms = statistics.largest * np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", unmixing, moments, unmixing), 0))
    rows = unmixing / np.where(rms > 0, rms, 1)[:, None]

    def visit(block: Array, start: int) -> CodeSums:
        Z = (block - mean) @ rows.T
        sides, cubes = np.hstack([Z, -Z]), Z**3
        index = np.broadcast_to(np.arange(start, start + len(Z))[:, None], sides.shape)
        largest = Largest(n, sides[:0], index[:0]) + Largest(n, sides, index)
        return CodeSums(np.sum(np.abs(cubes), axis=0), np.sum(cubes, axis=0), largest)

    return samples.sum(visit)


def name_samples(names: Sequence[Any] | None, index: Index) -> tuple[str, ...]:
    """Return the names of samples in one printable line each, or their numbers."""
    return tuple(str(i) if names is None else make_readable(" ".join(str(names[i]).split())) for i in index)


def join_names(names: Sequence[str], room: int = 40) -> str:
    """Join as many names as there is room for in these characters, and at least the first."""
    ends = np.cumsum([len(name) + 2 for name in names]) - 2
    return ", ".join(names[: max(1, int(np.sum(ends <= room)))])
