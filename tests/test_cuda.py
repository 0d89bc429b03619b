"""On a graphics card: the same answers, by kernels, graphs and products of its own. Skips where there is no card."""

import numpy as np
import pytest

from elldict import LpDictionaryLearning
from elldict.datasets import make_bernoulli_gaussian
from elldict.kernels.fused import fused_terms
from elldict.kernels.generic import FreshWork
from elldict.metrics import match_atoms, recovery_error
from elldict.reproduction.methods import make_cell
from elldict.reproduction.tasks import run_cell
from elldict.solver import device_law
from elldict.solver.code_model import CodeModel, Counts, fit_code_model, followed_code_model
from elldict.solver.contrasts import BernoulliGaussian, Both, Lp
from elldict.solver.loop import distance
from elldict.solver.polar import polar, random_orthonormal
from elldict.solver.rest import mean_error
from elldict.solver.steps import PairwiseNewton
from elldict.solver.sums import Sums
from elldict.solver.terms import Needs, Tally
from elldict.solver.witnesses import Witnesses
from elldict.space import Space, to_numpy

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no card")]

MOMENTS = Needs.GRADIENT | Needs.MOMENTS


def on_card(array):
    return torch.asarray(np.array(array), device="cuda")


@pytest.fixture
def codes(rng):
    """Codes whose rows and columns fill no block."""
    active = rng.random((1237, 83)) < 0.3
    return np.where(active, rng.standard_normal((1237, 83)), 0.05 * rng.standard_normal((1237, 83)))


@pytest.fixture
def model(rng):
    return CodeModel(rng.uniform(0.1, 0.5, 83), rng.uniform(0.5, 2, 83), 0.0025, 1e-12)


def test_a_cell_of_the_reproduction_is_the_same_on_a_card():
    cell = make_cell("recovery", "lp", {"n_features": 20, "n_samples": 8000, "density": 0.3}, 0, {"p": 3})
    here, there = run_cell(cell, {})[0], run_cell(cell, {}, "cuda")[0]
    assert there["error"] == pytest.approx(here["error"], rel=1e-9)


def all_sums(contrast, Z, work):
    """Everything that a pass adds up of the terms of a contrast."""
    xp = Space.of(Z).xp
    terms = contrast.terms(Z, MOMENTS, work, xp)
    tally = Tally(work, int(Z.shape[0]))
    found = {
        "slope": tally(terms.slope),
        "g2": terms.gain**2 * tally((terms.g, terms.g) if terms.g2 is None else terms.g2),
    }
    found["z2"] = tally((Z, Z) if terms.z2 is None else terms.z2)
    if terms.value is not None:
        found["value"] = tally(terms.value)
    found |= {name: tally(term) for name, term in terms.extra.items()}
    arrays = {"g": terms.g} | ({} if terms.beside is None else {"beside": terms.beside})
    return arrays, found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("p", [2.5, 3.0, 4.0])
@pytest.mark.parametrize("which", ["lp", "likelihood", "both"])
def test_kernels_that_read_codes_once_agree_with_torch(codes, model, dtype, p, which):
    if fused_terms() is None:
        pytest.skip("no Triton")
    contrast = {"lp": Lp(p), "likelihood": BernoulliGaussian(model), "both": Both(BernoulliGaussian(model), Lp(p))}[
        which
    ]
    Z = on_card(codes.astype(dtype))
    fused = FreshWork()
    fused.fused = fused_terms()
    (ours, our_sums), (theirs, their_sums) = all_sums(contrast, Z, fused), all_sums(contrast, Z, FreshWork())
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
    squares, least = on_card((codes**2).T.copy()), on_card([1e-12])
    ours, theirs = device_law.fitted(squares, least).on_host(1e-12), fit_code_model(Counts.of(codes), least_noise=1e-12)
    np.testing.assert_allclose(ours.density, theirs.density, rtol=0.02)
    np.testing.assert_allclose(ours.power, theirs.power, rtol=0.02)
    assert ours.noise == pytest.approx(theirs.noise, rel=0.02)
    start = CodeModel(np.full(83, 0.2), np.full(83, 1.5), 0.01, 1e-12)
    law = device_law.followed(squares, device_law.DeviceLaw.of(start, Space.of(squares)), least).on_host(1e-12)
    followed = followed_code_model(Counts.of(codes), start)
    np.testing.assert_allclose(law.density, followed.density, rtol=0.03)
    assert law.noise == pytest.approx(followed.noise, rel=0.05)


@pytest.mark.parametrize("density", [0.3, 1.0])
def test_steps_and_error_bars_by_kernels_are_those_of_the_host(rng, density):
    m, r = 83, 1000
    A = random_orthonormal(m, m, rng)
    Z = rng.standard_normal((r, m)) * (rng.random((r, m)) < density)
    g = np.abs(Z) * Z
    vectors = {"slope": 2 * np.abs(Z).sum(0), "g2": (g**2).sum(0), "z2": (Z**2).sum(0), "gz": (g * Z).sum(0)}
    host, card = (
        Sums(float(r), G=move(g.T @ Z @ A), **{name: move(vector) for name, vector in vectors.items()})
        for move in (np.asarray, on_card)
    )
    step = PairwiseNewton(0.15)
    moved, expected = to_numpy(step._moved(card, on_card(A))[0]), step._moved(host, A)[0]
    np.testing.assert_allclose(moved, expected, atol=1e-6)
    turned = to_numpy(step(card, on_card(A)))
    np.testing.assert_allclose(turned @ turned.T, np.eye(m), atol=1e-12)
    assert float(mean_error(card)) == pytest.approx(float(mean_error(host)), rel=1e-6)


@pytest.mark.parametrize("moved", [0.0, 0.1])
@pytest.mark.parametrize("noise", [0.0025, 0.1])
def test_a_law_followed_in_a_recorded_walk_is_that_of_other_walks(codes, moved, noise):
    A, old = on_card(np.eye(83)), CodeModel(np.full(83, 0.3), np.full(83, 1.0), noise, 1e-12)
    witnesses, contrast = Witnesses(on_card(codes), 1e-12), BernoulliGaussian(old)
    refitted = witnesses.refit(contrast, A, moved)
    law, halves, others = (on_card(np.empty((rows, 83))) for rows in (3, 2, 4))
    squares = on_card(np.append(np.zeros(82), moved**2))
    packed = torch.stack(device_law.DeviceLaw.of(old, Space.of(law)).parts)
    same = witnesses.follow(A, packed, squares, law, (halves, others))
    assert bool(same) == (refitted is contrast)
    found = device_law.DeviceLaw(*law).on_host(1e-12)
    np.testing.assert_allclose(found.density, refitted.model.density, rtol=1e-9)
    assert found.noise == pytest.approx(refitted.model.noise, rel=1e-9)
    lines = refitted.lines(on_card(codes))
    for memory, rows in ((halves, (lines.offset, lines.rate)), (others, (lines.steep, lines.kept, lines.precision))):
        np.testing.assert_allclose(to_numpy(memory)[: len(rows)], np.stack(list(map(to_numpy, rows))), rtol=1e-8)


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
    "options", [{}, {"refine": None}, {"refine": None, "tol": 9e-7}, {"center": True, "whiten": True}]
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
    assert distance(A, match.signs[:, None] * B[match.indices]) <= rounding + steps / 4 + laws
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
