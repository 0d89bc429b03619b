"""Real data that come with scikit-learn and scikit-image, or lie in a folder; and the gain on held-out samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets

from experiments.benchmarks.study import Matrix
from experiments.peers.base import required

MAX_SAMPLES = 22_000  # three quarters are for training
MAX_DIRECTIONS = 60  # principal directions of a set in a folder
SAMPLES_PER_DIRECTION = 20  # fewer would make histograms of 80 bins noisy
N_BLOCKS = 40  # blocks of consecutive samples, of which every fourth is held out
N_BINS, STRETCH = 80, 4.0  # bins of equal width in asinh(4 z): narrow around zero, wide in the tails
LEAST_COUNT = 0.1  # added to every bin, so that no held-out code has density zero


@dataclass(frozen=True)
class RealSet:
    """Samples, and how they are divided."""

    name: str
    load: Callable[[], Matrix]
    n_directions: int | None = None  # principal directions that are kept; None: as many as the samples allow
    blocks: bool = False  # whether consecutive samples are similar, so that whole blocks are held out


@dataclass(frozen=True)
class Split:
    """White samples for training, and held-out samples, whitened in the same way."""

    train: Matrix
    test: Matrix


def divide(X: Matrix, n_directions: int | None = None, *, blocks: bool = False) -> Split:
    """Hold out a quarter of the samples; centre and whiten all by the others, in their first principal directions."""
    order = np.random.default_rng(0).permutation(len(X))[:MAX_SAMPLES]
    order = np.sort(order) if blocks else order
    number = np.arange(len(order))
    held_out = (number * N_BLOCKS // len(order) if blocks else number) % 4 == 3
    train, test = X[order[~held_out]], X[order[held_out]]
    mean = np.mean(train, axis=0)
    _, sizes, directions = np.linalg.svd(train - mean, full_matrices=False)
    rank = int(np.sum(sizes > 1e-6 * sizes[0]))
    k = min(rank, n_directions or min(MAX_DIRECTIONS, len(train) // SAMPLES_PER_DIRECTION))
    if k < 2:
        raise ValueError(f"{len(train)} training samples of rank {rank} are too few: use at least 40.")
    W = directions[:k].T / (sizes[:k] / np.sqrt(len(train)))
    return Split((train - mean) @ W, (test - mean) @ W)


def measure_log_density(train: Matrix, test: Matrix) -> float:
    """Measure the mean log density of test codes, summed over codes, for smoothed histograms of training codes."""
    u, v = np.arcsinh(STRETCH * train), np.arcsinh(STRETCH * test)
    total = float(np.sum(np.mean(np.log(STRETCH / np.cosh(v)), axis=0)))  # dv/dz: from a density of v to one of z
    for mine, theirs in zip(u.T, v.T, strict=True):
        counts, edges = np.histogram(mine, N_BINS)
        counts = np.convolve(counts, (0.25, 0.5, 0.25), mode="same") + LEAST_COUNT
        density = counts / (np.sum(counts) * (edges[1] - edges[0]))
        # codes beyond all training codes count in the last bin
        which = np.clip(np.searchsorted(edges, theirs, side="right") - 1, 0, N_BINS - 1)
        total += float(np.mean(np.log(density[which])))
    return total


def measure_gain(split: Split, A: Matrix) -> float:
    """Measure what the rotation A adds to the log density of a held-out sample, in nats."""
    return measure_log_density(split.train @ A.T, split.test @ A.T) - measure_log_density(split.train, split.test)


def cut_patches(image: Matrix, size: int) -> Matrix:
    """Cut patches (r, size * size * channels) at random places of an image; subtract the mean of each."""
    rng = np.random.default_rng(0)
    rows, columns = (rng.integers(0, length - size + 1, MAX_SAMPLES) for length in image.shape[:2])
    patches = np.lib.stride_tricks.sliding_window_view(image, (size, size), axis=(0, 1))[rows, columns]
    flat = patches.reshape(MAX_SAMPLES, -1).astype(np.float64)
    return np.asarray(flat - np.mean(flat, axis=1, keepdims=True))


def load_image(name: str) -> Matrix:
    """Load an image: a name that ends in .jpg is one of scikit-learn, any other one of scikit-image."""
    if name.endswith(".jpg"):
        return np.asarray(datasets.load_sample_image(name))
    return np.asarray(getattr(required("skimage.data", "scikit-image"), name)())


def load_patches(name: str, size: int, *, grey: bool) -> Matrix:
    """Load patches of an image, whose colours are averaged if it is to be grey."""
    image = load_image(name)
    return cut_patches(image.mean(axis=2) if grey and image.ndim == 3 else image, size)


def load_table(name: str) -> Matrix:
    """Load a table of scikit-learn."""
    return np.asarray(getattr(datasets, f"load_{name}")().data, dtype=np.float64)


GREY = ("china.jpg", "flower.jpg", "camera", "coins", "brick", "grass", "gravel", "moon", "clock", "cell")
COLOUR = ("china.jpg", "flower.jpg", "chelsea", "coffee")
SETS = {
    real.name: real
    for real in (
        *(RealSet(f"{name}, 8x8 patches", partial(load_patches, name, 8, grey=True), 63) for name in GREY),
        *(RealSet(f"{name} in colour, 6x6 patches", partial(load_patches, name, 6, grey=False), 60) for name in COLOUR),
        RealSet("handwritten digits", partial(load_table, "digits"), 30),
        RealSet("breast cancer", partial(load_table, "breast_cancer"), 10),
        RealSet("wine", partial(load_table, "wine"), 5),
    )
}
"""Sets that need no download, by name."""


@cache
def split_set(name: str) -> Split:
    """Load and divide a set."""
    real = SETS[name]
    return divide(real.load(), real.n_directions, blocks=real.blocks)


def read_array(path: Path) -> Matrix:
    """Read the array of a .npy file, or the one named X of a .npz file."""
    content: Any = np.load(path, allow_pickle=False)
    X = content["X"] if path.suffix == ".npz" else content
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        raise ValueError(f"X of {path} has shape {X.shape} and dtype {X.dtype}: expected real samples as rows.")
    return np.asarray(X, dtype=np.float64)


def list_folder(folder: Path, blocks: Sequence[str] = ()) -> list[RealSet]:
    """List the .npy and .npz files of a folder; files whose names contain one of `blocks` are held out in blocks."""
    paths = sorted(path for path in folder.iterdir() if path.suffix in (".npy", ".npz"))
    return [RealSet(p.stem, partial(read_array, p), None, any(part in p.stem for part in blocks)) for p in paths]
