"""The settings that `limit.py` looks at, what is asked of each, and whether it was held."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elldict.theory import cramer_rao_bound, expected_error
from experiments.benchmarks.limit.fits import OTHER_CODES, Result, Setting

SMALL, LARGE = (32, 10_000), (100, 40_000)
SIGMAS = (0.2, 0.4, 0.6)
SIZES_OF_CORRUPTION = (0.5, 1.0, 1.5)


@dataclass(frozen=True)
class Row:
    """A row of the table: what to draw, and how often."""

    setting: Setting
    seeds: int

    @property
    def law(self) -> dict[str, Any]:
        """Arguments of the theory."""
        setting = self.setting
        return {
            "n_features": setting.n_features,
            "n_samples": setting.n_samples,
            "density": setting.density,
            "noise_std": setting.noise_std,
        }

    @property
    def theory(self) -> float:
        """Error that l_3 should leave; NaN where the formula does not apply."""
        return math.nan if self.setting.corruption else expected_error(3, **self.law)

    @property
    def limit(self) -> float:
        """The Cramer-Rao bound; NaN where it does not apply."""
        return math.nan if self.setting.corruption else cramer_rao_bound(**self.law)


# --- which ------------------------------------------------------------------------------------------------------------


def noiseless_rows(sizes: Sequence[tuple[int, int]]) -> list[Row]:
    """No noise: recovery should be exact, to the rounding of each precision."""
    n, r = sizes[-1]
    return [Row(Setting(n, r, theta, dtype=dtype), 10) for theta in (0.1, 0.3, 0.5) for dtype in ("float64", "float32")]


def noisy_rows(sizes: Sequence[tuple[int, int]]) -> list[Row]:
    """The six noisy rows of the paper's Table 2, and the same with sparser codes, which scatter more."""
    return [
        Row(Setting(n, r, theta, noise_std=sigma), seeds)
        for theta, seeds in ((0.3, 10), (0.1, 30))
        for n, r in sizes
        for sigma in SIGMAS
    ]


def corrupted_rows(sizes: Sequence[tuple[int, int]]) -> list[Row]:
    """The six rows of the paper's Table 3, and two with Gaussian noise on top."""
    sparse = [Row(Setting(n, r, corruption=size), 5) for n, r in sizes for size in SIZES_OF_CORRUPTION]
    both = [Row(Setting(*SMALL, noise_std=sigma, corruption=size), 5) for size, sigma in ((1.0, 0.1), (1.5, 0.2))]
    return sparse + both


FEW = [
    (Setting(30, 180, dtype="float64"), 0.85),
    (Setting(30, 240, dtype="float64"), 0.95),
    (Setting(60, 360, dtype="float64"), 0.95),
    (Setting(100, 600, dtype="float64"), 0.95),
]
"""Few samples, and the share of exact recoveries that is asked for."""

BASINS = Setting(30, 180, dtype="float64")


def misspecified_settings() -> Iterator[tuple[str, Setting]]:
    """Kinds of data that the refinement's law does not describe, each at three sizes and three noises."""
    for n in (16, 32, 64):
        for noise in (0.0, 0.1, 0.3):
            for codes in OTHER_CODES:
                yield codes, Setting(n, 8000, noise_std=noise, dtype="float64", codes=codes)
            for rate in (0.02, 0.1, 0.3):
                sigma = noise * math.sqrt(0.3)  # times the root mean square of the codes, as above
                law = Setting(n, 8000, noise_std=sigma, corruption=1.0, corruption_rate=rate, dtype="float64")
                yield f"corruption of rate {rate:g}", law


# --- how well ---------------------------------------------------------------------------------------------------------


def held(row: Row, found: dict[str, list[Result]]) -> bool:
    """Whether the refined answer does what is asked of it in this row."""
    if row.setting.corruption:
        return _corrupted_held(row, found)
    return _noisy_held(row, found["refined"]) if row.setting.noise_std else _noiseless_held(row, found["refined"])


def _noiseless_held(row: Row, refined: list[Result]) -> bool:
    most = 1e-12 if row.setting.dtype == "float64" else 2e-6
    return all(result.error <= most and (result.bar or 0.0) <= 1e-10 for result in refined)


def _noisy_held(row: Row, refined: list[Result]) -> bool:
    error, bar = mean_of("error", refined), mean_of("bar", refined)
    most = 1.08 if row.setting.density == 0.1 else 1.05
    laws = (
        departures("density", refined, row.setting.density),
        departures("noise_std", refined, row.setting.noise_std),
    )
    known = all(abs(mean) <= 0.05 and worst <= 0.1 for mean, worst in laws)
    return error <= most * row.limit and abs(bar / error - 1) <= 0.1 and known


def _corrupted_held(row: Row, found: dict[str, list[Result]]) -> bool:
    if row.setting.noise_std:
        return mean_of("error", found["refined"]) <= mean_of("error", found["l3"]) / 5
    return all(result.error <= 1e-6 for result in found["refined"])


def mean_of(name: str, results: list[Result]) -> float:
    """Mean of a number over seeds."""
    return float(np.mean([getattr(result, name) for result in results]))


def departures(name: str, results: list[Result], truth: float) -> tuple[float, float]:
    """Relative departure of a fitted parameter from its true value: the mean, and the largest of any seed."""
    if truth == 0:
        return math.nan, math.nan
    off = np.array([getattr(result, name) for result in results]) / truth - 1
    return float(np.mean(off)), float(np.max(np.abs(off)))
