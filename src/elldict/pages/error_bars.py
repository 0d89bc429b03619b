"""Middle of the demo: how far noise lets any method come, and whether a fit knows how far off it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict.datasets import make_bernoulli_gaussian
from elldict.estimator import LpDictionaryLearning
from elldict.pages.recovery import positive_error
from elldict.theory import cramer_rao_bound


@dataclass(frozen=True)
class NoisySetting:
    """Atoms hidden in samples with noise, at several levels of it."""

    n_features: int
    n_samples: int
    density: float
    noise_stds: tuple[float, ...]  # those of the paper's Table 2, and none: not chosen for what they show
    n_draws: int
    seed: int


@dataclass(frozen=True)
class Claim:
    """What fits say of their own error, and what the error is; means over draws."""

    error: float
    error_bar: float  # computed without the truth


@dataclass(frozen=True)
class Trial:
    """The l_p answer and the refined one on the same noisy samples."""

    noise_std: float
    plain: Claim
    refined: Claim
    limit: float  # the Cramer-Rao bound; 0 without noise


def try_noise(setting: NoisySetting, number: int) -> Trial:
    """Fit samples with the noise of that number both ways, and compare with the truth and with the limit."""
    noise_std = setting.noise_stds[number]
    law: Any = {"n_features": setting.n_features, "n_samples": setting.n_samples, "density": setting.density}
    # the limit holds in the mean, so one draw could lie beyond it; draws differ between levels, so that luck does too
    first = setting.seed + number * setting.n_draws
    draws = [_fit_both(law, noise_std, seed) for seed in range(first, first + setting.n_draws)]
    plain, refined = (_mean(claims) for claims in zip(*draws, strict=True))
    return Trial(noise_std, plain, refined, cramer_rao_bound(**law, noise_std=noise_std))


def _fit_both(law: Any, noise_std: float, seed: int) -> tuple[Claim, Claim]:
    """The l_p answer and the refined one, on one draw."""
    X, dictionary, _ = make_bernoulli_gaussian(**law, noise_std=noise_std, dtype=np.float32, random_state=seed)
    plain, refined = (LpDictionaryLearning(p=3, refine=refine, random_state=seed).fit(X) for refine in (None, "auto"))
    return _claim(plain, dictionary), _claim(refined, dictionary)


def _claim(model: LpDictionaryLearning, dictionary: NDArray[np.float32]) -> Claim:
    return Claim(positive_error(model.components_, dictionary), model.expected_error_)


def _mean(claims: Sequence[Claim]) -> Claim:
    return Claim(mean(claim.error for claim in claims), mean(claim.error_bar for claim in claims))
