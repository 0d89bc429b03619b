"""Samples of the host, worked on by a graphics card: moved there at once if they fit, otherwise block by block.

Blocks go through memory that the card can read by itself. While one is worked on, the next is copied to the card, and
the one after that is read, by several threads, because one alone fills that memory slower than the card empties it.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import NUMPY, Array, Backend
from elldict._old.data.dataset import (
    GPU_TILE_BYTES,
    ArrayDataset,
    Dataset,
    DescribedBySource,
    Kernel,
    S,
    count_row_bytes,
    retry_on_oom,
    rows_per_tile,
    tile_bounds,
    tree_sum,
)
from elldict._old.data.weights import bind_by_row


def place_on_device(samples: Dataset, device: str | None) -> Dataset:
    """Samples where a fit works on them: on `device`, or where they are if it is None."""
    if device is None:
        return samples if samples.backend == NUMPY else _share_with_torch(samples)
    backend = find_device(device)
    if samples.backend == backend:
        return samples
    if samples.backend != NUMPY:
        raise ValueError(
            f"device={device!r}, and X is an array of {samples.backend}: a fit works on such arrays where they are. "
            "Leave device=None, or move X yourself."
        )
    if not (isinstance(samples, ArrayDataset) or hasattr(samples, "reader")):
        raise ValueError(
            f"device={device!r} is for arrays and files; X is a {type(samples).__name__}, which has its own workers. "
            "Leave device=None."
        )
    # a fit needs memory beside the samples: for subsamples, and for a tile with its codes and their powers
    row_bytes = count_row_bytes(samples) // (2 if is_half(samples) else 1)
    if samples.n_samples * row_bytes + 12 * GPU_TILE_BYTES <= _count_free_bytes(backend):
        return ArrayDataset(_move(samples, backend))
    return GpuStreamDataset(samples, backend)


def find_device(device: str) -> Backend:
    """Space of a device named as torch names it; says what is missing if there is none."""
    if device == "cpu":
        return NUMPY
    if not (device == "cuda" or device.startswith("cuda:")):
        raise ValueError(f"device={device!r}: expected None, 'cpu', 'cuda', or 'cuda:1' for the second card.")
    try:
        import torch  # noqa: PLC0415
    except ImportError as error:
        raise ImportError(f"device={device!r} needs torch, which is not installed: pip install torch.") from error
    if not torch.cuda.is_available():
        raise ValueError(
            f"device={device!r}: torch {torch.__version__} finds no card. Leave device=None, or install a build of "
            "torch for CUDA and its driver."
        )
    known = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    wanted = f"cuda:{torch.cuda.current_device()}" if device == "cuda" else device
    if wanted not in known:
        raise ValueError(f"device={device!r}: expected one of {', '.join(known)}.")
    return Backend.of(torch.empty(0, device=wanted))


@dataclass
class GpuStreamDataset(DescribedBySource):
    """Samples of the host, streamed through a card in every pass."""

    source: Dataset
    backend: Backend
    tile_rows: int = 0  # 0 for those of `rows_per_tile`

    def __post_init__(self) -> None:
        self.tile_rows = self.tile_rows or rows_per_tile(
            self.n_samples, self.n_features, self.dtype, on_gpu=self.backend.on_gpu
        )

    def sum(self, kernel: Kernel[S]) -> S:
        """Add up what the kernel makes of every tile, by `tree_sum`."""

        def add_up() -> S:
            visit = bind_by_row(kernel, self.backend)
            blocks = stream_blocks(self.source, self.backend, self.tile_rows)
            xp = self.backend.xp
            dtype = getattr(xp, self.dtype)
            return tree_sum(visit((start, xp.astype(tile, dtype, copy=False))) for (start, _), tile in blocks)

        return retry_on_oom(self, add_up)

    def take(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Some samples, by sorted index, on the host."""
        return self.source.take(index)


def is_half(samples: Any) -> bool:
    """Whether samples are an array of the host in half precision, which goes to a card as it is."""
    return isinstance(samples, ArrayDataset) and str(samples.X.dtype) == "float16"


