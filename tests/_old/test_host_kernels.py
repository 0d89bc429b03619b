"""The compiled kernels find what NumPy finds: for every objective, shape and instruction set, and in fits of laws."""

import contextlib
import gc
import math
import os
import subprocess
import sys
import weakref

import numpy as np
import pytest

from elldict import LpDictionaryLearning
from elldict._old.backend import host_kernels
from elldict._old.backend.base import BufferedWork, find_turn_kernel
from elldict._old.solver.code_histogram import CodeHistogram
from elldict._old.solver.directions import PairwiseNewton, pairwise_angles, random_orthonormal
from elldict._old.solver.evaluate import Statistics
from elldict._old.solver.mixture import N_BINS, MixtureLikelihood, count_bins, fit_mixture
from elldict._old.solver.objective import Lp, Quantities, WithSecondary, compute_derivatives
from elldict._old.solver.spike_slab import (
    SpikeSlab,
    SpikeSlabLikelihood,
    climb_likelihood,
    negative_log_likelihood,
    run_em,
)
from elldict._old.theory.error_bars import CodeMoments, atom_errors
from elldict.datasets import make_bernoulli_gaussian
from tests._old.test_objectives import ALL, OBJECTIVES, skip_without_kernels, sum_all

ROUNDING = {"float64": 1e-13, "float32": 2e-6}
"""Relative to the largest term of a sum: those of float32 are rounded, and the value is a difference of them."""


@pytest.fixture(autouse=True)
def _built():
    skip_without_kernels()


@pytest.fixture(params=[*OBJECTIVES, "with l_2.2 beside it"])
def objective(request):
    if request.param == "with l_2.2 beside it":
        return WithSecondary(OBJECTIVES["spike and slab"], Lp(2.2))
    return OBJECTIVES[request.param]


def draw_codes(n_rows, m=3, dtype="float64", seed=0):
    """Sparse codes (b, m), zeros among them."""
    rng = np.random.default_rng(seed)
    return (rng.laplace(size=(n_rows, m)) * (rng.random((n_rows, m)) < 0.7)).astype(dtype)


def make_objectives(m):
    """One of every kernel, for codes of m atoms, each with a law of its own."""
    density, law = np.linspace(0.1, 0.8, m), fit_mixture(draw_codes(500, m), np.ones(m))
    likelihood = SpikeSlabLikelihood(SpikeSlab(density, 1 / density, 0.05))
    return [Lp(3.0), Lp(3.5), Lp(2.3), Lp(1.0), likelihood, WithSecondary(likelihood, Lp(4.0)), MixtureLikelihood(law)]


def check_same(objective, Z, quantities, n_before=0):
    """Compare g and sums of kernels with those of NumPy, after a larger tile was in the same memory."""
    rounding, work = ROUNDING[str(Z.dtype)], BufferedWork.with_kernels()
    if n_before:
        objective.terms(draw_codes(n_before, Z.shape[1], str(Z.dtype), seed=1), quantities, work, np)
    before = Z.copy()
    ours, our_sums = sum_all(objective, Z, quantities, work)
    theirs, their_sums = sum_all(objective, Z, quantities, BufferedWork())
    np.testing.assert_array_equal(Z, before)
    np.testing.assert_allclose(ours.g, theirs.g, rtol=0, atol=rounding * np.max(np.abs(Z), initial=1))
    if theirs.secondary is not None:
        np.testing.assert_allclose(ours.secondary, theirs.secondary, rtol=rounding)
    assert set(our_sums) == set(their_sums)
    for name, theirs_sum in their_sums.items():
        scale = len(Z) * (1 + np.max(np.abs(Z))) ** 2
        np.testing.assert_allclose(our_sums[name], theirs_sum, rtol=10 * rounding, atol=rounding * scale, err_msg=name)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("quantities", [ALL, Quantities.GRADIENT, Quantities.MOMENTS], ids=str)
def test_kernels_find_what_numpy_finds(objective, dtype, quantities):
    check_same(objective, draw_codes(3000, dtype=dtype), quantities, n_before=4000)


@pytest.mark.parametrize("m", [1, 2, 7, 16, 33, 100])
@pytest.mark.parametrize("n_rows", [1, 13, 300])
def test_shapes_that_fill_no_vector(m, n_rows):
    for dtype in ROUNDING:
        for objective in make_objectives(m):
            check_same(objective, draw_codes(n_rows, m, dtype), ALL)


