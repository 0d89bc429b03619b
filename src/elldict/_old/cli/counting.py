"""Codes that are not zero, counted while they are written."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from elldict._old.backend.base import Array, Backend, to_numpy
from elldict._old.data.dataset import Dataset, DescribedBySource, Kernel, RowWriter


@dataclass
class CountedSamples(DescribedBySource):
    """Samples of which rows are written once."""

    source: Dataset
    n_nonzero: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def backend(self) -> Backend:
        """Of the samples."""
        return self.source.backend

    def sum(self, kernel: Kernel[Any]) -> Any:
        """Add up what the kernel makes of the samples."""
        return self.source.sum(kernel)

    def take(self, index: Any) -> Any:
        """Some samples."""
        return self.source.take(index)

    def write_rows(self, kernel: Kernel[Array], writer: RowWriter) -> None:
        """Let the samples write what the kernel makes of them."""
        self.source.write_rows(kernel, CountingWriter(writer, self))


@dataclass(frozen=True)
class CountingWriter:
    """A writer that counts what it passes on."""

    writer: RowWriter
    samples: CountedSamples

    def write(self, start: int, rows: Array) -> None:
        """Take some rows."""
        found = int(np.count_nonzero(to_numpy(rows)))
        with self.samples.lock:
            self.samples.n_nonzero += found
        self.writer.write(start, rows)
