"""Rotated loadings with their standard errors, their table for a terminal, and what to warn of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from elldict.exceptions import NotIdentifiableWarning, RankWarning
from elldict.rotation.standard_errors import find_mixed_pairs
from elldict.samples.base import Array
from elldict.summary import shorten
from elldict.warnings import Finding

MOST_ROWS, MOST_FACTORS = 60, 8  # of a table that fits on a screen of 110 characters
MOST_NAMED = 4  # pairs of factors in a warning


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
        'observations': how much loadings vary with the observations, the usual meaning; needs `bootstrap_loadings`.
        'rows': how much they vary with the choice of variables, through the rotation.
    criteria : ndarray of shape (n_init,)
        Criteria of all starts, normalised if `normalize` is set; the largest is `criterion`.
    converged : bool
        Whether the rotation converged within `max_iter` iterations.
    n_iter : int
        Number of iterations from the best start.
    names : tuple of str or None
        Names of the rows, if the loadings were a data frame with strings as its index.
    """

    loadings: Array
    rotation: Array
    standard_errors: Array | None
    error_source: str | None
    criteria: Array
    converged: bool
    n_iter: int
    names: tuple[str, ...] | None = None

    @property
    def criterion(self) -> float:
        """Criterion of the rotated loadings."""
        return float(np.max(self.criteria))

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
            squares of factors: per variable, these are the explained variance if variables have unit variance.
        """
        p, k = self.loadings.shape
        chosen = names if names is not None else self.names if self.names is not None else range(p)
        texts = [shorten(str(name)) for name in chosen]
        if len(texts) != p:
            raise ValueError(f"names must have one entry per row, {p}. Got {len(texts)} instead.")
        errors = "no standard errors" if self.error_source is None else f"standard errors over {self.error_source}"
        title = f"{p} variables, {k} factor{'s' * (k > 1)}, {errors}; loadings below {least:g} left blank"
        lines = align([*list_rows(self, texts, least), *list_sums(self)])
        sizes = ((p - MOST_ROWS, "rows"), (k - MOST_FACTORS, "factors"))
        left = " and ".join(f"{size} more {name}" for size, name in sizes if size > 0)
        end = 1 + min(p, MOST_ROWS)
        return "\n".join([title, "", *lines[:end], *([f"... and {left}"] if left else []), "", *lines[end:]])

    def __repr__(self) -> str:
        """Return the summary."""
        return self.summary()


def list_rows(found: Rotation, names: Sequence[str], least: float) -> Iterator[list[str]]:
    """List the cells of a head and of the first rows: loadings with their errors, and communalities."""
    shown = range(min(found.loadings.shape[1], MOST_FACTORS))
    yield ["", *(f"factor {j + 1}" for j in shown), "communality"]
    errors = found.standard_errors
    for i, row in enumerate(found.loadings[:MOST_ROWS]):
        texts = [f"{row[j]:.2f}" + ("" if errors is None else f" ({errors[i, j]:.2f})") for j in shown]
        large = [text if abs(row[j]) >= least else "" for j, text in enumerate(texts)]
        yield [names[i], *large, f"{np.sum(row**2):.2f}"]


def list_sums(found: Rotation) -> Iterator[list[str]]:
    """List the cells of the sums of squares of the factors and of all, and of their means over variables."""
    squares = np.sum(found.loadings**2, axis=0)
    blank = "" if found.standard_errors is None else " " * len(" (0.00)")  # below the errors
    for name, n in (("sum of squares", 1), ("per variable", len(found.loadings))):
        yield [name, *(f"{value / n:.2f}{blank}" for value in squares[:MOST_FACTORS]), f"{np.sum(squares) / n:.2f}"]


def align(cells: Sequence[Sequence[str]]) -> list[str]:
    """Align the first column to the left, and the others to the right."""
    first, *others = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join([f"{name:<{first}}", *map(str.rjust, rest, others)]).rstrip() for name, *rest in cells]


def check_rotation(result: Rotation, angles: Array | None, max_iter: int) -> Iterator[Finding]:
    """Check shape and convergence, and by the errors of angles (k, k) whether the factors are identifiable."""
    p, k = result.loadings.shape
    if k > p:
        yield Finding(
            RankWarning,
            f"The loadings have {p} rows and {k} columns: more factors than variables. Variables are rows; if they are "
            "columns, as in components_ of scikit-learn, pass the transpose.",
        )
    if not result.converged:
        yield Finding(
            ConvergenceWarning,
            f"The rotation did not converge within max_iter={max_iter} iterations. Increase max_iter or tol.",
        )
    if pairs := [] if angles is None else find_mixed_pairs(angles):
        named = ", ".join(f"{a + 1} and {b + 1}" for a, b in pairs[:MOST_NAMED])
        more = f", and {len(pairs) - MOST_NAMED} more pairs" if len(pairs) > MOST_NAMED else ""
        yield Finding(
            NotIdentifiableWarning,
            f"Factors {named}{more} cannot be distinguished from rotations of each other: over {result.error_source}, "
            "the standard error of their angle is 26 degrees or more, as if it were random. Do not interpret them one "
            "by one, nor use the standard errors of their loadings. Try fewer factors, another criterion, or the other "
            "value of normalize.",
        )
