"""Bad input and faults: a finite, orthonormal answer, an error, or a warning by name. Never a quiet wrong answer.

The number in a name is the row of the catalogue of faults. Rows 13 and 14 stand in test_polar.py, 16 in
test_solver.py, 18 in test_estimator.py, 25, 27 and 32 in test_model_file.py, 33 in test_cli.py.
"""

import concurrent.futures
import multiprocessing
import subprocess
import sys
import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import InvalidParameterError
from threadpoolctl import threadpool_limits

from elldict import LpDictionaryLearning, LpICA
from elldict._old.backend import host_kernels
from elldict._old.data.dataset import ArrayDataset, tile_bounds
from elldict._old.data.statistics import compute_statistics
from elldict._old.solver.evaluate import evaluate
from elldict._old.solver.loop import choose_precision
from elldict._old.solver.objective import Lp, Quantities
from elldict.datasets import make_bernoulli_gaussian
from elldict.exceptions import NotIdentifiableWarning, NotWhiteWarning, RankWarning
from elldict.metrics import recovery_error
from tests._old.helpers import assert_same_atoms, prepared


def two_cores():
    """Every core at work holds a few tiles, so memory is bounded for a given number of them."""
    return threadpool_limits(2, user_api="blas")


def fit(X, **options):
    return LpDictionaryLearning(**{"random_state": 0, "tol": 1e-11, **options}).fit(X)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("sample", [0, 1999, 3999])
@pytest.mark.parametrize("method", ["fit", "transform"])
def test_fault_01_nan_and_inf_are_found_and_named(easy, bad, sample, method, monkeypatch):
    monkeypatch.setattr("elldict._old.data.dataset.rows_per_tile", lambda r, n, dtype, on_gpu: 1000)
    model = fit(easy[0])
    X = easy[0].copy()
    X[sample, 7] = bad
    found = "NaN" if np.isnan(bad) else "infinity"
    with pytest.raises(
        ValueError, match=rf"X holds {found} in sample {sample}, feature 7 \(block {sample // 1000 + 1} of 4\)"
    ):
        getattr(model, method)(X)


def test_fault_01_the_first_misfit_is_named(easy):
    X = easy[0].copy()
    X[5, 3], X[5, 2], X[3000, 0] = np.inf, np.nan, np.nan
    with pytest.raises(ValueError, match="NaN in sample 5, feature 2"):
        fit(X)


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e-12, 1e12, 1e200, 1e300])
@pytest.mark.parametrize("options", [{}, {"center": True, "whiten": True}, {"p": 5}])
def test_fault_02_any_scale_gives_the_same_atoms(easy, scale, options):
    one, other = fit(easy[0], **options), fit(easy[0] * scale, **options)
    factor = scale if options.get("whiten") else 1.0
    np.testing.assert_allclose(other.components_ / factor, one.components_, atol=1e-9)
    assert other.objective_ == pytest.approx(one.objective_)
    assert np.all(np.isfinite(other.transform(easy[0] * scale)))


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e30])
def test_fault_02_any_scale_gives_the_same_atoms_in_float32(easy, scale):
    X = easy[0].astype("float32")
    one, other = fit(X, tol=1e-6), fit(X * np.float32(scale), tol=1e-6)
    np.testing.assert_allclose(other.components_, one.components_, atol=1e-5)


@pytest.mark.parametrize(("scale", "dtype"), [(1e300, "float64"), (1e-300, "float64"), (1e30, "float32")])
def test_fault_02_extreme_scale_and_large_p_together(easy, scale, dtype):
    X = (easy[0]).astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotIdentifiableWarning)
        one, other = (fit(data, p=20, tol=1e-5, max_iter=3000) for data in (X, X * X.dtype.type(scale)))
    np.testing.assert_allclose(other.components_, one.components_, atol=1e-6)


@pytest.mark.parametrize(("scale", "dtype"), [(1e-308, "float64"), (5e307, "float64"), (1e36, "float32")])
def test_fault_02_beyond_the_range_is_a_clear_error(easy, scale, dtype):
    with pytest.raises(ValueError, match=r"largest value of X is about 1e.*Change the units"):
        fit((easy[0] * scale / np.max(np.abs(easy[0]))).astype(dtype))


