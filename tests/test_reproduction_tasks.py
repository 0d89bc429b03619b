"""What cells do: recovery, population runs, and digits from a few numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from elldict._old.solver.directions import random_orthonormal
from elldict.datasets import make_bernoulli_gaussian
from elldict.metrics import recovery_error
from experiments.reproduction import images
from experiments.reproduction.cells import METHODS, make_cell
from experiments.reproduction.figures.figure3 import Run, population_cell
from experiments.reproduction.images import ImagesError, Source, Split, packed, unpacked
from experiments.reproduction.tasks import run_cell, unit_row_error, uses_card

TINY = {"n_features": 5, "n_samples": 800, "density": 0.3}
MNIST = Path(__file__).parents[2] / "shared" / "data" / "mnist.npz"


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"pca", "top-k", "power"}))
def test_every_method_recovers_a_tiny_dictionary(method):
    if METHODS[method].missing:
        pytest.skip(f"{METHODS[method].missing} is not installed")
    options = {"ksvd": {"max_iter": 30}}.get(method, {})
    values, seconds = run_cell(make_cell("recovery", method, TINY, 1, options), {})
    assert 0 <= values["error"] < 0.08
    assert values["n_iter"] >= 1
    assert seconds > 0


def test_a_cell_is_the_same_every_time():
    cell = make_cell("recovery", "lp", TINY | {"noise_std": 0.2, "dtype": "float32"}, 3, {"p": 3})
    assert run_cell(cell, {})[0] == run_cell(cell, {})[0]


def test_a_device_changes_nothing_but_the_place():
    cell = make_cell("recovery", "lp", TINY, 3, {"p": 3})
    assert uses_card(cell, "cpu")  # a device like any other
    assert run_cell(cell, {}, "cpu")[0] == run_cell(cell, {})[0]
    assert not uses_card(cell, None)
    assert not uses_card(make_cell("recovery", "fastica", TINY, 3), "cuda")
    assert not uses_card(population_cell("power", "sphere", 8, 0.1, 0), "cuda")


def test_warnings_are_part_of_the_result():
    cell = make_cell("recovery", "lp", TINY | {"noise_std": 5.0}, 0, {"p": 3, "max_iter": 2})
    assert "ConvergenceWarning" in run_cell(cell, {})[0]["warnings"]


def test_the_error_is_the_papers(rng):
    _, dictionary, _ = make_bernoulli_gaussian(10, 6, density=0.3, random_state=0)
    A = random_orthonormal(6, 6, rng)
    assert unit_row_error(A, dictionary) == pytest.approx(recovery_error(A, dictionary))
    assert unit_row_error(3 * dictionary[::-1], dictionary) == pytest.approx(0, abs=1e-12)
    with pytest.raises(ValueError, match="not finite"):
        unit_row_error(np.full((6, 6), np.nan), dictionary)


@pytest.mark.parametrize("constraint", ["sphere", "orthogonal"])
def test_the_population_power_method_falls_by_theta(constraint):
    values, _ = run_cell(population_cell("power", constraint, 8, 0.1, 0), {})
    assert values["errors"][0] > 0.1
    assert values["errors"][-1] < 1e-13
    assert Run(constraint, 8, tuple(values["errors"])).factor == pytest.approx(0.1, rel=0.02)


def test_gradient_steps_start_where_the_power_method_does_and_take_longer():
    if METHODS["gradient"].missing:
        pytest.skip("pymanopt is not installed")
    fast, slow = (
        run_cell(population_cell(method, "sphere", 8, 0.3, 0, **options), {})[0]["errors"]
        for method, options in (("power", {}), ("gradient", {"step": 0.25}))
    )
    assert fast[0] == slow[0]
    assert len(slow) > 3 * len(fast)


def test_a_run_that_never_gets_there_has_no_factor():
    run = Run("sphere", 3, (1.0, 0.9, 0.8))
    assert (run.factor, run.n_first) == (None, 3)


# --- images -----------------------------------------------------------------------------------------------------------


def digits_cell(method, **options):
    setting = {"source": "digits", "fingerprint": "scikit-learn", "n_train": 300, "n_test": 60}
    return make_cell("images", method, setting, 0, options)


def test_more_coefficients_lose_less_and_the_best_beat_the_first():
    values, _ = run_cell(digits_cell("pca", center=False), {})
    assert values["errors"] == sorted(values["errors"], reverse=True)
    assert values["error"] == values["errors"][4]
    assert 0 < values["error"] < values["first_error"] < 1
    assert unpacked(values["shown"], 8).shape == unpacked(values["originals"], 8).shape == (10, 8, 8)


@pytest.mark.parametrize(
    ("method", "options"),
    [("lp", {"p": 3, "max_iter": 5}), ("top-k", {"n_nonzero_coefs": 5, "start_max_iter": 5, "max_iter": 3})],
)
def test_digits_are_rebuilt(method, options):
    values, _ = run_cell(digits_cell(method, **options), {})
    assert 0 < values["error"] < 0.3


def test_pixels_survive_packing(rng):
    pixels = rng.integers(0, 256, (2, 64)) / 255
    np.testing.assert_array_equal(unpacked(packed(pixels.astype(np.float32)), 8).reshape(2, 64), np.round(255 * pixels))


def write_mnist(path, names=images.NAMES[0], n=40):
    rng = np.random.default_rng(0)
    train, test = (rng.integers(0, 256, (k, 6, 6), dtype=np.uint8) for k in (n, 20))
    np.savez(path, **dict(zip(names, (train, np.arange(n) % 10, test, np.arange(20) % 10), strict=True)))
    return path


@pytest.mark.parametrize("names", images.NAMES)
def test_a_file_of_images_is_read_whatever_its_names(tmp_path, names):
    path = write_mnist(tmp_path / "mnist.npz", names)
    source = Source.of(str(path))
    assert (source.name, source.side, source.n_train, source.n_test) == ("mnist", 6, 40, 20)
    setting = {"source": "mnist", "fingerprint": source.fingerprint, "n_train": 30, "n_test": 20}
    values, _ = run_cell(make_cell("images", "pca", setting, 0, {"center": True}), {"mnist": str(path)})
    assert 0 < values["error"] < 1


def test_other_images_are_another_cell(tmp_path):
    first, second = (Source.of(str(write_mnist(tmp_path / f"{n}.npz", n=n))) for n in (40, 41))
    assert first.fingerprint != second.fingerprint


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        (b"no archive", "not a whole .npz file"),
        (b"PK\x03\x04 and then nothing", "not a whole .npz file"),
        ({"a": np.zeros(3)}, "holds a; expected train_images"),
    ],
)
def test_a_file_that_holds_no_images_is_named(tmp_path, content, words):
    path = tmp_path / "file.npz"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.savez(path, **content)
    with pytest.raises(ImagesError, match=words):
        Source.of(str(path))


def test_no_digit_is_both_learned_from_and_rebuilt():
    split = Split.of({"source": "digits", "n_train": 1297, "n_test": 500}, None)
    assert (len(split.train), len(split.test), split.train.max()) == (1297, 500, 1.0)
    assert not {image.tobytes() for image in split.train} & {image.tobytes() for image in split.test}


@pytest.mark.skipif(not MNIST.exists(), reason="MNIST is not part of the project")
def test_mnist_as_it_is_distributed():
    source = Source.of(str(MNIST))
    assert (source.side, source.n_train, source.n_test) == (28, 60_000, 10_000)
    setting = {"source": "mnist", "fingerprint": source.fingerprint, "n_train": 2000, "n_test": 500}
    values, _ = run_cell(make_cell("images", "pca", setting, 0, {"center": False}), {"mnist": str(MNIST)})
    assert values["error"] == pytest.approx(0.34, abs=0.03)
    assert values["first_recognised"] < values["recognised"] < values["originals_recognised"]
