"""Sources of any law that is not Gaussian: the sign of an atom, the law of its codes, and what follows from both."""

import math
import warnings

import dask.array as da
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from elldict import LpDictionaryLearning, LpICA
from elldict._old.data.dataset import ArrayDataset
from elldict._old.data.statistics import compute_statistics
from elldict._old.data.whitening import Whitening
from elldict._old.solver import mixture
from elldict._old.solver.directions import polar, random_orthonormal
from elldict._old.solver.evaluate import evaluate, sign_secondary
from elldict._old.solver.mixture import N_BINS, count_bins, find_skewed, fit_mixture, make_components
from elldict._old.solver.objective import Lp, Quantities, WithSecondary, compute_derivatives
from elldict._old.solver.spike_slab import SpikeSlab, SpikeSlabLikelihood
from elldict._old.theory.error_bars import (
    CodeMoments,
    choose_signs,
    find_gaussian,
    gaussian_value,
    kappa_variance,
    score_kappa,
)
from elldict.metrics import match_atoms, recovery_error
from tests._old.helpers import KINDS, draw, mix

ALL = Quantities.GRADIENT | Quantities.MOMENTS


def contrast(Z, p):
    """What l_p sums up: |z|^p, or what is the larger the smaller the smoothed norm is."""
    return np.abs(Z) ** p if p > 2 else p / 2 * Z**2 + 1 - (Z**2 + 1) ** (p / 2)


@pytest.fixture(scope="module")
def mixed():
    return mix(KINDS, 8000, 0)


def prepare(X, *, whiten):
    samples = ArrayDataset(X)
    statistics = compute_statistics(samples, center=False, precise=True)
    return samples, Whitening.of(statistics, center=False, whiten=whiten)


@pytest.mark.parametrize("p", [2.5, 3, 4])
def test_kappa_of_gaussian_codes_has_the_variance_that_signs_are_judged_by(p):
    """Of 4000 kappas the variance is known to 2 / sqrt(2 * 4000) = 2.2 %, one standard error; 4 of them are allowed."""
    r, z = 400, np.random.default_rng(0).standard_normal((400, 4000))
    size = np.abs(z)
    kappa = np.mean(size**p, axis=0) - (p - 1) * np.mean(z**2, axis=0) * np.mean(size ** (p - 2), axis=0)
    assert np.var(kappa) * r == pytest.approx(kappa_variance(p), rel=0.09 + 0.02 * p)  # and terms of order 1/r


@pytest.mark.parametrize("p", [0.5, 1, 1.5, 3])
def test_scores_of_gaussian_codes_are_standard_normal_whatever_their_variance(p):
    """4000 for each variance: their own variance is known to 2.2 %; 4 of these, and 5 % for terms of order 1/r."""
    variances = np.array([0.02, 0.2, 1.0, 5.0, 50.0])
    z = np.random.default_rng(0).standard_normal((1000, 4000))
    for v in variances:
        g, slope = compute_derivatives(Lp(p), math.sqrt(v) * z)
        moments = CodeMoments(*(np.mean(x, axis=0) for x in (g * math.sqrt(v) * z, g * g, slope, v * z * z)))
        scores = score_kappa(moments, 1000, p)
        assert np.var(scores) == pytest.approx(1, abs=0.14)
        assert abs(np.mean(scores)) < 0.1  # 1 / sqrt(4000), and the bias of order 1 / sqrt(r)


@pytest.mark.parametrize("p", [0.5, 1, 1.5, 3])
@pytest.mark.parametrize("kind", ["uniform", "binary", "sine", "laplace", "sparse"])
def test_an_atom_has_the_sign_of_its_kappa(kind, p):
    z = draw(kind, 4000, np.random.default_rng(0))[:, None]
    g, slope = compute_derivatives(Lp(p), z)
    moments = CodeMoments(*(np.mean(x, axis=0) for x in (g * z, g * g, slope, z * z)))
    assert choose_signs(moments, 4000, p)[0] == (1 if kind in ("laplace", "sparse") else -1)


@pytest.mark.parametrize("in_doubt", [1.0, -1.0])
def test_atoms_in_doubt_take_the_sign_of_each_other_or_the_one_they_are_given(in_doubt):
    """Scores of -1 are in doubt one by one; of 50 atoms together they are not."""
    error = math.sqrt(kappa_variance(3) / 1000)
    for m, signs in ((1, in_doubt), (50, -1.0)):
        ones = np.ones(m)
        moments = CodeMoments(gz=2 * ones - error, g2=ones, slope=2 * ones, z2=ones)
        np.testing.assert_array_equal(choose_signs(moments, 1000, 3, in_doubt), signs * ones)


