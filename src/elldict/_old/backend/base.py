"""Array libraries and devices: where arrays live, and what the array API standard cannot say.

Everything that touches samples is written against the standard, so NumPy, torch and CuPy arrays take the same path.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from elldict._old.backend import host_kernels, torch
from elldict._old.backend.torch import Fused

Array = Any
"""An array of any library that follows the array API standard."""


MIN_DRAWN_ON_CARD = 2**19
"""Random numbers from which a card draws them itself: a host takes longer for them than for a step."""


@dataclass(frozen=True)
class Backend:
    """An array namespace and one of its devices."""

    xp: Any
    device: Any
    on_gpu: bool = field(init=False, repr=False, compare=False)
    prefers_products: bool = field(init=False, repr=False, compare=False)  # over decompositions
    prefers_few_calls: bool = field(init=False, repr=False, compare=False)  # which take long to start

    def __post_init__(self) -> None:
        on_gpu = is_gpu(self.xp, self.device)
        for name in ("on_gpu", "prefers_products", "prefers_few_calls"):
            object.__setattr__(self, name, on_gpu)

    @property
    def kernels(self) -> Any:
        """Module `triton_kernels` where it runs and is in use, otherwise None."""
        return find_kernels(self.xp) if self.on_gpu else None

    @classmethod
    def of(cls, array: Array) -> Backend:
        """Backend of an array."""
        if isinstance(array, NUMPY_TYPES):  # to ask takes microseconds, and small problems ask often
            return NUMPY
        return cls(array_api_compat.array_namespace(array), array_api_compat.device(array))

    @property
    def can_capture(self) -> bool:
        """Whether work can be captured as a CUDA graph and replayed."""
        return self.on_gpu and is_torch(self.xp) and torch.can_capture(self.device)

    @property
    def memory_bytes(self) -> int:
        """Memory of the card; of what is none, more than any."""
        return torch.count_memory(self.device) if is_torch(self.xp) and self.device.type == "cuda" else 2**40

    def coarse_precision(self, precision: str) -> str:
        """Precision of products that are only to come close: that of fast ones, where there are any."""
        return "tfloat32" if precision == "float32" and self.on_gpu else precision

    def own_stream(self) -> AbstractContextManager[None]:
        """Let a fit work on a stream of its own, where there are streams."""
        return torch.own_stream(self.device) if self.on_gpu and is_torch(self.xp) else nullcontext()

    def asarray(self, array: Array, dtype: str) -> Array:
        """`array` in this space, as real numbers of the given precision; no copy where none is needed."""
        if self is NUMPY and type(array) is np.ndarray:  # to ask takes microseconds, and small problems ask often
            return array.astype(dtype, copy=False)
        wanted = getattr(self.xp, dtype)
        if array_api_compat.is_array_api_obj(array) and Backend.of(array) == self:
            return self.xp.astype(array, wanted, copy=False)
        # in plain order, because torch takes no negative strides, and of the type wanted, because torch would wake up
        # all its threads for that; a copy, because memory of the host would be shared otherwise
        held = to_numpy(array)
        held = np.ascontiguousarray(held, dtype) if self.on_gpu else np.array(held, dtype, order="C")
        return self.xp.asarray(held, device=self.device)

    def draw_normal(self, shape: tuple[int, int], rng: np.random.Generator) -> Array:
        """Standard normal numbers in float64; the same ones everywhere, but for very many, which a card draws itself.

        A host takes a quarter of a second for those of a start of 4096 atoms.
        """
        if self.on_gpu and is_torch(self.xp) and shape[0] * shape[1] >= MIN_DRAWN_ON_CARD:
            return torch.draw_normal(shape, int(rng.integers(2**62)), self.device)
        return self.asarray(rng.standard_normal(shape), "float64")

    def __reduce__(self) -> tuple[Any, ...]:
        # a module cannot be pickled, but found again by its name
        return _import_backend, (self.xp.__name__, self.device)

    def __str__(self) -> str:
        name = self.xp.__name__.removeprefix("array_api_compat.")
        return f"{name} ({self.device})"


def is_torch(xp: Any) -> bool:
    """Whether a namespace is torch's."""
    return bool(array_api_compat.is_torch_namespace(xp))


def is_gpu(xp: Any, device: Any) -> bool:
    """Whether products are made by a graphics card."""
    return bool(device.type == "cuda") if is_torch(xp) else bool(array_api_compat.is_cupy_namespace(xp))


def find_kernels(xp: Any) -> Any:
    """Module `triton_kernels` for torch on a card, if Triton is installed."""
    return torch.fused_terms() if is_torch(xp) else None


def find_turn_kernel(A: Array) -> Callable[..., Any] | None:
    """Kernel for Newton's step of all pairs of atoms A (m, k), where there is one: as many as directions, and few."""
    m, k = A.shape
    compiled = host_kernels.COMPILED is not None and type(A) is np.ndarray
    return host_kernels.turned if compiled and m == k <= host_kernels.MOST_TURNED_ATOMS else None


