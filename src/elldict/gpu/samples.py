"""Samples on a device: as a whole, or moved there block by block."""

from __future__ import annotations

import math
import warnings
from copy import copy
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from elldict.exceptions import SmallerTilesWarning, find_stack_level
from elldict.gpu.array import DeviceArray, load_torch
from elldict.samples.arrays import ArraySamples
from elldict.samples.base import Array, Index, LocalSamples, S, Samples, Visit, Weights, cut_blocks, sum_along_tree
from elldict.samples.files import FileSamples

BLOCK_NUMBERS = 2**22
"""Entries per block: to start a function on a GPU takes as long as to compute it for some 10^5 entries."""

SHARED = 4
"""Number of matrices of which a copy on the device is kept: atoms, whitening, and tables of densities."""

FRACTION = 0.25
"""Largest fraction of the free memory of a GPU that samples may take up."""


class Device:
    """A device of torch, and the number of entries per block for which its memory suffices."""

    def __init__(self, name: Any) -> None:
        torch = load_torch()
        try:
            float(torch.zeros((), dtype=torch.float64, device=name))
        except Exception as error:  # of many types, depending on the device
            raise ValueError(
                f"The device {name!r} cannot be used ({str(error).splitlines()[0]}). Expected a device of torch that "
                "computes in double precision, such as 'cuda', 'cuda:1' or 'cpu'."
            ) from error
        self.name, self.block_numbers = torch.device(name), BLOCK_NUMBERS
        self._shared: dict[Any, tuple[NDArray[Any], Any]] = {}

    def move(self, array: NDArray[Any]) -> Any:
        """Copy an array of NumPy to the device."""
        array = array if min(array.strides) >= 0 else array.copy()  # torch has no negative strides
        return DeviceArray(load_torch().tensor(array, device=self.name), self)

    def share(self, array: NDArray[Any]) -> Any:
        """Copy an operand of visits to the device; matrices once for many blocks, so they must not change in place."""
        if array.ndim < 2 or min(array.shape) < 2:
            return self.move(array)
        key = array.ctypes.data, array.shape, array.strides, array.dtype
        if key not in self._shared:
            if len(self._shared) == SHARED:
                del self._shared[next(iter(self._shared))]
            self._shared[key] = array, self.move(array)  # a reference to the array: no other takes its place in memory
        return self._shared[key][1]

    def find_free_bytes(self) -> int:
        """Return the size of the free memory of a GPU."""
        return load_torch().cuda.mem_get_info(self.name)[0] if self.name.type == "cuda" else 0

    def hold(self, rows: Any, weights: Weights) -> ArraySamples:
        """Return the samples of an array on the device."""
        return DeviceSamples(rows, 1, weights)

    def limit(self, visit: Visit[S]) -> Visit[S]:
        """Return the same visit, which takes smaller blocks when the memory of the device does not suffice."""

        def visit_parts(rows: Array, start: int) -> S:
            n_rows, n_features = rows.shape
            blocks = cut_blocks(n_rows, n_features, self.block_numbers)
            if len(blocks) > 1:
                return sum_along_tree(visit_parts(rows[begin:end], start + begin) for begin, end in blocks)
            try:
                return visit(rows, start)
            except load_torch().OutOfMemoryError:
                smaller = n_rows * n_features // 2
                if len(cut_blocks(n_rows, n_features, smaller)) == 1:
                    raise
            if self.block_numbers == BLOCK_NUMBERS:  # for the first time
                text = (
                    f"The memory of the device {self.name} does not suffice for blocks of {n_rows} samples: smaller "
                    "ones are used, with the same results up to rounding. To be faster, end other programs on it."
                )
                warnings.warn(text, SmallerTilesWarning, stacklevel=find_stack_level())
            self.block_numbers = smaller
            return visit_parts(rows, start)

        return visit_parts


class DeviceSamples(ArraySamples):
    """Rows of an array on a device, where blocks are visited."""

    def sum(self, visit: Visit[S], index: Index | None = None) -> S:
        """Sum the results of a visit to each block, along a fixed tree."""
        device: Device = self.X.device
        self.block_numbers = device.block_numbers
        return super().sum(device.limit(visit), index)

    def read(self, start: int, stop: int) -> Any:
        """Return consecutive samples."""
        return self._convert(self.X[start:stop])

    def take(self, index: Index) -> Any:
        """Return the samples of an index, in its order."""
        return self._convert(self.X[index])

    def _convert(self, rows: Any) -> Any:
        """Convert half to single precision, and what is not a floating-point number to double."""
        is_single = str(rows.tensor.dtype).endswith(("float16", "float32"))  # bfloat16, too
        return rows.astype(np.dtype(np.float32 if is_single else np.float64), copy=False)


class StreamedSamples(LocalSamples):
    """Samples of a file whose blocks are moved to a device when they are read."""

    def __init__(self, samples: FileSamples, device: Device) -> None:
        self.samples, self.device = samples, device
        self.n_threads, self.weights, self.shape, self.dtype = 1, samples.weights, samples.shape, samples.dtype

    def sum(self, visit: Visit[S], index: Index | None = None) -> S:
        """Sum the results of a visit to each block, along a fixed tree."""
        self.samples.block_numbers = self.device.block_numbers
        return self.samples.sum(self.device.limit(lambda rows, start: visit(self.device.move(rows), start)), index)

    def read(self, start: int, stop: int) -> Any:
        """Return consecutive samples."""
        return self.device.move(self.samples.read(start, stop))

    def take(self, index: Index) -> Any:
        """Return the samples of an index, in its order."""
        return self.device.move(self.samples.take(index))


def place(samples: FileSamples, device: Any) -> FileSamples:
    """Return samples that fits move to a device."""
    Device(device)  # an error now, rather than in a fit
    placed = copy(samples)
    placed.device = device
    return placed


def open_on_device(X: Any, weights: Weights = None) -> Samples:
    """Return the samples of an array that is on a device, or of a file that are moved there."""
    if not isinstance(X, FileSamples):
        tensor = load_torch().from_dlpack(X) if array_api_compat.is_cupy_array(X) else X.detach()
        return DeviceSamples(DeviceArray(tensor, Device(tensor.device)), 1, weights)
    device, samples = Device(X.device), X.bind(1, weights)
    if isinstance(samples, ArraySamples):
        return device.hold(device.move(samples.X), weights)
    assert isinstance(samples, FileSamples)
    streamed = StreamedSamples(samples, device)
    if math.prod(samples.shape) * samples.dtype.itemsize > FRACTION * device.find_free_bytes():
        return streamed
    if weights is not None and not np.all(weights):  # samples without weight need not be finite
        return streamed
    out = np.empty(samples.shape, dtype=samples.dtype, like=streamed.take(np.arange(0)))
    return device.hold(streamed.map(lambda rows, start: rows, out), weights)  # noqa: ARG005
