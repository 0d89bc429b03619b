"""Atoms that follow the samples of a stream: per batch one step, discounted moments, and one test for change."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from elldict.atoms import Options
from elldict.denoising import Distribution
from elldict.errors.splits import make_unit, match
from elldict.fit import ROUNDING
from elldict.result import Result
from elldict.samples.arrays import ArraySamples
from elldict.samples.base import Array
from elldict.samples.normalization import Normalization
from elldict.samples.statistics import Statistics
from elldict.samples.subsample import NO_VARIANCE, Codes
from elldict.samples.whitening import Whitening, make_whitening
from elldict.solver.climb import Reason, State
from elldict.solver.density import Density
from elldict.solver.objectives import Objective, SignedLp, SmoothNorm
from elldict.solver.steps import polar
from elldict.stream.change import Block, ChangeTest
from elldict.stream.path import Path
from elldict.warnings import Finding, find_gaussian

LARGEST_STEP = 1 / 4  # samples of a step, relative to those before and to the half-life: its samples weigh the same
LEAST_STEP = 64  # samples of a step: fewer do not make it better
WORSE = 4.0  # distance of atoms from those of another fit, relative to the errors of the latter, beyond chance


@dataclass(frozen=True)
class Follower:
    """Atoms that follow a stream, and all that is kept of samples seen. Matrices are in whitened coordinates."""

    options: Options
    statistics: Statistics
    whitening: Whitening
    normalization: Normalization | None
    path: Path
    lp: Objective | None  # the objective, if that is not the likelihood
    density: Density
    n_iter: int
    change: ChangeTest | None = None  # None until there are samples for curvatures
    n_new: int = 0  # samples since the densities were fitted

    def follow(self, rows: Array, half_life: float) -> Follower:
        """Take the steps of a batch (b, n), in parts so small that one step is enough for each."""
        most = max(LEAST_STEP, LARGEST_STEP * min(self.path.weight, half_life))
        follower = self
        for part in np.array_split(rows, math.ceil(len(rows) / most)):
            follower = follower._visit(part, 0.5 ** (len(part) / half_life))
        return follower

    def _visit(self, rows: Array, keep: float) -> Follower:
        """Discount earlier samples by a factor, take one step, and test for change."""
        assert self.change is not None
        here, b = self._update_moments(rows, keep), len(rows)
        Z, path = here.encode(rows), here.path
        C = (self.lp or self.density).terms(Z).g.T @ Z
        block = Block(b, C - C.T, np.sum(self.density.log_density(Z), axis=0))
        change = self.change.add(block, path.curvature, path.variance, path.weight)
        path = path.step(block.slope, b, keep)
        return replace(here, path=path, change=change, n_iter=self.n_iter + 1, n_new=self.n_new + b)

    def _update_moments(self, rows: Array, keep: float) -> Follower:
        """Add samples to the moments, and express the atoms in the coordinates in which all samples are white."""
        if not (self.options.center or self.options.standardize or self.options.whiten):
            return self
        before, m = self.whitening, len(self.path.A)
        statistics = add_rows(self.statistics, rows, keep)
        whitening = choose_coordinates(statistics, self.options, m)
        if len(whitening.to_white) != m:  # the old one stays until the samples vary again, or for ever
            return replace(self, statistics=statistics)
        path = self.path.move(before.to_white @ whitening.from_white, whitening.to_white @ before.from_white)
        return replace(self, statistics=statistics, whitening=whitening, path=path)

    def encode(self, rows: Array) -> Array:
        """Compute the codes (b, m) of samples (b, n)."""
        y = self.whitening.apply(rows)
        if self.normalization is not None:
            y = self.normalization.apply(y)
        return np.asarray(y @ self.path.A.T)

    def refresh(self, rows: Array) -> Follower:
        """Fit densities, and compute curvatures, from recent samples (r, n), from which the test for change begins."""
        Z = self.encode(rows)
        codes = make_codes(Z)
        density = self.density.refit(codes, choose=True)
        lp = None if self.lp is None else self.lp.refit(codes, choose=True)
        path = self.path.measure(Z, lp or density)
        logs = density.log_density(Z)
        levels, variances = np.mean(logs, axis=0), np.var(logs, axis=0)
        change = replace(self.change or ChangeTest(np.zeros_like(path.A), levels, variances), variances=variances)
        return replace(self, path=path, density=density, lp=lp, change=change, n_new=0)

    def agrees(self, result: Result) -> bool:
        """Return whether the atoms did not drift, and are those of another fit, within its errors."""
        columns, errors = self.mixing / self.units, np.nan_to_num(result.component_errors)
        cosines = np.sum(make_unit(columns) * match(columns, result.mixing / self.units), axis=0)
        most = WORSE * np.maximum(errors, np.mean(errors)) + ROUNDING
        has_drifted = self.change is None or self.change.alarms[0]
        return not has_drifted and bool(np.all(1 - cosines**4 < most))

    @property
    def mixing(self) -> Array:
        """Matrix (n, m) that maps codes to centred samples, in the units of a result."""
        return np.asarray(self.whitening.make_mixing(self.path.A) / self.whitening.unit)

    @property
    def units(self) -> Array:
        """Units (n, 1) of the features, in which errors are stated."""
        return np.atleast_2d(1.0 if self.whitening.scales is None else self.whitening.scales).T

    def estimate_errors(self) -> Array:
        """Estimate the errors 1 - cos^4 (m,) of the atoms, from those of angles, of moments, and of the lag."""
        assert self.change is not None
        squares = self.path.variance / self.path.n_effective
        if self.whitening.is_white:  # errors of symmetric matrices: products of two codes have variance one
            squares = squares + 1 / (4 * self.path.n_effective)
        found = np.sum(squares * self._compare_directions(), axis=1) + self.change.measure_lag(self.path.variance)
        errors = np.maximum(1 - 1 / (1 + found) ** 2, ROUNDING)
        gaussian = find_gaussian(self.density.negentropy, self.path.n_effective)
        if (count := int(np.sum(gaussian))) > 1:  # mean error of random directions of the subspace
            errors = np.where(gaussian, np.maximum(errors, 1 - 3 / (count * (count + 2))), errors)
        return np.asarray(errors)

    def _compare_directions(self) -> Array:
        """Compute how far (m, m) a rotation of one atom to each direction moves it in the coordinates of samples."""
        columns = self.mixing / self.units
        columns = columns / np.max(np.abs(columns))  # squares neither overflow nor underflow
        moments = columns.T @ columns
        squares = np.diag(moments)
        sines = np.maximum(squares - moments**2 / squares[:, None], 0)  # of a direction beside an atom
        return np.asarray(sines / squares[:, None])

    def make_result(self, findings: tuple[Finding, ...], errors: Array, objective: float) -> Result:
        """Collect what users see; atoms keep their order and signs."""
        whitening, unit, normalization = self.whitening, self.whitening.unit, self.normalization
        return Result(
            mixing=self.mixing,
            unmixing=whitening.make_unmixing(self.path.A) * unit,
            mean=whitening.mean,
            code_std=self.density.std * unit,
            component_errors=errors,
            is_exact=False,
            has_replicates=True,
            objective=objective,
            density=self.density if normalization is not None else self.density.rescale(unit),
            normalization=None if normalization is None else normalization.rescale(unit),
            state=State(self.path.A, self.lp or self.density, reason=Reason.SMALL_RISE),
            pilot="likelihood",
            is_pilot=self.lp is not None,
            is_orthogonal=True,
            whitening=whitening.to_white,
            n_iter=self.n_iter,
            n_passes=1.0,
            findings=findings,
        )


def begin(options: Options, unmixing: Array, law: Distribution, statistics: Statistics, n_iter: int) -> Follower:
    """Begin with fitted atoms: rows (m, n) that map samples to codes, and the distribution of these."""
    whitening = choose_coordinates(statistics, options, len(unmixing))
    law = law.rescale(1 / whitening.unit)
    lp: Objective | None = None
    if options.solver == "power" or options.refine is None:
        lp = SignedLp(options.p) if options.p > 2 else SmoothNorm(options.p)
    A, n_samples = polar(unmixing @ whitening.from_white), statistics.n_samples
    path = Path(A, n_samples, n_samples, np.zeros((4, *A.shape)))
    normalization = None if law.normalization is None else Normalization(law.normalization.median)  # of white samples
    return Follower(options, statistics, whitening, normalization, path, lp, law.density, n_iter)


def choose_coordinates(statistics: Statistics, options: Options, m: int) -> Whitening:
    """Choose the coordinates of samples from their moments, as a fit of m atoms does."""
    center, whiten, standardize = options.center, options.whiten, options.standardize
    return make_whitening(statistics, center=center, whiten=whiten, standardize=standardize, n_components=m)


def add_rows(statistics: Statistics, rows: Array, keep: float) -> Statistics:
    """Update mean and covariance with more samples (b, n), after discounting the others."""
    before, total = keep * statistics.n_samples, keep * statistics.n_samples + len(rows)
    y = rows.astype(np.float64) / statistics.largest - statistics.mean
    shift = np.sum(y, axis=0) / total
    covariance = (before * statistics.covariance + y.T @ y) / total - np.outer(shift, shift)
    return Statistics(total, statistics.largest, statistics.mean + shift, covariance)


def make_codes(Z: Array) -> Codes:
    """Take codes (r, m) in memory; every other sample is in the second half."""
    samples, half = ArraySamples(Z), np.asarray(np.arange(len(Z)) % 2, dtype=np.int8)
    return Codes(samples, samples, half, np.sqrt(np.maximum(np.mean(Z * Z, axis=0), NO_VARIANCE)))  # type: ignore[arg-type]
