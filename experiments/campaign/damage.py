"""Damage: what may become of the bytes, the JSON and the array headers of a file, drawn from a random generator.

Damage to bytes is what disks, networks and half copies do. Edits of headers are what somebody does who wants to mislead
a reader: sizes, shapes, types and names that make no sense, in a file that is otherwise well formed.
"""

from __future__ import annotations

import io
import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

Rng = np.random.Generator

HUGE = (0, 1, -1, 255, 2**15, 5_000_000, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1)
"""Whole numbers at the limits of what programs count in, and one by which memory is large but not refused."""

ODD_VALUES: tuple[Any, ...] = (
    *(*HUGE, 10**30, -(2**63), 1e308, -1e308, 5e-324, float("nan"), float("inf"), True, False, None),
    *("", "1", "text", "\0\n\x1b[2J", "../../evil", "é" * 50, "A" * 100_000, [], {}, [[]], {"": {}}, [1, 2], [None]),
)
"""Values that a header may get in the place of what it should say."""

DEPTHS = (50, 2_000, 100_000)
"""Brackets around a value: within the limits of Python's parser, and beyond them."""

DESCRIPTIONS = (
    *("<f4", ">f8", "<f2", "<i8", "<u8", "|i1", "|b1", "<c16", "|O", "<U7", "|S9", "|V8", "<M8[ns]", "<f16", "g", ""),
    *("<f999999999999", "__import__('os').mkdir('executed')", "not a type", "<i3"),
)
"""Types that the header of an array may claim."""

MARK = "executed"
"""Folder that the code hidden in damaged files would make, if it were run."""


class Exploit:
    """What makes a folder when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return Path.mkdir, (Path(MARK),)  # type: ignore[return-value]


PICKLE = pickle.dumps(Exploit())


# --- bytes ------------------------------------------------------------------------------------------------------------


def flip_bits(content: bytes, rng: Rng) -> bytes:
    changed = bytearray(content)
    for _ in range(int(2 ** rng.uniform(0, 6))):
        changed[rng.integers(len(changed))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def flip_one_bit(content: bytes, rng: Rng) -> bytes:
    changed = bytearray(content)
    changed[rng.integers(len(changed))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def overwrite_run(content: bytes, rng: Rng) -> bytes:
    start, stop = _draw_range(content, rng)
    fill = (rng.bytes(stop - start), bytes(stop - start), b"\xff" * (stop - start))[int(rng.integers(3))]
    return content[:start] + fill + content[stop:]


def truncate(content: bytes, rng: Rng) -> bytes:
    return content[: rng.integers(len(content))]


def extend(content: bytes, rng: Rng) -> bytes:
    length = int(2 ** rng.uniform(0, 14))
    more = (rng.bytes(length), bytes(length), content, PICKLE)[rng.integers(4)]
    return more + content if rng.integers(4) == 0 else content + more


def swap_blocks(content: bytes, rng: Rng) -> bytes:
    length = int(rng.integers(1, max(2, len(content) // 2)))
    first = int(rng.integers(0, len(content) - 2 * length + 1))
    second = int(rng.integers(first + length, len(content) - length + 1))
    middle = content[first + length : second]
    one, other = content[first : first + length], content[second : second + length]
    return content[:first] + other + middle + one + content[second + length :]


def delete_block(content: bytes, rng: Rng) -> bytes:
    start, stop = _draw_range(content, rng)
    return content[:start] + content[stop:]


def duplicate_block(content: bytes, rng: Rng) -> bytes:
    start, stop = _draw_range(content, rng)
    return content[:stop] + content[start:]


def write_number(content: bytes, rng: Rng) -> bytes:
    """Put a number at the limits into two, four or eight bytes: sizes and offsets of any header may be hit."""
    size = (2, 4, 8)[int(rng.integers(3))]
    number = HUGE[int(rng.integers(len(HUGE)))] % (1 << 8 * size)
    start = int(rng.integers(0, max(1, len(content) - size)))
    if rng.integers(2):  # most headers stand at the beginning or the end
        start = int(rng.integers(0, 100)) if rng.integers(2) else max(0, len(content) - int(rng.integers(8, 200)))
    return content[:start] + number.to_bytes(size, "little" if rng.integers(2) else "big") + content[start + size :]


def empty(content: bytes, rng: Rng) -> bytes:  # noqa: ARG001
    return b""


def replace_all(content: bytes, rng: Rng) -> bytes:
    return PICKLE if rng.integers(2) else content[: rng.integers(1, 9)] + rng.bytes(len(content))


BYTE_DAMAGE: tuple[Callable[[bytes, Rng], bytes], ...] = (
    *(flip_one_bit, flip_one_bit, flip_bits, overwrite_run, truncate, extend, swap_blocks, delete_block),
    *(duplicate_block, write_number, write_number, empty, replace_all),
)


def damage_bytes(content: bytes, rng: Rng) -> tuple[str, bytes]:
    """Name of what was done, and the bytes after it."""
    if not content:
        return "extend", rng.bytes(int(rng.integers(1, 99)))
    change = BYTE_DAMAGE[int(rng.integers(len(BYTE_DAMAGE)))]
    return change.__name__, change(content, rng)


def _draw_range(content: bytes, rng: Rng) -> tuple[int, int]:
    """A range of a length that is as often short as long."""
    length = int(2 ** rng.uniform(0, np.log2(len(content) + 1)))
    start = int(rng.integers(0, max(1, len(content) - length + 1)))
    return start, start + length


# --- JSON -------------------------------------------------------------------------------------------------------------


def damage_json(text: bytes, rng: Rng) -> tuple[str, bytes]:
    """Edit a random place of a JSON text that stays JSON, as far as Python's own writer takes it."""
    tree = json.loads(text)
    nodes = list(_list_places(tree))
    holder, key = nodes[int(rng.integers(len(nodes)))]
    what = ("value", "value", "value", "delete", "rename", "nest", "copy")[int(rng.integers(7))]
    if what == "value":
        holder[key] = ODD_VALUES[int(rng.integers(len(ODD_VALUES)))]
    elif what == "delete":
        del holder[key]
    elif what == "rename":
        if isinstance(holder, dict):
            holder[ODD_VALUES[-12] if rng.integers(2) else f"{key}_"] = holder.pop(key)
        else:
            holder.append(holder[key])
    elif what == "copy":
        other_holder, other_key = nodes[int(rng.integers(len(nodes)))]
        holder[key] = json.loads(json.dumps(other_holder[other_key]))
    else:
        depth = DEPTHS[int(rng.integers(len(DEPTHS)))]
        holder[key] = "NEST"
        nested = b"[" * depth + b"1" + b"]" * depth
        return f"json nest {key}", json.dumps(tree).encode().replace(b'"NEST"', nested)
    return f"json {what} {key}", json.dumps(tree).encode()


