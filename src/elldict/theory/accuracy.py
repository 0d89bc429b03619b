"""Accuracy of l_p estimates, from the moments of codes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import gamma

from elldict.theory.unmixing import bernoulli_gaussian_information, crosstalk_bound

Array = NDArray[np.float64]


def gaussian_moment(order: float) -> float:
    """Compute an absolute moment of a standard normal variable, the paper's gamma_p.

    Parameters
    ----------
    order : float
        Order p >= 0.

    Returns
    -------
    float
        E|g|^p = 2^(p/2) Gamma((p+1)/2) / sqrt(pi).

    Examples
    --------
    >>> from elldict.theory import gaussian_moment
    >>> round(gaussian_moment(4), 12)
    3.0
    """
    if not order >= 0:
        raise ValueError(f"order={order!r}: expected a number >= 0.")
    return float(2 ** (order / 2) * gamma((order + 1) / 2) / math.sqrt(math.pi))


def expected_error(
    p: float,
    *,
    n_features: int,
    n_samples: int,
    density: float,
    noise_std: float = 0.0,
    n_components: int | None = None,
) -> float:
    """Compute the expected error of the l_p estimate on Bernoulli-Gaussian data.

    The error is that of :func:`elldict.metrics.recovery_error`, for active codes of unit variance, an orthogonal
    dictionary and white Gaussian noise.

    Parameters
    ----------
    p : float
        Exponent of the norm, in the range (0, 60] except 2; below 2 the norm is minimised.
    n_features : int
        Number n of features.
    n_samples : int
        Number r of samples.
    density : float
        Probability theta that a code is not zero, in (0, 1).
    noise_std : float, default=0.0
        Standard deviation sigma of the noise, relative to an active code.
    n_components : int, optional
        Number m of estimated atoms; n by default.

    Returns
    -------
    float
        Expected error, between 0 (perfect) and 1 (also where the formula gives more, because samples are too few).

    Notes
    -----
    Small rotations between a pair of atoms are asymptotically normal; their variance follows from the moments of one
    noisy code s, with v = E s^2 and ``g = sign(s) |s|^(p-1)``. For p < 2, ``|s|`` is smoothed on the scale of its root
    mean square, and g = s - s (s^2/v + 1)^(p/2-1). The first term of the numerator is due to rotations among the m
    estimated atoms, the second one to rotations out of their span:

        F(sigma) = [(m-1)(v E g^2 - (E g s)^2) + 2 (n-m) v E g^2] / (r (v E g' - E g s)^2).

    The rotation itself blurs the zeros of the codes: it adds a variance of v error / 2, to which E g' is sensitive for
    small p. The error returned is the solution of error = F(sigma_eff), sigma_eff^2 = sigma^2 + v error / 2.

    Examples
    --------
    >>> from elldict.theory import expected_error
    >>> round(100 * expected_error(3, n_features=100, n_samples=40_000, density=0.3), 3)
    0.092
    """
    m = n_features if n_components is None else n_components
    _check_setting(p, n_features, n_samples, density, noise_std, m)
    variance = density + noise_std**2
    error = 0.0
    for _ in range(1000):
        blurred = math.sqrt(noise_std**2 + variance * error / 2)
        new = min(1.0, _first_order_error(p, n_features, n_samples, density, blurred, m))
        if abs(new - error) <= 1e-12:
            break
        error = (error + new) / 2 if error else new  # damped: the plain iteration can oscillate
    return error


def cramer_rao_bound(
    *, n_features: int, n_samples: int, density: float, noise_std: float, orthogonal: bool = True
) -> float:
    """Compute the Cramer-Rao bound of the error for Bernoulli-Gaussian data with Gaussian noise.

    The error is that of :func:`elldict.metrics.recovery_error` for an orthogonal dictionary. No unbiased method has a
    smaller one.

    Parameters
    ----------
    n_features : int
        Number n of features and of atoms.
    n_samples : int
        Number r of samples.
    density : float
        Probability theta that a code is not zero, in (0, 1).
    noise_std : float
        Standard deviation sigma of the noise, relative to an active code.
    orthogonal : bool, default=True
        Whether the estimate is known to be orthogonal. False: any invertible matrix, as in independent component
        analysis without whitening; the noise is then that of codes.

    Returns
    -------
    float
        (n-1) / (r (k - 1)), or 2 (n-1) k / (r (k^2 - 1)) for invertible matrices, with the information k of
        :func:`bernoulli_gaussian_information`; 0 without noise, where the dictionary can be recovered exactly.

    Examples
    --------
    >>> from elldict.theory import cramer_rao_bound
    >>> round(100 * cramer_rao_bound(n_features=32, n_samples=10_000, density=0.3, noise_std=0.4), 4)
    0.5417
    """
    _check_setting(3, n_features, n_samples, density, noise_std, n_features)
    k = bernoulli_gaussian_information(density, noise_std)
    bound = crosstalk_bound([k, k], n_samples=n_samples, orthogonal=orthogonal)
    return float(2 * (n_features - 1) * bound[0, 1])


def mean_over_gaussian(function: Callable[[Array], Array], variance: float = 1.0) -> float:
    """Compute the mean of a function of a Gaussian variable x; the function is smooth on the scale of one.

    For any variance of x, the trapezoidal rule in t, x = std sinh t, converges faster than any power of the number of
    nodes.
    """
    t = np.linspace(-3.2, 3.2, 801)  # sinh 3.2 is 12 standard deviations
    x = np.sinh(t)
    weights = np.cosh(t) * np.exp(-(x**2) / 2)
    return float(np.sum(weights * function(math.sqrt(variance) * x)) / np.sum(weights))


def smoothed_derivatives(z: Array, p: float) -> tuple[Array, Array]:
    """Return g and slope of the objective for p < 2, F = p z^2/2 + 1 - (z^2 + 1)^(p/2), without the factor p."""
    s = z**2 + 1
    weight = s ** (p / 2 - 1)
    return z - z * weight, 1 - (p - 1) * weight - (2 - p) * weight / s


def _first_order_error(p: float, n: int, r: int, density: float, noise_std: float, m: int) -> float:
    """Compute F(sigma) of `expected_error`."""
    v, gs, g2, slope = (_moments if p > 2 else _smoothed_moments)(p, density, noise_std)
    within = (m - 1) * (v * g2 - gs**2)
    outside = 2 * (n - m) * v * g2
    return (within + outside) / (r * (v * slope - gs) ** 2)


def _moments(p: float, density: float, noise_std: float) -> tuple[float, float, float, float]:
    """Compute the moments E s^2, E g s, E g^2 and E g' of a noisy code, for p > 2."""

    def moment(order: float) -> float:
        active = density * float((1 + noise_std**2) ** (order / 2))
        inactive = (1 - density) * float(noise_std**order)
        return gaussian_moment(order) * (active + inactive)

    return moment(2), moment(p), moment(2 * p - 2), (p - 1) * moment(p - 2)


def _smoothed_moments(p: float, density: float, noise_std: float) -> tuple[float, float, float, float]:
    """Compute these moments for p < 2, of a code in units of its root mean square."""
    idle = noise_std**2 / (density + noise_std**2)
    active = idle + 1 / (density + noise_std**2)

    def mean(function: Callable[[Array], Array]) -> float:
        return density * mean_over_gaussian(function, active) + (1 - density) * mean_over_gaussian(function, idle)

    def g(z: Array) -> Array:
        return smoothed_derivatives(z, p)[0]

    return 1.0, mean(lambda z: g(z) * z), mean(lambda z: g(z) ** 2), mean(lambda z: smoothed_derivatives(z, p)[1])


def _check_setting(p: float, n: int, r: int, density: float, noise_std: float, m: int) -> None:
    if not 0 < p <= 60 or p == 2:
        raise ValueError(f"p={p!r}: expected a number above 0 and at most 60, but not 2.")
    if int(m) != m or int(n) != n:
        raise ValueError(f"n_features={n!r}, n_components={m!r}: expected integers.")
    if not (n >= 2 and r >= 1 and 1 <= m <= n):
        raise ValueError(
            f"n_features={n}, n_samples={r}, n_components={m}: expected n_features >= 2, n_samples >= 1 and "
            "1 <= n_components <= n_features."
        )
    if not 1e-9 <= density < 1:
        raise ValueError(f"density={density!r}: expected a probability above 0 and below 1 (at 1 codes are Gaussian).")
    if not 0 <= noise_std <= 1e3:
        raise ValueError(f"noise_std={noise_std!r}: expected a number between 0 and 1000, relative to an active code.")
