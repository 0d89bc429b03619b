"""The whole fit, top to bottom: statistics, whitening, estimate, diagnostics, result. It knows no estimator class."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict import diagnostics
from elldict.backend.base import NUMPY, Array, to_numpy
from elldict.data.dataset import Dataset
from elldict.data.statistics import Loudness, SampleStatistics, Whitening, bound_codes, compute_statistics
from elldict.result import Estimate, FitResult
from elldict.solver.code_subsample import CodeSubsample
from elldict.solver.cuda_graph import CudaGraphStepper
from elldict.solver.directions import power_step, random_orthonormal
from elldict.solver.loop import PILOT_TOL, FitLog, Phase, choose_precision, run_starts
from elldict.solver.mixture import MixtureLikelihood
from elldict.solver.objective import Lp, Objective
from elldict.solver.schedule import FitContext, estimate_by_subsamples, estimate_on_all, use_newton
from elldict.validation import check_n_components

LEAST_AXIS = 1e-6
"""Length of what is left of an axis below which rounding may have made it."""


@dataclass(frozen=True)
class Options:
    """What a user can choose about a fit, checked."""

    n_components: int | None
    exponents: tuple[float, ...]
    solver: str
    refine: str | None
    center: bool
    whiten: bool | str  # "all": atoms are sought in all directions, not in the first principal ones
    max_iter: int
    tol: float
    n_init: int
    normalize: str | None = "auto"
    clip: bool = False  # lower an n_components above the rank, with a warning, instead of refusing it


@dataclass(frozen=True)
class Fit:
    """A fit: its result, and what `partial_fit` would go on with, which holds no samples."""

    options: Options
    statistics: SampleStatistics
    estimate: Estimate  # in whitened coordinates, without gradients
    order: NDArray[np.intp]  # which row of the estimate became which atom
    result: FitResult
    correlated: NDArray[np.float64] | None  # errors (m,) because true atoms are not orthogonal, however many samples


def fit_dictionary(
    samples: Dataset, options: Options, rng: np.random.Generator, log: FitLog, *, stacklevel: int | None
) -> Fit:
    """Learn the dictionary of the samples; warnings point `stacklevel` callers up; None: no warnings."""
    if samples.backend.on_gpu and samples.backend.can_capture:
        log.capture = CudaGraphStepper.try_to_make
    statistics = compute_statistics(samples, center=options.center, precise=bool(options.whiten))
    log.passes += 1
    m = check_n_components(
        options.n_components, statistics, whiten=options.whiten, refine=options.refine, clip=options.clip
    )
    if stacklevel is not None and m < (options.n_components or 0):
        message = f"n_components is too large: it will be set to {m}, the number of directions in which X varies"
        warnings.warn(
            f"{message} ({samples.n_samples} samples of {samples.n_features} features).", stacklevel=stacklevel + 1
        )
    whitening = Whitening.of(statistics, center=options.center, whiten=options.whiten, n_components=m)
    doubts = list(diagnostics.doubt_samples(statistics, whitening))
    for category, message in doubts if stacklevel is not None else ():
        warnings.warn(message, category, stacklevel=(stacklevel or 0) + 1)

    phases = _make_phases(options, samples.dtype, bound_codes(statistics, whitening))
    # drawn one by one when a start begins, after what is drawn below
    starts = _draw_starts(options.n_init, rng, min(m, statistics.rank), whitening, samples)
    drawn = CodeSubsample.draw(samples, whitening, np.random.default_rng(int(rng.integers(2**62))))
    loudness = Loudness.of(drawn.rows) if options.normalize == "samples" else None
    sought = replace(whitening, loudness=loudness)
    seen = drawn if loudness is None else drawn.normalize(loudness)
    if options.solver == "power" and options.refine is None:
        found, _, iterations = run_starts(samples, sought, phases, starts, log)
        estimate, history = replace(found, lp_stats=found.stats, law=seen.fit_law(found.A)), tuple(iterations)
    else:
        run = estimate_on_all if options.solver == "power" else estimate_by_subsamples
        asked = (options.refine, seen, options.n_init, options.normalize if loudness is None else None)
        estimate, history = run(FitContext(samples, sought, log, phases, rng, *asked), starts)
    if loudness is not None:  # the law is that of samples as they are
        law = drawn.fit_law(estimate.A, None if estimate.lp_stats is None else estimate.lp_stats.signs)
        estimate = replace(estimate, loudness=loudness, law=law)

    r = samples.n_samples
    rows = drawn.rows if estimate.loudness is None else drawn.normalize(estimate.loudness).rows
    dependent = diagnostics.estimate_dependent_errors(rows, estimate, options.exponents[-1], r)
    scatter, phase = statistics.scatter, phases[-1]
    correlated = diagnostics.estimate_correlated_errors(drawn.rows, estimate, whitening, scatter, r, phase)
    # a fit that was cut off may have had twice the way of its last step to go
    least = 0.0 if estimate.converged else min(1.0, 2 * (2 * history[-1].step) ** 2)
    errors = diagnostics.estimate_atom_errors(
        estimate, whitening, statistics, dependent=dependent, correlated=correlated, least=least
    )
    assert estimate.lp_stats is not None
    order = np.argsort(-to_numpy(estimate.lp_stats.value), kind="stable")  # by decreasing share of the l_p objective
    if stacklevel is not None:
        dependent = None if doubts or not estimate.converged else dependent
        said = None if doubts else correlated
        for category, message in diagnostics.doubt_estimate(estimate, order, statistics, dependent, said):
            warnings.warn(message, category, stacklevel=stacklevel + 1)

    atoms = make_atoms(to_numpy(estimate.A)[order], whitening, statistics, m)
    result = diagnostics.make_result(estimate, order, errors, atoms, whitening, statistics)
    result = replace(result, n_passes=log.passes, history=history)
    # a copy of the statistics, without the eigenvectors that were computed of them
    return Fit(options, replace(statistics), _keep_small(estimate, phases[-1].objective), order, result, correlated)


def _keep_small(estimate: Estimate, objective: Objective) -> Estimate:
    """The estimate on the host, without gradients, and with an objective, if none of its own, that holds no samples."""
    assert estimate.lp_stats is not None
    lp_stats = estimate.lp_stats.keep_moments()
    stats = lp_stats if estimate.stats is estimate.lp_stats else estimate.stats.keep_moments()
    if isinstance(estimate.objective, MixtureLikelihood):
        objective = MixtureLikelihood(estimate.objective.law)
    return replace(estimate, A=to_numpy(estimate.A), objective=objective, stats=stats, lp_stats=lp_stats)


def _make_phases(options: Options, dtype: str, code_bound: float) -> list[Phase]:
    """One l_p phase for each exponent; only the last has to converge to the end."""
    phases = []
    for p in options.exponents:
        tol = options.tol if p == options.exponents[-1] else max(options.tol, PILOT_TOL)
        precision = choose_precision(p, dtype=dtype, code_bound=code_bound)
        phase = Phase(Lp(p), power_step, precision, tol, options.max_iter)
        # on the sphere, to which normalisation brings samples closer, mixtures of codes look less sparse than Gaussian
        signed = options.normalize != "samples"
        phases.append(phase if options.solver == "power" else use_newton(phase, signed=signed))
    return phases


def _draw_starts(
    n_init: int, rng: np.random.Generator, m: int, whitening: Whitening, samples: Dataset
) -> Iterator[Array]:
    for _ in range(n_init):
        if whitening.to_white is None:
            yield random_orthonormal(m, samples.n_features, rng, samples.backend)
        else:
            yield whitening.start(random_orthonormal(m, samples.n_features, rng, NUMPY))


def make_atoms(
    A: NDArray[np.float64], whitening: Whitening, statistics: SampleStatistics, n_components: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Components and unmixing (m, n) from ordered rows A, the largest entry of each component positive.

    Atoms beyond the rank of the samples, whose codes are all zero, come last.
    """
    components, unmixing = whitening.components(A), whitening.unmixing(A)
    missing = n_components - len(A)
    if missing:
        unused = _canonical_basis(statistics.eigenvectors[:, statistics.rank :])[:missing]
        components, unmixing = np.vstack([components, unused]), np.vstack([unmixing, unused])
    signs = signs_of_largest(components)
    return signs * components, signs * unmixing


