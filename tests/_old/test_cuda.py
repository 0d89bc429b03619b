"""On a graphics card: the same answers, by kernels, graphs and products of its own. Skips where there is no card."""

import itertools

import numpy as np
import pytest

from elldict import LpDictionaryLearning
from elldict._old.backend import torch as torch_backend
from elldict._old.backend.base import Backend, FreshWork, to_numpy
from elldict._old.backend.torch import import_kernels
from elldict._old.solver.code_histogram import CodeHistogram
from elldict._old.solver.code_subsample import CodeSubsample
from elldict._old.solver.directions import PairwiseNewton, polar, random_orthonormal
from elldict._old.solver.evaluate import Statistics
from elldict._old.solver.loop import mean_error
from elldict._old.solver.mixture import MixtureLikelihood, fit_mixture
from elldict._old.solver.objective import Lp, Quantities, WithSecondary, sum_term
from elldict._old.solver.spike_slab import (
    SpikeSlab,
    SpikeSlabLikelihood,
    fit_roughly,
    fit_spike_slab,
    move_to_host,
    update_spike_slab,
)
from elldict.datasets import make_bernoulli_gaussian
from elldict.metrics import match_atoms, recovery_error

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no card")]

MOMENTS = Quantities.GRADIENT | Quantities.MOMENTS


@pytest.fixture(autouse=True)
def with_kernels(monkeypatch):
    """Kernels and graphs from the first fit on, as later fits of a process have them."""
    monkeypatch.setattr(torch_backend._own, "compiles", True, raising=False)


def test_the_first_fits_of_a_process_do_not_wait_for_kernels(monkeypatch):
    monkeypatch.delattr(torch_backend._own, "compiles")
    monkeypatch.setattr(torch_backend, "_fits", itertools.count())
    X = on_card(make_bernoulli_gaussian(n_samples=3000, n_features=12, density=0.2, random_state=0)[0])
    used = []

    def note(_iteration):
        used[-1].add(torch_backend.fused_terms() is not None)

    for _ in range(torch_backend.FITS_BEFORE_KERNELS + 1):
        used.append(set())
        LpDictionaryLearning(random_state=0).fit(X, callback=note)
    expected = import_kernels() is not None
    assert used == [{False}] * torch_backend.FITS_BEFORE_KERNELS + [{expected}]
    assert torch_backend.fused_terms() is None


def on_card(array):
    return torch.asarray(np.array(array), device="cuda")


@pytest.fixture
def codes(rng):
    """Codes whose rows and columns fill no block."""
    active = rng.random((1237, 83)) < 0.3
    return np.where(active, rng.standard_normal((1237, 83)), 0.05 * rng.standard_normal((1237, 83)))


@pytest.fixture
def model(rng):
    return SpikeSlab(rng.uniform(0.1, 0.5, 83), rng.uniform(0.5, 2, 83), 0.0025, 1e-12)


def test_a_cell_of_the_reproduction_is_the_same_on_a_card():
    make_cell = pytest.importorskip("experiments.reproduction.cells").make_cell
    run_cell = pytest.importorskip("experiments.reproduction.tasks").run_cell
    cell = make_cell("recovery", "lp", {"n_features": 20, "n_samples": 8000, "density": 0.3}, 0, {"p": 3})
    here, there = run_cell(cell, {})[0], run_cell(cell, {}, "cuda")[0]
    assert there["error"] == pytest.approx(here["error"], rel=1e-9)


def all_sums(objective, Z, work):
    """Everything that a pass adds up of the terms of a contrast."""
    xp = Backend.of(Z).xp
    terms, known = objective.terms(Z, MOMENTS, work, xp), {}
    wanted = {
        "slope": terms.slope,
        "g2": (terms.g, terms.g) if terms.g2 is None else terms.g2,
        "z2": (Z, Z) if terms.z2 is None else terms.z2,
        **terms.extra,
    }
    if terms.value is not None:
        wanted["value"] = terms.value
    found = {name: sum_term(term, int(Z.shape[0]), work, xp, known) for name, term in wanted.items()}
    found["g2"] = terms.gain**2 * found["g2"]
    arrays = {"g": terms.g} | ({} if terms.secondary is None else {"secondary": terms.secondary})
    return arrays, found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("p", [0.5, 1.0, 2.5, 3.0, 4.0])