@pytest.mark.parametrize("center", [False, True])
def test_fault_02_nothing_to_learn_raises(center):
    with pytest.raises(ValueError, match=r"all zero.*nothing to learn"):
        fit(np.zeros((100, 5)), center=center)
    if center:
        with pytest.raises(ValueError, match="the same in every sample"):
            fit(np.ones((100, 5)), center=True)


@pytest.mark.parametrize("p", [8, 20, 60])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fault_03_large_p_does_not_overflow(easy, p, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotIdentifiableWarning)
        model = fit(easy[0].astype(dtype), p=p, tol=1e-5, max_iter=3000)
    A = model.components_.astype("float64")
    np.testing.assert_allclose(A @ A.T, np.eye(12), atol=1e-12 if dtype == "float64" else 1e-6)
    assert np.isfinite(model.objective_)


def test_fault_03_absurd_p_is_a_clear_error(easy):
    with pytest.raises(ValueError, match="p=100000 is too large for these samples"):
        fit(easy[0], p=100_000)


@pytest.mark.parametrize("learner", [LpDictionaryLearning, LpICA])
@pytest.mark.parametrize(
    "p", [2, 2.0, 0, -3, np.nan, np.inf, True, "3", None, [2], (), (2.2, 3), (3, 3), (3, 2, 1), (1, -1), ("3",), (1, 3)]
)
def test_fault_04_p_out_of_range(easy, p, learner):
    with pytest.raises(InvalidParameterError, match=r"The 'p' parameter.*\(0(\.0)?, inf"):
        learner(p=p).fit(easy[0])


@pytest.mark.parametrize("learner", [LpDictionaryLearning, LpICA])
@pytest.mark.parametrize("p", [1, 0.5, (3, 1)])
def test_fault_04_the_power_method_minimises_no_norm(easy, p, learner):
    with pytest.raises(InvalidParameterError, match=r"below 2 the norm is minimised. Use solver='auto', or p > 2"):
        learner(p=p, solver="power").fit(easy[0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_below_2_an_enormous_sample_does_not_overflow(easy, dtype):
    X = np.vstack([easy[0], 1e12 * np.ones((1, 12))]).astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fit(X, p=1)
    assert np.isfinite(model.objective_)
    assert choose_precision(1.0, dtype=dtype, code_bound=1e16) == "float64"
    with pytest.raises(ValueError, match=r"its square overflows. Remove outliers"):
        choose_precision(1.0, dtype=dtype, code_bound=1e150)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint16", "bool", ">f8", ">f4", ">i4"])
def test_fault_05_other_types_equal_the_float64_fit(easy, dtype):
    X = np.clip(10 * easy[0], -100, 100)
    X = X > 8 if dtype == "bool" else (np.abs(X) if dtype == "uint16" else X)
    X = X.astype(dtype)
    options = {"center": True, "whiten": True}
    reference = X.astype("float64")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotIdentifiableWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        model, expected = (fit(data, max_iter=50, **options) for data in (X, reference))
    np.testing.assert_allclose(model.components_, expected.components_, atol=1e-10 * np.max(expected.components_))
    assert model.components_.dtype == np.float64


@pytest.mark.parametrize("kind", ["float16", "torch.float16", "torch.bfloat16"])
def test_fault_05_floats_of_16_bits_equal_the_float32_fit(easy, kind):
    if kind == "float16":
        X = easy[0].astype(np.float16)
        same = X.astype(np.float32)
    else:
        torch = pytest.importorskip("torch")
        X = torch.asarray(easy[0].copy()).to(getattr(torch, kind.removeprefix("torch.")))
        same = X.float()
    model, expected = (fit(data, tol=1e-6) for data in (X, same))
    assert model.components_.dtype == expected.components_.dtype == same.dtype
    np.testing.assert_array_equal(model.components_, expected.components_)
    np.testing.assert_array_equal(model.transform(X), expected.transform(same))
    assert model.score(X) == expected.score(same)


def test_fault_05_integers_are_not_copied_whole(rng):
    X = rng.integers(-3, 4, (1_000_000, 20), dtype="int8") ** 3
    with warnings.catch_warnings(), two_cores():
        warnings.simplefilter("ignore")
        tracemalloc.start()
        fit(X, max_iter=2)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    # five tiles of 4 MB for each core and a level of 32 MB; as float64 the samples are 160 MB
    temporary = 0 if host_kernels.COMPILED else 40e6  # arrays of drawn samples, which compiled kernels do without
    assert peak < 80e6 + temporary


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones((5, 3)) * 1j, "Complex data not supported"),
        (np.array([["a", "b"], ["c", "d"]]), "could not convert string|dtype='numeric' is not compatible"),
        (scipy.sparse.eye(5, format="csr"), "Sparse data was passed"),
    ],
)
def test_fault_06_data_that_is_not_real_and_dense(X, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fit(X)


@pytest.mark.parametrize("kind", ["M8[ns]", "m8[ns]"])
def test_fault_06_dates_are_not_numbers(easy, kind):
    with pytest.raises((ValueError, TypeError), match=r"dtype (datetime|timedelta)64|DType"):
        fit((1e9 * easy[0]).astype("i8").view(kind))


def test_fault_06_masked_entries_are_not_read_through_their_mask(easy):
    masked = np.ma.masked_array(easy[0], mask=np.abs(easy[0]) > 1.5)
    with pytest.raises(ValueError, match="masked"):
        fit(masked)
    np.testing.assert_array_equal(fit(np.ma.masked_array(easy[0])).components_, fit(easy[0]).components_)


def test_fault_06_objects_that_are_numbers_are_converted(easy):
    np.testing.assert_allclose(fit(easy[0].astype(object)).components_, fit(easy[0]).components_, atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((0, 5), "0 sample"),
        ((5, 0), "0 feature"),
        ((1, 5), "minimum of 2 is required"),
        ((5, 1), "minimum of 2 is required"),
        ((5,), "Expected 2D array"),
        ((2, 3, 4), "Found array with dim 3"),
    ],
)
def test_fault_07_wrong_shapes(shape, message):
    with pytest.raises(ValueError, match=message):
        fit(np.ones(shape))


