"""Passes over blocks of codes: compiled ones find what NumPy finds, for every shape, precision and memory order."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from elldict.solver import kernels
from elldict.solver.density import get_grid
from elldict.solver.kernels import SUB_BITS, count_bins, fit_weights, make_bin_centres

COMPILED = kernels.COMPILED
needs_compiled = pytest.mark.skipif(COMPILED is None, reason="the compiled kernels were not built")
IMPLEMENTATIONS = pytest.mark.parametrize("compiled", [pytest.param(True, marks=needs_compiled), False])

ROUNDING = {"float64": 1e-12, "float32": 2e-6}
"""Relative to the largest term. A code takes some ten operations, with errors of 1.1e-16 or 6e-8 each, and powers of a
few more; sums of up to 3000 terms, in another order, are in double precision: 3000 times 1.1e-16."""

DTYPES = pytest.mark.parametrize("dtype", ROUNDING)
UNIT = 0.03
CENTRES = make_bin_centres(UNIT, 60.0)


def in_numpy(function, *args, **options):
    """Call a function without the compiled module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "COMPILED", None)
        return function(*args, **options)


def draw_codes(b, m, dtype="float64", seed=0):
    """Sparse codes (b, m), zeros among them, stored by atom."""
    rng = np.random.default_rng(seed)
    return np.asfortranarray((rng.laplace(size=(b, m)) * (rng.random((b, m)) < 0.7)).astype(dtype))


def draw_weights(b):
    """Weights, zeros among them."""
    return np.maximum(np.random.default_rng(1).uniform(-1, 3, b), 0)


def make_tables(m):
    """Make random functions of m codes, with values of both signs."""
    return np.linspace(0.5, 2, m), UNIT, CENTRES, np.random.default_rng(2).standard_normal((3, m, len(CENTRES)))


def tabulate(Z, weights=None, **options):
    return kernels.tabulated(Z, *make_tables(Z.shape[1]), weights, **options)


def compute_power(p):
    def compute(Z, weights=None, **options):
        m = Z.shape[1]
        sign = np.where(np.arange(m) % 2, -1.0, 1.0)
        return kernels.signed_power(Z, np.linspace(0.5, 2, m), p, np.linspace(0, 3, m), sign, weights, **options)

    return compute


TERMS = {
    "smooth l_1": lambda Z, weights=None, **options: kernels.smooth_norm(Z, 1.3, 1.0, weights, **options),
    "smooth l_1/2": lambda Z, weights=None, **options: kernels.smooth_norm(Z, 0.7, 0.5, weights, **options),
    "smooth l_3/2": lambda Z, weights=None, **options: kernels.smooth_norm(Z, 1.3, 1.5, weights, **options),
    "l_3": compute_power(3.0),
    "l_4": compute_power(4.0),
    "l_2.5": compute_power(2.5),
    "tabulated": tabulate,
}


def check_terms(name, Z, weights=None):
    """Compare a function of codes with that of NumPy; without second derivatives, both are the same but for these."""
    before, rounding = Z.copy(), ROUNDING[str(Z.dtype)]
    ours, theirs = TERMS[name](Z, weights, second=True), in_numpy(TERMS[name], Z, weights, second=True)
    np.testing.assert_array_equal(Z, before)
    assert ours.g.dtype == ours.slope.dtype == theirs.g.dtype == theirs.slope.dtype == Z.dtype
    assert ours.g.shape == theirs.g.shape == ours.slope.shape == theirs.slope.shape == Z.shape
    for one, other in ((ours.g, theirs.g), (ours.slope, theirs.slope)):
        np.testing.assert_allclose(one, other, rtol=rounding, atol=rounding * np.max(np.abs(other), initial=1))
    scale = abs(theirs.value)
    if name == "tabulated":  # values of both signs add up to less than their sizes
        sizes = np.abs(kernels.look_up(Z, *make_tables(Z.shape[1]))[0])
        scale = np.sum(sizes if weights is None else weights[:, None] * sizes)
    np.testing.assert_allclose(ours.value, theirs.value, rtol=0, atol=rounding * scale)
    for first, both in ((TERMS[name](Z, weights), ours), (in_numpy(TERMS[name], Z, weights), theirs)):
        assert first.slope.shape == (0, 0)
        assert first.value == both.value
        np.testing.assert_array_equal(first.g, both.g)


