"""Mixtures of Gaussians on a fixed grid: a law for the codes of any source, and its likelihood.

Means and variances of the components are fixed, so that their weights are a convex problem, without local maxima, and
expectation maximisation takes two products of matrices a round. Components of mean zero make every symmetric law that
is sparser than a Gaussian one (Laplace, Student, zero or Gaussian with noise). Pairs N(mu, v) and N(-mu, v) of equal
weight make uniform, binary and other laws that are less so. Wide components on one side make laws that are skewed, as
those of blinks, genes and words are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend import host_kernels
from elldict._old.backend.base import NUMPY, Array, Backend, FreshWork, Work, to_numpy
from elldict._old.solver.objective import (
    LinearCodes,
    Objective,
    Quantities,
    Summed,
    Terms,
    Weighted,
    find_kernel,
    sum_term,
)

Matrix = NDArray[np.float64]

N_BINS = 512
"""Bins of a code: of equal width in z / (1 + |z|), z in units of its standard deviation. At zero they are a sixteenth
as wide as the narrowest component, and at z = 8, the standard deviation of the widest, a twenty-fifth of z."""

GROUPED_BINS = 4
"""Neighbouring bins that are counted as one when weights are fitted: a quarter as wide as the narrowest component."""

LEAST_STD, LARGEST_STD, N_STDS = 2.0**-4, 8.0, 32
"""Standard deviations of components of mean zero, in steps of their logarithm. With a smaller one Newton's step comes
close enough to a maximum in some fits only; sharper laws are for the spike-and-slab likelihood."""

MEANS, STDS_ABOUT_MEANS = np.arange(1, 13) / 5, 0.1 * 2.0 ** np.arange(4)
"""Means, and standard deviations about them, of the other components: up to 2.4, beyond which a code of unit variance
that is less sparse than a Gaussian one hardly goes."""

SKEWED_MEANS, SKEWED_STDS = 2.0 ** np.arange(-2, 4), (0.5, 1.0)
"""Means of the components on one side, on either side, and standard deviations about them, in units of the mean."""

N_SKEW_BINS, SKEW_SCORE = 16, 5.0
"""Bins on either side of zero whose counts are compared, and standard deviations of chi^2 beyond its mean from which
they differ."""

LEAST_DENSITY = 1e-280
"""What is added to a component, falling with the square of the distance: far out, where all are below the smallest
number, the widest are the likeliest, and guesses stay finite."""

LEAST_Q, LEAST_IN_FLOAT32 = 1e-290, 1e-30
"""Density of a bin whose codes no component explains, and in float32: its inverse, and sums of that, are finite."""

ROUNDS, UPDATE_ROUNDS = 200, 20
"""Of expectation maximisation: for a first law, and from one that was right a step before."""

SETTLED_MOVE = 0.02
"""Distance, in radians, that no atom may exceed in a step for the law to stay as it is: what is then left to learn of
the law changes the atoms in second order only."""


def locate_bins(Z: Array, std: Array, work: Work) -> Array:
    """Bin of each code Z (b, m), counted through all atoms: those of atom i begin at i N_BINS."""
    backend = Backend.of(Z)
    xp = backend.xp
    size = work.map(xp.add, work.map(xp.abs, Z, into="magnitude"), std, into="magnitude")
    u = work.map(xp.multiply, work.map(xp.divide, Z, size, into="magnitude"), N_BINS // 2, into="magnitude")
    u = work.map(xp.minimum, work.map(xp.add, u, N_BINS // 2, into="magnitude"), N_BINS - 1, into="magnitude")
    bins = xp.astype(u, xp.int64)
    bins += N_BINS * xp.arange(int(Z.shape[1]), dtype=xp.int64, device=backend.device)
    return bins


@dataclass(frozen=True)
class Components:
    """Densities of all components, and their first two derivatives, at the centres of the bins (K, N_BINS)."""

    centres: Matrix
    q: Matrix
    slope: Matrix
    bend: Matrix
    grouped: Matrix  # (K, N_BINS / GROUPED_BINS) mean density over bins that are counted as one
    means: Matrix  # (K,) of the components; those that are not skewed have a second one at minus this mean
    stds: Matrix  # (K,)
    sparse: NDArray[np.bool_]  # (K,) of mean zero
    skewed: NDArray[np.bool_]  # (K,) on one side
    mirrored: NDArray[np.intp]  # (K,) the component of -z for each of z


@cache
def make_components() -> Components:
    """Evaluate the components once."""
    u = (np.arange(N_BINS) + 0.5) / (N_BINS // 2) - 1
    centres = u / (1 - np.abs(u))
    sides = np.concatenate([SKEWED_MEANS, -SKEWED_MEANS])
    zero = np.zeros(N_STDS)
    means = np.concatenate([zero, np.repeat(MEANS, len(STDS_ABOUT_MEANS)), np.repeat(sides, len(SKEWED_STDS))])
    stds = np.concatenate(
        [
            np.geomspace(LEAST_STD, LARGEST_STD, N_STDS),
            np.tile(STDS_ABOUT_MEANS, len(MEANS)),
            np.outer(np.abs(sides), SKEWED_STDS).ravel(),
        ]
    )
    skewed = np.arange(len(means)) >= len(means) - len(sides) * len(SKEWED_STDS)
    q, slope, bend = np.zeros((3, len(means), N_BINS))
    for other_side in np.where(skewed, 1, -1), np.ones(len(means)):
        away = (centres - (other_side * means)[:, None]) / stds[:, None]
        density = 0.5 * np.exp(-0.5 * away**2) / (math.sqrt(2 * math.pi) * stds[:, None])
        q += density
        slope -= density * away / stds[:, None]
        bend += density * (away**2 - 1) / stds[:, None] ** 2
    mirrored, one_side = np.arange(len(means)), np.flatnonzero(skewed)
    mirrored[one_side] = np.roll(one_side, len(one_side) // 2)
    return Components(centres, q, slope, bend, group_bins(q) / GROUPED_BINS, means, stds, means == 0, skewed, mirrored)


@dataclass(frozen=True)
class MixtureLaw:
    """Laws of the codes of m atoms."""

    weights: Matrix  # (m, K) of the components
    std: Matrix  # (m,) of the codes

    def reorder(self, order: NDArray[np.intp], signs: NDArray[np.float64]) -> MixtureLaw:
        """The laws of atoms in this order, then times these signs (m,)."""
        weights = self.weights[order]
        mirrored = weights[:, make_components().mirrored]
        return MixtureLaw(np.where(signs[:, None] < 0, mirrored, weights), self.std[order])

    def expand_log_density(self, backend: Backend = NUMPY) -> tuple[Array, Array, Array]:
        """Coefficients c of log q(z) = c0 + c1 z + c2 z^2 / 2 about the centre of every bin (m, N_BINS)."""
        parts, used = make_components(), np.any(self.weights > 0, axis=0)
        arrays = (self.weights[:, used], self.std[:, None], parts.centres, parts.q[used], parts.slope[used])
        weights, std, x, density, slope = (backend.asarray(each, "float64") for each in arrays)
        q = backend.xp.clip(weights @ density, min=LEAST_Q)
        first = weights @ slope / q
        second = weights @ backend.asarray(parts.bend[used], "float64") / q - first**2
        linear = first - second * x
        return backend.xp.log(q / std) - linear * x - second * x**2 / 2, linear / std, second / std**2

    def expand_posterior_mean(self, noise: Matrix, added: Matrix) -> tuple[Matrix, Matrix]:
        """Coefficients c of E[x|z] = c0 + c1 z about the centre of every bin (m, N_BINS), with noise in z.

        A component N(mu, v) of the noisy code guesses mu + (z - mu) max(0, 1 - noise / v): one that is narrower than
        the noise (m,), which is fitted apart, guesses its mean. Of the noise `added` (m,) is not in the law, and makes
        all components wider; bins are in units of codes with all of it.
        """
        parts = make_components()
        if not np.any(added > 0):
            return _expand_guess(self.weights, self.std, noise, parts.means, parts.stds)
        std = np.sqrt(self.std**2 + added)
        tables = []
        for i in range(len(std)):  # each atom has components of its own
            wider = np.sqrt((self.std[i] * parts.stds) ** 2 + added[i]) / std[i]
            means, one = parts.means * self.std[i] / std[i], slice(i, i + 1)
            tables.append(_expand_guess(self.weights[one], std[one], noise[one], means, wider))
        levels, slopes = zip(*tables, strict=True)
        return np.concatenate(levels), np.concatenate(slopes)

    def score_counts(self, count: Matrix) -> float:
        """Log density of codes of which so many are in each bin (m, N_BINS), by that of its centre, added up."""
        parts, used = make_components(), np.any(self.weights > 0, axis=0)
        q = self.weights[:, used] @ parts.q[used] / self.std[:, None]
        return float(np.sum(count * np.log(np.maximum(q, LEAST_Q))))

    def density(self, Z: Matrix) -> Matrix:
        """Density of each code Z (b, m)."""
        return np.asarray(np.exp(MixtureLikelihood(self).log_density(Z, np)))


def _expand_guess(weights: Matrix, std: Matrix, noise: Matrix, means: Matrix, stds: Matrix) -> tuple[Matrix, Matrix]:
    """Coefficients of E[x|z] about the centres of all bins; codes have these std (m,), the unit of the components."""
    parts, unit = make_components(), std[:, None]
    kept = np.maximum(0.0, 1 - noise[:, None] / (unit * stds) ** 2)  # (m, K)
    whole, guess = np.zeros((2, len(std), N_BINS))
    for side in np.where(parts.skewed, 1, -1), np.ones(len(means)):
        centres = side * means
        away = (parts.centres - centres[:, None]) / stds[:, None]
        density = np.exp(-0.5 * away**2) / stds[:, None] + LEAST_DENSITY / (1 + away**2)
        whole += weights @ density
        guess += (weights * kept) @ (density * parts.centres)
        guess += (weights * (1 - kept) * centres) @ density
    guess /= whole
    slope = np.gradient(guess, parts.centres, axis=1)
    return (guess - slope * parts.centres) * unit, slope


def fit_mixture(Z: Array, signs: Array, rounds: int = ROUNDS, *, may_be_skewed: bool = True) -> MixtureLaw:
    """Law of codes Z (b, m) of atoms with these signs."""
    codes, parts = _keep_on_card(Z), make_components()
    std = measure_std(codes)
    count = count_bins(codes, std)
    skewed = find_skewed(count) if may_be_skewed else np.zeros(len(std), dtype=bool)
    allowed = np.where(to_numpy(signs)[:, None] > 0, parts.sparse | parts.skewed, True)
    allowed &= skewed[:, None] | ~parts.skewed
    weights = allowed / np.sum(allowed, axis=1, keepdims=True)
    return _run_em(MixtureLaw(weights, std), count / len(codes), rounds, Backend.of(codes))


def _keep_on_card(Z: Array) -> Array:
    """Codes where they are, if that is a card; otherwise on the host."""
    return Z if Backend.of(Z).prefers_products else to_numpy(Z)


def measure_std(codes: Array) -> Matrix:
    """Root mean square (m,) of codes (b, m)."""
    xp = Backend.of(codes).xp
    return np.asarray(np.sqrt(to_numpy(xp.mean(xp.astype(codes**2, xp.float64, copy=False), axis=0))))


def find_skewed(count: Matrix) -> NDArray[np.bool_]:
    """Which atoms have codes that are skewed: counts (m, N_BINS) at z and -z differ by more than chance explains.

    Components on one side would follow the chance of symmetric codes, which costs up to a tenth of their accuracy.
    """
    count = np.sum(count.reshape(len(count), 2 * N_SKEW_BINS, -1), axis=2)
    # without those at zero, where codes of no value count on one side
    left, right = count[:, N_SKEW_BINS - 2 :: -1], count[:, N_SKEW_BINS + 1 :]
    chi2 = np.sum((left - right) ** 2 / np.maximum(left + right, 1), axis=1)
    return np.asarray(chi2 > N_SKEW_BINS + SKEW_SCORE * math.sqrt(2 * N_SKEW_BINS))


def count_bins(codes: Array, std: Matrix) -> Matrix:
    """How many codes (b, m) lie in each bin (m, N_BINS)."""
    m, backend = len(std), Backend.of(codes)
    counted = host_kernels.count_bins(codes, std, N_BINS) if backend == NUMPY else None
    if counted is not None:
        return counted
    bins = locate_bins(codes, backend.asarray(std, "float64"), FreshWork())
    if not backend.prefers_products:
        return np.bincount(bins.ravel(), minlength=m * N_BINS).reshape(m, N_BINS).astype(np.float64)
    count = to_numpy(backend.xp.bincount(backend.xp.reshape(bins, (-1,)), minlength=m * N_BINS))
    return count.reshape(m, N_BINS).astype(np.float64)  # whole numbers: exact in any order


def group_bins(values: Matrix) -> Matrix:
    """Sums over `GROUPED_BINS` neighbouring bins (m, N_BINS / GROUPED_BINS)."""
    return np.asarray(np.sum(values.reshape(len(values), -1, GROUPED_BINS), axis=2))


def update_mixture(law: MixtureLaw, Z: Array) -> MixtureLaw:
    """Law of codes Z (b, m) not far from those of `law`."""
    codes = _keep_on_card(Z)
    std = measure_std(codes)
    share = count_bins(codes, std) / len(codes)
    return _run_em(replace(law, std=std), share, UPDATE_ROUNDS, Backend.of(codes))


def _run_em(law: MixtureLaw, share: Matrix, rounds: int, backend: Backend = NUMPY) -> MixtureLaw:
    """Weights by expectation maximisation on a backend; those that are zero stay so.

    `share` (m, N_BINS) of codes is in each bin. The host does it in float32: chance leaves fewer digits of a weight.
    """
    q, count = make_components().grouped, group_bins(share)
    used, allowed = np.any(count > 0, axis=0), np.any(law.weights > 0, axis=0)
    dtype, least = ("float64", LEAST_Q) if backend.prefers_products else ("float32", LEAST_IN_FLOAT32)
    q, count, part = (
        backend.asarray(each, dtype) for each in (q[allowed][:, used] + least, count[:, used], law.weights[:, allowed])
    )
    for _ in range(rounds):
        part = part * ((count / (part @ q)) @ q.T)
    part, weights = to_numpy(part).astype(np.float64), np.zeros_like(law.weights)
    weights[:, allowed] = part / np.sum(part, axis=1, keepdims=True)
    return replace(law, weights=weights)


@dataclass(frozen=True)
class MixtureLikelihood(LinearCodes):
    """F = log q(z), the log-likelihood of codes under a mixture of Gaussians for each atom, by tables over bins."""

    law: MixtureLaw
    # drawn samples (b, k), from which the law is fitted anew when A has moved far; None: it stays as it is
    rows: Array = field(default=None, repr=False, compare=False)
    known: dict[tuple[Backend, str], tuple[Array, ...]] = field(
        default_factory=dict, repr=False, compare=False, kw_only=True
    )

    convex: ClassVar[bool] = False

    @property
    def fixed(self) -> bool:  # type: ignore[override]
        """Whether the law stays as it is while A moves."""
        return self.rows is None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "known": {}, "rows": None}  # pickled for other processes, to be evaluated there

    def updated(self, A: Array, largest_move: float) -> MixtureLikelihood:
        """Fit the law to the codes at A, unless atoms have settled."""
        if self.rows is None or largest_move < SETTLED_MOVE:
            return self
        law = update_mixture(self.law, self.rows @ Backend.of(self.rows).asarray(A, "float64").T)
        return replace(self, law=law, known={})

    def resumed(self, before: Objective) -> MixtureLikelihood:
        """Go on with the law of the phase before."""
        return replace(self, law=before.law, known={}) if isinstance(before, MixtureLikelihood) else self

    def terms(self, Z: Array, quantities: Quantities, work: Work, xp: Any) -> Terms:
        """Evaluate at the codes Z (b, m)."""
        std, *tables = self.tables(Z)
        kernel = find_kernel("mixture", quantities, work)
        if kernel is not None:
            return self._fused_terms(*kernel(Z, std, tables))
        bins = locate_bins(Z, std, work)
        # few arrays of the size of the codes at a time: log q is c0 + z (c1 + c2 z / 2), added up part by part, and
        # l_p beside it has the same scratch memory
        level = work.column_sums(work.take(tables[0], bins, into="magnitude"))
        linear, second = work.take(tables[1], bins, into="g"), work.take(tables[2], bins, into="slope")
        del bins
        curved = work.map(xp.multiply, second, Z, into="magnitude")
        known: dict[tuple[int, ...], Array] = {}
        rest = sum_term(Weighted(((1.0, (linear, Z)), (0.5, (curved, Z)))), int(Z.shape[0]), work, xp, known)
        g = work.map(xp.add, linear, curved, into="g")
        return Terms(g, slope=second if Quantities.MOMENTS in quantities else None, value=Summed(level + rest))

    @staticmethod
    def _fused_terms(g: Array, sums: Mapping[str, Array]) -> Terms:
        """Terms of what the kernel found."""
        parts = {name: Summed(total) for name, total in sums.items()}
        return Terms(g, 1.0, parts.get("slope"), parts["value"], parts.get("z2"), parts.get("g2"))

    def log_density(self, Z: Array, xp: Any) -> Array:  # noqa: ARG002
        """Log q of each code Z (b, m)."""
        work = FreshWork()
        std, *tables = self.tables(Z)
        bins = locate_bins(Z, std, work)
        level, linear, second = (work.take(table, bins, into="") for table in tables)
        return level + Z * (linear + second * Z / 2)

    def compute_slopes(self, Z: Array) -> Array:
        """Second derivative of log q at each code Z (b, m)."""
        std, _, _, second = self.tables(Z)
        return FreshWork().take(second, locate_bins(Z, std, FreshWork()), into="")

    def tables(self, Z: Array) -> tuple[Array, ...]:
        """Standard deviations (m,), and tables over the bins of all atoms, for codes like these."""
        backend, dtype = Backend.of(Z), str(Z.dtype).rsplit(".", maxsplit=1)[-1]
        if (backend, dtype) not in self.known:
            expanded = self.law.expand_log_density(backend if backend.prefers_products else NUMPY)
            tables = (Backend.of(table).xp.reshape(table, (-1,)) for table in expanded)
            self.known[backend, dtype] = tuple(backend.asarray(table, dtype) for table in (self.law.std, *tables))
        return self.known[backend, dtype]
