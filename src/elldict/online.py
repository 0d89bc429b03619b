"""From batches to atoms: the first samples are collected and fitted, and a stream goes on from there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elldict.backend.base import Array, to_numpy
from elldict.data.dataset import ArrayDataset, find_non_finite, non_finite_error
from elldict.data.subsample import FEWEST, FIRST_PER_FEATURE
from elldict.diagnostics import Dictionary, Laws, laws_of, signs_of_largest
from elldict.fit import Fit, Options, fitted
from elldict.result import Iteration
from elldict.solver.loop import FitLog
from elldict.solver.online import Stream
from elldict.solver.refine import Estimate
from elldict.theory.accuracy import CodeMoments

FEWEST_PER_FEATURE = 2
"""Samples a feature below which a fit would say nothing."""

WORTH_A_FIT = 2
"""Times as many collected samples as at the last fit are worth another."""


@dataclass(frozen=True)
class FitResult:
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
    def of(cls, fit: Fit, n_passes: float) -> FitResult:
        """What a fit has found."""
        n = fit.statistics.n_features
        return cls(
            components=fit.dictionary.components,
            unmixing=fit.dictionary.unmixing,
            mean=np.zeros(n) if fit.whitening.mean is None else fit.whitening.mean,
            laws=fit.laws,
            objective=fit.estimate.stats.mean_value,
            converged=fit.estimate.converged,
            status=fit.estimate.status,
            refined=fit.estimate.refined,
            n_iter=fit.estimate.n_iter,
            n_passes=n_passes,
            history=fit.history,
        )


@dataclass(frozen=True)
class WarmupBuffer:
    """Samples that are too few for a stream to begin with."""

    X: Array  # (r, n)
    n_fitted: int  # of them at the last fit
    learned: FitResult

    @property
    def n_seen(self) -> int:
        """Number of samples."""
        return int(self.X.shape[0])


@dataclass(frozen=True)
class OnlineModel:
    """A stream on its course, and what of its first fit stays as it is: the number, order and signs of atoms."""

    stream: Stream
    n_iter: int
    history: tuple[Iteration, ...]
    filled: Dictionary  # atoms beyond the rank

    @classmethod
    def begin(cls, fit: Fit, options: Options, n_passes: float) -> OnlineModel:
        """The course that goes on from a fit."""
        known = len(fit.dictionary.order)
        filled = Dictionary(fit.dictionary.components[known:], fit.dictionary.unmixing[known:], np.arange(0))
        stream = Stream.begin(
            options.exponents[-1], options.refine, _in_order(fit), fit.whitening, fit.statistics, n_passes
        )
        return cls(stream, fit.estimate.n_iter, fit.history, filled)

    @property
    def n_seen(self) -> int:
        """Number of samples."""
        return self.stream.n_seen

    @property
    def learned(self) -> FitResult:
        """What a user gets now."""
        stream = self.stream
        estimate = stream.estimate()
        components = np.vstack([stream.whitening.components(estimate.A), self.filled.components])
        unmixing = np.vstack([stream.whitening.unmixing(estimate.A), self.filled.unmixing])
        dictionary = Dictionary(components, unmixing, np.arange(len(estimate.A)))
        laws = laws_of(estimate, dictionary, stream.whitening, stream.statistics)
        errors = laws.atom_error[: len(estimate.A)]
        errors = np.minimum(errors + stream.drift_errors(errors), 1.0)
        atom_error = np.append(errors, laws.atom_error[len(estimate.A) :])
        laws = replace(laws, atom_error=atom_error, expected_error=float(np.mean(errors)))
        learned = FitResult.of(Fit(stream.whitening, stream.statistics, estimate, dictionary, laws, self.history), 0.0)
        return replace(learned, n_iter=self.n_iter + stream.n_steps, n_passes=stream.n_looks / stream.n_seen)


State = WarmupBuffer | OnlineModel


def enough(n_features: int) -> int:
    """Samples from which a stream begins: as many as the first stage of a fit looks at."""
    return max(FEWEST, FIRST_PER_FEATURE * n_features)


def advanced(
    state: State | None,
    samples: ArrayDataset,
    options: Options,
    half_life: float | None,
    rng: np.random.Generator,
    *,
    stacklevel: int,
) -> tuple[State, FitResult]:
    """The state after a batch, and what a user gets; the state before stays as it is, whatever happens."""
    if isinstance(state, OnlineModel):
        _check_same_course(state, options)
        course = replace(state, stream=state.stream.after(samples, half_life))
        return course, course.learned
    non_finite = find_non_finite(samples.X, samples.backend.xp)
    if non_finite is not None:
        raise non_finite_error(samples, non_finite)
    together = samples if state is None else ArrayDataset(_joined(state.X, samples))
    if together.n_samples < enough(together.n_features):
        collection = _collected(state, together, options, rng)
        return collection, collection.learned
    log = FitLog()
    fit = fitted(together, options, rng, log, stacklevel=stacklevel + 1)
    return OnlineModel.begin(fit, options, log.passes), FitResult.of(fit, log.passes)


def _check_same_course(course: OnlineModel, options: Options) -> None:
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
    state: WarmupBuffer | None, together: ArrayDataset, options: Options, rng: np.random.Generator
) -> WarmupBuffer:
    """Samples collected so far, and what can be said of them."""
    r, n = together.n_samples, together.n_features
    n_fitted, learned = (0, _nothing(options, n)) if state is None else (state.n_fitted, state.learned)
    if r >= max(FEWEST_PER_FEATURE * n, WORTH_A_FIT * n_fitted):
        log = FitLog()
        fit = fitted(together, options, rng, log, stacklevel=None)
        n_fitted, learned = r, FitResult.of(fit, log.passes)
    status = f"collecting: {r} of {enough(n)} samples, fitted at {n_fitted}"
    X = together.backend.xp.asarray(together.X, copy=True) if state is None else together.X  # the user's own may change
    return WarmupBuffer(X, n_fitted, replace(learned, status=status, converged=False))


def _nothing(options: Options, n: int) -> FitResult:
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
    return FitResult(axes[:m], axes[:m], np.zeros(n), laws, 0.0, False, "", None, 0, 0.0, ())


def _joined(X: Array, samples: ArrayDataset) -> Array:
    xp = samples.backend.xp
    wider = xp.float32 if X.dtype == samples.X.dtype == xp.float32 else xp.float64
    return xp.concat([xp.astype(X, wider, copy=False), xp.astype(samples.X, wider, copy=False)])


def _in_order(fit: Fit) -> Estimate:
    """The answer with its atoms in the order and with the signs that the user got, which a stream then keeps."""
    estimate, order = fit.estimate, fit.dictionary.order
    A, rank = to_numpy(estimate.A)[order], np.argsort(order)
    signs = signs_of_largest(fit.whitening.components(A))  # which made those of the user positive

    def vector(values: Array) -> NDArray[np.float64]:
        return to_numpy(values)[order]

    stats, of, model = estimate.stats, estimate.moments, estimate.model
    return replace(
        estimate,
        A=signs * A,
        stats=replace(
            stats,
            value=vector(stats.value),
            G=None,
            secondary=None,
            inactive=None,
            slope=vector(stats.slope),
            g2=vector(stats.g2),
            z2=vector(stats.z2),
            gz=vector(stats.gz),
            extra={"magnitude": vector(stats.extra["magnitude"])},
        ),
        moments=CodeMoments(vector(of.gz), vector(of.g2), vector(of.slope), vector(of.z2)),
        model=replace(model, density=model.density[order], power=model.power[order]),
        mixed=tuple(
            replace(pair, first=int(rank[pair.first]), second=int(rank[pair.second])) for pair in estimate.mixed
        ),
    )