def stream_blocks(source: Any, backend: Backend, block_rows: int) -> Iterator[tuple[tuple[int, int], Array]]:
    """Bounds and rows of every block on a card, in order, as they are stored if in half precision.

    The memory of a block is used again for the next but one.
    """
    import torch  # noqa: PLC0415

    reader = getattr(source, "reader", None)  # of samples in files
    if reader is not None:
        reader.check_unchanged()
    bounds = tile_bounds(source.n_samples, block_rows)
    shape, dtype = (bounds[0][1], source.n_features), torch.float16 if is_half(source) else getattr(torch, source.dtype)
    pinned = backend.device.type == "cuda"
    # blocks on the host: one being copied, one that is full, one being filled
    slots = [torch.empty(shape, dtype=dtype, pin_memory=pinned) for _ in range(min(3, len(bounds)))]
    tiles = [torch.empty(shape, dtype=dtype, device=backend.device) for _ in range(min(2, len(bounds)))]
    order = _CopyOrder(backend, len(tiles))
    # one thread fills slots in turn, with the help of others: in one pool they would wait for each other
    with ThreadPoolExecutor(1) as reading, ThreadPoolExecutor(_count_threads()) as pool:
        read = partial(_copy_rows, source.X, pool) if reader is None else reader.read

        def fill(k: int) -> Any:
            order.wait_for_copy(k - len(slots))
            start, stop = bounds[k]
            rows = slots[k % len(slots)][: stop - start]
            read(start, stop, rows.numpy())
            return rows

        filled: dict[int, Future[Any]] = {k: reading.submit(fill, k) for k in range(len(slots))}
        for k, limits in enumerate(bounds):
            rows = filled.pop(k).result()
            tile = tiles[k % len(tiles)][: len(rows)]
            order.copy(k, rows, tile)
            if k + len(slots) < len(bounds):
                filled[k + len(slots)] = reading.submit(fill, k + len(slots))
            yield limits, tile
            order.record_use(k)
    if reader is not None:
        reader.check_unchanged()  # before anybody gets the sum: it may hold rows of two files


class _CopyOrder:
    """The order of copies and work on a card, which go on beside each other; on the host all is done at once."""

    def __init__(self, backend: Backend, n_tiles: int) -> None:
        import torch  # noqa: PLC0415

        self._cuda: Any = torch.cuda if backend.device.type == "cuda" else None
        self._n_tiles = n_tiles
        self._copied: dict[int, Any] = {}
        self._worked: dict[int, Any] = {}
        if self._cuda is not None:
            self._main = self._cuda.current_stream(backend.device)
            self._side = self._cuda.Stream(backend.device)
            self._side.wait_stream(self._main)

    def copy(self, k: int, rows: Any, tile: Any) -> None:
        """Copy block k into a tile, as soon as the block that was there has been worked on."""
        if self._cuda is None:
            tile.copy_(rows)
            return
        if k - self._n_tiles in self._worked:
            self._side.wait_event(self._worked.pop(k - self._n_tiles))
        with self._cuda.stream(self._side):
            tile.copy_(rows, non_blocking=True)
        self._copied[k] = self._side.record_event()
        self._main.wait_event(self._copied[k])

    def record_use(self, k: int) -> None:
        """Take note that all work on block k has been asked for."""
        if self._cuda is not None:
            self._worked[k] = self._main.record_event()

    def wait_for_copy(self, k: int) -> None:
        """Wait until block k has left the memory of the host."""
        if k in self._copied:
            self._copied.pop(k).synchronize()


def _copy_rows(X: NDArray[Any], pool: ThreadPoolExecutor, start: int, stop: int, out: NDArray[Any]) -> None:
    """Put the rows from start to stop into an array, by several threads."""
    cuts = np.linspace(0, stop - start, _count_threads() + 1).astype(int)
    parts = [(out[a:b], X[start + a : start + b]) for a, b in itertools.pairwise(cuts)]
    list(pool.map(lambda part: np.copyto(part[0], part[1], casting="same_kind"), parts))


def _count_threads() -> int:
    """Threads that fill memory of the host; more than eight are not faster, because its bandwidth is the limit."""
    return max(1, min(8, (os.cpu_count() or 2) // 2))


def _move(samples: Dataset, backend: Backend) -> Array:
    """All samples on a card."""
    import torch  # noqa: PLC0415

    rows = min(samples.n_samples, max(1, GPU_TILE_BYTES // 4 // (samples.n_features * 8)))
    dtype = torch.float16 if is_half(samples) else getattr(torch, samples.dtype)
    X = torch.empty((samples.n_samples, samples.n_features), dtype=dtype, device=backend.device)
    for (start, stop), block in stream_blocks(samples, backend, rows):
        X[start:stop] = block
    return X


def _count_free_bytes(backend: Backend) -> int:
    """Memory of a card that is free, or that torch holds without need."""
    import torch  # noqa: PLC0415

    free, _ = torch.cuda.mem_get_info(backend.device)
    return int(free + torch.cuda.memory_reserved(backend.device) - torch.cuda.memory_allocated(backend.device))


def _share_with_torch(samples: Dataset) -> Dataset:
    """Samples of CuPy as a tensor of torch if that is there, because it can do more; all others as they are."""
    if not (isinstance(samples, ArrayDataset) and array_api_compat.is_cupy_array(samples.X)):
        return samples
    if importlib.util.find_spec("torch") is None:
        return samples
    import torch  # noqa: PLC0415

    share: Any = torch.from_dlpack  # no copy
    return ArrayDataset(share(samples.X)) if torch.cuda.is_available() else samples
