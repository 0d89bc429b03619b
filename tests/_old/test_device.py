"""Samples of the host on another device: the same sums and the same answer, in blocks or at once."""

import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest

import elldict
from elldict import LpDictionaryLearning
from elldict._old.backend.base import NUMPY, Backend, to_numpy
from elldict._old.data import gpu_stream as device_room
from elldict._old.data.dataset import GPU_TILE_BYTES, GPU_TILE_LEAST_ROWS, ArrayDataset, retry_on_oom, rows_per_tile
from elldict._old.data.file import FileDataset
from elldict._old.data.gpu_stream import GpuStreamDataset, place_on_device, stream_blocks
from elldict._old.data.statistics import compute_statistics
from elldict._old.data.whitening import Whitening
from elldict._old.solver.code_histogram import CodeHistogram
from elldict._old.solver.cuda_graph import CudaGraphStepper
from elldict._old.solver.directions import (
    lack_of_orthonormality,
    polar_by_products,
    polar_nearby,
    power_step,
    random_orthonormal,
)
from elldict._old.solver.evaluate import evaluate
from elldict._old.solver.loop import FitLog, Phase, Problem
from elldict._old.solver.mixture import fit_mixture
from elldict._old.solver.objective import Lp, Quantities
from elldict._old.solver.pilot import use_newton
from elldict._old.solver.spike_slab import SpikeSlab, fit_roughly, fit_spike_slab, update_spike_slab
from elldict.datasets import make_bernoulli_gaussian
from elldict.exceptions import SmallerTilesWarning
from tests._old.conftest import as_if_on_a_card
from tests._old.helpers import assert_same_atoms, prepared


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def elsewhere(torch):
    """A space that is not the host's: torch, on a card if there is one."""
    return Backend.of(torch.empty(0, device="cuda" if torch.cuda.is_available() else "cpu"))


