"""The complete fit, from samples to result: whitening, pilots, likelihood, errors and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from elldict.errors.exact import find_exact
from elldict.errors.splits import estimate_errors
from elldict.result import Result, order_and_sign
from elldict.samples.arrays import ArraySamples
from elldict.samples.base import Array, Index, Samples
from elldict.samples.normalization import Normalization
from elldict.samples.order import Mask, Order, find_order
from elldict.samples.statistics import EqualSamplesError, Statistics, compute_statistics
from elldict.samples.subsample import Subset, choose_strides, gather, is_white
from elldict.samples.whitening import WhitenedSamples, Whitening, make_whitening
from elldict.solver.climb import Observer, PowerAscent, Reason, State, climb
from elldict.solver.density import Density
from elldict.solver.objectives import Lp
from elldict.solver.select import (
    Candidate,
    Climber,
    Model,
    are_flat,
    choose_candidate,
    choose_model,
    is_worth_climbing,
    list_pilots,
    make_lp_pilot,
    view,
)
from elldict.solver.starts import draw_start, find_start
from elldict.warnings import check_components, check_samples, find_gaussian

PILOT_SAMPLES, PILOT_SAMPLES_PER_DIRECTION = 2000, 60  # to choose pilots: minimum, and per direction
PILOT_GROWTH, GROWTH = 4, 8  # growth factors of the sample size: for the end of the pilot, then for the likelihood
ROUNDING = 1e-15  # error reported for an exact atom
MIN_PER_DIRECTION = 2  # samples per direction; below, no rotation is better than another
FEW = 32  # samples per direction; below, the likelihood may overfit atoms, and is cross-validated


@dataclass(frozen=True)
class Options:
    """Validated user options of a fit. An n_components above the rank is lowered to it."""

    n_components: int | None = None
    p: float = 3.0
    solver: str = "auto"  # or "power"
    refine: str | None = "auto"  # None: l_p only
    normalize: str | None = "auto"  # "samples", None
    center: bool = False
    whiten: bool = False
    max_iter: int = 1000
    tol: float = 1e-6
    error_bars: bool = True
    random_state: int | np.random.Generator = 0  # for the random start of the paper


@dataclass(frozen=True)
class Estimate:
    """Atoms in whitened coordinates, with a record of how they were found."""

    state: State
    whitening: Whitening
    statistics: Statistics
    samples: Samples  # whitened
    order: Order | None = None  # of the samples used by the likelihood
    model: Model = None
    pilot: str = ""
    is_pilot: bool = False  # whether the atoms are those of the pilot
    climbs: tuple[tuple[int, int, Reason], ...] = ()  # sample size, iterations and reason to end, per climb

    @property
    def n_iter(self) -> int:
        """Number of iterations, summed over all climbs."""
        return sum(n_iter for _, n_iter, _ in self.climbs)

    @property
    def n_passes(self) -> float:
        """Number of full-data passes: two for statistics, one each for the codes and any order, plus the climbs."""
        climbs = sum(n_samples * n_iter for n_samples, n_iter, _ in self.climbs)
        return 3 + (self.order is not None) + climbs / self.statistics.n_samples


def fit(samples: Samples, options: Options, observers: Sequence[Observer] = ()) -> Result:
    """Find components, estimate their errors, and check the assumptions."""
    estimate = find_atoms(samples, options, observers)
    columns = estimate.whitening.make_mixing(estimate.state.A)
    exact = find_exact_atoms(estimate)
    errors = None
    if wants_error_bars(estimate, options, exact):
        errors = estimate_errors(columns, samples.shape[0], lambda index: fit_columns(samples, index, options))
    return make_result(estimate, options, exact, errors)


def fit_columns(samples: Samples, index: Index, options: Options) -> Array:
    """Fit a subset of the samples from scratch and return its mixing matrix; zeros if all its samples are equal."""
    try:
        estimate = find_atoms(ArraySamples(samples.take(index), samples.n_threads), options)
    except EqualSamplesError:
        return np.zeros((samples.shape[1], 1))
    return estimate.whitening.make_mixing(estimate.state.A)


def wants_error_bars(estimate: Estimate, options: Options, exact: Mask) -> bool:
    """Return whether to fit parts of the samples: if asked for, and the atoms are neither exact nor unfinished."""
    if not options.error_bars or estimate.state.reason is Reason.STOPPED:
        return False
    m, k = estimate.state.A.shape
    if m < k:  # parts may find different atoms of the same dictionary: not an error
        return False
    return not np.all(exact)


def find_exact_atoms(estimate: Estimate) -> Mask:
    """Find the exact atoms; there are none if noise or whitening blurs the zeros."""
    A, order = estimate.state.A, estimate.order
    if order is None or estimate.state.reason is not Reason.ROUNDING:
        return np.zeros(len(A), dtype=bool)
    stride = max(1, len(order) // max(PILOT_SAMPLES, PILOT_SAMPLES_PER_DIRECTION * len(A)))
    return find_exact(estimate.samples.take(order.thin_out(stride).index) @ A.T)


def make_result(estimate: Estimate, options: Options, exact: Mask, errors: Array | None) -> Result:
    """Sort the components and collect their properties."""
    state, whitening, r = estimate.state, estimate.whitening, estimate.statistics.n_samples
    moments = measure_codes(estimate.samples, state.A, options.p) / r
    columns, rows = whitening.make_mixing(state.A), whitening.make_unmixing(state.A)
    unit = whitening.unit  # if not whitened, atoms have unit length, and codes are in the units of X
    order, signs = order_and_sign(moments[0], columns)
    gaussian = np.zeros(len(order), dtype=bool)
    if isinstance(state.objective, Density) and estimate.order is not None and state.reason is not Reason.STOPPED:
        gaussian = find_gaussian(state.objective.negentropy, len(estimate.order)) & ~exact
    findings = [*check_samples(estimate.statistics, whitening, options.n_components)]
    findings += check_components(state, gaussian[order], estimate.statistics)
    if errors is None:
        errors = np.where(exact, ROUNDING, np.nan)
    return Result(
        mixing=(columns / unit)[:, order] * signs,
        unmixing=(rows * unit)[order] * signs[:, None],
        mean=whitening.mean,
        code_std=(np.sqrt(moments[1]) * unit)[order],
        component_errors=errors[order],
        is_exact=bool(np.all(exact)),
        has_replicates=not np.any(np.isnan(errors)) and not np.all(exact),
        objective=float(np.mean(moments[0])),
        state=state,
        pilot=estimate.pilot,
        is_pilot=estimate.is_pilot,
        is_normalized=estimate.model is not None,
        n_iter=estimate.n_iter,
        n_passes=estimate.n_passes,
        findings=tuple(findings),
    )


def measure_codes(samples: Samples, A: Array, p: float) -> Array:
    """Sum |z|^p and z^2 (2, m) over the codes of all samples."""

    def visit(rows: Array, start: int) -> Array:  # noqa: ARG001
        size = np.abs(rows @ A.T)
        return np.stack([np.sum(size**p, axis=0), np.sum(size**2, axis=0)])

    return samples.sum(visit)


def find_atoms(samples: Samples, options: Options, observers: Sequence[Observer] = ()) -> Estimate:
    """Find orthonormal atoms in coordinates in which the samples are white or have unit mean square."""
    statistics = compute_statistics(samples)
    m = options.n_components
    whitening = make_whitening(statistics, center=options.center, whiten=options.whiten, n_components=m)
    white = WhitenedSamples(samples, whitening)
    k = white.shape[1]
    m = min(m or k, k)
    estimate = Estimate(State(np.eye(k)[:m], Lp(options.p)), whitening, statistics, white)
    if options.solver == "power" or m < k:
        return climb_lp(estimate, m, options, observers)
    return climb_likelihood(estimate, options, observers)


def climb_lp(estimate: Estimate, m: int, options: Options, observers: Sequence[Observer]) -> Estimate:
    """Maximise the l_p norm of the codes of m atoms on all samples (Algorithm 2 of the paper)."""
    k = estimate.samples.shape[1]
    if options.solver == "power":
        start = draw_start(m, k, np.random.default_rng(options.random_state))
    else:
        start = find_start(estimate.samples, m)
    ascent = PowerAscent(estimate.samples, options.tol)
    state = climb(State(start, Lp(options.p)), ascent, options.max_iter, observers)
    return replace(estimate, state=state, climbs=((estimate.samples.shape[0], state.iteration, state.reason),))


def climb_likelihood(estimate: Estimate, options: Options, observers: Sequence[Observer]) -> Estimate:
    """Choose a pilot and a model on a subsample, then climb the likelihood on increasingly many samples."""
    white, order = estimate.samples, find_order(estimate.samples)
    r, n = len(order), white.shape[1]
    if r < MIN_PER_DIRECTION * n:
        return replace(estimate, state=State(find_start(white), Lp(options.p), reason=Reason.TOO_FEW))
    climber = Climber(options.max_iter, find_least_blur(estimate, options), observers)
    models = list_models(order, options.normalize)
    first, subset = choose_first_stride(white, order)
    some, strides = order.thin_out(first), choose_strides(first // PILOT_GROWTH, GROWTH)
    if options.refine is None:
        chosen = choose_candidate(subset, some, [make_lp_pilot(options.p, models)], climber)
        return keep_pilot(replace(estimate, order=order), chosen, strides, climber)
    pilots = list_pilots(options.p, models, flat=are_flat(order, n))
    chosen = choose_candidate(subset, some, pilots, climber)
    if n > 1 and r < FEW * n and not is_worth_climbing(white, order, chosen, climber):
        return keep_pilot(replace(estimate, order=order), chosen, strides, climber)
    A, model = chosen.A, chosen.model
    if strides[0] < first:
        A = climber.climb_pilot(gather(white, order.thin_out(strides[0])), A, chosen.pilot).A
    state = State(A, Density.begin(n))
    for stride in strides:
        seen = gather(white, order.thin_out(stride))
        state = climber.climb_likelihood(seen, state, model)
        if stride == strides[0] and (better := choose_model(subset, some, state, models)) is not model:
            model = better
            state = climber.climb_likelihood(seen, State(state.A, Density.begin(n)), model)
    climbs = tuple(climber.climbs)
    return replace(estimate, order=order, state=state, model=model, pilot=chosen.pilot.name, climbs=climbs)


def choose_first_stride(white: Samples, order: Order) -> tuple[int, Subset]:
    """Choose the subsample for the pilots, large enough to vary in every direction."""
    n = white.shape[1]
    stride = max(1, len(order) // max(PILOT_SAMPLES, PILOT_SAMPLES_PER_DIRECTION * n))
    while not (subset := gather(white, order.thin_out(stride))).has_full_rank and stride > 1:
        stride //= 2
    return stride, subset


def keep_pilot(estimate: Estimate, chosen: Candidate, strides: Sequence[int], climber: Climber) -> Estimate:
    """Run the pilot to the end on all samples, and fit densities to its codes."""
    white, order = estimate.samples, estimate.order
    assert order is not None
    state = State(chosen.A, chosen.pilot.objective)
    for stride in strides:
        seen = gather(white, order.thin_out(stride))
        state = climber.climb_pilot(seen, state.A, chosen.pilot, max_iter=climber.max_iter)
    density = Density.begin(len(state.A)).refit(view(seen, chosen.model).encode(state.A))
    return replace(
        estimate,
        state=replace(state, objective=density),
        model=chosen.model,
        pilot=chosen.pilot.name,
        is_pilot=True,
        climbs=tuple(climber.climbs),
    )


def list_models(order: Order, normalize: str | None) -> list[Model]:
    """List the models to choose from, or the one set by the user."""
    scaled = Normalization(float(np.median(order.squares)))
    models: dict[str | None, list[Model]] = {"auto": [None, scaled], "samples": [scaled], None: [None]}
    return models[normalize]


def find_least_blur(estimate: Estimate, options: Options) -> float:
    """Estimate the standard deviation of the crosstalk between codes of samples whitened by their own moments.

    Sampling error of these moments makes the true atoms non-orthogonal, which no rotation can undo.
    """
    statistics, k = estimate.statistics, estimate.samples.shape[1]
    W = estimate.whitening.to_white * statistics.largest
    moments = W @ statistics.second_moments(center=options.center) @ W.T
    r = statistics.n_samples
    return float(np.sqrt(k / r)) if is_white(moments, r) else 0.0