def test_all_instruction_sets_give_the_same_bits(objective):
    """Sums have the same order whatever the width of a vector, so that results do not depend on the machine."""
    found = {}
    try:
        for name in ("baseline", "avx2", "avx512"):
            try:
                host_kernels.COMPILED.use_instructions(name)
            except ValueError:  # this machine has none
                continue
            assert host_kernels.COMPILED.instructions() == name
            for dtype in ROUNDING:
                terms, sums = sum_all(objective, draw_codes(1001, dtype=dtype), ALL, BufferedWork.with_kernels())
                found.setdefault(dtype, []).append([terms.g.tobytes(), *(sums[key].tobytes() for key in sorted(sums))])
    finally:
        host_kernels.COMPILED.use_instructions("")
    for each in found.values():
        assert all(other == each[0] for other in each)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("quantities", [ALL, Quantities.GRADIENT], ids=str)
def test_codes_that_are_not_finite_show_in_the_value(objective, bad, quantities):
    """By which the loop stops. Other atoms have their values."""
    Z = draw_codes(300)
    Z[17, 1] = bad
    for each in (Z, Z.astype(np.float32)):
        with np.errstate(invalid="ignore"):
            _, sums = sum_all(objective, each, quantities, BufferedWork.with_kernels())
        np.testing.assert_array_equal(np.isfinite(sums["value"]), [True, False, True])


def test_noise_that_hides_nothing_makes_no_number_overflow():
    """Log odds of a thousand and more, on either side."""
    likelihood = SpikeSlabLikelihood(SpikeSlab(np.array([0.2, 1e-4]), np.array([1.0, 1e-3]), 1e-12))
    Z = np.array([[0.0, 0.0], [1e-6, 1e-6], [1e-3, 1e-3], [5.0, 5.0], [1e3, 1e3]])
    for each in (Z, Z.astype(np.float32)):
        check_same(likelihood, each, ALL)
        terms, sums = sum_all(likelihood, each, ALL, BufferedWork.with_kernels())
        assert np.all(np.isfinite(terms.g))
        assert all(np.all(np.isfinite(total)) for total in sums.values())


def test_tiles_in_another_order_of_memory(objective):
    check_same(objective, np.asfortranarray(draw_codes(100)), ALL)


def test_weighted_rows_are_not_for_kernels(objective):
    weights, Z = np.linspace(0, 2, 50), draw_codes(50)
    ours, theirs = BufferedWork.with_kernels(), BufferedWork()
    for work in (ours, theirs):
        work.weigh(weights)
    for name, total in sum_all(objective, Z, ALL, theirs)[1].items():
        np.testing.assert_array_equal(sum_all(objective, Z, ALL, ours)[1][name], total)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize(("n_rows", "m"), [(0, 3), (1, 1), (700, 3), (4000, 17)])
def test_codes_are_counted_in_the_same_bins(dtype, n_rows, m, monkeypatch):
    """Those at zero, far out, and in another order of memory among them."""
    codes = np.asfortranarray(100.0 ** draw_codes(n_rows, m, dtype) * draw_codes(n_rows, m, dtype, seed=1))
    std = np.linspace(0.1, 3, m)
    ours = count_bins(codes, std)
    monkeypatch.setattr(host_kernels, "COMPILED", None)
    np.testing.assert_array_equal(ours, count_bins(codes, std))
    assert ours.shape == (m, N_BINS)


