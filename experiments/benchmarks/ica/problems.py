"""What is to be separated: sources of given laws, mixed; and scikit-learn's example of blind source separation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import signal

from elldict._old.solver.directions import random_orthonormal

Matrix = NDArray[np.float64]

LAWS: dict[str, Callable[[int, np.random.Generator], Matrix]] = {
    "uniform": lambda r, rng: math.sqrt(3) * rng.uniform(-1, 1, r),
    "binary": lambda r, rng: rng.choice([-1.0, 1.0], r),
    "Laplace": lambda r, rng: rng.laplace(size=r) / math.sqrt(2),
    "Bernoulli-Gaussian": lambda r, rng: rng.standard_normal(r) * (rng.random(r) < 0.3) / math.sqrt(0.3),
    "Gaussian": lambda r, rng: rng.standard_normal(r),
}
"""Sources of unit variance, r values of each."""


@dataclass(frozen=True)
class Drawn:
    """Samples (r, n), and what they are made of."""

    X: Matrix
    atoms: Matrix  # (m, n) as rows
    sources: Matrix  # (r, m)
    sought: NDArray[np.bool_]  # (m,) sources that can be found: not two or more Gaussian ones


@dataclass(frozen=True)
class Problem:
    """Independent sources. In more features than sources, atoms are random and noise is white."""

    laws: tuple[str, ...]
    n_samples: int = 8000
    n_features: int | None = None  # None: as many as sources, and atoms are orthonormal
    noise_std: float = 0.0

    @property
    def name(self) -> str:
        """Laws, and all that is not the same everywhere."""
        parts = [f"{self.laws.count(law)} {law}" for law in LAWS if law in self.laws]
        features = "" if self.n_features is None else f" in {self.n_features} features, noise {self.noise_std}"
        return " + ".join(parts) + features

    @property
    def orthonormal(self) -> bool:
        """Whether atoms are."""
        return self.n_features is None

    @property
    def n_components(self) -> int | None:
        """To ask for; None is as many as features."""
        return None if self.orthonormal else len(self.laws)

    def draw(self, seed: int) -> Drawn:
        """Samples of a seed."""
        rng, m = np.random.default_rng(seed), len(self.laws)
        sources = np.column_stack([LAWS[law](self.n_samples, rng) for law in self.laws])
        gaussian = np.array([law == "Gaussian" for law in self.laws])
        sought = ~gaussian if np.sum(gaussian) > 1 else np.ones(m, dtype=bool)
        if self.n_features is None:
            atoms = random_orthonormal(m, m, rng)
            return Drawn(sources @ atoms, atoms, sources, sought)
        atoms = rng.standard_normal((m, self.n_features))
        atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
        noise = self.noise_std * rng.standard_normal((self.n_samples, self.n_features))
        return Drawn(sources @ atoms + noise, atoms, sources, sought)


@dataclass(frozen=True)
class BlindSources:
    """plot_ica_blind_source_separation of scikit-learn: seed 0 is the example itself, others draw other noise."""

    name: str = "sine, square, sawtooth (scikit-learn's example)"
    n_samples: int = 2000
    orthonormal: bool = False
    n_components: int | None = 3

    def draw(self, seed: int) -> Drawn:
        """Samples of a seed."""
        rng, time = np.random.RandomState(seed), np.linspace(0, 8, self.n_samples)  # the example's generator
        S = np.c_[np.sin(2 * time), np.sign(np.sin(3 * time)), signal.sawtooth(2 * np.pi * time)]
        S += 0.2 * rng.normal(size=S.shape)
        S /= S.std(axis=0)
        A: Any = np.array([[1, 1, 1], [0.5, 2, 1.0], [1.5, 1.0, 2.0]])
        return Drawn(S @ A.T, A.T, S, np.ones(3, dtype=bool))


OTHERS = ("uniform",) * 4 + ("binary",) * 2 + ("Laplace",) * 4 + ("Bernoulli-Gaussian",) * 2
PROBLEMS: tuple[Problem | BlindSources, ...] = (
    Problem(OTHERS),
    *(Problem(("Laplace",) * 12, n_features=60, noise_std=noise) for noise in (0.1, 0.2, 0.3)),
    BlindSources(),
    *(Problem(OTHERS + ("Gaussian",) * number) for number in (1, 2, 3)),
)
