"""Rotated loadings with their standard errors, and their table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elldict.samples.arrays import to_numpy
from elldict.samples.base import Array
from elldict.summary import shorten

MOST_ROWS, MOST_FACTORS = 60, 8  # of a table that fits on a screen of 110 characters

MOST_COMMUNALITY = 1.05
"""Largest communality of variables with unit variance; a factor analysis may exceed one a little (Heywood cases)."""


@dataclass(frozen=True, eq=False, repr=False)
class Rotation:
    """Rotated loadings, the result of :func:`elldict.rotate`.

    Parameters
    ----------
    loadings : array of shape (n_rows, n_factors)
        Rotated loadings, ``original @ rotation``. Factors are sorted by decreasing sum of squares, and equal ones by
        their sum of fourth powers; the sum of cubes of each is positive.
    rotation : ndarray of shape (n_factors, n_factors)
        Orthogonal matrix. It may contain reflections, which make the signs of the factors.
    standard_errors : ndarray of shape (n_rows, n_factors) or None
        Standard errors of the rotated loadings. None if they were not asked for, or are over rows and for more than 48
        factors.
    error_source : str or None
        'observations': how much loadings vary with the observations, the usual meaning; needs `bootstrap_loadings` or
        `loadings_covariance`. 'rows': how much they vary with the choice of variables, through the rotation.
    criterion : float
        Criterion of the rotated loadings, normalised if `normalize` is set.
    criteria : ndarray of shape (n_init,)
        Criteria of all starts. For more than 131072 loadings, only the best start is followed to its end.
    converged : bool
        Whether the rotation converged within `max_iter` iterations.
    n_iter : int
        Number of iterations from the best start.
    names : tuple of str or None
        Names of the rows, if the loadings were a data frame with strings as its index.
    """

    loadings: Any
    rotation: Array
    standard_errors: Any
    error_source: str | None
    criterion: float
    criteria: Array
    converged: bool
    n_iter: int
    names: tuple[str, ...] | None = None

    def summary(self, names: Sequence[str] | None = None, *, least: float = 0.3) -> str:
        """Describe the loadings in a table.

        Parameters
        ----------
        names : sequence of str, default=None
            Names of the rows. None: those of the data frame, or numbers.
        least : float, default=0.3
            Absolute value below which loadings are left blank.

        Returns
        -------
        str
            Loadings with standard errors in brackets, communalities, which are sums of squares of rows, and sums of
            squares of factors, with the explained variance if variables have unit variance.
        """
        loadings, errors = to_numpy(self.loadings), self.standard_errors
        cells = make_cells(loadings, None if errors is None else to_numpy(errors), self._choose_names(names), least)
        width = max(len(row[0]) for row in cells)
        others = [max(map(len, column)) for column in list(zip(*cells, strict=True))[1:]]
        lines = ["  ".join([f"{first:<{width}}", *map(str.rjust, rest, others)]).rstrip() for first, *rest in cells]
        p, k = loadings.shape
        left = [f"{p - MOST_ROWS} more rows"] * (p > MOST_ROWS) + [f"{k - MOST_FACTORS} more factors"] * (
            k > MOST_FACTORS
        )
        more = [f"... and {' and '.join(left)}"] * bool(left)
        end = 1 + min(p, MOST_ROWS)
        title = f"{self._describe()}; loadings below {least:g} left blank"
        return "\n".join([title, "", *lines[:end], *more, "", *lines[end:]])

    def __str__(self) -> str:
        """Return the summary."""
        return self.summary()

    def __repr__(self) -> str:
        """Describe the shape and the source of errors."""
        return f"<Rotation: {self._describe()}>"

    def _describe(self) -> str:
        p, k = self.loadings.shape
        errors = "no standard errors" if self.error_source is None else f"standard errors over {self.error_source}"
        return f"{p} variables, {k} factor{'s' * (k > 1)}, {errors}"

    def _choose_names(self, names: Sequence[str] | None) -> list[str]:
        """Return one short name per row: a given one, that of the data frame, or its number."""
        n_rows = self.loadings.shape[0]
        chosen = names if names is not None else self.names if self.names is not None else range(n_rows)
        texts = [shorten(str(name)) for name in chosen]
        if len(texts) != n_rows:
            raise ValueError(f"names must have one entry per row, {n_rows}. Got {len(texts)} instead.")
        return texts


def make_cells(loadings: Array, errors: Array | None, names: Sequence[str], least: float) -> list[list[str]]:
    """Make the cells of a table: a head, one line per row, and the sums of squares of the factors."""
    squares = np.asarray(loadings, dtype=np.float64) ** 2
    k = min(loadings.shape[1], MOST_FACTORS)
    cells = [["", *(f"factor {j + 1}" for j in range(k)), "communality"]]
    for i in range(min(len(loadings), MOST_ROWS)):
        texts = [f"{loadings[i, j]:.2f}" + ("" if errors is None else f" ({errors[i, j]:.2f})") for j in range(k)]
        shown = [text if abs(loadings[i, j]) >= least else "" for j, text in enumerate(texts)]
        cells.append([names[i], *shown, f"{np.sum(squares[i]):.2f}"])
    blank = "" if errors is None else " " * len(" (0.00)")  # aligns sums with loadings
    sums = np.append(np.sum(squares, axis=0)[:k], np.sum(squares))
    cells.append(["sum of squares", *(f"{value:.2f}{blank}" for value in sums[:-1]), f"{sums[-1]:.2f}"])
    if np.max(np.sum(squares, axis=1)) <= MOST_COMMUNALITY:
        shares = [f"{100 * value / len(loadings):.0f} %" for value in sums]
        cells.append(["explained variance", *(f"{share}{blank}" for share in shares[:-1]), shares[-1]])
    return cells
