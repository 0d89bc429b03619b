"""What the demo computes: recovery of a hidden dictionary, the same under noise, and atoms of handwritten digits."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning

from elldict._old.backend.base import NUMPY, to_numpy
from elldict._old.dictionary_learning import LpDictionaryLearning
from elldict._old.progress import track_share
from elldict._old.result import Iteration
from elldict._old.transform import keep_largest
from elldict.datasets import make_bernoulli_gaussian
from elldict.exceptions import NotIdentifiableWarning, NotWhiteWarning, RankWarning
from elldict.metrics import match_atoms, recovery_error
from elldict.theory import cramer_rao_bound, expected_error

ShowShare = Callable[[float], None]
"""Called with the share of a study that is done."""

# --- recovery of a hidden dictionary ----------------------------------------------------------------------------------

PAPER_SETTING = (100, 40_000, 0.3)
PAPER_ERRORS = {3.0: 0.094e-2, 4.0: 0.34e-2, 5.0: 0.84e-2}
"""Errors that the paper reports for n, r and theta of its setting."""

EXACT = 1e-7
"""Errors below this are the rounding of float32: an angle of a hundredth of a degree would leave as much."""


@dataclass(frozen=True)
class RecoverySetting:
    """What is hidden: n_features atoms, in n_samples samples that use each with probability density."""

    n_features: int
    n_samples: int
    density: float
    seed: int
    start_seed: int

    def paper_error(self, p: float) -> float | None:
        """Error in the paper, where it has this setting."""
        setting = (self.n_features, self.n_samples, self.density)
        return PAPER_ERRORS.get(p) if setting == PAPER_SETTING else None


@dataclass(frozen=True, eq=False)
class Recovery:
    """One fit, beside the truth."""

    p: float
    refined: str | None  # the model of the codes that refined it, None for the l_p estimate
    error: float
    error_bar: float  # what the fit says of its own error, without the truth
    expected_error: float  # of l_p, from theory alone
    paper_error: float | None
    n_iter: int
    seconds: float
    errors: NDArray[np.float64]  # (n_iter + 1,)  from the random start to the end
    overlaps: NDArray[np.float32]  # (n_iter, n, n)  |A D^T| before each step, true atoms in the order of their matches
    angles: NDArray[np.float64]  # (n,)  degrees between each atom and the true one


def recover(
    setting: RecoverySetting,
    samples: NDArray[np.float32],
    dictionary: NDArray[np.float32],
    p: float,
    show: ShowShare,
    *,
    refine: str | None = None,
) -> Recovery:
    """Learn the atoms of the samples and compare every iteration with the truth."""
    path: list[NDArray[np.float64]] = []
    model = LpDictionaryLearning(p=p, solver="power", refine=refine, random_state=setting.start_seed)
    measure_share = track_share(model.tol)

    def keep(iteration: Iteration) -> None:
        path.append(np.array(to_numpy(iteration.components), dtype=np.float64))
        show(measure_share(iteration))

    began = time.perf_counter()
    model.fit(samples, callback=keep)
    seconds = time.perf_counter() - began
    error = measure_error(model.mixing_.T, dictionary)
    matched = dictionary[match_atoms(path[-1], dictionary).indices]
    return Recovery(
        p=p,
        refined=model.refined_,
        error=error,
        error_bar=model.expected_error_,
        expected_error=expected_error(
            p, n_features=setting.n_features, n_samples=setting.n_samples, density=setting.density
        ),
        paper_error=setting.paper_error(p),
        n_iter=model.n_iter_,
        seconds=seconds,
        errors=np.array([measure_error(A, dictionary) for A in path] + [error]),
        overlaps=np.stack([np.abs(A @ matched.T) for A in path]).astype(np.float32),
        angles=np.degrees(np.arccos(match_atoms(model.mixing_.T, dictionary).cosines)),
    )


def measure_error(components: NDArray[Any], dictionary: NDArray[np.float32]) -> float:
    """The error, not below zero: where atoms are exact, rounding of float32 is all that is left, of either sign."""
    return max(recovery_error(components, dictionary), 0.0)


# --- errors and error bars under noise --------------------------------------------------------------------------------


@dataclass(frozen=True)
class NoiseSetting:
    """Atoms hidden in samples with noise, at several levels of it."""

    n_features: int
    n_samples: int
    density: float
    noise_stds: tuple[float, ...]  # those of the paper's Table 2, and none: not chosen for what they show
    n_draws: int
    seed: int


class ErrorAndBar(NamedTuple):
    """The error of fits, and what they say of it themselves; means over draws."""

    error: float
    error_bar: float  # computed without the truth


@dataclass(frozen=True)
class NoiseTrial:
    """The l_p estimate and the refined one on the same noisy samples."""

    noise_std: float
    plain: ErrorAndBar
    refined: ErrorAndBar
    limit: float  # the Cramer-Rao bound; 0 without noise


def study_noise(setting: NoiseSetting, show: ShowShare) -> tuple[NoiseTrial, ...]:
    """One trial for each level of noise: both estimates, beside the truth and the limit."""
    sizes: Any = {"n_features": setting.n_features, "n_samples": setting.n_samples, "density": setting.density}
    trials = []
    for level, noise_std in enumerate(setting.noise_stds):
        show(level / len(setting.noise_stds))
        # the limit holds in the mean, so one draw could lie beyond it; draws differ between levels, so that luck does
        first = setting.seed + level * setting.n_draws
        draws = [_fit_both(sizes, noise_std, seed) for seed in range(first, first + setting.n_draws)]
        plain, refined = (ErrorAndBar(*map(mean, zip(*fits, strict=True))) for fits in zip(*draws, strict=True))
        trials.append(NoiseTrial(noise_std, plain, refined, cramer_rao_bound(**sizes, noise_std=noise_std)))
    return tuple(trials)


def _fit_both(sizes: Any, noise_std: float, seed: int) -> Iterator[ErrorAndBar]:
    """The l_p estimate and the refined one, on one draw."""
    X, dictionary, _ = make_bernoulli_gaussian(**sizes, noise_std=noise_std, dtype=np.float32, random_state=seed)
    for refine in (None, "auto"):
        model = LpDictionaryLearning(p=3, refine=refine, random_state=seed).fit(X)
        yield ErrorAndBar(measure_error(model.mixing_.T, dictionary), model.expected_error_)


# --- handwritten digits -----------------------------------------------------------------------------------------------

IMAGE_SIDE = 8
"""Pixels."""

N_KEPT = 5
"""Coefficients kept for each image, as in the paper's figure of MNIST."""

