"""The road from samples to atoms: survey, frame, stages, judge. It knows no estimator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elldict import diagnostics
from elldict.backend.base import NUMPY, Array, Backend
from elldict.data.dataset import Dataset
from elldict.data.statistics import SampleStatistics, Whitening, bound_codes, compute_statistics
from elldict.diagnostics import Dictionary, Laws, canonical_dictionary, laws_of
from elldict.result import Iteration
from elldict.solver.cuda_graph import CudaGraphStepper
from elldict.solver.directions import power_step, random_orthonormal
from elldict.solver.loop import FitLog, Phase, precision_for
from elldict.solver.objective import Lp
from elldict.solver.refine import Estimate
from elldict.solver.schedule import FitContext, by_newton, quickly_solved, solved
from elldict.validation import check_n_components


@dataclass(frozen=True)
class Options:
    """What a user can choose about a fit, checked."""

    n_components: int | None
    exponents: tuple[float, ...]
    solver: str
    refine: str | None
    center: bool
    whiten: bool
    max_iter: int
    tol: float
    n_init: int


@dataclass(frozen=True)
class Fit:
    """What a fit found, inside the frame and as a user gets it."""

    whitening: Whitening
    statistics: SampleStatistics
    estimate: Estimate
    dictionary: Dictionary
    laws: Laws
    history: tuple[Iteration, ...]


def fitted(samples: Dataset, options: Options, rng: np.random.Generator, log: FitLog, *, stacklevel: int | None) -> Fit:
    """Learn the dictionary of the samples; warnings point `stacklevel` callers up, None says that nobody wants any."""
    if samples.backend.can_capture:
        log.capture = CudaGraphStepper.of
    found = compute_statistics(samples, center=options.center, precise=options.whiten)
    log.passes += 1
    m = check_n_components(options.n_components, found, whiten=options.whiten)
    doubted = stacklevel is not None and diagnostics.warn_of_samples(
        found, whiten=options.whiten, stacklevel=stacklevel + 1
    )
    whitening = Whitening.of(found, center=options.center, whiten=options.whiten)
    phases = _stages(options, samples.dtype, bound_codes(found, whitening))
    starts = _starts(options.n_init, rng, min(m, found.rank), whitening, found.n_features, samples.backend)
    draw_seed = int(rng.integers(2**62))
    context = FitContext(samples, whitening, log, phases, rng, options.refine, draw_seed, options.n_init)
    estimate, history = (solved if options.solver == "power" else quickly_solved)(context, starts)
    unfinished = 0.0 if estimate.converged else diagnostics.unfinished_error(history)
    estimate = replace(
        estimate,
        dependent=_dependence(context, estimate),
        correlated=_correlation(context, estimate, found.scatter),
        least_error=unfinished,
    )
    dictionary = canonical_dictionary(estimate, whitening, found, m)
    if stacklevel is not None:
        diagnostics.warn_of_answer(estimate, dictionary.order, found, doubted=doubted, stacklevel=stacklevel + 1)
    return Fit(whitening, found, estimate, dictionary, laws_of(estimate, dictionary, whitening, found), history)


def _dependence(context: FitContext, estimate: Estimate) -> NDArray[np.float64] | None:
    """Errors that codes add by depending on each other; None where codes are not simply products."""
    if estimate.corruption is not None:
        return None
    objective = context.phases[-1].objective
    assert isinstance(objective, Lp)
    refined, r = estimate.refined is not None, context.samples.n_samples
    rows = context.drawn.rows
    return diagnostics.dependent_errors(rows, estimate.A, objective.p, estimate.model, refined=refined, n_samples=r)


def _correlation(context: FitContext, estimate: Estimate, scatter: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Errors that show in codes that are correlated; None where whitening sees to it that none are."""
    if context.whitening.whitened or context.whitening.to_white is not None or not estimate.converged:
        return None
    return diagnostics.correlated_errors(context.drawn.rows, estimate.A, scatter, context.samples.n_samples)


def _stages(options: Options, dtype: str, bound: float) -> list[Phase]:
    """One l_p stage for each exponent; only the last has to converge to the end."""
    precision = [precision_for(p, dtype=dtype, bound_codes=bound) for p in options.exponents]
    tols = [max(options.tol, 1e-3)] * (len(options.exponents) - 1) + [options.tol]
    phases = [
        Phase(Lp(p), power_step, products, tol, options.max_iter)
        for p, products, tol in zip(options.exponents, precision, tols, strict=True)
    ]
    return phases if options.solver == "power" else [by_newton(phase) for phase in phases]


def _starts(
    n_init: int, rng: np.random.Generator, m: int, whitening: Whitening, n_features: int, backend: Backend
) -> Iterator[Array]:
    for _ in range(n_init):
        yield whitening.start(random_orthonormal(m, n_features, rng, backend if whitening.to_white is None else NUMPY))