def find_error_kernel(array: Array) -> Callable[..., Any] | None:
    """Kernel for the errors of atoms with moments like this array, where there is one."""
    return host_kernels.atom_errors if host_kernels.COMPILED is not None and type(array) is np.ndarray else None


def _import_backend(namespace: str, device: Any) -> Backend:
    return Backend(importlib.import_module(namespace), device)


# NumPy itself, where it follows the standard: what stands in for it costs a microsecond a call
NUMPY = Backend(np if hasattr(np, "astype") else array_api_compat.array_namespace(np.empty(0)), "cpu")
NUMPY_TYPES = (np.ndarray, np.generic)


def to_numpy(array: Array) -> NDArray[Any]:
    """`array` as a NumPy array on the host."""
    if type(array) is np.ndarray:
        return array
    if array_api_compat.is_torch_array(array):
        return torch.copy_to_host(array.detach())
    if array_api_compat.is_cupy_array(array):
        return np.asarray(array.get())
    if hasattr(array, "__dlpack__") and not array_api_compat.is_numpy_array(array):
        return np.from_dlpack(array, device="cpu")
    return np.asarray(array)


def detach(array: Array) -> Array:
    """The same array, cut off from any graph of automatic differentiation."""
    return array.detach() if array_api_compat.is_torch_array(array) else array


def is_foreign(array: object) -> bool:
    """Tell whether `array` belongs to an array library other than NumPy (lists and data frames do not).

    Nor do dask arrays: they are a way to NumPy arrays elsewhere, and what is fitted to them is NumPy's.
    """
    return (
        array_api_compat.is_array_api_obj(array)
        and not array_api_compat.is_numpy_array(array)
        and not array_api_compat.is_dask_array(array)
        and not array_api_compat.is_pydata_sparse_array(array)
        and not array_api_compat.is_ndonnx_array(array)
    )


def name_dtype(dtype: Any) -> str:
    """Name of a type of any library."""
    return _name_numpy(dtype) if isinstance(dtype, np.dtype) else str(dtype).rsplit(".", maxsplit=1)[-1]


_name_numpy = functools.cache(str)  # to spell a name takes microseconds


def name_precision(dtype: Any) -> str:
    """Precision in which numbers of a type are multiplied: float32 holds those of 16 bits, float64 all others."""
    return "float32" if name_dtype(dtype).endswith(("float32", "float16")) else "float64"  # bfloat16 among them


def real_dtype(array: Array) -> str:
    """Precision in which `array` is multiplied: float32 for floats of 32 or 16 bits, otherwise float64."""
    return name_precision(array.dtype)


STORED = {"tfloat32": "float32", "float32": "float32", "float64": "float64"}
"""Type in which numbers are held whose products are made in a precision. "tfloat32" multiplies float32 numbers by their
first eleven binary digits where a device has that, five times faster; elsewhere it is float32."""


def total(array: Array) -> float:
    """Sum of all entries, as a Python number."""
    if type(array) is np.ndarray:
        return float(np.sum(array))
    return float(array_api_compat.array_namespace(array).sum(array))


def column_means(array: Array) -> Array:
    """Means over the rows of an array (b, m): by a product with ones, a tenth of the time of NumPy's own sum."""
    if type(array) is np.ndarray and array.dtype == np.float64:
        return np.ones(len(array)) @ array / len(array)
    return Backend.of(array).xp.mean(array, axis=0)


class Work(Protocol):
    """Where the large intermediate results of one pass go. `into` names the scratch memory to use."""

    @property
    def fused(self) -> Fused | None:
        """Kernels that read the codes once, where there are any."""
        ...

    def matmul(self, a: Array, b: Array, into: str) -> Array:
        """Product a @ b."""
        ...

    def map(self, function: Callable[..., Array], *operands: Any, into: str) -> Array:
        """Elementwise function; the result has the shape of the first operand."""
        ...

    def take(self, table: Array, index: Array, into: str) -> Array:
        """Entries of a table at an index of any shape."""
        ...

    def column_sums(self, array: Array) -> Array:
        """Sums over the rows of a tile (b, m), in float64."""
        ...

    def weigh(self, weights: Array) -> None:
        """Let the rows of the next tile count by weights (b,) in column sums; fused kernels, which do not, are off."""
        ...


def make_workspace(backend: Backend, precision: str) -> Work:
    """Scratch memory for one pass over tiles in `backend`, with products in this precision."""
    if array_api_compat.is_numpy_namespace(backend.xp):
        return BufferedWork.with_kernels()
    if backend.on_gpu and is_torch(backend.xp):
        return GpuWork(fast=precision == "tfloat32")
    return FreshWork()