# --- tiles ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("r", "n", "dtype"), [(10, 3, "float32"), (10**6, 1024, "float32"), (10**7, 100, "float64")])
def test_tiles_of_a_card_are_large_and_even(r, n, dtype):
    rows = rows_per_tile(r, n, dtype, on_gpu=True)
    size = rows * n * (4 if dtype == "float32" else 8)
    assert size <= GPU_TILE_BYTES
    n_tiles = -(-r // rows)
    assert n_tiles == 1 or size > GPU_TILE_BYTES / 2
    assert r - (n_tiles - 1) * rows > rows - n_tiles  # the last is no smaller than need be


# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_rows", [1, 7, 500, 999, 1000, 5000])
@pytest.mark.parametrize("kind", ["float32", "float64", "int16", "bool"])
def test_blocks_arrive_in_order_and_whole(elsewhere, rng, block_rows, kind):
    X = (3 * rng.standard_normal((1000, 5))).astype(kind)
    source = ArrayDataset(X)
    if block_rows == 1:
        source = ArrayDataset(X[:50])
    seen = [(bounds, to_numpy(block).copy()) for bounds, block in stream_blocks(source, elsewhere, block_rows)]
    assert [start for (start, _), _ in seen] == list(range(0, source.n_samples, block_rows))
    rows = np.concatenate([block for _, block in seen])
    assert rows.dtype == source.dtype
    np.testing.assert_array_equal(rows, X[: source.n_samples])


def test_streamed_samples_are_read_only_and_may_be_views(elsewhere, rng):
    X = np.asfortranarray(rng.standard_normal((900, 6)))[::-3]
    X.setflags(write=False)
    rows = np.concatenate([to_numpy(block).copy() for _, block in stream_blocks(ArrayDataset(X), elsewhere, 64)])
    np.testing.assert_array_equal(rows, X)


@pytest.mark.parametrize("tile_rows", [1, 613, 4000, 9999])
def test_fault_21_streamed_sums_are_those_of_samples_in_memory(elsewhere, easy, tile_rows):
    X = easy[0][:50] if tile_rows == 1 else easy[0]
    whitening = Whitening.of(compute_statistics(ArrayDataset(X), center=True, precise=False), center=True, whiten=False)
    quantities = Quantities.GRADIENT | Quantities.MOMENTS
    here = evaluate(ArrayDataset(X), whitening, Lp(3), np.eye(12), quantities, "float64")
    streamed = GpuStreamDataset(ArrayDataset(X), elsewhere, tile_rows)
    there = evaluate(
        streamed, whitening.move_to(elsewhere), Lp(3), elsewhere.asarray(np.eye(12), "float64"), quantities, "float64"
    )
    for name in ("G", "slope", "g2", "z2"):
        np.testing.assert_allclose(to_numpy(getattr(there, name)), getattr(here, name), rtol=1e-12, atol=1e-9)


def test_half_precision_goes_to_a_card_as_it_is(elsewhere, easy):
    half = ArrayDataset(easy[0].astype(np.float16))
    moved = device_room._move(half, elsewhere)
    assert str(moved.dtype) == "torch.float16"
    assert all(str(tile.dtype) == "torch.float16" for _, tile in stream_blocks(half, elsewhere, 700))
    widened = ArrayDataset(half.X.astype(np.float32))
    expected = compute_statistics(widened, center=True, precise=True).scatter
    for samples in (GpuStreamDataset(half, elsewhere, 700), ArrayDataset(moved)):
        assert samples.dtype == "float32"
        found = compute_statistics(samples, center=True, precise=True).scatter
        np.testing.assert_allclose(found, expected, atol=1e-14)


def test_streamed_samples_pass_a_survey(elsewhere, easy):
    X = easy[0].copy()
    expected = compute_statistics(ArrayDataset(X), center=False, precise=False)
    found = compute_statistics(GpuStreamDataset(ArrayDataset(X), elsewhere, 700), center=False, precise=False)
    np.testing.assert_allclose(found.scatter, expected.scatter, rtol=1e-12, atol=1e-14)
    X[3210, 7] = np.inf
    with pytest.raises(ValueError, match="infinity in sample 3210, feature 7"):
        compute_statistics(GpuStreamDataset(ArrayDataset(X), elsewhere, 700), center=False, precise=False)


def test_a_fault_in_the_middle_of_a_stream_comes_through(elsewhere, easy):
    class Broken:
        n_samples, n_features, dtype = 4000, 12, "float64"

        def check_unchanged(self):
            pass

        def read(self, start, stop, out):
            if start:
                raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        list(stream_blocks(FileDataset(Broken()), elsewhere, 1000))


# --- fits -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["moved", "streamed"])
def test_numpy_in_and_numpy_out(elsewhere, monkeypatch, way):
    X, _, _ = make_bernoulli_gaussian(9000, 16, density=0.3, noise_std=0.2, random_state=0)
    monkeypatch.undo()
    monkeypatch.setattr(device_room, "find_device", lambda device: elsewhere)
    monkeypatch.setattr(device_room, "_count_free_bytes", lambda backend: 2**50 if way == "moved" else 0)
    kept = {}

    def kept_placed(samples, device):
        kept["samples"] = place_on_device(samples, device)
        return kept["samples"]

    monkeypatch.setattr("elldict._old.estimator.place_on_device", kept_placed)
    seen = []
    model = LpDictionaryLearning(device="cuda", random_state=0)
    model.fit(X, callback=lambda iteration: seen.append(iteration.components))
    assert kept["samples"].backend == elsewhere
    assert isinstance(kept["samples"], ArrayDataset if way == "moved" else GpuStreamDataset)
    for name in ("components_", "unmixing_", "mean_", "density_", "scale_", "atom_error_"):
        assert isinstance(getattr(model, name), np.ndarray)
    assert all(isinstance(components, np.ndarray) for components in seen)
    plain = LpDictionaryLearning(random_state=0).fit(X)
    assert_same_atoms(model.components_, plain.components_, max(1e-9, 0.3 * np.sqrt(plain.expected_error_ / 2)))
    assert isinstance(model.transform(X), np.ndarray)


def test_device_cpu_is_the_host(easy):
    a, b = (LpDictionaryLearning(random_state=0, device=device).fit(easy[0]) for device in (None, "cpu"))
    np.testing.assert_array_equal(a.components_, b.components_)


@pytest.mark.parametrize("device", ["gpu", "mps", "cuda0", ""])
def test_unknown_devices_are_refused_by_name(easy, device):
    with pytest.raises(ValueError, match="expected None, 'cpu', 'cuda', or 'cuda:1'"):
        place_on_device(ArrayDataset(easy[0]), device)


def test_a_card_that_is_not_there_is_named(easy, torch):
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match=r"device='cuda': torch .* finds no card"):
            place_on_device(ArrayDataset(easy[0]), "cuda")
    else:
        with pytest.raises(ValueError, match="device='cuda:77': expected one of cuda:0"):
            place_on_device(ArrayDataset(easy[0]), "cuda:77")


