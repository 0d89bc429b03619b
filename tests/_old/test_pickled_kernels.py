"""Kernels are sent to workers: pickled after use, they compute the same."""

import pickle
from functools import partial

import numpy as np
import pytest

from elldict._old.data.statistics import StatisticsKernel
from elldict._old.solver.amp import CorruptionLaw, compute_schedule
from elldict._old.solver.corruption import SparseCorruption
from elldict._old.solver.directions import random_orthonormal
from elldict._old.solver.evaluate import EvaluationKernel
from elldict._old.solver.objective import Lp, Quantities, WithSecondary
from elldict._old.solver.spike_slab import SpikeSlab, SpikeSlabLikelihood
from elldict._old.transform import CodeKernel, likelihood_coder, soften
from tests._old.helpers import prepared


def kernels(X, A):
    m = len(A)
    model = SpikeSlab(np.full(m, 0.2), np.ones(m), 0.01)
    law = CorruptionLaw.guess(m, 1e-18)
    quantities = Quantities.GRADIENT | Quantities.MOMENTS
    likelihood = SpikeSlabLikelihood(model)
    yield StatisticsKernel("float64")
    for objective in (
        Lp(3.0),
        likelihood,
        WithSecondary(likelihood, Lp(3.0)),
        SparseCorruption(model, corruption=law, rounds=compute_schedule(X[:256], A, law).rounds, source=None),
    ):
        yield EvaluationKernel(objective, A, None, 1.0, quantities, "float64")
    yield CodeKernel(A, np.zeros(m), partial(soften, alpha=0.1), "float64", "float64")
    rows, rule = likelihood_coder(A, np.empty((0, m)), (np.full(m, 0.2), np.ones(m), 0.1), None, 1.0)
    yield CodeKernel(rows, np.zeros(m), rule, "float64", "float64")


@pytest.mark.parametrize("number", range(7))
def test_pickled_after_use_a_kernel_does_the_same(easy, number):
    X = easy[0][:500]
    A = random_orthonormal(12, 12, np.random.default_rng(0))
    kernel = list(kernels(X, A))[number]
    backend = prepared(X)[0].backend
    expected = kernel.bind(backend)(X)  # what a kernel caches of a backend is not pickled
    found = pickle.loads(pickle.dumps(kernel)).bind(backend)(X)
    if isinstance(expected, np.ndarray):
        np.testing.assert_array_equal(found, expected)
        return
    for name, value in vars(expected).items():
        np.testing.assert_equal(getattr(found, name), value)