@pytest.mark.parametrize("which", ["lp", "likelihood", "both", "mixture"])
def test_kernels_that_read_codes_once_agree_with_torch(codes, model, dtype, p, which):
    if import_kernels() is None:
        pytest.skip("no Triton")
    objective = {
        "lp": Lp(p),
        "likelihood": SpikeSlabLikelihood(model),
        "both": WithSecondary(SpikeSlabLikelihood(model), Lp(p)),
        "mixture": MixtureLikelihood(fit_mixture(codes, np.ones(codes.shape[1]))),
    }[which]
    Z = on_card(codes.astype(dtype))
    fused = FreshWork()
    fused.fused = import_kernels()
    (ours, our_sums), (theirs, their_sums) = all_sums(objective, Z, fused), all_sums(objective, Z, FreshWork())
    tolerance = 2e-5 if dtype == "float32" else 1e-11
    assert ours.keys() == theirs.keys()
    assert our_sums.keys() == their_sums.keys()
    for name in ours:
        np.testing.assert_allclose(to_numpy(ours[name]), to_numpy(theirs[name]), rtol=tolerance, atol=tolerance)
    for name in our_sums:
        np.testing.assert_allclose(
            to_numpy(our_sums[name]),
            to_numpy(their_sums[name]),
            rtol=tolerance,
            atol=1237 * tolerance / 10,
            err_msg=name,
        )


def test_laws_fitted_on_the_card_are_those_of_the_host(codes):
    """The host rounds codes to half an octave."""
    start = SpikeSlab(np.full(83, 0.2), np.full(83, 1.5), 0.01, 1e-12)
    here, there = CodeHistogram.of(codes), CodeHistogram.of(on_card(codes))
    assert there.z2.is_cuda
    for fit in (
        lambda histogram: fit_spike_slab(histogram, least_noise=1e-12),
        lambda histogram: fit_roughly(histogram, least_noise=1e-12),
        lambda histogram: update_spike_slab(histogram, start),
    ):
        ours, theirs = fit(there), fit(here)
        np.testing.assert_allclose(ours.density, theirs.density, rtol=0.03)
        np.testing.assert_allclose(ours.power, theirs.power, rtol=0.03)
        assert ours.noise == pytest.approx(theirs.noise, rel=0.05)


@pytest.mark.parametrize("density", [0.3, 1.0])
def test_steps_and_error_bars_by_kernels_are_those_of_the_host(rng, density):
    m, r = 83, 1000
    A = random_orthonormal(m, m, rng)
    Z = rng.standard_normal((r, m)) * (rng.random((r, m)) < density)
    g = np.abs(Z) * Z
    vectors = {"slope": 2 * np.abs(Z).sum(0), "g2": (g**2).sum(0), "z2": (Z**2).sum(0), "gz": (g * Z).sum(0)}
    host, card = (
        Statistics(float(r), G=move(g.T @ Z @ A), **{name: move(vector) for name, vector in vectors.items()})
        for move in (np.asarray, on_card)
    )
    step = PairwiseNewton(0.15)
    moved, expected = to_numpy(step.move_along_tangent(card, on_card(A))[0]), step.move_along_tangent(host, A)[0]
    np.testing.assert_allclose(moved, expected, atol=1e-6)
    turned = to_numpy(step(card, on_card(A)))
    np.testing.assert_allclose(turned @ turned.T, np.eye(m), atol=1e-12)
    assert float(mean_error(card)) == pytest.approx(float(mean_error(host)), rel=1e-6)


@pytest.mark.parametrize("moved", [0.0, 0.1])
@pytest.mark.parametrize("noise", [0.0025, 0.1])
def test_a_law_updated_on_the_card_is_that_of_other_steppers(codes, moved, noise):
    A, old = on_card(np.eye(83)), SpikeSlab(np.full(83, 0.3), np.full(83, 1.0), noise, 1e-12)
    rows = on_card(codes)
    drawn = CodeSubsample(rows, rows, rows, 1e-12)
    objective = SpikeSlabLikelihood(old, drawn)
    refitted = objective.updated(A, moved)
    law, halves, others = (on_card(np.empty((rows, 83))) for rows in (3, 2, 4))
    squares = on_card(np.append(np.zeros(82), moved**2))
    packed = torch.stack([on_card(old.density), on_card(old.power), on_card(np.full(83, noise))])
    same = drawn.update_on_device(A, packed, squares, law, (halves, others))
    assert bool(same) == (refitted is objective)
    found = move_to_host(SpikeSlab(law[0], law[1], law[2], 1e-12))
    np.testing.assert_allclose(found.density, refitted.law.density, rtol=1e-9)
    assert found.noise == pytest.approx(refitted.law.noise, rel=1e-9)
    c = refitted.coefficients(rows)
    for memory, expected in ((halves, (c.offset, c.rate)), (others, (c.steep, c.kept, c.precision))):
        found_rows, rows = to_numpy(memory)[: len(expected)], np.stack([to_numpy(row) for row in expected])
        np.testing.assert_allclose(found_rows, rows, rtol=1e-8)


