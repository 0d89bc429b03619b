"""The search for atoms: statistics, whitening, pilots, and the likelihood on increasingly many samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from elldict.samples.base import STORED_BYTES, Array, Samples
from elldict.samples.normalization import Normalization
from elldict.samples.order import Order, find_order
from elldict.samples.statistics import Statistics, compute_statistics
from elldict.samples.subsample import Subset, choose_strides, gather, gather_all, is_white, store
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
    judge,
    list_pilots,
    repeat_pilot,
    view,
)
from elldict.solver.starts import draw_start, find_start

if TYPE_CHECKING:
    from elldict.corruption.prior import Prior

PILOT_SAMPLES, PILOT_SAMPLES_PER_DIRECTION = 2000, 30  # to choose pilots: minimum, and per direction
PILOT_GROWTH, GROWTH = 8, 8  # growth factors of the sample size: for the end of the pilot, then for the likelihood
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
    orthogonal: bool = False  # whether codes of whitened samples have to be uncorrelated


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
    is_orthogonal: bool = True  # in whitened coordinates
    corruption: Prior | None = None  # distributions of codes and errors, if samples have sparse corruption
    climbs: tuple[tuple[float, int, Reason], ...] = ()  # sample size, iterations and reason to end, per climb

    @property
    def white(self) -> Samples:
        """Samples in whitened coordinates."""
        return whiten_samples(self.samples, self.whitening)

    def gather(self, order: Order) -> Subset:
        """Collect the samples of an order."""
        return gather(self.samples, self.whitening, order)

    def gather_all(self, model: Model) -> Subset:
        """Collect all samples by their position, with norms if a model needs them."""
        return gather_all(self.samples, self.whitening, self.order, model)

    @property
    def n_iter(self) -> int:
        """Number of iterations, summed over all climbs."""
        return sum(n_iter for _, n_iter, _ in self.climbs)

    @property
    def n_passes(self) -> float:
        """Number of full-data passes: two for statistics, one each for the order and the codes, plus the climbs."""
        return 4 + sum(n_samples * n_iter for n_samples, n_iter, _ in self.climbs) / self.statistics.n_samples


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
    estimate = replace(estimate, **climber.once(lambda: climb_from_pilot(estimate, options, climber, like)))
    may_be_free = estimate.whitening.is_white and not options.orthogonal
    if not may_be_free or estimate.is_pilot or climber.was_stopped or n == 1 or (like and like.is_orthogonal):
        return estimate
    return replace(estimate, **climber.once(lambda: climb_freely(estimate, climber, like)))


def climb_freely(estimate: Estimate, climber: Climber, like: Estimate | None) -> dict[str, Any]:
    """Climb the likelihood over all invertible matrices; keep the orthogonal atoms if they are more likely.

    Without noise, codes of raw samples are zero, which a climb with a subsample finds. Zeros are not where the mean is,
    so the location of each code of raw samples is fitted, too.
    """
    order, before = estimate.order, estimate.state
    assert order is not None
    assert isinstance(before.objective, Density)
    n, (stride, subset) = len(before.A), choose_first_stride(estimate, order)
    density = Density.begin(n, before.objective)
    start, raw_start = (State(A, density) for A in (before.A, np.pad(before.A, ((0, 0), (0, 1)))))
    state = climber.climb_freely(subset, raw_start)
    is_exact = state.reason is Reason.ROUNDING
    model = None if is_exact else estimate.model
    whole = estimate.gather_all(model) if order.is_drawn else estimate.gather(order)
    if stride > 1 or model is not None:
        begin = state if is_exact else raw_start if model is None else start
        state = climber.climb_freely(view(whole, model), begin)
    if not (is_exact or like):
        # with equal widths: narrower ones of either would be compared as well
        value, other = (judge(whole, order, A, model, density)[0] for A in (state.A, before.A))
        if value < other:
            return {"climbs": tuple(climber.climbs)}
    assert isinstance(state.objective, Density)
    A, location = state.A[:, :n], -np.sum(state.A[:, n:], axis=1)
    std = np.sqrt(np.einsum("ij,jk,ik->i", A, estimate.whitening.moments, A))
    density = replace(state.objective, location=location).rescale(1 / std)
    return {
        "state": replace(state, A=A / std[:, None], objective=density),
        "model": model,
        "is_orthogonal": False,
        "climbs": tuple(climber.climbs),
    }


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
        state = climber.climb_likelihood(estimate.gather_all(model), state, model)
    return {"state": state, "model": model, "pilot": chosen.pilot.name, "climbs": tuple(climber.climbs)}


def choose_first_stride(estimate: Estimate, order: Order) -> tuple[int, Subset]:
    """Choose the subsample for the pilots, large enough to vary in every direction."""
    stride = find_stride(order, len(estimate.state.A))
    while not (subset := estimate.gather(order.thin_out(stride))).has_full_rank and stride > 1:
        stride //= 2
    return stride, subset


def find_stride(order: Order, n: int) -> int:
    """Compute the stride of the subsample for pilots of n atoms."""
    return max(1, int(order.n_samples) // max(PILOT_SAMPLES, PILOT_SAMPLES_PER_DIRECTION * n))


def list_models(order: Order, normalize: str | None) -> list[Model]:
    """List the models to choose from, or the one set by the user."""
    scaled = Normalization(order.median)
    models: dict[str | None, list[Model]] = {"auto": [None, scaled], "samples": [scaled], None: [None]}
    return models[normalize]


def is_worth_climbing(estimate: Estimate, chosen: Candidate, climber: Climber, like: Estimate | None) -> bool:
    """Return whether the likelihood is better than its pilot: certainly with many samples, else by cross-validation."""
    order, n = estimate.order, len(chosen.A)
    assert order is not None
    if like is not None and like.pilot:
        return not like.is_pilot
    return n == 1 or order.n_samples >= FEW * n or cross_validate(estimate.gather, order, chosen, climber)


def keep_pilot(estimate: Estimate, chosen: Candidate, strides: Sequence[int], climber: Climber) -> dict[str, Any]:
    """Run the pilot to the end on all samples, and fit densities to its codes."""
    order = estimate.order
    assert order is not None
    state = State(chosen.A, chosen.pilot.objective)
    for stride in strides:
        seen = estimate.gather(order.thin_out(stride))
        state = climber.climb_pilot(seen, state.A, chosen.pilot, max_iter=climber.max_iter)
    if order.is_drawn:
        seen = estimate.gather_all(chosen.pilot.sees or chosen.model)
        state = climber.climb_pilot(seen, state.A, chosen.pilot, max_iter=climber.max_iter)
    density = Density.begin(len(state.A)).refit(view(seen, chosen.model).encode(state.A), choose=True)
    return {
        "state": replace(state, objective=density),
        "model": chosen.model,
        "pilot": chosen.pilot.name,
        "is_pilot": True,
        "climbs": tuple(climber.climbs),
    }


def find_principal_axes(estimate: Estimate) -> Array:
    """Return the principal axes (k, k), by decreasing variance; whitened samples have them as coordinates already."""
    if estimate.whitening.is_white:
        return np.eye(len(estimate.state.A))
    return np.asarray(np.linalg.eigh(estimate.whitening.moments)[1].T[::-1])


def find_least_blur(estimate: Estimate) -> float:
    """Estimate the standard deviation of the crosstalk between codes of samples whitened by their own moments.

    Sampling error of these moments makes the true atoms non-orthogonal, which no rotation can undo.
    """
    r = estimate.statistics.n_samples
    return float(np.sqrt(len(estimate.state.A) / r)) if is_white(estimate.whitening.moments, r) else 0.0
