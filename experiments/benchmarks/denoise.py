"""A photograph with Gaussian noise, denoised patch by patch: peak signal-to-noise ratios of several methods.

python -m experiments.benchmarks.denoise              # 1 minute

Overlapping patches are denoised and averaged. Dictionaries are learned from patches of the noisy image. The threshold
of 2.7 standard deviations is customary for averaged patches, and is told the noise level; `denoise` estimates it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from scipy.fft import dctn, idctn

from elldict import LpDictionaryLearning
from experiments.benchmarks.data import load_image
from experiments.benchmarks.study import Cell, Matrix, Row, Study, main, no_warnings, show_time, time_it, write_table
from experiments.peers.base import required

SIDE, N_PATCHES, PEAK, THRESHOLD = 8, 15_000, 255.0, 2.7
METHODS = ("none", "DCT, threshold", "threshold", "denoise", "denoise, known noise", "NL-means")
"""Threshold and denoise are those of elldict."""


@cache
def load_noisy(name: str, sigma: float) -> tuple[Matrix, Matrix]:
    """Load an image in grey, and the image with noise."""
    image = load_image(name)
    image = (image.mean(axis=2) if image.ndim == 3 else image).astype(np.float64)
    return image, image + sigma * np.random.default_rng(0).standard_normal(image.shape)


def cut_all(picture: Matrix) -> Matrix:
    """Cut all overlapping patches, as rows."""
    return np.lib.stride_tricks.sliding_window_view(picture, (SIDE, SIDE)).reshape(-1, SIDE * SIDE)


def average(patches: Matrix, shape: tuple[int, ...]) -> Matrix:
    """Average overlapping patches to an image."""
    total, count = np.zeros(shape), np.zeros(shape)
    rows, columns = shape[0] - SIDE + 1, shape[1] - SIDE + 1
    blocks = patches.reshape(rows, columns, SIDE, SIDE)
    for i, j in np.ndindex(SIDE, SIDE):
        total[i : i + rows, j : j + columns] += blocks[:, :, i, j]
        count[i : i + rows, j : j + columns] += 1
    return total / count


@cache
def learn(name: str, sigma: float) -> LpDictionaryLearning:
    """Learn a dictionary from patches of the noisy image."""
    patches = cut_all(load_noisy(name, sigma)[1])
    some = patches[np.random.default_rng(1).choice(len(patches), N_PATCHES, replace=False)]
    options: Any = {"transform_algorithm": "hard_threshold", "transform_alpha": THRESHOLD * sigma}
    with no_warnings():  # patches without their means have one direction less
        return LpDictionaryLearning(error_bars=False, **options).fit(some - some.mean(axis=1, keepdims=True))


def denoise(name: str, sigma: float, method: str) -> Matrix:
    """Denoise an image with a method: most denoise patches without their means."""
    noisy = load_noisy(name, sigma)[1]
    if method == "none":
        return noisy
    if method == "NL-means":
        options = {"patch_size": 5, "patch_distance": 6, "h": 0.8 * sigma, "sigma": sigma, "fast_mode": True}
        return np.asarray(required("skimage.restoration", "scikit-image").denoise_nl_means(noisy, **options), float)
    means = cut_all(noisy).mean(axis=1, keepdims=True)
    patches = cut_all(noisy) - means
    if method == "DCT, threshold":
        codes = dctn(patches.reshape(-1, SIDE, SIDE), axes=(1, 2), norm="ortho")
        codes[np.abs(codes) < THRESHOLD * sigma] = 0
        clean = np.asarray(idctn(codes, axes=(1, 2), norm="ortho")).reshape(len(patches), -1)
    elif method == "threshold":
        clean = np.asarray(learn(name, sigma).inverse_transform(learn(name, sigma).transform(patches)))
    else:
        clean = np.asarray(learn(name, sigma).denoise(patches, noise_std=sigma if "known" in method else None))
    return average(clean + means, noisy.shape)


def measure(cell: Cell) -> Row:
    """Denoise; measure the peak signal-to-noise ratio in dB, and the noise level that the fit estimates."""
    image, sigma, method = cell["image"], cell["sigma"], cell["method"]
    noise = learn(image, sigma).noise_std_ if method == "denoise" else None
    found, seconds = time_it(lambda: denoise(image, sigma, method))
    error = np.mean((np.clip(found, 0, PEAK) - load_noisy(image, sigma)[0]) ** 2)
    return {"psnr": 10 * np.log10(PEAK**2 / error), "seconds": seconds, "noise": noise}


def tabulate(rows: list[Row]) -> str:
    """Write one line per method."""
    lines: list[list[str]] = []
    for row in rows:
        noise = "-" if row["noise"] is None else f"{row['noise']:.1f}"
        name = f"{row['image']}, noise {row['sigma']:g}"
        lines.append([name, row["method"], f"{row['psnr']:.1f} dB", noise, show_time(row["seconds"])])
    return write_table(["image", "method", "PSNR", "estimated noise", "time"], lines)


CELLS = [{"image": "camera", "sigma": sigma, "method": method} for sigma in (10.0, 25.0) for method in METHODS]
SMALL = [{"image": "cell", "sigma": 25.0, "method": method} for method in METHODS]
STUDY = Study("denoise", 1, measure, tabulate, CELLS, SMALL, packages=("scikit-image",))

if __name__ == "__main__":
    main(STUDY, __doc__)