EXPECTED_WARNINGS = (RankWarning, NotWhiteWarning, NotIdentifiableWarning, ConvergenceWarning)
"""Digits have blank pixels and strong correlations: these are caught on purpose and shown on the page."""

DIGITS_FITS: dict[str, dict[str, Any]] = {
    "p = 4": {"p": 4, "center": True},
    "p = 3": {"p": 3, "center": True},
    "whitened": {"p": 3, "whiten": True},
}

Images = NDArray[np.float64]
Caught = dict[tuple[str, str], list[str]]
"""Category and message of a warning, and the fits that gave it."""


@dataclass(frozen=True)
class DigitsSetting:
    """How the images are split and how long a fit may take."""

    n_train: int
    max_iter: int
    tol: float
    seed: int


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """Held-out images from N_KEPT numbers each, by one method."""

    name: str
    note: str
    learned: bool  # by this library
    error: float  # share of the variation around the mean image that is lost, over all held-out images
    shown: Images  # (10, 8, 8)


@dataclass(frozen=True, eq=False)
class Digits:
    """What was learned from the digits, and how well it rebuilds others."""

    setting: DigitsSetting
    n_test: int
    originals: Images  # (10, 8, 8)  the first held-out image of each digit
    reconstructions: tuple[Reconstruction, ...]
    atoms: Images  # (64, 8, 8)
    white_atoms: Images  # (k, 8, 8)  learned after whitening, not orthogonal
    warnings: Caught


