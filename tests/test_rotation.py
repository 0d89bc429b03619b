"""Rotation of loadings: criteria and derivatives, global maxima, invariances, stored values of other software."""

import itertools

import numpy as np
import pandas
import pytest
import scipy.linalg
import scipy.optimize
from sklearn.utils.estimator_checks import parametrize_with_checks

from elldict.exceptions import NotIdentifiableWarning, RankWarning
from elldict.rotation.criteria import evaluate, make_criterion
from elldict.rotation.rotator import Rotator, rotate
from elldict.rotation.search import ascend
from elldict.samples.arrays import ArraySamples
from elldict.solver.evaluate import Angles
from elldict.solver.steps import rotate as rotate_rows
from tests.fits import draw_atoms, draw_loadings

CRITERIA = ["varimax", "quartimax", "biquartimax", "equamax", "parsimax", 3, 1.0]

HARMAN = np.array(  # eight physical variables of 305 girls (Harman 1976), two factors before rotation
    [
        [0.856, 0.848, 0.808, 0.831, 0.750, 0.631, 0.569, 0.607],
        [-0.324, -0.412, -0.409, -0.342, 0.571, 0.492, 0.510, 0.351],
    ]
).T


def normalize(L):
    lengths = np.linalg.norm(L, axis=1, keepdims=True)
    return L / np.where(lengths > 0, lengths, 1)


def compute_criterion(Z, criterion):
    """The criterion from its definition; for p < 2 loadings are in units of their root mean square."""
    p, k = Z.shape
    if isinstance(criterion, (int, float)):
        return (
            np.sum(np.abs(Z) ** criterion) if criterion > 2 else -np.sum((Z**2 / np.mean(Z**2) + 1) ** (criterion / 2))
        )
    gammas = {"varimax": 1, "quartimax": 0, "biquartimax": 0.5, "equamax": k / 2, "parsimax": p * (k - 1) / (p + k - 2)}
    return np.sum(Z**4) - gammas[criterion] / p * np.sum(np.sum(Z**2, axis=0) ** 2)


def evaluate_at(L, A, criterion):
    rows = L / np.sqrt(np.mean(L**2))
    return evaluate(ArraySamples(rows), A, make_criterion(criterion, *L.shape), rows.T @ rows / len(rows))


def make_angles(pair, angle, k):
    W = np.zeros((k, k))
    W[pair], W[pair[::-1]] = angle, -angle
    return W


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
def test_evaluate_matches_finite_differences_of_the_definition(criterion):
    L, A, h = draw_loadings(50, 3), draw_atoms(3, 1), 1e-5
    at, scale = evaluate_at(L, A, criterion), np.sqrt(np.mean(L**2))

    def value(pair, angle):
        return compute_criterion(L @ rotate_rows(A, make_angles(pair, angle, 3)).T / scale, criterion) / len(L)

    assert at.value == pytest.approx(value((0, 1), 0), rel=1e-12)
    for pair in [(0, 1), (0, 2), (1, 2)]:
        assert at.slope[pair] == pytest.approx((value(pair, h) - value(pair, -h)) / (2 * h), rel=1e-6, abs=1e-9)
        assert at.slope[pair[::-1]] == -at.slope[pair]


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
def test_curvature_of_independent_factors_is_minus_the_second_derivative(criterion):
    """All combinations of a few values are independent; their means are not zero, which correlates the factors."""
    values, h = [[0.1, 0.0, 0.2, 2.1], [0.2, -0.1, 0.0, 1.7], [0.0, 0.1, 1.9, 0.3]], 1e-3
    L, scale = np.array(list(itertools.product(*values))), np.sqrt(np.mean(np.square(values)))
    at = evaluate_at(L, np.eye(3), criterion)
    for pair in [(0, 1), (0, 2), (1, 2)]:
        W = [make_angles(pair, angle, 3) for angle in (h, 0.0, -h)]
        up, here, down = (compute_criterion(L @ rotate_rows(np.eye(3), w).T / scale, criterion) / len(L) for w in W)
        assert at.curvature[pair] == pytest.approx(abs(up - 2 * here + down) / h**2, rel=1e-3)


