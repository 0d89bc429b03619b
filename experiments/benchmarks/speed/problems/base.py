"""What a problem is: a law to draw samples from, and what is asked of elldict on it."""

from __future__ import annotations

from dataclasses import dataclass

from elldict.datasets import make_bernoulli_gaussian
from elldict.theory import cramer_rao_bound
from experiments.harness.watch import Matrix

EXACT = 1e-6
"""Errors below this are rounding in float32."""

NEAR_THE_LIMIT = 1.05


@dataclass(frozen=True)
class Problem:
    """Bernoulli-Gaussian codes, an orthogonal dictionary, Gaussian noise; float32."""

    family: str
    n_features: int
    n_samples: int
    density: float = 0.3
    noise_std: float = 0.0
    asked_ratio: float = 1.0  # how much sooner than the fastest peer at the best peer's error
    asked_passes: float | None = None
    seeds: int = 1
    repeats: int = 1
    with_slow: bool = False  # whether K-SVD and its like have a chance to end

    @property
    def name(self) -> str:
        """All that tells it from the others."""
        return (
            f"{self.family}, n={self.n_features}, r={self.n_samples}, theta={self.density:g}, sigma={self.noise_std:g}"
        )

    @property
    def work(self) -> float:
        """Multiplications of one iteration, but for a factor."""
        return float(self.n_features) ** 2 * self.n_samples

    @property
    def with_one_thread(self) -> bool:
        """Whether peers get a second try on one thread: where products are large, two are better without doubt."""
        return self.work < 1e9

    def make(self, seed: int) -> tuple[Matrix, Matrix]:
        """Samples (r, n) and the atoms (n, n) in them."""
        X, dictionary, _ = make_bernoulli_gaussian(
            self.n_samples,
            self.n_features,
            density=self.density,
            noise_std=self.noise_std,
            dtype="float32",
            random_state=seed,
        )
        return X, dictionary

    @property
    def limit(self) -> float:
        """The Cramer-Rao bound; 0 without noise."""
        return cramer_rao_bound(
            n_features=self.n_features, n_samples=self.n_samples, density=self.density, noise_std=self.noise_std
        )

    @property
    def at_the_limit(self) -> float:
        """Largest error that counts as the limit."""
        return NEAR_THE_LIMIT * self.limit if self.noise_std else EXACT
