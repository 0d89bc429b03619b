"""Samples that have weights: exact in passes over all of them, and drawn as often as they weigh where few are drawn.

A weighted dataset has a number of copies of its samples, to which weights add up, so that whoever draws some of them by
number draws by weight, and gets samples that count alike. A sample of a whole weight of two is two copies. Of weights
that are no whole numbers there are as many copies as samples of equal weights would be worth as much: (sum w)^2 /
sum w^2, Kish's effective number, for error bars and for every test that decides how a fit goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import Backend, detach, is_foreign, to_numpy
from elldict._old.data.dataset import Dataset, DescribedBySource, Kernel, S, start_digest
from elldict._old.data.weights import WeightedKernel

Vector = NDArray[np.float64]

MAX_MEAN_COPIES = 16
"""Mean of whole weights up to which they are numbers of copies. With larger ones, as those of surveys, tests would take
so many copies for evidence; only their ratios count, as those of weights that are no whole numbers."""


@dataclass(frozen=True)
class WeightedDataset(DescribedBySource):
    """Samples of another dataset, each with a weight, and as many copies of each as it weighs."""

    source: Dataset
    weights: Vector  # (r,) of the samples of the source
    n_copies: int

    @property
    def n_samples(self) -> int:
        """Number of copies."""
        return self.n_copies

    @property
    def backend(self) -> Backend:
        """Library and device of the tiles."""
        return self.source.backend

    def fingerprint(self) -> str:
        """Digest of samples and weights."""
        digest = start_digest("weighted", self.n_copies, self.source.fingerprint())
        digest.update(self.weights.tobytes())
        return digest.hexdigest()

    def sum(self, kernel: Kernel[S]) -> S:
        """Add up what the kernel makes of every tile of weighted samples."""
        return self.source.sum(WeightedKernel(kernel, self.weights))

    def take(self, index: NDArray[np.int64]) -> Vector:
        """Some copies, by sorted index, on the host."""
        rows, places = np.unique(self.find_rows(index), return_inverse=True)
        return self.source.take(rows)[places.ravel()]

    def find_rows(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which sample of the source each copy is of: copies lie evenly on the line of cumulated weights."""
        ends = self._ends
        rows = np.searchsorted(ends, (index + 0.5) * (ends[-1] / self.n_copies), side="right")
        return np.asarray(np.minimum(rows, self._last), dtype=np.int64)

    @cached_property
    def _ends(self) -> Vector:
        return np.cumsum(self.weights)

    @cached_property
    def _last(self) -> int:
        """Last sample that weighs anything: rounding of the sums does not lead beyond it."""
        return int(np.flatnonzero(self.weights)[-1])


def count_copies(weights: Vector) -> int:
    """Number of copies that weighted samples are taken for: the sum of whole weights, else their effective number."""
    total, whole = float(np.sum(weights)), bool(np.all(weights == np.floor(weights)))
    if whole and total <= MAX_MEAN_COPIES * np.count_nonzero(weights):
        return int(total)
    return max(1, round(total**2 / float(np.sum(weights**2))))


def weigh(samples: Dataset, weights: Vector | None) -> tuple[Dataset, float]:
    """Samples with weights that add up to the number of copies, and the factor that made them do so.

    Equal weights are none, but for zeros.
    """
    if weights is None:
        return samples, 1.0
    largest = float(np.max(weights))
    if np.all((weights == largest) | (weights == 0)):
        unit, weights = 1 / largest, weights / largest
        return (samples if np.all(weights) else WeightedDataset(samples, weights, count_copies(weights))), unit
    n_copies = count_copies(weights)
    unit = float(n_copies / np.sum(weights))
    return WeightedDataset(samples, weights * unit, n_copies), unit


def list_distinct(samples: Dataset) -> Dataset:
    """The samples that weigh anything, each once and as heavy as all others; samples without weights as they are."""
    weighted = getattr(samples, "unrecorded", samples)
    if not isinstance(weighted, WeightedDataset):
        return samples
    used = weighted.weights > 0
    return WeightedDataset(weighted.source, used.astype(np.float64), int(np.count_nonzero(used)))


def check_weights(sample_weight: Any, n_samples: int, n_least: int = 1) -> Vector | None:
    """Weights (r,) in float64, or None; raises if they are no finite numbers >= 0, or fewer than `n_least` are > 0."""
    if sample_weight is None:
        return None
    if np.ma.isMaskedArray(sample_weight) and np.ma.is_masked(sample_weight):
        raise ValueError("sample_weight has masked entries. Set them to 0 to leave their samples out.")
    if array_api_compat.is_torch_array(sample_weight) or is_foreign(sample_weight):
        sample_weight = to_numpy(detach(sample_weight))
    given = np.asarray(sample_weight)
    if given.shape != (n_samples,):
        raise ValueError(
            f"sample_weight has shape {given.shape}, expected a number for each of the {n_samples} samples of X: "
            f"({n_samples},)."
        )
    if given.dtype.kind == "O":
        try:
            given = given.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"sample_weight holds what is no number ({error}), expected numbers >= 0.") from error
    if given.dtype.kind not in "fiub":
        raise ValueError(f"sample_weight has dtype {given.dtype}, expected real numbers >= 0.")
    weights = given.astype(np.float64)
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        value = weights[wrong[0]]
        what = "NaN" if np.isnan(value) else "infinity" if np.isinf(value) else f"{value:.6g}"
        raise ValueError(
            f"sample_weight is {what} for sample {wrong[0]}, and wrong for {len(wrong)} of {n_samples} samples in all: "
            "expected finite numbers >= 0. Set a weight to 0 to leave a sample out."
        )
    n_positive = int(np.count_nonzero(weights))
    if n_positive < n_least:
        raise ValueError(
            f"sample_weight is zero for {'all' if not n_positive else n_samples - n_positive} of {n_samples} samples: "
            f"expected at least {n_least} of weight > 0."
        )
    largest = float(np.max(weights))
    # sums and squares of weights of any size neither over- nor underflow then; powers of two round nothing
    return weights if 1e-100 < largest < 1e100 else np.ldexp(weights, -np.frexp(largest)[1])