def test_few_gaussian_atoms_are_told_by_a_lower_score_than_many():
    """The largest score of chance among two directions is far below that among forty."""
    assert np.sum(find_gaussian(np.r_[np.full(38, 50.0), 2.0, 2.0], 40)) == 2
    assert np.sum(find_gaussian(np.r_[np.full(38, 50.0), 6.0, 6.0], 40)) == 0
    assert np.sum(find_gaussian(np.full(40, 6.0), 40)) == 40


@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("whiten", [True, False])
def test_the_gradient_of_signed_l_p_is_its_derivative_but_for_what_no_rotation_changes(mixed, whiten, p):
    """Along the angle of two atoms, that of sum_i s_i E F(z_i) / p + c_i E z_i^2 / 2, with c as it is at A."""
    X, dictionary, _ = mixed
    samples, whitening = prepare(X, whiten=whiten)
    A = dictionary if not whiten else np.linalg.qr(whitening.to_white @ dictionary.T)[0].T
    here = evaluate(samples, whitening, Lp(p, signed=True), A, ALL, "float64")
    assert 0 < here.n_negative < 12
    plain = evaluate(samples, whitening, Lp(p), A, ALL, "float64")
    c = (1 - here.signs) * plain.gz / plain.z2
    Y, h = whitening.whiten(X), 1e-5

    def value(first, second, angle):
        moved = A.copy()
        moved[first] = math.cos(angle) * A[first] + math.sin(angle) * A[second]
        moved[second] = math.cos(angle) * A[second] - math.sin(angle) * A[first]
        Z = Y @ moved.T
        return np.sum(here.signs * np.sum(contrast(Z, p), axis=0) / p + c * np.sum(Z**2, axis=0) / 2)

    C = here.G @ A.T
    for first, second in ((0, 1), (0, 4), (0, 6), (6, 10), (4, 11)):
        rise = (value(first, second, h) - value(first, second, -h)) / (2 * h)
        assert C[first, second] - C[second, first] == pytest.approx(rise, abs=1e-5 * len(X))


