"""Handwritten digits, reconstructed from a few coefficients: data and task of Figure 6."""

from __future__ import annotations

import base64
import hashlib
import time
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import fetch_openml, get_data_home, load_digits
from sklearn.neighbors import KNeighborsClassifier

from elldict.atomic import open_atomic
from experiments.peers.orthonormal import keep_largest
from experiments.reproduction.cells import METHODS, Cell

N_KEPT, MOST_KEPT = 5, 10  # coefficients per image: as in the paper, and the most for which errors are stored
N_KNOWN = 10_000  # images of the nearest-neighbour classifier that reads reconstructions
N_DIGITS_TRAIN = 1297
START_SEED = 2_000_000

NAMES = (
    ("train_images", "train_labels", "test_images", "test_labels"),
    ("x_train", "y_train", "x_test", "y_test"),
)
"""Names of the arrays in common .npz files of MNIST."""

Images = NDArray[np.float32]


class ImagesError(Exception):
    """Images cannot be used; the message says why."""


@dataclass(frozen=True)
class Source:
    """The set of images; `path` is None for those of scikit-learn."""

    name: str  # "digits" or "mnist"
    side: int
    n_train: int
    n_test: int
    fingerprint: str
    path: Path | None = None

    @staticmethod
    def of(choice: str | None) -> Source:
        """Open what the user chose: None for the digits of scikit-learn, "openml", or a file."""
        if choice is None:
            return Source("digits", 8, N_DIGITS_TRAIN, 1797 - N_DIGITS_TRAIN, "scikit-learn")
        path = download() if choice == "openml" else Path(choice)
        train, _, test, _ = read(path)
        fingerprint = hashlib.sha256(train.tobytes() + test.tobytes()).hexdigest()[:12]
        return Source("mnist", train.shape[1], len(train), len(test), fingerprint, path)

    @property
    def words(self) -> str:
        """Description for captions."""
        if self.name == "digits":
            return f"{self.n_train + self.n_test} digits of 8 x 8 pixels that come with scikit-learn"
        return f"MNIST, {self.side} x {self.side} pixels"


@dataclass(frozen=True, eq=False)
class Split:
    """Images as rows between 0 and 1, their digits, and the index of the first test image of each digit."""

    train: Images
    train_labels: NDArray[Any]
    test: Images
    test_labels: NDArray[Any]
    shown: NDArray[np.intp]

    @staticmethod
    def of(setting: Mapping[str, Any], path: str | None) -> Split:
        """Read the images of a cell."""
        n_train, n_test = setting["n_train"], setting["n_test"]
        train, train_labels, test, test_labels = read_digits() if setting["source"] == "digits" else read(path or "")
        scale = np.float32(max(train[:n_train].max(), 1))
        train, test = (
            images.reshape(len(images), -1).astype(np.float32) / scale for images in (train[:n_train], test[:n_test])
        )
        shown = np.array([np.flatnonzero(test_labels[:n_test] == digit)[0] for digit in range(10)])
        return Split(train, train_labels[:n_train], test, test_labels[:n_test], shown)


def rebuild(cell: Cell, files: Mapping[str, str]) -> tuple[dict[str, Any], float]:
    """Fit a method to some images, and reconstruct others from their largest coefficients."""
    setting = dict(cell.setting)
    split = Split.of(setting, files.get("mnist"))
    model = METHODS[cell.method].make(setting, dict(cell.options), START_SEED + cell.seed)
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # images have constant pixels and are not white
        model.fit(split.train)
    seconds = time.process_time() - started
    reader = KNeighborsClassifier(1, algorithm="brute").fit(split.train[:N_KNOWN], split.train_labels[:N_KNOWN])
    A, mean = np.asarray(model.components_), np.asarray(getattr(model, "mean_", 0.0))
    codes = (split.test - mean) @ A.T
    errors = [measure_loss(keep_largest(codes, k) @ A + mean, split.test) for k in range(1, MOST_KEPT + 1)]
    best = (keep_largest(codes, N_KEPT) @ A + mean).astype(np.float32)
    first = (codes[:, :N_KEPT] @ A[:N_KEPT] + mean).astype(np.float32)
    named = {"": best, "first_": first}
    return {
        "errors": errors,
        **{f"{name}error": measure_loss(some, split.test) for name, some in named.items()},
        **{f"{name}recognised": float(reader.score(some, split.test_labels)) for name, some in named.items()},
        **{f"{name}shown": pack(some[split.shown]) for name, some in named.items()},
        "originals_recognised": float(reader.score(split.test, split.test_labels)),
        "originals": pack(split.test[split.shown]),
        "n_iter": int(model.n_iter_),
        "at_limit": int(model.n_iter_) >= getattr(model, "max_iter", np.inf),
    }, seconds


def pack(rows: Images) -> str:
    """Encode images between 0 and 1 as text, one byte per pixel."""
    return base64.b64encode(np.round(255 * np.clip(rows, 0, 1)).astype(np.uint8).tobytes()).decode()


def unpack(text: str, side: int) -> NDArray[np.uint8]:
    """Decode images, as squares."""
    return np.frombuffer(base64.b64decode(text), dtype=np.uint8).reshape(-1, side, side)


def measure_loss(rebuilt: Images, original: Images) -> float:
    """Compute the squared error as a fraction of the squared norm of the images."""
    return float(np.sum((rebuilt - original) ** 2, dtype=np.float64) / np.sum(original**2, dtype=np.float64))


# --- reading ----------------------------------------------------------------------------------------------------------


def read_digits() -> list[NDArray[Any]]:
    """Return training images, their labels, test images and their labels of scikit-learn's digits."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images, labels, k = images[order].reshape(-1, 8, 8), labels[order], N_DIGITS_TRAIN
    return [images[:k], labels[:k], images[k:], labels[k:]]


def read(path: str | Path) -> list[NDArray[Any]]:
    """Read training images, their labels, test images and their labels from a file of MNIST."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            for names in NAMES:
                if set(names) <= set(arrays.files):
                    return [arrays[name] for name in names]
            found = ", ".join(arrays.files)
    except OSError as error:
        raise ImagesError(f"{path}: {error.strerror or error}") from error
    except (TypeError, ValueError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ImagesError(f"{path} is not a complete .npz file of arrays: {error}") from error
    raise ImagesError(f"{path} holds {found}; expected {', '.join(NAMES[0])} or {', '.join(NAMES[1])}.")


def download() -> Path:
    """Download MNIST from OpenML into the data folder of scikit-learn, unless it is there."""
    path = Path(get_data_home()) / "elldict-mnist-with-labels.npz"
    if not path.exists():
        try:
            images, labels = fetch_openml("mnist_784", version=1, as_frame=False, return_X_y=True)
        except OSError as error:
            raise ImagesError(f"OpenML: {error}. Try again, or give a file: --mnist FILE.npz.") from error
        images, labels = images.astype(np.uint8).reshape(-1, 28, 28), labels.astype(np.uint8)
        arrays = (images[:60_000], labels[:60_000], images[60_000:], labels[60_000:])
        with open_atomic(path) as stream:
            np.savez_compressed(stream, **dict(zip(NAMES[0], arrays, strict=True)))
    return path