@pytest.mark.parametrize("most", [math.inf, 0.05])
@pytest.mark.parametrize("depend", [False, True])
@pytest.mark.parametrize("m", [1, 2, 9])
def test_angles_of_pairs_are_those_of_numpy(m, depend, most, monkeypatch):
    """Curvatures that are too small, and negative ones, among them."""
    rng = np.random.default_rng(m)
    A, G = random_orthonormal(m, m, rng), 50 * (np.eye(m) + rng.standard_normal((m, m)))
    stats = Statistics(70.0, G=G @ A, slope=20 * rng.random(m), z2=70 * (0.5 + rng.random(m)))
    crossed = rng.random((m, m)) if depend else None
    ours = pairwise_angles(stats, stats.G, A, 0.1, crossed, most)
    monkeypatch.setattr(host_kernels, "COMPILED", None)
    np.testing.assert_allclose(ours, pairwise_angles(stats, stats.G, A, 0.1, crossed, most), rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(ours, -ours.T)


def test_memory_of_a_pass_is_let_go_with_it():
    """Without the collector of cycles, which comes too late for tiles."""
    work = BufferedWork.with_kernels()
    buffer = weakref.ref(Lp(3.0).terms(draw_codes(100), ALL, work, np).g.base)
    gc.disable()
    try:
        assert buffer() is not None
        del work
        assert buffer() is None
    finally:
        gc.enable()


def test_arrays_that_do_not_fit_are_refused():
    Z, sums = np.ones((4, 3)), np.empty((4, 3))
    with pytest.raises(ValueError, match="shape of the codes"):
        host_kernels.COMPILED.lp(Z, np.empty((3, 3)), sums, 1, False)
    with pytest.raises(ValueError, match="one number for each atom"):
        host_kernels.COMPILED.likelihood(Z, np.ones(2), np.ones(3), np.empty((4, 3)), np.empty((6, 3)))
    with pytest.raises(TypeError):
        host_kernels.COMPILED.lp(Z, np.empty((4, 3), np.float32), sums, 1, False)


def test_a_fit_is_the_same_but_for_rounding(monkeypatch):
    X, _, _ = make_bernoulli_gaussian(3000, 10, density=0.3, noise_std=0.2, random_state=0)
    ours = LpDictionaryLearning(random_state=0).fit(X)
    monkeypatch.setattr(host_kernels, "COMPILED", None)
    theirs = LpDictionaryLearning(random_state=0).fit(X)
    np.testing.assert_allclose(ours.components_, theirs.components_, atol=1e-6)
    assert ours.n_iter_ == theirs.n_iter_


def test_a_variable_turns_them_off():
    code = "from elldict._old.backend.host_kernels import describe_kernels; print(describe_kernels())"
    for value, shown in (("0", "NumPy"), ("1", "compiled")):
        environment = {**os.environ, host_kernels.SWITCH: value}
        said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert said.stdout.startswith(shown)


class TestLaws:
    """Fits of the spike-and-slab law to histograms of codes."""

    @pytest.fixture(params=[(0.3, 0.2, 4000), (0.3, 1e-8, 3000), (0.1, 0.6, 500), (0.9, 0.1, 2000)], ids=str)
    def codes(self, request):
        density, noise_std, b = request.param
        rng = np.random.default_rng(0)
        Z = rng.standard_normal((b, 5)) * (rng.random((b, 5)) < density) + noise_std * rng.standard_normal((b, 5))
        return CodeHistogram.of(Z)

    @pytest.mark.parametrize("noise_known", [False, True])
    def test_expectation_maximisation_is_that_of_numpy(self, codes, noise_known, monkeypatch):
        start = SpikeSlab(np.full(5, 0.3), codes.mean_square, 0.05 * codes.mean_square, 1e-18)
        ours = run_em(codes, start, 40, noise_known=noise_known)
        monkeypatch.setattr(host_kernels, "COMPILED", None)
        theirs = run_em(codes, start, 40, noise_known=noise_known)
        for name in ("density", "power", "noise"):
            np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-10)

    def test_the_law_found_is_no_less_likely_than_that_of_l_bfgs(self, codes, monkeypatch):
        """To its own tolerance, 2e-9 of the value; parameters that it leaves undecided may differ."""
        pool = codes.pool()
        start = run_em(pool, SpikeSlab(np.array([0.3]), np.array([3.0]), np.array([0.1]), 1e-18), 60)
        ours = climb_likelihood(pool, start, 1e-18)
        monkeypatch.setattr(host_kernels, "COMPILED", None)
        theirs = climb_likelihood(pool, start, 1e-18)
        values = []
        for law in (ours, theirs):
            odds = math.log(law.density[0] / (1 - law.density[0]))
            x = np.array([odds, math.log(law.power[0]), math.log(law.noise)])
            values.append(negative_log_likelihood(x, pool)[0])
        # with next to no noise the value itself, a difference of z^2 / noise, has no digits that tell
        assert values[0] <= values[1] + max(1e-8, 1e-15 / ours.noise) * abs(values[1])
        for name in ("density", "power", "noise"):
            np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-2)

    def test_the_climb_stays_within_bounds(self):
        """Codes without noise: the least is where it ends."""
        Z = np.where(np.random.default_rng(0).random((500, 1)) < 0.3, 1.0, 1e-12)
        pool = CodeHistogram.of(Z)
        start = SpikeSlab(np.array([0.3]), np.array([1.0]), 1e-6)
        assert climb_likelihood(pool, start, 1e-7).noise >= 0.999e-7

    @pytest.mark.parametrize("shape", [(1, 1), (400, 1), (1000, 7), (3000, 33)])
    def test_histograms_are_those_of_numpy(self, shape, monkeypatch):
        """To the last bit; those of all atoms as one, which are scaled by sums, but for rounding."""
        Z = draw_codes(*shape) * np.exp(np.random.default_rng(1).uniform(-60, 60, shape))  # tiny and huge ones
        ours, our_pool = CodeHistogram.of(Z), CodeHistogram.of(draw_codes(*shape)).pool()
        monkeypatch.setattr(host_kernels, "COMPILED", None)
        theirs, their_pool = CodeHistogram.of(Z), CodeHistogram.of(draw_codes(*shape)).pool()
        np.testing.assert_array_equal(ours.count, theirs.count)
        np.testing.assert_array_equal(ours.z2, theirs.z2)
        np.testing.assert_array_equal(our_pool.count, their_pool.count)
        np.testing.assert_allclose(our_pool.z2, their_pool.z2, rtol=1e-13)