@pytest.mark.parametrize("whiten", [False, True])
def test_fault_08_fewer_samples_than_features_warns_and_stays_orthonormal(whiten, rng):
    X = rng.standard_normal((6, 10))
    with pytest.warns(NotIdentifiableWarning, match="6 samples of 10 features"):
        model = fit(X, whiten=whiten, tol=1e-6)
    if whiten:
        assert model.components_.shape == (6, 10)
        np.testing.assert_allclose(model.unmixing_ @ model.components_.T, np.eye(6), atol=1e-10)
    else:
        np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(10), atol=1e-12)


def test_fault_08_more_components_than_features_raises(easy):
    with pytest.raises(ValueError, match="n_components=13 exceeds n_features=12"):
        fit(easy[0], n_components=13)


def test_fault_09_data_far_from_white_is_warned_of(easy):
    with pytest.warns(NotWhiteWarning, match=r"condition number of its covariance is .*e\+0\d.*Set whiten=True"):
        fit(easy[0] * np.geomspace(1, 1000, 12), tol=1e-6)


@pytest.mark.parametrize("mean", [0.3, 3.0])
def test_fault_09_data_far_from_centred_is_told_to_be_centred(easy, mean):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotIdentifiableWarning)
        with pytest.warns(NotWhiteWarning, match=r"far from centred.*Set center=True"):
            fit(easy[0] + mean, tol=1e-6)
    fit(easy[0] + mean, center=True)  # a warning would be an error