@pytest.mark.parametrize("condition", [1.0, 1e4, 1e8, 1e15])
@pytest.mark.parametrize("shape", [(5, 9), (40, 40), (400, 400)])
def test_fault_13_polar_on_the_card_is_orthonormal_up_to_condition_1e15(condition, shape, rng):
    U, V = random_orthonormal(shape[0], shape[0], rng), random_orthonormal(*shape, rng)
    A = to_numpy(polar(on_card(U @ (np.geomspace(1, 1 / condition, shape[0])[:, None] * V))))
    np.testing.assert_allclose(A @ A.T, np.eye(shape[0]), atol=1e-12)
    if condition <= 1e8:
        np.testing.assert_allclose(A, U @ V, atol=1e-14 * max(1e2, condition))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("noise_std", [0.0, 0.3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"refine": None},
        {"refine": None, "tol": 9e-7},
        {"center": True, "whiten": True},
        {"p": 1},
        {"p": (3, 0.5), "refine": None},
    ],
)
def test_the_answer_is_that_of_the_host(dtype, noise_std, options):
    X, dictionary, _ = make_bernoulli_gaussian(20_000, 24, density=0.3, noise_std=noise_std, random_state=0)
    X = X.astype(dtype)
    ours = LpDictionaryLearning(random_state=0, **options).fit(on_card(X))
    theirs = LpDictionaryLearning(random_state=0, **options).fit(X)
    assert ours.components_.is_cuda
    assert ours.components_.dtype == getattr(torch, dtype)
    A = to_numpy(ours.components_).astype(np.float64)
    if not options.get("whiten"):
        np.testing.assert_allclose(A @ A.T, np.eye(24), atol=1e-6 if dtype == "float32" else 1e-12)
        errors = [recovery_error(found, dictionary) for found in (A, theirs.components_)]
        assert errors[0] == pytest.approx(errors[1], rel=0.01, abs=1e-9 if dtype == "float64" else 1e-7)
    # Both maximise the same sums, but for rounding: a float32 entry is off by 6e-8, and by as much again, relative to
    # the curvature, is each sum that turns it; the 24 of an atom make 3e-7. A last step of Newton leaves less than a
    # quarter of its length, one of ten times that length having come before.
    rounding = 1e-6 if dtype == "float32" else 1e-9
    steps = ours.history_[-1].step + theirs.history_[-1].step
    # The host rounds codes to half an octave, so laws differ by up to 3 %. A law that is off biases nothing; it moves
    # the maximum by about such a share of the error bar; measured on a card: 5 %.
    laws = 0.0 if theirs.refined_ is None else 0.1 * np.sqrt(theirs.expected_error_ / 2)
    B = theirs.components_.astype(np.float64)
    match = match_atoms(A, B)
    assert sorted(match.indices) == list(range(24))
    apart = A - match.signs[:, None] * B[match.indices]
    assert np.sqrt(np.mean(np.sum(apart**2, axis=1))) <= rounding + steps / 4 + laws
    assert ours.noise_std_ == pytest.approx(theirs.noise_std_, rel=0.02, abs=1e-5)
    np.testing.assert_allclose(to_numpy(ours.density_), theirs.density_, rtol=0.1)


@pytest.mark.parametrize("noise_std", [0.0, 0.3])
def test_fault_17_twice_the_same_fit_is_the_same_to_the_last_bit(noise_std):
    X, _, _ = make_bernoulli_gaussian(20_000, 24, density=0.3, noise_std=noise_std, random_state=0)
    X = on_card(X.astype(np.float32))
    first, second = (LpDictionaryLearning(random_state=0).fit(X) for _ in range(2))
    assert torch.equal(first.components_, second.components_)
    assert first.noise_std_ == second.noise_std_
    assert first.expected_error_ == second.expected_error_


def test_settings_of_torch_and_samples_are_left_alone():
    X, _, _ = make_bernoulli_gaussian(20_000, 24, density=0.3, random_state=0)
    X = on_card(X.astype(np.float32))
    before = X.clone()
    for setting in ("highest", "high"):
        torch.set_float32_matmul_precision(setting)
        stream = torch.cuda.current_stream()
        LpDictionaryLearning(random_state=0).fit(X)
        assert torch.get_float32_matmul_precision() == setting
        assert torch.cuda.current_stream() == stream
    torch.set_float32_matmul_precision("highest")
    assert torch.equal(X, before)


@pytest.mark.parametrize("noise_std", [0.0, 0.3])
def test_a_checkpoint_changes_nothing_on_a_card(noise_std, tmp_path):
    X, _, _ = make_bernoulli_gaussian(20_000, 24, density=0.3, noise_std=noise_std, random_state=0)
    X = on_card(X.astype(np.float32))
    plain = LpDictionaryLearning(random_state=0).fit(X)
    recorded = LpDictionaryLearning(random_state=0).fit(X, checkpoint=tmp_path / "checkpoint")
    assert torch.equal(plain.components_, recorded.components_)
    resumed = LpDictionaryLearning(random_state=0).fit(X, checkpoint=tmp_path / "checkpoint", resume=True)
    assert torch.equal(plain.components_, resumed.components_)