def search_all(L, criterion):
    """Maximise over rotations: the best of a grid of angles, polished without derivatives."""
    k = L.shape[1]
    pairs = list(itertools.combinations(range(k), 2))

    def lose(angles):
        T = np.eye(k)
        for pair, angle in zip(pairs, angles, strict=True):
            T = T @ scipy.linalg.expm(make_angles(pair, angle, k))
        return -compute_criterion(L @ T, criterion)

    grid = itertools.product(np.linspace(0, np.pi, 200 if k == 2 else 12), repeat=len(pairs))
    best = sorted(grid, key=lose)[:3]
    options = {"xatol": 1e-9, "fatol": 1e-15, "maxfev": 2000}
    return max(-scipy.optimize.minimize(lose, x, method="Nelder-Mead", options=options).fun for x in best)


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
@pytest.mark.parametrize("L", [HARMAN, draw_loadings(20, 3, noise=0.4)], ids=["two factors", "three factors"])
def test_rotate_finds_the_maximum_over_all_angles(L, criterion):
    found, best = rotate(L, criterion, normalize=False, random_state=0), search_all(L, criterion)
    assert found.criterion == pytest.approx(best, rel=1e-9)
    assert found.criterion == pytest.approx(compute_criterion(found.loadings, criterion), rel=1e-12)
    assert found.converged


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
def test_rotate_does_not_depend_on_rotation_order_signs_or_units(criterion):
    """Each ends within its tolerance of 1e-5 radians, times a few for the last step; columns are up to 30 long."""
    L, rng = draw_loadings(), np.random.default_rng(5)
    first, order = rotate(L, criterion, random_state=0, standard_errors=False).loadings, rng.permutation(len(L))
    others = {
        "rotated": (L @ draw_atoms(4, 7), lambda Z: Z),
        "rows": (L[order], lambda Z: Z[np.argsort(order)]),
        "columns": (L[:, [2, 0, 3, 1]] * [1, -1, -1, 1], lambda Z: Z),
        "units": (1e-50 * L, lambda Z: 1e50 * Z),
    }
    for seed, (name, (changed, undo)) in enumerate(others.items()):
        found = rotate(changed, criterion, random_state=seed, standard_errors=False)
        np.testing.assert_allclose(undo(found.loadings), first, atol=1e-4, err_msg=name)


def test_rotate_sorts_factors_by_size_with_positive_cubes():
    L = draw_loadings()
    found = rotate(L, random_state=0)
    np.testing.assert_allclose(found.loadings, L @ found.rotation, atol=1e-12)
    np.testing.assert_allclose(found.rotation.T @ found.rotation, np.eye(4), atol=1e-12)
    assert np.all(np.diff(np.sum(found.loadings**2, axis=0)) < 0)
    assert np.all(np.sum(found.loadings**3, axis=0) > 0)
    orthonormal = np.linalg.qr(L)[0]  # factors of equal size, sorted by their fourth powers
    for criterion in ("varimax", "quartimax"):  # which differ by a constant here
        Z = rotate(orthonormal, criterion, normalize=False, random_state=0).loadings
        assert np.all(np.diff(np.sum(Z**4, axis=0)) < 0)


def test_normalize_ignores_the_lengths_of_rows_and_rows_of_zeros():
    L, lengths = draw_loadings(), np.random.default_rng(1).uniform(0.1, 10, (300, 1))
    one, other = (rotate(X, random_state=0) for X in (normalize(L), lengths * L))
    assert one.criterion == pytest.approx(other.criterion, rel=1e-12)
    closeness = np.abs(one.rotation.T @ other.rotation)  # the order may differ
    np.testing.assert_allclose(np.max(closeness, axis=0), 1, atol=1e-9)
    L[[3, 17]] = 0
    kept, found = np.delete(L, [3, 17], axis=0), rotate(L, "quartimax", random_state=0)
    np.testing.assert_array_equal(found.loadings[[3, 17]], 0)
    np.testing.assert_array_equal(found.standard_errors[[3, 17]], 0)
    np.testing.assert_allclose(
        rotate(kept, "quartimax", random_state=0).loadings, np.delete(found.loadings, [3, 17], axis=0), atol=1e-5
    )


def test_more_starts_are_not_worse():
    L = np.random.default_rng(6).standard_normal((30, 8))  # without structure: many maxima
    few, many = (rotate(L, n_init=n, random_state=0, standard_errors=False) for n in (1, 10))
    assert many.criterion == np.max(many.criteria) >= few.criterion == many.criteria[0]
    assert np.argmax(many.criteria) > 0  # not the first start
    assert many.criterion == pytest.approx(compute_criterion(normalize(many.loadings), "varimax"), rel=1e-12)


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
def test_tol_is_the_distance_to_the_maximum_in_standard_errors(criterion):
    near, best = (rotate(draw_loadings(), criterion, n_init=1, tol=tol) for tol in (0.1, 1e-6))
    assert near.n_iter < best.n_iter
    assert np.sqrt(np.mean(((near.loadings - best.loadings) / best.standard_errors) ** 2)) < 0.1


def test_ascend_without_a_rise_ends_where_it_began():
    """A slope that no step follows: the value is higher at the start than anywhere else."""
    start, slope = draw_atoms(4), make_angles((0, 1), 0.1, 4)
    end = ascend(start, lambda A: Angles(float(A is start), slope, np.ones((4, 4)), 0 * slope), 100, 1e-3)
    assert end.converged
    assert end.value == 1
    np.testing.assert_array_equal(end.A, start)


def test_many_factors_have_no_errors_over_rows():
    L = draw_loadings(3000, 50)
    found = rotate(L, n_init=1)
    assert found.standard_errors is found.error_source is None
    assert found.criterion == pytest.approx(compute_criterion(normalize(found.loadings), "varimax"), rel=1e-12)


