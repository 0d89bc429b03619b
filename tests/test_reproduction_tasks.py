"""Tasks of the reproduction and its baselines: recovery, runs on the population, digits from a few coefficients."""

from __future__ import annotations

import sys

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from experiments import peers
from experiments.peers.manifolds import SmoothedL1
from experiments.reproduction.cells import METHODS, make_cell
from experiments.reproduction.figures.figure3 import Run, make_population_cell
from experiments.reproduction.images import unpack
from experiments.reproduction.tasks import run_cell

TINY = {"n_features": 5, "n_samples": 800, "density": 0.3}


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"pca", "top-k", "power"}))
def test_method_on_a_tiny_dictionary_recovers_it(method):
    if METHODS[method].missing:
        pytest.skip(f"{METHODS[method].missing} is not installed")
    options = {"ksvd": {"max_iter": 30}}.get(method, {})
    values, seconds = run_cell(make_cell("recovery", method, TINY, 1, options), {})
    assert 0 <= values["error"] < 0.08
    assert min(values["n_iter"], seconds) > 0


@pytest.mark.parametrize(
    ("name", "module"), [("KSVD", "dictlearn"), ("TrustRegionL1", "pymanopt"), ("Picard", "picard")]
)
def test_baseline_without_its_library_names_it(name, module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    options = {"n_nonzero_coefs": 2} if name == "KSVD" else {}
    with pytest.raises(peers.MissingPackageError, match=r"is not installed: pip install -e '.\[reproduce,bench\]'"):
        getattr(peers, name)(**options).fit(np.ones((50, 3)))


@pytest.mark.parametrize("constraint", ["sphere", "orthogonal"])
def test_population_power_method_has_factor_theta_and_gradient_steps_are_slower(constraint):
    fast, _ = run_cell(make_population_cell("power", constraint, 8, 0.1, 0), {})
    assert fast["errors"][-1] < 1e-13
    assert Run(constraint, 8, tuple(fast["errors"])).factor == pytest.approx(0.1, rel=0.02)
    if METHODS["gradient"].missing:
        pytest.skip("pymanopt is not installed")
    slow, _ = run_cell(make_population_cell("gradient", constraint, 8, 0.1, 0, step=0.25), {})
    assert fast["errors"][0] == slow["errors"][0]
    assert len(slow["errors"]) > 2 * len(fast["errors"])


def test_smoothed_l1_derivatives_match_finite_differences(rng):
    contrast = SmoothedL1(rng.standard_normal((50, 4)), mu=0.3)
    q, v, h = rng.standard_normal(4), rng.standard_normal(4), 1e-5
    slope = (contrast.value(q + h * v) - contrast.value(q - h * v)) / (2 * h)
    assert contrast.gradient(q) @ v == pytest.approx(slope, rel=1e-6)
    curvature = (contrast.gradient(q + h * v) - contrast.gradient(q - h * v)) / (2 * h)
    np.testing.assert_allclose(contrast.hessian(q, v), curvature, rtol=1e-5, atol=1e-8)
    assert SmoothedL1(np.array([[1e6]]), mu=0.01).value(np.array([1.0])) == pytest.approx(1e6)  # no overflow


# --- images -----------------------------------------------------------------------------------------------------------


def rebuild_digits(method, **options):
    setting = {"source": "digits", "fingerprint": "scikit-learn", "n_train": 300, "n_test": 60}
    return run_cell(make_cell("images", method, setting, 0, options), {})[0]


def test_pca_with_more_coefficients_has_smaller_errors():
    values = rebuild_digits("pca", center=False)
    assert values["errors"] == sorted(values["errors"], reverse=True)
    assert 0 < values["error"] == values["errors"][4] < values["first_error"] < 1
    assert unpack(values["shown"], 8).shape == unpack(values["originals"], 8).shape == (10, 8, 8)


@pytest.mark.parametrize(
    ("method", "options"),
    [("lp", {"p": 3, "max_iter": 5}), ("top-k", {"n_nonzero_coefs": 5, "start_max_iter": 5, "max_iter": 3})],
)
def test_digits_from_five_coefficients_have_a_small_error(method, options):
    assert 0 < rebuild_digits(method, **options)["error"] < 0.3
