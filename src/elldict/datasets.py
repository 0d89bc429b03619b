"""Synthetic samples with a known dictionary."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from sklearn.utils import check_random_state

__all__ = ["make_bernoulli_gaussian"]


def make_bernoulli_gaussian(
    n_samples: int,
    n_features: int,
    *,
    density: float,
    noise_std: float = 0.0,
    corruption: float = 0.0,
    corruption_rate: float = 0.1,
    orthogonal: bool = True,
    condition_number: float = 10.0,
    dtype: DTypeLike = np.float64,
    random_state: int | np.random.RandomState | np.random.Generator | None = None,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Generate samples that are sparse in a random complete dictionary, optionally with noise or corrupted entries.

    Parameters
    ----------
    n_samples : int
        Number of samples, r in the paper.
    n_features : int
        Number of features and of atoms, n in the paper.
    density : float
        Probability that a code is not zero, theta in the paper; those codes are standard normal.
    noise_std : float, default=0.0
        Standard deviation of Gaussian noise of every entry.
    corruption : float, default=0.0
        Size of sparse corruption: plus or minus this value is added to some of the entries.
    corruption_rate : float, default=0.1
        Probability that an entry is corrupted.
    orthogonal : bool, default=True
        Whether the dictionary is orthogonal, with uniform distribution, or only complete.
    condition_number : float, default=10.0
        Ratio of the largest to the smallest singular value of a dictionary that is not orthogonal.
    dtype : data-type, default=numpy.float64
        Dtype of all three arrays, float32 or float64.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        Samples, as rows.
    dictionary : ndarray of shape (n_features, n_features)
        Atoms, as rows: without noise and corruption, X is ``codes @ dictionary``.
    codes : ndarray of shape (n_samples, n_features)
        Codes.

    Examples
    --------
    >>> from elldict.datasets import make_bernoulli_gaussian
    >>> X, dictionary, codes = make_bernoulli_gaussian(1000, 20, density=0.1, random_state=0)
    >>> X.shape, dictionary.shape, codes.shape
    ((1000, 20), (20, 20), (1000, 20))
    """
    if n_samples < 1 or n_features < 1:
        raise ValueError(f"n_samples={n_samples}, n_features={n_features}: expected at least one of each.")
    for name, rate in (("density", density), ("corruption_rate", corruption_rate)):
        if not 0 <= rate <= 1:
            raise ValueError(f"{name}={rate!r}: expected a probability between 0 and 1.")
    sizes = (("noise_std", noise_std, 0), ("corruption", corruption, 0), ("condition_number", condition_number, 1))
    for name, size, least in sizes:
        if not least <= size < np.inf:
            raise ValueError(f"{name}={size!r}: expected a finite number >= {least}.")
    real: Any = np.dtype(dtype)
    if real not in (np.float32, np.float64):
        raise ValueError(f"dtype={real}: expected float32 or float64.")
    rng = _make_generator(random_state)
    shape = (n_samples, n_features)
    dictionary = _draw_orthonormal(n_features, rng)
    if not orthogonal:
        values = np.geomspace(1.0, 1.0 / condition_number, n_features)  # singular values, of unit mean square
        values /= np.sqrt(np.mean(values**2))
        dictionary = _draw_orthonormal(n_features, rng) @ (values[:, None] * dictionary)
    dictionary = dictionary.astype(real)
    codes = rng.standard_normal(shape, dtype=real)
    codes *= rng.random(shape, dtype=np.float32) < density
    X = codes @ dictionary
    if noise_std:
        X += real.type(noise_std) * rng.standard_normal(shape, dtype=real)
    if corruption:
        is_corrupted = rng.random(shape, dtype=np.float32) < corruption_rate
        X += real.type(corruption) * is_corrupted * rng.choice(np.array([-1, 1], dtype=np.int8), shape)
    return X, dictionary, codes


def _make_generator(random_state: Any) -> np.random.Generator:
    """Make a generator from a `random_state` of scikit-learn or an integer; return one unchanged."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if random_state is None or isinstance(random_state, (int, np.integer)):
        # a separate stream: otherwise the random start of a fit with the same seed would be the true dictionary
        return np.random.default_rng(np.random.SeedSequence(random_state, spawn_key=(0,)))
    return np.random.default_rng(check_random_state(random_state).randint(2**31, size=4))


def _draw_orthonormal(n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw an orthogonal matrix (n, n) of uniform (Haar) distribution."""
    U, _, Vt = np.linalg.svd(rng.standard_normal((n, n)), full_matrices=False)
    return np.asarray(U @ Vt)
