"""Limits of accuracy for whole mixing matrices, from the Fisher information of single sources."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad


def crosstalk_bound(information: Any, *, n_samples: int, orthogonal: bool = False) -> NDArray[np.float64]:
    """Compute the Cramer-Rao bound of the crosstalk between independent sources of unit variance.

    Parameters
    ----------
    information : array-like of shape (n_sources,)
        Fisher information of the location of each source: E psi(s)^2, psi = -q'/q for a source s of unit variance with
        the density q. It is one for a Gaussian source and larger for all others; infinite for sparse codes without
        noise.
    n_samples : int
        Number r of samples.
    orthogonal : bool, default=False
        Whether the mixing matrix is known to be orthogonal, as that of a dictionary is. Otherwise it is any invertible
        matrix.

    Returns
    -------
    ndarray of shape (n_sources, n_sources)
        Smallest variance of the coefficient of source j in the estimate of source i; zeros on the diagonal, and
        infinite for two Gaussian sources. The expected error 1 - cos^4 of column j of a mixing matrix with orthogonal
        columns of equal length is twice the sum of column j.

    Notes
    -----
    For each pair, the log-likelihood has the derivatives -psi_i(s_i) s_j and -psi_j(s_j) s_i with respect to the two
    coefficients. Their variances are the informations k_i and k_j, and their covariance is one. So the bound is
    k_j / (r (k_i k_j - 1)). If the matrix is orthogonal, the two coefficients are opposite, and the bound is
    1 / (r (k_i + k_j - 2)).

    Examples
    --------
    >>> from elldict.theory import crosstalk_bound
    >>> crosstalk_bound([2, 2], n_samples=1000).round(6)  # two Laplace sources
    array([[0.      , 0.000667],
           [0.000667, 0.      ]])
    """
    k = np.asarray(information, dtype=np.float64)
    if k.ndim != 1 or not np.all(k >= 1):
        raise ValueError(f"information={information!r}: expected numbers >= 1, one per source of unit variance.")
    if not n_samples >= 1:
        raise ValueError(f"n_samples={n_samples!r}: expected a number >= 1.")
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = 1 / (k[:, None] + k - 2) if orthogonal else 1 / (k[:, None] - 1 / k)
    np.fill_diagonal(bound, 0)
    return np.asarray(bound / n_samples)


def bernoulli_gaussian_information(density: float, noise_std: float) -> float:
    """Compute the Fisher information of the location of a Bernoulli-Gaussian code with Gaussian noise.

    Parameters
    ----------
    density : float
        Probability theta that a code is not zero, in (0, 1).
    noise_std : float
        Standard deviation sigma of the noise, relative to an active code.

    Returns
    -------
    float
        E psi^2 for the noisy code divided by its standard deviation, psi = -q'/q; infinite without noise.

    Examples
    --------
    >>> from elldict.theory import bernoulli_gaussian_information
    >>> round(bernoulli_gaussian_information(0.3, 0.4), 4)
    1.5722
    """
    if noise_std == 0:
        return math.inf
    wide, narrow = 1 + noise_std**2, noise_std**2

    def integrand(s: float) -> float:
        active = density * math.exp(-0.5 * s * s / wide) / math.sqrt(2 * math.pi * wide)
        idle = (1 - density) * math.exp(-0.5 * s * s / narrow) / math.sqrt(2 * math.pi * narrow)
        q = active + idle
        return (s * (active / wide + idle / narrow)) ** 2 / q if q > 0 else 0.0

    # the integrand varies on the scale of the noise around zero, and on that of one further out
    edges = [0.0, 2 * noise_std, 6 * noise_std, 12 * noise_std, 12 * noise_std + 12]
    parts = (quad(integrand, a, b, epsrel=1e-10, limit=200)[0] for a, b in itertools.pairwise(edges))
    return 2 * (density + noise_std**2) * float(sum(parts))
