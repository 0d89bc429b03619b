"""Samples on a device: torch finds what NumPy finds. Its device "cpu" stands for a GPU."""

import sys
import warnings

import numpy as np
import pytest

from elldict.dictionary_learning import LpDictionaryLearning
from elldict.exceptions import SmallerTilesWarning
from elldict.gpu import array as gpu_array
from elldict.gpu import samples as gpu_samples
from elldict.gpu.samples import Device, DeviceSamples, StreamedSamples
from elldict.ica import LpICA
from elldict.samples import files, subsample
from elldict.samples import open as opening
from elldict.samples.open import open_samples, open_source
from elldict.samples.statistics import compute_statistics
from elldict.solver.kernels import count_bins, look_up, power_moments
from tests.fits import assert_same_fit, draw, draw_atoms
from tests.test_kernels import CENTRES, DTYPES, ROUNDING, TERMS, UNIT, draw_codes, draw_weights, in_numpy, make_tables

WEIGHTS = pytest.mark.parametrize("weighted", [False, True])
STD = np.linspace(0.5, 2, 5)
CLOSE = 1e-10
"""Largest difference of the components of a fit: rounding errors of both libraries, after up to a hundred steps."""

CASES = {
    "power": (lambda: LpDictionaryLearning(solver="power", random_state=0), "sparse", {}),
    "sparse": (LpDictionaryLearning, "sparse", {}),
    "noisy": (LpDictionaryLearning, "noisy", {}),
    "laplace": (LpDictionaryLearning, "laplace", {}),
    "uniform": (LpDictionaryLearning, "uniform", {}),
    "white": (LpICA, "laplace", {}),
    "pilot": (lambda: LpDictionaryLearning(refine=None), "laplace", {}),
    "reduced": (lambda: LpDictionaryLearning(n_components=3), "sparse", {}),
    "scale": (LpDictionaryLearning, "scale", {}),
    "weights": (LpDictionaryLearning, "noisy", {"sample_weight": draw_weights(2000)}),
    "corruption": (lambda: LpDictionaryLearning(refine="sparse-corruption"), "corrupted", {}),
}


@pytest.fixture
def torch():
    torch = pytest.importorskip("torch")
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for small blocks, several are slower
    yield torch
    torch.set_num_threads(n_threads)


@pytest.fixture
def device(torch):
    return Device("cpu")


def draw_samples(law, r=2000, n=6):
    """Draw samples of a distribution of codes, of varying scale, or with corrupted entries."""
    rng = np.random.default_rng(1)
    X = draw({"scale": "laplace", "corrupted": "sparse"}.get(law, law), r, n) @ draw_atoms(n)
    if law == "scale":
        X *= rng.exponential(size=(r, 1))
    if law == "corrupted":
        X += 5 * (rng.random(X.shape) < 0.03) * rng.standard_normal(X.shape)
    return X


