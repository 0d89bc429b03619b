"""Which atoms come back from other samples: fits to random halves, and how alike the atoms of two halves are."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from elldict import exceptions
from elldict._old import plot
from elldict._old.checkpoint import digest
from elldict._old.data.dependence import choose_block_rows
from elldict._old.data.halves import check_groups
from elldict._old.data.statistics import SampleStatistics, compute_statistics
from elldict._old.progress import count_fits
from elldict._old.split_fits import FoundAtoms, Plan, SplitFits, open_fit_records
from elldict._old.validation import check_checkpoint, check_rng, check_samples, plain_seed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Stability", "stability"]

Matrix = NDArray[np.float64]

STABLE = 0.9
"""Value from which an atom is called stable, unless another one is asked for: an angle of 26 degrees."""

TOLD_BY_VALUES = {"NotIdentifiableWarning"}
"""Warnings of fits that are not repeated: that an atom cannot be told from its mixtures is what its value says."""

CATEGORIES: dict[str, type[Warning]] = {
    kind.__name__: kind
    for kind in (ConvergenceWarning, FutureWarning, RuntimeWarning, exceptions.NotWhiteWarning, exceptions.RankWarning)
}
"""Warnings that are repeated, once, under their own category; all others as UserWarning."""


@dataclass(frozen=True, eq=False, repr=False)
class Stability:
    """How well atoms come back from other samples, as :func:`elldict.stability` found it.

    Parameters
    ----------
    n_components : tuple of int
        Numbers of atoms of the path, in the order asked for.
    values : tuple of ndarray of shape (n_components[i],)
        A value in [0, 1] for each atom of the fit to all samples, in its order.
    mixing : tuple of ndarray of shape (n_features, n_components[i])
        Atoms of the fits to all samples, as columns: `mixing_` of the estimator, with its order and signs.
    unmixing : tuple of ndarray of shape (n_components[i], n_features)
        Rows that make their codes.
    n_splits : int
        Pairs of halves.
    blocks : int
        Consecutive samples that stayed together in a half; 1 if samples were drawn one by one, or by `groups`.
    splits : tuple of ndarray of shape (n_splits, n_components[i]), default=()
        What each pair of halves says of each atom; `values` are its means.
    """

    n_components: tuple[int, ...]
    values: tuple[Matrix, ...]
    mixing: tuple[Matrix, ...]
    unmixing: tuple[Matrix, ...]
    n_splits: int
    blocks: int
    splits: tuple[Matrix, ...] = ()

    @property
    def spread(self) -> tuple[Matrix, ...]:
        """Standard deviation over the splits for each atom, one array for each number of components.

        An atom that comes back from some halves and not from others has a large one: .5 is the most. Splits share
        samples, so that divided by the square root of their number it is less than the standard error of the value.
        """
        return tuple(np.std(found, axis=0) for found in self.splits)

    def stable(self, threshold: float = STABLE) -> tuple[NDArray[np.bool_], ...]:
        """Say which atoms are stable.

        Parameters
        ----------
        threshold : float, default=0.9
            Least value of a stable atom.

        Returns
        -------
        tuple of ndarray of bool
            One array for each number of components, one entry an atom.
        """
        return tuple(values >= threshold for values in self.values)

    def count_stable(self, threshold: float = STABLE) -> tuple[int, ...]:
        """Count the stable atoms.

        Parameters
        ----------
        threshold : float, default=0.9
            Least value of a stable atom.

        Returns
        -------
        tuple of int
            One count for each number of components.
        """
        return tuple(int(np.sum(mask)) for mask in self.stable(threshold))

    @property
    def best(self) -> int:
        """The number of components with the most stable atoms; the smallest such number, if there are several."""
        counts = self.count_stable()
        return min(k for k, count in zip(self.n_components, counts, strict=True) if count == max(counts))

    def summary(self) -> str:
        """Make a table: a line for each number of components, with the median over atoms of their spread over splits.

        Returns
        -------
        str
            Lines of text.
        """
        drawn = "one by one, or by groups" if self.blocks == 1 else f"in blocks of {self.blocks}"
        lines = [f"Stability of atoms: {self.n_splits} random pairs of halves, samples drawn {drawn}", ""]
        lines.append(f"  n_components   stable (>= {STABLE:g})   median   lowest   spread")
        spreads = self.spread or (None,) * len(self.values)
        for k, values, spread, count in zip(self.n_components, self.values, spreads, self.count_stable(), strict=True):
            share = f"{count} of {len(values)}"
            varied = "     -" if spread is None else f"{np.median(spread):6.2f}"
            mark = "  <- most stable atoms" if k == self.best and len(self.n_components) > 1 and count else ""
            lines.append(
                f"  {k:12d}   {share:>15s}   {np.median(values):6.2f}   {np.min(values):6.2f}   {varied}{mark}"
            )
        return "\n".join(lines)

    def plot(self, ax: Axes | None = None, threshold: float = STABLE) -> Axes:
        """Draw the values: sorted for one number of components, and as a path for several.

        Parameters
        ----------
        ax : matplotlib axes, default=None
            Where to draw; None makes a figure.
        threshold : float, default=0.9
            Least value of a stable atom.

        Returns
        -------
        matplotlib axes
            The axes, whose figure can be saved or shown.
        """
        return plot.stability(self, threshold=threshold, ax=ax)

    def __repr__(self) -> str:
        fields = f"n_components={self.n_components}, n_stable={self.count_stable()}"
        return f"Stability({fields}, n_splits={self.n_splits}, blocks={self.blocks})"

    def __str__(self) -> str:
        return self.summary()


def stability(
    estimator: Any,
    X: Any,
    *,
    n_components: int | Sequence[int] | None = None,
    n_splits: int = 10,
    groups: Any = None,
    blocks: int | str = "auto",
    random_state: Any = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Stability:
    """Measure which atoms come back from other samples: a value in [0, 1] an atom, and a path over `n_components`.

    The estimator is fitted to all samples, and `n_splits` times to two random halves of them, each from a start of its
    own. Each atom has a partner in either half, and its value is the mean over the splits of how alike the two partners
    are: the absolute correlation of their codes over all samples.

    Parameters
    ----------
    estimator : LpDictionaryLearning, LpICA, or like FastICA
        What is fitted; it is cloned and never changed. A `verbose` one shows a bar with the time left. Estimators from
        elsewhere need `fit` and, after it, `mixing_`.
    X : array-like of shape (n_samples, n_features), path or Dataset
        Samples, as rows; whatever `fit` of the estimator takes. Halves are held in memory, and thinned out beyond
        256 MB.
    n_components : int or sequence of int, default=None
        Number of atoms, or several numbers for a path; None is that of the estimator.
    n_splits : int, default=10
        Pairs of halves.
    groups : array-like of shape (n_samples,), default=None
        Labels of samples that belong together, as patches of one image or cells of one donor: they stay in one half.
    blocks : int or 'auto', default='auto'
        Consecutive samples that stay together in a half, if there are no groups. 'auto' is 1 if samples do not depend
        on their neighbours, otherwise ten times as many as do, at most a twentieth of all.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the halves and of the starts.
    checkpoint : str or path-like, default=None
        File to which the atoms of each finished fit are added. If it is there, it has to be of the same samples and
        parameters, and its fits are not done again: the result has the same bits as without an interruption.

    Returns
    -------
    Stability
        Values and atoms; `best`, `summary()`, `plot()`.

    Notes
    -----
    The two halves share no samples, so that what they agree on is no accident of the samples. The fit to all samples
    only says which atom is meant: it shares half of its samples with each half, and atoms resemble it too much.

    Codes are compared rather than atoms because of chance. For codes of unit variance the correlation is the cosine in
    whitened coordinates, and that of random directions depends on their number alone. The cosine of two atoms counts
    directions by their variance: atoms without any meaning have much in common where a few directions hold most of it.
    The correlation follows from the covariance of X, which takes one pass.

    Examples
    --------
    >>> import elldict
    >>> X, _, _ = elldict.datasets.make_bernoulli_gaussian(2000, 6, density=0.2, random_state=0)
    >>> found = elldict.stability(elldict.LpDictionaryLearning(), X, n_splits=3, random_state=0)
    >>> found
    Stability(n_components=(6,), n_stable=(6,), n_splits=3, blocks=1)
    """
    path = _check_path(n_components)
    if not isinstance(n_splits, Integral) or isinstance(n_splits, bool) or n_splits < 1:
        raise ValueError(f"n_splits={n_splits!r}, expected a number of pairs of halves, at least 1.")
    file_path = None if checkpoint is None else Path(checkpoint)
    if file_path is not None:
        check_checkpoint(file_path, resume=file_path.exists())
    samples = check_samples(clone(estimator), X, fitting=True)
    if samples.n_samples < 4:
        raise ValueError(f"X has {samples.n_samples} samples, expected 4 or more: each half needs 2.")
    labels = check_groups(groups, samples.n_samples)
    statistics = compute_statistics(samples, center=True, precise=True)
    plan = Plan(path, int(n_splits), 1 if labels is not None else _check_blocks(blocks, samples), labels)
    rng = check_rng(random_state, stream=2)
    asked: dict[str, Any] = {"path": list(path), "n_splits": plan.n_splits, "blocks": plan.block_rows}
    asked["groups"] = None if labels is None else digest(np.unique(labels, return_inverse=True)[1])
    asked["seed"] = plain_seed(random_state)
    with ExitStack() as stack:
        file = stack.enter_context(open_fit_records(file_path, estimator, samples, asked, rng))
        fits = SplitFits(estimator, X, samples, plan, rng, file)
        advance = None
        if getattr(estimator, "verbose", False):
            advance = stack.enter_context(count_fits("stability", plan.n_fits, fits.n_recorded))
        found = []
        for atoms in fits:
            found.append(atoms)
            if advance is not None and len(found) > fits.n_recorded:
                advance()
    _repeat_warnings(found)
    return _make_stability(found, plan, statistics)


def _make_stability(found: list[FoundAtoms], plan: Plan, statistics: SampleStatistics) -> Stability:
    """Values from the atoms of all fits, which stand in the order of `SplitFits`."""
    root = statistics.eigenvectors * np.sqrt(np.maximum(statistics.eigenvalues, 0.0))
    n_path = len(plan.n_components)
    references, halves = found[:n_path], found[n_path:]
    splits = []
    for number, reference in enumerate(references):
        rows = [_whiten_rows(atoms.unmixing, root) for atoms in halves[number::n_path]]
        meant = _whiten_rows(reference.unmixing, root)
        pairs = zip(rows[::2], rows[1::2], strict=True)
        splits.append(np.array([_compare_halves(meant, one, other) for one, other in pairs]))
    return Stability(
        n_components=tuple(len(reference.unmixing) for reference in references),
        values=tuple(np.mean(found, axis=0) for found in splits),
        mixing=tuple(reference.mixing for reference in references),
        unmixing=tuple(reference.unmixing for reference in references),
        n_splits=plan.n_splits,
        blocks=plan.block_rows,
        splits=tuple(splits),
    )


def _whiten_rows(unmixing: Matrix, root: Matrix) -> Matrix:
    """Unit rows whose products are the correlations of codes; zero for an atom whose codes do not vary."""
    largest = np.max(np.abs(unmixing), axis=1, keepdims=True)
    rows = (unmixing / np.where(largest > 0, largest, 1.0)) @ root
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1.0))


def _compare_halves(meant: Matrix, one: Matrix, other: Matrix) -> Matrix:
    """For each atom that is meant, how alike its partners in two halves are; 0 without a partner in either."""
    partners = np.zeros((2, *meant.shape))
    for rows, partner in zip((one, other), partners, strict=True):
        atoms, found = linear_sum_assignment(-np.abs(meant @ rows.T))
        partner[atoms] = rows[found]
    return np.asarray(np.minimum(np.abs(np.sum(partners[0] * partners[1], axis=1)), 1.0))


def _check_path(n_components: Any) -> tuple[int | None, ...]:
    """Numbers of components, each once; (None,) for that of the estimator."""
    if n_components is None:
        return (None,)
    numbers = tuple(n_components) if np.iterable(n_components) else (n_components,)
    whole = all(not isinstance(k, bool) and isinstance(k, Integral) and int(k) >= 1 for k in numbers)
    if not numbers or not whole or len(set(numbers)) < len(numbers):
        raise ValueError(f"n_components={n_components!r}, expected a number of atoms or several different ones, >= 1.")
    return tuple(int(k) for k in numbers)


def _check_blocks(blocks: Any, samples: Any) -> int:
    """Consecutive samples that stay together."""
    if isinstance(blocks, str) and blocks == "auto":
        return choose_block_rows(samples)
    most = samples.n_samples // 2
    if isinstance(blocks, bool) or not isinstance(blocks, Integral) or not 1 <= int(blocks) <= most:
        raise ValueError(f"blocks={blocks!r}, expected 'auto' or a number of samples from 1 to {most}, half of X.")
    return int(blocks)


def _repeat_warnings(found: list[FoundAtoms]) -> None:
    """Say once, for each category, what fits have warned of."""
    counts = Counter(name for atoms in found for name in {name for name, _ in atoms.warned})
    for name, count in counts.items():
        if name in TOLD_BY_VALUES:
            continue
        message = next(message for atoms in found for kind, message in atoms.warned if kind == name)
        text = f"{count} of {len(found)} fits have warned, the first of them: {message}"
        warnings.warn(text, CATEGORIES.get(name, UserWarning), stacklevel=3)