class TestNewtonStep:
    """The step of all pairs of atoms in one call."""

    @staticmethod
    def make_statistics(m, scale):
        rng = np.random.default_rng(m)
        A = random_orthonormal(m, m, rng)
        own = np.diag(rng.uniform(0.5, 2.0, m)) + scale * rng.standard_normal((m, m))
        return A, Statistics(
            700.0, G=700 * own @ A, slope=700 * rng.uniform(0, 2, m), z2=700 * rng.uniform(0.8, 1.2, m)
        )

    @pytest.mark.parametrize("scale", [1e-6, 0.02, 1.0])
    @pytest.mark.parametrize("m", [1, 2, 8, 33, 64])
    def test_it_is_that_of_numpy(self, m, scale):
        A, stats = self.make_statistics(m, scale)
        assert find_turn_kernel(A) is not None
        moved = PairwiseNewton()(stats, A)
        np.testing.assert_allclose(moved, PairwiseNewton().move(stats, A), atol=1e-12)
        np.testing.assert_allclose(moved @ moved.T, np.eye(m), atol=1e-12)

    def test_all_instruction_sets_give_the_same_bits(self):
        A, stats = self.make_statistics(21, 0.1)
        found = []
        try:
            for name in ("baseline", "avx2", "avx512"):
                with contextlib.suppress(ValueError):  # this machine has none
                    host_kernels.COMPILED.use_instructions(name)
                    found.append(PairwiseNewton()(stats, A).tobytes())
        finally:
            host_kernels.COMPILED.use_instructions("")
        assert len(set(found)) == 1

    def test_many_atoms_and_fewer_than_directions_are_left_to_numpy(self):
        assert find_turn_kernel(np.eye(host_kernels.MOST_TURNED_ATOMS + 1)) is None
        assert find_turn_kernel(np.eye(8)[:5]) is None


@pytest.mark.parametrize("m", [1, 2, 7, 40])
@pytest.mark.parametrize("slope", [0.5, 1.5])
def test_errors_of_atoms_are_those_of_numpy(m, slope, monkeypatch):
    """With a steep slope some pairs have no maximum, and an infinite error."""
    rng = np.random.default_rng(m)
    gz, g2, z2 = rng.uniform(1, 2, m), rng.uniform(2, 6, m), rng.uniform(0.8, 1.2, m)
    moments = CodeMoments(gz, g2, slope * rng.uniform(0.5, 1.5, m), z2)
    ours = atom_errors(moments, 500.0, unidentifiable=np.zeros(m, bool))
    monkeypatch.setattr(host_kernels, "COMPILED", None)
    np.testing.assert_allclose(ours, atom_errors(moments, 500.0), rtol=1e-11)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("shape", [(1, 1), (13, 7), (300, 33)])
def test_slopes_of_the_likelihood_are_those_of_numpy(shape, dtype, monkeypatch):
    """Code by code, for error bars: neither g nor its slope is larger than a code, or one over the noise."""
    Z, density = draw_codes(*shape, dtype), np.linspace(0.1, 0.8, shape[1])
    likelihood = SpikeSlabLikelihood(SpikeSlab(density, 1 / density, 0.05))
    assert likelihood.derivatives(Z) is not None
    ours = compute_derivatives(likelihood, Z)
    monkeypatch.setattr(host_kernels, "COMPILED", None)
    for one, other in zip(ours, compute_derivatives(likelihood, Z), strict=True):
        np.testing.assert_allclose(one, other, atol=20 * ROUNDING[dtype] * np.max(np.abs(Z), initial=1))
