"""Damage to files: bytes as disks and networks damage them, and well-formed edits that mislead a reader."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

T = TypeVar("T")
Rng = np.random.Generator
Damage = Callable[[bytes, Rng], tuple[str, bytes]]
"""Returns what was done to a content, and the result."""

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


def choose(items: Sequence[T], rng: Rng) -> T:
    """Choose one of several items."""
    return items[int(rng.integers(len(items)))]


def damage_bytes(content: bytes, rng: Rng) -> tuple[str, bytes]:
    """Flip bits, overwrite, delete, repeat or cut off a range, write a number, append, or replace everything."""
    length = int(2 ** rng.uniform(0, np.log2(len(content) + 1)))  # as often short as long
    start = int(rng.integers(0, max(1, len(content) - length + 1)))
    stop = start + length
    near_end = max(0, len(content) - int(rng.integers(8, 200)))
    size, number = choose((2, 4, 8), rng), choose(HUGE, rng)
    place = choose((int(rng.integers(100)), near_end, start), rng)  # headers are near one of the ends
    flipped = bytearray(content)
    for _ in range(choose((1, 1, 1, 20), rng)):
        flipped[rng.integers(len(flipped))] ^= 1 << int(rng.integers(8))
    fill = choose((rng.bytes(length), bytes(length), b"\xff" * length), rng)
    written = (number % (1 << 8 * size)).to_bytes(size, "little" if rng.integers(2) else "big")
    more = choose((rng.bytes(99), bytes(5000), content, PICKLE), rng)
    ways = {
        "bits flipped": bytes(flipped),
        "overwritten": content[:start] + fill + content[stop:],
        "deleted": content[:start] + content[stop:],
        "repeated": content[:stop] + content[start:],
        "truncated": content[:start],
        "number written": content[:place] + written + content[place + size :],
        "extended": content + more if rng.integers(4) else more + content,
        "replaced": PICKLE if rng.integers(2) else content[:8] + rng.bytes(len(content)),
    }
    way = choose([*ways, "bits flipped", "number written"], rng)
    return way, ways[way]


def damage_json(text: bytes, rng: Rng) -> tuple[str, bytes]:
    """Edit a random place of a JSON text, which remains JSON."""
    tree = json.loads(text)
    holder, key = choose(list(list_places(tree)), rng)
    if rng.integers(3):
        holder[key] = choose(ODD_VALUES, rng)
        return f"other value of {key}", json.dumps(tree).encode()
    del holder[key]
    return f"no {key}", json.dumps(tree).encode()


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
    name, huge = choose(list(header), rng), tuple(choose(HUGE, rng) for _ in shape)
    shapes = (shape[::-1], (), (-1, *shape[1:]), huge, (10**30, *shape[1:]))
    odd = {
        "descr": choose(DTYPES, rng),
        "fortran_order": choose((not fortran, 1, None), rng),
        "shape": choose(shapes, rng),
    }
    text = repr({**header, name: odd[name]}).encode()
    return f"npy {name}", npy.MAGIC_PREFIX + b"\2\0" + len(text).to_bytes(4, "little") + text + content[stream.tell() :]


def damage_array(array: NDArray[Any], rng: Rng) -> NDArray[Any]:
    """Change the shape, the type, or one value of an array."""
    changed = array.copy()
    if changed.size and changed.dtype.kind == "f":
        odd = choose((np.nan, np.inf, 1e30, -1e30, 5e-324, 0.0, -1.0), rng)
        changed.reshape(-1)[rng.integers(changed.size)] = odd
    with np.errstate(all="ignore"):
        other = array.astype(choose(("f4", "i4", "c16", "?"), rng))
    return choose((changed, changed, array[:-1] if array.ndim else array[None], array.ravel(), array[None], other), rng)
