"""Stated errors on real data, where nobody knows the true atoms, beside how far fits differ from each other.

python -m experiments.benchmarks.error_bars                # sets that packages bring, a few minutes
python -m experiments.benchmarks.error_bars --data DIR     # every .npy and .npz file (array X) of a folder
python -m experiments.benchmarks.error_bars --data DIR --blocks eeg fmri   # recordings: halves of blocks of samples

*seeds*: difference of the atoms of two seeds; if both end at maxima of their own, each is off by half of it. *halves*:
difference of fits to two halves of the samples; a half has twice the variance of all, so that a quarter of it is about
the error of the fit to all. *ratio*: stated error over the larger of the two; between 0.5 and 2 is the aim. It is not
defined where both are rounding. The halves are not those of the fit itself: samples are drawn at random, or in blocks
of other lengths.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from elldict import LpDictionaryLearning
from elldict.metrics import recovery_error
from experiments.benchmarks.real.sets import RealSet, divide, list_folder, list_packaged

N_BLOCKS = 50
"""Blocks of consecutive samples, every other of which is in one half; a fit has 40 blocks of its own."""

ROUNDING = 1e-6
"""Difference of fits below which there is none."""

Matrix = NDArray[np.float64]


def fit(X: Matrix, seed: int, halves: bool | str = "auto") -> LpDictionaryLearning:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LpDictionaryLearning(random_state=seed, halves=halves)
        model.fit(X)
        return model


def choose_half(n_samples: int, *, blocks: bool) -> NDArray[np.bool_]:
    """Which samples are in the first half."""
    number = np.arange(n_samples)
    return np.asarray(
        (number * N_BLOCKS // n_samples if blocks else np.random.default_rng(5).permutation(number)) % 2 == 0
    )


def compare(real: RealSet) -> list[str]:
    """One line of the table."""
    X = divide(real.load(), real.n_directions, blocks=real.blocks).train
    model, other = fit(X, 0), fit(X, 1, halves=False)
    first = choose_half(len(X), blocks=real.blocks)
    one, two = (fit(X[which], seed, halves=False) for seed, which in ((7, first), (8, ~first)))
    seeds = recovery_error(model.components_, other.components_)
    halves = recovery_error(one.components_, two.components_)
    least = max(seeds / 2, halves / 4)
    ratio = f"{model.expected_error_ / least:.2f}" if least > ROUNDING else "-"
    sizes = f"{real.name} ({X.shape[0]} x {X.shape[1]})"
    return [sizes, f"{model.expected_error_:.3g}", f"{max(seeds, 0.0):.2g}", f"{max(halves, 0.0):.2g}", ratio]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, metavar="DIR", help="files of this folder instead of what packages bring")
    parser.add_argument("--blocks", nargs="+", default=[], metavar="PART", help="parts of names of recordings in DIR")
    parser.add_argument("--sets", nargs="+", default=[""], metavar="PART", help="parts of names of sets to be run")
    options = parser.parse_args()
    sets = list_packaged() if options.data is None else list_folder(options.data, options.blocks)
    print("| samples | stated | seeds | halves | ratio |\n| --- | --- | --- | --- | --- |")
    with threadpool_limits(1):
        for real in sets:
            if any(part in real.name for part in options.sets):
                print("| " + " | ".join(compare(real)) + " |", flush=True)


if __name__ == "__main__":
    main()
