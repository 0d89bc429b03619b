"""Baselines: each recovers a small dictionary, and names the package it needs."""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest

from elldict.metrics import match_atoms
from experiments import peers
from experiments.peers.manifolds import SmoothedL1

LIBRARIES = {"KSVD": "dictlearn", "TrustRegionL1": "pymanopt", "RiemannianGradient": "pymanopt", "Picard": "picard"}
ORTHONORMAL = ["FastICA", "Picard", "RiemannianGradient", "TopKProcrustes", "TrustRegionL1"]


def make(name, **more):
    module = LIBRARIES.get(name)
    if module is not None and importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    options = {"KSVD": {"n_nonzero_coefs": 2, "max_iter": 30}, "TopKProcrustes": {"n_nonzero_coefs": 2}}
    seeds = {} if name == "PCA" else {"random_state": 0}
    return getattr(peers, name)(**options.get(name, {}) | seeds | more)


@pytest.mark.parametrize("name", ["KSVD", *ORTHONORMAL])
def test_baseline_on_easy_samples_recovers_the_dictionary(name, easy):
    X, dictionary, _ = easy
    model = make(name).fit(X)
    assert model.n_iter_ >= 1
    np.testing.assert_allclose(np.linalg.norm(model.components_, axis=1), 1, rtol=1e-6)
    match = match_atoms(model.components_, dictionary)
    assert sorted(match.indices) == list(range(len(dictionary)))
    assert np.min(match.cosines) > 0.98


def test_smoothed_l1_derivatives_match_finite_differences(rng):
    contrast = SmoothedL1(rng.standard_normal((50, 4)), mu=0.3)
    q, v, h = rng.standard_normal(4), rng.standard_normal(4), 1e-5
    slope = (contrast.value(q + h * v) - contrast.value(q - h * v)) / (2 * h)
    assert contrast.gradient(q) @ v == pytest.approx(slope, rel=1e-6)
    curvature = (contrast.gradient(q + h * v) - contrast.gradient(q - h * v)) / (2 * h)
    np.testing.assert_allclose(contrast.hessian(q, v), curvature, rtol=1e-5, atol=1e-8)
    assert SmoothedL1(np.array([[1e6]]), mu=0.01).value(np.array([1.0])) == pytest.approx(1e6)  # no overflow


@pytest.mark.parametrize("name", sorted(LIBRARIES))
def test_baseline_without_its_library_names_it(name, easy, monkeypatch):
    model = make(name)
    monkeypatch.setitem(sys.modules, LIBRARIES[name], None)  # as if it were not installed
    with pytest.raises(peers.MissingPackageError, match=r"is not installed: pip install -e '.\[reproduce,bench\]'"):
        model.fit(easy[0][:50])
