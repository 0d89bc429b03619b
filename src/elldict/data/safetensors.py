"""Tensors of a .safetensors file, read where they lie; the format is simple enough to be read without its library."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from elldict.data.file import Stamp, check_shape, choose_array, describe_error, sum_blocks
from elldict.data.npy import BFLOAT16, RawReader
from elldict.exceptions import SamplesFileError

DTYPES = {
    **{"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": BFLOAT16, "BOOL": "|b1"},
    **{f"{kind}{8 * size}": f"<{kind.lower()}{size}" for kind in "IU" for size in (1, 2, 4, 8)},
}
"""Types of real numbers in the words of the format, and in NumPy's."""

MOST_HEADER_BYTES = 10**8
"""Largest header that the format allows."""


def is_safetensors(first: bytes) -> bool:
    """Whether a file begins as one: the length of a header, which is JSON."""
    return len(first) > 8 and first[8:9] == b"{" and int.from_bytes(first[:8], "little") <= MOST_HEADER_BYTES


def open_safetensors(path: str | os.PathLike[str], name: str | None) -> RawReader:
    """Reader of a tensor: the one of this name, or the only one with rows and columns."""
    path = str(Path(path).absolute())
    stamp, blocks = Stamp.of(Path(path).stat()), sum_blocks(path)
    with Path(path).open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > min(MOST_HEADER_BYTES, stamp.size - 8):
            raise SamplesFileError(f"{path} is damaged: its header would have {length} bytes of {stamp.size}.")
        text = stream.read(length)
    try:
        header = json.loads(text)
        tensors = {key: value for key, value in header.items() if key != "__metadata__"}
        shapes = {key: tuple(value["shape"]) for key, value in tensors.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise SamplesFileError(f"{path} has no valid header of safetensors: {describe_error(error)}") from error
    name = choose_array(path, shapes, name)
    where = f"{path}, array {name!r}"
    stored, first = _check_tensor(tensors[name], stamp.size - 8 - length, where)
    n_samples, n_features = check_shape(shapes[name], where)
    facts: tuple[Any, ...] = (stored, False, stamp, blocks, None, name)
    return RawReader(path, 8 + length + first, n_samples, n_features, *facts)


def _check_tensor(tensor: dict[str, Any], n_bytes: int, where: str) -> tuple[str, int]:
    """Type of a tensor and the byte at which it begins among the `n_bytes` that follow the header."""
    kind, shape, offsets = (tensor.get(key, []) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(kind, str) or kind not in DTYPES:
        raise SamplesFileError(f"{where} holds {kind!r}, expected one of {', '.join(DTYPES)}.")
    if not (_are_sizes(shape) and _are_sizes(offsets) and len(offsets) == 2):
        raise SamplesFileError(f"{where} has shape {shape!r} and offsets {offsets!r}, expected whole numbers.")
    stored = DTYPES[kind]
    expected = math.prod(shape) * (2 if stored == BFLOAT16 else np.dtype(stored).itemsize)
    first, last = offsets
    if last - first != expected or last > n_bytes:
        raise SamplesFileError(
            f"{where} is damaged: it goes from byte {first} to byte {last} of {n_bytes}, and {shape} of {kind} has "
            f"{expected} bytes. Copy or write it again."
        )
    return stored, first


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)
