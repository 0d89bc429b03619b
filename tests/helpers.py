"""What tests compare with."""

import numpy as np

from elldict.data.dataset import MemorySamples
from elldict.data.statistics import Frame, survey
from elldict.metrics import match_atoms
from elldict.solver.directions import polar, power_step
from elldict.solver.loop import Journal, Stage, solve
from elldict.solver.objective import Lp, Needs, measure


def assert_same_atoms(A, B, tolerance=1e-10):
    """Equal up to a signed permutation."""
    match = match_atoms(A, B)
    assert sorted(match.indices) == list(range(len(A)))
    np.testing.assert_allclose(A, match.signs[:, None] * np.asarray(B)[match.indices], atol=tolerance)


def prepared(X, *, center=False, whiten=False, tile_rows=0):
    """Samples and their frame."""
    samples = MemorySamples(X, tile_rows)
    return samples, Frame.of(survey(samples, center=center, precise=whiten), center=center, whiten=whiten)


def sums_at(X, A, p=3.0, need=Needs.GRADIENT, precision="float64", **how):
    samples, frame = prepared(X, **how)
    return measure(samples, frame, Lp(p), A, need, precision)


def one_step(X, A, p=3.0, **how):
    """A after one iteration of the power method."""
    return power_step(sums_at(X, A, p, **how), A)


def run_from(X, start, p=3.0, step=power_step, tol=1e-8, max_iter=500, callback=None):
    """Solution and history from a given start."""
    samples, frame = prepared(X)
    stage = Stage(Lp(p), step, samples.dtype, tol, max_iter)
    return solve(samples, frame, [stage], [start], Journal(callback))


def plain_power_step(X, A, p):
    """Algorithm 2 of the paper, written down once more without tiles, scales or frames."""
    Z = X @ A.T
    return polar((np.sign(Z) * np.abs(Z) ** (p - 1)).T @ X)
