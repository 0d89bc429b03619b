"""Real data that come with packages, or lie in a folder of the user."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets

from experiments.peers.base import required

Matrix = NDArray[np.float64]

MAX_SAMPLES = 22_000
"""Samples of a set: three quarters are for training."""

MAX_DIRECTIONS = 60
"""Principal directions of a set in a folder, at most."""

SAMPLES_PER_DIRECTION = 20
"""In a folder, at least: with fewer a density of 80 bins a code says more of chance than of the atoms."""

N_BLOCKS = 40
"""Blocks of consecutive samples, of which every fourth is held out."""


@dataclass(frozen=True)
class RealSet:
    """Samples, and how they are divided."""

    name: str
    load: Callable[[], Matrix]
    n_directions: int | None  # principal directions kept; None: as many as samples allow
    blocks: bool = False  # consecutive samples are alike, so that whole blocks are held out
    module: str = "sklearn"  # of the package that brings it


@dataclass(frozen=True)
class Split:
    """White samples: those that are fitted, and those that are not."""

    train: Matrix
    test: Matrix


def divide(X: Matrix, n_directions: int | None, *, blocks: bool) -> Split:
    """Three quarters for training, one held out; both centred and whitened by the former, the last directions left out.

    Which samples are drawn and held out does not depend on the seed of a fit.
    """
    order = np.random.default_rng(0).permutation(len(X))[:MAX_SAMPLES]
    if blocks:
        order = np.sort(order)
    number = np.arange(len(order))
    held_out = (number * N_BLOCKS // len(order) if blocks else number) % 4 == 3
    train, test = X[order[~held_out]], X[order[held_out]]
    mean = np.mean(train, axis=0)
    _, sizes, directions = np.linalg.svd(train - mean, full_matrices=False)
    rank = int(np.sum(sizes > 1e-6 * sizes[0]))
    k = min(rank, n_directions or min(MAX_DIRECTIONS, len(train) // SAMPLES_PER_DIRECTION))
    if k < 2:
        raise ValueError(
            f"{len(train)} training samples of rank {rank} leave {k} directions: expected at least 2, "
            f"with {SAMPLES_PER_DIRECTION} samples each. Add samples or features."
        )
    W = directions[:k].T / (sizes[:k] / np.sqrt(len(train)))
    return Split((train - mean) @ W, (test - mean) @ W)


def cut_patches(image: NDArray[Any], size: int) -> Matrix:
    """Patches (r, size * size * channels) at random places of an image, each without its mean."""
    rng = np.random.default_rng(0)
    rows, columns = (rng.integers(0, length - size + 1, MAX_SAMPLES) for length in image.shape[:2])
    patches = np.lib.stride_tricks.sliding_window_view(image, (size, size), axis=(0, 1))[rows, columns]
    flat = patches.reshape(MAX_SAMPLES, -1).astype(np.float64)
    return np.asarray(flat - np.mean(flat, axis=1, keepdims=True))


def load_grey(name: str) -> NDArray[Any]:
    """An image of scikit-learn in grey."""
    return np.asarray(np.mean(load_colour(name), axis=2))


def load_colour(name: str) -> NDArray[Any]:
    """An image of scikit-learn."""
    return np.asarray(datasets.load_sample_image(name))


def load_skimage(name: str) -> NDArray[Any]:
    """A grey image of scikit-image."""
    return np.asarray(getattr(required("skimage.data", "scikit-image"), name)())


def load_skimage_colour(name: str) -> NDArray[Any]:
    """An image of scikit-image in colour."""
    return load_skimage(name)


def load_table(load: Callable[[], Any]) -> Matrix:
    """A table of scikit-learn."""
    return np.asarray(load().data, dtype=np.float64)


def _patches(name: str, size: int, k: int, load: Callable[[str], NDArray[Any]], module: str = "sklearn") -> RealSet:
    colour = " in colour" if load in (load_colour, load_skimage_colour) else ""
    title = f"{name}{colour}, {size}x{size} patches"
    return RealSet(title, lambda: cut_patches(load(name), size), k, module=module)


PACKAGED = (
    _patches("china.jpg", 8, 63, load_grey),
    _patches("flower.jpg", 8, 63, load_grey),
    _patches("china.jpg", 6, 60, load_colour),
    _patches("flower.jpg", 6, 60, load_colour),
    RealSet("handwritten digits", lambda: load_table(datasets.load_digits), 30),
    RealSet("breast cancer", lambda: load_table(datasets.load_breast_cancer), 10),
    *(_patches(name, 8, 63, load_skimage, "skimage") for name in ("camera", "coins", "brick", "grass")),
    *(_patches(name, 8, 63, load_skimage, "skimage") for name in ("gravel", "moon", "clock", "cell")),
    *(_patches(name, 6, 60, load_skimage_colour, "skimage") for name in ("chelsea", "coffee")),
    RealSet("wine", lambda: load_table(datasets.load_wine), 5),
)
"""Sets that scikit-learn and scikit-image bring along, without a download."""


def list_packaged() -> list[RealSet]:
    """Sets of packages that are installed."""
    return [real for real in PACKAGED if importlib.util.find_spec(real.module) is not None]


def read_array(path: Path) -> Matrix:
    """The samples of a file: the array of a .npy file, or the one named X of a .npz file."""
    content = np.load(path, allow_pickle=False)
    if path.suffix == ".npz":
        if "X" not in content.files:
            raise ValueError(f"{path} holds {', '.join(content.files) or 'nothing'}: expected an array named X.")
        X = content["X"]
    else:
        X = content
    if X.ndim != 2 or not np.issubdtype(X.dtype, np.number) or np.iscomplexobj(X):
        raise ValueError(f"X of {path} has shape {X.shape} and dtype {X.dtype}: expected real samples as rows.")
    return np.asarray(X, dtype=np.float64)


def list_folder(folder: Path, blocks: Sequence[str]) -> list[RealSet]:
    """Every .npy and .npz file of a folder; held out in blocks if its name contains one of `blocks`."""
    paths = sorted(path for path in folder.iterdir() if path.suffix in (".npy", ".npz"))
    if not paths:
        raise FileNotFoundError(f"{folder} holds no .npy or .npz file: expected samples as rows of an array X.")
    return [
        RealSet(path.stem, functools.partial(read_array, path), None, any(part in path.stem for part in blocks))
        for path in paths
    ]
