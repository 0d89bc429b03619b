"""Tasks of the reproduction: recovery, runs on the population, and digits from a few coefficients."""

from __future__ import annotations

import pytest

pytest.importorskip("matplotlib")

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
