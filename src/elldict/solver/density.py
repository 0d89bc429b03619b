"""Adaptive densities: a Gaussian mixture for each code, of which only the weights are fitted.

Components have fixed means and widths, in units of the standard deviation of the code, so that fitting the weights to a
histogram is a convex problem. There are three families: zero-mean components, down to a narrowest width; narrower ones,
where the blur of the code is known to be smaller; and components with other means, for sub-Gaussian and skewed codes.
Each is fitted to one half of the samples and evaluated on the other; a richer family has to win by more than chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from elldict.samples.base import Array, Index
from elldict.samples.subsample import Codes
from elldict.solver.objectives import Terms

WIDEST, RATIO = 8.0, math.sqrt(2)  # of zero-mean widths: the largest, and the ratio of neighbours
FIRST = 1 / 8  # narrowest width of an initial density
NARROWEST = 1e-13  # size of a zero code after rounding errors
PAIR_MEANS, PAIR_WIDTHS = np.arange(1, 13) / 5, 0.1 * 2.0 ** np.arange(4)  # of N(mu, w^2) and N(-mu, w^2) equally
SIDE_MEANS, SIDE_WIDTHS = 2.0 ** np.arange(-2, 4), (0.5, 1.0)  # one-sided; widths relative to the mean
BIN, FURTHEST = 0.05, 60.0  # relative width of a bin; end of the last bin
PLAIN, NARROWER, OFFSETS = range(3)  # families, in the order of evaluation
ROUNDS = 30  # of expectation-maximisation for each code
POOLED_ROUNDS, MORE_POOLED_ROUNDS = 2000, 100  # first, for all codes: initially, and from the last weights
SMOOTHING = 1e-3  # initial weight of every component, added to the pooled ones
WORTH = 3.5  # factor by which a width must be narrower to be tried
N_ERRORS = 2.0  # held-out gain required of a richer family, in standard errors
GAUSSIAN = -0.5 * math.log(2 * math.pi * math.e)  # mean log-density of standardised Gaussian codes
LEAST_DENSITY = 1e-290  # keeps logarithms finite far from all components


@dataclass(frozen=True)
class Grid:
    """Components, and bins of equal width in log(1 + |x| / unit) that resolve the narrowest component."""

    n_widths: int  # zero-mean components come first, by decreasing width
    widths: Array  # (K,)
    unit: float
    centres: Array  # (B,) of the bins
    q: Array  # (3, K, B) densities of the components at the centres, and two derivatives

    def locate(self, x: Array) -> Index:
        """Find the bins of standardised codes."""
        half = len(self.centres) // 2
        k = np.minimum((np.log1p(np.abs(x) / self.unit) / BIN).astype(np.intp), half - 1)
        return np.where(x < 0, half - 1 - k, half + k)


@lru_cache(maxsize=8)
def make_grid(n_widths: int) -> Grid:
    """Make a grid with this number of zero-mean widths."""
    about_zero = WIDEST * RATIO ** -np.arange(n_widths)
    pair_means, pair_widths = (x.ravel() for x in np.meshgrid(PAIR_MEANS, PAIR_WIDTHS))
    side_means, shares = (x.ravel() for x in np.meshgrid(np.r_[SIDE_MEANS, -SIDE_MEANS], SIDE_WIDTHS))
    means = np.r_[np.zeros(n_widths), pair_means, side_means]
    widths = np.r_[about_zero, pair_widths, np.abs(side_means) * shares]
    share_left = np.r_[np.zeros(n_widths), np.full(len(pair_means), 0.5), np.zeros(len(side_means))]
    unit = about_zero[-1] / 2
    half = math.ceil(math.log1p(FURTHEST / unit) / BIN)
    right = unit * np.expm1(BIN * (np.arange(half) + 0.5))
    centres, q = np.r_[-right[::-1], right], np.zeros((3, len(widths), 2 * half))
    for side, share in ((1, 1 - share_left), (-1, share_left)):
        a = (centres - side * means[:, None]) / widths[:, None]
        density = share[:, None] * np.exp(-0.5 * a * a) / (math.sqrt(2 * math.pi) * widths[:, None]) + LEAST_DENSITY
        q += np.stack([density, -density * a / widths[:, None], density * (a * a - 1) / widths[:, None] ** 2])
    return Grid(n_widths, widths, unit, centres, q)


def count_widths(narrowest: Array) -> NDArray[np.intp]:
    """Count the zero-mean widths that are not below the narrowest one."""
    steps = np.log(WIDEST / np.maximum(narrowest, NARROWEST)) / math.log(RATIO)
    return np.asarray(np.floor(steps + 1e-9) + 1, dtype=np.intp)


def run_em(weights: Array, counts: Array, q: Array, rounds: int) -> Array:
    """Fit weights (m, K) of components of densities q (K, B) to counts (m, B), by expectation-maximisation.

    A few rounds from pooled weights keep a code with few samples near the density of all codes, which generalises
    better than the maximum. Zero weights stay zero.
    """
    used = counts.any(axis=0)
    q, counts = q[:, used], counts[:, used]
    total = counts.sum(axis=1, keepdims=True)

    def run_round(weights: Array) -> Array:
        return np.asarray(weights * ((counts / (weights @ q)) @ q.T) / total)

    for _ in range(rounds):
        weights = run_round(weights)
    return weights


@dataclass(frozen=True)
class Density:
    """Densities of all codes, tabulated over the bins of a grid."""

    std: Array  # (m,) of the codes
    n_widths: NDArray[np.intp]  # (m,) zero-mean widths allowed for each code
    has_offsets: NDArray[np.bool_]  # (m,) whether components with other means are used
    grid: Grid
    tables: Array = field(default_factory=lambda: np.zeros((3, 0, 0)))  # (3, m, B) log q and two derivatives
    value: float = -math.inf  # held-out log-likelihood per sample: each half under the densities of the other
    negentropy: Array = field(default_factory=lambda: np.zeros(0))  # (m,) held-out gain over a Gaussian density
    narrowed: bool = False  # whether the last refit allowed narrower widths
    pooled: Array = field(default_factory=lambda: np.zeros((1, 0)))  # (1, K) zero-mean weights of all codes

    @classmethod
    def begin(cls, m: int) -> Density:
        """Create densities of m codes, not fitted yet."""
        n_widths = count_widths(np.full(m, FIRST))
        return cls(np.ones(m), n_widths, np.zeros(m, dtype=bool), make_grid(int(n_widths[0])))

    @property
    def narrowest(self) -> Array:
        """Narrowest zero-mean width (m,) allowed for each code."""
        return np.asarray(WIDEST * RATIO ** (1.0 - self.n_widths))

    def refit(self, codes: Codes, blur: Array | None = None) -> Density:
        """Fit the densities to codes, with widths down to the blur (m,) of each code."""
        wanted = self.n_widths if blur is None else count_widths(blur)
        wanted = np.where(wanted - self.n_widths > math.log(WORTH) / math.log(RATIO), wanted, self.n_widths)
        grid = make_grid(int(np.max(wanted)))
        placed = replace(self, std=codes.std, grid=grid)
        return placed._choose_families(placed.count(codes), wanted)

    def count(self, codes: Codes) -> Array:
        """Count the codes per bin in each half (2, m, B)."""
        m, n_bins = codes.shape[1], len(self.grid.centres)
        offsets = n_bins * np.arange(m)

        def visit(Z: Array, half: Index) -> Array:
            place = self.grid.locate(Z / self.std) + offsets + (m * n_bins * half)[:, None]
            return np.bincount(place.ravel(), minlength=2 * m * n_bins).astype(np.float64)

        return codes.sum(visit).reshape(2, m, n_bins)

    def _choose_families(self, halves: Array, wanted: NDArray[np.intp]) -> Density:
        """Fit every family to each half, evaluate it on the other, and fit the best one per code to both."""
        both = halves.sum(axis=0)
        pooled = self._pool(both.sum(axis=0, keepdims=True))
        plain = restrict(pooled, self.n_widths)
        narrower = restrict(pooled, wanted) if np.any(wanted > self.n_widths) else plain
        held_out, variance = judge_families([plain, narrower, add_offsets(plain, self.grid)], halves, self.grid.q[0])
        gain = held_out - held_out[PLAIN]
        wins = gain > N_ERRORS * np.sqrt(variance)
        wins[OFFSETS] |= self.has_offsets & (gain[OFFSETS] > 0)  # keep them while they gain
        found = (held_out[PLAIN] + np.max(wins * gain, axis=0)) / both[0].sum()
        chosen = replace(
            self,
            n_widths=np.where(wins[NARROWER], wanted, self.n_widths),
            has_offsets=wins[OFFSETS],
            value=float(np.sum(found - np.log(self.std))),
            negentropy=found - GAUSSIAN,
            narrowed=bool(np.any(wins[NARROWER])),
            pooled=pooled,
        )
        return replace(chosen, tables=chosen._make_tables(chosen._fit_weights(both)))

    def _fit_weights(self, counts: Array) -> Array:
        """Fit the weights (m, K) of the family chosen for each code."""
        K, q = self.grid.n_widths, self.grid.q[0]
        weights, begin = np.zeros((len(counts), len(q))), restrict(self.pooled, self.n_widths)
        weights[:, :K] = run_em(begin, counts, q[:K], ROUNDS)
        if np.any(some := self.has_offsets):
            weights[some] = run_em(add_offsets(begin[some], self.grid), counts[some], q, ROUNDS)
        return weights

    def _pool(self, counts: Array) -> Array:
        """Fit zero-mean weights (1, K) to all codes together, starting from the last refit if there is one."""
        K, last = self.grid.n_widths, self.pooled[:, : self.grid.n_widths]
        begin = np.full((1, K), SMOOTHING if last.size else 1.0)
        begin[:, : last.shape[1]] += last
        rounds = MORE_POOLED_ROUNDS if last.size else POOLED_ROUNDS
        return run_em(begin / begin.sum(), counts, self.grid.q[0, :K], rounds)

    def _make_tables(self, weights: Array) -> Array:
        """Tabulate log q and its two derivatives."""
        density, slope, bend = (weights @ part for part in self.grid.q)
        score = slope / density
        return np.stack([np.log(density / self.std[:, None]), score, bend / density - score**2])

    def terms(self, Z: Array) -> Terms:
        """Evaluate the log-likelihood of codes (b, m) and two derivatives; log q is quadratic within a bin."""
        x = Z / self.std
        bins = self.grid.locate(x)
        place = bins + len(self.grid.centres) * np.arange(Z.shape[1])
        away = x - self.grid.centres[bins]
        level, slope, bend = (np.take(table, place) for table in self.tables)
        g = slope + bend * away
        return Terms(float(np.sum(level + away * (slope + g) / 2)), g / self.std, bend / self.std**2)

    def is_settled(self, tried: Array | None, blur: Array) -> bool:
        """Return whether no narrower widths have just been adopted or remain to be tried."""
        before = np.full(len(blur), FIRST) if tried is None else tried
        return not self.narrowed and not np.any(blur < before / WORTH)

    def judge(self, Z: Array) -> float:
        """Evaluate the log-likelihood of held-out codes (b, m)."""
        place = self.grid.locate(Z / self.std) + len(self.grid.centres) * np.arange(Z.shape[1])
        return float(np.sum(np.take(self.tables[0], place)))


def restrict(pooled: Array, n_widths: NDArray[np.intp]) -> Array:
    """Compute initial weights (m, K): the pooled ones, restricted to the widths allowed for each code."""
    weights = (pooled + SMOOTHING) * (np.arange(pooled.shape[1]) < n_widths[:, None])
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def add_offsets(weights: Array, grid: Grid) -> Array:
    """Give half of the weight to components with other means than zero."""
    n_offsets = len(grid.widths) - grid.n_widths
    return np.concatenate([weights / 2, np.full((len(weights), n_offsets), 0.5 / n_offsets)], axis=1)


def judge_families(families: list[Array], halves: Array, q: Array) -> tuple[Array, Array]:
    """Compute held-out log-likelihoods (families, m) and the variance of their differences from the first family."""
    held_out, variance = (np.zeros((len(families), len(families[0]))) for _ in range(2))
    for this, other in (halves, halves[::-1]):
        logs: list[Array] = []
        for begin in families:
            part, is_first = q[: begin.shape[1]], begin is families[0] and bool(logs)
            logs.append(logs[0] if is_first else np.log(run_em(begin, this, part, ROUNDS) @ part))
        held_out += [np.sum(other * log, axis=1) for log in logs]
        variance += [np.sum(other * (log - logs[0]) ** 2, axis=1) for log in logs]
    return held_out, variance
