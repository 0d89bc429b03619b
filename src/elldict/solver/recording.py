"""What passes ask and bring home, as words and arrays: the digest of a question, and answers there and back."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict.samples.survey import Spread
from elldict.solver.sums import Sums
from elldict.space import Space, is_foreign, to_numpy

KINDS: dict[str, Any] = {"Sums": Sums, "Spread": Spread}
"""What a pass may bring home; anything else is not recorded."""


def digest(value: Any) -> str:
    """Digest of a question: dataclasses, arrays and plain values, to the last bit."""
    state = hashlib.sha256()
    _feed(state.update, value)
    return state.hexdigest()[:32]


def _feed(update: Callable[[bytes | memoryview], object], value: Any) -> None:
    if is_dataclass(value):
        told = (getattr(value, field.name) for field in fields(value) if field.compare)  # others are known anyway
        _feed(update, (type(value).__name__, *told))
    elif isinstance(value, (tuple, list)):
        update(b"(%d" % len(value))
        for item in value:
            _feed(update, item)
    elif isinstance(value, Enum):
        _feed(update, (type(value).__name__, value.value))
    elif isinstance(value, float):
        update(b"f" + struct.pack("<d", value))
    elif value is None or isinstance(value, (bool, int, str)):
        update(repr(value).encode() + b";")
    else:
        array = to_numpy(value)
        update(f"{array.dtype.str}{array.shape}".encode())
        update(np.ascontiguousarray(array).data)


def encoded(result: Any) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    """What a pass brought home as words and arrays; no words if it is of a kind that is not recorded."""
    kind = type(result).__name__
    if KINDS.get(kind) is not type(result):
        return {}, []
    arrays: list[NDArray[Any]] = []

    def put(value: Any) -> Any:
        if value is None or isinstance(value, (int, float)):
            return value
        if isinstance(value, Mapping):
            return {"map": {name: put(item) for name, item in value.items()}}
        arrays.append(to_numpy(value))
        return {"array": len(arrays) - 1, "moved": is_foreign(value)}

    values = {field.name: put(getattr(result, field.name)) for field in fields(result)}
    return {"result": kind, "fields": values}, arrays


def decoded(words: Mapping[str, Any], arrays: list[NDArray[Any]], space: Space) -> Any:
    """What a pass brought home; arrays that lived in `space` are there again."""

    def get(value: Any) -> Any:
        if isinstance(value, dict) and "map" in value:
            return {name: get(item) for name, item in value["map"].items()}
        if isinstance(value, dict):
            array = arrays[value["array"]]
            return space.asarray(array, str(array.dtype)) if value["moved"] else array
        return value

    return KINDS[words["result"]](**{name: get(value) for name, value in words["fields"].items()})