@pytest.mark.parametrize("p", [1, 3])
def test_signed_statistics_are_those_of_the_derivatives_code_by_code(mixed, p):
    """Sums of g z, g^2 and slope over all codes, with g mirrored at its linear part for negative atoms."""
    X, dictionary, _ = mixed
    samples, whitening = prepare(X, whiten=False)
    stats = evaluate(samples, whitening, Lp(p, signed=True), dictionary, ALL, "float64")
    Z = whitening.whiten(X) @ dictionary.T
    g, slope = compute_derivatives(Lp(p), Z, stats.signs)
    for ours, theirs in ((stats.gz, g * Z), (stats.g2, g * g), (stats.slope, slope)):
        np.testing.assert_allclose(ours, np.sum(theirs, axis=0), rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(np.sum(stats.G * dictionary, axis=1), stats.gz, rtol=1e-9)


@pytest.mark.parametrize("quantities", [ALL, Quantities.MOMENTS])
@pytest.mark.parametrize("p", [0.5, 1, 3])
def test_l_p_beside_another_objective_is_what_it_is_alone(mixed, p, quantities):
    X, dictionary, _ = mixed
    samples, whitening = prepare(X, whiten=False)
    law = SpikeSlab(np.full(12, 0.3), np.full(12, 3.0), 0.1)
    both = WithSecondary(SpikeSlabLikelihood(law), Lp(p, signed=True))
    stats = evaluate(samples, whitening, both, dictionary, quantities, "float64")
    stats = sign_secondary(stats, whitening, both, dictionary)
    alone = evaluate(samples, whitening, Lp(p, signed=True), dictionary, quantities, "float64")
    beside = stats.of_secondary()
    for name in ("value", "gz", "slope", "g2", "signs"):
        np.testing.assert_allclose(getattr(beside, name), getattr(alone, name), rtol=1e-9, atol=1e-6)
    if quantities == ALL:
        np.testing.assert_allclose(stats.secondary, alone.G, rtol=1e-9, atol=1e-6)
    Z = whitening.whiten(X) @ dictionary.T
    crossed = np.sum(compute_derivatives(Lp(p), Z, alone.signs)[0] * compute_derivatives(both.primary, Z)[0], axis=0)
    np.testing.assert_allclose(stats.extra["cross"], crossed, rtol=1e-9)


@pytest.mark.parametrize(
    ("kind", "sign"), [("laplace", 1), ("uniform", -1), ("binary", -1), ("gaussian", 1), ("exponential", 1)]
)
def test_a_mixture_is_a_density_and_close_to_that_of_its_codes(kind, sign):
    """Its weights and its integral are one, and its mean log density is that of the best Gaussian or better."""
    z = draw(kind, 4000, np.random.default_rng(0))
    law = fit_mixture(z[:, None], np.array([float(sign)]))
    density = law.weights[0] @ make_components().q
    u = np.linspace(-1, 1, N_BINS + 1)[1:-1]
    edges = np.r_[-np.inf, u / (1 - np.abs(u)), np.inf]
    assert np.sum(law.weights) == pytest.approx(1)
    assert np.sum(density[1:-1] * np.diff(edges)[1:-1]) == pytest.approx(1, abs=2e-3)  # the outermost bins have no end
    bins = np.searchsorted(edges, z / law.std[0]) - 1
    gain = np.mean(np.log(density[bins])) - (-0.5 * math.log(2 * math.pi * math.e))
    # entropy of a Gaussian less that of the law, nats; binary codes: a Gaussian of standard deviation .1 about each
    expected = {"laplace": 0.072, "uniform": 0.176, "gaussian": 0.0, "binary": math.log(10 / 2), "exponential": 0.419}
    expected = expected[kind]
    short = 0.13 if kind == "exponential" else 0.03  # the density of exponential codes has a jump
    assert expected - short < gain < expected + 0.5 * (kind == "binary") + 0.02


def test_skewed_codes_are_told_from_symmetric_ones():
    """By chi^2 of 16 bins, which exceeds 5 standard deviations of chance once in some ten thousand atoms."""
    rng = np.random.default_rng(0)
    symmetric = np.column_stack([draw(kind, 3000, rng) for kind in KINDS * 20])
    skewed = np.column_stack([draw("exponential", 3000, rng) + 0.5 * rng.standard_normal(3000) for _ in range(20)])
    assert not np.any(find_skewed(count_bins(symmetric, np.std(symmetric, axis=0))))
    assert np.all(find_skewed(count_bins(skewed, np.std(skewed, axis=0))))


def test_a_skewed_law_finds_skewed_sources_better_than_a_symmetric_one(monkeypatch):
    """Exponential codes have a fifth of the error: their density has a jump, which a symmetric law does not know."""
    X, dictionary, _ = mix(["exponential"] * 8, 8000, 0)

    def measure():
        model = LpICA(refine="mixture", random_state=0).fit(X)
        rows = model.components_ / np.linalg.norm(model.components_, axis=1, keepdims=True)
        return 2 * np.mean(1 - match_atoms(polar(rows), dictionary).cosines ** 2)

    skewed = measure()
    monkeypatch.setattr(mixture, "find_skewed", lambda count: np.zeros(len(count), dtype=bool))
    assert skewed < 0.4 * measure()


@pytest.mark.parametrize("options", [{}, {"whiten": True}, {"center": True, "whiten": True, "n_init": 2}])
def test_sources_of_every_law_are_found_at_the_error_that_is_stated(options):
    """Over five seeds the mean error is known to about 15 %: 12 atoms, each the sum of 11 squares."""
    errors, stated = [], []
    for seed in range(5):
        X, dictionary, _ = mix(KINDS, 8000, seed)
        model = LpDictionaryLearning(random_state=seed, **options).fit(X)  # a warning would be an error
        cosines = match_atoms(model.components_, dictionary).cosines
        assert np.min(cosines) > 0.99
        errors.append(2 * np.mean(1 - cosines**2))
        stated.append(model.expected_error_)
        assert model.refined_ == "mixture"
        assert model.converged_
    assert np.mean(stated) / 1.7 < np.mean(errors) < 1.7 * np.mean(stated)


@pytest.mark.parametrize("p", [0.5, 1, 1.5, (3, 1)])
@pytest.mark.parametrize("whiten", [False, True])
def test_below_2_sources_of_every_law_are_found_at_the_error_that_is_stated(p, whiten):
    """By l_p alone, whose answer a refinement would hide; the spread is that of the test above."""
    errors, stated = [], []
    for seed in range(5):
        X, dictionary, _ = mix([*KINDS, "gaussian"], 8000, seed)
        model = LpDictionaryLearning(random_state=seed, p=p, whiten=whiten, refine=None).fit(X)
        cosines = match_atoms(model.components_, dictionary).cosines
        assert np.min(cosines) > 0.98
        errors.append(2 * np.mean(1 - cosines**2))
        stated.append(model.expected_error_)
    assert np.mean(stated) / 1.7 < np.mean(errors) < 1.7 * np.mean(stated)


@pytest.mark.parametrize("p", [3, 1])
def test_many_less_sparse_sources_among_sparse_ones_are_found(p):
    """Their mixtures look Gaussian to l_p, which climbs to such mixtures unless their sign is negative."""
    X, dictionary, _ = mix(["laplace"] * 8 + ["uniform"] * 24, 8000, 0)
    model = LpDictionaryLearning(p=p, random_state=0).fit(X)
    assert recovery_error(model.components_, dictionary) < 0.01


@pytest.mark.parametrize("p", [0.5, 1, 3])
def test_order_and_objective_count_how_far_codes_are_from_gaussian(mixed, p):
    X, _, _ = mixed
    model = LpDictionaryLearning(p=p, random_state=0).fit(X)
    scale = 1 / math.sqrt(np.mean(X**2))
    moment = np.mean(contrast(scale * model.transform(X), p), axis=0)
    gamma = quad(lambda x: 2 * contrast(x, p) * norm.pdf(x), 0, np.inf)[0]
    assert gaussian_value(p) == pytest.approx(gamma, rel=1e-8)
    counted = np.where(moment > gamma, moment, 2 * gamma - moment)  # of each of these sources on the side of its sign
    assert np.all(np.diff(counted) <= 1e-12)
    assert model.objective_ == pytest.approx(np.mean(counted))


@pytest.mark.parametrize("p", [0.5, 1, 3])
def test_strong_atoms_come_first_and_are_found_first(p):
    """Atoms that differ in strength alone, not whitened: sorted, and few that are sought are of the stronger half."""
    rng = np.random.default_rng(0)
    strengths, dictionary = np.geomspace(1, 3, 12), random_orthonormal(12, 12, rng)
    X = (rng.standard_normal((8000, 12)) * (rng.random((8000, 12)) < 0.2)) * strengths @ dictionary
    for m in (12, 4):
        model = LpDictionaryLearning(m, p=p, refine=None, random_state=0).fit(X)
        found = match_atoms(model.components_, dictionary).indices
        assert np.all(np.diff(found) < 0)
        assert len(found) == 12 or np.min(found) >= 6


def test_a_less_sparse_code_is_never_zero(mixed):
    X, dictionary, _ = mixed
    model = LpDictionaryLearning(random_state=0).fit(X)
    order = np.argsort(match_atoms(model.components_, dictionary).indices)
    np.testing.assert_allclose(model.density_[order[:6]], 1)
    np.testing.assert_allclose(model.scale_[order[:6]], 1, atol=0.05)
    assert np.all(model.density_[order[10:]] < 0.6)
    assert np.isfinite(model.score(X))


@pytest.mark.parametrize("source", ["npy", "dask", "float32", "batches"])
def test_every_source_finds_them(mixed, source, tmp_path):
    X, dictionary, _ = mixed
    here = LpDictionaryLearning(random_state=0, whiten=True).fit(X)
    model = LpDictionaryLearning(random_state=0, whiten=True)
    if source == "batches":
        for part in np.array_split(X, 10):
            model.partial_fit(part)
        assert model.refined_ == "mixture"
        assert model.n_samples_seen_ == len(X)
        assert np.min(match_atoms(model.components_, dictionary).cosines) > 0.99
        return
    np.save(tmp_path / "X.npy", X)
    given = {"npy": str(tmp_path / "X.npy"), "dask": da.from_array(X, chunks=(1000, 12))}
    model.fit(given.get(source, X.astype("float32")))
    tolerance = 2e-3 if source == "float32" else 1e-10
    np.testing.assert_allclose(model.components_, here.components_, atol=tolerance)


def test_a_mixture_can_be_asked_for_and_is_no_worse_than_l_p_on_laplace_sources():
    """The variance of an angle is that of g over the squared curvature: a third of that of p = 3 for the true law."""
    X, dictionary, _ = mix(["laplace"] * 10, 8000, 0)
    by_lp, by_law = (LpDictionaryLearning(refine=refine, random_state=0).fit(X) for refine in (None, "mixture"))
    assert by_law.refined_ == "mixture"
    assert by_law.status_.endswith("refined: as asked")
    assert recovery_error(by_law.components_, dictionary) < 0.6 * recovery_error(by_lp.components_, dictionary)


def test_the_power_method_does_not_seek_them(mixed):
    X, dictionary, _ = mixed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LpDictionaryLearning(solver="power", refine=None, random_state=0).fit(X)
    assert np.min(np.max(np.abs(model.components_ @ dictionary.T), axis=0)) < 0.95