def test_without_torch_the_remedy_is_named(easy, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"device='cuda' needs torch, which is not installed: pip install torch"):
        place_on_device(ArrayDataset(easy[0]), "cuda")


def test_arrays_of_other_libraries_stay_where_they_are(easy, torch):
    with pytest.raises(ValueError, match=r"X is an array of torch .* works on such arrays where they are"):
        place_on_device(ArrayDataset(torch.asarray(easy[0].copy())), "cpu")


def test_files_are_streamed_and_clusters_are_not_asked(elsewhere, monkeypatch, tmp_path, easy):
    np.save(tmp_path / "samples.npy", easy[0].astype(np.float32))
    source = elldict.open_samples(tmp_path / "samples.npy")
    monkeypatch.setattr(device_room, "find_device", lambda device: elsewhere)
    monkeypatch.setattr(device_room, "_count_free_bytes", lambda backend: 0)
    samples = place_on_device(source, "cuda")
    assert isinstance(samples, GpuStreamDataset)
    assert samples.fingerprint() == source.fingerprint()
    found, expected = (compute_statistics(each, center=False, precise=False) for each in (samples, source))
    np.testing.assert_allclose(found.scatter, expected.scatter, rtol=1e-5, atol=1e-7)
    rows = np.concatenate([to_numpy(block).copy() for _, block in stream_blocks(source, elsewhere, 999)])
    np.testing.assert_array_equal(rows, easy[0].astype(np.float32))

    class Cluster:
        n_samples, n_features, dtype, backend = 4000, 12, "float64", NUMPY

    with pytest.raises(ValueError, match="device='cuda' is for arrays and files; X is a Cluster"):
        place_on_device(Cluster(), "cuda")


def test_a_fit_with_numpy_imports_no_torch():
    script = """
import sys, numpy, elldict
X = numpy.random.default_rng(0).standard_normal((500, 4)) ** 3
elldict.LpDictionaryLearning(random_state=0).fit(X).transform(X)
assert "torch" not in sys.modules and "triton" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=120)


# --- memory -----------------------------------------------------------------------------------------------------------


class OutOfMemoryError(RuntimeError):
    """As torch's is called."""


OutOfMemoryError.__module__ = "torch"


class Greedy:
    """A kernel for which a card has memory up to some rows."""

    def __init__(self, kernel, most):
        self.kernel, self.most = kernel, most

    def bind(self, backend):
        visit = self.kernel.bind(backend)

        def greedy(Y):
            if len(Y) > self.most:
                raise OutOfMemoryError("CUDA out of memory")
            return visit(Y)

        return greedy


@pytest.mark.parametrize("kind", [ArrayDataset, GpuStreamDataset])
def test_fault_31_out_of_memory_means_smaller_tiles_and_the_same_sums(easy, elsewhere, kind):
    from elldict._old.data.statistics import StatisticsKernel  # noqa: PLC0415

    source = ArrayDataset(easy[0])
    if kind is ArrayDataset:
        samples = ArrayDataset(elsewhere.asarray(easy[0], "float64"), 4000)
    else:
        samples = GpuStreamDataset(source, elsewhere, 4000)
    expected = source.sum(StatisticsKernel("float64"))
    with pytest.warns(SmallerTilesWarning, match="4000 samples at a time and was given 1000") as caught:
        found = samples.sum(Greedy(StatisticsKernel("float64"), 1500))
    assert len(caught) == 1
    assert samples.tile_rows == 1000
    np.testing.assert_allclose(to_numpy(found.scatter), expected.scatter, rtol=1e-12, atol=1e-9)


def test_fault_31_at_some_point_there_is_no_more_to_be_done(easy):
    samples = ArrayDataset(easy[0][:100], GPU_TILE_LEAST_ROWS)

    def fail():
        raise OutOfMemoryError("CUDA out of memory")

    with pytest.raises(OutOfMemoryError):
        retry_on_oom(samples, fail)


def test_other_errors_are_not_taken_for_want_of_memory(easy):
    def fail():
        raise RuntimeError("a fault of ours")

    with pytest.raises(RuntimeError, match="a fault of ours"):
        retry_on_oom(ArrayDataset(easy[0]), fail)


# --- ways that are meant for a card -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 7), (5, 9), (40, 40)])
@pytest.mark.parametrize("condition", [1.0, 1e3, 1e5])
def test_polar_by_products_is_the_polar_factor(shape, condition, rng):
    U, V = random_orthonormal(shape[0], shape[0], rng), random_orthonormal(*shape, rng)
    A = polar_by_products(U @ (np.geomspace(1, 1 / condition, shape[0])[:, None] * V) * 1e5)
    np.testing.assert_allclose(A, U @ V, atol=1e-13 * condition)
    np.testing.assert_allclose(A @ A.T, np.eye(shape[0]), atol=1e-13)


