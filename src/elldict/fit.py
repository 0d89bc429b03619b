"""The complete fit, from samples to result: whitening, pilots, likelihood, errors and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict.atoms import Estimate, Options, find_atoms, find_stride
from elldict.entries import check_entries, check_features, draw_samples
from elldict.errors.exact import find_exact
from elldict.errors.splits import estimate_errors, list_splits
from elldict.result import Result, order_and_sign
from elldict.samples.arrays import drop_weightless
from elldict.samples.base import Array, Index, Samples, Weights, weigh
from elldict.samples.normalization import Normalization
from elldict.samples.order import Mask, find_order
from elldict.samples.statistics import EqualSamplesError
from elldict.samples.subsample import Codes, gather_all
from elldict.solver.climb import NO_JOURNAL, Journal, Observer, Reason
from elldict.solver.density import Density
from elldict.warnings import check_components, check_dependence, check_samples, find_gaussian

ROUNDING = 1e-15  # error reported for an exact atom


def fit(
    samples: Samples,
    options: Options,
    observers: Sequence[Observer] = (),
    groups: NDArray[Any] | None = None,
    journal: Journal = NO_JOURNAL,
) -> Result:
    """Find components, estimate their errors, and check the assumptions."""
    if samples.weights is not None:
        samples, groups = drop_weightless(samples, groups)
    estimate = find_atoms(samples, options, observers, journal=journal)
    columns = estimate.whitening.make_mixing(estimate.state.A)
    exact = find_exact_atoms(estimate)
    errors = None
    if wants_error_bars(estimate, options, exact):
        splits = list_splits(estimate.statistics.n_samples, columns.shape[1], samples, groups)
        scales = 1.0 if estimate.whitening.scales is None else estimate.whitening.scales[:, None]
        numbers, n_parts = count(1), sum(len(split.parts) for split in splits)

        def fit_part(part: Samples) -> Array:
            number = next(numbers)
            journal.show_part(number, n_parts)
            other_start = replace(options, random_state=options.random_state + number)
            return journal.once(lambda: fit_columns(part, other_start, estimate, journal)) / scales

        errors = estimate_errors(columns / scales, splits, fit_part)
    return make_result(estimate, options, exact, errors)


def fit_columns(part: Samples, options: Options, like: Estimate, journal: Journal) -> Array:
    """Fit a part of the samples and return its mixing matrix; zeros if all its samples are equal.

    Everything is fitted from scratch, but the pilot and the model are those of the fit to all samples.
    """
    try:
        estimate = find_atoms(part, options, like=like, journal=journal)
    except EqualSamplesError:
        return np.zeros((part.shape[1], 1))
    return estimate.whitening.make_mixing(estimate.state.A)


def wants_error_bars(estimate: Estimate, options: Options, exact: Mask) -> bool:
    """Return whether to fit parts of the samples: if asked for, and the atoms are neither exact nor unfinished."""
    if not options.error_bars or estimate.state.reason is Reason.STOPPED:
        return False
    m, k = estimate.state.A.shape
    return m == k and not np.all(exact)  # of fewer atoms, parts may find others of the same dictionary: not an error


def find_exact_atoms(estimate: Estimate) -> Mask:
    """Find the exact atoms; there are none if noise or whitening blurs the zeros."""
    A, order = estimate.state.A, estimate.order
    if order is None or estimate.state.reason is not Reason.ROUNDING:
        return np.zeros(len(A), dtype=bool)
    rows = np.asarray(estimate.white.take(order.thin_out(find_stride(order, len(A))).index))
    if estimate.corruption is None:
        assert isinstance(estimate.state.objective, Density)
        return find_exact(rows @ A.T - estimate.state.objective.location)
    from elldict.corruption.climb import solve  # noqa: PLC0415  optional

    return find_exact(solve(rows, A, estimate.corruption))


def make_result(estimate: Estimate, options: Options, exact: Mask, errors: Array | None) -> Result:
    """Sort the components and collect their properties."""
    state, whitening = estimate.state, estimate.whitening
    codes = gather_all(estimate.samples, whitening).encode(state.A)
    power = measure_power(codes, options.p)
    columns, rows = whitening.make_mixing(state.A), whitening.make_unmixing(state.A)
    unit = whitening.unit  # if not whitened, atoms have unit length, and codes are in the units of X
    sizes = np.sum(columns**2, axis=0) if options.sorts_by_variance else power if options.p > 2 else -power
    order, signs = order_and_sign(sizes, columns)
    density: Any = state.objective
    if not isinstance(density, Density) or not density.is_fitted:
        halves = estimate.gather(find_order(estimate.white))  # equal samples are in the same one
        density = Density.begin(len(power)).refit(halves.encode(state.A), choose=True)
    gaussian = np.zeros(len(order), dtype=bool)
    if state.reason not in (Reason.STOPPED, Reason.TOO_FEW):
        r = (estimate.order or estimate.statistics).n_samples
        gaussian = find_gaussian(density.negentropy, r, is_orthogonal=estimate.is_orthogonal) & ~exact
    findings = [*check_samples(estimate.statistics, whitening, options.n_components)]
    findings += check_components(state, gaussian[order], estimate.statistics)
    corruption = estimate.corruption
    if corruption is None and estimate.model is None:
        findings += check_entries(estimate.white, whitening, estimate.order, state, options.refine)
    drawn = draw_samples(estimate.samples)
    is_reduced = len(whitening.to_white) < whitening.rank
    findings += check_features(drawn / estimate.statistics.largest, is_reduced=is_reduced)
    if corruption is None and state.reason not in (Reason.STOPPED, Reason.TOO_FEW, Reason.MAX_ITER):
        white, model = whitening.apply(drawn), estimate.model
        is_small = np.vecdot(white, white) <= (0 if estimate.order is None else estimate.order.least)
        findings += check_dependence((white if model is None else model.apply(white)) @ state.A[order].T, is_small)
    if errors is None:
        errors = np.where(exact, ROUNDING, np.nan)
    density = density.arrange(order, signs)
    return Result(
        mixing=(columns / unit)[:, order] * signs,
        unmixing=(rows * unit)[order] * signs[:, None],
        mean=whitening.mean,
        code_std=(codes.std * unit)[order],
        component_errors=errors[order],
        is_exact=bool(np.all(exact)),
        has_replicates=not np.any(np.isnan(errors)) and not np.all(exact),
        objective=float(np.mean(power)),
        density=density if estimate.model is not None else density.rescale(unit),
        normalization=make_normalization(estimate, order, signs),
        corruption=None if corruption is None else corruption.arrange(order).rescale(unit),
        refine=options.refine,
        state=state,
        pilot=estimate.pilot,
        is_pilot=estimate.is_pilot,
        is_orthogonal=estimate.is_orthogonal,
        whitening=whitening.to_white,
        n_iter=estimate.n_iter,
        n_passes=estimate.n_passes,
        findings=tuple(findings),
    )


def make_normalization(estimate: Estimate, order: Index, signs: Array) -> Normalization | None:
    """Make the normalisation of codes in the units of X, sorted and with signs."""
    if estimate.model is None:
        return None
    normalization = estimate.model.rescale(estimate.whitening.unit)
    if estimate.is_orthogonal:
        return normalization
    A = estimate.state.A[order] * signs[:, None]
    return replace(normalization, metric=np.asarray(np.linalg.inv(A @ A.T)))


def measure_power(codes: Codes, p: float) -> Array:
    """Compute E |z|^p (m,)."""

    def visit(Z: Array, half: Index, weights: Weights) -> Array:  # noqa: ARG001
        return np.asarray(np.sum(weigh(np.abs(Z) ** p, weights, 0), axis=0, dtype=np.float64))

    return np.asarray(codes.sum(visit) / codes.n_samples)
