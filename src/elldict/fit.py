"""The complete fit, from samples to result: whitening, pilots, likelihood, errors and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elldict.errors.exact import find_exact
from elldict.errors.splits import estimate_errors, list_splits
from elldict.result import Result, order_and_sign
from elldict.samples.arrays import drop_weightless
from elldict.samples.base import STORED_BYTES, Array, Index, Samples, Weights, weigh
from elldict.samples.normalization import Normalization
from elldict.samples.order import Mask, Order, find_order
from elldict.samples.statistics import EqualSamplesError, Statistics, compute_statistics
from elldict.samples.subsample import Codes, Subset, choose_strides, gather, gather_all, is_white, store
from elldict.samples.whitening import Whitening, make_whitening, whiten_samples
from elldict.solver.climb import NO_JOURNAL, Journal, Observer, PowerAscent, Reason, State, climb
from elldict.solver.density import Density
from elldict.solver.objectives import Lp
from elldict.solver.select import (
    Candidate,
    Climber,
    Model,
    are_flat,
    choose_candidate,
    choose_model,
    cross_validate,
    list_pilots,
    repeat_pilot,
    view,
)
from elldict.solver.starts import draw_start, find_start
from elldict.warnings import check_components, check_entries, check_samples, find_gaussian

if TYPE_CHECKING:
    from elldict.corruption.prior import Prior

PILOT_SAMPLES, PILOT_SAMPLES_PER_DIRECTION = 2000, 30  # to choose pilots: minimum, and per direction
PILOT_GROWTH, GROWTH = 8, 8  # growth factors of the sample size: for the end of the pilot, then for the likelihood
ROUNDING = 1e-15  # error reported for an exact atom
MIN_PER_DIRECTION = 2  # samples per direction; below, no rotation is better than another
FEW = 32  # samples per direction; below, the likelihood may overfit atoms, and is cross-validated


@dataclass(frozen=True)
class Options:
    """Validated user options of a fit. An n_components above the rank is lowered to it."""

    n_components: int | None = None
    p: float = 3.0
    solver: str = "auto"  # or "power"
    refine: str | None = "auto"  # "sparse-corruption"; None: l_p only
    normalize: str | None = "auto"  # "samples", None
    center: bool = False
    whiten: bool = False
    standardize: bool = False
    max_iter: int = 1000
    tol: float = 1e-6
    error_bars: bool = True
    random_state: int = 0  # for the random start of the paper
    sorts_by_variance: bool = False  # components; otherwise by the l_p norm of their codes


@dataclass(frozen=True)
class Estimate:
    """Atoms in whitened coordinates, with a record of how they were found."""

    state: State
    whitening: Whitening
    statistics: Statistics
    samples: Samples
    order: Order | None = None  # of the samples used by the likelihood
    model: Model = None
    pilot: str = ""
    is_pilot: bool = False  # whether the atoms are those of the pilot
    corruption: Prior | None = None  # distributions of codes and errors, if samples have sparse corruption
    climbs: tuple[tuple[float, int, Reason], ...] = ()  # sample size, iterations and reason to end, per climb

    @property
    def white(self) -> Samples:
        """Samples in whitened coordinates."""
        return whiten_samples(self.samples, self.whitening)

    @property
    def moments(self) -> Array:
        """Mean of y y^T (k, k) over whitened samples."""
        W, center = self.whitening.to_white * self.statistics.largest, bool(np.any(self.whitening.mean))
        return np.asarray(W @ self.statistics.second_moments(center=center) @ W.T)

    def gather(self, order: Order) -> Subset:
        """Collect the samples of an order."""
        return gather(self.samples, self.whitening, order, self.moments)

    def gather_all(self, order: Order | None = None, model: Model = None) -> Subset:
        """Collect all samples by their position."""
        return gather_all(self.samples, self.whitening, order, self.moments, model)

    @property
    def n_iter(self) -> int:
        """Number of iterations, summed over all climbs."""
        return sum(n_iter for _, n_iter, _ in self.climbs)

    @property
    def n_passes(self) -> float:
        """Number of full-data passes: two for statistics, one each for the order and the codes, plus the climbs."""
        return 4 + sum(n_samples * n_iter for n_samples, n_iter, _ in self.climbs) / self.statistics.n_samples


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
        return find_exact(rows @ A.T)
    from elldict.corruption.climb import solve  # noqa: PLC0415  optional

    return find_exact(solve(rows, A, estimate.corruption))


def make_result(estimate: Estimate, options: Options, exact: Mask, errors: Array | None) -> Result:
    """Sort the components and collect their properties."""
    state, whitening, codes = estimate.state, estimate.whitening, estimate.gather_all().encode(estimate.state.A)
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
        gaussian = find_gaussian(density.negentropy, (estimate.order or estimate.statistics).n_samples) & ~exact
    findings = [*check_samples(estimate.statistics, whitening, options.n_components)]
    findings += check_components(state, gaussian[order], estimate.statistics)
    corruption = estimate.corruption
    if corruption is None and estimate.model is None:
        findings += check_entries(estimate.white, whitening, estimate.order, state, options.refine)
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
        normalization=None if estimate.model is None else Normalization(estimate.model.median * unit**2),
        corruption=None if corruption is None else corruption.arrange(order).rescale(unit),
        refine=options.refine,
        state=state,
        pilot=estimate.pilot,
        is_pilot=estimate.is_pilot,
        n_iter=estimate.n_iter,
        n_passes=estimate.n_passes,
        findings=tuple(findings),
    )


def measure_power(codes: Codes, p: float) -> Array:
    """Compute E |z|^p (m,)."""

    def visit(Z: Array, half: Index, weights: Weights) -> Array:  # noqa: ARG001
        return np.asarray(np.sum(weigh(np.abs(Z) ** p, weights, 0), axis=0, dtype=np.float64))

    return np.asarray(codes.sum(visit) / codes.n_samples)


def find_atoms(
    samples: Samples,
    options: Options,
    observers: Sequence[Observer] = (),
    like: Estimate | None = None,
    journal: Journal = NO_JOURNAL,
) -> Estimate:
    """Find orthonormal atoms in coordinates in which the samples are white or have unit mean square."""
    statistics = compute_statistics(samples)
    m = options.n_components
    whitening = make_whitening(
        statistics, center=options.center, whiten=options.whiten, standardize=options.standardize, n_components=m
    )
    k = len(whitening.to_white)
    m = min(m or k, k)
    estimate = Estimate(State(np.eye(k)[:m], Lp(options.p)), whitening, statistics, samples)
    if options.solver == "power" or m < k:
        return climb_lp(estimate, m, options, observers, journal)
    if options.refine == "sparse-corruption":
        return climb_corrupted(estimate, options, observers, like, journal)
    return climb_likelihood(estimate, options, observers, like, journal)


def climb_lp(estimate: Estimate, m: int, options: Options, observers: Sequence[Observer], journal: Journal) -> Estimate:
    """Maximise the l_p norm of the codes of m atoms on all samples (Algorithm 2 of the paper)."""
    white = estimate.white
    k = white.shape[1]
    if white.shape[0] * k * white.dtype.itemsize <= STORED_BYTES:
        white = store(white, white.take(np.arange(0)))
    if options.solver == "power":
        start = draw_start(m, k, np.random.default_rng(options.random_state))
    else:
        start = find_start(white, m)
    begin, ascent = State(start, Lp(options.p)), PowerAscent(white, options.tol)
    state = climb(begin, ascent, options.max_iter, observers, journal)
    return replace(estimate, state=state, climbs=((estimate.statistics.n_samples, state.iteration, state.reason),))


def climb_corrupted(
    estimate: Estimate, options: Options, observers: Sequence[Observer], like: Estimate | None, journal: Journal
) -> Estimate:
    """Climb the l_p norm, then the likelihood with sparse corruption if it is better, or was better for `like`."""
    from elldict.corruption.climb import climb_through_corruption  # noqa: PLC0415  optional

    lp = climb_likelihood(estimate, replace(options, refine=None), observers, like, journal)
    order, n, state = lp.order, lp.samples.shape[1], lp.state
    if order is None or state.reason is Reason.STOPPED or not 1 < len(state.A) == n or (like and not like.corruption):
        return lp
    subset = lp.gather(order.thin_out(max(1, find_stride(order, n) // 2)))
    found = climb_through_corruption(lp.white, subset, state, options.max_iter, observers, journal, like is None)
    return replace(lp, **{**found, "climbs": (*lp.climbs, *found["climbs"])})


def climb_likelihood(
    estimate: Estimate, options: Options, observers: Sequence[Observer], like: Estimate | None, journal: Journal
) -> Estimate:
    """Choose a pilot and a model on a subsample, then climb the likelihood on increasingly many samples.

    A fit `like` another one makes the same choices.
    """
    order, n = find_order(estimate.white), len(estimate.state.A)
    estimate = replace(estimate, order=order)
    if n > 1 and order.n_distinct < MIN_PER_DIRECTION * n:
        state = State(find_principal_axes(estimate), Lp(options.p), reason=Reason.TOO_FEW)
        return replace(estimate, order=None, state=state)
    climber = Climber(options.max_iter, find_least_blur(estimate), observers, journal)
    return replace(estimate, **journal.once(lambda: climb_from_pilot(estimate, options, climber, like)))


def climb_from_pilot(
    estimate: Estimate, options: Options, climber: Climber, like: Estimate | None = None
) -> dict[str, Any]:
    """Choose a pilot and a model, then climb; return what has been found about an estimate, by its name."""
    order, n = estimate.order, len(estimate.state.A)
    assert order is not None
    models = list_models(order, options.normalize)
    first, subset = choose_first_stride(estimate, order)
    some, strides = order.thin_out(first), choose_strides(round(first / PILOT_GROWTH), GROWTH)
    pilots = list_pilots(options.p, models, flat=are_flat(order, n), refine=options.refine is not None)
    if like is not None and like.pilot:
        model = models[-1] if like.model else models[0]
        pilot = repeat_pilot(like.pilot, options.p, models, model, refine=options.refine is not None)
        pilots, models = [pilot], [model]
    subsets = {strides[0]: estimate.gather(order.thin_out(strides[0])), first: subset}

    def choose() -> tuple[Candidate, bool]:
        chosen = choose_candidate(subset, some, pilots, climber)
        chosen = replace(chosen, A=climber.climb_pilot(subsets[strides[0]], chosen.A, chosen.pilot).A)
        return chosen, options.refine is not None and is_worth_climbing(estimate, chosen, climber, like)

    chosen, is_worth = climber.once(choose)
    if not is_worth:
        return keep_pilot(estimate, chosen, strides, climber)
    state, model = State(chosen.A, Density.begin(n, chosen.density)), chosen.model
    for stride in dict.fromkeys((first, *strides)):  # most iterations are on the few samples of the pilots
        seen = subsets.get(stride) or estimate.gather(order.thin_out(stride))
        state = climber.climb_likelihood(seen, state, model)
        if stride == first and (better := choose_model(subset, some, state, models)) != model:
            model = better
            state = climber.climb_likelihood(seen, State(state.A, Density.begin(n, chosen.density)), model)
    if order.is_drawn:
        state = climber.climb_likelihood(estimate.gather_all(order, model), state, model)
    return {"state": state, "model": model, "pilot": chosen.pilot.name, "climbs": tuple(climber.climbs)}


def is_worth_climbing(estimate: Estimate, chosen: Candidate, climber: Climber, like: Estimate | None) -> bool:
    """Return whether the likelihood is better than its pilot: certainly with many samples, else by cross-validation."""
    order, n = estimate.order, len(chosen.A)
    assert order is not None
    if like is not None and like.pilot:
        return not like.is_pilot
    return n == 1 or order.n_samples >= FEW * n or cross_validate(estimate.gather, order, chosen, climber)


def find_principal_axes(estimate: Estimate) -> Array:
    """Return the principal axes (k, k), by decreasing variance; whitened samples have them as coordinates already."""
    if estimate.whitening.is_white:
        return np.eye(len(estimate.state.A))
    return np.asarray(np.linalg.eigh(estimate.moments)[1].T[::-1])


def find_stride(order: Order, n: int) -> int:
    """Compute the stride of the subsample for pilots of n atoms."""
    return max(1, int(order.n_samples) // max(PILOT_SAMPLES, PILOT_SAMPLES_PER_DIRECTION * n))


def choose_first_stride(estimate: Estimate, order: Order) -> tuple[int, Subset]:
    """Choose the subsample for the pilots, large enough to vary in every direction."""
    stride = find_stride(order, len(estimate.state.A))
    while not (subset := estimate.gather(order.thin_out(stride))).has_full_rank and stride > 1:
        stride //= 2
    return stride, subset


def keep_pilot(estimate: Estimate, chosen: Candidate, strides: Sequence[int], climber: Climber) -> dict[str, Any]:
    """Run the pilot to the end on all samples, and fit densities to its codes."""
    order = estimate.order
    assert order is not None
    state = State(chosen.A, chosen.pilot.objective)
    for stride in strides:
        seen = estimate.gather(order.thin_out(stride))
        state = climber.climb_pilot(seen, state.A, chosen.pilot, max_iter=climber.max_iter)
    if order.is_drawn:
        seen = estimate.gather_all(order, chosen.pilot.sees or chosen.model)
        state = climber.climb_pilot(seen, state.A, chosen.pilot, max_iter=climber.max_iter)
    density = Density.begin(len(state.A)).refit(view(seen, chosen.model).encode(state.A), choose=True)
    return {
        "state": replace(state, objective=density),
        "model": chosen.model,
        "pilot": chosen.pilot.name,
        "is_pilot": True,
        "climbs": tuple(climber.climbs),
    }


def list_models(order: Order, normalize: str | None) -> list[Model]:
    """List the models to choose from, or the one set by the user."""
    scaled = Normalization(order.median)
    models: dict[str | None, list[Model]] = {"auto": [None, scaled], "samples": [scaled], None: [None]}
    return models[normalize]


def find_least_blur(estimate: Estimate) -> float:
    """Estimate the standard deviation of the crosstalk between codes of samples whitened by their own moments.

    Sampling error of these moments makes the true atoms non-orthogonal, which no rotation can undo.
    """
    r = estimate.statistics.n_samples
    return float(np.sqrt(len(estimate.state.A) / r)) if is_white(estimate.moments, r) else 0.0
