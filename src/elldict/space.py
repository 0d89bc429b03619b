"""Where arrays live: an array library and a device.

Everything that touches samples is written against the array API standard, so
NumPy, torch and CuPy arrays take the same path. This module is the only one that
knows how an array gets from one library to another.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

Array = Any
"""An array of any library that follows the array API standard."""


@dataclass(frozen=True)
class Space:
    """An array namespace and one of its devices."""

    xp: Any
    device: Any

    @classmethod
    def of(cls, array: Array) -> Space:
        """Space in which `array` lives."""
        if type(array) is np.ndarray:  # to ask takes microseconds, and small problems ask often
            return HOST
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
        if array_api_compat.is_array_api_obj(array) and Space.of(array) == self:
            return self.xp.astype(array, wanted, copy=False)
        # a copy in plain order: torch takes no negative strides, and would share memory otherwise; and of the type
        # wanted, because torch would wake up all its threads for that
        return self.xp.asarray(np.array(to_numpy(array), dtype, order="C"), device=self.device)

    def __reduce__(self) -> tuple[Any, ...]:
        # a module cannot be pickled, but found again by its name
        return _named, (self.xp.__name__, self.device)

    def __str__(self) -> str:
        name = self.xp.__name__.removeprefix("array_api_compat.")
        return f"{name} ({self.device})"


def _named(namespace: str, device: Any) -> Space:
    return Space(importlib.import_module(namespace), device)


HOST = Space(array_api_compat.array_namespace(np.empty(0)), "cpu")


def to_numpy(array: Array) -> NDArray[Any]:
    """`array` as a NumPy array on the host."""
    if array_api_compat.is_torch_array(array):
        return np.asarray(array.detach().cpu())
    if array_api_compat.is_cupy_array(array):
        return np.asarray(array.get())
    if hasattr(array, "__dlpack__") and not array_api_compat.is_numpy_array(array):
        return np.from_dlpack(array, device="cpu")
    return np.asarray(array)


def detached(array: Array) -> Array:
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


def storage(precision: str) -> str:
    """Type in which numbers are held whose products are made in this precision.

    "tfloat32" multiplies float32 numbers by their first eleven binary digits where a device has that, five times
    faster; elsewhere it is float32.
    """
    return "float32" if precision == "tfloat32" else precision


def total(array: Array) -> float:
    """Sum of all entries, as a Python number."""
    return float(array_api_compat.array_namespace(array).sum(array))
