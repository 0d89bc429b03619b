"""Array libraries and devices: where arrays live, and what the array API standard cannot say.

Everything that touches samples is written against the standard, so NumPy, torch and CuPy arrays take the same path.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import array_api_compat
import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from elldict.backend import torch
from elldict.backend.torch import Fused

Array = Any
"""An array of any library that follows the array API standard."""


@dataclass(frozen=True)
class Backend:
    """An array namespace and one of its devices."""

    xp: Any
    device: Any

    @classmethod
    def of(cls, array: Array) -> Backend:
        """Space in which `array` lives."""
        if type(array) is np.ndarray:  # to ask takes microseconds, and small problems ask often
            return NUMPY
        return cls(array_api_compat.array_namespace(array), array_api_compat.device(array))

    @property
    def on_gpu(self) -> bool:
        """Whether products are made by a graphics card, which wants large tiles and few calls."""
        if array_api_compat.is_torch_namespace(self.xp):
            return bool(self.device.type == "cuda")
        return bool(array_api_compat.is_cupy_namespace(self.xp))

    def asarray(self, array: Array, dtype: str) -> Array:
        """`array` in this space, as real numbers of the given precision; no copy where none is needed."""
        wanted = getattr(self.xp, dtype)
        if array_api_compat.is_array_api_obj(array) and Backend.of(array) == self:
            return self.xp.astype(array, wanted, copy=False)
        # a copy in plain order: torch takes no negative strides, and would share memory otherwise; and of the type
        # wanted, because torch would wake up all its threads for that
        return self.xp.asarray(np.array(to_numpy(array), dtype, order="C"), device=self.device)

    @property
    def kernels(self) -> Any:
        """Module `triton_kernels` where its kernels run, otherwise None."""
        fused = torch.fused_terms() if self._is_torch_on_gpu else None
        return None if fused is None else fused.kernels

    @property
    def can_capture(self) -> bool:
        """Whether work can be captured as a CUDA graph and replayed."""
        return self._is_torch_on_gpu and torch.can_capture(self.device)

    def own_stream(self) -> AbstractContextManager[None]:
        """Let a fit work on a stream of its own, where there are streams."""
        return torch.own_stream(self.device) if self._is_torch_on_gpu else nullcontext()

    @property
    def _is_torch_on_gpu(self) -> bool:
        return self.on_gpu and bool(array_api_compat.is_torch_namespace(self.xp))

    def __reduce__(self) -> tuple[Any, ...]:
        # a module cannot be pickled, but found again by its name
        return _import_backend, (self.xp.__name__, self.device)

    def __str__(self) -> str:
        name = self.xp.__name__.removeprefix("array_api_compat.")
        return f"{name} ({self.device})"


def _import_backend(namespace: str, device: Any) -> Backend:
    return Backend(importlib.import_module(namespace), device)


NUMPY = Backend(array_api_compat.array_namespace(np.empty(0)), "cpu")


def to_numpy(array: Array) -> NDArray[Any]:
    """`array` as a NumPy array on the host."""
    if array_api_compat.is_torch_array(array):
        return np.asarray(array.detach().cpu())
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


def real_dtype(array: Array) -> str:
    """Precision in which `array` is multiplied: its own if float32 or float64, otherwise float64."""
    xp = array_api_compat.array_namespace(array)
    return "float32" if array.dtype == xp.float32 else "float64"


def storage_dtype(precision: str) -> str:
    """Type in which numbers are held whose products are made in this precision.

    "tfloat32" multiplies float32 numbers by their first eleven binary digits where a device has that, five times
    faster; elsewhere it is float32.
    """
    return "float32" if precision == "tfloat32" else precision


def total(array: Array) -> float:
    """Sum of all entries, as a Python number."""
    return float(array_api_compat.array_namespace(array).sum(array))


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

    def column_sums(self, array: Array) -> Array:
        """Sums over the rows of a tile (b, m), in float64."""
        ...

    def product_sums(self, a: Array, b: Array) -> Array:
        """Column sums of a product of two arrays, entry by entry."""
        ...


def make_workspace(backend: Backend, precision: str) -> Work:
    """Scratch memory for one pass over tiles in `backend`, with products in this precision."""
    if array_api_compat.is_numpy_namespace(backend.xp):
        return BufferedWork()
    if backend._is_torch_on_gpu:
        return GpuWork(fast=precision == "tfloat32")
    return FreshWork()


def svd(matrix: Array) -> tuple[Array, Array, Array]:
    """Thin singular value decomposition that either holds or raises."""
    if array_api_compat.is_numpy_array(matrix):
        return _host_svd(matrix)
    return _generic_svd(matrix)


def is_positive_definite(matrix: Array) -> bool:
    """Whether the Cholesky decomposition of a symmetric matrix exists."""
    try:
        factor = Backend.of(matrix).xp.linalg.cholesky(matrix)
    except (RuntimeError, np.linalg.LinAlgError):  # torch's LinAlgError is a RuntimeError
        return False
    return bool(Backend.of(matrix).xp.all(Backend.of(matrix).xp.isfinite(factor)))  # CuPy says it in this way


class FreshWork:
    """Results of one pass go into fresh arrays: the standard knows no ``out=``."""

    fused: Fused | None = None

    def matmul(self, a: Array, b: Array, into: str) -> Array:  # noqa: ARG002
        """Product a @ b."""
        return a @ b

    def map(self, function: Callable[..., Array], *operands: Any, into: str) -> Array:  # noqa: ARG002
        """Elementwise function; the result has the shape of the first operand."""
        return function(*operands)

    def column_sums(self, array: Array) -> Array:
        """Sums over the rows of a tile (b, m), in float64."""
        xp = Backend.of(array).xp
        return xp.sum(array, axis=0, dtype=xp.float64)

    def product_sums(self, a: Array, b: Array) -> Array:
        """Column sums of a product of two arrays, entry by entry."""
        return self.column_sums(a * b)


class GpuWork(FreshWork):
    """Results of one pass go into fresh arrays: torch keeps memory that was let go, and hands it out again."""

    def __init__(self, *, fast: bool) -> None:
        self._fast = fast
        self.fused = torch.fused_terms()

    def matmul(self, a: Array, b: Array, into: str) -> Array:  # noqa: ARG002
        """Product a @ b."""
        with torch.products(fast=self._fast):
            return a @ b


def _generic_svd(matrix: Array) -> tuple[Array, Array, Array]:
    """Thin singular value decomposition in the library of `matrix`, on the host if that fails."""
    backend = Backend.of(matrix)
    try:
        U, values, Vt = backend.xp.linalg.svd(matrix, full_matrices=False)
    except (RuntimeError, np.linalg.LinAlgError):  # torch's LinAlgError is a RuntimeError
        pass
    else:
        if bool(backend.xp.all(backend.xp.isfinite(values))):
            return U, values, Vt
    U, values, Vt = (backend.asarray(part, "float64") for part in _host_svd(to_numpy(matrix)))
    return U, values, Vt


BLOCK = 256
"""Rows of a float32 tile that are added up in float32."""


class BufferedWork:
    """Results of one pass go into named buffers: fresh memory for each tile costs page faults."""

    fused = None

    def __init__(self) -> None:
        self._buffers: dict[str, NDArray[Any]] = {}

    def matmul(self, a: NDArray[Any], b: NDArray[Any], into: str) -> NDArray[Any]:
        """Product a @ b."""
        return np.matmul(a, b, out=self._buffer(into, (a.shape[0], b.shape[1]), a.dtype))

    def map(self, function: Callable[..., NDArray[Any]], *operands: Any, into: str) -> NDArray[Any]:
        """Elementwise function; the result has the shape of the first operand."""
        return function(*operands, out=self._buffer(into, operands[0].shape, operands[0].dtype))

    def column_sums(self, array: NDArray[Any]) -> NDArray[np.float64]:
        """Sums over the rows of a tile (b, m), in float64.

        A product with ones takes a tenth of the time of NumPy's sum in float64. A float32 tile is added up in blocks
        short enough to keep six digits.
        """
        ones = self._buffers.get("ones")
        if ones is None or len(ones) < len(array) or ones.dtype != array.dtype:
            ones = self._buffers["ones"] = np.ones(len(array), array.dtype)
        if array.dtype == np.float64:
            return np.asarray(ones[: len(array)] @ array)
        n_blocks, n_left = divmod(len(array), BLOCK)
        total = np.zeros(array.shape[1])
        if n_left:
            total += ones[:n_left] @ array[-n_left:]
        if n_blocks:
            blocks = array[: n_blocks * BLOCK].reshape(n_blocks, BLOCK, -1)
            total += np.add.reduce(np.matmul(ones[:BLOCK], blocks), axis=0, dtype=np.float64)
        return total

    def product_sums(self, a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
        """Column sums of a product of two arrays, entry by entry."""
        return self.column_sums(self.map(np.multiply, a, b, into="product"))

    def _buffer(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        rows = shape[0]
        buffer = self._buffers.get(name)
        if buffer is None or buffer.shape[0] < rows or buffer.shape[1:] != shape[1:] or buffer.dtype != dtype:
            buffer = self._buffers[name] = np.empty(shape, dtype)
        return buffer[:rows]


def _host_svd(matrix: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Thin singular value decomposition by the first LAPACK driver that succeeds.

    NumPy's divide and conquer is fast and once in a while fails; SciPy's QR iteration is slow and does not. SciPy
    brings its own copy of BLAS, whose waiting threads take the cores from NumPy's: four times slower, so it is
    called in need only.
    """
    for attempt in (_divide_and_conquer, _qr_iteration):
        try:
            U, values, Vt = attempt(matrix)
        except np.linalg.LinAlgError:
            continue
        if np.all(np.isfinite(values)):
            return U, values, Vt
    shape = " x ".join(map(str, matrix.shape))
    raise np.linalg.LinAlgError(
        f"The singular value decomposition of a {shape} gradient did not converge with LAPACK's gesdd or gesvd."
    )


def _divide_and_conquer(matrix: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    return np.linalg.svd(matrix, full_matrices=False)


def _qr_iteration(matrix: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    U, values, Vt = scipy.linalg.svd(matrix, full_matrices=False, lapack_driver="gesvd", check_finite=False)
    return U, values, Vt
