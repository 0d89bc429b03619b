"""Tensors of a .safetensors file, read where they lie; the format is simple enough to be read without its library."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from elldict._old.data.file import Stamp, check_shape, choose_array, describe_error, sum_blocks
from elldict._old.data.npy import BFLOAT16, RawReader
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
    _check_layout(
        [_check_tensor(tensors[key], f"{path}, array {key!r}") for key in shapes], stamp.size - 8 - length, path
    )
    name = choose_array(path, shapes, name)
    where = f"{path}, array {name!r}"
    stored, first, _ = _check_tensor(tensors[name], where)
    if not stored:
        raise SamplesFileError(f"{where} holds {tensors[name]['dtype']!r}, expected one of {', '.join(DTYPES)}.")
    n_samples, n_features = check_shape(shapes[name], where)
    facts: tuple[Any, ...] = (stored, False, stamp, blocks, None, name)
    return RawReader(path, 8 + length + first, n_samples, n_features, *facts)


def _check_tensor(tensor: dict[str, Any], where: str) -> tuple[str, int, int]:
    """Type of a tensor, and the bytes after the header at which it begins and ends."""
    kind, shape, offsets = (tensor.get(key, []) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(kind, str) or not (_are_sizes(shape) and _are_sizes(offsets) and len(offsets) == 2):
        raise SamplesFileError(f"{where} has shape {shape!r} and offsets {offsets!r}, expected whole numbers.")
    first, last = offsets
    if kind not in DTYPES:  # of another array, if it is not asked for
        return "", first, last
    stored = DTYPES[kind]
    expected = math.prod(shape) * (2 if stored == BFLOAT16 else np.dtype(stored).itemsize)
    if last - first != expected:
        raise SamplesFileError(
            f"{where} is damaged: it goes from byte {first} to byte {last}, and {shape} of {kind} has {expected} "
            "bytes. Copy or write it again."
        )
    return stored, first, last


def _check_layout(tensors: list[tuple[str, int, int]], n_bytes: int, path: str) -> None:
    """Raise if tensors do not follow one another from the header to the end of the file."""
    end = 0
    for _, first, last in sorted(tensors, key=lambda tensor: tensor[1:]):
        if first != end or last < first:
            raise SamplesFileError(f"{path} is damaged: an array begins at byte {first}, and not at {end}.")
        end = last
    if end != n_bytes:
        found = "is truncated" if end > n_bytes else "is longer than its header says"
        raise SamplesFileError(f"{path} {found}: {n_bytes} bytes follow the header, and arrays have {end}.")


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)
