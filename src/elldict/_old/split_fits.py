"""Fits to all samples and to random halves of them, recorded one by one: an interruption costs one fit at most."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from elldict._old.backend.base import to_numpy
from elldict._old.checkpoint import CheckpointError, digest, open_records
from elldict._old.data.dataset import ArrayDataset, Dataset
from elldict._old.data.halves import count_half_rows, split_at_random, take_half
from elldict._old.persistence import to_plain
from elldict._old.record_file import Record, RecordFile
from elldict._old.validation import plain_seed

Matrix = NDArray[np.float64]

MAX_SEED = 2**31 - 1
"""Largest seed that all estimators of scikit-learn's kind take."""


@dataclass(frozen=True)
class Plan:
    """What is fitted: all samples and `n_splits` pairs of halves, for each number of components."""

    n_components: tuple[int | None, ...]  # None: that of the estimator
    n_splits: int
    block_rows: int
    groups: NDArray[Any] | None

    @property
    def n_fits(self) -> int:
        """Fits in all."""
        return len(self.n_components) * (1 + 2 * self.n_splits)


@dataclass(frozen=True)
class FoundAtoms:
    """Atoms of one fit, and what it warned of: names of categories, and messages."""

    mixing: Matrix  # (n, m)
    unmixing: Matrix  # (m, n)
    warned: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _Job:
    """One fit: `split` is None for all samples."""

    n_components: int | None
    split: int | None
    half: int
    seed: int | None  # None: the estimator's own


class SplitFits:
    """The fits of a plan, in a fixed order; those in the file are read, the others computed and added to it."""

    def __init__(
        self, estimator: Any, X: Any, samples: Dataset, plan: Plan, rng: np.random.Generator, file: RecordFile | None
    ) -> None:
        self.X, self.samples, self.plan, self.file = X, samples, plan, file
        self.estimator = clone(estimator)
        known = self.estimator.get_params(deep=False)
        # halves of halves would tell error bars, which nobody asks for here
        self.estimator.set_params(**{name: False for name in ("verbose", "halves") if name in known})
        self.n_recorded = 0 if file is None else len(file.records)
        self._jobs = list(self._list_jobs(rng))
        self._split_seeds = rng.integers(MAX_SEED, size=plan.n_splits)
        self._half: tuple[tuple[int, int], ArrayDataset] | None = None

    def __iter__(self) -> Iterator[FoundAtoms]:
        """Atoms of all fits: for all samples, then for each half after the other, for each number of components."""
        for number, job in enumerate(self._jobs):
            if number < self.n_recorded and self.file is not None:
                yield self._read(self.file, self.file.records[number], job)
                continue
            found = self._fit(job)
            if self.file is not None:
                words = {"kind": "atoms", "key": digest(job), "warned": [list(pair) for pair in found.warned]}
                self.file.append(words, [found.mixing, found.unmixing])
            yield found

    def _list_jobs(self, rng: np.random.Generator) -> Iterator[_Job]:
        """All fits; a start is drawn for each, so that luck with starts is part of what differs between halves."""
        own = getattr(self.estimator, "random_state", None)
        for n_components in self.plan.n_components:
            seed = int(rng.integers(MAX_SEED))
            yield _Job(n_components, None, 0, None if isinstance(own, Integral) else seed)
        for split in range(self.plan.n_splits):
            for half in range(2):
                for n_components in self.plan.n_components:
                    yield _Job(n_components, split, half, int(rng.integers(MAX_SEED)))

    def _fit(self, job: _Job) -> FoundAtoms:
        model = clone(self.estimator)
        if job.n_components is not None:
            model.set_params(n_components=job.n_components)
        if job.seed is not None and "random_state" in model.get_params(deep=False):
            model.set_params(random_state=job.seed)
        X = self.X if job.split is None else self._take_half(job.split, job.half).X
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                model.fit(X)
            except Exception as error:
                if job.split is not None:
                    error.add_note(f"This was a fit to half of the samples: {len(X)} of {self.samples.n_samples}.")
                raise
        return _keep_atoms(model, tuple((warning.category.__name__, str(warning.message)) for warning in caught))

    def _take_half(self, split: int, half: int) -> ArrayDataset:
        """Samples of a half; the last one is kept, since all numbers of components are fitted to it in turn."""
        if self._half is None or self._half[0] != (split, half):
            self._half = None  # not two of them in memory
            rng = np.random.default_rng(int(self._split_seeds[split]))
            plan, most = self.plan, count_half_rows(self.samples)
            pair = split_at_random(self.samples.n_samples, most, rng, block_rows=plan.block_rows, groups=plan.groups)
            self._half = (split, half), take_half(self.samples, pair[half])
        return self._half[1]

    def _read(self, file: RecordFile, record: Record, job: _Job) -> FoundAtoms:
        """Atoms that were recorded for this fit."""
        words = record.words
        if words.get("kind") != "atoms" or words.get("key") != digest(job):
            raise CheckpointError(f"{file.path} holds records of other fits. Delete it and begin again.")
        try:
            mixing, unmixing = file.arrays(record)
            warned = tuple((str(name), str(message)) for name, message in words["warned"])
            whole = mixing.shape == (self.samples.n_features, len(unmixing)) and mixing.T.shape == unmixing.shape
            if not (whole and np.all(np.isfinite(mixing)) and np.all(np.isfinite(unmixing))):
                raise ValueError(f"atoms have shapes {mixing.shape} and {unmixing.shape}, or are not finite")
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{file.path} holds a record that no fit has written: {error}") from error
        return FoundAtoms(mixing, unmixing, warned)


