"""Arrays on a device, to which functions of NumPy apply: visits and kernels are those for the CPU.

NumPy passes its operators to `__array_ufunc__` (NEP 13) and its other functions to `__array_function__` (NEP 18), which
call torch. Arrays of NumPy among the operands are small, and are moved to the device. `np.asarray` leaves the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

if TYPE_CHECKING:
    from elldict.gpu.samples import Device

NAMES = {"equal": "eq", "invert": "bitwise_not", "max": "amax", "power": "pow", "right_shift": "bitwise_right_shift"}
"""Functions of NumPy with another name in torch; others have the same name, or are defined here."""


class DeviceArray(NDArrayOperatorsMixin):
    """A tensor with the attributes, operators and functions of NumPy that visits use."""

    def __init__(self, tensor: Any, device: Device) -> None:
        self.tensor, self.device = tensor, device

    dtype = property(lambda self: np.dtype(str(self.tensor.dtype).removeprefix("torch.")))
    shape = property(lambda self: tuple(self.tensor.shape))
    T = property(lambda self: self._wrap(self.tensor.T))

    def __len__(self) -> int:
        return len(self.tensor)

    def __float__(self) -> float:
        return float(self.tensor)

    def __bool__(self) -> bool:
        return bool(self.tensor)

    def __getitem__(self, key: Any) -> DeviceArray:
        return self._wrap(self.tensor[self._convert(key) if isinstance(key, (DeviceArray, np.ndarray)) else key])

    def __setitem__(self, key: Any, values: DeviceArray) -> None:
        self.tensor[key] = values.tensor

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.tensor.cpu().numpy(), dtype=dtype, copy=copy)

    def astype(self, dtype: Any, *, copy: bool = True) -> DeviceArray:
        """Convert the entries to a type."""
        return self._wrap(self.tensor.to(find_type(dtype), copy=copy))

    def view(self, dtype: Any) -> DeviceArray:
        """Take the bits of the entries as those of another type."""
        return self._wrap(self.tensor.view(find_type(dtype)))

    def _wrap(self, tensor: Any) -> DeviceArray:
        """Return an array on the same device."""
        return DeviceArray(tensor, self.device)

    def _convert(self, operand: Any) -> Any:
        """Convert an operand to a tensor; single numbers stay on the CPU, from where torch takes them."""
        if isinstance(operand, DeviceArray):
            return operand.tensor
        if isinstance(operand, np.ndarray) and operand.ndim:
            return self.device.share(operand).tensor
        if isinstance(operand, list):
            return [self._convert(each) for each in operand]
        return load_torch().tensor(operand, dtype=find_type(np.asarray(operand).dtype))

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *operands: Any, out: Any = (), dtype: Any = None
    ) -> DeviceArray:
        tensors = [self._convert(each) for each in operands]
        if dtype is not None:
            tensors = [tensor.to(find_type(dtype)) for tensor in tensors]
        result = find_function(ufunc.__name__)(*tensors)
        for array in out:  # of an operator such as +=
            result = array.tensor.copy_(result)
        return self._wrap(result)

    def __array_function__(
        self, function: Callable[..., Any], types: Any, operands: Sequence[Any], options: dict[str, Any]
    ) -> Any:
        if "dtype" in options:
            options = {**options, "dtype": find_type(options["dtype"])}
        if function is np.empty:
            return self._wrap(self.tensor.new_empty(*operands, **options))
        if function is np.argwhere:
            return np.argwhere(np.asarray(*operands))
        return self._wrap(find_function(function.__name__)(*map(self._convert, operands), **options))


def load_torch() -> Any:
    """Import torch, or say how to install it."""
    try:
        return import_module("torch")
    except ModuleNotFoundError as error:
        raise ImportError("torch is needed to fit samples on a device: pip install torch", name="torch") from error


def find_type(dtype: Any) -> Any:
    """Return the type of torch for a type of NumPy."""
    return getattr(load_torch(), np.dtype(dtype).name)


def find_function(name: str) -> Any:
    """Return the function of torch for a function of NumPy."""
    return OWN.get(name) or getattr(load_torch(), NAMES.get(name, name))


def multiply(a: Any, b: Any) -> Any:
    """Multiply matrices, which may differ in precision."""
    torch = load_torch()
    dtype = torch.promote_types(a.dtype, b.dtype)
    return torch.matmul(a.to(dtype), b.to(dtype))


def count(places: Any, weights: Any, minlength: int) -> Any:
    """Sum weights (s,) by their places (s,), in fixed-point numbers.

    Threads of a GPU add in any order, on which sums of floating-point numbers depend, but not those of integers.
    """
    torch = load_torch()
    digits = 62 - int(np.frexp(float(weights.max()))[1]) - len(weights).bit_length()  # the total is less than 2^62
    fixed = torch.round(weights * 2.0**digits).to(torch.int64)
    return fixed.new_zeros(minlength).index_add_(0, places, fixed).to(torch.float64) * 2.0**-digits


OWN = {
    "asarray": lambda tensor: tensor,
    "bincount": count,
    "matmul": multiply,
    "vecdot": lambda a, b: (a * b).sum(-1),
}
"""Functions that torch does not have with the meaning of NumPy, or not with the same bits every time."""
