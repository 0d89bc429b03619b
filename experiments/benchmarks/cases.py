"""Data for which the present core has special cases, fitted with it and with the new core, which has none.

python -m experiments.benchmarks.cases             # 3 seeds, about five minutes; stored in results/cases.json
python -m experiments.benchmarks.cases --stored    # the table of the last run

Errors are 1 - cos^4, averaged over matched columns of the mixing matrix and over seeds.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from threadpoolctl import threadpool_limits

from elldict import dictionary_learning
from elldict._old import dictionary_learning as present
from elldict.datasets import make_bernoulli_gaussian
from experiments import BENCHMARK_RESULTS
from experiments.benchmarks.real.sets import Matrix

RESULTS = BENCHMARK_RESULTS / "cases.json"
EXACT = 1e-12

Case = Callable[[int], tuple[Matrix, Matrix]]
"""Returns samples and the true mixing matrix for a seed."""


def sparse(r: int, n: int, **options: Any) -> Case:
    """Make a case with Bernoulli-Gaussian codes."""

    def draw(seed: int) -> tuple[Matrix, Matrix]:
        X, dictionary, _ = make_bernoulli_gaussian(r, n, random_state=seed, **{"density": 0.3, **options})
        return X, dictionary.T

    return draw


def independent(r: int, n: int, name: str) -> Case:
    """Make a case with codes of another distribution."""

    def draw(seed: int) -> tuple[Matrix, Matrix]:
        rng = np.random.default_rng(seed)
        draw_codes: dict[str, Callable[[], Matrix]] = {
            "laplace": lambda: rng.laplace(size=(r, n)),
            "uniform": lambda: rng.uniform(-1, 1, (r, n)),
            "signs": lambda: rng.choice([-1.0, 1.0], (r, n)),
            "loud": lambda: rng.laplace(size=(r, n)) * np.exp(rng.standard_normal((r, 1))),
        }
        codes = draw_codes[name]()
        dictionary = np.linalg.qr(rng.standard_normal((n, n)))[0]
        return codes / np.std(codes, axis=0) @ dictionary, dictionary.T

    return draw


def change(case: Case, function: Callable[[Matrix], Matrix]) -> Case:
    """Apply a function to the samples of a case."""

    def draw(seed: int) -> tuple[Matrix, Matrix]:
        X, columns = case(seed)
        return function(X), columns

    return draw


def add_outliers(X: Matrix) -> Matrix:
    """Multiply three samples by 100."""
    return np.asarray(X * np.where(np.arange(len(X)) < 3, 100, 1)[:, None])


CASES: dict[str, tuple[str, dict[str, Any], Case]] = {
    "minibatches, growing subsamples": ("n = 100, r = 40000, noise 0.4", {}, sparse(40_000, 100, noise_std=0.4)),
    "spike-and-slab law": ("n = 32, r = 10000, noise 0.2", {}, sparse(10_000, 32, noise_std=0.2)),
    "exact zeros": ("n = 20, r = 4000, no noise", {}, sparse(4000, 20)),
    "rare codes": ("n = 20, r = 8000, density 0.02, noiseless", {}, sparse(8000, 20, density=0.02)),
    "ladder of exponents for few samples": ("n = 30, r = 180, no noise", {}, sparse(180, 30)),
    "mixed atoms separated": ("n = 30, r = 150, no noise", {}, sparse(150, 30)),
    "mixture law": ("Laplace, n = 24, r = 2000", {}, independent(2000, 24, "laplace")),
    "signs": ("uniform, n = 24, r = 2000", {}, independent(2000, 24, "uniform")),
    "binary codes": ("codes of -1 and 1, n = 24, r = 2000", {}, independent(2000, 24, "signs")),
    "loudness": ("Laplace of varying scale, n = 24, r = 2000", {}, independent(2000, 24, "loud")),
    "corruption, cleaned": ("corruption of size 1, n = 32, r = 10000", {}, sparse(10_000, 32, corruption=1.0)),
    "corruption with noise": ("the same, noise 0.2", {}, sparse(10_000, 32, corruption=1.0, noise_std=0.2)),
    "competing bases": ("corruption of size 3, n = 16, r = 4000", {}, sparse(4000, 16, corruption=3.0)),
    "rounded samples": ("rounded to integers, n = 20, r = 8000", {}, change(sparse(8000, 20), np.round)),
    "outliers": ("3 samples times 100, n = 16, r = 4000", {}, change(sparse(4000, 16, noise_std=0.1), add_outliers)),
    "copies": ("each sample twice, r = 4000", {}, change(sparse(4000, 16, noise_std=0.2), lambda X: np.r_[X, X])),
    "noise before whitening": (
        "condition number 10, noise 0.1, n = 16, r = 20000",
        {"whiten": True, "center": True},
        sparse(20_000, 16, noise_std=0.1, orthogonal=False, condition_number=10.0),
    ),
}
"""Special cases of the present core: the data each was made for, and the parameters of both estimators."""


def measure_error(columns: Matrix, truth: Matrix) -> float:
    """Measure the mean of 1 - cos^4 over matched columns."""
    cosines = np.abs((columns / np.linalg.norm(columns, axis=0)).T @ (truth / np.linalg.norm(truth, axis=0)))
    return float(1 - np.mean(cosines[linear_sum_assignment(-(cosines**4))] ** 4))


def measure(case: Case, options: dict[str, Any], seeds: int) -> dict[str, float]:
    """Measure the mean errors of both cores."""
    found: dict[str, float] = {}
    kinds: dict[str, tuple[Any, str]] = {
        "present": (present.LpDictionaryLearning, "halves"),
        "new": (dictionary_learning.LpDictionaryLearning, "error_bars"),
    }
    for name, (kind, error_bars) in kinds.items():
        errors = []
        for seed in range(seeds):
            X, truth = case(seed)
            model = kind(random_state=0, **{error_bars: False}, **options).fit(X)
            errors.append(measure_error(model.mixing_, truth))
        found[name] = float(np.mean(errors))
    return found


def tell(error: float) -> str:
    """Format an error."""
    return "exact" if error < EXACT else f"{error:.2g}"


def list_lines(results: dict[str, dict[str, float]]) -> Iterator[str]:
    """Write the table in Markdown."""
    yield "| special case in the present core | data | error, present core | error, new core |"
    yield "| --- | --- | --- | --- |"
    for name, (data, _, _) in CASES.items():
        yield f"| {name} | {data} | {tell(results[name]['present'])} | {tell(results[name]['new'])} |"


def main() -> None:
    """Measure, store and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--stored", action="store_true")
    arguments = parser.parse_args()
    if not arguments.stored:
        warnings.simplefilter("ignore")
        results = {}
        with threadpool_limits(1):
            for name, (_, options, case) in CASES.items():
                results[name] = measure(case, options, arguments.seeds)
                print(name, results[name], flush=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print("\n".join(list_lines(json.loads(RESULTS.read_text(encoding="utf-8")))))


if __name__ == "__main__":
    main()
