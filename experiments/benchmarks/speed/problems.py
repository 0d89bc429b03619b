"""Problems: laws to draw samples from, and what is asked of elldict on each."""

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


# --- families ---------------------------------------------------------------------------------------------------------

SMALL = tuple(  # overhead shows: elldict must not be slower than FastICA
    # K-SVD took 10 s for 20 of its 100 iterations at n = 32; larger ones are for `--slow-everywhere`
    Problem("small", n, r, noise_std=sigma, seeds=5, repeats=2, with_slow=n <= 32)
    for n, r in ((8, 500), (16, 1000), (32, 2000), (64, 5000))
    for sigma in (0.0, 0.2)
)
TABLE_1 = tuple(  # of the paper: no noise, r = 400 n
    Problem("Table 1", n, 400 * n, theta, asked_ratio=3, asked_passes=6, seeds=seeds)
    for n, seeds in ((100, 4), (200, 2), (400, 1))
    for theta in (0.1, 0.3)
)
PASSES = {0.0: 6, 0.2: 10, 0.4: 10, 0.6: 15}


def _ratio(n: int, sigma: float) -> float:
    """Strong noise leaves less to gain."""
    if n == 32:
        return 5
    return 3 if sigma <= 0.4 else 2


TABLE_2 = tuple(  # of the paper: Gaussian noise
    Problem("Table 2", n, r, noise_std=sigma, asked_ratio=_ratio(n, sigma), asked_passes=passes, seeds=seeds)
    for n, r, seeds in ((32, 10_000, 16), (100, 40_000, 4))
    for sigma, passes in PASSES.items()
)
LARGE = (Problem("large", 100, 1_000_000, noise_std=0.2, asked_ratio=5, asked_passes=4),)  # far more than it needs
QUICK_BELOW = 100


def problems(*, quick: bool = False) -> list[Problem]:
    """All problems, or those that take seconds; the longest last, so that a run cut short has the others."""
    listed = [*SMALL, *TABLE_2, *TABLE_1, *LARGE]
    listed = [problem for problem in listed if not quick or problem.n_features < QUICK_BELOW]
    return sorted(listed, key=lambda problem: problem.work)