@dataclass(frozen=True, eq=False)
class Split:
    """Images to learn from, and images that no fit has seen."""

    train: NDArray[np.float64]
    test: NDArray[np.float64]
    shown: NDArray[np.intp]  # the first held-out image of each digit: chosen by a rule, not by its looks

    def measure(self, name: str, note: str, rebuilt: NDArray[np.float64], *, learned: bool) -> Reconstruction:
        """Compare what was rebuilt with the held-out images."""
        lost = np.sum((rebuilt - self.test) ** 2) / np.sum((self.test - self.train.mean(axis=0)) ** 2)
        return Reconstruction(name, note, learned, float(lost), _to_images(rebuilt[self.shown]))


def split_digits(setting: DigitsSetting) -> Split:
    """Shuffle, then cut."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(setting.seed).permutation(len(images))
    train, test = order[: setting.n_train], order[setting.n_train :]
    shown = np.array([np.flatnonzero(labels[test] == digit)[0] for digit in range(10)])
    return Split(images[train], images[test], shown)


def study_digits(setting: DigitsSetting, show: ShowShare) -> Digits:
    """Learn from some digits, rebuild the others, and do the same with PCA.

    Orthonormal atoms are learned around the mean image: PCA does so by definition, and it makes both better. Whitened
    atoms are learned without it: they may then be parts of digits, or whole ones, rather than differences from a mean.
    """
    split = split_digits(setting)
    caught: Caught = {}
    atoms, reconstructions = [], list(_rebuild_by_pca(split))
    for number, (name, options) in enumerate(DIGITS_FITS.items()):
        show(number / len(DIGITS_FITS))
        model = LpDictionaryLearning(
            solver="power",  # which seeks sparse codes alone: few of them are to rebuild a digit
            refine=None,  # digits follow no model of codes that the likelihood knows
            max_iter=setting.max_iter,
            tol=setting.tol,
            random_state=setting.seed,
            transform_algorithm="omp",
            transform_n_nonzero_coefs=N_KEPT,
            **options,
        )
        with catch_expected_warnings(caught, name):
            model.fit(split.train)
        atoms.append(_to_images(model.mixing_.T))
        rebuilt = np.asarray(model.inverse_transform(model.transform(split.test)))
        note = f"best {N_KEPT} of {model.n_components_} atoms"
        reconstructions.append(split.measure(f"elldict, {name}", note, rebuilt, learned=True))
    _, orthonormal, white = atoms
    # codes of whitened samples have unit variance, so the length of an atom is its strength
    strongest_first = np.argsort(-np.linalg.norm(white, axis=(1, 2)), kind="stable")
    originals = _to_images(split.test[split.shown])
    white = white[strongest_first]
    return Digits(setting, len(split.test), originals, tuple(reconstructions), orthonormal, white, caught)


def _rebuild_by_pca(split: Split) -> Iterator[Reconstruction]:
    """Principal components both ways: the same five for every image, and the best five of each image."""
    pca = PCA().fit(split.train)
    codes = pca.transform(split.test)
    first = codes * (np.arange(codes.shape[1]) < N_KEPT)
    yield split.measure(f"PCA, first {N_KEPT}", "the same for every image", pca.inverse_transform(first), learned=False)
    best = keep_largest(codes, NUMPY.xp, N_KEPT)
    yield split.measure(f"PCA, best {N_KEPT}", "chosen for each image", pca.inverse_transform(best), learned=False)


def _to_images(rows: NDArray[np.float64]) -> Images:
    """Rows of 64 pixels as squares."""
    return np.asarray(rows, dtype=np.float64).reshape(-1, IMAGE_SIDE, IMAGE_SIDE)


@contextmanager
def catch_expected_warnings(caught: Caught, fit: str) -> Iterator[None]:
    """Write the expected warnings down under the name of the fit; pass all others on."""
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        yield
    for warning in recorded:
        if issubclass(warning.category, EXPECTED_WARNINGS):
            caught.setdefault((warning.category.__name__, str(warning.message)), []).append(fit)
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
