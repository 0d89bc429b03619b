"""What every objective has to be: derivatives of each other, the same in any memory and for every array library."""

from dataclasses import dataclass

import array_api_strict
import numpy as np
import pytest

from elldict._old.backend import host_kernels
from elldict._old.backend.base import BufferedWork, FreshWork, to_numpy
from elldict._old.solver.directions import PairwiseNewton, power_step, random_orthonormal
from elldict._old.solver.mixture import MixtureLikelihood, fit_mixture
from elldict._old.solver.objective import (
    LinearCodes,
    Lp,
    Quantities,
    Summed,
    Terms,
    Weighted,
    WithSecondary,
    compute_derivatives,
    sum_term,
)
from elldict._old.solver.spike_slab import SpikeSlab, SpikeSlabLikelihood
from elldict.datasets import make_bernoulli_gaussian
from elldict.metrics import recovery_error
from tests._old.helpers import run_from

LAW = SpikeSlab(np.array([0.1, 0.3, 0.7]), np.array([1.0, 4.0, 0.5]), 0.04)
RANDOM = np.random.default_rng(1)
MIXTURE = fit_mixture(
    np.column_stack([RANDOM.laplace(size=2000), RANDOM.uniform(-2, 2, 2000), RANDOM.standard_normal(2000)]),
    np.array([1.0, -1.0, 1.0]),
)
OBJECTIVES = {  # for codes of three atoms
    "l_2.2": Lp(2.2),
    "l_3": Lp(3.0),
    "l_1": Lp(1.0),
    "l_0.5": Lp(0.5),
    "l_1.5": Lp(1.5),
    "l_5.5": Lp(5.5),
    "spike and slab": SpikeSlabLikelihood(LAW),
    "with l_p beside it": WithSecondary(SpikeSlabLikelihood(LAW), Lp(3.0)),
    "with l_1 beside it": WithSecondary(SpikeSlabLikelihood(LAW), Lp(1.0)),
    "mixture": MixtureLikelihood(MIXTURE),
}
ALL = Quantities.GRADIENT | Quantities.MOMENTS


@pytest.fixture(params=OBJECTIVES)
def objective(request):
    return OBJECTIVES[request.param]


@pytest.fixture
def codes():
    """Codes (b, m) without zeros, where derivatives of norms have corners."""
    return np.random.default_rng(0).uniform(0.05, 3, (200, 3)) * np.array([1, -1] * 100)[:, None]


def expand(term):
    return term.expand() if isinstance(term, Weighted) else term.total if isinstance(term, Summed) else term


@pytest.fixture(params=["NumPy", "compiled"])
def work(request):
    """Scratch memory of a pass without kernels, and with those for the host."""
    if request.param == "NumPy":
        return BufferedWork()
    skip_without_kernels()
    return BufferedWork.with_kernels()


def skip_without_kernels():
    if host_kernels.COMPILED is None:
        pytest.skip("the compiled kernels were not built, or are turned off")


def sum_all(objective, Z, quantities, work):
    """Terms of a tile, and all sums over its rows that a pass makes of them."""
    terms, known, sums, n_rows = objective.terms(Z, quantities, work, np), {}, {}, len(Z)
    if Quantities.MOMENTS in quantities:
        sums["slope"] = sum_term(terms.slope, n_rows, work, np, known)
        sums["g2"] = sum_term((terms.g, terms.g) if terms.g2 is None else terms.g2, n_rows, work, np, known)
        sums["z2"] = sum_term((Z, Z) if terms.z2 is None else terms.z2, n_rows, work, np, known)
        sums |= {name: sum_term(term, n_rows, work, np, known) for name, term in terms.extra.items()}
    value = Weighted(((terms.gain, (terms.g, Z)),)) if terms.value is None else terms.value
    sums["value"] = sum_term(value, n_rows, work, np, known)
    return terms, sums


def evaluate_by_row(objective, codes, work):
    """F, g and slope of every code: sums over tiles of one row, which kernels give as well."""
    found = []
    for row in codes:
        terms, sums = sum_all(objective, row[None], ALL, work)
        found.append((sums["value"], (terms.gain * terms.g)[0], sums["slope"]))
    return tuple(np.array(part) for part in zip(*found, strict=True))


def test_the_slope_is_the_derivative_of_g(objective, codes, work):
    h = 1e-6
    (_, above, _), (_, below, _), (_, _, slope) = (
        evaluate_by_row(objective, codes + shift, work) for shift in (h, -h, 0.0)
    )
    np.testing.assert_allclose((above - below) / (2 * h), slope, rtol=1e-5, atol=1e-5)


