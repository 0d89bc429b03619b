"""The road from samples to atoms: survey, frame, stages, judge. It knows no estimator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from elldict import judging
from elldict.dictionary import Dictionary, Laws, canonical_dictionary, laws_of
from elldict.samples.base import Samples
from elldict.samples.frame import Frame, code_bound
from elldict.samples.survey import Survey, survey
from elldict.solver.contrasts import Lp
from elldict.solver.loop import Journal
from elldict.solver.polar import random_orthonormal
from elldict.solver.quick import Task, by_newton, quickly_solved, solved
from elldict.solver.refine import Answer
from elldict.solver.result import Iteration
from elldict.solver.stage import Stage, precision_for
from elldict.solver.steps import power_step
from elldict.space import HOST, Array, Space
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
    found = survey(samples, center=options.center, precise=options.whiten)
    journal.passes += 1
    m = check_n_components(options.n_components, found, whiten=options.whiten)
    doubted = stacklevel is not None and judging.warn_of_samples(
        found, whiten=options.whiten, stacklevel=stacklevel + 1
    )
    frame = Frame.of(found, center=options.center, whiten=options.whiten)
    stages = _stages(options, samples.dtype, code_bound(found, frame))
    starts = _starts(options.n_init, rng, min(m, found.rank), frame, found.n_features, samples.space)
    witness_seed = int(rng.integers(2**62))
    task = Task(samples, frame, journal, stages, rng, options.refine, witness_seed, options.n_init)
    answer, history = (solved if options.solver == "power" else quickly_solved)(task, starts)
    unfinished = 0.0 if answer.converged else judging.unfinished_error(history)
    answer = replace(
        answer,
        dependent=task.dependence(answer),
        correlated=task.correlation(answer, found.scatter),
        least_error=unfinished,
    )
    dictionary = canonical_dictionary(answer, frame, found, m)
    if stacklevel is not None:
        judging.warn_of_answer(answer, dictionary.order, found, doubted=doubted, stacklevel=stacklevel + 1)
    return Fit(frame, found, answer, dictionary, laws_of(answer, dictionary, frame, found), history)


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
