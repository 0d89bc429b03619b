"""What axes mean: the strongest samples of each atom, such as words, and how strong the atom is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from elldict._old.backend.base import to_numpy
from elldict._old.rotation_result import read_names
from elldict._old.summary import read_errors
from elldict._old.transform import encode, keep
from elldict._old.validation import check_same_space, check_samples

__all__ = ["Axes", "describe_axes"]

GAUSSIAN_CUBE = 2 * math.sqrt(2 / math.pi)
"""E|x|^3 of a Gaussian x of unit variance."""

N_LISTED = 20
"""Axes that a printed table has, unless more are asked for: a screen of them."""

Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Axes:
    """The strongest samples of each atom, on both sides, as :func:`elldict.describe_axes` found them.

    Parameters
    ----------
    strength : ndarray of shape (n_components,)
        ``E|z|**3 / E[z**2]**1.5`` of the codes z of an atom, over that of Gaussian codes: 1 if they look Gaussian; 2, 5
        and more if few samples have most of the axis; below 1 if they are less sparse than Gaussian ones.
    error : ndarray of shape (n_components,)
        `atom_error_` of the model: how sure an axis is.
    positive, negative : tuple of tuple of str
        Names of the samples with the largest codes, and with the smallest ones, for each atom; strongest first. Only
        codes of that sign are listed.
    positive_codes, negative_codes : tuple of ndarray
        Their codes, in units of the root mean square of the codes of the atom.
    tail : ndarray of shape (n_components,)
        Side of the long tail, by the sign of E z**3: 1 or -1.
    """

    strength: Matrix
    error: Matrix
    positive: tuple[tuple[str, ...], ...]
    negative: tuple[tuple[str, ...], ...]
    positive_codes: tuple[Matrix, ...]
    negative_codes: tuple[Matrix, ...]
    tail: NDArray[np.int64]

    @property
    def strongest(self) -> tuple[tuple[str, ...], ...]:
        """Names of the strongest samples on the side of the long tail, for each atom."""
        return tuple(
            up if side > 0 else down for up, down, side in zip(self.positive, self.negative, self.tail, strict=True)
        )

    def summary(self, order: Sequence[int] | None = None, *, most: int | None = None, width: int = 110) -> str:
        """Make a table: a line for each axis, with the side of its long tail first.

        Parameters
        ----------
        order : sequence of int, default=None
            Which axes, in which order; None is the first 20, or `most`, by decreasing strength.
        most : int, default=None
            Most lines.
        width : int, default=110
            Characters of a line, beyond which names are left out.

        Returns
        -------
        str
            Lines of text.
        """
        chosen = np.argsort(-self.strength, kind="stable") if order is None else np.asarray(order, dtype=np.intp)
        shown = chosen[: most or (N_LISTED if order is None else len(chosen))]
        lines = ["axis  strength  error  strongest samples"]
        for axis in shown:
            sides = [("+", self.positive[axis]), ("-", self.negative[axis])]
            sides = sides if self.tail[axis] > 0 else sides[::-1]
            room = (width - 23) // 2
            texts = [f"{sign} {_join_names(names, room - 2)}" for sign, names in sides if names]
            lines.append(f"{axis:4d}  {self.strength[axis]:8.2f}  {self.error[axis]:5.2f}  {'   '.join(texts)}")
        if order is None and len(shown) < len(chosen):
            lines.append(f"... and {len(chosen) - len(shown)} more axes")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return f"<Axes: {len(self.strength)} axes, strength {np.min(self.strength):.2g} to {np.max(self.strength):.2g}>"


def describe_axes(model: Any, X: Any, names: Sequence[Any] | None = None, *, n_strongest: int = 7) -> Axes:
    """Find what axes mean: for each atom the samples with the largest codes on either side, and how strong it is.

    Parameters
    ----------
    model : LpDictionaryLearning or LpICA
        Fitted.
    X : array-like of shape (n_samples, n_features), path or Dataset
        Samples, as rows, such as vectors of words; whatever `fit` takes. Their codes are held in memory.
    names : sequence of shape (n_samples,), default=None
        Names of the samples. None: those in the index of a data frame, otherwise their numbers.
    n_strongest : int, default=7
        Samples on each side of an axis.

    Returns
    -------
    Axes
        Names, codes and strengths; printed, it is a table.

    See Also
    --------
    elldict.stability : Which axes other samples would give again.
    elldict.plot.codes : Codes of samples as a picture.

    Examples
    --------
    >>> import numpy as np
    >>> import elldict
    >>> rng = np.random.default_rng(0)
    >>> X = rng.laplace(size=(500, 3)) @ rng.normal(size=(3, 3))
    >>> model = elldict.LpICA(random_state=0).fit(X)
    >>> found = elldict.describe_axes(model, X, [f"word{i}" for i in range(500)], n_strongest=2)
    >>> len(found.positive), len(found.positive[0])
    (3, 2)
    """
    check_is_fitted(model)
    if not isinstance(n_strongest, Integral) or isinstance(n_strongest, bool) or n_strongest < 1:
        raise ValueError(f"n_strongest={n_strongest!r}, expected a number of samples, at least 1.")
    check_same_space(model, X, model.unmixing_, "describe_axes")
    own = read_names(X)
    samples = check_samples(model, X, fitting=False)
    codes = np.asarray(to_numpy(encode(samples, model.unmixing_, model._mean, keep)), dtype=np.float64)
    chosen = names if names is not None else own if own is not None else range(len(codes))
    texts = [" ".join(str(name).split()) for name in chosen]
    if len(texts) != len(codes):
        raise ValueError(f"names has {len(texts)} entries, expected one for each of {len(codes)} samples.")
    rms = np.sqrt(np.mean(codes**2, axis=0))
    codes = codes / np.where(rms > 0, rms, 1.0)
    up, down = (_find_largest(side * codes, texts, int(n_strongest)) for side in (1, -1))
    return Axes(
        strength=np.mean(np.abs(codes) ** 3, axis=0) / GAUSSIAN_CUBE,
        error=np.asarray(read_errors(model), dtype=np.float64),
        positive=tuple(found for found, _ in up),
        negative=tuple(found for found, _ in down),
        positive_codes=tuple(values for _, values in up),
        negative_codes=tuple(-values for _, values in down),
        tail=np.where(np.mean(codes**3, axis=0) < 0, -1, 1),
    )


def _find_largest(codes: Matrix, names: list[str], most: int) -> list[tuple[tuple[str, ...], Matrix]]:
    """Names and codes of the largest codes (r, m) of each atom, of those above zero."""
    found = []
    for column in codes.T:
        order = np.argsort(-column, kind="stable")[:most]
        order = order[column[order] > 0]
        found.append((tuple(names[i] for i in order), column[order]))
    return found


def _join_names(names: Sequence[str], room: int) -> str:
    """As many names as there is room for, the first at least."""
    text = names[0]
    for name in names[1:]:
        if len(text) + 2 + len(name) > room:
            break
        text += f", {name}"
    return text
