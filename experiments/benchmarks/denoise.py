"""A photograph with Gaussian noise, cleaned: overlapping patches, averaged. Peak signal-to-noise ratios and a picture.

python -m experiments.benchmarks.denoise              # writes docs/images/clean.png
python -m experiments.benchmarks.denoise --no-picture
python -m experiments.benchmarks.denoise --patches    # errors of patches before they are averaged, only

Atoms are learned from patches of the noisy picture itself. The threshold of 2.7 standard deviations is customary for
averaged patches, and is told the noise; `denoise` is not.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.fft import dctn, idctn

from elldict import LpDictionaryLearning
from elldict._old.report.style import LIGHT
from experiments import IMAGES

PICTURE = IMAGES / "clean.png"
SIDE, SIGMA, N_PATCHES, PEAK = 8, 25.0, 15_000, 255.0
THRESHOLD = 2.7
"""In standard deviations of the noise."""

CROP = (slice(60, 220), slice(170, 330))
Matrix = NDArray[np.float64]


def read_photograph() -> Matrix:
    """The cameraman, or a photograph that comes with scikit-learn, in grey."""
    try:
        from skimage.data import camera  # noqa: PLC0415
    except ImportError:
        from sklearn.datasets import load_sample_image  # noqa: PLC0415

        return np.asarray(load_sample_image("china.jpg").mean(axis=2)[:, :512])
    return np.asarray(camera(), dtype=np.float64)


def cut_patches(picture: Matrix) -> Matrix:
    """All overlapping patches, as rows."""
    return np.lib.stride_tricks.sliding_window_view(picture, (SIDE, SIDE)).reshape(-1, SIDE * SIDE)


def average_patches(patches: Matrix, shape: tuple[int, ...]) -> Matrix:
    """The picture of which these are the patches; every pixel is the mean of its values in all of them."""
    total, count = np.zeros(shape), np.zeros(shape)
    rows, columns = shape[0] - SIDE + 1, shape[1] - SIDE + 1
    blocks = patches.reshape(rows, columns, SIDE, SIDE)
    for i in range(SIDE):
        for j in range(SIDE):
            total[i : i + rows, j : j + columns] += blocks[:, :, i, j]
            count[i : i + rows, j : j + columns] += 1
    return total / count


def measure_psnr(found: Matrix, truth: Matrix) -> float:
    """Peak signal-to-noise ratio, in dB."""
    return float(10 * np.log10(PEAK**2 / np.mean((np.clip(found, 0, PEAK) - truth) ** 2)))


def clean_by_patches(noisy: Matrix, clean: Callable[[Matrix], Matrix]) -> Matrix:
    """Patches without their means are cleaned."""
    patches = cut_patches(noisy)
    means = patches.mean(axis=1, keepdims=True)
    return average_patches(clean(patches - means) + means, noisy.shape)


def threshold_dct(patches: Matrix) -> Matrix:
    """Keep what is large in the discrete cosine transform."""
    codes = dctn(patches.reshape(-1, SIDE, SIDE), axes=(1, 2), norm="ortho")
    codes[np.abs(codes) < THRESHOLD * SIGMA] = 0
    return np.asarray(idctn(codes, axes=(1, 2), norm="ortho")).reshape(len(patches), -1)


def fit_atoms(noisy: Matrix, refine: str) -> LpDictionaryLearning:
    """Atoms of some patches of the noisy picture."""
    patches = cut_patches(noisy)
    drawn = patches[np.random.default_rng(1).choice(len(patches), N_PATCHES, replace=False)]
    model = LpDictionaryLearning(refine=refine, halves=False, max_iter=50, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # patches without their means have a direction less, and differ in loudness
        model.fit(drawn - drawn.mean(axis=1, keepdims=True))
    return model


def keep_large(model: LpDictionaryLearning, patches: Matrix) -> Matrix:
    """Keep what is large in the codes of the model."""
    model.set_params(transform_algorithm="hard_threshold", transform_alpha=THRESHOLD * SIGMA)
    return np.asarray(model.inverse_transform(model.transform(patches)))


def clean_all(noisy: Matrix) -> dict[str, Matrix]:
    """The picture by every method; seconds are printed."""
    found: dict[str, Matrix] = {"noisy": noisy}
    learned: dict[str, LpDictionaryLearning] = {}

    def run(name: str, clean: Callable[[], Matrix]) -> None:
        began = time.perf_counter()
        found[name] = clean()
        print(f"{name}: {time.perf_counter() - began:.1f} s", flush=True)

    run("DCT, 2.7 sigma", lambda: clean_by_patches(noisy, threshold_dct))
    for refine in ("auto", "mixture"):
        began = time.perf_counter()
        learned[refine] = model = fit_atoms(noisy, refine)
        print(f"fit, refine={refine!r}: {time.perf_counter() - began:.1f} s, noise_std_ {model.noise_std_:.1f}")
        run(f"denoise, {refine}", lambda model=model: clean_by_patches(noisy, model.denoise))  # type: ignore[misc]
    run("elldict, 2.7 sigma", lambda: clean_by_patches(noisy, lambda patches: keep_large(learned["auto"], patches)))
    try:
        from skimage.restoration import denoise_nl_means  # noqa: PLC0415
    except ImportError:
        print("NL-means needs scikit-image")
        return found
    options = {"patch_size": 5, "patch_distance": 6, "h": 0.8 * SIGMA, "sigma": SIGMA, "fast_mode": True}
    run("NL-means", lambda: np.asarray(denoise_nl_means(noisy, **options), dtype=np.float64))
    return found


def compare_patches(noisy: Matrix, truth: Matrix) -> None:
    """Errors of single patches, and of the picture that they are averaged to."""
    patches, true_patches = cut_patches(noisy), cut_patches(truth)
    means = patches.mean(axis=1, keepdims=True)
    model = fit_atoms(noisy, "auto")
    ways: dict[str, Callable[[Matrix], Matrix]] = {
        "2.7 sigma": lambda rows: keep_large(model, rows),
        "denoise": model.denoise,
        "denoise, noise_std=25": lambda rows: np.asarray(model.denoise(rows, noise_std=SIGMA)),
    }
    for name, clean in ways.items():
        found = clean(patches - means) + means
        averaged = measure_psnr(average_patches(found, noisy.shape), truth)
        print(
            f"{name:22s} a patch {measure_psnr(found, true_patches):6.2f} dB, averaged {averaged:6.2f} dB", flush=True
        )


def draw_picture(truth: Matrix, found: dict[str, Matrix]) -> Figure:
    """A part of the photograph, by every method."""
    shown = {"photograph": truth, **found}
    wanted = ("photograph", "noisy", "DCT, 2.7 sigma", "denoise, mixture", "elldict, 2.7 sigma", "NL-means")
    names = [name for name in wanted if name in shown]
    figure = Figure(figsize=(9, 6.4), facecolor=LIGHT.card, layout="constrained")
    for place, name in enumerate(names):
        axes = figure.add_subplot(2, 3, place + 1)
        axes.imshow(shown[name][CROP], cmap="gray", vmin=0, vmax=PEAK, interpolation="nearest")
        axes.set_xticks([])
        axes.set_yticks([])
        title = name if name == "photograph" else f"{name}: {measure_psnr(shown[name], truth):.1f} dB"
        axes.set_title(title, color=LIGHT.ink, fontsize=11)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--no-picture", action="store_true", help="print the table only")
    parser.add_argument("--patches", action="store_true", help="print errors of patches only")
    options = parser.parse_args()
    truth = read_photograph()
    noisy = truth + SIGMA * np.random.default_rng(0).standard_normal(truth.shape)
    if options.patches:
        compare_patches(noisy, truth)
        return
    found = clean_all(noisy)
    print(f"\nsigma = {SIGMA:g}, {SIDE} x {SIDE} patches\n")
    for name, picture in found.items():
        print(f"{name:20s} {measure_psnr(picture, truth):6.2f} dB")
    if not options.no_picture:
        draw_picture(truth, found).savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    main()
