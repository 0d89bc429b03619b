"""The paper's guarantees: how sharp the population objective is, and how many samples make the sampled one like it."""

from __future__ import annotations

import math

from elldict.theory.accuracy import gaussian_moment
from elldict.theory.supports import check_density, check_exponent


def noise_gap(p: float, noise_std: float) -> float:
    """Gap between unit vectors and their halfway points in the population objective, the paper's xi_eta.

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
    The objective at e_1 exceeds the one at (e_1 + e_2) / sqrt(2) by gamma_p theta (1 - theta) times this number, which
    is above 0 for p > 2. It tends to 0 for p -> 2 (where every direction is as good), is 1/2 for p = 4 whatever the
    noise, and behaves like p (p-2) eta^(p-4) / 16 for strong noise: noise flattens the objective for p < 4.

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
    # a second difference; powers minus one keep the digits that strong noise (small h) would take
    above = math.expm1(p / 2 * math.log1p(h))
    below = math.expm1(p / 2 * math.log1p(-h)) if h < 1 else -1.0
    return float(middle ** (p / 2) * (above + below))


def sharpness_constant(p: float, noise_std: float = 0.0) -> float:
    """Constant of the sharpness of the population objective, the paper's C_p and C_eta,p.

    Parameters
    ----------
    p : float
        Exponent of the norm, above 2.
    noise_std : float, default=0.0
        Standard deviation eta of the noise, relative to an active code.

    Returns
    -------
    float
        1 / xi_eta, see :func:`noise_gap`; without noise 1 / (1 - 2 (1/2)^(p/2)).

    Notes
    -----
    For q of length 1 (paper, Lemmas "sharpness"), with s = eta^2,

        theta (1-theta) / (2 C) min_i ||q -+ e_i||^2
            <= theta (1+s)^(p/2) + (1-theta) s^(p/2) - E(||q_Omega||^2 + s)^(p/2)

    and, averaged over the rows of an orthogonal Q, the same with ||Q - P||_F^2 / n for some signed permutation P.
    Both are true; the printed proofs need four repairs.
    (1) ``r = |1 - q_n|^2 = eps^2`` should read ``r = 1 - |q_n| <= eps^2 = 1 - q_n^2``.
    (2) The last displays of the noisy version carry a factor 2 too many under c, and lose eta^2 under the mean.
    (3) ||Q - P||_2 has to be the Frobenius norm.
    (4) Rows may share their nearest unit vector, so step (b) is no equality. The claim holds all the same: rows with an
    entry above sqrt(1/2) have theirs alone; any other row has a gap of theta (1-theta) / C or more, and with the right
    sign ||q -+ e_j||^2 <= 2 for whichever j is left.

    Examples
    --------
    >>> from elldict.theory import sharpness_constant
    >>> round(sharpness_constant(4), 12)
    2.0
    """
    return 1 / noise_gap(p, noise_std)


def recovery_constant(p: float, density: float, noise_std: float = 0.0) -> float:
    """Squared error per atom that a unit of deviation of the objective may cause, the paper's C_theta.

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
        4 C / (gamma_p theta (1 - theta)), C the :func:`sharpness_constant`. Where the sampled objective, per atom and
        sample, is within delta of its expectation on the whole orthogonal group, its maximiser A has
        ||A^T - D0 Pi||_F^2 / n <= C_theta delta for some signed permutation Pi.

    Notes
    -----
    Theorem 2.2 (noise) leaves C out, 4 / (gamma_p theta (1 - theta)), and charges it to the number of samples; see
    :func:`samples_needed`. Here it stays in, so that noise -> 0 gives the constant of Theorem 2.1.

    Examples
    --------
    >>> from elldict.theory import recovery_constant
    >>> round(recovery_constant(4, 0.5), 6)  # 4 * 2 / (3 / 4)
    10.666667
    """
    check_density(density)
    return 4 * sharpness_constant(p, noise_std) / (gaussian_moment(p) * density * (1 - density))


def samples_needed(p: float, *, n_features: int, density: float, tolerance: float, noise_std: float = 0.0) -> float:
    """Growth of the number of samples that the paper's theorems ask for, up to a factor they do not state.

    Parameters
    ----------
    p : float
        Exponent of the norm, above 2.
    n_features : int
        Size n of a signal, at least 2.
    density : float
        Probability theta that a code is not zero, in (0, 1).
    tolerance : float
        Deviation delta, above 0 and below n_features.
    noise_std : float, default=0.0
        Standard deviation eta of the noise, relative to an active code; 0 asks Theorem 2.1, more asks Theorem 2.2.

    Returns
    -------
    float
        The expression inside Omega(...): ratios of two values mean something, one value alone does not. No noise:
        n log(n/delta) (theta n log^2 n)^(p/2) / delta^2, for a squared error of ``recovery_constant(p, density)``
        times delta. Noise: n log(n/delta) ((1 + eta^2) n log n)^(p/2) / (delta xi_eta)^2, for a squared error of
        4 delta / (gamma_p theta (1 - theta)).

    Notes
    -----
    Theorem 2.2 prints xi_eta^2 as a *factor*. It has to divide: the sharpness lemma turns a deviation d of the
    objective into an error of 4 d / (gamma_p theta (1-theta) xi_eta), the theorem promises 4 delta / (gamma_p theta
    (1-theta)), so d = delta xi_eta, and samples go with d^-2. As printed, p -> 2, where nothing can be recovered, would
    need no samples at all, and for p < 4 stronger noise would need fewer. Multiply by ``noise_gap(p, noise_std)**4``
    for the printed expression.

    The two theorems do not meet at noise 0: the second one has no theta (noise is dense) and log n for log^2 n,
    although its proof truncates at the same level; it is log n that looks wrong. So does (1 + eta^2)^(p/2) for strong
    noise: the variance in the proof is of order (1 + eta^2)^p, and as it stands the number falls with noise for some
    p > 4, divided or not. The appendix repeats Theorem 2.1 with
    theta (n log^2 n)^(p/2); its own lemma, and the main text, have the smaller (theta n log^2 n)^(p/2) used here.

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
