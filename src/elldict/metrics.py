"""Distances between estimated and true dictionaries, up to order and sign of the atoms."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.utils import check_array

from elldict.samples.arrays import to_numpy
from elldict.samples.whitening import find_scales

__all__ = ["AtomMatch", "frobenius_error", "match_atoms", "recovery_error", "sphere_error"]

Array = Any
"""An array of any library that follows the array API standard."""


class AtomMatch(NamedTuple):
    """Assignment of estimated atoms to true ones.

    ``signs[i] * dictionary[indices[i]]`` is the true atom matched to ``components[i]``, and ``cosines[i] >= 0`` is the
    cosine of the angle between them.
    """

    indices: NDArray[np.intp]
    signs: NDArray[np.float64]
    cosines: NDArray[np.float64]


def recovery_error(components: Array, dictionary: Array) -> float:
    """Compute the error ``1 - ||A D^T||_4^4 / m`` of orthonormal atoms, which is 0 if every atom is a true one.

    Parameters
    ----------
    components : array of shape (m, n)
        Estimated atoms, orthonormal rows.
    dictionary : array of shape (n, n) or (k, n), k >= m
        True atoms, orthonormal rows.

    Returns
    -------
    float
        Error, between 0 (perfect) and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from elldict.metrics import recovery_error
    >>> recovery_error(-np.eye(4)[::-1], np.eye(4))
    0.0
    """
    A, D = _check_pair(components, dictionary)
    for name, rows in (("components", A), ("dictionary", D)):
        departure = float(np.max(np.abs(rows @ rows.T - np.eye(len(rows)))))
        if departure > 1e-3:
            raise ValueError(
                f"{name} has rows that are not orthonormal (departure {departure:.2g}), for which this error is not "
                "defined. Use match_atoms instead."
            )
    return float(1 - np.sum((A @ D.T) ** 4) / len(A))


def match_atoms(components: Array, dictionary: Array) -> AtomMatch:
    """Match estimated atoms with true ones by the signed permutation with the largest sum of absolute cosines.

    Parameters
    ----------
    components : array of shape (m, n)
        Estimated atoms, of any norm.
    dictionary : array of shape (k, n), k >= m
        True atoms, of any norm.

    Returns
    -------
    AtomMatch
        For each estimated atom, `indices` of the true one, `signs` and `cosines`.

    Examples
    --------
    >>> import numpy as np
    >>> from elldict.metrics import match_atoms
    >>> match_atoms([[0, -2.0], [1, 0]], np.eye(2)).indices
    array([1, 0])
    """
    A, D = _check_pair(components, dictionary)
    cosines = _normalize_rows(A) @ _normalize_rows(D).T
    rows, indices = linear_sum_assignment(-np.abs(cosines))
    matched = cosines[rows, indices]
    return AtomMatch(indices, np.where(matched < 0, -1.0, 1.0), np.minimum(np.abs(matched), 1.0))


def frobenius_error(components: Array, dictionary: Array) -> float:
    """Compute the distance to the nearest signed permutation of the true atoms, relative to their norm.

    Parameters
    ----------
    components : array of shape (m, n)
        Estimated atoms.
    dictionary : array of shape (k, n), k >= m
        True atoms.

    Returns
    -------
    float
        ``min ||A - P D||_F / ||P D||_F`` over signed selections P of m atoms.

    Examples
    --------
    >>> import numpy as np
    >>> from elldict.metrics import frobenius_error
    >>> frobenius_error(-np.eye(3)[::-1], np.eye(3))
    0.0
    """
    A, D = _check_pair(components, dictionary)
    products = A @ D.T
    lengths = np.sum(A**2, axis=1)[:, None] + np.sum(D**2, axis=1)[None, :]
    rows, indices = linear_sum_assignment(lengths - 2 * np.abs(products))
    chosen = np.where(products[rows, indices] < 0, -1.0, 1.0)[:, None] * D[indices]
    return float(np.linalg.norm(A - chosen) / np.linalg.norm(chosen))


def sphere_error(atom: Array, dictionary: Array) -> float:
    """Compute the distance of one atom to the nearest true one, up to sign.

    Parameters
    ----------
    atom : array of shape (n,) or (1, n)
        Estimated atom of unit norm.
    dictionary : array of shape (k, n)
        True atoms of unit norm.

    Returns
    -------
    float
        ``min ||a -+ d_i||_2`` over the true atoms.

    Examples
    --------
    >>> from elldict.metrics import sphere_error
    >>> sphere_error([0.0, -1.0], [[1.0, 0.0], [0.0, 1.0]])
    0.0
    """
    a, D = _check_pair(np.atleast_2d(_to_numpy(atom)), dictionary)
    if len(a) != 1:
        raise ValueError(f"atom has shape {a.shape}, expected one atom. Use frobenius_error for several.")
    return float(np.min(np.linalg.norm(np.vstack([D - a, D + a]), axis=1)))


def _check_pair(components: Array, dictionary: Array) -> tuple[NDArray[Any], NDArray[Any]]:
    """Check estimated and true atoms, and return them in double precision."""
    A, D = (
        check_array(_to_numpy(array), dtype=np.float64, ensure_2d=False, input_name=name)
        for name, array in (("components", components), ("dictionary", dictionary))
    )
    if A.ndim != 2 or D.ndim != 2 or A.shape[1] != D.shape[1] or not 1 <= len(A) <= len(D):
        raise ValueError(
            f"components of shape {A.shape} and dictionary of shape {D.shape}: expected (m, n) and (k, n) with k >= m. "
            "Atoms are rows."
        )
    return A, D


def _normalize_rows(rows: NDArray[Any]) -> NDArray[Any]:
    """Divide rows by their norms; zeros remain zeros."""
    rows = rows / (np.max(np.abs(rows)) or 1.0)  # squares do not overflow or underflow
    return np.asarray(rows / find_scales(np.sum(rows**2, axis=1))[:, None])


def _to_numpy(array: Array) -> NDArray[Any]:
    """Convert an array of any library or device to NumPy."""
    is_other = hasattr(array, "__dlpack__") and not isinstance(array, np.ndarray)
    return to_numpy(array) if is_other else np.asarray(array)