def test_g_is_the_derivative_of_the_value_but_for_what_no_rotation_changes(objective, codes, work):
    """F' = a g + b z, with two constants for each atom, a > 0: the sum of z^2 over all atoms stays the same."""
    h = 1e-6
    (above, _, _), (below, _, _), (_, g, _) = (
        evaluate_by_row(objective, codes + shift, work) for shift in (h, -h, 0.0)
    )
    rise = (above - below) / (2 * h)
    for atom in range(codes.shape[1]):
        basis = np.stack([g[:, atom], codes[:, atom]], axis=1)
        factors = np.linalg.lstsq(basis, rise[:, atom], rcond=None)[0]
        np.testing.assert_allclose(basis @ factors, rise[:, atom], atol=1e-5 * np.max(np.abs(rise)))
        assert factors[0] > 0  # so that the loop climbs F and not -F


@pytest.mark.parametrize("p", [0.3, 1.0, 1.9])
def test_below_2_the_norm_is_minimised_by_a_convex_function(p, codes):
    """F differs from minus the smoothed norm by a multiple of z^2, grows with the size of a code, and is convex."""
    sizes = np.linspace(0, 30, 2001)[:, None]
    terms = Lp(p).terms(sizes, ALL, FreshWork(), np)
    value = expand(terms.value)
    np.testing.assert_allclose(value, p / 2 * sizes**2 + 1 - (sizes**2 + 1) ** (p / 2), atol=1e-12 * 30**2)
    assert value[0] == 0
    assert np.all(np.diff(value, axis=0) > 0)
    assert np.all(expand(terms.slope) >= -1e-15)


def test_terms_do_not_depend_on_the_memory_they_are_written_to(objective, codes):
    before, work = codes.copy(), BufferedWork()
    objective.terms(3 * codes, ALL, work, np)  # leaves something behind in all buffers
    ours, theirs = objective.terms(codes, ALL, work, np), objective.terms(codes, ALL, FreshWork(), np)
    np.testing.assert_array_equal(ours.g, theirs.g)
    for name in ("slope", "value"):
        if getattr(theirs, name) is not None:
            rtol = 1e-13 if isinstance(getattr(theirs, name), Summed) else 0  # rows are added up in another order
            np.testing.assert_allclose(expand(getattr(ours, name)), expand(getattr(theirs, name)), rtol=rtol)
    np.testing.assert_array_equal(codes, before)


def test_array_libraries_agree(objective, codes):
    g, slope = compute_derivatives(objective, codes)
    for ours, theirs in zip(compute_derivatives(objective, array_api_strict.asarray(codes)), (g, slope), strict=True):
        np.testing.assert_allclose(to_numpy(ours), theirs, rtol=1e-12, atol=1e-14)


def test_the_loop_climbs_every_objective(objective):
    """From a random start, by each direction; mean values are compared to rounding, or to that of tables."""
    rounding = 1e-5 if isinstance(objective, MixtureLikelihood) else 1e-10  # its bins are 2 % wide, to third order
    X, _, _ = make_bernoulli_gaussian(2000, 3, density=0.2, random_state=0)
    start = random_orthonormal(3, 3, np.random.default_rng(1))
    for direction in (power_step, PairwiseNewton()) if objective.convex else (PairwiseNewton(),):
        _, history = run_from(X, start, direction=direction, tol=1e-6, max_iter=60, objective=objective)
        values = np.array([iteration.objective for iteration in history])
        assert np.all(np.diff(values) >= -rounding * np.abs(values[1:]))
        assert values[-1] > values[0]


@dataclass(frozen=True)
class MinusHuber(LinearCodes):
    """Concave, and with a factor that is one number."""

    def terms(self, Z, quantities, work, xp):
        g = xp.clip(Z, -0.5, 0.5)
        return Terms(g=g, gain=-1.0, slope=Weighted(((-1.0, (abs(Z) <= 0.5) * 1.0),)), value=-g * (Z - g / 2))


def test_an_objective_that_the_power_step_would_lower_is_refused_there_and_climbed_by_newton():
    X, dictionary, _ = make_bernoulli_gaussian(4000, 6, density=0.2, random_state=0)
    start = random_orthonormal(6, 6, np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"not convex. Add a multiple of z.2/2.*or take PairwiseNewton"):
        run_from(X, start, objective=MinusHuber())
    estimate, history = run_from(X, start, direction=PairwiseNewton(), tol=1e-6, objective=MinusHuber())
    assert estimate.converged
    assert history[-1].objective > history[0].objective
    assert recovery_error(estimate.A, dictionary) < 0.001
