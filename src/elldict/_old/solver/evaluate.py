"""One pass: the statistics of an objective, summed over all samples at A.

With G = sum g(z) y^T every direction of `directions` moves A; the other sums are for error bars.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import STORED, Array, Backend, make_workspace, to_numpy, total
from elldict._old.data.dataset import Dataset, is_white
from elldict._old.data.whitening import IDENTITY, Loudness, Whitening
from elldict._old.solver.objective import (
    CentredL4,
    Lp,
    Objective,
    Quantities,
    Weighted,
    WithSecondary,
    cross_term,
    sum_term,
)
from elldict._old.theory.error_bars import CodeMoments, choose_signs, find_gaussian, gaussian_value, sparsity_score


@dataclass(frozen=True)
class Statistics:
    """Sums over samples. What was not asked for is None.

    A tile sums over raw samples y (n,); `evaluate` brings gradients to whitened coordinates (k,) and fills in `gz`.
    """

    weight: float
    value: Array = None  # (m,)  sum F
    G: Array = None  # (m, n)  sum g(z) y^T
    slope: Array = None  # (m,)  sum F''
    g2: Array = None  # (m,)  sum g^2
    z2: Array = None  # (m,)  sum z^2
    gz: Array = None  # (m,)  sum g z
    inactive: Array = None  # (m, n, n)  sum P(code is inactive) y y^T; (m, k, k) where k < n
    secondary: Array = None  # (m, n)  gradient of the secondary objective
    crossed: Array = None  # (m, m)  sum F''(z_i) z_j^2
    extra: Mapping[str, Array] = field(default_factory=dict)  # (m,) each
    signs: Array = None  # (m,)  of the atoms, of a signed objective; those of all others are positive
    known_mean: float | None = None  # `mean_value`, where it was read with other numbers

    def __add__(self, other: Statistics) -> Statistics:
        totals: dict[str, Any] = {"extra": {}}
        for name in ("value", "G", "slope", "g2", "z2", "gz", "inactive", "secondary", "crossed"):
            a, b = getattr(self, name), getattr(other, name)
            totals[name] = None if a is None or b is None else a + b
        for name in self.extra:
            totals["extra"][name] = self.extra[name] + other.extra[name]
        return Statistics(weight=self.weight + other.weight, **totals)

    @cached_property
    def mean_value(self) -> float:
        """Mean of F over samples and atoms."""
        if self.known_mean is not None:
            return self.known_mean
        return total(self.value / self.weight) / int(self.value.shape[0])

    @cached_property
    def moments(self) -> CodeMoments:
        """Moments of the codes under the objective that was summed."""
        r = self.weight
        return CodeMoments(self.gz / r, self.g2 / r, self.slope / r, self.z2 / r)

    def keep_moments(self) -> Statistics:
        """The same without gradients, on the host."""
        kept: dict[str, Any] = {"extra": {}}
        for name in ("value", "slope", "g2", "z2", "gz"):
            kept[name] = to_numpy(getattr(self, name))
        for name, array in self.extra.items():
            kept["extra"][name] = to_numpy(array)
        return Statistics(self.weight, signs=None if self.signs is None else to_numpy(self.signs), **kept)

    @cached_property
    def n_negative(self) -> int:
        """Number of atoms with a negative sign."""
        return 0 if self.signs is None else round(total(1 - self.signs) / 2)

    def with_signs(self, signs: Array, p: float, A: Array, second_moments: Array | None) -> Statistics:
        """The same of l_p with these signs of the atoms A; `second_moments` (k, k) are those of whitened samples.

        g of a negative atom becomes 2 c z - g, with c = E g z / E z^2: its mirror image at its linear part. Linear
        parts of the same size cancel in the angle of two atoms, with all the noise of E z_i z_j. The atom counts with
        2 E F(x) - E F(z), x Gaussian of unit variance: the more, the further its codes are from Gaussian ones.
        """
        backend = Backend.of(signs)
        xp = backend.xp
        if not backend.prefers_few_calls and bool(xp.all(signs > 0)):  # nothing changes
            return replace(self, signs=signs)
        turned = (1 - signs) / 2
        rows = None if self.G is None else (A if second_moments is None else A @ second_moments)
        v = xp.ones_like(signs) if second_moments is None else xp.sum((A @ second_moments) * A, axis=1)
        twice = 2 * turned * self.gz / v
        return replace(
            self,
            G=None if rows is None else signs[:, None] * self.G + twice[:, None] * rows,
            value=signs * self.value + turned * (2 * self.weight * gaussian_value(p)),
            slope=signs * self.slope + twice,
            signs=signs,
        )

    def centre(self, A: Array, second_moments: Array | None) -> Statistics:
        """The same of `CentredL4`, from those of l_4 at A; `second_moments` (k, k) are those of whitened samples.

        That of g^2 takes the mean squares for known.
        """
        xp, r = Backend.of(A).xp, self.weight
        rows = A if second_moments is None else A @ second_moments
        D = rows @ A.T  # E z_i z_j
        v = xp.linalg.diagonal(D)
        G = None if self.G is None else self.G - r * v[:, None] * rows
        slope = None if self.slope is None else self.slope - r * v
        g2 = None if self.g2 is None else self.g2 - 2 * v * self.gz + r * v**3
        crossed = self.crossed
        if crossed is not None:
            crossed = crossed - r * (v[:, None] * v[None, :] + 2 * D * D)
        value, gz = self.value - r * v * v, self.gz - r * v * v
        return replace(self, G=G, value=value, gz=gz, slope=slope, g2=g2, crossed=crossed)

    def with_secondary_signs(self, p: float, A: Array, second_moments: Array | None) -> Statistics:
        """The same with signs for the secondary objective, l_p."""
        lp = replace(self.of_secondary(), G=self.secondary)
        lp = lp.with_signs(choose_signs(lp.moments, lp.weight, p), p, A, second_moments)
        linear = (1 - lp.signs) * lp.gz / self.z2 * self.gz
        extra = {**self.extra, "secondary_value": lp.value, "secondary_gz": lp.gz, "secondary_slope": lp.slope}
        extra |= {"cross": lp.signs * self.extra["cross"] + linear, "secondary_signs": lp.signs}
        return replace(self, secondary=lp.G, extra=extra)

    def of_secondary(self) -> Statistics:
        """Return the statistics of the secondary objective."""
        extra = self.extra
        return Statistics(
            weight=self.weight,
            value=extra["secondary_value"],
            gz=extra.get("secondary_gz", extra["secondary_value"]),
            slope=extra["secondary_slope"],
            g2=extra["secondary_g2"],
            z2=self.z2,
            signs=extra.get("secondary_signs"),
            extra={"magnitude": extra["secondary_magnitude"]},
        )


def score_sparsity(stats: Statistics) -> NDArray[np.float64]:
    """Standard errors by which the codes of each atom are sparser than Gaussian ones (m,); statistics of l_p.

    Of atoms with a negative sign, by which they are less sparse.
    """
    r = stats.weight
    scores = sparsity_score(to_numpy(stats.extra["magnitude"]) / r, to_numpy(stats.z2) / r, r)
    return scores if stats.signs is None else to_numpy(stats.signs) * scores


def find_unidentifiable(stats: Statistics, n_directions: int, inflation: float = 1.0) -> NDArray[np.bool_]:
    """Atoms (m,) that samples do not tell from their mixtures, found among n directions; statistics of l_p.

    Samples that depend on each other count as fewer, by the factor of `inflation`.

    Two or more whose codes look Gaussian: one alone is told from all others by these. Without signs also those with
    kappa = E g z - E z^2 E g' <= 0, where l_p has no maximum.
    """
    gaussian = find_gaussian(score_sparsity(stats) / math.sqrt(inflation), n_directions)
    if stats.signs is None:
        gaussian |= to_numpy(stats.gz) <= to_numpy(stats.z2) * to_numpy(stats.slope) / stats.weight
    alone = np.sum(gaussian) == 1 and stats.signs is not None and len(gaussian) == n_directions
    return np.zeros_like(gaussian) if alone else gaussian


@dataclass(frozen=True)
class EvaluationKernel:
    """Statistics of an objective over one tile."""

    objective: Objective
    B: Array  # (m, n) rows that make codes
    mean: Array | None  # (n,)
    scale: float  # of the whitening
    quantities: Quantities
    precision: str
    loudness: Loudness | None = None
    whitener: Array | None = None  # (k, n) rows that whiten samples, where their codes do not tell how loud they are
    to_white: Array | None = None  # (k, n) where squares are summed in k < n whitened coordinates: n^2 may be too many

    def bind(self, backend: Backend) -> Callable[..., Statistics]:
        """Return the function that evaluates one tile; called once by every thread of `Dataset.sum`.

        Samples that have weights (b,) count by them in every sum.
        """
        xp, stored = backend.xp, STORED[self.precision]
        dtype, work = getattr(xp, stored), make_workspace(backend, self.precision)
        rescale = _power_of_two(self.scale, self.precision)
        B = backend.asarray(self.B, "float64")
        unmixing = xp.astype((B if rescale == 1 else B / rescale).T, dtype)
        mean = None if self.mean is None else backend.asarray(self.mean, stored)
        whitener = None if self.whitener is None else backend.asarray(self.whitener / rescale, stored).T
        to_white = None if self.to_white is None else backend.asarray(self.to_white, stored).T
        with_gradient, with_moments = Quantities.GRADIENT in self.quantities, Quantities.MOMENTS in self.quantities

        def evaluate_tile(Y: Array, weights: Array | None = None) -> Statistics:
            Y = xp.astype(Y, dtype, copy=False)
            n_rows = float(Y.shape[0]) if weights is None else total(weights)
            if weights is not None:
                weights = xp.astype(weights, dtype, copy=False)
                work.weigh(weights)

            weigh = partial(_weigh, weights=weights, work=work, xp=xp)
            # centred here, not in the products: a large mean would cost them their digits
            Y = Y if mean is None else work.map(xp.subtract, Y, mean, into="tile samples")
            Y = Y if rescale == 1 else work.map(xp.multiply, Y, rescale, into="tile samples")
            Y, Z = self.objective.codes(Y, unmixing, work, xp)
            if self.loudness is not None:
                scales = self.loudness.compute_scales(Z if whitener is None else Y @ whitener)
                Z = work.map(xp.multiply, Z, scales, into="scaled codes")
                Y = work.map(xp.multiply, Y, scales, into="scaled samples")
            terms = self.objective.terms(Z, self.quantities, work, xp)
            known: dict[tuple[int, ...], Array] = {}
            scaled = not isinstance(terms.gain, float) or terms.gain != 1.0
            G = secondary = inactive = value = slope = g2 = z2 = gz = crossed = None
            extra = {}
            # sums of tiles are float64, and copies of buffers that the next tile writes over: 10^7 float32 terms would
            # lose five digits
            if with_gradient:
                G = xp.astype(work.matmul(weigh(terms.g).T, Y, into="tile gradient"), xp.float64)
                if scaled:
                    G = (terms.gain if isinstance(terms.gain, float) else terms.gain[:, None]) * G
                if terms.secondary is not None:
                    secondary = xp.astype(work.matmul(weigh(terms.secondary).T, Y, into="tile gradient"), xp.float64)
            if with_moments:
                slope = sum_term(terms.slope, n_rows, work, xp, known)
                g2 = sum_term((terms.g, terms.g) if terms.g2 is None else terms.g2, n_rows, work, xp, known)
                g2 = terms.gain**2 * g2 if scaled else g2
                z2 = sum_term((Z, Z) if terms.z2 is None else terms.z2, n_rows, work, xp, known)
                gz = (
                    None
                    if with_gradient
                    else sum_term(Weighted(((terms.gain, (terms.g, Z)),)), n_rows, work, xp, known)
                )
                for name, term in terms.extra.items():
                    extra[name] = sum_term(term, n_rows, work, xp, known)
            if Quantities.CROSSED in self.quantities:
                crossed = cross_term(terms.slope, Z, work, xp)
            if Quantities.INACTIVE in self.quantities:
                assert terms.inactive is not None, "only the likelihood knows which codes are inactive"
                inactive = _sum_inactive(weigh(terms.inactive), Y if to_white is None else Y @ to_white, xp)
            if terms.value is not None or not with_gradient:
                F = Weighted(((terms.gain, (terms.g, Z)),)) if terms.value is None else terms.value
                value = sum_term(F, n_rows, work, xp, known)
            return Statistics(n_rows, value, G, slope, g2, z2, gz, inactive, secondary, crossed, extra)

        return evaluate_tile


def _weigh(array: Array, *, weights: Array | None, work: Any, xp: Any) -> Array:
    """Rows of an array (b, m), each times its weight, if there are any."""
    return array if weights is None else work.map(xp.multiply, array, weights[:, None], into="tile weighted")


def _sum_inactive(weights: Array, Y: Array, xp: Any) -> Array:
    """Sum of P(code is inactive) y y^T over a tile, for each atom (m, n, n); weights (b, m) are the probabilities."""
    weighted = (weights[:, i : i + 1] * Y for i in range(int(weights.shape[1])))
    return xp.stack([xp.astype(share.T @ Y, xp.float64) for share in weighted])


def _power_of_two(scale: float, precision: str) -> float:
    """Factor that brings samples of extreme size near one, where products cannot overflow; 1 for all others."""
    exponent = math.frexp(scale)[1]
    return math.ldexp(1.0, exponent) if abs(exponent) > (300 if precision == "float64" else 40) else 1.0


def evaluate(
    samples: Dataset, whitening: Whitening, objective: Objective, A: Array, quantities: Quantities, precision: str
) -> Statistics:
    """One pass: statistics of the objective at A (m, k), in whitened coordinates."""
    if is_white(samples):
        whitening = replace(IDENTITY, loudness=whitening.loudness)
    B = whitening.to_unmixing(A)
    loudness, whitener = whitening.loudness, None
    if loudness is not None and A.shape[0] < A.shape[1]:  # codes of all directions would tell |y|^2, these do not
        backend = Backend.of(A)
        whitener = whitening.to_unmixing(backend.xp.eye(int(A.shape[1]), dtype=A.dtype, device=backend.device))
    W = whitening.to_white
    few = Quantities.INACTIVE in quantities and W is not None and W.shape[0] < W.shape[1]
    kernel = EvaluationKernel(
        objective, B, whitening.mean, whitening.scale, quantities, precision, loudness, whitener, W if few else None
    )
    stats = samples.sum(kernel)
    if stats.G is not None:  # otherwise value and gz come from the tiles
        stats = _bring_to_white(stats, whitening, A, precision)
    if isinstance(objective, CentredL4):
        return stats.centre(A, whitening.second_moments)
    if Quantities.MOMENTS in quantities and isinstance(objective, Lp) and objective.signed:
        signs = choose_signs(stats.moments, stats.weight, objective.p, objective.if_in_doubt)
        return stats.with_signs(signs, objective.p, A, whitening.second_moments)
    return stats


def sign_secondary(stats: Statistics, whitening: Whitening, objective: Objective, A: Array) -> Statistics:
    """The same with signs for a secondary objective, if there is one that has any: no step needs them."""
    if not isinstance(objective, WithSecondary) or not objective.secondary.signed:
        return stats
    if "secondary_slope" not in stats.extra or "secondary_signs" in stats.extra:
        return stats
    return stats.with_secondary_signs(objective.secondary.p, A, whitening.second_moments)


def _bring_to_white(stats: Statistics, whitening: Whitening, A: Array, precision: str) -> Statistics:
    """From sums over raw samples to derivatives by A, and what follows from them."""
    xp = Backend.of(stats.G).xp
    scale = whitening.scale / _power_of_two(whitening.scale, precision)
    G, secondary, inactive, extra = stats.G * scale, stats.secondary, stats.inactive, stats.extra
    secondary = None if secondary is None else secondary * scale
    W = whitening.to_white
    if W is not None:
        G = G @ W.T
        secondary = None if secondary is None else secondary @ W.T
        if inactive is not None and inactive.shape[-1] == W.shape[1]:  # otherwise it was summed there
            inactive = W @ inactive @ W.T
    if secondary is not None:
        name = "secondary_gz" if "secondary_value" in extra else "secondary_value"  # F = g z, but for p < 2
        extra = {**extra, name: xp.sum(secondary * A, axis=1)}
    gz = xp.sum(G * A, axis=1)  # sum g z^T is G A^T
    value = gz if stats.value is None else stats.value
    return replace(stats, G=G, inactive=inactive, secondary=secondary, gz=gz, value=value, extra=extra)
