"""Handwritten digits, rebuilt from a few coefficients: data and task of the paper's last figure."""

from __future__ import annotations

import base64
import hashlib
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import fetch_openml, get_data_home, load_digits

from elldict.baselines.top_k import keep_largest
from elldict.reproduction.cell import Cell
from elldict.reproduction.methods import METHODS

N_KEPT = 5
"""Coefficients kept for each image, as in the paper."""

MOST_KEPT = 10
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
        train, test, _ = _read(path)
        fingerprint = hashlib.sha256(train.tobytes() + test.tobytes()).hexdigest()[:12]
        return Source("mnist", train.shape[1], len(train), len(test), fingerprint, path)

    @property
    def words(self) -> str:
        """For captions."""
        if self.name == "digits":
            return f"{self.n_train + self.n_test} digits of 8 x 8 pixels that come with scikit-learn"
        return f"MNIST, {self.side} x {self.side} pixels"


@dataclass(frozen=True, eq=False)
class Split:
    """Images as rows between 0 and 1, and the first test image of each digit."""

    train: Images
    test: Images
    shown: NDArray[np.intp]

    @staticmethod
    def of(setting: Mapping[str, Any], path: str | None) -> Split:
        """What a cell learns from and is judged on."""
        train, test, labels = _digits() if setting["source"] == "digits" else _read(Path(path or ""))
        train, test = train[: setting["n_train"]], test[: setting["n_test"]]
        shown = np.array([np.flatnonzero(labels[: len(test)] == digit)[0] for digit in range(10)])
        scale = np.float32(max(train.max(), 1))
        flat = [images.reshape(len(images), -1).astype(np.float32) / scale for images in (train, test)]
        return Split(flat[0], flat[1], shown)


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
    A, mean = np.asarray(model.components_), np.asarray(getattr(model, "mean_", 0.0))
    codes = (split.test - mean) @ A.T
    errors = [_lost(keep_largest(codes, k) @ A + mean, split.test) for k in range(1, MOST_KEPT + 1)]
    first = codes * (np.arange(codes.shape[1]) < N_KEPT)
    shown = keep_largest(codes[split.shown], N_KEPT) @ A + mean
    return {
        "errors": errors,
        "error": errors[N_KEPT - 1],
        "first_error": _lost(first @ A + mean, split.test),
        "shown": packed(shown),
        "first_shown": packed(first[split.shown] @ A + mean),
        "originals": packed(split.test[split.shown]),
        "n_iter": int(model.n_iter_),
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

Data = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""Train and test images (k, side, side), labels of the test images."""

NAMES = (("train_images", "test_images", "test_labels"), ("x_train", "x_test", "y_test"))
"""Arrays in the .npz files of MNIST that are about."""


def _digits() -> Data:
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = images[order].reshape(-1, 8, 8), labels[order]
    return images[:N_DIGITS_TRAIN], images[N_DIGITS_TRAIN:], labels[N_DIGITS_TRAIN:]


def _read(path: Path) -> Data:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            for train, test, labels in NAMES:
                if {train, test, labels} <= set(arrays.files):
                    return arrays[train], arrays[test], arrays[labels]
            found = ", ".join(arrays.files)
    except OSError as error:
        raise ImagesError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ImagesError(f"{path} is not a .npz file of arrays: {error}") from error
    raise ImagesError(f"{path} holds {found}; expected {', '.join(NAMES[0])} or {', '.join(NAMES[1])}.")


def _downloaded() -> Path:
    """MNIST from OpenML, kept beside scikit-learn's other downloads."""
    path = Path(get_data_home()) / "elldict-mnist.npz"
    if not path.exists():
        images, labels = fetch_openml("mnist_784", version=1, as_frame=False, return_X_y=True)
        images = images.astype(np.uint8).reshape(-1, 28, 28)
        np.savez_compressed(
            path,
            train_images=images[:60_000],
            test_images=images[60_000:],
            test_labels=labels[60_000:].astype(np.uint8),
        )
    return path
