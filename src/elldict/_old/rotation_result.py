"""Rotated loadings as they are returned, and their table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import Array, to_numpy

MOST_ROWS, MOST_FACTORS = 60, 8
"""Rows and factors of a table: what can be read on a screen 110 letters wide."""

MOST_LETTERS = 28
"""Of a name."""

MOST_COMMUNALITY = 1.05
"""Of a variable with unit variance: one, and a little more in factor analyses that end beyond it (Heywood cases)."""

Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Rotation:
    """Rotated loadings, as :func:`elldict.rotate` found them.

    Parameters
    ----------
    loadings : array of shape (n_rows, n_factors)
        Rotated loadings, ``original @ rotation``; the factor with the largest sum of squares first, and the sum of
        cubes of each column positive, which its large loadings decide. Equal sums of squares are ordered by the sum of
        fourth powers.
    rotation : ndarray of shape (n_factors, n_factors)
        Orthogonal matrix; a reflection where signs ask for it.
    standard_errors : array of shape (n_rows, n_factors) or None
        Of the rotated loadings, over what `error_source` says; None if they were not asked for, or of more than 48
        factors over rows.
    error_source : str or None
        'rows': how much the rotation would differ had other variables of the same kind been measured, the default.
        'observations': how much loadings would differ had other observations been made, what is usually meant in factor
        analysis; it needs `bootstrap_loadings` or `loadings_covariance`.
    criterion : float
        Value of the criterion at the loadings, normalised if `normalize` was asked for.
    criteria : ndarray of shape (n_init,)
        Values of all starts, the first of which is no rotation. Of large loadings only the best start is followed to
        its end; the others have the value at which they were left.
    converged : bool
        Whether steps became shorter than `tol`.
    n_iter : int
        Iterations of the best start on all rows.
    n_passes : float
        Passes over all rows, of all starts.
    names : tuple of str or None
        Names of the rows, if the loadings were a data frame with names as its index.
    """

    loadings: Array
    rotation: Matrix
    standard_errors: Array | None
    error_source: str | None
    criterion: float
    criteria: Matrix
    converged: bool
    n_iter: int
    n_passes: float
    names: tuple[str, ...] | None = None

    def summary(self, names: Sequence[str] | None = None, *, least: float = 0.3) -> str:
        """Return the loadings as a table, with what is needed to name factors.

        Parameters
        ----------
        names : sequence of str, default=None
            Names of the rows; None takes those of the data frame, or numbers.
        least : float, default=0.3
            Loadings of smaller size are left blank.

        Returns
        -------
        str
            Loadings with their standard errors in brackets; communalities, the sums of squares of rows; sums of squares
            of factors, and their share of the variance if variables have unit variance.
        """
        loadings = np.asarray(to_numpy(self.loadings), dtype=np.float64)
        errors = None if self.standard_errors is None else np.asarray(to_numpy(self.standard_errors), np.float64)
        table = make_table(loadings, errors, choose_names(names, self.names, len(loadings)), least)
        return "\n".join([f"{self._describe()}; loadings below {least:g} left blank", "", *table])

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return f"<Rotation: {self._describe()}>"

    def _describe(self) -> str:
        p, k = self.loadings.shape
        errors = "no standard errors" if self.error_source is None else f"standard errors over {self.error_source}"
        return f"{p} variables, {k} {'factor' if k == 1 else 'factors'}, {errors}"


def read_names(table: Any) -> tuple[str, ...] | None:
    """Names in the index of a data frame; None for anything else, and for an index of numbers."""
    index = getattr(table, "index", None) if hasattr(table, "columns") else None
    if index is None or getattr(index, "inferred_type", "integer") == "integer":
        return None
    return tuple(str(label) for label in index)


def choose_names(names: Sequence[str] | None, own: Sequence[str] | None, n_rows: int) -> list[str]:
    """Names of the rows: given ones, those that came with the loadings, or their numbers."""
    chosen = names if names is not None else own if own is not None else range(n_rows)
    texts = [" ".join(str(name).split()) for name in chosen]
    if len(texts) != n_rows:
        raise ValueError(f"names has {len(texts)} entries, expected one for each of {n_rows} rows of loadings.")
    return texts


def make_table(loadings: Matrix, errors: Matrix | None, names: Sequence[str], least: float) -> list[str]:
    """Lines of a table: a row a variable, a column a factor, blank below `least`; then sums of squares."""
    p, k = loadings.shape
    n_rows, n_factors = min(p, MOST_ROWS), min(k, MOST_FACTORS)
    cells = [["", *(f"factor {number + 1}" for number in range(n_factors)), "communality"]]
    for row in range(n_rows):
        sure = [None] * n_factors if errors is None else errors[row, :n_factors].tolist()
        values = zip(loadings[row, :n_factors].tolist(), sure, strict=True)
        texts = [_format(value, error) if abs(value) >= least else "" for value, error in values]
        cells.append([names[row][:MOST_LETTERS], *texts, f"{np.sum(loadings[row] ** 2):.2f}"])
    after = "" if errors is None else " " * len(" (0.00)")  # below the loadings, not below their errors
    totals = _sum_factors(loadings, n_factors, after)
    widths = [max(len(row[column]) for row in [*cells, *totals]) for column in range(len(cells[0]))]
    left = [f"{p - n_rows} more rows"] * (p > n_rows) + [f"{k - n_factors} more factors"] * (k > n_factors)
    more = [f"... and {' and '.join(left)}"] if left else []
    return [*(_join(row, widths) for row in cells), *more, "", *(_join(row, widths) for row in totals)]


def _sum_factors(loadings: Matrix, n_factors: int, after: str) -> list[list[str]]:
    """Sums of squares of factors; their shares too, unless communalities say that variances are not one."""
    squares = np.sum(loadings**2, axis=0)
    rows = [["sum of squares", *(f"{value:.2f}{after}" for value in squares[:n_factors]), f"{squares.sum():.2f}"]]
    if np.max(np.sum(loadings**2, axis=1)) <= MOST_COMMUNALITY:
        shares = [f"{100 * value / len(loadings):.0f} %" for value in (*squares[:n_factors], squares.sum())]
        rows.append(["of the variance", *(f"{share}{after}" for share in shares[:-1]), shares[-1]])
    return rows


def _join(row: list[str], widths: list[int]) -> str:
    """A line: the name on the left, numbers on the right of their columns."""
    numbers = (f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
    return "  ".join([f"{row[0]:<{widths[0]}}", *numbers]).rstrip()


def _format(value: float, error: float | None) -> str:
    return f"{value:.2f}" if error is None else f"{value:.2f} ({error:.2f})"
