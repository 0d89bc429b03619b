"""Codes from samples, and back."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import orthogonal_mp_gram

from elldict._old.backend.base import Array, Backend, real_dtype, to_numpy, total
from elldict._old.data.dataset import Dataset, NonFinite, find_non_finite, non_finite_error, rows_per_tile
from elldict._old.data.writers import open_writer, refuse_input, reopen
from elldict._old.denoising import CodeLaw, PosteriorMean, Rebuilt, find_thresholds
from elldict._old.solver.mixture import MixtureLaw, MixtureLikelihood
from elldict._old.solver.spike_slab import SpikeSlab, SpikeSlabLikelihood

Rule = Callable[[Array, Any], Array]
"""From linear codes (b, m) of a tile, and their array namespace, to the codes wanted."""

MAX_SQUARED_EXPONENT = 300
"""Exponent of two up to which sums of squares are finite and not zero, with room for codes that are rare and large."""


def keep(Z: Array, xp: Any) -> Array:  # noqa: ARG001
    """Linear codes as they are."""
    return Z


def soften(Z: Array, xp: Any, alpha: float | NDArray[Any]) -> Array:
    """Codes shrunk towards zero by alpha, one number or one for each atom."""
    excess = xp.abs(Z) - _as_codes(alpha, Z)
    return xp.sign(Z) * xp.where(excess > 0, excess, xp.zeros_like(excess))


def _as_codes(alpha: float | NDArray[Any], Z: Array) -> Any:
    """Thresholds of the kind of the codes."""
    return alpha if isinstance(alpha, (int, float)) else Backend.of(Z).asarray(alpha, real_dtype(Z))


def keep_above(Z: Array, xp: Any, alpha: float | NDArray[Any]) -> Array:
    """Codes above alpha in absolute value; the others become zero."""
    return xp.where(xp.abs(Z) > _as_codes(alpha, Z), Z, xp.zeros_like(Z))


def keep_largest(Z: Array, xp: Any, k: int) -> Array:
    """The k largest codes of each sample. With orthonormal atoms this is the best code of k atoms."""
    order = xp.argsort(-xp.abs(Z), axis=1, stable=True)
    rank = xp.argsort(order, axis=1)
    return xp.where(rank < k, Z, xp.zeros_like(Z))


def pursue(Z: Array, xp: Any, gram: NDArray[Any], lengths: NDArray[Any], k: int) -> Array:  # noqa: ARG001
    """Orthogonal matching pursuit; Z and gram (m, m) are of atoms of unit length, which had these lengths (m,)."""
    with warnings.catch_warnings():
        # a sample that needs fewer atoms than allowed ends early, which is no fault of the dictionary
        warnings.filterwarnings("ignore", "Orthogonal matching pursuit ended prematurely", RuntimeWarning)
        codes = orthogonal_mp_gram(gram, to_numpy(Z).T, n_nonzero_coefs=k)
    return Backend.of(Z).asarray(codes.reshape(len(gram), -1).T / lengths, str(to_numpy(Z).dtype))


@dataclass(frozen=True)
class Likelihood:
    """Log-likelihood of each sample, from its codes and from its coordinates in directions that belong to no atom."""

    objective: SpikeSlabLikelihood | MixtureLikelihood
    n_atoms: int
    rest_std: float
    volume: float  # logarithm of the factor by which coordinates are larger than the samples they come from

    def __call__(self, Z: Array, xp: Any) -> Array:
        codes, rest = Z[:, : self.n_atoms], Z[:, self.n_atoms :]
        logs = xp.sum(self.objective.log_density(codes, xp), axis=1, keepdims=True)
        n_rest = int(rest.shape[1])
        if n_rest:
            squares = xp.sum(rest * rest, axis=1, keepdims=True) / self.rest_std**2
            logs = logs - 0.5 * squares - n_rest * (math.log(self.rest_std) + 0.5 * math.log(2 * math.pi))
        return logs + self.volume


def likelihood_coder(
    unmixing: Array, rest: Array, laws: tuple[Array, Array, float], mixture: MixtureLaw | None, rest_std: float
) -> tuple[Array, Likelihood]:
    """Rows for codes and rest, and the rule that makes log-likelihoods of them.

    `laws` is density, scale, noise_std; `mixture`, if there is one, takes their place. Atoms without codes, beyond the
    rank of the samples, have density 0 and are left out. Codes of extreme size are counted in a unit in which their
    squares are finite.
    """
    density, scale = (np.asarray(to_numpy(law), dtype=np.float64) for law in laws[:2])
    used = density > 0
    unit = _power_of_two(float(np.max(scale)))
    rows = np.vstack([to_numpy(unmixing)[used], to_numpy(rest)]).astype(np.float64) / unit
    scale, rest_std, laws = scale / unit, rest_std / unit, (density, scale, laws[2] / unit)
    if mixture is not None:
        mixture = replace(mixture, std=mixture.std / unit)
    least = 1e-9 * float(np.max(scale))  # codes that are exactly zero have no density otherwise
    noise, power = max(laws[2], least) ** 2, np.maximum(scale[used], least) ** 2
    objective: SpikeSlabLikelihood | MixtureLikelihood
    if mixture is None:
        objective = SpikeSlabLikelihood(SpikeSlab(np.clip(density[used], 1e-6, 1 - 1e-6), power, noise))
    else:
        objective = MixtureLikelihood(mixture)
    size = _power_of_two(float(np.max(np.abs(rows), initial=0.0)))
    volume = 0.5 * float(np.linalg.slogdet((rows / size) @ (rows / size).T)[1]) + len(rows) * math.log(size)
    return rows, Likelihood(objective, int(np.sum(used)), rest_std, volume)


def _power_of_two(size: float) -> float:
    """Power of two near a size whose square would overflow or vanish; 1 for all others."""
    exponent = math.frexp(size)[1]
    return math.ldexp(1.0, exponent - 1) if abs(exponent) > MAX_SQUARED_EXPONENT else 1.0


@dataclass(frozen=True)
class CodeKernel:
    """Codes of one tile."""

    rows: Array  # (m, n)
    mean: Array  # (n,)
    rule: Rule
    dtype: str  # in which codes are made
    result: str  # in which they are returned

    def bind(self, backend: Backend) -> Callable[[Array], Array]:
        """Return the function that codes one tile."""
        # the mean is subtracted from the samples, not from the codes: a large mean would cost digits there
        rows, mean = backend.asarray(self.rows, self.dtype), backend.asarray(self.mean, self.dtype)
        xp, dtype, result = backend.xp, getattr(backend.xp, self.dtype), getattr(backend.xp, self.result)

        def visit(Y: Array) -> Array:
            codes = self.rule((xp.astype(Y, dtype, copy=False) - mean) @ rows.T, xp)
            return xp.astype(codes, result, copy=False)

        return visit


@dataclass(frozen=True)
class Total:
    """Sum over some samples, unless one of them is not finite."""

    n_rows: int
    weight: float
    value: float
    non_finite: NonFinite | None

    def __add__(self, other: Total) -> Total:
        later = other.non_finite and replace(other.non_finite, sample=self.n_rows + other.non_finite.sample)
        weight, value = self.weight + other.weight, self.value + other.value
        return Total(self.n_rows + other.n_rows, weight, value, self.non_finite or later)


@dataclass(frozen=True)
class TotalKernel:
    """Sum of all that another kernel makes of a tile, in float64."""

    codes: CodeKernel

    def bind(self, backend: Backend) -> Callable[..., Total]:
        """Return the function that adds up one tile, by the weights (b,) of its samples if they have any."""
        visit = self.codes.bind(backend)

        def add_up(Y: Array, weights: Array | None = None) -> Total:
            n_rows, non_finite = int(Y.shape[0]), find_non_finite(Y, backend.xp)
            weight = n_rows if weights is None else total(weights)
            if non_finite is not None:
                return Total(n_rows, weight, math.nan, non_finite)
            made = visit(Y)
            return Total(n_rows, weight, total(made if weights is None else made * weights[:, None]), None)

        return add_up


def encode(samples: Dataset, rows: Array, mean: Array, rule: Rule) -> Array:
    """Codes (r, m) of all samples, or what else a rule makes of them."""
    return samples.map_rows(_make_kernel(samples, rows, mean, rule), _count_columns(rows, rule))


def warn_if_all_are_zero(codes: Array, rule: Rule, make_linear: Callable[[], Array]) -> None:
    """Warn of a threshold above all codes. Lazy codes, which are not made yet, are not looked at."""
    if rule is keep or hasattr(codes, "dask") or 0 in codes.shape:
        return
    xp = Backend.of(codes).xp
    if bool(xp.any(codes != 0)):
        return
    largest = float(xp.max(xp.abs(make_linear())))
    if largest > 0:
        warnings.warn(
            f"All {int(codes.shape[0])} x {int(codes.shape[1])} codes are zero: the threshold is above every linear "
            f"code, the largest of which is {largest:.3g}. Lower transform_alpha, or set transform_alpha='auto'; codes "
            "of transform_algorithm='posterior' are zero if all of X looks like noise.",
            UserWarning,
            stacklevel=4,
        )


def encode_into(
    path: str | os.PathLike[str],
    samples: Dataset,
    rows: Array,
    mean: Array,
    rule: Rule,
    names: Sequence[str] | None = None,
) -> Any:
    """The same, written to a file tile by tile; returns it as an array that is left on disk."""
    refuse_input(path, samples)
    kernel = _make_kernel(samples, rows, mean, rule)
    shape = (samples.n_samples, _count_columns(rows, rule))
    tile_rows = rows_per_tile(samples.n_samples, samples.n_features, samples.dtype)
    with open_writer(path, shape, samples.dtype, tile_rows, names) as writer:
        samples.write_rows(kernel, writer)
    return reopen(path)


def _make_kernel(samples: Dataset, rows: Array, mean: Array, rule: Rule) -> CodeKernel:
    """Posterior means are made in float64, where squares over a tiny noise do not overflow."""
    precise = isinstance(rule, (PosteriorMean, Rebuilt))
    return CodeKernel(rows, mean, rule, "float64" if precise else samples.dtype, samples.dtype)


def _count_columns(rows: Array, rule: Rule) -> int:
    """Columns of what a rule makes: features of samples that are rebuilt, otherwise atoms."""
    return int(rows.shape[1 if isinstance(rule, Rebuilt) else 0])


def log_likelihoods(samples: Dataset, rows: Array, mean: Array, rule: Likelihood) -> Array:
    """Log-likelihood (r,) of all samples; in float64, where the squares of rare codes do not overflow."""
    return samples.map_rows(CodeKernel(rows, mean, rule, "float64", samples.dtype), 1)[:, 0]


def mean_log_likelihood(samples: Dataset, rows: Array, mean: Array, rule: Likelihood) -> float:
    """Mean log-likelihood of all samples."""
    found = samples.sum(TotalKernel(CodeKernel(rows, mean, rule, "float64", "float64")))
    if found.non_finite is not None:
        raise non_finite_error(samples, found.non_finite)
    return found.value / found.weight


def decode(codes: Array, mixing: Array, mean: Array) -> Array:
    """Samples rebuilt from codes."""
    backend = Backend.of(codes)
    dtype = real_dtype(codes)
    return codes @ backend.asarray(mixing.T, dtype) + backend.asarray(mean, dtype)


def decode_samples(
    codes: Dataset, mixing: Array, mean: Array, out: str | os.PathLike[str] | None, names: Sequence[str] | None
) -> Any:
    """Samples rebuilt from codes that are left where they are, tile by tile; in a file if one is named."""
    kernel = (mixing, np.zeros(codes.n_features), partial(shift, mean=to_numpy(mean)))
    return encode(codes, *kernel) if out is None else encode_into(out, codes, *kernel, names)


def shift(Z: Array, xp: Any, mean: NDArray[Any]) -> Array:  # noqa: ARG001
    """Samples whose mean was subtracted, with their mean."""
    return Z + Backend.of(Z).asarray(mean, real_dtype(Z))


def coder(
    algorithm: str,
    atoms: Array,
    unmixing: Array,
    *,
    law: Callable[[], CodeLaw],
    alpha: float | str | None,
    n_nonzero: int,
) -> tuple[Array, Rule]:
    """Rows for the linear codes, and the rule that makes of them what `algorithm` asks for.

    `law` returns that of the codes, and is called where it is needed.
    """
    if algorithm == "linear":
        return unmixing, keep
    if algorithm == "posterior":
        return unmixing, PosteriorMean(law(), unmixing)
    if algorithm == "omp":
        return _pursuit(to_numpy(atoms), unmixing, n_nonzero)
    if alpha is None:
        raise ValueError(
            f"transform_algorithm={algorithm!r} needs transform_alpha: a threshold >= 0 in the units of the codes, "
            "or 'auto', for each atom the best one under the fitted law."
        )
    threshold = find_thresholds(law(), soft=algorithm == "threshold") if isinstance(alpha, str) else alpha
    return unmixing, partial(soften if algorithm == "threshold" else keep_above, alpha=threshold)


def _pursuit(atoms: NDArray[Any], unmixing: Array, k: int) -> tuple[Array, Rule]:
    if k > len(atoms):
        raise ValueError(f"transform_n_nonzero_coefs={k} exceeds the {len(atoms)} atoms learned.")
    if np.array_equal(atoms, to_numpy(unmixing)):  # orthonormal: the best k are the largest k
        return unmixing, partial(keep_largest, k=k)
    lengths = np.linalg.norm(atoms, axis=1)
    atoms = atoms / lengths[:, None]
    return atoms, partial(pursue, gram=atoms @ atoms.T, lengths=lengths, k=k)
