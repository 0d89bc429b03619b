"""Random halves of samples, and fits to them from scratch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import clone

from elldict.atoms import find_atoms
from elldict.errors.splits import BLOCKS
from elldict.estimator import LpEstimator
from elldict.samples.arrays import SelectedSamples, scale_weights, to_numpy
from elldict.samples.base import Array, Index, Samples, Weights
from elldict.samples.statistics import EqualSamplesError
from elldict.solver.climb import Reason
from elldict.validation import is_number
from elldict.warnings import Finding


def cut(n_samples: int, blocks: Any) -> tuple[Index, int]:
    """Number the blocks (r,) of consecutive samples; return the size of blocks, too."""
    if isinstance(blocks, str) and blocks == "auto":
        n_rows = math.ceil(n_samples / BLOCKS)
    else:
        most = n_samples // 2
        is_allowed = is_number(blocks, Integral) and 1 <= blocks <= most
        refuse_other_than(is_allowed, "blocks", blocks, f"'auto' or an int in [1, {most}], half of the samples")
        n_rows = int(blocks)
    return np.arange(n_samples) // n_rows, n_rows


def divide(units: Index, weights: Weights, rng: np.random.Generator) -> tuple[Index, Index]:
    """Divide samples into two random halves of about equal weight, without dividing a unit; return their indices.

    Samples without weight are left out.
    """
    sizes = np.bincount(units, weights)
    order = rng.permutation(len(sizes))
    middles = np.cumsum(sizes[order]) - sizes[order] / 2
    is_first = np.zeros(len(sizes), dtype=bool)
    is_first[order[middles < np.sum(sizes) / 2]] = True
    kept = np.arange(len(units)) if weights is None else np.flatnonzero(weights)
    return kept[is_first[units[kept]]], kept[~is_first[units[kept]]]


def select(samples: Samples, index: Index) -> Samples:
    """Select samples, with their weights if there are any."""
    return SelectedSamples(samples, index, None if samples.weights is None else scale_weights(samples.weights[index]))


@dataclass(frozen=True)
class Components:
    """Columns that make samples, rows that make codes, and what is to be warned of."""

    mixing: Array  # (n, m)
    unmixing: Array  # (m, n)
    findings: Sequence[Finding] = ()


def make_models(estimator: Any, n_components: Any) -> list[Any]:
    """Clone the estimator for each number of components, without error bars and progress."""
    path = list(n_components) if np.iterable(n_components) else [n_components]
    is_allowed = all(is_number(k, Integral) and k >= 1 for k in path) and 0 < len(path) == len(set(path))
    expected = "an int in [1, inf) or several different ones"
    refuse_other_than(n_components is None or is_allowed, "n_components", n_components, expected)
    changes = [{} if k is None else {"n_components": int(k)} for k in path]
    known = estimator.get_params(deep=False)
    quiet = {name: False for name in ("error_bars", "verbose") if name in known}
    return [clone(estimator).set_params(**quiet, **change) for change in changes]


def fix_seeds(models: Sequence[Any], seed: int) -> None:
    """Give a seed to models that would draw one, so that a repeated fit is the same."""
    for model in models:
        if not isinstance(model.get_params(deep=False).get("random_state", 0), Integral):
            model.set_params(random_state=seed)


def refuse_other_than(is_allowed: bool, name: str, value: Any, expected: str) -> None:
    """Raise an error unless an argument is allowed."""
    if not is_allowed:
        raise ValueError(f"{name} must be {expected}. Got {value!r} instead.")


def fit_all(model: Any, X: Any, weights: Weights) -> Components:
    """Fit all samples and return the components in the order and with the signs of the estimator."""
    if isinstance(model, LpEstimator):
        return read_components(model, model._fit(X, weights, None, None, None))
    return fit_other(model, X, weights)


def fit_part(model: Any, samples: Samples, seed: int) -> Components:
    """Fit some of the samples, with a seed of their own; components of zeros if the rotation cannot be determined."""
    if not isinstance(model, LpEstimator):
        rows = samples.take(np.arange(samples.shape[0]))
        is_random = "random_state" in model.get_params(deep=False)
        return fit_other(clone(model).set_params(**{"random_state": seed} if is_random else {}), rows, samples.weights)
    n_components, _ = model._choose_n_components(samples.shape)
    options = replace(model._make_options(n_components, has_groups=False), random_state=seed)
    try:
        found = find_atoms(samples, options)
        if found.state.reason is not Reason.TOO_FEW:  # principal axes: they may be similar, but are no components
            A, whitening = found.state.A, found.whitening
            return Components(whitening.make_mixing(A), whitening.make_unmixing(A))
    except EqualSamplesError:
        pass
    return Components(np.zeros((samples.shape[1], 1)), np.zeros((1, samples.shape[1])))


def fit_other(model: Any, X: Any, weights: Weights) -> Components:
    """Fit an estimator of another library."""
    model.fit(X, **({} if weights is None else {"sample_weight": weights}))
    if not hasattr(model, "mixing_"):
        raise TypeError(
            f"{type(model).__name__} has no mixing_ after fit. Use LpDictionaryLearning, LpICA, or an estimator with "
            "the attributes of scikit-learn's FastICA."
        )
    return read_components(model)


def read_components(model: Any, findings: Sequence[Finding] = ()) -> Components:
    """Read the components of a fitted model, in double precision."""
    mixing = to_numpy(model.mixing_).astype(np.float64)
    unmixing = to_numpy(model.unmixing_) if hasattr(model, "unmixing_") else np.linalg.pinv(mixing)
    return Components(mixing, unmixing.astype(np.float64), findings)
