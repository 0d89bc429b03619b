"""Adaptive densities: a Gaussian mixture for each code, of which only the weights are fitted.

Components have fixed means and widths, in units of the standard deviation of the code, so that fitting the weights to a
histogram is a convex problem. There are three families: zero-mean components, down to a narrowest width; narrower ones,
where the blur of the code is known to be smaller; and components with other means, for sub-Gaussian and skewed codes.
Each is fitted to one half of the samples and evaluated on the other; a richer family has to win by more than chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from elldict.samples.base import Array, Index, Weights
from elldict.samples.subsample import Codes
from elldict.solver.kernels import Terms, count_bins, fit_weights, look_up, make_bin_centres, tabulated
from elldict.solver.mixture import maximize_likelihood

WIDEST, RATIO = 8.0, math.sqrt(2)  # of zero-mean widths: the largest, and the ratio of neighbours
FIRST = 1 / 8  # narrowest width of an initial density
PAIR_MEANS, PAIR_WIDTHS = np.arange(1, 10) / 5, np.array([0.1, 0.3])  # of N(mu, w^2) and N(-mu, w^2) equally
SIDE_MEANS, SIDE_WIDTH = 2.0 ** np.arange(-2, 3), 0.7  # one-sided; the width is relative to the mean
FURTHEST = 60.0  # end of the last bin
ROUNDS = 17  # of expectation-maximisation for each code
SMOOTHING = 1e-3  # initial weight of every component, added to the pooled ones
WORTH = 3.5  # factor by which a width must be narrower to be tried
N_ERRORS = 2.0  # held-out gain required of a richer family, in standard errors
LEAST_DENSITY = 1e-290  # keeps logarithms finite far from all components


@dataclass(frozen=True)
class Grid:
    """Components, and bins that resolve the narrowest one."""

    n_widths: int  # zero-mean components come first, by decreasing width
    n_components: int
    unit: float
    centres: Array  # (B,) of the bins
    q: Array  # (3, K, B) densities of the components at the centres, and two derivatives

    def fold(self, counts: Array) -> tuple[Array, Array]:
        """Return zero-mean densities (K, B / 2) at positive codes, and counts (m, B / 2) of both signs together."""
        half = len(self.centres) // 2
        return self.q[0, : self.n_widths, half:], counts[:, half:] + counts[:, :half][:, ::-1]


GRIDS: dict[int, Grid] = {}
"""Grids made so far, by their number of zero-mean widths."""


def make_grid(n_widths: int) -> Grid:
    """Make a grid with this number of zero-mean widths."""
    about_zero = WIDEST * RATIO ** -np.arange(n_widths)
    pair_means, pair_widths = (x.ravel() for x in np.meshgrid(PAIR_MEANS, PAIR_WIDTHS))
    side_means = np.r_[SIDE_MEANS, -SIDE_MEANS]
    means = np.r_[np.zeros(n_widths), pair_means, side_means][:, None]
    widths = np.r_[about_zero, pair_widths, np.abs(side_means) * SIDE_WIDTH][:, None]
    share_left = np.r_[np.zeros(n_widths), np.full(len(pair_means), 0.5), np.zeros(len(side_means))][:, None]
    unit = about_zero[-1] / 2
    centres = make_bin_centres(unit, FURTHEST)
    q = np.zeros((3, len(widths), len(centres)))
    for side, share in ((1, 1 - share_left), (-1, share_left)):
        a = (centres - side * means) / widths
        density = share * np.exp(-0.5 * a * a) / (math.sqrt(2 * math.pi) * widths) + LEAST_DENSITY
        q += np.stack([density, -density * a / widths, density * (a * a - 1) / widths**2])
    return Grid(n_widths, len(widths), unit, centres, q)


def get_grid(n_widths: int) -> Grid:
    """Return the grid with this number of zero-mean widths."""
    return GRIDS.get(n_widths) or GRIDS.setdefault(n_widths, make_grid(n_widths))


def count_widths(narrowest: Array) -> NDArray[np.intp]:
    """Count the zero-mean widths that are not below the narrowest one."""
    return np.asarray(np.floor(np.log(WIDEST / narrowest) / math.log(RATIO) + 1e-9) + 1, dtype=np.intp)


@dataclass(frozen=True)
class Density:
    """Densities of all codes, tabulated over the bins of a grid."""

    is_likelihood: ClassVar[bool] = True
    std: Array  # (m,) of the codes
    n_widths: NDArray[np.intp]  # (m,) zero-mean widths allowed for each code
    has_offsets: NDArray[np.bool_]  # (m,) whether components with other means are used
    grid: Grid
    tables: Array = field(default_factory=lambda: np.zeros((3, 0, 0)))  # (3, m, B) log q and two derivatives
    value: float = -math.inf  # held-out log-likelihood per sample: each half under the densities of the other
    negentropy: Array = field(default_factory=lambda: np.zeros(0))  # (m,) held-out gain over a Gaussian density
    has_changed: bool = False  # whether the last refit allowed narrower widths
    pooled: Array = field(default_factory=lambda: np.zeros((1, 0)))  # (1, K) zero-mean weights of all codes
    location: Array = field(default_factory=lambda: np.zeros(1))  # (m,) subtracted from the codes before all else

    @classmethod
    def begin(cls, m: int, like: Density | None = None) -> Density:
        """Create densities of m codes, not fitted yet; `like` densities save rounds for the pooled weights."""
        n_widths = count_widths(np.full(m, FIRST))
        density = cls(np.ones(m), n_widths, np.zeros(m, dtype=bool), get_grid(int(n_widths[0])))
        return density if like is None else replace(density, pooled=like.pooled)

    @property
    def is_fitted(self) -> bool:
        """Whether the densities have been fitted to codes."""
        return bool(self.tables.size)

    @property
    def narrowest(self) -> Array:
        """Narrowest zero-mean width (m,) allowed for each code."""
        return np.asarray(WIDEST * RATIO ** (1.0 - self.n_widths))

    def refit(self, codes: Codes, blur: Array | None = None, *, choose: bool = False) -> Density:
        """Fit the densities to codes, with widths down to the blur (m,) of each code; `choose` the families anew."""
        placed, halves, wanted = self._place(codes, blur, pool=choose)
        chosen = placed._narrow(halves, wanted)
        if choose:
            chosen = chosen._choose_offsets(halves)
        return replace(chosen, tables=chosen._make_tables(chosen._fit_weights(halves.sum(axis=0))))

    def judge(self, codes: Codes, blur: Array | None = None) -> Density:
        """Compute the value: the log-likelihood per sample of codes, each half under the densities of the other."""
        placed, halves, wanted = self._place(codes, blur, pool=True)
        return placed._narrow(halves, wanted)._choose_offsets(halves)

    def _place(self, codes: Codes, blur: Array | None, *, pool: bool) -> tuple[Density, Array, NDArray[np.intp]]:
        """Choose a grid, count the codes per bin in each half (2, m, B), and fit pooled weights if asked to or new."""
        wanted = self.n_widths if blur is None else count_widths(np.maximum(blur, codes.rounding))
        wanted = np.where(wanted - self.n_widths > math.log(WORTH) / math.log(RATIO), wanted, self.n_widths)
        grid = get_grid(int(np.max(wanted)))
        std, unit, n_bins = codes.std, grid.unit, len(grid.centres)

        def visit(Z: Array, half: Index, weights: Weights) -> Array:
            return count_bins(Z, std, unit, n_bins, half, weights)

        halves = codes.sum(visit)
        is_known = self.pooled.shape[1] == grid.n_widths and not pool
        pooled = self.pooled if is_known else self._pool(halves.sum(axis=(0, 1)), grid)
        return replace(self, std=std, grid=grid, pooled=pooled, location=np.zeros(len(std))), halves, wanted

    def _narrow(self, halves: Array, wanted: NDArray[np.intp]) -> Density:
        """Allow narrower widths where these win."""
        some = np.flatnonzero(wanted > self.n_widths)
        if not some.size:
            return replace(self, has_changed=False)
        families = [restrict(self.pooled, n_widths[some]) for n_widths in (self.n_widths, wanted)]
        held_out, error = compare_families(families, halves[:, some], self.grid)
        wins = some[held_out[1] - held_out[0] > N_ERRORS * error]
        n_widths = self.n_widths.copy()
        n_widths[wins] = wanted[wins]
        return replace(self, n_widths=n_widths, has_changed=bool(wins.size))

    def _choose_offsets(self, halves: Array) -> Density:
        """Use components with other means than zero where these win; keep them while they gain."""
        plain = restrict(self.pooled, self.n_widths)
        held_out, error = compare_families([plain, add_offsets(plain, self.grid)], halves, self.grid)
        gain = held_out[1] - held_out[0]
        wins = gain > np.where(self.has_offsets, 0, N_ERRORS * error)
        found = np.where(wins, held_out[1], held_out[0]) / np.sum(halves[:, 0])
        value = float(np.sum(found - np.log(self.std)))
        counts = halves.sum(axis=0)
        squares = counts @ self.grid.centres**2 / np.sum(counts, axis=1)  # one, but for the widths of bins
        gaussian = -0.5 * (math.log(2 * math.pi) + squares)
        return replace(self, has_offsets=wins, value=value, negentropy=found - gaussian)

    def _fit_weights(self, counts: Array) -> Array:
        """Fit the weights (m, K) of the family chosen for each code."""
        grid, begin = self.grid, restrict(self.pooled, self.n_widths)
        weights = np.zeros((len(counts), grid.n_components))
        plain = np.flatnonzero(~self.has_offsets)
        weights[plain, : grid.n_widths] = fit_family(begin[plain], counts[plain], grid)
        if np.any(some := self.has_offsets):
            weights[some] = fit_family(add_offsets(begin[some], grid), counts[some], grid)
        return weights

    def _pool(self, counts: Array, grid: Grid) -> Array:
        """Fit zero-mean weights (1, K) to counts (B,) of all codes, starting from the last refit if there is one."""
        last = self.pooled[0, : grid.n_widths]
        begin = np.full(grid.n_widths, SMOOTHING if last.size else 1.0)
        begin[: last.size] += last
        q, both = grid.fold(counts[None])
        return maximize_likelihood(begin / np.sum(begin), both[0], q)[None]

    def _make_tables(self, weights: Array) -> Array:
        """Tabulate log q and its two derivatives."""
        density, slope, bend = (weights @ part for part in self.grid.q)
        score = slope / density
        return np.stack([np.log(density / self.std[:, None]), score, bend / density - score**2])

    def terms(self, Z: Array, weights: Weights = None, *, second: bool = False) -> Terms:
        """Evaluate the log-likelihood of codes (b, m) and its derivatives; log q is quadratic within a bin."""
        x = Z - self.location if np.any(self.location) else Z
        return tabulated(x, self.std, self.grid.unit, self.grid.centres, self.tables, weights, second=second)

    def log_density(self, Z: Array) -> Array:
        """Evaluate the log-density of each code (b, m)."""
        return look_up(Z - self.location, self.std, self.grid.unit, self.grid.centres, self.tables)[0]

    def score(self, Z: Array) -> Array:
        """Evaluate the derivative of the log-density of each code (b, m)."""
        return look_up(Z - self.location, self.std, self.grid.unit, self.grid.centres, self.tables)[1]

    def rescale(self, factor: float | Array) -> Density:
        """Return the densities of codes multiplied by a factor, or one for each (m,)."""
        tables = self.tables.copy()
        tables[0] -= np.log(np.broadcast_to(factor, self.std.shape))[:, None]
        return replace(self, std=self.std * factor, tables=tables, location=self.location * factor)

    def arrange(self, order: Index, signs: Array) -> Density:
        """Return the densities of codes in another order and with other signs."""
        tables = self.tables[:, order]
        mirrored = tables[:, :, ::-1] * np.array([1, -1, 1])[:, None, None]
        return replace(
            self,
            std=self.std[order],
            location=np.broadcast_to(self.location, self.std.shape)[order] * signs,
            n_widths=self.n_widths[order],
            has_offsets=self.has_offsets[order],
            negentropy=self.negentropy[order] if self.negentropy.size else self.negentropy,
            tables=np.where(signs[:, None] < 0, mirrored, tables),
        )

    def is_settled(self, tried: Array | None, blur: Array) -> bool:
        """Return whether no narrower widths have just been adopted or remain to be tried."""
        before = np.full(len(blur), FIRST) if tried is None else tried
        return not self.has_changed and not np.any(blur < before / WORTH)


def restrict(pooled: Array, n_widths: NDArray[np.intp]) -> Array:
    """Compute initial weights (m, K): the pooled ones, restricted to the widths allowed for each code."""
    weights = (pooled + SMOOTHING) * (np.arange(pooled.shape[1]) < n_widths[:, None])
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def add_offsets(weights: Array, grid: Grid) -> Array:
    """Give half of the weight to components with other means than zero."""
    n_offsets = grid.n_components - grid.n_widths
    return np.concatenate([weights / 2, np.full((len(weights), n_offsets), 0.5 / n_offsets)], axis=1)


def fit_family(begin: Array, counts: Array, grid: Grid) -> Array:
    """Fit weights to counts (m, B), from initial weights (m, K) of all components or of the zero-mean ones."""
    q = grid.q[0]
    if begin.shape[1] == grid.n_widths:
        q, counts = grid.fold(counts)
    return fit_weights(begin, counts, q, ROUNDS)


def compare_families(families: list[Array], halves: Array, grid: Grid) -> tuple[Array, Array]:
    """Fit two families, from these weights (m, K), to either half of the codes and evaluate them on the other.

    Returns held-out log-likelihoods (2, m) and the standard error (m,) of their difference.
    """
    held_out, variance = np.zeros((2, len(families[0]))), np.zeros(len(families[0]))
    for this, other in (halves, halves[::-1]):
        weights = [fit_family(begin, this, grid) for begin in families]
        logs = [np.log(each @ grid.q[0, : each.shape[1]]) for each in weights]
        held_out += [np.sum(other * log, axis=1) for log in logs]
        variance += np.sum(other * (logs[1] - logs[0]) ** 2, axis=1)
    return held_out, np.sqrt(variance)