def store_codes(Z, order):
    """Store codes in another way."""
    b, m = Z.shape
    if order == "by sample":
        return np.ascontiguousarray(Z)
    if order == "part of larger ones":  # the leading dimension is larger than the number of codes
        large = np.full((b + 7, m), np.nan, Z.dtype, order="F")
        large[3 : b + 3] = Z
        return large[3 : b + 3]
    if order == "every other":
        return np.repeat(Z, 2, axis=0)[::2]
    if order == "atoms reversed":
        return np.asfortranarray(Z[:, ::-1])[:, ::-1]
    Z = np.asfortranarray(Z)
    Z.setflags(write=order != "read-only")
    return Z


ORDERS = ["by atom", "by sample", "part of larger ones", "every other", "atoms reversed", "read-only"]


# --- which implementation ---------------------------------------------------------------------------------------------

SCRIPT = """
import json
import numpy as np
from elldict.atoms import Options
from elldict.fit import fit
from elldict.samples.arrays import ArraySamples
from elldict.solver import kernels
X = np.random.default_rng(0).laplace(size=(600, 4)) @ np.linalg.qr(np.random.default_rng(1).standard_normal((4, 4)))[0]
result = fit(ArraySamples(X), Options())
print(json.dumps([kernels.COMPILED is None, result.mixing.tolist(), result.component_errors.tolist()]))
"""


def test_compiled_module_is_used_where_it_was_built():
    built = [path for path in Path(kernels.__file__).parent.glob("_kernels*") if path.suffix in (".so", ".pyd")]
    assert (COMPILED is not None) == (bool(built) and os.environ.get(kernels.SWITCH) != "0")


def fit_in_a_process(value):
    environment = {**os.environ, kernels.SWITCH: value}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@needs_compiled
def test_environment_variable_selects_numpy_for_a_fit_with_the_same_atoms():
    (is_numpy, mixing, errors), (is_other_numpy, *other) = map(fit_in_a_process, "01")
    assert is_numpy
    assert not is_other_numpy
    # some twenty steps, each computed from sums that are rounded to 1e-13
    np.testing.assert_allclose(mixing, other[0], atol=1e-9)
    np.testing.assert_allclose(errors, other[1], rtol=1e-7)


def test_load_compiled_without_a_compiled_module_is_none(monkeypatch):
    def refuse(name):
        raise ImportError(name)

    monkeypatch.setattr(kernels.importlib, "import_module", refuse)
    assert kernels.load_compiled() is None


# --- values and derivatives -------------------------------------------------------------------------------------------


@needs_compiled
@DTYPES
@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("shape", "order"),
    [
        # shapes that fill no vector, and more than two of the chunks in which tables are read
        *(((b, m), "by atom") for b, m in ((1, 1), (1, 5), (2, 1), (13, 4), (511, 2), (512, 2), (513, 2), (1300, 3))),
        *(((300, 5), order) for order in ORDERS[1:]),
    ],
)
def test_terms_are_those_of_numpy(name, dtype, weighted, shape, order):
    check_terms(name, store_codes(draw_codes(*shape, dtype), order), draw_weights(shape[0]) if weighted else None)


@needs_compiled
@DTYPES
@pytest.mark.parametrize("name", TERMS)
def test_terms_of_zeros_and_of_large_and_small_codes_are_those_of_numpy(name, dtype):
    # powers of these are within the range of their precision: 1e9^4 and 1e75^4
    large = 1e9 if dtype == "float32" else 1e75
    Z = np.array([[0.0, large, -large, 1.0], [1 / large, -1 / large, 0.0, 1e3]]).T.astype(dtype)
    for codes in (Z, np.zeros_like(Z), Z[:1], Z[3:]):
        check_terms(name, codes)
        check_terms(name, codes, draw_weights(len(codes)) + 0.1)


@needs_compiled
@DTYPES
@pytest.mark.parametrize("p", [2.5, 3.0, 4.0, 7.0])
@pytest.mark.parametrize("order", ORDERS)
def test_power_moments_are_those_of_numpy(dtype, p, order):
    for b, m in ((1, 1), (1300, 3), (13, 5)):
        Z, std = store_codes(draw_codes(b, m, dtype), order), np.linspace(0.5, 2, m)
        for weights in (None, draw_weights(b)):
            ours, theirs = (call(kernels.power_moments, Z, std, p, weights) for call in (lambda f, *a: f(*a), in_numpy))
            assert ours.shape == theirs.shape == (2, m)
            assert ours.dtype == np.float64
            np.testing.assert_allclose(ours, theirs, rtol=ROUNDING[dtype], atol=1e-300)


