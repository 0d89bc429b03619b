"""Codes from samples, and back."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.linear_model import orthogonal_mp_gram

from elldict.samples.base import Samples
from elldict.space import Array, Space, real_dtype, to_numpy

Rule = Callable[[Array, Any], Array]
"""From linear codes (b, m) of a tile, and their array namespace, to the codes wanted."""


def keep(Z: Array, xp: Any) -> Array:  # noqa: ARG001
    """Linear codes as they are."""
    return Z


@dataclass(frozen=True)
class SoftThreshold:
    """Codes shrunk towards zero by alpha."""

    alpha: float

    def __call__(self, Z: Array, xp: Any) -> Array:  # noqa: D102
        excess = xp.abs(Z) - self.alpha
        return xp.sign(Z) * xp.where(excess > 0, excess, xp.zeros_like(excess))


@dataclass(frozen=True)
class HardThreshold:
    """Codes above alpha in absolute value; the others become zero."""

    alpha: float

    def __call__(self, Z: Array, xp: Any) -> Array:  # noqa: D102
        return xp.where(xp.abs(Z) > self.alpha, Z, xp.zeros_like(Z))


@dataclass(frozen=True)
class Largest:
    """The k largest codes of each sample. With orthonormal atoms this is the best code of k atoms."""

    k: int

    def __call__(self, Z: Array, xp: Any) -> Array:  # noqa: D102
        order = xp.argsort(xp.abs(Z), axis=1, descending=True)
        rank = xp.argsort(order, axis=1)
        return xp.where(rank < self.k, Z, xp.zeros_like(Z))


@dataclass(frozen=True)
class MatchingPursuit:
    """Orthogonal matching pursuit, for atoms that are not orthonormal; takes products with atoms of unit length."""

    gram: Array  # (m, m) of the atoms of unit length
    lengths: Array  # (m,)
    k: int

    def __call__(self, Z: Array, xp: Any) -> Array:  # noqa: ARG002, D102
        with warnings.catch_warnings():
            # a sample that needs fewer atoms than allowed ends early, which is no fault of the dictionary
            warnings.filterwarnings("ignore", "Orthogonal matching pursuit ended prematurely", RuntimeWarning)
            codes = orthogonal_mp_gram(to_numpy(self.gram), to_numpy(Z).T, n_nonzero_coefs=self.k)
        scaled = codes.reshape(len(self.gram), -1).T / to_numpy(self.lengths)
        space = Space.of(Z)
        return space.asarray(scaled, str(to_numpy(Z).dtype))


@dataclass(frozen=True)
class CodeKernel:
    """Codes of one tile."""

    rows: Array  # (m, n)
    mean: Array  # (n,)
    rule: Rule
    dtype: str

    def bind(self, space: Space) -> Callable[[Array], Array]:
        """Return the function that codes one tile."""
        rows, mean = space.asarray(self.rows, self.dtype), space.asarray(self.mean, self.dtype)
        # subtracted from the samples, not from the codes: a large mean would cost digits there
        return lambda Y: self.rule((Y - mean) @ rows.T, space.xp)


def encode(samples: Samples, rows: Array, mean: Array, rule: Rule) -> Array:
    """Codes (r, m) of all samples."""
    return samples.map_rows(CodeKernel(rows, mean, rule, samples.dtype), int(rows.shape[0]))


def decode(codes: Array, components: Array, mean: Array) -> Array:
    """Samples rebuilt from codes."""
    space = Space.of(codes)
    dtype = real_dtype(codes)
    return codes @ space.asarray(components, dtype) + space.asarray(mean, dtype)


def matching_pursuit(components: Array, k: int) -> tuple[Array, MatchingPursuit]:
    """Atoms of unit length, and the rule that codes from the products with them."""
    lengths = np.linalg.norm(to_numpy(components), axis=1)
    atoms = to_numpy(components) / lengths[:, None]
    return atoms, MatchingPursuit(atoms @ atoms.T, lengths, k)
