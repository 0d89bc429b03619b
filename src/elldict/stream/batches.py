"""`partial_fit`: the first batches are collected and fitted, all others are followed; new starts after a change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from elldict.blas import one_blas_thread
from elldict.denoising import Distribution
from elldict.exceptions import DataChangedWarning
from elldict.fit import fit
from elldict.history import Recorder
from elldict.samples.arrays import ArraySamples, to_numpy
from elldict.samples.base import Array, refuse_not_finite
from elldict.samples.dask import is_dask
from elldict.samples.open import open_source
from elldict.samples.statistics import Statistics, compute_statistics
from elldict.stream.online import Follower, begin
from elldict.validation import check_half_life, check_parameters, check_samples
from elldict.warnings import Finding

if TYPE_CHECKING:
    from elldict.estimator import LpEstimator

FEWEST, PER_FEATURE = 1000, 40  # samples of the first fit: minimum, and per feature
LEAST_WINDOW = 4000  # densities of sharp peaks, such as Laplace's, need more samples than a first fit
OUTDATED = 0.1  # fraction of all samples that are new when densities are refitted


@dataclass(frozen=True)
class Stream:
    """All that is kept of a stream between two batches."""

    window: Array  # the most recent samples
    n_seen: int = 0
    is_collecting: bool = True  # samples, which are not used yet
    follower: Follower | None = None  # None before the first fit
    findings: tuple[Finding, ...] = ()


def add_batch(model: LpEstimator, X: Any, half_life: float | None) -> list[Finding]:
    """Add a batch to the stream of an estimator, and set its fitted attributes; return what is to be warned of."""
    check_parameters(model, model._rules)
    half_life = check_half_life(half_life) or np.inf
    X = X.compute() if is_dask(X) else X
    X = check_samples(model, X, fitting=not hasattr(model, "n_features_in_"), is_batch=True)
    check_n_components(model, X.shape[1])
    rows = np.array(open_source(X).take(np.arange(X.shape[0])), order="C")  # a copy: the array of the user may change
    refuse_not_finite(rows, 0)
    before = vars(model).get("_stream") or continue_fit(model, rows[:0])
    window = np.concatenate([before.window, rows])
    if not before.is_collecting:
        window = window[-max(LEAST_WINDOW, count_needed(X.shape[1])) :]
    stream = replace(before, n_seen=before.n_seen + len(rows), window=window)
    with one_blas_thread() as n_threads:
        if not stream.is_collecting:
            stream = follow(model, stream, rows, X, half_life)
        if stream.is_collecting:
            stream = collect(model, stream, X, half_life, n_threads)
    model._stream = stream
    model.warnings_ = tuple((each.category.__name__, each.message) for each in stream.findings)
    return [each for each in stream.findings if each not in before.findings]


def check_n_components(model: LpEstimator, n_features: int) -> None:
    """Raise an error if there are more components than features, or fewer without whitening."""
    n_components, _ = model._choose_n_components((n_features, n_features))
    if (n_components or n_features) < n_features and not model._choose_coordinates()[1]:
        raise ValueError(
            f"n_components={n_components} of {n_features} features need whiten=True in partial_fit. Set it, or use fit."
        )


def count_needed(n_features: int) -> int:
    """Count the samples with which a stream begins."""
    return max(FEWEST, PER_FEATURE * n_features)


def continue_fit(model: LpEstimator, window: Array) -> Stream:
    """Make the stream that continues a fit, from its attributes; an empty one if there was no fit."""
    if not hasattr(model, "unmixing_"):
        return Stream(window)
    unit, options = model._choose_unit(), model._make_options(None, has_groups=False)
    names = ("unmixing_", "mixing_", "density_", "scale_")
    unmixing, mixing, density, scale = (to_numpy(getattr(model, name)).astype(np.float64) for name in names)
    mean = np.asarray(model._offset, dtype=np.float64)
    std = 1 / unit if options.whiten else np.sqrt(density * scale**2 + model.noise_std_**2)
    columns = mixing * std
    largest = float(np.max(np.abs(columns)) + np.max(np.abs(mean)))
    columns = columns / largest
    statistics = Statistics(model._total_weight, largest, mean / largest, columns @ columns.T)
    follower = begin(options, unmixing * unit, model._distribution.rescale(unit), statistics, model.n_iter_)
    return Stream(window, n_seen=model.n_samples_seen_, follower=follower)


def collect(model: LpEstimator, stream: Stream, X: Any, half_life: float, n_threads: int) -> Stream:
    """Begin to follow as soon as there are enough samples: with a fit to them, or with an earlier fit."""
    rows, follower, needed = stream.window, stream.follower, count_needed(X.shape[1])
    if len(rows) < needed:
        model.n_samples_seen_ = stream.n_seen
        model.status_ = f"stream: {stream.n_seen} samples seen, collecting {len(rows)} of {needed}"
        return stream
    stream = replace(stream, is_collecting=False)
    if follower is not None and follower.change is None:
        return follow(model, replace(stream, follower=follower.refresh(rows)), rows, X, half_life)
    return fit_rows(model, stream, rows, X, n_threads)


def fit_rows(model: LpEstimator, stream: Stream, rows: Array, X: Any, n_threads: int) -> Stream:
    """Fit samples as `fit` does, and follow from there; after a change, with the old atoms if these are no worse."""
    before, samples, recorder = stream.follower, ArraySamples(rows, n_threads), Recorder()
    n_components, findings = model._choose_n_components(rows.shape)
    options = model._make_options(n_components, has_groups=False)
    result = fit(samples, options, [recorder])
    model._keep(result, X, samples, stream.n_seen)
    model.history_ = tuple(recorder.history)
    stream = replace(stream, findings=(*findings, *result.findings, *stream.findings))
    if before is not None and before.agrees(result):
        stream = replace(stream, follower=replace(before, change=None).refresh(rows))
        publish(model, stream, X, with_codes=True)
        return stream
    law, statistics = Distribution(result.density, result.normalization), compute_statistics(samples)
    follower = begin(options, result.unmixing, law, statistics, result.n_iter)
    return replace(stream, follower=follower.refresh(rows))


def follow(model: LpEstimator, stream: Stream, rows: Array, X: Any, half_life: float) -> Stream:
    """Take the steps of rows not used yet; after a change, collect samples anew."""
    assert stream.follower is not None
    follower, needed = stream.follower.follow(rows, half_life), count_needed(X.shape[1])
    assert follower.change is not None
    is_outdated = follower.n_new > OUTDATED * follower.path.weight
    has_drifted, has_changed = follower.change.alarms
    if has_changed or (has_drifted and half_life == np.inf):
        message = (
            f"{'Atoms drift' if has_drifted else 'The samples have changed'} before sample {stream.n_seen}. All errors "
            f"are 1 until {needed} later samples are fitted; older ones are then forgotten, unless components still "
            "fit. Set half_life if samples keep changing."
        )
        finding = Finding(DataChangedWarning, message)
        stream = replace(stream, is_collecting=True, window=rows[-needed:], findings=(finding,))
    elif is_outdated:
        follower = follower.refresh(stream.window)
    stream = replace(stream, follower=follower)
    publish(model, stream, X, with_codes=is_outdated)
    return stream


def publish(model: LpEstimator, stream: Stream, X: Any, *, with_codes: bool) -> None:
    """Set the fitted attributes in the array library of X; those of the codes only if they are computed again."""
    follower = stream.follower
    assert follower is not None
    errors = np.ones(len(follower.path.A)) if stream.is_collecting else follower.estimate_errors()
    result = follower.make_result(stream.findings, errors, model.objective_)
    samples = ArraySamples(stream.window) if with_codes else None
    model._keep(result, X, samples, stream.n_seen)
    model.status_ = f"stream: {stream.n_seen} samples seen, errors of {follower.path.n_effective:.0f}"