# --- sums in double precision -----------------------------------------------------------------------------------------


@IMPLEMENTATIONS
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_of_many_single_codes_are_in_double_precision(monkeypatch, compiled, weighted):
    small, weight, std = np.float32(0.1), 0.1 if weighted else 1.0, np.ones(1)
    monkeypatch.setattr(kernels, "COMPILED", COMPILED if compiled else None)
    # one after the other in single precision, they are off in the third digit
    assert abs(np.cumsum(np.full(10**6, small))[-1] / (10**6 * float(small)) - 1) > 1e-3
    tables = np.full((3, 1, len(CENTRES)), 0.1)
    tables[1:] = 0

    def compute(n):
        codes, weights, part = np.full((n, 1), small), np.full(n, weight) if weighted else None, np.zeros(n, np.int8)
        return [
            -kernels.smooth_norm(codes, 1.0, 1.0, weights).value,
            kernels.signed_power(codes, std, 3.0, std, std, weights).value,
            *kernels.power_moments(codes, std, 3.0, weights)[:, 0],
            kernels.tabulated(codes, std, UNIT, CENTRES, tables, weights).value,
            np.sum(count_bins(codes, std, UNIT, len(CENTRES), part, weights)),
        ]

    # a term in single precision is rounded to 6e-8 a few times; a sum of a million equal ones by 1e-16 each time
    found = compute(10**6)
    np.testing.assert_allclose(found, 10**6 * weight * np.array([1.01**0.5, 1e-3, 0.1, 1e-3, 0.1, 1.0]), rtol=3e-7)
    np.testing.assert_allclose(found, 1000 * np.array(compute(1000)), rtol=1e-10)


# --- bins -------------------------------------------------------------------------------------------------------------


