"""What chance alone can produce: limits for the tests a fit runs on itself."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


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
    kappa = E g z - E z^2 E g' it is not carried away by the few largest codes, which is where l_p looks.
    """
    gap = math.sqrt(2 / math.pi) - mean_magnitude / np.sqrt(mean_square)
    return np.asarray(gap / math.sqrt((1 - 3 / math.pi) / n_samples))


def chance_score(n_directions: int) -> float:
    """Sparsity score that maximisation over n directions can reach on pure Gaussian noise.

    The score of one direction is standard normal; over all directions it is a Gaussian field on the sphere whose
    leading part is of fourth degree, and its maximum grows like 1.79 sqrt(n) (the ground state of the spherical
    4-spin model). l_p aims at another contrast and at n orthogonal directions at once, and reaches 1.25 sqrt(n).
    """
    return 1 + 1.5 * math.sqrt(n_directions)
