"""The algorithm of the paper on infinitely many samples, by exact expectations over supports.

The dictionary is the identity (paper, Section 3.2: a rotation of the data rotates every iterate), so the true atoms are
the signed unit vectors, and the entries of a row a of A are its coordinates in the true dictionary.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elldict.theory.accuracy import gaussian_moment
from elldict.theory.supports import all_finite, check_density, check_exponent, expected_power, power_without_one

Array = NDArray[np.float64]


def population_objective(A: ArrayLike, p: float, density: float) -> float:
    """Compute the objective of the paper on infinitely many samples.

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
        limit of ||A Y||_p^p / r. Its maximum over orthonormal rows, m gamma_p theta, is at signed unit vectors only.

    Examples
    --------
    >>> from elldict.theory import population_objective
    >>> round(population_objective([[1.0, 0.0], [0.0, 1.0]], p=4, density=0.3), 12)  # 2 * 3 * 0.3
    1.8
    """
    rows = _check_rows(A, p, density)
    return gaussian_moment(p) * float(np.sum(expected_power(rows**2, density, p / 2)))


def population_gradient(A: ArrayLike, p: float, density: float) -> Array:
    """Compute the gradient of :func:`population_objective`.

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
        For each row, c_p E[||a_Omega||^(p-2) a_Omega] with c_p = p gamma_p: the gradient of E|<a, x>|^p.

    Examples
    --------
    >>> from elldict.theory import population_gradient
    >>> population_gradient([0.6, 0.8], p=4, density=0.5).round(12).tolist()
    [2.448, 3.936]
    """
    rows = _check_rows(A, p, density)
    squares = rows**2
    # for each i, the mean over supports that contain i
    means = power_without_one(squares, squares, density, p / 2 - 1)
    return p * gaussian_moment(p) * density * rows * means


def population_step(A: ArrayLike, p: float, density: float) -> Array:
    """Compute one step of the power method on infinitely many samples (paper, Algorithm 3).

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
        The gradient divided by its norm (sphere), or its polar factor (orthogonal group, Stiefel manifold).

    Notes
    -----
    In the second stage, the error decreases by a factor theta per step: this is the limit of ||a_next - e_i|| /
    ||a - e_i|| for any p, also on the orthogonal group. Theorem 3.1 states 1 / theta, which would be divergence: it is
    the limit of 1 + tau_i, by which SOR_i *grows*. Near e_n, a support without n contributes nothing in the limit (a
    small norm to the power p - 2), and one with n contributes norm 1. So the gradient is theta at n, and theta a_i
    P(i in Omega) = theta^2 a_i elsewhere. Convergence to the limit is slow for p near 2: the difference is of order
    ||a - e_n||^(p-2).

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
    """Compute the signal-to-orthogonal ratio of a vector, the paper's SOR.

    Parameters
    ----------
    a : array_like of shape (n,)
        Vector that is not zero; its largest coordinate is the signal.

    Returns
    -------
    float
        Largest magnitude divided by the norm of all other coordinates; infinite at a signed unit vector. For ``a`` of
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
    """Compute the ratios of the signal to every other coordinate, the paper's SOR_i.

    Parameters
    ----------
    a : array_like of shape (n,)
        Vector of any length but 0; its largest coordinate is the signal.

    Returns
    -------
    ndarray of shape (n - 1,)
        Largest magnitude divided by each of the others, in their order, all >= 1; infinite where a coordinate is
        zero. Signs do not matter, since a step does not change them.

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
    """Compute the rates at which a population step separates the signal from the rest (paper, Proposition 3.1).

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
        Between 0 (coordinate i is as large as the signal) and (1 - theta) / theta (at a unit vector).

    Examples
    --------
    >>> from elldict.theory import growth_rates
    >>> growth_rates([0.6, 0.8], p=4, density=0.5).round(6).tolist()  # (0.64 - 0.36) / (1 + 0.36)
    [0.205882]
    """
    _check_rows(a, p, density)
    signal, others = _split(_check_vector(a))
    if others.size == 0:
        raise ValueError("a has one coordinate: expected two or more.")
    squares = (others / signal) ** 2  # rates do not depend on the norm of a
    with_signal, with_other, with_both = power_without_one(
        np.broadcast_to(squares, (3, squares.size)),
        np.stack([np.ones_like(squares), squares, 1 + squares]),
        density,
        p / 2 - 1,
    )
    gain = np.maximum(with_signal - with_other, 0)  # negative only by rounding, for equal coordinates
    return np.asarray(gain / (density / (1 - density) * with_both + with_other))


def first_stage_bound(a: ArrayLike, p: float, density: float) -> float:
    """Compute a bound on the number of iterations until the signal exceeds the rest (paper, Theorem 3.1).

    Parameters
    ----------
    a : array_like of shape (n,)
        Initial vector of the population power method; its largest coordinate is the signal.
    p : float
        Exponent of the norm, above 2.
    density : float
        Probability theta that a code is not zero, in (0, 1).

    Returns
    -------
    float
        Bound log(sqrt(n)) / log(1 + tau), with tau the smallest of the :func:`growth_rates` at ``a``: after this number
        of iterations, rounded up, SOR is above 1. Infinite if two coordinates have the largest magnitude.

    Notes
    -----
    T_tau counts iterations, so the printed bound has to be rounded up. Its proof assumes that tau never decreases along
    a run, which does not follow from Proposition 3.1 (there only a_n and a_i change, here all coordinates do). It is
    true for p <= 4: let the signal be 1; every other coordinate and S = ||a_Omega'||^2 decrease, so that
    (S + 1)^s - (S + a_i^2)^s with s = p/2 - 1 <= 1 increases. For large p it is false (the tests have an example with
    p = 14 and density 0.9), although we know of no run that violates the bound itself.

    Examples
    --------
    >>> from elldict.theory import first_stage_bound
    >>> round(first_stage_bound([0.6, 0.8], p=4, density=0.5), 3)
    1.851
    """
    rates = growth_rates(a, p, density)
    slowest = float(np.min(rates))
    return math.log(rates.size + 1) / 2 / math.log1p(slowest) if slowest > 0 else math.inf


def _check_rows(A: ArrayLike, p: float, density: float) -> Array:
    """Check the arguments, and return A as an array."""
    check_exponent(p)
    check_density(density)
    rows = np.asarray(A, dtype=np.float64)
    if rows.ndim not in (1, 2) or rows.size == 0:
        raise ValueError(f"A has shape {rows.shape}: expected (n,) or (m, n), not empty.")
    if not all_finite(rows):
        raise ValueError("A holds NaN or infinity: expected finite numbers.")
    return rows


def _check_vector(a: ArrayLike) -> Array:
    """Check a vector, and return it as an array."""
    vector = np.asarray(a, dtype=np.float64)
    if vector.ndim != 1 or not all_finite(vector) or not np.any(vector):
        raise ValueError(f"a has shape {vector.shape}: expected one vector (n,), finite and not zero.")
    return vector


def _split(a: Array) -> tuple[float, Array]:
    """Return the magnitude of the signal, and those of the other coordinates in their order."""
    magnitudes = np.abs(a)
    signal = int(np.argmax(magnitudes))
    return float(magnitudes[signal]), np.delete(magnitudes, signal)
