"""What l_p is compared with: each finds a small dictionary, and names what it lacks."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from elldict import LpDictionaryLearning
from elldict.metrics import match_atoms
from elldict.solver.starts import draw_start
from experiments import peers
from experiments.peers.manifolds import SmoothedL1, riemannian_step
from experiments.peers.orthonormal import keep_largest

ROOT = Path(__file__).parents[1]
LIBRARIES = {"KSVD": "dictlearn", "TrustRegionL1": "pymanopt", "RiemannianGradient": "pymanopt", "Picard": "picard"}


def needs(name):
    module = LIBRARIES.get(name)
    if module is not None and importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")


def make(name, **more):
    options = {"KSVD": {"n_nonzero_coefs": 2, "max_iter": 30}, "TopKProcrustes": {"n_nonzero_coefs": 2}}
    seeds = {} if name == "PCA" else {"random_state": 0}
    return getattr(peers, name)(**options.get(name, {}) | seeds | more)


RECOVERING = ["KSVD", "FastICA", "Picard", "RiemannianGradient", "TopKProcrustes", "TrustRegionL1"]


@pytest.mark.parametrize("name", RECOVERING)
def test_a_small_dictionary_is_recovered(name, easy):
    needs(name)
    X, dictionary, _ = easy
    model = make(name).fit(X)
    assert model.components_.shape == dictionary.shape
    np.testing.assert_allclose(np.linalg.norm(model.components_, axis=1), 1, rtol=1e-6)
    match = match_atoms(model.components_, dictionary)
    assert sorted(match.indices) == list(range(len(dictionary)))
    assert np.min(match.cosines) > 0.98
    assert model.n_iter_ >= 1


@pytest.mark.parametrize("name", [*RECOVERING, "PCA"])
def test_the_same_seed_gives_the_same_bits_and_the_input_stays(name, easy):
    needs(name)
    X = easy[0][:600]
    before = X.copy()
    first, second = (make(name).fit(X).components_ for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("name", ["FastICA", "Picard", "PCA", "RiemannianGradient", "TopKProcrustes", "TrustRegionL1"])
def test_atoms_are_orthonormal(name, easy):
    needs(name)
    A = make(name).fit(easy[0][:1000].astype("float32")).components_
    np.testing.assert_allclose(A @ A.T, np.eye(len(A)), atol=1e-5)


def test_gradient_steps_end_where_the_power_method_ends(easy):
    needs("RiemannianGradient")
    slow = peers.RiemannianGradient(p=4, random_state=0, tol=1e-8, max_iter=3000).fit(easy[0])
    fast = LpDictionaryLearning(p=4, solver="power", refine=None, random_state=0, tol=1e-8).fit(easy[0])
    assert slow.n_iter_ > fast.n_iter_
    assert np.min(match_atoms(slow.components_, fast.components_).cosines) > 1 - 1e-10


def test_a_riemannian_step_stays_on_its_manifold(rng):
    needs("RiemannianGradient")
    for A in (draw_start(1, 5, rng)[0], draw_start(3, 5, rng), draw_start(5, 5, rng)):
        rows = np.atleast_2d(riemannian_step(A, rng.standard_normal(A.shape), 0.25))
        np.testing.assert_allclose(rows @ rows.T, np.eye(len(rows)), atol=1e-12)


def test_the_smoothed_l1_has_the_derivatives_it_says(rng):
    contrast = SmoothedL1(rng.standard_normal((50, 4)), mu=0.3)
    q, v, h = rng.standard_normal(4), rng.standard_normal(4), 1e-5
    slope = (contrast.value(q + h * v) - contrast.value(q - h * v)) / (2 * h)
    assert contrast.gradient(q) @ v == pytest.approx(slope, rel=1e-6)
    curve = (contrast.gradient(q + h * v) - contrast.gradient(q - h * v)) / (2 * h)
    np.testing.assert_allclose(contrast.hessian(q, v), curve, rtol=1e-5, atol=1e-8)


def test_the_smoothed_l1_does_not_overflow():
    assert SmoothedL1(np.array([[1e6]]), mu=0.01).value(np.array([1.0])) == pytest.approx(1e6)


def test_top_k_never_loses_what_it_had(easy):
    X = easy[0][:1500]

    def lost(A):
        return float(np.sum((keep_largest(X @ A.T, 2) @ A - X) ** 2))

    start = LpDictionaryLearning(p=3, solver="power", refine=None, tol=1e-4, random_state=0).fit(X).components_
    once, more = (peers.TopKProcrustes(2, max_iter=k, random_state=0).fit(X).components_ for k in (1, 20))
    assert lost(start) >= lost(once) >= lost(more)


def test_keep_largest_keeps_all_where_there_are_fewer():
    codes = np.array([[1.0, -3.0]])
    np.testing.assert_array_equal(keep_largest(codes, 5), codes)
    np.testing.assert_array_equal(keep_largest(codes, 1), [[0.0, -3.0]])


def test_pca_around_zero_diagonalises_the_second_moments(easy):
    X = easy[0][:500]
    model = peers.PCA(center=False).fit(X)
    moments = model.components_ @ (X.T @ X) @ model.components_.T
    np.testing.assert_allclose(moments, np.diag(np.diag(moments)), atol=1e-8)
    assert np.all(np.diff(np.diag(moments)) <= 0)
    np.testing.assert_array_equal(model.mean_, 0)
    np.testing.assert_allclose(peers.PCA().fit(X).mean_, X.mean(axis=0), atol=1e-12)


def test_ksvd_needs_samples_to_start_from():
    needs("KSVD")
    with pytest.raises(ValueError, match="3 samples that are not zero: K-SVD needs 4"):
        peers.KSVD(1).fit(np.vstack([np.eye(4)[:3], np.zeros((5, 4))]))


@pytest.mark.parametrize("name", sorted(LIBRARIES))
def test_a_missing_library_is_named(name, easy, monkeypatch):
    monkeypatch.setitem(sys.modules, LIBRARIES[name], None)  # as if it were not installed
    with pytest.raises(peers.MissingPackageError, match=r"is not installed: pip install -e '.\[reproduce,bench\]'"):
        make(name).fit(easy[0][:50])


def test_importing_the_baselines_imports_none_of_their_libraries():
    script = f"import sys, experiments.peers; assert not set({list(LIBRARIES.values())}) & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=120)