def test_fault_09_white_data_is_not_warned_of():
    for r, n in ((200, 16), (1000, 16), (10_000, 30)):
        X, _, _ = make_bernoulli_gaussian(r, n, density=0.2, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("error", NotWhiteWarning)
            fit(X)


@pytest.mark.parametrize("n", [10, 40])
@pytest.mark.parametrize("p", [2.5, 3, 4, 6])
def test_fault_10_all_atoms_of_white_noise_are_named_and_why_comes_first(p, n, rng):
    X = rng.standard_normal((2000, n))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(X, p=p, tol=1e-4, max_iter=100)
    assert caught[0].category is NotIdentifiableWarning
    assert f"{n} of {n} atoms are not identifiable among themselves" in str(caught[0].message)
    assert not any("Raise max_iter" in str(warning.message) for warning in caught)


@pytest.mark.parametrize("kind", ["signs", "uniform"])
def test_fault_10_the_power_method_says_that_it_does_not_find_less_sparse_sources(kind, rng):
    X = rng.uniform(-1, 1, (2000, 10))
    X = np.sign(X) if kind == "signs" else X
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(X, solver="power", tol=1e-4, max_iter=100)
    assert caught[0].category is NotIdentifiableWarning
    assert "10 of 10 atoms" in str(caught[0].message)
    assert "set solver='auto'" in str(caught[0].message)


@pytest.mark.parametrize("n_gaussian", [1, 2, 3])
@pytest.mark.parametrize("others", ["sparse", "uniform"])
def test_fault_10_gaussian_sources_alone_are_named_and_one_of_them_is_found(n_gaussian, others, rng):
    X, dictionary, codes = make_bernoulli_gaussian(10_000, 10, density=0.2, random_state=0)
    if others == "uniform":
        codes = rng.uniform(-1, 1, codes.shape)
    codes[:, :n_gaussian] = np.std(codes) * rng.standard_normal((10_000, n_gaussian))
    X = codes @ dictionary
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = fit(X, tol=1e-6)
    alike = np.abs(model.components_ @ dictionary.T)
    assert np.all(np.max(alike[:, n_gaussian:], axis=0) > 0.99)
    if n_gaussian == 1:
        assert not caught
        assert np.max(alike[:, 0]) > 0.99
        return
    gaussian = np.flatnonzero(np.sum(alike[:, :n_gaussian] ** 2, axis=1) > 0.5)
    assert len(caught) == 1
    listed = ", ".join(map(str, gaussian))
    assert f"{n_gaussian} of 10 atoms are not identifiable among themselves: {listed}." in str(caught[0].message)
    assert np.all(np.delete(model.atom_error_, gaussian) < 0.02)
    assert np.all(model.atom_error_[gaussian] > 0.05)


@pytest.mark.parametrize("density", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("noise_std", [0.0, 0.2])
@pytest.mark.parametrize("p", [2.5, 3, 4])
def test_fault_10_good_data_is_not_doubted(density, noise_std, p):
    X, dictionary, _ = make_bernoulli_gaussian(5000, 20, density=density, noise_std=noise_std, random_state=0)
    assert recovery_error(fit(X, p=p, tol=1e-6).components_, dictionary) < 0.05  # a warning would be an error


@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
@pytest.mark.parametrize("defect", ["constant", "duplicate", "mixture"])
@pytest.mark.parametrize("whiten", [False, True])
def test_fault_11_rank_is_found_whatever_the_scale(easy, scale, defect, whiten):
    X = easy[0]
    extra = {"constant": np.ones(4000), "duplicate": X[:, 4], "mixture": X @ np.full(12, 0.3)}[defect]
    X = scale * np.column_stack([X, extra])
    with pytest.warns(RankWarning, match="varies in 12 of 13 directions") as caught:
        model = fit(X, center=True, whiten=whiten, tol=1e-6)
    assert len(caught) == 1
    assert np.all(np.isfinite(model.components_))
    if whiten:
        assert model.n_components_ == 12
        np.testing.assert_allclose(model.unmixing_ @ model.components_.T, np.eye(12), atol=1e-8)
    else:
        np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(13), atol=1e-12)
        assert np.max(np.abs((X - model.mean_) @ model.components_[12])) < 1e-10 * np.max(np.abs(X))


@pytest.mark.parametrize(("mean", "dtype"), [(100, "float32"), (1e4, "float32"), (1e9, "float64")])
def test_fault_11_rounding_of_a_large_mean_is_not_a_direction(easy, mean, dtype):
    X = (np.column_stack([easy[0], easy[0] @ np.full(12, 0.3)]) + mean).astype(dtype)
    with pytest.warns(RankWarning, match="12 of 13"):
        model = fit(X, center=True, whiten=True, tol=1e-3)
    assert model.n_components_ == 12


def test_fault_11_outliers_are_named_as_a_reason(easy):
    X = easy[0].copy()
    X[7] += 1e9
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotIdentifiableWarning)
        with pytest.warns(RankWarning, match="outliers"):
            fit(X, tol=1e-6)


