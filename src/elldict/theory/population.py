"""The paper's algorithm on infinitely many samples: expectations over supports, computed and not sampled.

The dictionary is the identity throughout (paper, Section 3.2: a rotation of the data rotates every iterate), so the
atoms sought are the signed unit vectors, and a row a of A holds its own codes.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elldict.theory.accuracy import gaussian_moment
from elldict.theory.supports import all_finite, check_density, check_exponent, expected_power, power_without_one

Array = NDArray[np.float64]


def population_objective(A: ArrayLike, p: float, density: float) -> float:
    """Objective of the paper on infinitely many samples.

    Parameters
    ----------
    A : array_like of shape (m, n) or (n,)
        Rows a, in coordinates in which the true dictionary is the identity.
    p : float
        Exponent of the norm, above 2.
    density : float
        Probability theta that a code is not zero, in (0, 1).

    Returns
    -------
    float
        Sum over the rows of E|<a, x>|^p = gamma_p E||a_Omega||^p, for Bernoulli-Gaussian x with support Omega: the
        limit of ||A Y||_p^p / r. Orthonormal rows reach at most m gamma_p theta, at signed unit vectors only.

    Examples
    --------
    >>> from elldict.theory import population_objective
    >>> round(population_objective([[1.0, 0.0], [0.0, 1.0]], p=4, density=0.3), 12)  # 2 * 3 * 0.3
    1.8
    """
    rows = _check_rows(A, p, density)
    return gaussian_moment(p) * float(np.sum(expected_power(rows**2, density, p / 2)))


def population_gradient(A: ArrayLike, p: float, density: float) -> Array:
    """Gradient of :func:`population_objective`.

    Parameters
    ----------
    A : array_like of shape (m, n) or (n,)
        Rows a, in coordinates in which the true dictionary is the identity.
    p : float
        Exponent of the norm, above 2.
    density : float
        Probability theta that a code is not zero, in (0, 1).

    Returns
    -------
    ndarray of the shape of A
        Row by row c_p E[||a_Omega||^(p-2) a_Omega] with c_p = p gamma_p, which makes it the gradient of E|<a, x>|^p.

    Examples
    --------
    >>> from elldict.theory import population_gradient
    >>> population_gradient([0.6, 0.8], p=4, density=0.5).round(12).tolist()
    [2.448, 3.936]
    """
    rows = _check_rows(A, p, density)
    squares = rows**2
    # the mean over supports that hold i, for every i
    means = power_without_one(squares, squares, density, p / 2 - 1)
    return p * gaussian_moment(p) * density * rows * means


def population_step(A: ArrayLike, p: float, density: float) -> Array:
    """One step of the power method on infinitely many samples (paper, Algorithm 3).

    Parameters
    ----------
    A : array_like of shape (m, n) or (n,)
        Orthonormal rows, m <= n, or one vector of length 1, in coordinates in which the true dictionary is the
        identity.
    p : float
        Exponent of the norm, above 2.
    density : float
        Probability theta that a code is not zero, in (0, 1).

    Returns
    -------
    ndarray of the shape of A
        The gradient, sent back to the constraint: divided by its length (sphere), or its polar factor (orthogonal
        group, Stiefel manifold).

    Examples
    --------
    >>> from elldict.theory import population_step
    >>> population_step([0.6, 0.8], p=4, density=0.5).round(4).tolist()
    [0.5281, 0.8492]
    """
    gradient = population_gradient(A, p, density)
    length = np.linalg.norm(gradient)
    if length == 0:
        raise ValueError("A is zero: expected orthonormal rows, or a vector of length 1.")
    if gradient.ndim == 1:
        return np.asarray(gradient / length)
    if gradient.shape[0] > gradient.shape[1]:
        raise ValueError(f"A has shape {gradient.shape}: expected no more rows than columns.")
    U, _, Vt = np.linalg.svd(gradient, full_matrices=False)
    return np.asarray(U @ Vt)


def signal_ratio(a: ArrayLike) -> float:
    """Signal-to-orthogonal ratio of a vector, the paper's SOR.

    Parameters
    ----------
    a : array_like of shape (n,)
        Vector of any length but 0; its largest coordinate is the signal.

    Returns
    -------
    float
        Largest magnitude over the length of all other coordinates; infinite at a signed unit vector. For ``a`` of
        length 1 the squared error min_i ||a -+ e_i||^2 is 2 - 2 / sqrt(1 + 1 / SOR^2).

    Examples
    --------
    >>> from elldict.theory import signal_ratio
    >>> round(signal_ratio([0.0, -0.6, 0.8]), 12)
    1.333333333333
    """
    signal, others = _split(_check_vector(a))
    rest = float(np.linalg.norm(others))
    return signal / rest if rest else math.inf


def signal_ratios(a: ArrayLike) -> Array:
    """Ratios of the signal to every other coordinate, the paper's SOR_i.

    Parameters
    ----------
    a : array_like of shape (n,)
        Vector of any length but 0; its largest coordinate is the signal.

    Returns
    -------
    ndarray of shape (n - 1,)
        Largest magnitude over the other ones, in their order, all >= 1; infinite where a coordinate is zero.
        (Magnitudes, since a step changes no sign.)

    Examples
    --------
    >>> from elldict.theory import signal_ratios
    >>> signal_ratios([0.25, -1.0, 0.5]).tolist()
    [4.0, 2.0]
    """
    signal, others = _split(_check_vector(a))
    with np.errstate(divide="ignore"):
        return np.asarray(signal / others)


def growth_rates(a: ArrayLike, p: float, density: float) -> Array:
    """Rates at which a population step separates the signal from the rest (paper, Proposition 3.1).

    Parameters
    ----------
    a : array_like of shape (n,)
        Vector of any length but 0; its largest coordinate is the signal.
    p : float
        Exponent of the norm, above 2.
    density : float
        Probability theta that a code is not zero, in (0, 1).

    Returns
    -------
    ndarray of shape (n - 1,)
        Rates tau_i, in the order of the other coordinates: :func:`population_step` multiplies SOR_i by 1 + tau_i.
        Between 0 (coordinate i is as large as the signal) and (1 - theta) / theta (reached at a unit vector).

    Examples
    --------
    >>> from elldict.theory import growth_rates
    >>> growth_rates([0.6, 0.8], p=4, density=0.5).round(6).tolist()  # (.64 - .36) / (1 + .36)
    [0.205882]
    """
    _check_rows(a, p, density)
    signal, others = _split(_check_vector(a))
    if others.size == 0:
        raise ValueError("a has one coordinate: expected two or more.")
    squares = (others / signal) ** 2  # rates do not depend on the length of a
    with_signal, with_other, with_both = power_without_one(
        np.broadcast_to(squares, (3, squares.size)),
        np.stack([np.ones_like(squares), squares, 1 + squares]),
        density,
        p / 2 - 1,
    )
    gain = np.maximum(with_signal - with_other, 0)  # never negative but for rounding, between equal coordinates
    return np.asarray(gain / (density / (1 - density) * with_both + with_other))


def first_stage_bound(a: ArrayLike, p: float, density: float) -> float:
    """Bound on the iterations until the signal outweighs the rest (paper, Theorem 3.1).

    Parameters
    ----------
    a : array_like of shape (n,)
        Where the population power method starts; its largest coordinate is the signal.
    p : float
        Exponent of the norm, above 2.
    density : float
        Probability theta that a code is not zero, in (0, 1).

    Returns
    -------
    float
        Bound log(sqrt(n)) / log(1 + tau), tau the smallest of the :func:`growth_rates` at ``a``: after so many
        iterations, rounded up, SOR is above 1. Infinite where two coordinates share the largest magnitude.

    Notes
    -----
    T_tau counts iterations, so the bound as printed has to be rounded up. Its proof takes for granted that tau never
    falls along a run, which Proposition 3.1 does not say (there only a_n and a_i move, here all coordinates do). For
    p <= 4 it is true: let the signal be 1; every other coordinate shrinks, S = ||a_Omega'||^2 with it, and
    (S + 1)^s - (S + a_i^2)^s with s = p/2 - 1 <= 1 can only grow. For large p it is false (p = 14, density .9: the
    tests hold an example), although no run was found that breaks the bound itself.

    Examples
    --------
    >>> from elldict.theory import first_stage_bound
    >>> round(first_stage_bound([0.6, 0.8], p=4, density=0.5), 3)
    1.851
    """
    rates = growth_rates(a, p, density)
    slowest = float(np.min(rates))
    return math.log(rates.size + 1) / 2 / math.log1p(slowest) if slowest > 0 else math.inf


def convergence_factor(density: float) -> float:
    """Factor by which the error falls per iteration in the second stage of the population power method.

    Parameters
    ----------
    density : float
        Probability theta that a code is not zero, in (0, 1).

    Returns
    -------
    float
        The limit theta of ||a_next - e_i|| / ||a - e_i||, whatever p is; the same on the orthogonal group.

    Notes
    -----
    Theorem 3.1 prints 1 / theta, which would be divergence: it is the limit of 1 + tau_i, by which SOR_i *grows*. Near
    e_n a support without n contributes nothing in the limit (its norm is small, to the power p - 2), one with n
    contributes norm 1. So the gradient has theta at n, and theta a_i P(i in Omega) = theta^2 a_i elsewhere.
    The approach to the limit takes long for p near 2: the ratio is off by a term of order ||a - e_n||^(p-2).

    Examples
    --------
    >>> from elldict.theory import convergence_factor
    >>> convergence_factor(0.1)
    0.1
    """
    check_density(density)
    return float(density)


def _check_rows(A: ArrayLike, p: float, density: float) -> Array:
    check_exponent(p)
    check_density(density)
    rows = np.asarray(A, dtype=np.float64)
    if rows.ndim not in (1, 2) or rows.size == 0:
        raise ValueError(f"A has shape {rows.shape}: expected (n,) or (m, n), not empty.")
    if not all_finite(rows):
        raise ValueError("A holds NaN or infinity: expected finite numbers.")
    return rows


def _check_vector(a: ArrayLike) -> Array:
    vector = np.asarray(a, dtype=np.float64)
    if vector.ndim != 1 or not all_finite(vector) or not np.any(vector):
        raise ValueError(f"a has shape {vector.shape}: expected one vector (n,), finite and not zero.")
    return vector


def _split(a: Array) -> tuple[float, Array]:
    """Magnitude of the signal, and of the other coordinates in their order."""
    magnitudes = np.abs(a)
    signal = int(np.argmax(magnitudes))
    return float(magnitudes[signal]), np.delete(magnitudes, signal)
