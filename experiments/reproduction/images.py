"""Handwritten digits, rebuilt from a few coefficients: data and task of the paper's last figure."""

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

from elldict._old.atomic import write_atomically
from experiments.peers.orthonormal import keep_largest
from experiments.reproduction.cells import METHODS, Cell

N_KEPT = 5
"""Coefficients kept for each image, as in the paper."""

MOST_KEPT = 10
N_KNOWN = 10_000
"""Images that the reader of rebuilt ones knows: it names the digit of the nearest of them."""

N_DIGITS_TRAIN = 1297
START_SEED = 2_000_000

Images = NDArray[np.float32]


class ImagesError(Exception):
    """Images that cannot be used; the message says why."""


@dataclass(frozen=True)
class Source:
    """Where images come from. `path` is None for those that scikit-learn brings along."""

    name: str  # "digits" or "mnist"
    side: int
    n_train: int
    n_test: int
    fingerprint: str
    path: Path | None = None

    @staticmethod
    def of(choice: str | None) -> Source:
        """From what a user may ask for: None for scikit-learn's digits, "openml", or a file."""
        if choice is None:
            return Source("digits", 8, N_DIGITS_TRAIN, 1797 - N_DIGITS_TRAIN, "scikit-learn")
        path = _downloaded() if choice == "openml" else Path(choice)
        data = _read(path)
        fingerprint = hashlib.sha256(data.train.tobytes() + data.test.tobytes()).hexdigest()[:12]
        return Source("mnist", data.train.shape[1], len(data.train), len(data.test), fingerprint, path)

    @property
    def words(self) -> str:
        """For captions."""
        if self.name == "digits":
            return f"{self.n_train + self.n_test} digits of 8 x 8 pixels that come with scikit-learn"
        return f"MNIST, {self.side} x {self.side} pixels"


@dataclass(frozen=True, eq=False)
class Split:
    """Images as rows between 0 and 1, their digits, and the first test image of each."""

    train: Images
    train_labels: NDArray[Any]
    test: Images
    test_labels: NDArray[Any]
    shown: NDArray[np.intp]

    @staticmethod
    def of(setting: Mapping[str, Any], path: str | None) -> Split:
        """What a cell learns from and is judged on."""
        data = _digits() if setting["source"] == "digits" else _read(Path(path or ""))
        n_train, n_test = setting["n_train"], setting["n_test"]
        scale = np.float32(max(data.train[:n_train].max(), 1))
        train, test = (
            images.reshape(len(images), -1).astype(np.float32) / scale
            for images in (data.train[:n_train], data.test[:n_test])
        )
        labels = data.test_labels[:n_test]
        shown = np.array([np.flatnonzero(labels == digit)[0] for digit in range(10)])
        return Split(train, data.train_labels[:n_train], test, labels, shown)


def rebuild(cell: Cell, files: Mapping[str, str]) -> tuple[dict[str, Any], float]:
    """Learn from some images, rebuild others from the largest few of their coefficients."""
    setting = dict(cell.setting)
    split = Split.of(setting, files.get("mnist"))
    model = METHODS[cell.method].make(setting, dict(cell.options), START_SEED + cell.seed)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # blank pixels, correlations: known of images, and shown by the demo
        model.fit(split.train)
    seconds = time.process_time() - began
    reader = KNeighborsClassifier(1, algorithm="brute").fit(split.train[:N_KNOWN], split.train_labels[:N_KNOWN])

    def recognised(images: Images) -> float:
        return float(reader.score(images, split.test_labels))

    A, mean = np.asarray(model.components_), np.asarray(getattr(model, "mean_", 0.0))
    codes = (split.test - mean) @ A.T
    errors = [_lost(keep_largest(codes, k) @ A + mean, split.test) for k in range(1, MOST_KEPT + 1)]
    best = (keep_largest(codes, N_KEPT) @ A + mean).astype(np.float32)
    first = (codes[:, :N_KEPT] @ A[:N_KEPT] + mean).astype(np.float32)
    return {
        "errors": errors,
        "error": errors[N_KEPT - 1],
        "first_error": _lost(first, split.test),
        "recognised": recognised(best),
        "first_recognised": recognised(first),
        "originals_recognised": recognised(split.test),
        "shown": packed(best[split.shown]),
        "first_shown": packed(first[split.shown]),
        "originals": packed(split.test[split.shown]),
        "n_iter": int(model.n_iter_),
        "at_limit": int(model.n_iter_) >= getattr(model, "max_iter", np.inf),
    }, seconds


def packed(rows: Images) -> str:
    """Images between 0 and 1 as text, a byte a pixel."""
    return base64.b64encode(np.round(255 * np.clip(rows, 0, 1)).astype(np.uint8).tobytes()).decode()


def unpacked(text: str, side: int) -> NDArray[np.uint8]:
    """What `packed` packed, as squares."""
    return np.frombuffer(base64.b64decode(text), dtype=np.uint8).reshape(-1, side, side)


def _lost(rebuilt: Images, truth: Images) -> float:
    """Squared error, as a share of the squared length of the images."""
    return float(np.sum((rebuilt - truth) ** 2, dtype=np.float64) / np.sum(truth**2, dtype=np.float64))


# --- reading ----------------------------------------------------------------------------------------------------------

NAMES = (
    ("train_images", "train_labels", "test_images", "test_labels"),
    ("x_train", "y_train", "x_test", "y_test"),
)
"""Arrays in the .npz files of MNIST that are about."""


@dataclass(frozen=True, eq=False)
class Data:
    """Images (k, side, side) and the digits they show."""

    train: NDArray[Any]
    train_labels: NDArray[Any]
    test: NDArray[Any]
    test_labels: NDArray[Any]


def _digits() -> Data:
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images, labels, k = images[order].reshape(-1, 8, 8), labels[order], N_DIGITS_TRAIN
    return Data(images[:k], labels[:k], images[k:], labels[k:])


def _read(path: Path) -> Data:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            for names in NAMES:
                if set(names) <= set(arrays.files):
                    return Data(*(arrays[name] for name in names))
            found = ", ".join(arrays.files)
    except OSError as error:
        raise ImagesError(f"{path}: {error.strerror or error}") from error
    except TypeError as error:  # a single array is no context
        raise ImagesError(f"{path} holds a single array; expected {', '.join(NAMES[0])} in one .npz file.") from error
    except (ValueError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ImagesError(f"{path} is not a whole .npz file of arrays: {error}") from error
    raise ImagesError(f"{path} holds {found}; expected {', '.join(NAMES[0])} or {', '.join(NAMES[1])}.")


def _downloaded() -> Path:
    """MNIST from OpenML, kept beside scikit-learn's other downloads."""
    path = Path(get_data_home()) / "elldict-mnist-with-labels.npz"
    if not path.exists():
        try:
            images, labels = fetch_openml("mnist_784", version=1, as_frame=False, return_X_y=True)
        except OSError as error:
            words = f"OpenML does not answer ({error}). Try again, or give a file: --mnist FILE.npz."
            raise ImagesError(words) from error
        images, labels = images.astype(np.uint8).reshape(-1, 28, 28), labels.astype(np.uint8)
        arrays = zip(NAMES[0], (images[:60_000], labels[:60_000], images[60_000:], labels[60_000:]), strict=True)
        write_atomically(path, lambda stream: np.savez_compressed(stream, **dict(arrays)))
    return path