def signs_of_largest(rows: NDArray[Any]) -> NDArray[Any]:
    """Sign of the first entry that is as large as any; entries that differ by rounding alone count as equal."""
    sizes = np.abs(rows)
    first = np.argmax(sizes >= (1 - 1e-5) * np.max(sizes, axis=1, keepdims=True), axis=1)
    return np.asarray(np.sign(rows[np.arange(len(rows)), first])[:, None])


def _canonical_basis(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Orthonormal rows, the same whatever basis of their span is given: the projected axes, one after another."""
    n_rows = columns.shape[1]
    axes = columns @ columns.T
    axes = axes[np.diag(axes) > LEAST_AXIS**2]  # the square of what is left of each
    Q, R = np.linalg.qr(axes[:n_rows].T)
    lengths = np.diag(R)
    if np.min(np.abs(lengths)) > LEAST_AXIS:
        return np.asarray((Q * np.sign(lengths)).T)
    rows, found = np.zeros((n_rows, len(columns))), 0  # some are spanned by those before them
    for axis in axes:
        for _ in range(2):  # twice is enough for orthogonality to rounding
            axis = axis - (rows[:found] @ axis) @ rows[:found]  # noqa: PLW2901
        length = float(np.linalg.norm(axis))
        if length > LEAST_AXIS:
            rows[found], found = axis / length, found + 1
        if found == n_rows:
            break
    return rows[:found]
