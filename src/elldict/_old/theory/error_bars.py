"""Error bars of a fit, from the moments of its codes; and what chance alone can produce."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import Array, Backend, find_error_kernel
from elldict.theory.accuracy import gaussian_moment, mean_over_gaussian, smoothed_derivatives

SURE_SCORE = 3.0
"""Standard errors of kappa from which the sign of an atom is not in doubt; and by which all atoms in doubt together
have to be negative to be taken for that."""


@dataclass(frozen=True)
class CodeMoments:
    """Moments of the codes of m atoms under an objective with derivative g; of any library, and so are their errors."""

    gz: Array  # (m,)  E g(z) z
    g2: Array  # (m,)  E g(z)^2
    slope: Array  # (m,)  E g'(z)
    z2: Array  # (m,)  E z^2

    def curvatures(self) -> Array:
        """h_ij (m, m): second derivative of the objective by the angle between two atoms; a maximum needs h > 0."""
        crossed = self.slope[:, None] * self.z2[None, :]
        return self.gz[:, None] + self.gz[None, :] - crossed - crossed.T

    def angle_covariances(
        self, other: CodeMoments, cross: Array, n_samples: float, unidentifiable: NDArray[np.bool_] | None = None
    ) -> Array:
        """Covariance (m, m) of the angles under two objectives; `cross` is E g(z) g_other(z) for each atom.

        Angles between two atoms that are `unidentifiable` (m,) among themselves are chance, and count as zero.
        """
        backend = Backend.of(self.gz)
        xp = backend.xp
        noise = cross[:, None] * self.z2[None, :]
        signal = self.gz[:, None] * other.gz[None, :]
        h1, h2 = self.curvatures(), other.curvatures()
        with np.errstate(divide="ignore", invalid="ignore"):
            variance = (noise + noise.T - signal - signal.T) / (n_samples * h1 * h2)
        variance = xp.where((h1 > 0) & (h2 > 0), variance, xp.full_like(variance, math.inf))
        left_out = xp.eye(int(cross.shape[0]), dtype=variance.dtype, device=backend.device) > 0
        if unidentifiable is not None:
            chance = backend.asarray(unidentifiable, "float64") > 0
            left_out = left_out | (chance[:, None] & chance[None, :])
        return xp.where(left_out, xp.zeros_like(variance), variance)


def atom_errors(
    moments: CodeMoments,
    n_samples: float,
    n_unsought: int = 0,
    unsought_variance: float = 0.0,
    unidentifiable: NDArray[np.bool_] | None = None,
) -> Array:
    """First-order error of each atom, from the moments of its codes: twice the sum of the variances of its angles.

    `n_unsought` directions that belong to no atom sought, of variance `unsought_variance`, count as well. Angles of
    `unidentifiable` atoms (m,) count with all other atoms only, where they are not chance.
    """
    backend = Backend.of(moments.gz)
    xp = backend.xp
    if unidentifiable is not None and not np.any(unidentifiable):
        unidentifiable = None
    kernel = find_error_kernel(moments.gz) if unidentifiable is None and not n_unsought else None
    if kernel is not None:
        return kernel(moments.gz, moments.g2, moments.slope, moments.z2, n_samples)
    variances = moments.angle_covariances(moments, moments.g2, n_samples, unidentifiable)
    within = xp.sum(xp.maximum(variances, xp.zeros_like(variances)), axis=1)
    if not n_unsought:
        return 2 * within
    margin = moments.gz - unsought_variance * moments.slope
    with np.errstate(divide="ignore", invalid="ignore"):
        outside = n_unsought * unsought_variance * moments.g2 / (n_samples * margin**2)
    outside = xp.where(margin > 0, outside, xp.full_like(outside, math.inf))
    if unidentifiable is not None:
        outside = xp.where(backend.asarray(unidentifiable, "float64") > 0, xp.zeros_like(outside), outside)
    return 2 * (within + outside)


@cache
def gaussian_value(p: float) -> float:
    """Mean of the objective over Gaussian codes of unit variance: E|x|^p, or p/2 + 1 - E (x^2 + 1)^(p/2) below 2."""
    return gaussian_moment(p) if p > 2 else p / 2 + 1 - mean_over_gaussian(lambda x: (x**2 + 1) ** (p / 2))


@cache
def kappa_variance(p: float, variance: float = 1.0) -> float:
    """Variance, times the number of samples, of kappa = E g z - E z^2 E g' of Gaussian codes.

    By the delta method it is that of g z - v g' - M z^2, with v the variance of the codes and M = E g'.
    """
    if p > 2:
        M = gaussian_moment(p - 2)
        terms = [(1.0, p), (1 - p, p - 2), ((1 - p) * M, 2.0)]
        products = [(a * b, s, t) for a, s in terms for b, t in terms]
        whole: float = sum(
            c * (gaussian_moment(s + t) - gaussian_moment(s) * gaussian_moment(t)) for c, s, t in products
        )
        return whole * float(variance**p)

    M = mean_over_gaussian(lambda z: smoothed_derivatives(z, p)[1], variance)

    def influence(z: NDArray[np.float64]) -> NDArray[np.float64]:
        g, slope = smoothed_derivatives(z, p)
        return np.asarray(g * z - variance * slope - M * (z**2 - variance))  # of mean zero, like kappa

    return mean_over_gaussian(lambda z: influence(z) ** 2, variance)


@cache
def _interpolate_kappa_variance(p: float) -> tuple[float, ...]:
    """Coefficients, from the constant on, of log kappa_variance in powers of the log variance of the codes, p < 2.

    Off by a tenth at most for variances between 1/150 and 150.
    """
    at = np.linspace(-5, 5, 21)
    values = [math.log(kappa_variance(p, math.exp(each))) for each in at]
    return tuple(float(each) for each in np.polynomial.polynomial.polyfit(at, values, 4))


def score_kappa(moments: CodeMoments, n_samples: float, p: float) -> Array:
    """Standard errors (m,) by which kappa = E g z - E z^2 E g' of each atom is above that of Gaussian codes, zero.

    Below 2 the objective has a scale, that of its smoothing, and the standard error is no power of the variance.
    """
    xp, z2 = Backend.of(moments.gz).xp, moments.z2
    kappa = moments.gz - z2 * moments.slope
    if p > 2:
        return kappa / z2 ** (p / 2) * math.sqrt(n_samples / kappa_variance(p))
    least = xp.full_like(z2, math.exp(-5))
    log = xp.log(xp.minimum(xp.maximum(z2, least), 1 / least))
    result = xp.zeros_like(log)
    for coefficient in reversed(_interpolate_kappa_variance(p)):
        result = result * log + coefficient / 2
    return kappa * math.sqrt(n_samples) / xp.exp(result)


def choose_signs(moments: CodeMoments, n_samples: float, p: float, if_in_doubt: float = 1.0) -> Array:
    """Sign of each atom under l_p (m,): 1 where its codes are sparser than Gaussian ones, -1 where they are less so.

    The objective has a maximum at an atom if its sign is that of kappa = E g z - E z^2 E g'. Where kappa is within a
    few standard errors of zero, an atom takes the sign of all such atoms together; if that is in doubt too, the sign
    `if_in_doubt`.
    """
    backend = Backend.of(moments.gz)
    xp, scores = backend.xp, score_kappa(moments, n_samples, p)
    if not backend.prefers_few_calls and bool(xp.min(scores) >= SURE_SCORE):  # none is in doubt, nor negative
        return xp.ones_like(scores)
    doubtful = xp.astype(xp.abs(scores) < SURE_SCORE, scores.dtype)
    together = if_in_doubt * SURE_SCORE + xp.sum(doubtful * scores) / xp.sqrt(xp.sum(doubtful) + 1e-9)
    sure = xp.full_like(together, SURE_SCORE)
    positive = scores + xp.minimum(xp.maximum(together, -sure), sure) >= 0
    return xp.where(positive, xp.ones_like(scores), -xp.ones_like(scores))


def whitening_errors(moments: CodeMoments, n_samples: float, n_unsought: int = 0) -> Array:
    """Error that each atom (m,) has from whitening by the covariance of r samples, beside that of its angles.

    Codes have unit variance. The covariance of two is off by E_ij, of variance 1/r, and its inverse square root by half
    of that, which tilts atom i towards j by E_ij / 2. It also moves their angle: samples whitened in this way change
    the gradient by -(a_i - a_j) E_ij / 2, a = E g' + E g z, and the angle by that over the curvature h_ij. Together
    that is (E g_j z_j - E g_i') E_ij / h_ij. What is added to the variance of the angle is its variance, and twice its
    covariance with the angle, (E g_i z_i - E g_j z_j) / (r h_ij) a unit of E_ij. The sum of both errors is

        2 sum_j (E (g_i - z_i E g_i')^2 + E g_j^2 - (E g_j z_j)^2) / (r h_ij^2),

    which linear parts of g, of any size for each atom, do not change, as they change nothing in a fit to white samples.
    For equal laws what is added is (n - 1) / (2 r), the tilt alone; that also counts for pairs without a maximum.
    `n_unsought` directions that belong to no atom are such with g = 0.
    """
    xp = Backend.of(moments.gz).xp
    gz, slope, h = moments.gz, moments.slope, moments.curvatures()
    tilt = gz[None, :] - slope[:, None]
    within = xp.sum(_over_square(tilt**2 + 2 * tilt * (gz[:, None] - gz[None, :]), h), axis=1)
    within = within - 0.25  # an atom with itself
    outside = n_unsought * _over_square(slope**2 - 2 * slope * gz, gz - slope)
    return 2 * (within + outside) / n_samples


def _over_square(numerator: Array, h: Array) -> Array:
    """Numerator / h^2, and a quarter where h <= 0."""
    xp = Backend.of(h).xp
    found = h > 0
    return xp.where(found, numerator / xp.where(found, h, xp.ones_like(h)) ** 2, xp.full_like(h, 0.25))


def subspace_errors(
    variances: NDArray[np.float64], atoms: NDArray[np.float64], n_samples: float
) -> NDArray[np.float64]:
    """Error of each atom (m,) because the first k principal directions are those of r samples, not the true ones.

    `variances` are those of all principal directions, in decreasing order, and `atoms` (m, k) coordinates in the first
    k. Direction i is tilted towards j by an angle of variance l_i l_j / (r (l_i - l_j)^2), to first order, and angles
    of different directions are independent: the square of the sine between an atom and the true subspace is the mean,
    by its squared coordinates, of what its directions lose to those left out, and counts twice, as all angles do. No
    direction can lose more than all of itself.
    """
    k = atoms.shape[1]
    kept, left = variances[:k, None], np.maximum(variances[None, k:], 0.0)
    with np.errstate(divide="ignore"):
        lost = np.sum(kept * left / (n_samples * (kept - left) ** 2), axis=1)
    squares = atoms**2
    return np.asarray(2 * (squares @ np.minimum(lost, 1.0)) / np.sum(squares, axis=1))


def with_small_sample_correction(errors: Array, n_features: int, n_samples: float) -> Array:
    """Error bars from fitted codes are too small when samples are few, because the fit has seen its own noise.

    The mean error b becomes b (1 + 3 n/r + 3 b), and each atom's in proportion.
    """
    xp = Backend.of(errors).xp
    mean = float(xp.mean(errors))
    corrected = errors * (1 + 3 * n_features / n_samples + 3 * min(mean, 1.0))
    return xp.minimum(corrected, xp.ones_like(corrected))


def sampling_condition(n_samples: int, n_directions: int) -> float:
    """Condition number that the covariance of white samples shows by chance (Marchenko and Pastur)."""
    ratio = math.sqrt(n_directions / n_samples)
    return math.inf if ratio >= 1 else ((1 + ratio) / (1 - ratio)) ** 2


def sparsity_score(
    mean_magnitude: NDArray[np.float64], mean_square: NDArray[np.float64], n_samples: float
) -> NDArray[np.float64]:
    """Standard errors by which codes are sparser than Gaussian ones of the same variance.

    A Gaussian code has E|z| = sqrt(2/pi) of its root mean square, a sparse one less, a sub-Gaussian one more. The
    ratio of the two sample moments has variance (1 - 3/pi)/r for Gaussian codes (delta method). Unlike
    kappa = E g z - E z^2 E g' it does not depend on the few largest codes alone, as l_p does.
    """
    gap = math.sqrt(2 / math.pi) - mean_magnitude / np.sqrt(mean_square)
    return np.asarray(gap / math.sqrt((1 - 3 / math.pi) / n_samples))


def find_gaussian(scores: NDArray[np.float64], n_directions: int) -> NDArray[np.bool_]:
    """Atoms whose codes cannot be told from Gaussian ones, by their sparsity scores (m,), found among n directions.

    These are maxima of a search. If all others are found beyond doubt, it goes on among the Gaussian directions alone:
    the fewer there are, the less chance alone can produce.
    """
    found, n_unsought = scores < chance_score(n_directions), n_directions - len(scores)
    if np.any(scores[~found] < 2 * chance_score(n_directions)):
        return np.asarray(found)
    while True:
        fewer = found & (scores < chance_score(n_unsought + int(np.sum(found))))
        if np.all(fewer == found):
            return np.asarray(found)
        found = fewer


def chance_score(n_directions: int) -> float:
    """Sparsity score that maximisation over n directions can reach on pure Gaussian noise.

    The score of one direction is standard normal; over all directions it is a Gaussian field on the sphere whose
    leading part is of fourth degree, and its maximum grows like 1.79 sqrt(n) (the ground state of the spherical
    4-spin model). l_p maximises another function and at n orthogonal directions at once, and reaches 1.25 sqrt(n).
    """
    return 1 + 1.5 * math.sqrt(n_directions)