class FreshWork:
    """Results of one pass go into fresh arrays: the standard knows no ``out=``."""

    fused: Fused | None = None
    _weights: Array | None = None  # (b,) of the rows of a tile; None: each counts once

    def matmul(self, a: Array, b: Array, into: str) -> Array:  # noqa: ARG002
        """Product a @ b."""
        return a @ b

    def map(self, function: Callable[..., Array], *operands: Any, into: str) -> Array:  # noqa: ARG002
        """Elementwise function; the result has the shape of the first operand."""
        return function(*operands)

    def take(self, table: Array, index: Array, into: str) -> Array:  # noqa: ARG002
        """Entries of a table at an index of any shape."""
        xp = Backend.of(table).xp
        return xp.reshape(xp.take(table, xp.reshape(index, (-1,))), index.shape)

    def column_sums(self, array: Array) -> Array:
        """Sums over the rows of a tile (b, m), in float64."""
        xp = Backend.of(array).xp
        return xp.sum(array if self._weights is None else array * self._weights[:, None], axis=0, dtype=xp.float64)

    def weigh(self, weights: Array) -> None:
        """Let the rows of the next tile count by weights (b,) in column sums."""
        self._weights, self.fused = weights, None


class GpuWork(FreshWork):
    """Results of one pass go into fresh arrays: torch keeps memory that was let go, and hands it out again."""

    def __init__(self, *, fast: bool) -> None:
        self._fast = fast
        self.fused = torch.fused_terms()

    def matmul(self, a: Array, b: Array, into: str) -> Array:  # noqa: ARG002
        """Product a @ b."""
        with torch.products(fast=self._fast):
            return a @ b

    def take(self, table: Array, index: Array, into: str) -> Array:  # noqa: ARG002
        """Entries of a table at an index of any shape, none of which is negative."""
        return torch.take(table, index)

    def column_sums(self, array: Array) -> Array:
        """Sums over the rows of a tile (b, m), in float64; of codes by fast products, in which they are added up."""
        if not self._fast or self._weights is not None:
            return super().column_sums(array)
        xp = Backend.of(array).xp
        return xp.astype(xp.sum(array, axis=0), xp.float64)


FLOAT32_ROWS = 256
"""Rows of a float32 tile that are added up in float32: short enough to keep six digits."""


@dataclass
class BufferedWork:
    """Results of one pass go into named buffers: fresh memory for each tile costs page faults."""

    fused: Fused | None = None
    _buffers: dict[str, NDArray[Any]] = field(default_factory=dict)
    _weights: NDArray[Any] | None = None  # (b,) of the rows of a tile; None: each counts once

    @classmethod
    def with_kernels(cls) -> BufferedWork:
        """Scratch memory with the compiled kernels, where there are any."""
        work = cls()
        work.fused = None if host_kernels.COMPILED is None else host_kernels.HostKernels(work._buffers)
        return work

    def matmul(self, a: NDArray[Any], b: NDArray[Any], into: str) -> NDArray[Any]:
        """Product a @ b."""
        return np.matmul(a, b, out=self._buffer(into, (a.shape[0], b.shape[1]), a.dtype))

    def map(self, function: Callable[..., NDArray[Any]], *operands: Any, into: str) -> NDArray[Any]:
        """Elementwise function; the result has the shape of the first operand."""
        return function(*operands, out=self._buffer(into, operands[0].shape, operands[0].dtype))

    def take(self, table: NDArray[Any], index: NDArray[np.int64], into: str) -> NDArray[Any]:
        """Entries of a table at an index of any shape, none of which is out of range."""
        return np.take(table, index, out=self._buffer(into, index.shape, table.dtype), mode="clip")

    def column_sums(self, array: NDArray[Any]) -> NDArray[np.float64]:
        """Sums over the rows of a tile (b, m), in float64.

        A product with ones takes a tenth of the time of NumPy's sum in float64. A float32 tile is added up in blocks
        short enough to keep six digits.
        """
        if self._weights is not None:
            return self._weigh_columns(array, self._weights.astype(array.dtype, copy=False))
        ones = self._buffers.get("ones")
        if ones is None or len(ones) < len(array) or ones.dtype != array.dtype:
            ones = self._buffers["ones"] = np.ones(len(array), array.dtype)
        if array.dtype == np.float64:
            return np.asarray(ones[: len(array)] @ array)
        n_blocks, n_left = divmod(len(array), FLOAT32_ROWS)
        total = np.zeros(array.shape[1])
        if n_left:
            total += ones[:n_left] @ array[-n_left:]
        if n_blocks:
            blocks = array[: n_blocks * FLOAT32_ROWS].reshape(n_blocks, FLOAT32_ROWS, -1)
            total += np.add.reduce(np.matmul(ones[:FLOAT32_ROWS], blocks), axis=0, dtype=np.float64)
        return total

    def weigh(self, weights: NDArray[Any]) -> None:
        """Let the rows of the next tile count by weights (b,) in column sums."""
        self._weights, self.fused = weights, None

    @staticmethod
    def _weigh_columns(array: NDArray[Any], weights: NDArray[Any]) -> NDArray[np.float64]:
        """Sums over weighted rows, in blocks as short as those of rows that count once."""
        rows = len(array) if array.dtype == np.float64 else FLOAT32_ROWS
        total = np.zeros(array.shape[1])
        for start in range(0, len(array), rows):
            total += weights[start : start + rows] @ array[start : start + rows]
        return total

    def _buffer(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        return host_kernels.find_buffer(self._buffers, name, shape, dtype)