def damage_sizes(text: bytes, rng: Rng) -> tuple[str, bytes]:
    """Declare other sizes of a JSON text, all of them the same: they agree with each other, and with nothing else."""
    size = HUGE[int(rng.integers(len(HUGE)))]
    return f"json sizes {size}", re.sub(rb"\b\d{3,}\b", b"%d" % size, text)


def _list_places(tree: Any) -> Any:
    """Every container and key in it."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        yield tree, key
        yield from _list_places(tree[key])


# --- arrays -----------------------------------------------------------------------------------------------------------


def damage_npy_header(content: bytes, rng: Rng) -> tuple[str, bytes]:
    """Edit what the header of an array in the format of .npy files claims: shape, type, order or the text itself."""
    stream = io.BytesIO(content)
    npy.read_magic(stream)
    shape, fortran, dtype = npy.read_array_header_1_0(stream)
    data = content[stream.tell() :]
    header: dict[str, Any] = {"descr": npy.dtype_to_descr(dtype), "fortran_order": fortran, "shape": shape}
    what = ("shape", "shape", "descr", "fortran_order", "delete", "extra", "text")[int(rng.integers(7))]
    if what == "shape":
        header["shape"] = _damage_shape(shape, rng)
    elif what == "descr":
        header["descr"] = DESCRIPTIONS[int(rng.integers(len(DESCRIPTIONS)))]
        if rng.integers(8) == 0:
            header["descr"] = [("a", "<f8"), ("b", "|O")]
    elif what == "fortran_order":
        header["fortran_order"] = (not fortran, 1, None, "False")[int(rng.integers(4))]
    elif what == "delete":
        del header[("descr", "fortran_order", "shape")[int(rng.integers(3))]]
    elif what == "extra":
        header["extra"] = ODD_VALUES[int(rng.integers(len(ODD_VALUES)))]
    text = repr(header).encode("latin1", "replace")
    if what == "text":
        text = (b"(" * 5000, text[:-1], b"__import__('os').mkdir('executed')", b"{}", text * 3)[int(rng.integers(5))]
    version = (1, 0) if len(text) < 2**16 and rng.integers(2) else (2, 0)
    length = len(text).to_bytes(2 if version == (1, 0) else 4, "little")
    return f"npy {what}", npy.MAGIC_PREFIX + bytes(version) + length + text + data


def _damage_shape(shape: tuple[int, ...], rng: Rng) -> Any:
    ways = (
        lambda: shape[::-1],
        lambda: (*shape, 1),
        lambda: shape[:-1],
        lambda: (),
        lambda: (int(np.prod(shape)),),
        lambda: (-1, *shape[1:]),
        lambda: tuple(HUGE[int(rng.integers(len(HUGE)))] for _ in shape),
        lambda: (2**40, 0),
        lambda: (10**30, *shape[1:]),
        lambda: tuple(max(0, length + int(rng.integers(-2, 3))) for length in shape),
        lambda: [*shape],
        lambda: tuple(map(float, shape)),
    )
    return ways[int(rng.integers(len(ways)))]()


def damage_values(content: bytes, rng: Rng) -> tuple[str, bytes]:
    """Put odd numbers into an array in the format of .npy files, whose header stays as it is."""
    stream = io.BytesIO(content)
    array = np.load(stream)
    rest = content[stream.tell() :]
    if not array.size or array.dtype.kind != "f":
        return damage_npy_header(content, rng)
    flat = array.reshape(-1)
    odd = (np.nan, np.inf, -np.inf, 1e308, -1e308, 1e200, 5e-324, 0.0, -1.0, 2.0)
    for _ in range(int(2 ** rng.uniform(0, 4))):
        flat[rng.integers(array.size)] = odd[int(rng.integers(len(odd)))]
    if rng.integers(4) == 0:
        flat *= (0.0, -1.0, 1e300, 1e-300)[int(rng.integers(4))]
    return "values", dump_npy(array) + rest


def dump_npy(array: Any) -> bytes:
    stream = io.BytesIO()
    npy.write_array(stream, array, allow_pickle=False)
    return stream.getvalue()
