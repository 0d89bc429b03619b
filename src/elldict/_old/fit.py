"""The whole fit, top to bottom: samples, estimate, error bars, warnings, result. It knows no estimator class."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import to_numpy
from elldict._old.backend.memory import keep_freed_memory
from elldict._old.competing_bases import seek_competing_basis
from elldict._old.data.dataset import Dataset
from elldict._old.data.statistics import SampleStatistics
from elldict._old.diagnostics import Doubt, doubt_estimate, doubt_samples, make_result
from elldict._old.error_bars.total import estimate_errors
from elldict._old.estimation import Options, Search
from elldict._old.result import Estimate, FitResult
from elldict._old.solver.loop import FitLog
from elldict._old.solver.mixture import MixtureLikelihood
from elldict._old.solver.objective import Objective

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """A fit: its result, and what `partial_fit` would go on with, which holds no samples."""

    options: Options
    statistics: SampleStatistics
    estimate: Estimate  # in whitened coordinates, without gradients
    order: NDArray[np.intp]  # which row of the estimate became which atom
    result: FitResult
    correlated: NDArray[np.float64] | None  # errors (m,) because true atoms are not orthogonal, however many samples
    weight_unit: float = 1.0  # factor of the weights that were given


def fit_dictionary(
    samples: Dataset,
    options: Options,
    rng: np.random.Generator,
    log: FitLog,
    *,
    stacklevel: int | None,
    groups: NDArray[Any] | None = None,
) -> Fit:
    """Learn the dictionary of the samples; warnings point `stacklevel` callers up; None: no warnings.

    Samples of one of the `groups` (r,) may depend on each other.
    """
    keep_freed_memory()
    search = Search.begin(samples, options, log)
    statistics, whitening = search.statistics, search.whitening
    doubts = list(doubt_samples(statistics, whitening, options.n_components))
    told = [*_doubt_n_components(search), *doubts]
    _warn(told, stacklevel)
    found = seek_competing_basis(search.run(rng, log), log)
    estimate, order = found.estimate, found.order
    if options.refine == "sparse-corruption" and estimate.cleaning is None:
        estimate = replace(estimate, uncleaned=not estimate.stopped)
    errors = estimate_errors(found, groups, log)
    late = list(doubt_estimate(estimate, order, statistics, errors, doubted=bool(doubts)))
    _warn(late, stacklevel)
    result = make_result(estimate, order, errors.atoms, found.atoms, whitening, statistics)
    kept = tuple((category.__name__, message) for category, message in (*told, *late))
    result = replace(
        result, n_passes=log.passes, history=found.history, warnings=kept, split_halves=errors.split_halves
    )
    # a copy of the statistics, without the eigenvectors that were computed of them
    small = _keep_small(estimate, search.phases[-1].objective)
    return Fit(options, replace(statistics), small, order, result, errors.correlated)


def _doubt_n_components(search: Search) -> Iterator[Doubt]:
    """Whether fewer atoms are learned than were asked for."""
    samples, m = search.samples, search.n_components
    if m < (search.options.n_components or 0):
        message = f"n_components is too large: it will be set to {m}, the number of directions in which X varies"
        yield UserWarning, f"{message} ({samples.n_samples} samples of {samples.n_features} features)."


def _warn(doubts: Sequence[Doubt], stacklevel: int | None) -> None:
    """Warn of each, `stacklevel` callers above the fit; None: of none."""
    if stacklevel is not None:
        for category, message in doubts:
            warnings.warn(message, category, stacklevel=stacklevel + 2)


def _keep_small(estimate: Estimate, objective: Objective) -> Estimate:
    """The estimate on the host, without gradients, and with an objective, if none of its own, that holds no samples."""
    assert estimate.lp_stats is not None
    lp_stats = estimate.lp_stats.keep_moments()
    stats = lp_stats if estimate.stats is estimate.lp_stats else estimate.stats.keep_moments()
    if isinstance(estimate.objective, MixtureLikelihood):
        objective = MixtureLikelihood(estimate.objective.law)
    return replace(estimate, A=to_numpy(estimate.A), objective=objective, stats=stats, lp_stats=lp_stats)
