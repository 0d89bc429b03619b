"""From batches to atoms: the first samples are collected and fitted, and a stream goes on from there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elldict.backend.base import Array, to_numpy
from elldict.data.dataset import MemorySamples, find_misfit, not_finite
from elldict.data.subsample import FEWEST, FIRST_PER_FEATURE
from elldict.diagnostics import Dictionary, Laws, laws_of, signs_of_largest
from elldict.fit import Fit, Options, fitted
from elldict.result import Iteration
from elldict.solver.loop import Journal
from elldict.solver.online import Stream
from elldict.solver.refine import Answer
from elldict.theory.accuracy import CodeMoments

FEWEST_PER_FEATURE = 2
"""Samples a feature below which a fit would say nothing."""

WORTH_A_FIT = 2
"""Times as many collected samples as at the last fit are worth another."""


@dataclass(frozen=True)
class Learned:
    """What a user gets after a batch."""

    components: Array
    unmixing: Array
    mean: Array
    laws: Laws
    objective: float
    converged: bool
    status: str
    refined: str | None
    n_iter: int
    n_passes: float
    history: tuple[Iteration, ...]

    @classmethod
    def of(cls, fit: Fit, n_passes: float) -> Learned:
        """What a fit has found."""
        n = fit.survey.n_features
        return cls(
            components=fit.dictionary.components,
            unmixing=fit.dictionary.unmixing,
            mean=np.zeros(n) if fit.frame.mean is None else fit.frame.mean,
            laws=fit.laws,
            objective=fit.answer.sums.objective,
            converged=fit.answer.converged,
            status=fit.answer.status,
            refined=fit.answer.refined,
            n_iter=fit.answer.n_iter,
            n_passes=n_passes,
            history=fit.history,
        )


@dataclass(frozen=True)
class Collection:
    """Samples that are too few for a stream to begin with."""

    X: Array  # (r, n)
    n_fitted: int  # of them at the last fit
    learned: Learned

    @property
    def n_seen(self) -> int:
        """Number of samples."""
        return int(self.X.shape[0])


@dataclass(frozen=True)
class Course:
    """A stream on its course, and what of its first fit stays as it is: the number, order and signs of atoms."""

    stream: Stream
    n_iter: int
    history: tuple[Iteration, ...]
    filled: Dictionary  # atoms beyond the rank

    @classmethod
    def begun(cls, fit: Fit, options: Options, n_passes: float) -> Course:
        """The course that goes on from a fit."""
        known = len(fit.dictionary.order)
        filled = Dictionary(fit.dictionary.components[known:], fit.dictionary.unmixing[known:], np.arange(0))
        stream = Stream.begun(options.exponents[-1], options.refine, _in_order(fit), fit.frame, fit.survey, n_passes)
        return cls(stream, fit.answer.n_iter, fit.history, filled)

    @property
    def n_seen(self) -> int:
        """Number of samples."""
        return self.stream.n_seen

    @property
    def learned(self) -> Learned:
        """What a user gets now."""
        stream = self.stream
        answer = stream.answer()
        components = np.vstack([stream.frame.components(answer.A), self.filled.components])
        unmixing = np.vstack([stream.frame.unmixing(answer.A), self.filled.unmixing])
        dictionary = Dictionary(components, unmixing, np.arange(len(answer.A)))
        laws = laws_of(answer, dictionary, stream.frame, stream.survey)
        errors = laws.atom_error[: len(answer.A)]
        errors = np.minimum(errors + stream.drift_errors(errors), 1.0)
        atom_error = np.append(errors, laws.atom_error[len(answer.A) :])
        laws = replace(laws, atom_error=atom_error, expected_error=float(np.mean(errors)))
        learned = Learned.of(Fit(stream.frame, stream.survey, answer, dictionary, laws, self.history), 0.0)
        return replace(learned, n_iter=self.n_iter + stream.n_steps, n_passes=stream.n_looks / stream.n_seen)


State = Collection | Course


def enough(n_features: int) -> int:
    """Samples from which a stream begins: as many as the first stage of a fit looks at."""
    return max(FEWEST, FIRST_PER_FEATURE * n_features)


def advanced(
    state: State | None,
    samples: MemorySamples,
    options: Options,
    half_life: float | None,
    rng: np.random.Generator,
    *,
    stacklevel: int,
) -> tuple[State, Learned]:
    """The state after a batch, and what a user gets; the state before stays as it is, whatever happens."""
    if isinstance(state, Course):
        _check_same_course(state, options)
        course = replace(state, stream=state.stream.after(samples, half_life))
        return course, course.learned
    misfit = find_misfit(samples.X, samples.space.xp)
    if misfit is not None:
        raise not_finite(samples, misfit)
    together = samples if state is None else MemorySamples(_joined(state.X, samples))
    if together.n_samples < enough(together.n_features):
        collection = _collected(state, together, options, rng)
        return collection, collection.learned
    journal = Journal()
    fit = fitted(together, options, rng, journal, stacklevel=stacklevel + 1)
    return Course.begun(fit, options, journal.passes), Learned.of(fit, journal.passes)


def _check_same_course(course: Course, options: Options) -> None:
    """A stream goes on as it began: what it keeps is of these options and no others."""
    stream = course.stream
    m = len(stream.believed.A) + len(course.filled.components)
    began = {"p": stream.p, "refine": stream.refine, "center": stream.center, "whiten": stream.whiten}
    now = {"p": options.exponents[-1], "refine": options.refine, "center": options.center, "whiten": options.whiten}
    changed = [f"{name}={now[name]!r} was {began[name]!r}" for name in now if now[name] != began[name]]
    if options.n_components not in (None, m):
        changed.append(f"n_components={options.n_components} was {m}")
    if changed:
        raise ValueError(f"{'; '.join(changed)} when the stream began. Set it back, or begin a new model.")


def _collected(
    state: Collection | None, together: MemorySamples, options: Options, rng: np.random.Generator
) -> Collection:
    """Samples collected so far, and what can be said of them."""
    r, n = together.n_samples, together.n_features
    n_fitted, learned = (0, _nothing(options, n)) if state is None else (state.n_fitted, state.learned)
    if r >= max(FEWEST_PER_FEATURE * n, WORTH_A_FIT * n_fitted):
        journal = Journal()
        fit = fitted(together, options, rng, journal, stacklevel=None)
        n_fitted, learned = r, Learned.of(fit, journal.passes)
    status = f"collecting: {r} of {enough(n)} samples, fitted at {n_fitted}"
    X = together.space.xp.asarray(together.X, copy=True) if state is None else together.X  # the user's own may change
    return Collection(X, n_fitted, replace(learned, status=status, converged=False))


def _nothing(options: Options, n: int) -> Learned:
    """What is said of samples too few to say anything: atoms are axes, and their error bars all that there is."""
    m = options.n_components or n
    axes = np.eye(n)
    laws = Laws(
        density=np.ones(m),
        scale=np.ones(m),
        noise_std=0.0,
        atom_error=np.ones(m),
        expected_error=1.0,
        corruption_rate=0.0,
        corruption_scale=0.0,
        rest=axes[m:],
        rest_std=1.0,
    )
    return Learned(axes[:m], axes[:m], np.zeros(n), laws, 0.0, False, "", None, 0, 0.0, ())


def _joined(X: Array, samples: MemorySamples) -> Array:
    xp = samples.space.xp
    wider = xp.float32 if X.dtype == samples.X.dtype == xp.float32 else xp.float64
    return xp.concat([xp.astype(X, wider, copy=False), xp.astype(samples.X, wider, copy=False)])


def _in_order(fit: Fit) -> Answer:
    """The answer with its atoms in the order and with the signs that the user got, which a stream then keeps."""
    answer, order = fit.answer, fit.dictionary.order
    A, rank = to_numpy(answer.A)[order], np.argsort(order)
    signs = signs_of_largest(fit.frame.components(A))  # which made those of the user positive

    def vector(values: Array) -> NDArray[np.float64]:
        return to_numpy(values)[order]

    sums, of, model = answer.sums, answer.moments, answer.model
    return replace(
        answer,
        A=signs * A,
        sums=replace(
            sums,
            value=vector(sums.value),
            G=None,
            beside=None,
            idle=None,
            slope=vector(sums.slope),
            g2=vector(sums.g2),
            z2=vector(sums.z2),
            gz=vector(sums.gz),
            extra={"magnitude": vector(sums.extra["magnitude"])},
        ),
        moments=CodeMoments(vector(of.gz), vector(of.g2), vector(of.slope), vector(of.z2)),
        model=replace(model, density=model.density[order], power=model.power[order]),
        mixed=tuple(replace(pair, first=int(rank[pair.first]), second=int(rank[pair.second])) for pair in answer.mixed),
    )
