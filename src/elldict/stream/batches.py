"""`partial_fit`: the first batches are collected and fitted, all others are followed; new starts after a change."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from elldict.blas import one_blas_thread
from elldict.denoising import Distribution
from elldict.errors.splits import make_unit, match
from elldict.exceptions import DataChangedWarning
from elldict.fit import fit
from elldict.history import Recorder
from elldict.result import Result
from elldict.samples.arrays import ArraySamples, to_numpy
from elldict.samples.base import Array, refuse_not_finite
from elldict.samples.dask import is_dask
from elldict.samples.statistics import EqualSamplesError, compute_statistics
from elldict.stream.moments import Window, count_needed, count_window, restore_statistics
from elldict.stream.online import Follower, begin
from elldict.validation import check_half_life, check_parameters, check_samples
from elldict.warnings import Finding

if TYPE_CHECKING:
    from elldict.estimator import LpEstimator

REFIT_GROWTH = 2  # times as many collected samples as at the last fit that are worth another
READY = 1 / 4  # of the samples of a first fit, from which the window determines curvatures
MOVED = 0.1  # error of an atom that has moved to another one; steps reduce smaller ones
WORSE = 4.0  # distance of old atoms from those of a new fit, relative to the errors of the latter, beyond chance
DRIFT = 0  # score that detects it
SETTINGS = ("n_components", "p", "solver", "refine", "normalize", "center", "whiten", "standardize")


@dataclass(frozen=True)
class Stream:
    """All that is kept of a stream between two batches."""

    settings: dict[str, Any]  # parameters that must stay as they are
    n_seen: int = 0
    window: Window = field(default_factory=Window)
    n_waiting: int = 0  # last samples of the window that have not been used yet
    n_fitted: int = 0  # samples of the last fit
    n_iter: int = 0
    n_evaluated: float = 0.0  # samples that were evaluated, each as often as it was
    follower: Follower | None = None  # None while samples are collected
    since: int | None = None  # number of a sample after a change, until those after it have been fitted
    is_drift: bool = False  # whether it was detected as a drift
    has_drifted: bool = False  # whether there has been a drift
    findings: tuple[Finding, ...] = ()


def add_batch(model: LpEstimator, X: Any, half_life: float | None) -> list[Finding]:
    """Add a batch to the stream of an estimator, and set its fitted attributes; return what is to be warned of."""
    check_parameters(model, model._rules)
    half_life = check_half_life(half_life)
    X = X.compute() if is_dask(X) else X
    stream, is_new = vars(model).get("_stream"), False
    if stream is None:
        stream, is_new = continue_fit(model), not hasattr(model, "unmixing_")
    check_settings(model, stream.settings)
    X = check_samples(model, X, fitting=is_new, is_batch=True)
    rows = np.array(to_numpy(X))  # a copy: the array of the user may change
    refuse_not_finite(rows, 0)
    if is_new:
        model._choose_n_components(rows.shape)  # refuses too many
    most = len(rows) + stream.window.n_rows if stream.follower is None else count_window(rows.shape[1])
    waiting = np.concatenate([stream.window.take_last(stream.n_waiting), rows]) if stream.n_waiting else rows
    stream = replace(stream, n_seen=stream.n_seen + len(rows), window=stream.window.add(rows, most))
    with one_blas_thread() as n_threads:
        if stream.follower is None:
            stream, findings = collect(model, stream, X, n_threads)
        else:
            stream, findings = follow(model, stream, waiting, half_life, X, n_threads)
    model._stream = stream
    model.warnings_ = tuple((each.category.__name__, each.message) for each in stream.findings)
    return findings


def read_settings(model: LpEstimator) -> dict[str, Any]:
    """Return the parameters on which all that is kept of a stream depends."""
    return {name: getattr(model, name) for name in SETTINGS if hasattr(model, name)}


def check_settings(model: LpEstimator, settings: dict[str, Any]) -> None:
    """Raise an error if a parameter has been changed since the stream began."""
    for name, value in read_settings(model).items():
        if value != settings[name]:
            raise ValueError(
                f"{name}={value!r} was {settings[name]!r} when the stream began. Set it back, or begin a new estimator."
            )


def continue_fit(model: LpEstimator) -> Stream:
    """Make the stream that continues a fit, from its attributes; an empty one if there was no fit."""
    stream = Stream(read_settings(model))
    if not hasattr(model, "unmixing_"):
        return stream
    unit = model._choose_unit()
    unmixing, mixing = (to_numpy(array).astype(np.float64) for array in (model.unmixing_, model.mixing_))
    n, m = mixing.shape
    mean = to_numpy(vars(model).get("mean_", np.zeros(n))).astype(np.float64)
    law = model._distribution.rescale(unit)
    whiten = model._choose_coordinates()[1]
    std = np.ones(m) if whiten else law.density.std
    if law.normalization is not None and not whiten:
        std = np.full(m, np.sqrt(law.normalization.median / m))
    statistics = restore_statistics(mixing / unit, std, mean, model._total_weight, fill=not whiten and m < n)
    errors = to_numpy(model.atom_error_).astype(np.float64)
    n_seen = model.n_samples_seen_
    return replace(
        stream,
        n_seen=n_seen,
        n_fitted=n_seen,
        n_iter=model.n_iter_,
        n_evaluated=model.n_passes_ * n_seen,
        follower=begin(model, unmixing * unit, law, errors, statistics),
    )


def collect(model: LpEstimator, stream: Stream, X: Any, n_threads: int) -> tuple[Stream, list[Finding]]:
    """Fit the samples collected so far, if they are enough to begin, or many more than at the last fit."""
    needed, n_rows = count_needed(X.shape[1]), stream.window.n_rows
    if n_rows < needed and n_rows < max(2, REFIT_GROWTH * stream.n_fitted):
        return report_collecting(model, stream, needed), []
    rows = stream.window.take_last(n_rows)
    try:
        stream, result = fit_rows(model, stream, rows, X, n_threads)
    except EqualSamplesError:
        if n_rows >= needed:
            raise
        return stream, []
    if n_rows < needed:
        return report_collecting(model, stream, needed), []
    return begin_stream(model, stream, rows, result), list(stream.findings)


def report_collecting(model: LpEstimator, stream: Stream, needed: int) -> Stream:
    """Say in the attributes how many samples have been collected."""
    if stream.n_fitted:
        model.n_samples_seen_, model.converged_ = stream.n_seen, False
        model.status_ = f"collecting: {stream.n_seen} of {needed} samples, fitted at {stream.n_fitted}"
    return stream


def fit_rows(model: LpEstimator, stream: Stream, rows: Array, X: Any, n_threads: int) -> tuple[Stream, Result]:
    """Fit samples as `fit` does, and set the attributes in the array library of X."""
    n_components, findings = model._choose_n_components((len(rows), rows.shape[1]))
    options = model._make_options(n_components, has_groups=False)
    recorder, samples = Recorder(), ArraySamples(rows, n_threads)
    result = fit(samples, options, [recorder])
    model._keep(result, X, samples, stream.n_seen)
    model.history_ = tuple(recorder.history)
    stream = replace(
        stream,
        n_fitted=len(rows),
        n_iter=stream.n_iter + result.n_iter,
        n_evaluated=stream.n_evaluated + result.n_passes * len(rows),
        findings=(*findings, *result.findings),
    )
    return stream, result


def begin_stream(model: LpEstimator, stream: Stream, rows: Array, result: Result) -> Stream:
    """Begin to follow with the result of a fit to rows (r, n), the last of which stay in the window."""
    law = Distribution(result.density, result.normalization)
    statistics = compute_statistics(ArraySamples(rows))
    kept = rows[-count_window(rows.shape[1]) :].copy()  # frees the others
    follower = begin(model, result.unmixing, law, result.component_errors, statistics)
    before = stream.follower
    is_like = before is not None and before.path.m == follower.path.m
    follower = follower.refresh(kept, stream.n_seen, before.change if before is not None and is_like else None)
    return replace(stream, window=Window((kept,), len(kept)), n_waiting=0, follower=follower, since=None)


def follow(
    model: LpEstimator, stream: Stream, rows: Array, half_life: float | None, X: Any, n_threads: int
) -> tuple[Stream, list[Finding]]:
    """Take the steps of rows not used yet; after a change, fit the samples since then as soon as there are enough."""
    follower = stream.follower
    findings: list[Finding] = []
    assert follower is not None
    needed = count_needed(X.shape[1])
    if follower.change is None and stream.window.n_rows < READY * needed:
        publish(model, replace(stream, n_waiting=len(rows)), X, with_codes=False)
        return replace(stream, n_waiting=len(rows)), findings
    if follower.change is None:
        follower = refresh(stream, follower)
    follower = follower.follow(rows, half_life, stream.n_seen - len(rows))
    stream = replace(stream, follower=follower, n_waiting=0, n_evaluated=stream.n_evaluated + len(rows))
    assert follower.change is not None
    alarms = follower.change.alarms
    alarms[DRIFT] &= half_life is None  # otherwise it is followed
    if stream.since is None and np.any(alarms):
        which = int(np.argmax(np.where(alarms, follower.change.sums, 0)))
        stream, findings = notice_change(stream, which, int(follower.change.since[which]), needed)
        stream = replace(stream, since=stream.n_seen - len(rows))  # surely after the change
    is_renewed = stream.since is not None and stream.n_seen - stream.since >= needed
    is_outdated = follower.is_outdated(stream.window.n_rows)
    if is_renewed:
        stream = renew(model, stream, X, n_threads)
    elif is_outdated:
        stream = replace(stream, follower=refresh(stream, follower))
    publish(model, stream, X, with_codes=is_renewed or is_outdated)
    return stream, findings


def refresh(stream: Stream, follower: Follower) -> Follower:
    """Fit densities, and compute curvatures, from the window."""
    return follower.refresh(stream.window.take_last(stream.window.n_rows), stream.n_seen)


def notice_change(stream: Stream, which: int, since: int, needed: int) -> tuple[Stream, list[Finding]]:
    """Describe a change of the samples, found by one of the scores; a drift only once."""
    what = "they turn the atoms to one side" if which == DRIFT else "they are less likely than before"
    finding = Finding(
        DataChangedWarning,
        f"The samples have changed since about sample {since} of {stream.n_seen}: {what}. The errors of all components "
        f"are stated as 1 until {needed} samples after the change have been fitted; then old samples are forgotten, "
        "unless the components still fit. Set half_life in partial_fit to follow samples that keep changing.",
    )
    told = stream.has_drifted and which == DRIFT
    findings = [] if told else [finding]
    others = [each for each in stream.findings if each.category is not DataChangedWarning]
    stream = replace(stream, findings=(*others, finding), has_drifted=stream.has_drifted or which == DRIFT)
    return replace(stream, is_drift=which == DRIFT), findings


def renew(model: LpEstimator, stream: Stream, X: Any, n_threads: int) -> Stream:
    """Fit the samples after a change; begin with the new atoms, or keep the old ones if these are no worse."""
    follower, findings = stream.follower, stream.findings
    assert follower is not None
    assert stream.since is not None
    rows = stream.window.take_last(count_needed(X.shape[1]))
    stream, result = fit_rows(model, stream, rows, X, n_threads)
    changes = (each for each in findings if each.category is DataChangedWarning)
    stream = replace(stream, findings=(*stream.findings, *changes))
    unit = 1.0 if follower.whitening.scales is None else follower.whitening.scales[:, None]
    columns, errors = follower.mixing / unit, result.component_errors
    cosines = np.sum(make_unit(columns) * match(columns, result.mixing / unit), axis=0)
    distances = 1 - cosines**4
    errors = np.where(np.isnan(errors), 0.0, errors)
    if np.any(distances > MOVED + WORSE * np.maximum(errors, np.mean(errors))):
        return begin_stream(model, stream, rows, result)
    known, weight = follower.estimate_errors(), follower.path.weight
    if stream.is_drift or np.mean(distances) > WORSE * np.mean(errors):
        known, weight = np.maximum(known, distances), float(len(rows))
    follower = follower.forget(weight, known).refresh(rows, stream.n_seen, follower.change)
    return replace(stream, window=Window((rows,), len(rows)), follower=follower, since=None)


def publish(model: LpEstimator, stream: Stream, X: Any, *, with_codes: bool) -> None:
    """Set the fitted attributes in the array library of X; those of the codes only if they are computed again."""
    follower = stream.follower
    assert follower is not None
    is_suspect = stream.since is not None or (follower.change is not None and follower.change.is_suspect)
    errors = np.ones(follower.path.m) if is_suspect else follower.estimate_errors(is_drifting=stream.has_drifted)
    n_iter, n_passes = stream.n_iter + follower.n_steps, stream.n_evaluated / stream.n_seen
    result = follower.make_result(stream.findings, errors, n_iter, n_passes)
    samples = ArraySamples(stream.window.take_last(stream.window.n_rows)) if with_codes else None
    model._keep(result, X, samples, stream.n_seen)
    model.status_ = f"stream: {stream.n_seen} samples seen, errors of {follower.path.n_effective:.0f}"
