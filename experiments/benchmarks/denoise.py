"""A photograph with Gaussian noise, denoised patch by patch: peak signal-to-noise ratios of several methods.

python -m experiments.benchmarks.denoise              # 1 minute; the picture is drawn by benchmarks.pictures

Overlapping patches are denoised and averaged. Dictionaries are learned from patches of the noisy image. The threshold of
2.7 standard deviations is customary for averaged patches, and is told the noise level; `denoise` estimates it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from scipy.fft import dctn, idctn

from elldict import LpDictionaryLearning
from experiments.benchmarks.data import load_image
from experiments.benchmarks.study import Cell, Matrix, Row, Study, main, no_warnings, show_time, time_it, write_table
from experiments.peers.base import required

SIDE, N_PATCHES, PEAK, THRESHOLD = 8, 15_000, 255.0, 2.7


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


def denoise_patches(noisy: Matrix, clean: Callable[[Matrix], Matrix]) -> Matrix:
    """Denoise patches without their means, and average them."""
    patches = cut_all(noisy)
    means = patches.mean(axis=1, keepdims=True)
    return average(clean(patches - means) + means, noisy.shape)


def threshold_dct(patches: Matrix, sigma: float) -> Matrix:
    """Keep the large coefficients of the discrete cosine transform."""
    codes = dctn(patches.reshape(-1, SIDE, SIDE), axes=(1, 2), norm="ortho")
    codes[np.abs(codes) < THRESHOLD * sigma] = 0
    return np.asarray(idctn(codes, axes=(1, 2), norm="ortho")).reshape(len(patches), -1)


@cache
def learn(name: str, sigma: float) -> LpDictionaryLearning:
    """Learn a dictionary from patches of the noisy image."""
    patches = cut_all(load_noisy(name, sigma)[1])
    some = patches[np.random.default_rng(1).choice(len(patches), N_PATCHES, replace=False)]
    with no_warnings():  # patches without their means have one direction less
        return LpDictionaryLearning(error_bars=False).fit(some - some.mean(axis=1, keepdims=True))


def threshold_codes(patches: Matrix, model: LpDictionaryLearning, sigma: float) -> Matrix:
    """Keep the large codes of a dictionary."""
    model.set_params(transform_algorithm="hard_threshold", transform_alpha=THRESHOLD * sigma)
    return np.asarray(model.inverse_transform(model.transform(patches)))


def denoise_nl_means(noisy: Matrix, sigma: float) -> Matrix:
    """Apply non-local means of scikit-image."""
    options = {"patch_size": 5, "patch_distance": 6, "h": 0.8 * sigma, "sigma": sigma, "fast_mode": True}
    function = required("skimage.restoration", "scikit-image").denoise_nl_means
    return np.asarray(function(noisy, **options), dtype=np.float64)


def denoise(name: str, sigma: float, method: str) -> Matrix:
    """Denoise an image with a method."""
    noisy = load_noisy(name, sigma)[1]
    methods: dict[str, Callable[[], Matrix]] = {
        "none": lambda: noisy,
        "DCT, threshold": lambda: denoise_patches(noisy, lambda patches: threshold_dct(patches, sigma)),
        "elldict, threshold": lambda: denoise_patches(
            noisy, lambda patches: threshold_codes(patches, learn(name, sigma), sigma)
        ),
        "elldict, denoise": lambda: denoise_patches(noisy, learn(name, sigma).denoise),
        "elldict, denoise, known noise": lambda: denoise_patches(
            noisy, lambda patches: np.asarray(learn(name, sigma).denoise(patches, noise_std=sigma))
        ),
        "NL-means": lambda: denoise_nl_means(noisy, sigma),
    }
    return methods[method]()


METHODS = (
    "none",
    "DCT, threshold",
    "elldict, threshold",
    "elldict, denoise",
    "elldict, denoise, known noise",
    "NL-means",
)


def measure(cell: Cell) -> Row:
    """Denoise; measure the peak signal-to-noise ratio in dB, and the noise level that the fit estimates."""
    found, seconds = time_it(lambda: denoise(cell["image"], cell["sigma"], cell["method"]))
    truth = load_noisy(cell["image"], cell["sigma"])[0]
    psnr = 10 * np.log10(PEAK**2 / np.mean((np.clip(found, 0, PEAK) - truth) ** 2))
    noise = learn(cell["image"], cell["sigma"]).noise_std_ if cell["method"] == "elldict, denoise" else None
    return {"psnr": psnr, "seconds": seconds, "noise": noise}


def tabulate(rows: list[Row]) -> str:
    """Write one line per method."""
    lines = []
    for row in rows:
        noise = "-" if row["noise"] is None else f"{row['noise']:.1f}"
        name = f"{row['image']}, noise {row['sigma']:g}"
        lines.append([name, row["method"], f"{row['psnr']:.1f} dB", noise, show_time(row["seconds"])])
    return write_table(["image", "method", "PSNR", "estimated noise", "time"], lines)


STUDY = Study(
    name="denoise",
    minutes=1,
    cells=[{"image": "camera", "sigma": sigma, "method": method} for sigma in (10.0, 25.0) for method in METHODS],
    small=[
        {"image": "cell", "sigma": 25.0, "method": method} for method in ("none", "DCT, threshold", "elldict, denoise")
    ],
    measure=measure,
    tabulate=tabulate,
    packages=("scikit-image",),
)

if __name__ == "__main__":
    main(STUDY, __doc__)
