"""How close fits come to the statistical limit: l_3, FastICA and the refined answer beside the Cramer-Rao bound.

python benchmarks/limit.py            # n = 32, a few minutes on 2 cores
python benchmarks/limit.py --full     # with n = 100
python benchmarks/limit.py --few      # few samples without noise: how often recovery is exact
"""

from __future__ import annotations

import argparse
import os
import platform
import time
import warnings
from dataclasses import dataclass

import numpy as np
import sklearn
from numpy.typing import NDArray
from sklearn.decomposition import FastICA

from elldict import LpDictionaryLearning, __version__
from elldict.datasets import make_bernoulli_gaussian
from elldict.metrics import recovery_error
from elldict.solver.polar import polar
from elldict.theory import cramer_rao_bound, expected_error

METHODS = ("l3", "FastICA", "refined")


@dataclass(frozen=True)
class Setting:
    """What a data set is drawn from."""

    n_features: int
    n_samples: int
    density: float
    noise_std: float
    corruption: float = 0.0


def settings(full: bool) -> list[Setting]:
    sizes = [(32, 10_000)] + ([(100, 40_000)] if full else [])
    noisy = [Setting(n, r, theta, s) for n, r in sizes for theta in (0.1, 0.3) for s in (0.0, 0.2, 0.4, 0.6)]
    return noisy + [Setting(n, r, 0.3, 0.0, c) for n, r in sizes for c in (0.5, 1.0, 1.5)]


def fast_ica(X: NDArray[np.float32], seed: int) -> NDArray[np.float64]:
    """FastICA as its users run it, its unmixing brought to the nearest orthonormal one."""
    model = FastICA(whiten="unit-variance", fun="logcosh", max_iter=500, random_state=seed).fit(X)
    return np.asarray(polar(model.components_.astype(np.float64)))


def run(setting: Setting, seeds: int) -> dict[str, NDArray[np.float64]]:
    """Columns (seeds,): the error and seconds of each method, the refined error bar, and whether it was refined."""
    rows = []
    for seed in range(seeds):
        X, dictionary, _ = make_bernoulli_gaussian(
            setting.n_samples,
            setting.n_features,
            density=setting.density,
            noise_std=setting.noise_std,
            corruption=setting.corruption,
            dtype=np.float32,
            random_state=seed,
        )
        row: dict[str, float] = {}
        for name in METHODS:
            began = time.perf_counter()
            if name == "FastICA":
                atoms = fast_ica(X, seed)
            else:
                refine = "auto" if name == "refined" else None
                model = LpDictionaryLearning(refine=refine, random_state=seed).fit(X)
                atoms = model.components_
            row[f"{name} seconds"] = time.perf_counter() - began
            row[name] = max(recovery_error(atoms, dictionary), 0.0)
        row["bar"] = model.expected_error_
        row["accepted"] = float(model.refined_ is not None)
        rows.append(row)
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def few_samples(seeds: int) -> None:
    """Share of exact recoveries, and of answers that say they are exact and are not."""
    print(f"{'n':>4} {'r':>6} | {'l3 exact':>9} {'annealed + refined':>19} {'wrong, claimed exact':>21} {'seconds':>8}")
    for n, r in ((30, 180), (30, 240), (60, 360), (100, 600)):
        plain = exact = wrong = 0
        began = time.perf_counter()
        for seed in range(seeds):
            X, dictionary, _ = make_bernoulli_gaussian(r, n, density=0.3, random_state=seed)
            atoms = LpDictionaryLearning(random_state=seed).fit(X).components_
            plain += recovery_error(atoms, dictionary) < 1e-6
            model = LpDictionaryLearning(p=(3, 2.5, 2.2), refine="auto", random_state=seed).fit(X)
            found = recovery_error(model.components_, dictionary) < 1e-6
            exact += found
            wrong += not found and "exactly sparse" in model.status_
        seconds = (time.perf_counter() - began) / seeds
        print(f"{n:>4} {r:>6} | {plain:>5}/{seeds} {exact:>16}/{seeds} {wrong:>18}/{seeds} {seconds:>8.1f}", flush=True)


def noise_table(full: bool, seeds: int) -> None:
    """One row a setting."""
    print(
        f"{'n':>4} {'r':>6} {'theta':>5} {'sigma':>5} {'corr':>4} | {'l3':>8} {'theory':>8} {'FastICA':>8} "
        f"{'refined':>8} {'bar':>8} {'limit':>8} | {'refined/limit':>13} {'accepted':>8} | seconds l3, FastICA, refined"
    )
    for setting in settings(full):
        found = run(setting, seeds)
        mean = {name: float(np.mean(column)) for name, column in found.items()}
        law = {
            "n_features": setting.n_features,
            "n_samples": setting.n_samples,
            "density": setting.density,
            "noise_std": setting.noise_std,
        }
        clean = setting.corruption == 0
        limit = cramer_rao_bound(**law) if clean else float("nan")
        theory = expected_error(3, **law) if clean else float("nan")
        columns = (mean["l3"], theory, mean["FastICA"], mean["refined"], mean["bar"], limit)
        ratio = f"{mean['refined'] / limit:.3f}" if limit else "exact" if mean["refined"] < 2e-6 else "-"
        times = ", ".join(f"{mean[f'{name} seconds']:.2f}" for name in METHODS)
        print(
            f"{setting.n_features:>4} {setting.n_samples:>6} {setting.density:>5} {setting.noise_std:>5} "
            f"{setting.corruption:>4} | "
            + " ".join(f"{100 * value:>8.4f}" for value in columns)
            + f" | {ratio:>13} {int(np.sum(found['accepted'])):>5}/{seeds} | {times}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--few", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        f"elldict {__version__}, numpy {np.__version__}, scikit-learn {sklearn.__version__}, "
        f"{platform.machine()}, {os.cpu_count()} cores, {'float64' if arguments.few else 'float32'}, "
        f"{arguments.seeds} seeds; errors in per cent"
    )
    if arguments.few:
        few_samples(arguments.seeds)
    else:
        noise_table(arguments.full, arguments.seeds)


if __name__ == "__main__":
    main()
