"""Standard errors of rotated loadings over rows beside a bootstrap of rows.

python -m experiments.benchmarks.rotation_errors FILE            # singular vectors of X in a .npz or .npy file
python -m experiments.benchmarks.rotation_errors FILE --columns 6 12 20 --draws 200

For each number of factors: the median over loadings of stated error / standard deviation over draws; the same with half
the distance between the quantiles .16 and .84 in place of the standard deviation, which draws that end at another
maximum do not enlarge; and with draws of four times as many rows, whose errors are half as large: what is of second
order, the curvature changing within the errors, is half as large there beside the first.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from elldict.exceptions import NotIdentifiableWarning
from elldict.rotation.result import Rotation
from elldict.rotation.rotator import rotate
from experiments.benchmarks.real.sets import read_array

N_ROWS, N_LOOKED_AT = 20_000, 2_000
Matrix = NDArray[np.float64]


def match_columns(turn: Matrix) -> Matrix:
    """A rotation (k, k) near a signed permutation, with columns and signs brought back to those of the identity."""
    _, order = linear_sum_assignment(-np.abs(turn))
    return np.asarray(turn[:, order] * np.sign(np.diag(turn[:, order])))


def draw(L: Matrix, found: Rotation, n_draws: int, times: int) -> Matrix:
    """Rotated loadings (n_draws, rows, k) of bootstrap samples with `times` as many rows; each begins at the answer."""
    rng, draws = np.random.default_rng(9), []
    rotated = L @ found.rotation
    for _ in range(n_draws):
        again = rotated[rng.integers(len(L), size=times * len(L))]
        turn = rotate(again, n_init=1, standard_errors=False, tol=1e-5, random_state=1).rotation
        draws.append(rotated[:N_LOOKED_AT] @ match_columns(turn))
    return np.array(draws)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a .npy file, or a .npz file with an array X, one sample a row")
    parser.add_argument("--columns", type=int, nargs="+", default=(6, 12, 20), help="numbers of factors")
    parser.add_argument("--draws", type=int, default=200)
    options = parser.parse_args()
    warnings.simplefilter("ignore", NotIdentifiableWarning)
    X = read_array(options.data)[:N_ROWS]
    U = np.linalg.svd(X - np.mean(X, axis=0), full_matrices=False)[0]
    print("| factors | beside standard deviation | beside quantiles | four times the rows |\n" + "| --- " * 4 + "|")
    for k in options.columns:
        L = np.ascontiguousarray(U[:, :k], dtype=np.float64)
        found = rotate(L, random_state=0, tol=1e-5)
        stated = np.asarray(found.standard_errors)[:N_LOOKED_AT]
        draws = draw(L, found, options.draws, 1)
        low, high = np.quantile(draws, (0.16, 0.84), axis=0)
        more = np.std(draw(L, found, options.draws // 2, 4), axis=0)
        ratios = (stated / np.std(draws, axis=0), 2 * stated / (high - low), stated / 2 / more)
        print(f"| {k} | " + " | ".join(f"{np.median(ratio):.2f}" for ratio in ratios) + " |", flush=True)


if __name__ == "__main__":
    main()
