"""Atoms that follow the samples of a stream: per batch one step, discounted moments, and one test for change."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from elldict.denoising import Distribution
from elldict.fit import ROUNDING
from elldict.result import Result
from elldict.samples.base import Array
from elldict.samples.normalization import Normalization
from elldict.samples.statistics import Statistics
from elldict.samples.whitening import Whitening, make_whitening
from elldict.solver.climb import PER_ERROR, Reason, State
from elldict.solver.density import Density
from elldict.solver.objectives import Lp, Objective, SignedLp, SmoothNorm
from elldict.solver.steps import polar
from elldict.stream.change import Block, ChangeTest, begin_test
from elldict.stream.moments import add_rows, compute_keep
from elldict.stream.path import Path, begin_path, make_codes
from elldict.warnings import Finding, find_gaussian

if TYPE_CHECKING:
    from elldict.estimator import LpEstimator

LARGEST_SHARE = 1 / 3  # of the samples of a step in all: Newton's step is then short enough
PARTS_PER_HALF_LIFE, LEAST_PART = 4, 64  # steps within a half-life, and samples of a step, at least
WHITENING_SHARE, DENSITY_SHARE = 0.01, 0.1  # share of new samples after which each is computed again
WINDOW_SHARE = 1 / 4  # of the window that is new
UNRESOLVED = 0.5  # error of an atom whose two halves of the first fit found different ones: steps do not improve it


@dataclass(frozen=True)
class Follower:
    """Atoms that follow a stream, and all that is kept of samples seen. Matrices are in whitened coordinates."""

    center: bool
    standardize: bool
    power: float
    statistics: Statistics
    whitening: Whitening
    normalization: Normalization | None
    path: Path
    lp: Objective | None  # the objective, if that is not the likelihood
    density: Density
    initial: Array  # (m,) errors of the fit
    change: ChangeTest | None = None  # None until there are samples for curvatures
    moment: float = math.nan  # mean of |code|^p
    n_steps: int = 0
    new_to_whitening: float = 0.0  # samples since it was computed
    new_to_density: int = 0

    @property
    def objective(self) -> Objective:
        """Function of codes to be maximised."""
        return self.density if self.lp is None else self.lp

    def follow(self, rows: Array, half_life: float | None, n_seen: int) -> Follower:
        """Take a step for each part of a batch (b, n), whose first sample is number `n_seen` of the stream."""
        follower = self
        for start, stop in cut_parts(len(rows), self.path.weight, half_life):
            follower = follower._visit(rows[start:stop], compute_keep(stop - start, half_life), n_seen + stop)
        return follower

    def _visit(self, rows: Array, keep: float, n_seen: int) -> Follower:
        """Take one step, and test for change."""
        assert self.change is not None
        here = self._update_moments(rows, keep)
        path, m, b = here.path, here.path.m, len(rows)
        Z = here.encode(rows)
        found = Z if m == len(path.A) else Z[:, :m]
        terms = here.objective.terms(found)
        C = np.zeros_like(path.A)
        C[:m] = terms.g.T @ Z
        block = Block(b, C - C.T, np.sum(here.density.log_density(found), axis=0))
        change = self.change.discount(keep)
        step = path.step(block.slope, b, keep, change.spread_of_angles)
        change = change.add(block, path.curvature, path.variance, path.weight, n_seen)
        return replace(here, path=step, change=change, n_steps=self.n_steps + 1, new_to_density=self.new_to_density + b)

    def _update_moments(self, rows: Array, keep: float) -> Follower:
        """Add samples to the moments, and express everything in the coordinates in which they are white."""
        if not (self.center or self.standardize or self.whitening.is_white):
            return self
        statistics = add_rows(self.statistics, rows, keep)
        new = keep * self.new_to_whitening + len(rows)
        if new < WHITENING_SHARE * statistics.n_samples:
            return replace(self, statistics=statistics, new_to_whitening=new)
        before, k = self.whitening, len(self.path.A)
        whitening = make_whitening(
            statistics,
            center=self.center,
            whiten=before.is_white,
            standardize=self.standardize,
            n_components=k if before.is_white else None,
        )
        if len(whitening.to_white) != k:  # the old one stays until the samples vary again, or for ever
            return replace(self, statistics=statistics, new_to_whitening=new)
        path = self.path.move(before.to_white @ whitening.from_white, whitening.to_white @ before.from_white)
        return replace(self, statistics=statistics, whitening=whitening, path=path, new_to_whitening=0.0)

    def encode(self, rows: Array) -> Array:
        """Compute the codes (b, k) of samples (b, n) along all directions of the basis."""
        y = self.whitening.apply(rows)
        if self.normalization is not None:
            y = self.normalization.apply(y)
        return np.asarray((self.path.A @ y.T).T)

    def is_outdated(self, n_rows: int) -> bool:
        """Return whether densities and curvatures are to be computed again, from a window of so many samples."""
        if self.change is None:
            return True
        new = self.new_to_density
        return not self.change.is_suspect and new > max(DENSITY_SHARE * self.path.weight, WINDOW_SHARE * n_rows)

    def refresh(self, rows: Array, n_seen: int, like: ChangeTest | None = None) -> Follower:
        """Fit densities, and compute curvatures, from recent samples (r, n); a new test begins `like` another."""
        Z, path = self.encode(rows), self.path
        codes, variances = make_codes(Z[:, : path.m]), np.mean(Z * Z, axis=0)
        blur = None
        if self.change is not None:
            blur = PER_ERROR * np.sqrt(path.errors @ variances / np.maximum(variances, np.finfo(float).tiny))[: path.m]
        density = self.density.refit(codes, blur, choose=True)
        lp = None if self.lp is None else self.lp.refit(codes, choose=True)
        path = path.measure(Z, density if lp is None else lp)
        logs = density.log_density(Z[:, : path.m])
        levels, variances = np.mean(logs, axis=0), np.var(np.c_[np.sum(logs, axis=1), logs], axis=0)
        if self.change is None:
            path = path.set_errors(to_angles(self.initial))
            held_out = levels + (density.value - np.sum(levels)) / len(levels)
            change = begin_test(len(path.A), held_out, variances, len(Z), path.weight, n_seen).inherit(like)
        else:
            is_other = (density.n_widths != self.density.n_widths) | (density.has_offsets != self.density.has_offsets)
            gain = np.where(is_other, levels - np.mean(self.density.log_density(Z[:, : path.m]), axis=0), 0.0)
            change = replace(self.change, levels=self.change.levels + gain, variances=variances, n_fitted=len(Z))
        raw = (self.path.atoms @ self.whitening.apply(rows).T) if self.normalization is not None else Z[:, : path.m]
        return replace(
            self,
            path=path,
            density=density,
            lp=lp,
            change=change,
            moment=float(np.mean(np.abs(raw) ** self.power)),
            new_to_density=0,
        )

    def forget(self, n_samples: float, errors: Array) -> Follower:
        """Keep the atoms, with these errors (m,), as if there had been only so many samples; test for change anew."""
        path = replace(self.path, weight=n_samples, squares=n_samples, n_measured=0)
        statistics = replace(self.statistics, n_samples=n_samples)
        return replace(self, statistics=statistics, path=path, initial=errors, change=None)

    @property
    def mixing(self) -> Array:
        """Matrix (n, m) that maps codes to centred samples, in the units of a result."""
        return self.whitening.make_mixing(self.path.atoms) / self.whitening.unit

    def estimate_errors(self, *, is_drifting: bool = False) -> Array:
        """Estimate the errors 1 - cos^4 (m,) of the atoms, from those of angles, of moments, and of the lag."""
        if self.change is None:
            return self.initial
        path, m = self.path, self.path.m
        squares = path.errors[:m]
        if self.whitening.is_white:  # errors of symmetric matrices: products of two codes have variance one
            squares = squares + 1 / (4 * path.n_effective)
        found = (
            np.sum(squares * self._compare_directions(), axis=1)
            + self.change.measure_lag(path.variance, is_drifting=is_drifting)[:m]
        )
        errors = np.maximum(to_errors(found), ROUNDING)
        gaussian = find_gaussian(self.density.negentropy, path.n_effective)
        if (count := int(np.sum(gaussian))) > 1:  # mean error of random directions of the subspace
            errors = np.where(gaussian, np.maximum(errors, 1 - 3 / (count * (count + 2))), errors)
        return np.where(self.initial > UNRESOLVED, np.maximum(errors, self.initial), errors)

    def _compare_directions(self) -> Array:
        """Compute how far (m, k) a rotation of one atom to each direction moves it in the coordinates of samples."""
        columns = self.whitening.make_mixing(self.path.A)
        if self.whitening.scales is not None:
            columns = columns / self.whitening.scales[:, None]
        columns = columns / np.max(np.abs(columns))  # squares neither overflow nor underflow
        moments = columns.T @ columns
        squares = np.diag(moments)
        sines = np.maximum(squares - moments**2 / squares[:, None], 0)  # of a direction beside an atom
        return np.asarray(sines / squares[:, None])[: self.path.m]

    def make_result(self, findings: tuple[Finding, ...], errors: Array, n_iter: int, n_passes: float) -> Result:
        """Collect what users see; atoms keep their order and signs."""
        whitening, unit, normalization = self.whitening, self.whitening.unit, self.normalization
        return Result(
            mixing=self.mixing,
            unmixing=whitening.make_unmixing(self.path.atoms) * unit,
            mean=whitening.mean,
            code_std=self.density.std * unit,
            component_errors=errors,
            is_exact=False,
            has_replicates=True,
            objective=self.moment,
            density=self.density if normalization is not None else self.density.rescale(unit),
            normalization=None if normalization is None else Normalization(normalization.median * unit**2),
            state=State(self.path.atoms, self.objective, reason=Reason.SMALL_RISE),
            pilot="likelihood",
            is_pilot=self.lp is not None,
            n_iter=n_iter,
            n_passes=n_passes,
            findings=findings,
        )


def begin(model: LpEstimator, unmixing: Array, law: Distribution, errors: Array, statistics: Statistics) -> Follower:
    """Begin with fitted atoms: rows (m, n) that map samples to codes, and the distribution and errors of these."""
    center, whiten = model._choose_coordinates()
    m = len(unmixing)
    whitening = make_whitening(
        statistics,
        center=center,
        whiten=whiten,
        standardize=bool(model.standardize),
        n_components=m if whiten else None,
    )
    law = law.rescale(1 / whitening.unit)
    assert isinstance(law.density, Density)
    atoms = polar(unmixing @ whitening.from_white)
    p: float = float(model.p)
    lp: Objective | None = None
    if model.solver == "power" or m < atoms.shape[1]:
        lp = Lp(p)
    elif model.refine is None:
        lp = SignedLp(p) if p > 2 else SmoothNorm(p)
    path = begin_path(atoms, statistics.n_samples, is_likelihood=lp is None)
    errors = np.where(np.isnan(errors), 0.0, errors)  # not estimated: those of the number of samples, at least
    standardize = bool(model.standardize)
    return Follower(center, standardize, p, statistics, whitening, law.normalization, path, lp, law.density, errors)


def cut_parts(n_samples: int, weight: float, half_life: float | None) -> Iterator[tuple[int, int]]:
    """Cut a batch into parts so small that one step is enough for each."""
    start, longest = 0, math.inf if half_life is None else half_life / PARTS_PER_HALF_LIFE
    while start < n_samples:
        most = max(LEAST_PART, min(weight * LARGEST_SHARE / (1 - LARGEST_SHARE), longest))
        stop = start + math.ceil((n_samples - start) / math.ceil((n_samples - start) / most))
        weight = weight * compute_keep(stop - start, half_life) + stop - start
        yield start, stop
        start = stop


def to_angles(errors: Array) -> Array:
    """Convert errors 1 - cos^4 to squared angles, or rather tangents, which are not bounded."""
    return np.asarray(1 / np.sqrt(np.maximum(1 - errors, 1e-6)) - 1)


def to_errors(squares: Array) -> Array:
    """Convert squared tangents to errors 1 - cos^4."""
    return np.asarray(1 - 1 / (1 + squares) ** 2)
