"""Stability: how well components are reproduced by fits to random halves of the samples.

The value of a component is the cosine of its columns of `mixing_` in two halves: 0.9 corresponds to an error of 14
degrees of the fit to all samples (`elldict.errors.splits`). But if a few directions have most of the variance, all
columns are similar, also those of Gaussian samples, so the codes must be similar, too.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from elldict.archive import write_archive
from elldict.blas import one_blas_thread
from elldict.checkpoint import describe_samples, read
from elldict.errors.splits import match
from elldict.estimator import issue
from elldict.exceptions import NotIdentifiableWarning
from elldict.halves import Components, cut, divide, fit_all, fit_part, fix_seeds, make_models, refuse_other_than, select
from elldict.progress import show_bar
from elldict.samples.base import Array, Samples
from elldict.samples.open import open_source
from elldict.samples.statistics import compute_statistics
from elldict.samples.whitening import find_scales
from elldict.summary import count
from elldict.validation import check_groups, check_samples, check_weights, draw_seed, is_number
from elldict.warnings import Finding

__all__ = ["Stability", "stability"]

STABLE = 0.9
"""Value from which a component is called stable, unless another one is asked for."""


@dataclass(frozen=True, eq=False, repr=False)
class Stability:
    """How well components are reproduced on other samples: result of :func:`elldict.stability`.

    Sequences have one entry per number of components, in the order in which these were given.

    Attributes
    ----------
    n_components : tuple of int
        Numbers of components, k.
    mixing : tuple of ndarray of shape (n_features, k)
        `mixing_` of the fits to all samples, with its order and signs.
    unmixing : tuple of ndarray of shape (k, n_features)
        `unmixing_` of these fits.
    splits : tuple of ndarray of shape (n_splits, k)
        Similarity of each component in the two halves of each split, between 0 and 1.
    blocks : int or None
        Number of consecutive samples that stay in one half; None if groups do.
    """

    n_components: tuple[int, ...]
    mixing: tuple[Array, ...]
    unmixing: tuple[Array, ...]
    splits: tuple[Array, ...]
    blocks: int | None

    @property
    def values(self) -> tuple[Array, ...]:
        """Values (k,) of components: their mean similarity."""
        return tuple(np.mean(found, axis=0) for found in self.splits)

    @property
    def spread(self) -> tuple[Array, ...]:
        """Standard deviation (k,) over splits, large for components that are found in some halves but not in others."""
        return tuple(np.std(found, axis=0) for found in self.splits)

    @property
    def n_splits(self) -> int:
        """Number of pairs of halves."""
        return len(self.splits[0])

    @property
    def best(self) -> int:
        """Smallest number of components with the most stable ones: beyond it, no further ones are reproducible."""
        counts = self.count_stable()
        return min(k for k, count in zip(self.n_components, counts, strict=True) if count == max(counts))

    def count_stable(self, threshold: float = STABLE) -> tuple[int, ...]:
        """Count the stable components.

        Parameters
        ----------
        threshold : float, default=0.9
            Smallest value of a stable component.

        Returns
        -------
        tuple of int
            Number of stable components.
        """
        return tuple(int(np.sum(values >= threshold)) for values in self.values)

    def summary(self) -> str:
        """Make a table with one row per number of components: how many are stable, and the median of their spread.

        Returns
        -------
        str
            Lines of text.
        """
        drawn = {None: "whole groups", 1: "single samples"}.get(self.blocks, f"blocks of {self.blocks} samples")
        pairs = f"{count(self.n_splits, 'random pair')} of halves"
        lines = [f"Stability of components: {pairs}, {drawn} at a time", ""]
        lines.append(f"  n_components   stable (>= {STABLE:g})   median   lowest   spread")
        counts, best = self.count_stable(), self.best
        for k, values, spread, n_stable in zip(self.n_components, self.values, self.spread, counts, strict=True):
            mark = "  <- most stable components" if k == best and len(counts) > 1 and n_stable else ""
            stable = f"{n_stable} of {k}"
            numbers = "   ".join(f"{x:6.2f}" for x in (np.median(values), np.min(values), np.median(spread)))
            lines.append(f"  {k:12d}   {stable:>15s}   {numbers}{mark}")
        return "\n".join(lines)

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
    blocks: int | str = "auto",
    groups: Any = None,
    sample_weight: Any = None,
    checkpoint: str | os.PathLike[str] | None = None,
    random_state: Any = None,
) -> Stability:
    """Measure which components are reproduced on other samples, for one or several numbers of components.

    The estimator is fitted to all samples, and to the two halves of `n_splits` random splits. Each component of the fit
    to all samples has a partner in either half. Its value is the similarity of these two partners, averaged over the
    splits: the cosine of their columns of `mixing_`, so that 0.9 corresponds to an error of 14 degrees in
    `atom_error_`. If their codes share less than half of their variance, it is the correlation of codes, if that is
    smaller; without a partner it is 0.

    Parameters
    ----------
    estimator : LpDictionaryLearning, LpICA, or similar
        Estimator, which is cloned and not changed. With `verbose`, progress is shown. Estimators of other libraries
        must have `mixing_` after `fit`, as scikit-learn's FastICA.
    X : array-like of shape (n_samples, n_features)
        Samples as rows: whatever `fit` of :class:`~elldict.LpDictionaryLearning` takes.
    n_components : int or sequence of int, default=None
        Number of components, or several for a path. None: that of the estimator.
    n_splits : int, default=10
        Number of pairs of halves.
    blocks : int or 'auto', default='auto'
        Number of consecutive samples that stay in one half, because they may depend on each other as those of a
        recording do. 'auto': X is cut into 42 blocks, as for `atom_error_`. Ignored if there are groups.
    groups : array-like of shape (n_samples,), default=None
        Group label of each sample. Samples of a group, such as recordings of one person, stay in one half.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights >= 0 of the samples.
    checkpoint : str or path-like, default=None
        File (.npz) to which the result of each split is written. If it exists, it must be that of the same samples and
        parameters: finished splits are not repeated, and the result has the same bits as without an interruption.
        Only `n_splits` may differ.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the splits.

    Returns
    -------
    Stability
        Values and components, with `best` and `summary()`; :func:`elldict.plot.stability` draws them.

    Notes
    -----
    Only warnings of fits to all samples are issued, and not that components are not identifiable, which is what low
    values mean.

    Examples
    --------
    >>> from elldict.datasets import make_bernoulli_gaussian
    >>> from elldict import LpDictionaryLearning, stability
    >>> X, _, _ = make_bernoulli_gaussian(2000, 6, density=0.2, random_state=0)
    >>> stability(LpDictionaryLearning(), X, n_splits=3, random_state=0)
    Stability(n_components=(6,), n_stable=(6,), n_splits=3, blocks=48)
    """
    models = make_models(estimator, n_components)
    refuse_other_than(is_number(n_splits, Integral) and n_splits >= 1, "n_splits", n_splits, "an int in [1, inf)")
    X = check_samples(clone(estimator), X, fitting=True)
    r = X.shape[0]
    weights, labels = check_weights(sample_weight, r, least=2), check_groups(groups, r)
    units, n_rows = (labels, None) if labels is not None else cut(r, blocks)
    with ExitStack() as stack:
        n_threads = stack.enter_context(one_blas_thread())
        samples = open_source(X, n_threads, weights)
        geometry = find_geometry(samples, is_standardized=bool(getattr(estimator, "standardize", False)))
        record = Record(draw_seed(random_state))
        if checkpoint is not None:
            path = [describe_value(model.get_params().get("n_components")) for model in models]
            asked = {"path": path, "blocks": n_rows, "of splits": describe_value(random_state)}
            record.open(Path(checkpoint), describe_samples(samples, labels) | describe_estimator(estimator) | asked)
        fix_seeds(models, record.seed)
        numbers = range(len(record.splits), int(n_splits))
        n_fits = len(models) * (1 + 2 * len(numbers))
        advance = stack.enter_context(show_bar("stability", n_fits, is_shown=bool(getattr(estimator, "verbose", 0))))
        references = [advance(fit_all(model, X, weights)) for model in models]
        for number in numbers:
            rng = np.random.default_rng([record.seed, number])
            halves = [select(samples, index) for index in divide(units, weights, rng)]
            fits = [[advance(fit_part(model, half, draw_seed(rng))) for half in halves] for model in models]
            found = [geometry.compare(*each) for each in zip(references, fits, strict=True)]
            record.add(np.concatenate(found))
    sizes = tuple(len(each.unmixing) for each in references)
    splits = tuple(np.split(np.array(record.splits[: int(n_splits)]), np.cumsum(sizes)[:-1], axis=1))
    issue(list_findings(references, splits))
    mixing, unmixing = (tuple(getattr(each, name) for each in references) for name in ("mixing", "unmixing"))
    return Stability(sizes, mixing, unmixing, splits, n_rows)


def list_findings(references: Sequence[Components], splits: Sequence[Array]) -> list[Finding]:
    """List what is to be warned of, once each."""
    found = dict.fromkeys(finding for each in references for finding in each.findings)
    empty = [
        Finding(
            NotIdentifiableWarning,
            f"No component of {values.shape[1]} was found in halves of the samples: they are too few, or all equal. "
            "Use more samples or a smaller n_components.",
        )
        for values in splits
        if not np.any(values)
    ]
    return [finding for finding in found if finding.category is not NotIdentifiableWarning] + empty


@dataclass(frozen=True)
class Geometry:
    """What makes columns and codes comparable."""

    scales: Array  # (n, 1) units of features: their standard deviations if the estimator standardises them
    root: Array  # (n, n) R with R R^T = covariance of the samples

    def compare(self, reference: Components, halves: Sequence[Components]) -> Array:
        """Compute the similarity (m,) of the partners of components in two halves."""
        everyone = (reference, *halves)
        columns = compare_columns(*(each.mixing / self.scales for each in everyone))
        codes = compare_columns(*((each.unmixing @ self.root).T for each in everyone))
        share_half = codes > 0.5**0.5  # of their variance, as with no other component
        return np.where(share_half, columns, np.minimum(columns, codes))


def find_geometry(samples: Samples, *, is_standardized: bool) -> Geometry:
    """Compute the covariance of samples, which also finds NaN and infinity before the first fit."""
    covariance = compute_statistics(samples).covariance
    scales = find_scales(np.diag(covariance)) if is_standardized else np.ones(len(covariance))
    variances, directions = np.linalg.eigh(covariance)
    return Geometry(scales[:, None], directions * np.sqrt(np.maximum(variances, 0)))


def compare_columns(reference: Array, one: Array, other: Array) -> Array:
    """Compute the cosine (m,), without sign, between the columns of two matrices that match those of a third."""
    products = np.sum(match(reference, one) * match(reference, other), axis=0)
    return np.asarray(np.minimum(np.abs(products), 1))


@dataclass
class Record:
    """Similarities of components in finished splits, which are written to a file if one is opened."""

    seed: int
    splits: list[Array] = field(default_factory=list)  # components of all models, one after the other
    path: Path | None = None
    about: dict[str, Any] = field(default_factory=dict)

    def open(self, path: Path, about: dict[str, Any]) -> None:
        """Read the splits of an earlier run that this is about, or make the file."""
        self.path, self.about = path, about
        if path.exists():
            self.seed, self.splits = read(path, about, lambda header, arrays: (header["seed"], list(arrays["splits"])))
        else:
            self.add()  # an error now, not after hours, if that is impossible

    def add(self, *splits: Array) -> None:
        """Add splits, and write the file if there is one."""
        self.splits.extend(splits)
        if self.path is not None:
            write_archive(self.path, {"about": self.about, "seed": self.seed}, {"splits": np.array(self.splits)})


def describe_estimator(estimator: Any) -> dict[str, Any]:
    """Describe the parameters on which the result depends."""
    parameters = estimator.get_params(deep=False).items()
    described = {name: describe_value(value) for name, value in parameters if name not in ("error_bars", "verbose")}
    return {"estimator": type(estimator).__name__} | described


def describe_value(value: Any) -> str:
    """Describe a parameter, without the address of an object in memory."""
    return repr(value) if value is None or isinstance(value, (str, Integral, Real)) else type(value).__name__
