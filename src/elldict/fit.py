"""The road from samples to atoms: survey, frame, stages, judge. It knows no estimator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elldict import diagnostics
from elldict.backend.base import HOST, Array, Space
from elldict.data.dataset import Samples
from elldict.data.statistics import Frame, Survey, code_bound, survey
from elldict.diagnostics import Dictionary, Laws, canonical_dictionary, laws_of
from elldict.result import Iteration
from elldict.solver.cuda_graph import Recorded
from elldict.solver.directions import power_step, random_orthonormal
from elldict.solver.loop import Journal, Stage, precision_for
from elldict.solver.objective import Lp
from elldict.solver.refine import Answer
from elldict.solver.schedule import Task, by_newton, quickly_solved, solved
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

    frame: Frame
    survey: Survey
    answer: Answer
    dictionary: Dictionary
    laws: Laws
    history: tuple[Iteration, ...]


def fitted(
    samples: Samples, options: Options, rng: np.random.Generator, journal: Journal, *, stacklevel: int | None
) -> Fit:
    """Learn the dictionary of the samples; warnings point `stacklevel` callers up, None says that nobody wants any."""
    if samples.space.can_capture:
        journal.capture = Recorded.of
    found = survey(samples, center=options.center, precise=options.whiten)
    journal.passes += 1
    m = check_n_components(options.n_components, found, whiten=options.whiten)
    doubted = stacklevel is not None and diagnostics.warn_of_samples(
        found, whiten=options.whiten, stacklevel=stacklevel + 1
    )
    frame = Frame.of(found, center=options.center, whiten=options.whiten)
    stages = _stages(options, samples.dtype, code_bound(found, frame))
    starts = _starts(options.n_init, rng, min(m, found.rank), frame, found.n_features, samples.space)
    witness_seed = int(rng.integers(2**62))
    task = Task(samples, frame, journal, stages, rng, options.refine, witness_seed, options.n_init)
    answer, history = (solved if options.solver == "power" else quickly_solved)(task, starts)
    unfinished = 0.0 if answer.converged else diagnostics.unfinished_error(history)
    answer = replace(
        answer,
        dependent=_dependence(task, answer),
        correlated=_correlation(task, answer, found.scatter),
        least_error=unfinished,
    )
    dictionary = canonical_dictionary(answer, frame, found, m)
    if stacklevel is not None:
        diagnostics.warn_of_answer(answer, dictionary.order, found, doubted=doubted, stacklevel=stacklevel + 1)
    return Fit(frame, found, answer, dictionary, laws_of(answer, dictionary, frame, found), history)


def _dependence(task: Task, answer: Answer) -> NDArray[np.float64] | None:
    """Errors that codes add by depending on each other; None where codes are not simply products."""
    if answer.corruption is not None:
        return None
    contrast = task.stages[-1].contrast
    assert isinstance(contrast, Lp)
    refined, r = answer.refined is not None, task.samples.n_samples
    rows = task.witnesses().rows
    return diagnostics.dependent_errors(rows, answer.A, contrast.p, answer.model, refined=refined, n_samples=r)


def _correlation(task: Task, answer: Answer, scatter: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Errors that show in codes that are correlated; None where whitening sees to it that none are."""
    if task.frame.whitened or task.frame.inner is not None or not answer.converged:
        return None
    return diagnostics.correlated_errors(task.witnesses().rows, answer.A, scatter, task.samples.n_samples)


def _stages(options: Options, dtype: str, bound: float) -> list[Stage]:
    """One l_p stage for each exponent; only the last has to converge to the end."""
    precision = [precision_for(p, dtype=dtype, code_bound=bound) for p in options.exponents]
    tols = [max(options.tol, 1e-3)] * (len(options.exponents) - 1) + [options.tol]
    stages = [
        Stage(Lp(p), power_step, products, tol, options.max_iter)
        for p, products, tol in zip(options.exponents, precision, tols, strict=True)
    ]
    return stages if options.solver == "power" else [by_newton(stage) for stage in stages]


def _starts(
    n_init: int, rng: np.random.Generator, m: int, frame: Frame, n_features: int, space: Space
) -> Iterator[Array]:
    for _ in range(n_init):
        yield frame.start(random_orthonormal(m, n_features, rng, space if frame.inner is None else HOST))