def test_one_factor_and_empty_factors_are_finite():
    column = -np.abs(draw_loadings()[:, :1])
    found = rotate(column)
    np.testing.assert_array_equal(found.loadings, -column)
    np.testing.assert_array_equal(found.standard_errors, np.zeros_like(column))
    padded = np.hstack([draw_loadings(100, 3), np.zeros((100, 2))])
    one, other = rotate(padded, random_state=0), rotate(padded @ draw_atoms(5), random_state=1)
    assert one.converged
    assert np.all(np.isfinite(one.standard_errors))
    assert one.criterion == pytest.approx(other.criterion, rel=1e-6)


def test_loadings_of_other_kinds_are_read_without_being_written_to():
    L = HARMAN.astype(np.float32)
    L.flags.writeable = False
    expected = rotate(L.astype(np.float64), random_state=0).loadings
    torch = pytest.importorskip("torch")
    for X in (L, L.tolist(), torch.tensor(HARMAN, dtype=torch.float32), pandas.DataFrame(L)):
        np.testing.assert_array_equal(rotate(X, random_state=0).loadings, expected)
    with pytest.raises(TypeError, match="Got a str: load it first"):
        rotate("loadings.npy")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"criterion": "promax"}, r"criterion must be 'varimax'.*Got 'promax'"),
        ({"criterion": 2}, "other than 2"),
        ({"tol": 0}, "'tol' parameter must be a float"),
        ({"bootstrap_loadings": np.ones((50, 2, 8))}, r"in the shape \(B, 8, 2\).*Its shape is \(50, 2, 8\)"),
        ({"bootstrap_loadings": np.ones((5, 8, 2))}, "B >= 20"),
    ],
)
def test_wrong_arguments_are_refused_with_what_was_expected(arguments, message):
    with pytest.raises(ValueError, match=message):
        rotate(HARMAN, **arguments)


def test_wrong_loadings_are_refused_or_warned_of():
    L = draw_loadings()
    L[17, 2] = np.nan
    with pytest.raises(ValueError, match=r"NaN.*17.*2"):
        rotate(L)
    with pytest.raises(ValueError, match="All loadings are zero"):
        rotate(np.zeros((5, 2)))
    with pytest.warns(UserWarning, match="did not converge within max_iter=1"):
        rotate(draw_loadings(), max_iter=1, n_init=1)
    with pytest.warns(RankWarning, match="2 rows and 8 columns.*transpose"):
        rotate(HARMAN.T, standard_errors=False)


@pytest.mark.parametrize("source", ["rows", "observations"])
@pytest.mark.parametrize("noise", [0.03, 0.0])
def test_factors_without_preferred_rotation_are_named(source, noise):
    """Loadings on two factors lie on a circle, at all angles. A third factor has rows of its own."""
    angles, rng = 2 * np.pi * np.arange(45) / 45, np.random.default_rng(13)
    L = np.zeros((75, 3))
    L[:30, 0], L[30:, 1], L[30:, 2] = 1.0, 0.7 * np.cos(angles), 0.7 * np.sin(angles)
    L += noise * rng.standard_normal(L.shape)
    draws = L + 0.2 * rng.standard_normal((200, *L.shape)) if source == "observations" else None
    with pytest.warns(NotIdentifiableWarning, match=f"Factors 2 and 3 cannot be distinguished.*over {source}"):
        rotate(L, random_state=0, bootstrap_loadings=draws)


def test_summary_has_names_errors_communalities_and_blanks():
    names = ["height", "arm span", "forearm", "lower leg", "weight", "hips", "chest girth", "chest width"]
    found = rotate(pandas.DataFrame(HARMAN * [1, -1], index=names), random_state=0)
    L, error = found.loadings[1], found.standard_errors[1]
    row = next(line for line in str(found).splitlines() if line.startswith("arm span"))
    assert row.split() == ["arm", "span", f"{L[0]:.2f}", f"({error[0]:.2f})", f"{np.sum(L**2):.2f}"]
    shares = np.sum(found.loadings**2, axis=0) / 8
    assert str(found).split()[-5:] == ["per", "variable", *(f"{share:.2f}" for share in (*shares, shares.sum()))]
    assert f"{L[1]:.2f} ({error[1]:.2f})" in found.summary(least=0)
    assert "-0." in rotate(np.vstack([HARMAN, -HARMAN[:2]])).summary()  # which are large
    with pytest.raises(ValueError, match="Got 3 instead"):
        found.summary(names[:3])


@pytest.mark.filterwarnings("ignore")  # the checks pass noise
@parametrize_with_checks([Rotator()])
def test_rotator_follows_the_conventions_of_scikit_learn(estimator, check):
    check(estimator)


def test_rotator_agrees_with_rotate():
    frame = pandas.DataFrame(HARMAN, index=list("abcdefgh"))
    rotator = Rotator("quartimax", n_init=2, random_state=0).set_output(transform="pandas")
    rotated, found = rotator.fit_transform(frame), rotate(HARMAN, "quartimax", n_init=2, random_state=0)
    assert list(rotated.columns) == ["rotator0", "rotator1"]
    np.testing.assert_array_equal(rotated, rotator.loadings_)
    np.testing.assert_array_equal(rotated, found.loadings)
    assert rotator.n_iter_ == found.n_iter
