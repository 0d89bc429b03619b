"""How far atoms may be off: every part of the error bar, put together."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import to_numpy
from elldict._old.diagnostics import (
    Errors,
    estimate_atom_errors,
    is_far_from_centred,
    is_far_from_white,
    score_of_rotation,
)
from elldict._old.error_bars import bias
from elldict._old.error_bars.codes import estimate_correlated_errors, estimate_dependent_errors, estimate_loud_errors
from elldict._old.error_bars.halves import compare_halves, needs_halves
from elldict._old.error_bars.samples import Dependence, measure_dependence
from elldict._old.estimation import Found
from elldict._old.solver.evaluate import find_unidentifiable, score_sparsity
from elldict._old.solver.rounding import add_rounding_errors
from elldict._old.solver.schedule import is_exact_estimate
from elldict._old.theory.error_bars import chance_score

Vector = NDArray[np.float64]

MIN_SATURATED_RATIO, MIN_SATURATED = 0.5, 1e-4
"""Share of the error bar, and error, from which saturated features count."""

TOO_FEW_ERROR = 0.5
"""Error of atoms of no more samples than features, which are explained by many dictionaries."""


def estimate_errors(found: Found, groups: NDArray[Any] | None, log: Any) -> Errors:
    """Error bars: formulas, halves of the samples where codes depend on each other, and what no samples remove."""
    estimate, search, drawn = found.estimate, found.search, found.drawn
    statistics, whitening = search.statistics, search.whitening
    exact = is_exact_estimate(estimate)
    known = exact or search.options.solver == "power"  # the power method of the paper is left as it is
    between = Dependence() if known else measure_dependence(search.samples, whitening, estimate, drawn)
    between = replace(between, inflation=max(1.0, between.inflation * statistics.repeats))
    r = search.samples.n_samples / between.inflation
    rows = drawn.rows if estimate.loudness is None else drawn.normalize(estimate.loudness).rows
    dependent = estimate_dependent_errors(rows, estimate, search.options.exponents[-1], r)
    scatter, phase = statistics.scatter, search.phases[-1]
    correlated = estimate_correlated_errors(drawn.rows, estimate, whitening, scatter, r, phase)
    # a fit that was cut off may have had twice the way of its last step to go
    least = 0.0 if estimate.converged else min(1.0, 2 * (2 * found.history[-1].step) ** 2)
    by_halves = compare_halves(found, groups, log) if needs_halves(found, groups) else None
    sharp = estimate.loudness is not None or (estimate.refined == "mixture" and between.inflation > 1)
    if by_halves is None and sharp and dependent is not None:
        dependent = np.maximum(dependent, estimate_loud_errors(rows, estimate, r))
    formula = partial(estimate_atom_errors, estimate, whitening, statistics, correlated=correlated, least=least)
    atoms = formula(dependent=dependent, inflation=between.inflation)
    if by_halves is not None:
        atoms = np.maximum(atoms, by_halves[np.argsort(found.order)])
    if drawn.raw is not None and not exact:
        atoms = add_rounding_errors(atoms, to_numpy(drawn.raw[:, 0]))
    errors = Errors(atoms, dependent, correlated, drifts=between.drifts, inflation=between.inflation)
    errors = replace(errors, split_halves=by_halves is not None)
    return _add_bias(errors, found, exact=exact)


def _add_bias(errors: Errors, found: Found, *, exact: bool) -> Errors:
    """The same with what samples that are not as the method takes them add to it."""
    estimate, search, atoms = found.estimate, found.search, errors.atoms
    statistics, whitening, phase = search.statistics, search.whitening, search.phases[-1]
    (m, k), n, saturated = estimate.A.shape, statistics.n_features, None
    if statistics.n_samples <= n and not whitening.n_discarded:
        atoms = np.maximum(atoms, TOO_FEW_ERROR)
    elif k < n and not whitening.whitened and not exact:
        # atoms lose as much of themselves to directions in which samples do not vary
        atoms = np.maximum(atoms, 1 - k / n)
    if whitening.whitened:
        noisy = None if exact else bias.estimate_noise_errors(estimate, whitening, statistics)
        atoms = atoms if noisy is None else atoms + noisy
    elif not (exact and estimate.refined == "bernoulli-gaussian"):
        rows, A = found.drawn.rows, estimate.A
        if is_far_from_centred(statistics, whitening):
            atoms = np.maximum(atoms, bias.estimate_offset_errors(rows, A, phase))
        if is_far_from_white(statistics, whitening):
            loud = _look_gaussian(found)  # directions that noise takes from all atoms
            atoms = np.maximum(atoms, np.where(loud, score_of_rotation(k), 1 - (1 - np.mean(loud)) ** 2))
        others = bias.estimate_outlier_errors(rows, A, phase)
        atoms = atoms if others is None else np.maximum(atoms, others)
        if m == k == n and _may_be_saturated(found):
            saturated = bias.estimate_saturation_errors(rows, A, phase)
            if saturated is not None and np.mean(saturated) < MIN_SATURATED_RATIO * np.mean(atoms) + MIN_SATURATED:
                saturated = None
            atoms = atoms if saturated is None else np.maximum(atoms, saturated)
    return replace(errors, atoms=np.minimum(atoms, 1.0), saturated=saturated)


def _may_be_saturated(found: Found) -> bool:
    """Whether kurtoses of features can be compared with those of codes: no other reason explains why they differ."""
    estimate, search = found.estimate, found.search
    plain = estimate.converged and estimate.loudness is None and estimate.corruption is None
    if not plain or search.options.solver == "power" or is_far_from_white(search.statistics, search.whitening):
        return False
    assert estimate.lp_stats is not None
    return not np.any(find_unidentifiable(estimate.lp_stats, int(estimate.A.shape[1])))


def _look_gaussian(found: Found) -> NDArray[np.bool_]:
    """Atoms (m,) whose codes cannot be told from Gaussian ones: noise of a few features that is louder than codes."""
    assert found.estimate.lp_stats is not None
    scores = score_sparsity(found.estimate.lp_stats)
    return np.asarray(scores < chance_score(len(scores)))
