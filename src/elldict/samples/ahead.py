"""Reading ahead: while some rows are multiplied, a thread of its own reads those that come next."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from elldict.samples.base import tile_bounds
from elldict.samples.reader import Reader

DEPTH = 3
"""Blocks in memory: one being multiplied, one waiting, one being read."""


class ReadAhead:
    """Blocks of rows, read once each and in order, into memory that is used again.

    Those who work on the rows have to ask for them in about the same order, and all of them: a block is read when one
    before it is done with.
    """

    def __init__(self, reader: Reader, block_rows: int) -> None:
        self._reader = reader
        self._block_rows = block_rows
        self._bounds = list(tile_bounds(reader.n_samples, block_rows))
        self._blocks: list[Future[NDArray[Any]]] = [Future() for _ in self._bounds]
        self._rows_left = [stop - start for start, stop in self._bounds]
        self._free: SimpleQueue[NDArray[Any] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._read_all, name="elldict reading ahead", daemon=True)

    def __enter__(self) -> Self:
        rows = min(self._block_rows, self._reader.n_samples)
        for _ in range(min(DEPTH, len(self._bounds))):
            self._free.put(np.empty((rows, self._reader.n_features), self._reader.dtype))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self._free.put(None)  # wakes the thread if it waits for memory
        self._thread.join()
        for block in self._blocks:  # a worker may be waiting for one that nobody will read
            block.cancel()

    @contextmanager
    def rows(self, start: int, stop: int) -> Iterator[NDArray[Any]]:
        """Some rows of one block, for as long as they are needed."""
        number = start // self._block_rows
        memory = self._blocks[number].result()
        first = number * self._block_rows
        try:
            yield memory[start - first : stop - first]
        finally:
            with self._lock:
                self._rows_left[number] -= stop - start
                done = not self._rows_left[number]
            if done:
                self._free.put(memory)

    def _read_all(self) -> None:
        for number, (start, stop) in enumerate(self._bounds):
            memory = self._free.get()
            if self._closed or memory is None:
                return
            try:
                self._reader.read(start, stop, memory[: stop - start])
            except BaseException as error:  # raised where these rows, or later ones, are asked for
                for block in self._blocks[number:]:
                    block.set_exception(error)
                return
            self._blocks[number].set_result(memory)