def test_fault_11_atoms_beyond_the_rank_do_not_depend_on_the_order_of_samples(easy):
    X = np.column_stack([easy[0], easy[0][:, :3]])
    with pytest.warns(RankWarning):
        one = fit(X)
    with pytest.warns(RankWarning):
        other = fit(3.3 * X[::-1])
    np.testing.assert_allclose(one.components_[12:], other.components_[12:], atol=1e-9)


def test_fault_11_more_components_than_the_rank_raise_when_whitened(easy):
    X = np.column_stack([easy[0], easy[0][:, 0]])
    with pytest.raises(ValueError, match="n_components=13 exceeds the rank 12 of X"):
        fit(X, whiten=True, n_components=13)


@pytest.mark.parametrize("whiten", [False, True])
def test_fault_12_a_zero_feature_may_stand_anywhere(easy, whiten):
    answers = []
    for position in (0, 6, 12):
        X = np.insert(easy[0], position, 0.0, axis=1)
        with pytest.warns(RankWarning, match="12 of 13"):
            model = fit(X, whiten=whiten)
        atoms = model.components_[:12]
        np.testing.assert_allclose(atoms[:, position], 0, atol=1e-12)
        answers.append(np.delete(atoms, position, axis=1))
    for estimate in answers:
        assert_same_atoms(estimate, fit(easy[0], whiten=whiten).components_, 1e-9)


def test_fault_15_max_iter_is_said(easy):
    with pytest.warns(ConvergenceWarning, match=r"step .* > tol 1e-11 after 3 iterations.*Raise max_iter or tol"):
        model = fit(easy[0], max_iter=3, solver="power", refine=None)
    assert not model.converged_
    assert model.n_iter_ == 3
    assert model.status_.startswith("max_iter")
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(12), atol=1e-12)


def test_fault_17_equal_fits_are_equal_to_the_last_bit(easy):
    one, two = fit(easy[0]), fit(easy[0])
    np.testing.assert_array_equal(one.components_, two.components_)
    assert one.objective_ == two.objective_


@pytest.mark.slow
def test_fault_17_thread_counts_agree_to_the_last_bit():
    """Each tile is summed by one thread, and tiles are added up in order: the catalogue asks for 1e-10 only."""
    script = """
import hashlib, numpy as np
from elldict import LpDictionaryLearning
X = np.random.default_rng(0).standard_normal((60_000, 40)) ** 3  # five tiles
model = LpDictionaryLearning(random_state=0, max_iter=20, tol=.1).fit(X)
print(hashlib.sha256(model.components_.tobytes() + model.transform(X).tobytes()).hexdigest())
"""
    answers = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"OPENBLAS_NUM_THREADS": threads, "PATH": ""},
            capture_output=True,
            check=True,
            timeout=120,
        ).stdout
        for threads in ("1", "2", "3")
    }
    assert len(answers) == 1


def test_fault_19_views_and_files_give_the_same_atoms_and_are_not_written(easy, tmp_path):
    X = easy[0]
    path = tmp_path / "samples.npy"
    np.save(path, X)
    wide = np.zeros((8000, 24))
    wide[::2, 1::2] = X
    layouts = {
        "read-only memory map": np.load(path, mmap_mode="r"),
        "Fortran order": np.asfortranarray(X),
        "negative strides": np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1],
        "view with holes": wide[::2, 1::2],
        "transposed": np.ascontiguousarray(X.T).T,
    }
    expected = fit(X)
    for name, layout in layouts.items():
        before = np.array(layout)
        model = fit(layout)
        np.testing.assert_allclose(model.components_, expected.components_, atol=1e-10, err_msg=name)
        np.testing.assert_allclose(model.transform(layout), expected.transform(X), atol=1e-9, err_msg=name)
        np.testing.assert_array_equal(layout, before, err_msg=name)