def find_edges(unit, furthest=60.0):
    """Inner edges of all bins on the right side, the first of which is zero, and every eighth begins an octave."""
    k = np.arange(len(make_bin_centres(unit, furthest)) // 2)
    return unit * (np.ldexp(1 + k % 2**SUB_BITS / 2**SUB_BITS, k // 2**SUB_BITS) - 1)


def draw_parts(b):
    return (np.random.default_rng(3).random(b) < 0.3).astype(np.int8)


@IMPLEMENTATIONS
@DTYPES
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("unit", [UNIT, 0.25])
def test_count_bins_keep_the_weight_and_the_mean_of_the_codes_of_each_part(
    monkeypatch, compiled, dtype, weighted, unit
):
    monkeypatch.setattr(kernels, "COMPILED", COMPILED if compiled else None)
    centres = make_bin_centres(unit, 3.0)
    Z, part, std = draw_codes(1300, 3, dtype), draw_parts(1300), np.linspace(0.5, 2, 3)
    Z[:2] = [[1e3], [-1e3]]  # beyond the last bins
    weights = draw_weights(1300) if weighted else None
    counts = count_bins(Z, std, unit, len(centres), part, weights)
    each = np.ones(1300) if weights is None else weights
    x = np.clip(Z / std, centres[0], centres[-1])  # a code beyond the outermost centre is counted there
    assert 10 < np.sum(x != Z / std) < 500
    assert np.all(counts >= 0)
    for k in (0, 1):
        np.testing.assert_allclose(counts[k].sum(axis=1), np.sum(each[part == k]), rtol=1e-12)
        # a code is divided between two centres whose mean, with these shares, it is; shares are rounded to 1.2e-14, and
        # sums of 1300 terms to 1.5e-13
        total = each[part == k] @ x[part == k]
        sizes = each[part == k] @ np.abs(x[part == k])
        assert np.all(np.abs(counts[k] @ centres - total) < 2e-13 * sizes)
        # squares are raised by the product of the distances to the two centres, at most a quarter of the squared
        # distance of these, which are (|x| + unit) / 8 apart at most
        squares = counts[k] @ centres**2 - each[part == k] @ x[part == k] ** 2
        assert np.all(squares > 0)
        assert np.all(squares < each[part == k] @ (np.abs(x[part == k]) + unit) ** 2 / 64 / 4)


def count_at(x):
    """Counts of single codes (b, B)."""
    part = np.zeros(1, np.int8)
    return np.stack([count_bins(np.array([[z]]), np.ones(1), UNIT, len(CENTRES), part)[0, 0] for z in x])


EDGES = find_edges(UNIT)
PLACES = {
    "zero": np.zeros(1),
    "edges": np.r_[-EDGES[1:-1], EDGES[1:-1]],
    "centres": CENTRES[1:-1],
    "anywhere": np.random.default_rng(0).uniform(-5, 5, 100),
    "beyond all bins": np.array([-1e3, 1e3]),
    "within the outermost bins": np.linspace(EDGES[-1], 2 * CENTRES[-1] - EDGES[-1], 30) * np.array([[-1], [1]]),
}


@IMPLEMENTATIONS
@pytest.mark.parametrize("place", PLACES)
def test_count_bins_are_continuous_functions_of_the_codes(monkeypatch, compiled, place):
    monkeypatch.setattr(kernels, "COMPILED", COMPILED if compiled else None)
    x, step = PLACES[place].ravel(), 1e-9
    change = np.abs(count_at(x + step) - count_at(x - step))
    # a code gives one bin what another loses: its way, relative to the distance of their centres, which is at least the
    # width of the narrowest bin, next to zero; shares are rounded to a few 1e-15
    narrowest = EDGES[1]
    assert np.max(np.sum(change, axis=1)) < 2 * 2 * step / narrowest + 1e-14
    if place in ("zero", "edges", "centres"):
        furthest = (np.abs(x) + UNIT) / 2**SUB_BITS  # that two centres at this place may be apart
        assert np.all(np.sum(change, axis=1) > 0.99 * 2 * step / furthest)


@IMPLEMENTATIONS
def test_count_bins_of_codes_at_centres_are_whole(monkeypatch, compiled):
    monkeypatch.setattr(kernels, "COMPILED", COMPILED if compiled else None)
    np.testing.assert_allclose(count_at(CENTRES), np.eye(len(CENTRES)), atol=1e-14)


@needs_compiled
@DTYPES
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape", [(1, 1), (13, 4), (1300, 3)])
def test_count_bins_are_those_of_numpy(dtype, order, shape):
    Z, std, part = store_codes(draw_codes(*shape, dtype), order), np.linspace(0.5, 2, shape[1]), draw_parts(shape[0])
    for weights in (None, draw_weights(shape[0])):
        args = Z, std, UNIT, len(CENTRES), part, weights
        ours, theirs = count_bins(*args), in_numpy(count_bins, *args)
        assert ours.shape == theirs.shape == (2, shape[1], len(CENTRES))
        assert ours.dtype == theirs.dtype == np.float64
        # shares are rounded to a few 1e-15, and so are sums of them; which of two bins the code at an edge belongs to
        # makes no difference
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


@needs_compiled
@DTYPES
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_count_bins_of_empty_octaves_zeros_and_huge_codes_are_those_of_numpy(dtype):
    huge = np.finfo(dtype).max
    Z = np.array([0.0, -0.0, 1e-30, -1e-30, huge, -huge, np.inf, -np.inf, 2.0, 2.0])[:, None].astype(dtype)
    part = np.zeros(len(Z), np.int8)
    args = Z, np.ones(1), UNIT, len(CENTRES), part
    ours = count_bins(*args)
    np.testing.assert_allclose(ours, in_numpy(count_bins, *args), atol=1e-12)
    # those close to zero belong to both bins beside it, and those of 2 to two others
    assert np.count_nonzero(ours) == 6
    n = len(CENTRES)
    np.testing.assert_array_equal(ours[0, 0, [0, n // 2 - 1, n // 2, n - 1]], 2)
    np.testing.assert_array_equal(ours[1], 0)


# --- expectation-maximisation -----------------------------------------------------------------------------------------


def make_problem(m, K=6, B=40, seed=0):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(K), m), rng.poisson(5.0, (m, B)).astype(float), rng.exponential(size=(K, B))


def check_weights(weights, counts, q, rounds, atol):
    before = [each.copy() for each in (weights, counts, q)]
    ours, theirs = fit_weights(weights, counts, q, rounds), in_numpy(fit_weights, weights, counts, q, rounds)
    np.testing.assert_allclose(ours, theirs, atol=atol)
    np.testing.assert_allclose(ours.sum(axis=1), 1, rtol=1e-12)
    for each, copy in zip((weights, counts, q), before, strict=True):
        np.testing.assert_array_equal(each, copy)
    return ours


@needs_compiled
@pytest.mark.parametrize("m", [1, 3, 4, 5, 8, 9])  # codes are fitted four at a time
@pytest.mark.parametrize(("K", "B"), [(6, 40), (1, 8), (13, 400)])
@pytest.mark.parametrize("rounds", [0, 1, 30])
def test_fit_weights_are_those_of_numpy(m, K, B, rounds):
    # every round is rounded to 1e-16 times the number of bins, and moves weights that are off no further
    check_weights(*make_problem(m, K, B), rounds, atol=1e-12)


@needs_compiled
def test_fit_weights_of_zeros_and_empty_bins_are_those_of_numpy():
    weights, counts, q = make_problem(5, K=6, B=80)
    weights[:, 2] = 0
    weights[3, 1] = 0
    weights /= weights.sum(axis=1, keepdims=True)
    counts[:, :16] = 0  # empty for all codes
    counts[:, 20] = 0
    counts[1] = 0
    counts[1, 50] = 3  # a single bin
    counts[2] *= 1e12
    counts[4] *= 1e-9
    fitted = check_weights(weights, counts, q, 20, atol=1e-12)
    np.testing.assert_array_equal(fitted[:, 2], 0)
    np.testing.assert_array_equal(fitted[3, 1], 0)


@needs_compiled
def test_fit_weights_of_arrays_in_any_order_are_the_same():
    problem = make_problem(5)
    expected = fit_weights(*problem, 9)
    for change in (np.asfortranarray, lambda x: np.repeat(x, 2, axis=1)[:, ::2], lambda x: x[::-1].copy()[::-1]):
        np.testing.assert_array_equal(check_weights(*map(change, problem), 9, atol=1e-12), expected)


@needs_compiled
def test_fit_weights_of_the_components_of_a_grid_are_those_of_numpy():
    """Components of which most vanish in most bins."""
    grid, Z = get_grid(13), draw_codes(3000, 3)
    counts = count_bins(Z, np.ones(3), grid.unit, len(grid.centres), np.zeros(3000, np.int8))[0]
    check_weights(np.full((3, len(grid.q[0])), 1 / len(grid.q[0])), counts, grid.q[0], 100, atol=1e-10)


# --- what is refused --------------------------------------------------------------------------------------------------

Z, PART, TABLES, ONES = draw_codes(10, 2), np.zeros(10, np.int8), np.zeros((3, 2, len(CENTRES))), np.ones(2)
WEIGHTS, COUNTS, Q = make_problem(3)
WRONG = {
    "weights of smooth": lambda: kernels.smooth_norm(Z, 1.0, 1.0, np.ones(9)),
    "weights of tables": lambda: kernels.tabulated(Z, ONES, UNIT, CENTRES, TABLES, np.ones(9)),
    "weights of bins": lambda: count_bins(Z, ONES, UNIT, 16, PART, np.ones(9)),
    "bins of tables": lambda: kernels.tabulated(Z, ONES, UNIT, CENTRES, TABLES[:, :, 2:]),
    "number of tables": lambda: kernels.tabulated(Z, ONES, UNIT, CENTRES, TABLES[:2]),
    "parts of bins": lambda: count_bins(Z, ONES, UNIT, 16, PART[:9]),
    "part above one": lambda: count_bins(Z, ONES, UNIT, 16, PART + np.int8(2)),
    "part below zero": lambda: count_bins(Z, ONES, UNIT, 16, PART - np.int8(1)),
    "codes of weights": lambda: fit_weights(WEIGHTS[:2], COUNTS, Q, 1),
}


@needs_compiled
@pytest.mark.parametrize("name", WRONG)
def test_compiled_module_refuses_what_has_another_shape(name):
    with pytest.raises(ValueError, match=r"another shape|not one|not fit|no counts"):
        WRONG[name]()


@needs_compiled
def test_compiled_module_refuses_other_precisions():
    with pytest.raises(TypeError, match="incompatible function arguments"):
        kernels.smooth_norm(Z.astype(np.float16), 1.0, 1.0)
