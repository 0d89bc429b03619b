"""Rows of several files, one after another."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict._old.data.dataset import start_digest
from elldict._old.data.file import Reader, prepare_out
from elldict.exceptions import SamplesChangedError, SamplesFileError

SUFFIXES = (".safetensors", ".npy")
"""Of files of which a folder may hold several that belong together."""


@dataclass(frozen=True)
class JoinedReader:
    """Rows of readers that have the same features and precision."""

    path: str  # folder of the files; empty if they were listed
    readers: tuple[Reader, ...]

    @cached_property
    def _starts(self) -> list[int]:
        """First sample of each reader, and the number of samples."""
        return list(accumulate((reader.n_samples for reader in self.readers), initial=0))

    @property
    def n_samples(self) -> int:
        """Number of rows of all."""
        return self._starts[-1]

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self.readers[0].n_features

    @property
    def dtype(self) -> str:
        """Precision of the rows."""
        return self.readers[0].dtype

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, if the files have them."""
        return self.readers[0].feature_names

    def read(self, start: int, stop: int, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Rows from start to stop."""
        out = prepare_out(self, start, stop, out)
        for begin, reader in zip(self._starts, self.readers, strict=False):
            first, last = max(start, begin), min(stop, begin + reader.n_samples)
            if first < last:
                reader.read(first - begin, last - begin, out[first - start : last - start])
        return out

    def take(self, index: NDArray[np.int64]) -> NDArray[Any]:
        """Rows by sorted index."""
        parts = [np.empty((0, self.n_features), self.dtype)]
        for begin, reader in zip(self._starts, self.readers, strict=False):
            wanted = index[(index >= begin) & (index < begin + reader.n_samples)] - begin
            if len(wanted):
                parts.append(reader.take(wanted))
        return np.concatenate(parts)

    def locate(self, sample: int) -> str:
        """Where the file of a sample has it."""
        number = bisect_right(self._starts, sample) - 1
        return self.readers[number].locate(sample - self._starts[number])

    def fingerprint(self) -> str:
        """Digest of the fingerprints of all files, in their order."""
        return start_digest("joined", *(reader.fingerprint() for reader in self.readers)).hexdigest()

    def check_unchanged(self) -> None:
        """Raise if a file has changed, or the folder holds others."""
        for reader in self.readers:
            reader.check_unchanged()
        if self.path and [reader.path for reader in self.readers] != list_files(self.path):
            raise SamplesChangedError(f"{self.path} does not hold the same files as when it was opened.")


def list_files(folder: str) -> list[str]:
    """Files of a folder that belong together, by name; those of the first suffix of which there are any."""
    for suffix in SUFFIXES:
        found = sorted(str(file) for file in Path(folder).glob(f"*{suffix}") if not file.name.startswith((".", "_")))
        if found:
            return found
    return []


def join_readers(path: str, readers: Sequence[Reader]) -> JoinedReader:
    """Reader of all rows; refuses files that do not belong together."""
    first = readers[0]
    for reader in readers:
        if (reader.n_features, reader.dtype, reader.feature_names) != (
            first.n_features,
            first.dtype,
            first.feature_names,
        ):
            raise SamplesFileError(
                f"{reader.path} has {reader.n_features} features of {reader.dtype}, expected {first.n_features} of "
                f"{first.dtype} and the same names, as in {first.path}."
            )
    return JoinedReader(path, tuple(readers))