@pytest.mark.parametrize("options", [{}, {"center": True, "whiten": True}], ids=["plain", "whitened"])
def test_fault_20_memory_stays_within_64_megabytes_beyond_the_samples(options):
    """r = 200 000, n = 100, float32: the samples are 80 MB. NumPy reports its allocations to tracemalloc."""
    X = np.random.default_rng(0).standard_normal((200_000, 100), dtype="float32")
    X **= 3
    tracemalloc.start()
    with pytest.warns(ConvergenceWarning), two_cores():
        fit(X, max_iter=2, **options)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64e6


@pytest.mark.parametrize("tile_rows", [1, 101, 4000, 4001])
def test_fault_21_block_size_does_not_matter(easy, tile_rows, monkeypatch):
    X = easy[0][:400] if tile_rows == 1 else easy[0]  # of single samples fewer are tiles enough
    expected = fit(X, center=True, tol=1e-9)
    monkeypatch.setattr("elldict._old.data.dataset.rows_per_tile", lambda r, n, dtype, on_gpu: tile_rows)
    model = fit(X, center=True, tol=1e-9)
    np.testing.assert_allclose(model.components_, expected.components_, atol=1e-10)
    np.testing.assert_allclose(model.transform(X), expected.transform(X), atol=1e-10)


class Repeated:
    """The same samples over and over, 2**doublings times: counters see more than 2**31 values, memory does not."""

    def __init__(self, samples, doublings):
        self.samples, self.doublings = samples, doublings
        self.n_samples, self.n_features = samples.n_samples << doublings, samples.n_features
        self.dtype, self.backend = samples.dtype, samples.backend

    def sum(self, kernel):
        total = self.samples.sum(kernel)
        for _ in range(self.doublings):
            total = total + total
        return total


def test_fault_22_more_than_2_to_31_values(easy):
    small, whitening = prepared(easy[0])
    large = Repeated(small, 30)
    assert large.n_samples * large.n_features > 2**40
    found = compute_statistics(large, center=False, precise=True)
    np.testing.assert_allclose(found.scatter, compute_statistics(small, center=False, precise=True).scatter, rtol=1e-12)
    one, other = (evaluate(s, whitening, Lp(3), np.eye(12), Quantities.GRADIENT, "float64") for s in (small, large))
    assert other.weight == one.weight * 2**30
    np.testing.assert_allclose(other.G / other.weight, one.G / one.weight, rtol=1e-12)
    assert other.mean_value == pytest.approx(one.mean_value)


def test_fault_22_rows_beyond_2_to_31_are_addressed():
    X = np.broadcast_to(np.array([[1.0, 2.0]]), (2**31 + 10, 2))
    samples = ArrayDataset(X, tile_rows=2**31)
    *_, bounds = tile_bounds(samples.n_samples, samples.tile_rows)
    assert bounds == (2**31, 2**31 + 10)
    assert samples._tile(bounds).shape == (10, 2)
    assert samples.locate(2**31 + 5) == "block 2 of 2"


def test_fault_23_eight_threads_equal_serial(easy):
    expected = [fit(easy[0], random_state=seed).components_ for seed in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda seed: fit(easy[0], random_state=seed).components_, range(8), timeout=60))
    for estimate, one in zip(answers, expected, strict=True):
        np.testing.assert_array_equal(estimate, one)


def fit_in_child(X):
    return fit(X).components_


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_fault_23_processes_equal_serial(easy, method):
    expected = fit(easy[0]).components_
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        for estimate in pool.map_async(fit_in_child, [easy[0]] * 2).get(timeout=60):
            np.testing.assert_array_equal(estimate, expected)


def test_warnings_point_at_the_line_that_called_fit(rng):
    X = rng.standard_normal((2000, 5)) + 3
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        LpDictionaryLearning(random_state=0, max_iter=2).fit(X)
    assert {warning.category for warning in caught} >= {NotWhiteWarning, ConvergenceWarning}
    assert {warning.filename for warning in caught} == {__file__}
