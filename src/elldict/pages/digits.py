"""Second half of the demo: atoms of handwritten digits, and digits rebuilt from a few of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning

from elldict.estimator import LpDictionaryLearning
from elldict.exceptions import NotIdentifiableWarning, NotWhiteWarning, RankWarning

SIDE = 8
N_KEPT = 5
"""Coefficients kept for each image, as in the paper's figure of MNIST."""

EXPECTED_WARNINGS = (RankWarning, NotWhiteWarning, NotIdentifiableWarning, ConvergenceWarning)
"""Digits have blank pixels and strong correlations: these are caught on purpose and shown on the page."""

FITS: dict[str, dict[str, Any]] = {
    "p = 4": {"p": 4, "center": True},
    "p = 3": {"p": 3, "center": True},
    "p = 3, whitened": {"p": 3, "whiten": True},
}

Images = NDArray[np.float64]
Heard = dict[tuple[str, str], list[str]]
"""Category and message of a warning, and the fits that gave it."""


@dataclass(frozen=True)
class DigitsSetting:
    """How the images are split and how long a fit may take."""

    n_train: int
    max_iter: int
    tol: float
    seed: int


@dataclass(frozen=True)
class Notice:
    """A warning, and the fits that gave it."""

    category: str
    message: str
    fits: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Way:
    """One way to rebuild held-out images from N_KEPT numbers each."""

    name: str
    note: str
    learned: bool  # by this library
    error: float  # share of the variation around the mean image that is lost, over all held-out images
    shown: Images  # (10, 8, 8)

    @property
    def in_words(self) -> str:
        """Name and note in a line."""
        return f"{self.name} ({self.note})"


@dataclass(frozen=True, eq=False)
class Digits:
    """What was learned from the digits, and what it is good for."""

    setting: DigitsSetting
    n_test: int
    originals: Images  # (10, 8, 8)  the first held-out image of each digit
    ways: tuple[Way, ...]
    atoms: Images  # (64, 8, 8)
    white_atoms: Images  # (k, 8, 8)  learned after whitening, not orthogonal
    notices: tuple[Notice, ...]


@dataclass(frozen=True, eq=False)
class Split:
    """Images to learn from, and images that no fit has seen."""

    train: NDArray[np.float64]
    test: NDArray[np.float64]
    shown: NDArray[np.intp]  # the first held-out image of each digit: chosen by a rule, not by its looks

    @staticmethod
    def of(setting: DigitsSetting) -> Split:
        """Shuffle, then cut."""
        images, labels = load_digits(return_X_y=True)
        order = np.random.default_rng(setting.seed).permutation(len(images))
        train, test = order[: setting.n_train], order[setting.n_train :]
        shown = np.array([np.flatnonzero(labels[test] == digit)[0] for digit in range(10)])
        return Split(images[train], images[test], shown)

    def way(self, name: str, note: str, rebuilt: NDArray[np.float64], *, learned: bool) -> Way:
        """Judge what was rebuilt from the held-out images."""
        lost = np.sum((rebuilt - self.test) ** 2) / np.sum((self.test - self.train.mean(axis=0)) ** 2)
        return Way(name, note, learned, float(lost), as_images(rebuilt[self.shown]))


def study_digits(setting: DigitsSetting, tell: Callable[[float], None]) -> Digits:
    """Learn from some digits, rebuild the others, and do the same with PCA.

    Orthonormal atoms are learned around the mean image: PCA does so by definition, and it makes both better. Whitened
    atoms are learned without it: they may then be parts of digits, or whole ones, rather than differences from a mean.
    """
    split = Split.of(setting)
    heard: Heard = {}
    models = []
    for number, (name, options) in enumerate(FITS.items()):
        tell(number / len(FITS))
        with _listening(heard, name):
            models.append(_learn(split.train, setting, options))
    l4, l3, white = models
    return Digits(
        setting=setting,
        n_test=len(split.test),
        originals=as_images(split.test[split.shown]),
        ways=(*_pca_ways(split), *_learned_ways(split, l4, l3, white)),
        atoms=as_images(l3.components_),
        white_atoms=strongest_first(as_images(white.components_)),
        notices=tuple(Notice(category, message, tuple(fits)) for (category, message), fits in heard.items()),
    )


def _learn(train: NDArray[np.float64], setting: DigitsSetting, options: dict[str, Any]) -> LpDictionaryLearning:
    model = LpDictionaryLearning(
        refine=None,  # digits follow no law that the likelihood knows
        max_iter=setting.max_iter,
        tol=setting.tol,
        random_state=setting.seed,
        transform_algorithm="omp",
        transform_n_nonzero_coefs=N_KEPT,
        **options,
    )
    model.fit(train)
    return model


def _learned_ways(
    split: Split, l4: LpDictionaryLearning, l3: LpDictionaryLearning, white: LpDictionaryLearning
) -> Iterator[Way]:
    for name, model in (("elldict, p = 4", l4), ("elldict, p = 3", l3)):
        yield split.way(name, f"best {N_KEPT} of 64 atoms", _rebuilt(model, split.test), learned=True)
    note = f"best {N_KEPT} of {white.n_components_} atoms"
    yield split.way("elldict, whitened", note, _rebuilt(white, split.test), learned=True)


def _rebuilt(model: LpDictionaryLearning, test: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(model.inverse_transform(model.transform(test)))


def _pca_ways(split: Split) -> Iterator[Way]:
    """Principal components both ways: the same five for every image, and the best five of each image."""
    pca = PCA().fit(split.train)
    codes = pca.transform(split.test)
    first = codes * (np.arange(codes.shape[1]) < N_KEPT)
    yield split.way(f"PCA, first {N_KEPT}", "the same for every image", pca.inverse_transform(first), learned=False)
    best = keep_largest(codes, N_KEPT)
    yield split.way(f"PCA, best {N_KEPT}", "chosen for each image", pca.inverse_transform(best), learned=False)


def keep_largest(codes: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Codes with all but the k of largest magnitude in each row set to zero."""
    kept = np.zeros_like(codes)
    where = np.argpartition(-np.abs(codes), k - 1, axis=1)[:, :k]
    np.put_along_axis(kept, where, np.take_along_axis(codes, where, axis=1), axis=1)
    return kept


def as_images(rows: NDArray[np.float64]) -> Images:
    """Rows of 64 pixels as squares."""
    return np.asarray(rows, dtype=np.float64).reshape(-1, SIDE, SIDE)


def strongest_first(atoms: Images) -> Images:
    """Atoms by decreasing length: the codes of whitened samples have unit variance, so length is strength."""
    return atoms[np.argsort(-np.linalg.norm(atoms, axis=(1, 2)), kind="stable")]


@contextmanager
def _listening(heard: Heard, fit: str) -> Iterator[None]:
    """Write the expected warnings down under the name of the fit; pass all others on."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        if issubclass(warning.category, EXPECTED_WARNINGS):
            heard.setdefault((warning.category.__name__, str(warning.message)), []).append(fit)
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