def fit(kind, X, **arguments):
    """Fit without warnings: samples are few."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind().fit(X, **arguments)


def assert_close(model, other):
    """Compare the results of two fits.

    With corruption, densities are learned in a hundred rounds, in each of which rounding errors of 1e-12 add up.
    """
    assert model.n_iter_ == other.n_iter_
    learned = 100 * CLOSE if model.refined_ == "sparse-corruption" else CLOSE
    for name in ("components_", "atom_error_", "density_", "scale_", "objective_"):
        atol = learned if name in ("density_", "scale_") else CLOSE
        np.testing.assert_allclose(np.asarray(getattr(model, name)), getattr(other, name), rtol=0, atol=atol)


def forbid_transfer(patch, n_most):
    """Raise an error if more than so many numbers leave the device at once."""
    leave = gpu_array.DeviceArray.__array__

    def check(self, *arguments, **options):
        assert self.tensor.numel() <= n_most
        return leave(self, *arguments, **options)

    patch.setattr(gpu_array.DeviceArray, "__array__", check)


def run_out_of_memory(patch, torch, n_most):
    """Fail to multiply with blocks of more than so many numbers."""
    multiply = gpu_array.multiply

    def fail(a, b):
        if max(a.numel(), b.numel()) > n_most:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return multiply(a, b)

    patch.setitem(gpu_array.OWN, "matmul", fail)


# --- kernels ----------------------------------------------------------------------------------------------------------


@DTYPES
@WEIGHTS
@pytest.mark.parametrize("name", TERMS)
def test_objective_on_a_device_is_that_of_numpy(name, weighted, dtype, device):
    Z, weights, rounding = draw_codes(1000, 5, dtype), draw_weights(1000) if weighted else None, ROUNDING[dtype]
    found = TERMS[name](device.move(Z), weights, second=True)
    expected = in_numpy(TERMS[name], Z, weights, second=True)
    for one, other in ((found.g, expected.g), (found.slope, expected.slope)):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=rounding, atol=rounding * np.max(np.abs(other)))
    sizes = expected.value if name != "tabulated" else np.sum(np.abs(look_up(Z, *make_tables(5))[0]))
    np.testing.assert_allclose(found.value, expected.value, rtol=0, atol=rounding * abs(sizes))


@DTYPES
@WEIGHTS
def test_sums_on_a_device_are_those_of_numpy(weighted, dtype, device):
    Z, weights, part = draw_codes(1000, 5, dtype), draw_weights(1000) if weighted else None, np.arange(1000) % 2
    for function, arguments in ((power_moments, (STD, 3.0)), (count_bins, (STD, UNIT, len(CENTRES), part))):
        found = function(device.move(Z), *arguments, weights)
        expected = in_numpy(function, Z, *arguments, weights)
        assert type(found) is np.ndarray
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, expected, rtol=0, atol=ROUNDING[dtype] * np.max(expected))


def test_histogram_on_a_device_does_not_depend_on_the_order_of_samples(device):
    """As the sums of the threads of a GPU, in any order."""
    Z, weights, part = draw_codes(5000, 3), draw_weights(5000), (np.arange(5000) % 2).astype(np.int8)
    order = np.random.default_rng(3).permutation(5000)
    one = count_bins(device.move(Z), STD[:3], UNIT, 300, part, weights)
    other = count_bins(device.move(Z[order]), STD[:3], UNIT, 300, part[order], weights[order])
    np.testing.assert_array_equal(one, other)


# --- arrays -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [lambda Z: Z[::-1], lambda Z: Z[:, ::2], np.asfortranarray, lambda Z: Z[:0]])
def test_any_array_is_moved_to_a_device_and_back(change, device):
    Z = change(draw_codes(40, 6))
    Z.setflags(write=False)
    np.testing.assert_array_equal(device.move(Z), Z)


def test_precisions_on_a_device_are_mixed_as_in_numpy(device):
    single, double = np.ones((3, 2), np.float32), np.ones((2, 4))
    for compute in (
        lambda a, b: a @ b,
        lambda a, b: b.T @ a.T,
        lambda a, b: a * b[:, 0],
        lambda a, b: 0.3 * a - 1,
        lambda a, b: np.where(a > 2, 0.1, 1 / 3) + 0 * b[0, 0],
        lambda a, b: np.sum(a, axis=1, dtype=np.float64),
    ):
        found, expected = compute(device.move(single), double), compute(single, double)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_function_that_is_not_on_a_device_is_an_error(device):
    with pytest.raises(AttributeError, match="interp"):
        np.interp(device.move(np.ones(3)), [0, 1], [0, 1])


# --- fits -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_fit_on_a_device_is_that_of_numpy(name, device):
    kind, law, arguments = CASES[name]
    X = draw_samples(law)
    assert_close(fit(kind, open_samples(X, device="cpu"), **arguments), fit(kind, X, **arguments))


@pytest.mark.parametrize("solver", ["auto", "power"])
def test_samples_do_not_leave_the_device(solver, device, monkeypatch):
    X = draw_samples("laplace")
    forbid_transfer(monkeypatch, len(X))  # one number per sample, for their order
    model = LpICA(solver=solver, error_bars=False, random_state=0)
    monkeypatch.setattr("elldict.transform.MOST_CODES", 100)  # of which density_ is estimated
    monkeypatch.setattr("elldict.transform.FEWEST_SAMPLES", 100)
    monkeypatch.setattr("elldict.entries.CHECKED", 100)  # samples for warnings
    model.fit(open_samples(X, device="cpu"))
    assert model.converged_


def test_two_fits_on_a_device_have_the_same_bits(device):
    X = open_samples(draw_samples("noisy"), device="cpu")
    assert_same_fit(fit(LpDictionaryLearning, X), fit(LpDictionaryLearning, X))


@pytest.mark.parametrize("n_rows", [64, 1999])
def test_partial_blocks_give_the_same_fit(n_rows, device, monkeypatch):
    X = draw_samples("laplace")
    expected = fit(LpDictionaryLearning, X)
    monkeypatch.setattr(gpu_samples, "BLOCK_NUMBERS", 6 * n_rows)
    assert_close(fit(LpDictionaryLearning, open_samples(X, device="cpu")), expected)


@pytest.mark.parametrize("free", [0, 10**9])
@WEIGHTS
def test_large_file_is_streamed_or_kept_on_a_device(weighted, free, device, tmp_path, monkeypatch):
    X, arguments = draw_samples("noisy"), {"sample_weight": draw_weights(2000) + 0.1} if weighted else {}
    np.save(tmp_path / "X.npy", X)
    expected = fit(LpDictionaryLearning, X, **arguments)
    for module in (files, subsample):
        monkeypatch.setattr(module, "STORED_BYTES", 1000)
    monkeypatch.setattr(gpu_samples, "BLOCK_NUMBERS", 6 * 700)
    monkeypatch.setattr(Device, "find_free_bytes", lambda self: free)
    samples = open_samples(tmp_path / "X.npy", device="cpu")
    assert isinstance(open_source(samples), DeviceSamples if free else StreamedSamples)
    assert_close(fit(LpDictionaryLearning, samples, **arguments), expected)


def test_samples_without_weight_are_not_read_from_a_file(device, tmp_path, monkeypatch):
    X, weights = draw_samples("sparse"), np.ones(2000)
    X[5], weights[5] = np.nan, 0
    np.save(tmp_path / "X.npy", X)
    monkeypatch.setattr(files, "STORED_BYTES", 1000)
    monkeypatch.setattr(Device, "find_free_bytes", lambda self: 10**9)
    model = fit(LpDictionaryLearning, open_samples(tmp_path / "X.npy", device="cpu"), sample_weight=weights)
    assert_close(model, fit(LpDictionaryLearning, X, sample_weight=weights))


def test_other_methods_take_samples_on_a_device(device):
    X = draw_samples("noisy")
    model, samples = LpDictionaryLearning(error_bars=False).fit(X), open_samples(X, device="cpu")
    for name in ("transform", "denoise", "score_samples", "inverse_transform"):
        np.testing.assert_allclose(getattr(model, name)(samples), getattr(model, name)(X), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "int32"])
def test_tensor_on_a_gpu_is_fitted_there(dtype, torch, monkeypatch):
    X = torch.tensor(20 * draw_samples("laplace")).to(getattr(torch, dtype)).requires_grad_(dtype != "int32")
    other = fit(LpICA, X)
    monkeypatch.setattr(opening, "is_on_gpu", torch.is_tensor)
    forbid_transfer(monkeypatch, max(len(X), 2**16))
    model = fit(LpICA, X)
    assert model.components_.dtype == (torch.float64 if dtype in ("float64", "int32") else torch.float32)
    close = CLOSE if model.components_.dtype == torch.float64 else 1e-5
    np.testing.assert_allclose(model.components_, other.components_, rtol=0, atol=close)
    np.testing.assert_allclose(model.transform(X), other.transform(X), rtol=0, atol=100 * close)


def test_tensor_on_a_cpu_has_the_bits_of_numpy(torch):
    X = draw_samples("laplace")
    assert not opening.is_on_gpu(torch.tensor(X))
    np.testing.assert_array_equal(fit(LpICA, torch.tensor(X)).components_, fit(LpICA, X).components_)


def test_fit_on_a_device_is_resumed_with_the_same_bits(device, tmp_path):
    samples = open_samples(draw_samples("laplace"), device="cpu")
    expected, path = LpICA(error_bars=False).fit(samples), tmp_path / "state.npz"
    stops = iter([False, False, True])
    fit(lambda: LpICA(error_bars=False), samples, checkpoint=path, callback=lambda iteration: next(stops))
    resumed = LpICA(error_bars=False).fit(samples, checkpoint=path, resume=True)
    np.testing.assert_array_equal(resumed.components_, expected.components_)


def test_matrices_are_moved_once_per_pass(device, monkeypatch):
    X, move, moved = draw_samples("laplace"), Device.move, []
    monkeypatch.setattr(gpu_samples, "BLOCK_NUMBERS", 6 * 64)  # 32 blocks
    monkeypatch.setattr(Device, "move", lambda self, array: moved.append(array.shape) or move(self, array))
    model = LpDictionaryLearning(solver="power", random_state=0).fit(open_samples(X, device="cpu"))
    assert model.n_iter_ <= moved.count((6, 6)) < model.n_iter_ + 10


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_streamed", [False, True])
def test_smaller_blocks_are_used_when_memory_does_not_suffice(is_streamed, torch, tmp_path, monkeypatch):
    X = draw_samples("laplace")
    for name, value in (("FEWEST", 500), ("COPIED_BYTES", 1000), ("STORED_BYTES", 1000)):  # few samples are copied
        monkeypatch.setattr(subsample, name, value)
    expected = fit(LpDictionaryLearning, X)
    np.save(tmp_path / "X.npy", X)
    samples = open_samples(tmp_path / "X.npy", device="cpu")
    if is_streamed:
        monkeypatch.setattr(files, "STORED_BYTES", 1000)
    run_out_of_memory(monkeypatch, torch, 6 * 900)
    with pytest.warns(SmallerTilesWarning, match="smaller ones are used") as caught:
        model = LpDictionaryLearning().fit(samples)
    assert [warning.filename for warning in caught if warning.category is SmallerTilesWarning] == [__file__]
    assert_close(model, expected)


def test_memory_that_never_suffices_is_an_error(torch, monkeypatch):
    run_out_of_memory(monkeypatch, torch, 0)
    with pytest.warns(SmallerTilesWarning), pytest.raises(torch.OutOfMemoryError):
        compute_statistics(open_source(open_samples(draw_samples("laplace"), device="cpu")))


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cuda:17", "nonsense", "meta", "", 3.5])
def test_missing_device_is_an_error(name, torch):
    if name == "cuda:17" and torch.cuda.device_count() > 17:
        pytest.skip("the device exists")
    with pytest.raises(ValueError, match=r"device .* cannot be used .*'cuda', 'cuda:1' or 'cpu'"):
        open_samples(np.ones((3, 2)), device=name)


def test_missing_torch_is_an_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match="pip install torch"):
        open_samples(np.ones((3, 2)), device="cuda")


@pytest.mark.parametrize(("value", "found"), [(np.nan, "NaN"), (-np.inf, "infinity")])
def test_not_finite_entry_is_found_on_a_device(value, found, torch, monkeypatch):
    X = draw_samples("laplace")
    model = LpICA(error_bars=False).fit(torch.tensor(X))
    X[17, 3] = value
    monkeypatch.setattr(opening, "is_on_gpu", torch.is_tensor)
    for method in (LpICA().fit, model.transform):
        with pytest.raises(ValueError, match=rf"contains {found} \(sample 17, feature 3\)"):
            method(torch.tensor(X))