def test_polar_by_products_says_when_it_fails(rng):
    assert polar_by_products(rng.standard_normal((8, 2)) @ rng.standard_normal((2, 8))) is None
    U, V = random_orthonormal(8, 8, rng), random_orthonormal(8, 8, rng)
    assert polar_by_products(U @ (np.geomspace(1, 1e-12, 8)[:, None] * V)) is None  # it would be rounding alone


def test_polar_nearby_converges_as_stated(rng):
    U, V = random_orthonormal(20, 20, rng), random_orthonormal(20, 20, rng)
    X = U @ (rng.uniform(0.9, 1.1, 20)[:, None] * V)
    np.testing.assert_allclose(polar_nearby(X), U @ V, atol=1e-14)
    assert float(lack_of_orthonormality(polar_nearby(X, steps=1))) < 2 * 2.5 * 0.1**3


@pytest.fixture
def codes(rng):
    active = rng.random((3000, 24)) < 0.3
    return np.where(active, rng.standard_normal((3000, 24)), 0.05 * rng.standard_normal((3000, 24)))


@pytest.mark.parametrize("loudest", [1.0, 5.0])  # so different are atoms that a full fit leaves them to the host
def test_laws_fitted_where_codes_are_agree_with_those_of_the_host(codes, elsewhere, monkeypatch, loudest):
    codes[:, 0] *= loudest
    here = CodeHistogram.of(codes)
    as_if_on_a_card(monkeypatch)
    there = CodeHistogram.of(elsewhere.asarray(codes, "float64"))
    assert there.count is None
    start = SpikeSlab(np.full(24, 0.2), np.full(24, 1.5), 0.01, 1e-12)
    for fit in (
        lambda squares: fit_spike_slab(squares, least_noise=1e-12),
        lambda squares: fit_roughly(squares, least_noise=1e-12),
        lambda squares: update_spike_slab(squares, start),
    ):
        found, expected = fit(there), fit(here)
        assert isinstance(found.density, np.ndarray)
        # the host rounds codes to half an octave
        np.testing.assert_allclose(found.density, expected.density, rtol=0.03)
        np.testing.assert_allclose(found.power, expected.power, rtol=0.03)
        assert found.noise == pytest.approx(expected.noise, rel=0.05)


def test_a_law_that_hardly_differs_is_kept(codes, elsewhere, monkeypatch):
    as_if_on_a_card(monkeypatch)
    squares = CodeHistogram.of(elsewhere.asarray(codes, "float64"))
    law = fit_spike_slab(squares, least_noise=1e-12)
    assert update_spike_slab(squares, law) is law
    other = SpikeSlab(np.full(24, 0.2), np.full(24, 1.5), 0.01, 1e-12)
    assert update_spike_slab(squares, other) is not other


@pytest.mark.parametrize("noise_std", [0.0, 0.3])
def test_a_fit_by_the_ways_of_a_card_gives_the_same_answer(torch, monkeypatch, noise_std):
    X, _, _ = make_bernoulli_gaussian(9000, 16, density=0.3, noise_std=noise_std, random_state=0)
    plain = LpDictionaryLearning(random_state=0).fit(X)
    as_if_on_a_card(monkeypatch)
    model = LpDictionaryLearning(random_state=0).fit(torch.asarray(X))
    assert_same_atoms(
        to_numpy(model.components_), plain.components_, max(1e-7, 0.3 * np.sqrt(plain.expected_error_ / 2))
    )
    assert model.noise_std_ == pytest.approx(plain.noise_std_, rel=0.02, abs=1e-7)
    assert model.expected_error_ == pytest.approx(plain.expected_error_, rel=0.05, abs=1e-9)
    np.testing.assert_allclose(to_numpy(model.density_), plain.density_, rtol=0.05)


