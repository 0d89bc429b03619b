"""Samples that come in batches: the first ones are collected and fitted, and an online model goes on from there."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import Array, to_numpy
from elldict._old.data.dataset import ArrayDataset, find_non_finite, non_finite_error
from elldict._old.data.subsample import MIN_SUBSAMPLE_ROWS, SUBSAMPLE_ROWS_PER_FEATURE
from elldict._old.data.weighted import weigh
from elldict._old.data.whitening import Whitening
from elldict._old.diagnostics import estimate_atom_errors, list_atoms, make_result
from elldict._old.estimation import Options, signs_of_largest
from elldict._old.fit import Fit, fit_dictionary
from elldict._old.result import Estimate, FitResult
from elldict._old.solver.evaluate import Statistics
from elldict._old.solver.loop import FitLog
from elldict._old.solver.mixture import MixtureLikelihood
from elldict._old.solver.online import OnlineModel
from elldict._old.validation import check_n_components_at_most
from elldict.exceptions import DataChangedWarning

MIN_ROWS_PER_FEATURE = 2
"""Samples a feature below which a fit would say nothing."""

REFIT_GROWTH = 2
"""Times as many collected samples as at the last fit that are worth another."""

COUNTED_LAG = 2.0
"""Times the error bar that recent batches have to ask for, of a stream that forgets, to be more than the lag that its
error bar counts: such a stream is meant for samples that change."""

NAMED_SHARE = 0.1
"""Share of the largest error of an atom due to a change from which an atom is named."""


@dataclass(frozen=True)
class WarmupBuffer:
    """Samples that are too few for an online model to begin with."""

    X: Array  # (r, n)
    n_fitted: int  # of them at the last fit
    result: FitResult
    weights: NDArray[np.float64] | None = None  # (r,); None: all are 1


@dataclass(frozen=True)
class OnlineState:
    """An online model, and what of its first fit stays as it is: the number, order and signs of atoms."""

    model: OnlineModel
    first: Fit
    told: int = 0  # of a change that goes on: nothing, that of the scale of samples, that of atoms


State = Fit | WarmupBuffer | OnlineState


def count_seen(state: State) -> int:
    """Number of samples of all batches."""
    if isinstance(state, WarmupBuffer):
        return weigh(ArrayDataset(state.X), state.weights)[0].n_samples
    return state.statistics.n_samples if isinstance(state, Fit) else state.model.n_seen


def count_warmup_rows(n_features: int) -> int:
    """Samples from which an online model begins: as many as the first subsample of a fit."""
    return max(MIN_SUBSAMPLE_ROWS, SUBSAMPLE_ROWS_PER_FEATURE * n_features)


def add_batch(
    state: State | None,
    samples: ArrayDataset,
    options: Options,
    half_life: float | None,
    rng: np.random.Generator,
    *,
    stacklevel: int,
    weights: NDArray[np.float64] | None = None,
) -> tuple[State, FitResult]:
    """The state after a batch, and what a user gets; the state before stays as it is, whatever happens."""
    samples, weights = _leave_out_weightless(samples, weights)
    if isinstance(state, Fit):
        state = _begin_online(state)
    if isinstance(state, OnlineState):
        _check_same_options(state, options)
        weights = _scale_weights(weights, samples.n_samples, state.first.weight_unit)
        told, state = state.told, replace(state, model=state.model.update(samples, half_life, weights))
        state, result, message = _make_online_result(state, half_life)
        if state.told > told:
            warnings.warn(message, DataChangedWarning, stacklevel=stacklevel + 1)
        if state.told:
            result = replace(result, warnings=(*result.warnings, (DataChangedWarning.__name__, message)))
        return state, result
    if not options.clip:
        check_n_components_at_most(options.n_components, samples.n_features)
    non_finite = find_non_finite(samples.X, samples.backend.xp)
    if non_finite is not None:
        raise non_finite_error(samples, non_finite)
    together = samples
    if state is not None:
        xp, single = samples.backend.xp, state.X.dtype == samples.X.dtype == samples.backend.xp.float32
        parts = [xp.astype(X, xp.float32 if single else xp.float64, copy=False) for X in (state.X, samples.X)]
        together, weights = ArrayDataset(xp.concat(parts)), _join_weights(state, weights, samples.n_samples)
    weighted, unit = weigh(together, weights)
    if weighted.n_samples < count_warmup_rows(together.n_features):
        buffer = _collect(state, together, weights, options, rng)
        return buffer, buffer.result
    fit = fit_dictionary(weighted, options, rng, FitLog(), stacklevel=stacklevel + 1)
    return replace(fit, weight_unit=unit), fit.result


def _leave_out_weightless(
    samples: ArrayDataset, weights: NDArray[np.float64] | None
) -> tuple[ArrayDataset, NDArray[np.float64] | None]:
    """Samples that weigh anything, and their weights."""
    if weights is None or np.all(weights):
        return samples, weights
    kept, xp = np.flatnonzero(weights), samples.backend.xp
    return ArrayDataset(xp.take(samples.X, samples.backend.asarray(kept, "int64"), axis=0)), weights[kept]


def _scale_weights(weights: NDArray[np.float64] | None, n: int, unit: float) -> NDArray[np.float64] | None:
    """Weights (n,) in the unit of those of the first samples; None if all are 1."""
    scaled = np.full(n, unit) if weights is None else unit * weights
    return None if np.all(scaled == 1) else scaled


def _join_weights(state: WarmupBuffer, weights: NDArray[np.float64] | None, n_new: int) -> NDArray[np.float64] | None:
    """Weights of the samples collected, and of new ones."""
    if state.weights is None and weights is None:
        return None
    before = np.ones(int(state.X.shape[0])) if state.weights is None else state.weights
    return np.concatenate([before, np.ones(n_new) if weights is None else weights])


def _begin_online(fit: Fit) -> OnlineState:
    """The online model that goes on from a fit."""
    options, statistics = fit.options, replace(fit.statistics)  # a copy: what is computed of it stays out of the fit
    reduce_to = options.n_components if options.whiten is True else None
    whitening = Whitening.of(statistics, center=options.center, whiten=options.whiten, n_components=reduce_to)
    estimate = _order_rows(fit, whitening)
    p, n_passes = options.exponents[-1], fit.result.n_passes
    model = OnlineModel.begin(p, options.refine, estimate, whitening, statistics, n_passes, reduce_to)
    return OnlineState(model, fit)


def _make_online_result(state: OnlineState, half_life: float | None) -> tuple[OnlineState, FitResult, str]:
    """What a user gets now, the state with what he is told of changed samples, and the words for it."""
    model, first = state.model, state.first
    estimate, whitening, statistics = model.make_estimate(), model.whitening, model.statistics
    correlated = None if first.correlated is None else first.correlated[first.order]
    errors = estimate_atom_errors(estimate, whitening, statistics, correlated=correlated)
    drift, changed = model.estimate_drift_errors(errors), model.estimate_change_errors()
    beyond_lag = half_life is None or np.mean(changed) > COUNTED_LAG * np.mean(errors + drift)
    found = 2 if model.change.found_atoms and beyond_lag else int(model.change.kinds[2])
    told, message = 0, ""
    if np.any(model.change.alarmed):
        told = max(state.told, found)
        message = _describe_change(model, changed, atoms=found == 2)
    if found:
        estimate = replace(estimate, status=f"{estimate.status}; {message.partition(':')[0].lower()}")
    errors = np.minimum(errors + np.maximum(drift, changed), 1.0)
    m = len(estimate.A)  # atoms beyond the rank stay as they are
    components = np.vstack([whitening.components(estimate.A), first.result.components[m:]])
    unmixing = np.vstack([whitening.unmixing(estimate.A), first.result.unmixing[m:]])
    result = make_result(estimate, np.arange(m), errors, (components, unmixing), whitening, statistics)
    n_iter, n_passes = first.estimate.n_iter + model.n_steps, model.n_evaluated / model.n_seen
    result = replace(result, n_iter=n_iter, n_passes=n_passes, history=first.result.history)
    result = replace(result, warnings=first.result.warnings)
    return replace(state, told=told), result, message


def _describe_change(model: OnlineModel, errors: NDArray[np.float64], *, atoms: bool) -> str:
    """What was found, since when, and what to do; `errors` (m,) are what the change adds to those of the atoms."""
    change = model.change
    began = f"The samples have changed since about sample {change.since} of {model.n_seen}"
    begin = "begin a new model with the samples since then"
    if not atoms:
        scale = change.scale[np.argmax(np.abs(np.log(change.scale)))]
        return (
            f"{began}: codes are up to {scale:.3g} times as large as before. The atoms still fit them; densities, "
            f"scales and noise are means over samples of both kinds. Set half_life to forget the old ones, or {begin}."
        )
    turned, sparse, _ = change.kinds
    what = "they turn the atoms to one side" if turned else "their codes are less sparse"
    what += " and their codes are less sparse" if turned and sparse else ""
    named = np.flatnonzero(errors > NAMED_SHARE * np.max(errors))
    which = f"all {len(errors)} atoms" if len(named) in (0, len(errors)) else f"atoms {list_atoms(named)}"
    return (
        f"{began}: {what}. For the new ones {which} may be off by {100 * np.mean(errors[named]):.2g} % on average, "
        f"which atom_error_ and expected_error_ now count. Set half_life to follow samples that keep changing, or "
        f"{begin}."
    )


def _check_same_options(state: OnlineState, options: Options) -> None:
    """A stream goes on as it began: what it keeps is of these options and no others."""
    first = state.first.options
    names = ("refine", "normalize", "center", "whiten")
    began, now = ({"p": o.exponents[-1], **{name: getattr(o, name) for name in names}} for o in (first, options))
    changed = [f"{name}={now[name]!r} was {began[name]!r}" for name in now if now[name] != began[name]]
    m = len(state.first.result.components)
    if options.n_components not in (None, m, first.n_components):
        changed.append(f"n_components={options.n_components} was {m}")
    if changed:
        raise ValueError(f"{'; '.join(changed)} when the stream began. Set it back, or begin a new model.")


def _collect(
    state: WarmupBuffer | None,
    together: ArrayDataset,
    weights: NDArray[np.float64] | None,
    options: Options,
    rng: np.random.Generator,
) -> WarmupBuffer:
    """Samples collected so far, and what can be said of them."""
    weighted = weigh(together, weights)[0]
    r, n = weighted.n_samples, together.n_features
    n_fitted, result = (0, _know_nothing(options, n)) if state is None else (state.n_fitted, state.result)
    if r >= max(MIN_ROWS_PER_FEATURE * n, REFIT_GROWTH * n_fitted):
        n_fitted, result = r, fit_dictionary(weighted, options, rng, FitLog(), stacklevel=None).result
    status = f"collecting: {r} of {count_warmup_rows(n)} samples, fitted at {n_fitted}"
    X = together.backend.xp.asarray(together.X, copy=True) if state is None else together.X  # the user's may change
    return WarmupBuffer(X, n_fitted, replace(result, status=status, converged=False), weights)


def _know_nothing(options: Options, n: int) -> FitResult:
    """What is said of samples too few to say anything: atoms are axes, and their error bars all that there is."""
    m = min(options.n_components or n, n)
    axes, ones = np.eye(n), np.ones(m)
    return FitResult(axes[:m], axes[:m], np.zeros(n), ones, ones, 0.0, ones, 1.0, axes[m:], 1.0, ones)


def _order_rows(fit: Fit, whitening: Whitening) -> Estimate:
    """The estimate with its rows in the order and with the signs that the user got, which a stream then keeps."""
    estimate, order = fit.estimate, fit.order
    lp_stats, law = estimate.lp_stats, estimate.law
    assert lp_stats is not None
    assert law is not None
    A, rank = to_numpy(estimate.A)[order], np.argsort(order)
    signs = signs_of_largest(whitening.components(A))  # which made those of the user positive
    mixed = [replace(pair, first=int(rank[pair.first]), second=int(rank[pair.second])) for pair in estimate.mixed]
    objective, mixture = estimate.objective, estimate.mixture
    if isinstance(objective, MixtureLikelihood):
        objective = MixtureLikelihood(objective.law.reorder(order, signs[:, 0]))
    return replace(
        estimate,
        A=signs * A,
        objective=objective,
        stats=_order_statistics(estimate.stats, order),
        lp_stats=_order_statistics(lp_stats, order),
        law=replace(law, density=law.density[order], power=law.power[order]),
        mixture=None if mixture is None else mixture.reorder(order, signs[:, 0]),
        mixed=tuple(mixed),
        competing=None if estimate.competing is None else estimate.competing[order],
    )


def _order_statistics(stats: Statistics, order: NDArray[np.intp]) -> Statistics:
    """The moments of the codes in another order of the atoms."""
    kept: dict[str, Any] = {name: getattr(stats, name)[order] for name in ("value", "slope", "g2", "z2", "gz")}
    extra = {name: stats.extra[name][order] for name in ("magnitude",) if name in stats.extra}
    return Statistics(stats.weight, extra=extra, signs=None if stats.signs is None else stats.signs[order], **kept)