@contextmanager
def open_fit_records(
    path: Path | None, estimator: Any, samples: Dataset, asked: Mapping[str, Any], rng: np.random.Generator
) -> Iterator[RecordFile | None]:
    """File with the fits of such a plan, new or begun earlier; None without a path. `rng` is set to its beginning."""
    if path is None:
        yield None
        return
    from elldict import __version__  # noqa: PLC0415  the package imports this module

    size = {"n_samples": samples.n_samples, "n_features": samples.n_features, "dtype": samples.dtype}
    about = {"stability_of": type(estimator).__name__, "version": __version__, **size}
    about |= {"samples": samples.fingerprint(), "parameters": describe_parameters(estimator), **asked}
    file = open_records(path, to_plain(about), rng)
    try:
        yield file
    finally:
        file.close()
        if not file.records:  # an empty file would only be in the way
            file.path.unlink(missing_ok=True)


def describe_parameters(estimator: Any) -> dict[str, Any]:
    """Parameters on which the answer depends, as JSON knows them."""
    parameters = estimator.get_params(deep=False)
    described = {name: _describe(value) for name, value in sorted(parameters.items()) if name != "verbose"}
    if "random_state" in described:
        described["random_state"] = plain_seed(parameters["random_state"])
    return described


def _describe(value: Any) -> Any:
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return digest(value)
    if isinstance(value, Sequence):
        return [_describe(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _describe(item) for name, item in value.items()}
    return getattr(value, "__qualname__", type(value).__qualname__)  # a function, or an object


def _keep_atoms(model: Any, warned: tuple[tuple[str, str], ...]) -> FoundAtoms:
    """Columns that make samples and rows that make codes, on the host."""
    if not hasattr(model, "mixing_"):
        raise TypeError(
            f"{type(model).__name__} has no mixing_ after fit: expected LpDictionaryLearning, LpICA, or an estimator "
            "with the attributes of scikit-learn's FastICA."
        )
    mixing = np.array(to_numpy(model.mixing_), dtype=np.float64, order="C")
    rows = np.linalg.pinv(mixing) if not hasattr(model, "unmixing_") else to_numpy(model.unmixing_)
    return FoundAtoms(mixing, np.array(rows, dtype=np.float64, order="C"), warned)
