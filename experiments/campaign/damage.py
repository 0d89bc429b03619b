"""Damage to files: bytes as disks and networks damage them, and well-formed edits that mislead a reader."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

Rng = np.random.Generator

HUGE = (0, 1, -1, 255, 2**15, 5_000_000, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1)
"""Integers at the limits of common types, and one that asks for much memory."""

ODD_VALUES: tuple[Any, ...] = (
    *(*HUGE, 10**30, 1e308, -1e308, 5e-324, float("nan"), float("inf"), True, False, None, "", "1", "text"),
    *("\0\n\x1b[2J", "../../evil", "A" * 100_000, [], {}, [[]], {"": {}}, [1, 2], [None]),
)
"""Values that replace one of a header."""

DTYPES = ("<f4", ">f8", "<f2", "<i8", "|b1", "<c16", "|O", "<U7", "<M8[ns]", "<f999999999999", "not a type", "")
MARK = "executed"
"""Folder that code hidden in damaged files would make."""


class Exploit:
    """Makes a folder when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return Path.mkdir, (Path(MARK),)  # type: ignore[return-value]


PICKLE = pickle.dumps(Exploit())


def choose(items: Any, rng: Rng) -> Any:
    """Choose one of several items."""
    return items[int(rng.integers(len(items)))]


def draw_range(content: bytes, rng: Rng) -> tuple[int, int]:
    """Draw a range of bytes, whose length is as often short as long."""
    length = int(2 ** rng.uniform(0, np.log2(len(content) + 1)))
    start = int(rng.integers(0, max(1, len(content) - length + 1)))
    return start, start + length


def flip_bits(content: bytes, rng: Rng) -> bytes:
    """Flip one bit or several."""
    changed = bytearray(content)
    for _ in range(choose((1, 1, int(2 ** rng.uniform(0, 6))), rng)):
        changed[rng.integers(len(changed))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def overwrite(content: bytes, rng: Rng) -> bytes:
    """Overwrite a range with zeros, ones or random bytes."""
    start, stop = draw_range(content, rng)
    fill = choose((rng.bytes(stop - start), bytes(stop - start), b"\xff" * (stop - start)), rng)
    return content[:start] + fill + content[stop:]


def truncate(content: bytes, rng: Rng) -> bytes:
    """Cut off the end, or everything."""
    return content[: int(rng.integers(len(content)))]


def extend(content: bytes, rng: Rng) -> bytes:
    """Append or prepend bytes."""
    more = choose((rng.bytes(99), bytes(5000), content, PICKLE), rng)
    return more + content if rng.integers(4) == 0 else content + more


def delete(content: bytes, rng: Rng) -> bytes:
    """Delete a range."""
    start, stop = draw_range(content, rng)
    return content[:start] + content[stop:]


def repeat(content: bytes, rng: Rng) -> bytes:
    """Repeat a range."""
    start, stop = draw_range(content, rng)
    return content[:stop] + content[start:]


def write_number(content: bytes, rng: Rng) -> bytes:
    """Overwrite two, four or eight bytes, often near an end, with a number: sizes and offsets of any header."""
    size = choose((2, 4, 8), rng)
    number = choose(HUGE, rng) % (1 << 8 * size)
    near = (int(rng.integers(0, 100)), max(0, len(content) - int(rng.integers(8, 200))))
    start = choose((*near, int(rng.integers(0, max(1, len(content) - size)))), rng)
    return content[:start] + number.to_bytes(size, choose(("little", "big"), rng)) + content[start + size :]


def replace_all(content: bytes, rng: Rng) -> bytes:
    """Replace everything but the first bytes."""
    return choose((PICKLE, content[: rng.integers(1, 9)] + rng.bytes(len(content))), rng)  # type: ignore[no-any-return]


BYTES = (flip_bits, flip_bits, overwrite, truncate, extend, delete, repeat, write_number, write_number, replace_all)


def damage_bytes(content: bytes, rng: Rng) -> tuple[str, bytes]:
    """Damage the bytes of a file; return what was done, and the result."""
    if not content:
        return "extend", rng.bytes(50)
    change = choose(BYTES, rng)
    return change.__name__, change(content, rng)


def damage_json(text: bytes, rng: Rng) -> tuple[str, bytes]:
    """Edit a random place of a JSON text, which remains JSON."""
    tree = json.loads(text)
    holder, key = choose(list(list_places(tree)), rng)
    what = choose(("value", "value", "delete", "nest"), rng)
    if what == "value":
        holder[key] = choose(ODD_VALUES, rng)
    elif what == "delete":
        del holder[key]
    else:
        depth = choose((50, 100_000), rng)
        holder[key] = "NEST"
        return f"nest {key}", json.dumps(tree).encode().replace(b'"NEST"', b"[" * depth + b"1" + b"]" * depth)
    return f"{what} {key}", json.dumps(tree).encode()


def list_places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """List every container with each of its keys."""
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield tree, key
        yield from list_places(tree[key])


def damage_npy(content: bytes, rng: Rng) -> tuple[str, bytes]:
    """Edit what the header of a .npy file claims: shape, type or order."""
    stream = io.BytesIO(content)
    npy.read_magic(stream)
    shape, fortran, dtype = npy.read_array_header_1_0(stream)
    header: dict[str, Any] = {"descr": npy.dtype_to_descr(dtype), "fortran_order": fortran, "shape": shape}
    name = choose(list(header), rng)
    other = {
        "descr": lambda: choose(DTYPES, rng),
        "fortran_order": lambda: choose((not fortran, 1, None), rng),
        "shape": lambda: choose(
            (shape[::-1], (), (-1, *shape[1:]), tuple(choose(HUGE, rng) for _ in shape), (10**30, *shape[1:])), rng
        ),
    }
    text = repr({**header, name: other[name]()}).encode()
    return f"npy {name}", npy.MAGIC_PREFIX + b"\2\0" + len(text).to_bytes(4, "little") + text + content[stream.tell() :]


def damage_array(array: NDArray[Any], rng: Rng) -> tuple[str, NDArray[Any]]:
    """Change the shape, the type or some values of an array."""
    what = choose(("shape", "type", "values", "values"), rng)
    if what == "shape":
        return what, choose((array[:-1], array[None], array.ravel(), array[..., :0]), rng) if array.ndim else array[
            None
        ]
    if what == "type":
        with np.errstate(all="ignore"):
            return what, np.asarray(array, choose(("f4", "i4", "c16", "?"), rng))
    changed = np.array(array, dtype=np.result_type(array.dtype, "f4") if array.dtype.kind == "f" else array.dtype)
    if changed.size and changed.dtype.kind == "f":
        odd = choose((np.nan, np.inf, 1e300, -1e30, 5e-324, 0.0, -1.0), rng)
        with np.errstate(all="ignore"):
            changed.reshape(-1)[rng.integers(changed.size)] = odd
    return what, changed