@pytest.mark.parametrize("least_work", [0.0, 1e11])  # with minibatches, and without
def test_whitened_samples_are_fitted_by_a_card_as_by_the_host(torch, monkeypatch, least_work):
    X, _, _ = make_bernoulli_gaussian(30_000, 20, density=0.2, random_state=0)
    X = (X @ np.diag(np.linspace(0.5, 2, 20)) + 1).astype(np.float32)
    plain = LpDictionaryLearning(center=True, whiten=True, random_state=0).fit(X)
    as_if_on_a_card(monkeypatch)
    monkeypatch.setattr("elldict._old.data.subsample.MIN_BATCH_WORK", least_work)
    model = LpDictionaryLearning(center=True, whiten=True, random_state=0).fit(torch.asarray(X))
    found, expected = (
        to_numpy(each) / np.linalg.norm(to_numpy(each), axis=1, keepdims=True)
        for each in (model.components_, plain.components_)
    )
    # steps end within a fourth of the standard error, here and there
    assert_same_atoms(found, expected, 0.5 * np.sqrt(plain.expected_error_ / 2))
    assert model.expected_error_ == pytest.approx(plain.expected_error_, rel=0.05)


def test_starts_and_axes_of_a_card_are_those_of_the_host(torch, elsewhere, monkeypatch, rng):
    X = rng.standard_normal((3000, 12)) @ rng.standard_normal((12, 12))
    here = compute_statistics(ArrayDataset(X), center=True, precise=True)
    start = random_orthonormal(12, 12, rng)
    as_if_on_a_card(monkeypatch)
    space = Backend.of(torch.empty(0))
    there = compute_statistics(ArrayDataset(space.asarray(X, "float64")), center=True, precise=True)
    np.testing.assert_allclose(there.eigenvalues, here.eigenvalues, rtol=1e-9)
    one, other = (Whitening.of(each, center=True, whiten=True) for each in (here, there))
    moved = other.move_to(space)
    assert moved is other.move_to(space)  # once
    # eigenvectors have signs of their own, atoms have not
    atoms = to_numpy(moved.start(space.asarray(start, "float64")) @ moved.to_white)
    np.testing.assert_allclose(atoms, one.start(start) @ one.to_white, atol=1e-8)


@pytest.mark.parametrize("signs", [1.0, -1.0])
def test_mixtures_fitted_where_codes_are_agree_with_those_of_the_host(torch, monkeypatch, rng, signs):
    codes = rng.laplace(size=(2000, 6))
    here = fit_mixture(codes, signs * np.ones(6), 30)
    as_if_on_a_card(monkeypatch)
    there = fit_mixture(torch.asarray(codes), signs * np.ones(6), 30)
    np.testing.assert_allclose(there.std, here.std, rtol=1e-12)
    np.testing.assert_allclose(there.weights, here.weights, atol=1e-6)  # in float32 on the host


def test_a_graph_never_goes_over_minibatches(easy, torch):
    samples, whitening = prepared(torch.asarray(easy[0].copy()))
    phase = use_newton(Phase(Lp(3), power_step, "float32", 1e-6, 10), signed=True)
    A = samples.backend.asarray(random_orthonormal(12, 12, np.random.default_rng(0)), "float64")
    problem = Problem(samples, whitening, FitLog(), share=0.5)
    assert CudaGraphStepper.try_to_make(problem, phase, A) is not None
    assert CudaGraphStepper.try_to_make(problem, replace(phase, minibatches=True), A) is None


def test_prepared_is_for_any_library(torch, easy):
    samples, whitening = prepared(torch.asarray(easy[0].copy()))
    assert samples.n_samples == 4000
    assert whitening.scale > 0


# --- too few samples --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_samples", "given_up"), [(12_000, True), (100_000, False)])
def test_a_search_in_vain_is_given_up_with_how_many_samples_it_takes(monkeypatch, n_samples, given_up):
    """Three steps find nothing. Laplace codes of 64 directions need 5 k^2 / kappa^2 = 2300; 16 times that here."""
    monkeypatch.setattr("elldict._old.solver.sample_size.MIN_WORK", 0.0)
    monkeypatch.setattr("elldict._old.solver.sample_size.MIN_RATIO", 40.0)
    monkeypatch.setattr("elldict._old.solver.pilot.looks_gaussian", lambda stats: True)
    X = np.random.default_rng(0).laplace(size=(n_samples, 64))
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        model = LpDictionaryLearning(random_state=0, max_iter=3).fit(X)
    assert ("samples would be needed" in model.status_) == given_up
    if given_up:
        needed = float(model.status_.split("about ")[1].split()[0])
        # the kurtosis, 3, has a standard error of (3 + 2) sqrt(2 / 8192) = .08 or 3 %, its square twice that
        assert needed == pytest.approx(80 * 64**2 / 3**2, rel=0.2)
    assert given_up <= any("More iterations would not help" in message for _, message in model.warnings_)
