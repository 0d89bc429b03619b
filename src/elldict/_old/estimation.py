"""From samples to an estimate of their atoms: statistics, whitening, drawn samples, starts, and a way to solve."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import NUMPY, Array, Backend, to_numpy
from elldict._old.backend.matrices import take_rows
from elldict._old.data.dataset import Dataset
from elldict._old.data.statistics import SampleStatistics, compute_statistics
from elldict._old.data.subsample import whiten_on_card
from elldict._old.data.whitening import Loudness, Whitening, bound_codes
from elldict._old.result import Estimate, Iteration
from elldict._old.solver.code_subsample import CodeSubsample
from elldict._old.solver.cuda_graph import CudaGraphStepper
from elldict._old.solver.directions import power_step, random_orthonormal
from elldict._old.solver.loop import PILOT_TOL, FitLog, Phase, choose_precision, run_starts
from elldict._old.solver.objective import Lp
from elldict._old.solver.pilot import FitContext, use_newton
from elldict._old.solver.schedule import approach_any_law, estimate_by_subsamples, estimate_on_all, finish_any_law
from elldict._old.validation import check_n_components

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
    halves: bool | str = "auto"  # whether two halves of the samples are fitted as well, for error bars
    clip: bool = False  # lower an n_components above the rank, with a warning, instead of refusing it
    order: str = "objective"  # of the atoms: by their share of it, or by the "variance" that they explain


@dataclass(frozen=True)
class Search:
    """What is known of the samples before atoms are sought."""

    samples: Dataset
    options: Options
    statistics: SampleStatistics
    n_components: int
    whitening: Whitening

    @classmethod
    def begin(cls, samples: Dataset, options: Options, log: FitLog) -> Search:
        """The first pass, and what follows from it."""
        if samples.backend.on_gpu and samples.backend.can_capture:
            log.capture = CudaGraphStepper.try_to_make
        statistics = compute_statistics(samples, center=options.center, precise=bool(options.whiten))
        log.passes += 1
        m = check_n_components(
            options.n_components, statistics, whiten=options.whiten, refine=options.refine, clip=options.clip
        )
        whitening = Whitening.of(statistics, center=options.center, whiten=options.whiten, n_components=m)
        return cls(samples, options, statistics, m, whitening)

    @cached_property
    def phases(self) -> list[Phase]:
        """Those of l_p."""
        return _make_phases(self.options, self.samples.dtype, bound_codes(self.statistics, self.whitening))

    def run(self, rng: np.random.Generator, log: FitLog) -> Found:
        """Seek the atoms from random starts."""
        samples, options, whitening = self.samples, self.options, self.whitening
        # drawn one by one when a start begins, after what is drawn below
        starts = _draw_starts(options.n_init, rng, min(self.n_components, self.statistics.rank), whitening, samples)
        drawn = self._draw(rng)
        loudness = Loudness.of(drawn.rows) if options.normalize == "samples" else None
        sought = whitening if loudness is None else replace(whitening, loudness=loudness)
        seen = drawn if loudness is None else drawn.normalize(loudness)
        if options.solver == "power" and options.refine is None:
            found, _, iterations = run_starts(samples, sought, self.phases, starts, log)
            estimate, history = replace(found, lp_stats=found.stats, law=seen.fit_law(found.A)), tuple(iterations)
        else:
            run = estimate_on_all if options.solver == "power" else estimate_by_subsamples
            asked = (options.refine, seen, options.n_init, options.normalize if loudness is None else None)
            white = whiten_on_card(samples, whitening)  # on which steps take less time
            estimate, history = run(FitContext(white, sought, log, self.phases, rng, *asked), starts)
        if loudness is not None:  # the law is that of samples as they are
            law = drawn.fit_law(estimate.A, None if estimate.lp_stats is None else estimate.lp_stats.signs)
            estimate = replace(estimate, loudness=loudness, law=law)
        return Found(self, estimate, history, drawn)

    def run_like(self, estimate: Estimate, rng: np.random.Generator, log: FitLog) -> Found:
        """Seek the atoms in the way that led to this estimate of other samples; roughly, where `finish` can go on."""
        if not self.can_finish(estimate):
            return self.run(rng, log)
        drawn = self._draw(rng)
        return Found(self, *approach_any_law(self._make_context(estimate, drawn, rng, log)), drawn)

    def can_finish(self, estimate: Estimate) -> bool:
        """Whether atoms of codes of any law are sought, in the way that led to this estimate of other samples."""
        assert estimate.lp_stats is not None
        options = self.options
        for_any_law = estimate.refined == "mixture" and not estimate.lp_stats.n_negative and options.refine == "auto"
        return for_any_law and options.normalize != "samples"

    def finish(self, A: Array, estimate: Estimate, rng: np.random.Generator, log: FitLog) -> Found:
        """Go on from atoms A (m, k) that were found roughly, in the way that led to this estimate of other samples."""
        drawn = self._draw(rng)
        return Found(self, *finish_any_law(self._make_context(estimate, drawn, rng, log), A), drawn)

    def _make_context(
        self, estimate: Estimate, drawn: CodeSubsample, rng: np.random.Generator, log: FitLog
    ) -> FitContext:
        normalize = None if estimate.loudness is None else "samples"
        white, refine = whiten_on_card(self.samples, self.whitening), self.options.refine
        return FitContext(white, self.whitening, log, self.phases, rng, refine, drawn, normalize=normalize)

    def _draw(self, rng: np.random.Generator) -> CodeSubsample:
        return CodeSubsample.draw(self.samples, self.whitening, np.random.default_rng(int(rng.integers(2**62))))


@dataclass(frozen=True)
class Found:
    """The estimate that a search ended with."""

    search: Search
    estimate: Estimate
    history: tuple[Iteration, ...]
    drawn: CodeSubsample

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """Which row of the estimate becomes which atom: by decreasing share of the l_p objective, or variance."""
        if self.search.options.order == "variance":
            atoms = self.search.whitening.components(to_numpy(self.estimate.A))
            return np.argsort(-np.sum(atoms**2, axis=1), kind="stable")
        assert self.estimate.lp_stats is not None
        return np.argsort(-to_numpy(self.estimate.lp_stats.value), kind="stable")

    @cached_property
    def atoms(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Components and unmixing (m, n)."""
        search, A = self.search, self.estimate.A
        backend = Backend.of(A) if Backend.of(A).prefers_products else NUMPY
        rows = take_rows(backend.asarray(A, "float64"), self.order)
        return make_atoms(rows, search.whitening.move_to(backend), search.statistics, search.n_components)


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
        # where coordinates are those of eigenvectors, by NumPy for all libraries of the host, so that they begin alike
        backend = samples.backend if whitening.to_white is None or samples.backend.prefers_products else NUMPY
        yield whitening.move_to(backend).start(random_orthonormal(m, samples.n_features, rng, backend))


def make_atoms(
    A: Array, whitening: Whitening, statistics: SampleStatistics, n_components: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Components and unmixing (m, n) from ordered rows A, where the whitening is; the largest entry of each positive.

    Atoms beyond the rank of the samples, whose codes are all zero, come last.
    """
    atoms = whitening.components(A)
    signs = signs_of_largest(atoms)
    components, unmixing = to_numpy(signs * atoms), to_numpy(signs * whitening.unmixing(A))
    missing = n_components - len(A)
    if missing:
        unused = _canonical_basis(statistics.eigenvectors[:, statistics.rank :])[:missing]
        unused = signs_of_largest(unused) * unused
        components, unmixing = np.vstack([components, unused]), np.vstack([unmixing, unused])
    return components, unmixing


def signs_of_largest(rows: Array) -> Array:
    """Sign (m, 1) of the first entry that is as large as any; entries that differ by rounding alone count as equal."""
    xp = Backend.of(rows).xp
    sizes = xp.abs(rows)
    large = xp.astype(sizes >= (1 - 1e-5) * xp.max(sizes, axis=1, keepdims=True), xp.int8)
    return xp.sign(xp.take_along_axis(rows, xp.argmax(large, axis=1)[:, None], axis=1))


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
