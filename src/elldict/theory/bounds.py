"""Guarantees of the paper: sharpness of the population objective, and the number of samples that are needed."""

from __future__ import annotations

import math

from elldict.theory.accuracy import gaussian_moment
from elldict.theory.supports import check_density, check_exponent


def noise_gap(p: float, noise_std: float) -> float:
    """Compute the gap of the population objective between unit vectors and their midpoints, the paper's xi_eta.

    Parameters
    ----------
    p : float
        Exponent of the norm, above 2.
    noise_std : float
        Standard deviation eta of the noise, relative to an active code.

    Returns
    -------
    float
        (1 + eta^2)^(p/2) + eta^p - 2 (1/2 + eta^2)^(p/2).

    Notes
    -----
    The objective at e_1 exceeds that at (e_1 + e_2) / sqrt(2) by gamma_p theta (1 - theta) times this number, which is
    positive for p > 2. It tends to 0 for p -> 2 (where the objective is constant), is 1/2 for p = 4 and any noise, and
    behaves like p (p-2) eta^(p-4) / 16 for strong noise: noise flattens the objective for p < 4.

    The sharpness constants C_p and C_eta,p of the paper are 1 / xi_eta. For q of length 1 (Lemmas "sharpness"), with
    s = eta^2,

        theta (1-theta) / (2 C) min_i ||q -+ e_i||^2
            <= theta (1+s)^(p/2) + (1-theta) s^(p/2) - E(||q_Omega||^2 + s)^(p/2)

    and, averaged over the rows of an orthogonal Q, the same with ||Q - P||_F^2 / n for some signed permutation P.
    Both are true; the printed proofs need four repairs.
    (1) ``r = |1 - q_n|^2 = eps^2`` should read ``r = 1 - |q_n| <= eps^2 = 1 - q_n^2``.
    (2) The last displays of the noisy version have an extra factor 2 below c, and lack eta^2 within the mean.
    (3) ||Q - P||_2 has to be the Frobenius norm.
    (4) Rows may share their nearest unit vector, so step (b) is not an equality. The claim holds nevertheless: a row
    with an entry above sqrt(1/2) does not share it; any other row has a gap of theta (1-theta) / C or more, and with
    the right sign ||q -+ e_j||^2 <= 2 for any remaining j.

    Examples
    --------
    >>> from elldict.theory import noise_gap
    >>> round(noise_gap(4, 0.7), 12)
    0.5
    >>> noise_gap(3, 0.0) > noise_gap(3, 1.0)
    True
    """
    check_exponent(p)
    _check_noise(noise_std)
    middle = 0.5 + noise_std**2
    h = 0.5 / middle
    # a second difference; powers minus one avoid cancellation for strong noise (small h)
    above = math.expm1(p / 2 * math.log1p(h))
    below = math.expm1(p / 2 * math.log1p(-h)) if h < 1 else -1.0
    return float(middle ** (p / 2) * (above + below))


def recovery_constant(p: float, density: float, noise_std: float = 0.0) -> float:
    """Compute the largest squared error per atom for a unit deviation of the objective, the paper's C_theta.

    Parameters
    ----------
    p : float
        Exponent of the norm, above 2.
    density : float
        Probability theta that a code is not zero, in (0, 1).
    noise_std : float, default=0.0
        Standard deviation eta of the noise, relative to an active code.

    Returns
    -------
    float
        4 / (gamma_p theta (1 - theta) xi_eta), with xi_eta the :func:`noise_gap`. If the sampled objective, per atom
        and sample, is within delta of its expectation on the whole orthogonal group, its maximiser A satisfies
        ||A^T - D0 Pi||_F^2 / n <= C_theta delta for some signed permutation Pi.

    Notes
    -----
    Theorem 2.2 (noise) has the constant 4 / (gamma_p theta (1 - theta)) without xi_eta, which is part of the number of
    samples there; see :func:`samples_needed`. With xi_eta, the limit of noise -> 0 is the constant of Theorem 2.1.

    Examples
    --------
    >>> from elldict.theory import recovery_constant
    >>> round(recovery_constant(4, 0.5), 6)  # 4 * 2 / (3 / 4)
    10.666667
    """
    check_density(density)
    return 4 / (noise_gap(p, noise_std) * gaussian_moment(p) * density * (1 - density))


def samples_needed(p: float, *, n_features: int, density: float, tolerance: float, noise_std: float = 0.0) -> float:
    """Compute the number of samples that the theorems of the paper require, up to a constant factor.

    Parameters
    ----------
    p : float
        Exponent of the norm, above 2.
    n_features : int
        Number n of features, at least 2.
    density : float
        Probability theta that a code is not zero, in (0, 1).
    tolerance : float
        Deviation delta, above 0 and below n_features.
    noise_std : float, default=0.0
        Standard deviation eta of the noise, relative to an active code; 0 for Theorem 2.1, more for Theorem 2.2.

    Returns
    -------
    float
        The expression inside Omega(...), of which only ratios have a meaning. Without noise:
        n log(n/delta) (theta n log^2 n)^(p/2) / delta^2, for a squared error of ``recovery_constant(p, density)``
        times delta. With noise: n log(n/delta) ((1 + eta^2) n log n)^(p/2) / (delta xi_eta)^2, for a squared error of
        4 delta / (gamma_p theta (1 - theta)).

    Notes
    -----
    Theorem 2.2 has xi_eta^2 as a *factor*, but it should be a divisor. By the sharpness lemma, a deviation d of the
    objective leads to an error of 4 d / (gamma_p theta (1-theta) xi_eta). The theorem states 4 delta / (gamma_p theta
    (1-theta)), so d = delta xi_eta, and the number of samples is proportional to d^-2. As printed, no samples would be
    needed for p -> 2, where nothing can be recovered, and fewer for stronger noise if p < 4. The printed expression is
    this one times ``noise_gap(p, noise_std)**4``.

    The two theorems do not agree without noise: the second one has no theta (noise is dense), and log n instead of
    log^2 n although its proof truncates at the same level, so that log n is probably wrong. The same is true of
    (1 + eta^2)^(p/2) for strong noise: the variance in the proof is of order (1 + eta^2)^p, and as printed the number
    decreases with noise for some p > 4, with xi_eta^2 as factor or as divisor. The appendix repeats Theorem 2.1 with
    theta (n log^2 n)^(p/2); its own lemma and the main text have the smaller (theta n log^2 n)^(p/2) used here.

    Examples
    --------
    >>> from elldict.theory import samples_needed
    >>> setting = {"n_features": 30, "density": 0.3, "tolerance": 0.1}
    >>> samples_needed(3, **setting) < samples_needed(4, **setting)
    True
    """
    check_exponent(p)
    check_density(density)
    _check_noise(noise_std)
    if n_features < 2:
        raise ValueError(f"n_features={n_features!r}: expected 2 or more.")
    if not 0 < tolerance < n_features:
        raise ValueError(f"tolerance={tolerance!r}: expected a number above 0 and below n_features={n_features}.")
    log_n = math.log(n_features)
    if noise_std == 0:
        deviation, spread = tolerance, density * n_features * log_n**2
    else:
        deviation, spread = tolerance * noise_gap(p, noise_std), (1 + noise_std**2) * n_features * log_n
    return float(n_features * math.log(n_features / tolerance) * spread ** (p / 2) / deviation**2)


def _check_noise(noise_std: float) -> None:
    if not 0 <= noise_std < math.inf:
        raise ValueError(f"noise_std={noise_std!r}: expected a finite number >= 0.")
