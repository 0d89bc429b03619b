"""Arrays of a MAT file of version 5 to 7: plain ones are read where they lie, compressed ones are decompressed once.

The file is a row of elements, each with its type and length before it. An array is an element of elements: flags,
dimensions, name, numbers. SciPy reads them too, but takes memory by the lengths that a damaged file claims.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from elldict._old.backend.base import name_precision
from elldict._old.data.file import Stamp, check_shape, choose_array, sum_blocks
from elldict._old.data.npy import RawReader
from elldict._old.data.spool import Spool
from elldict.exceptions import SamplesFileError

HEADER_BYTES = 128
ORDERS = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}
"""Last bytes of the header, by which a file of version 5 is known, and its order of bytes."""

MATRIX, COMPRESSED = 14, 15
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
"""Types of elements that hold numbers. MATLAB stores numbers in the smallest type that holds them all."""

CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
"""Classes of arrays of real numbers; others are texts, cells, structures and sparse matrices."""

COMPLEX = 0x0800
LONGEST_NAME = 2**12
MOST_DIMENSIONS = 32
PART_BYTES = 2**20
"""Bytes that are decompressed at a time."""


def is_mat(first: bytes) -> bool:
    """Whether a file begins as one of version 5."""
    return first[124:128] in ORDERS


@dataclass(frozen=True)
class Matrix:
    """An array of real numbers."""

    shape: tuple[int, ...]
    stored: str
    precision: str
    start: int  # first byte of the numbers, in the file or in what is decompressed
    element: int  # where the element begins in the file
    compressed: bool


class Source(Protocol):
    """Bytes that are read one after another."""

    position: int

    def read(self, n_bytes: int) -> bytes:
        """Exactly so many."""
        ...


class Plain:
    """Bytes of an element of a file."""

    def __init__(self, stream: IO[bytes], path: str, position: int) -> None:
        self.stream, self.path, self.position = stream, path, position

    def read(self, n_bytes: int) -> bytes:
        """Exactly so many."""
        self.stream.seek(self.position)
        content = self.stream.read(n_bytes)
        if len(content) < n_bytes:
            raise SamplesFileError(f"{self.path} is truncated: it ends at byte {self.position + len(content)}.")
        self.position += n_bytes
        return content


class Inflated:
    """What the compressed bytes of an element become, a part at a time."""

    def __init__(self, stream: IO[bytes], path: str, begin: int, n_bytes: int) -> None:
        self.stream, self.path, self.left = stream, path, n_bytes
        self.position, self.next, self.inflate = 0, begin, zlib.decompressobj()

    def read_some(self, most: int) -> bytes:
        """At most so many, and none at the end, where the checksum is compared."""
        while not self.inflate.eof:
            compressed = self.inflate.unconsumed_tail
            if not compressed:
                self.stream.seek(self.next)
                compressed = self.stream.read(min(PART_BYTES, self.left))
                self.next, self.left = self.next + len(compressed), self.left - len(compressed)
            try:
                content = self.inflate.decompress(compressed, most)
            except zlib.error as error:
                raise SamplesFileError(f"{self.path} is damaged before byte {self.next}: {error}.") from error
            self.position += len(content)
            if content:
                return content
            if not compressed:
                raise SamplesFileError(f"{self.path} is truncated: compressed numbers end at byte {self.next}.")
        return b""

    def read(self, n_bytes: int) -> bytes:
        """Exactly so many."""
        parts = bytearray()
        while len(parts) < n_bytes:
            part = self.read_some(n_bytes - len(parts))
            if not part:
                raise SamplesFileError(f"{self.path} is damaged: an array ends within its header.")
            parts += part
        return bytes(parts)


def open_mat(path: str | os.PathLike[str], name: str | None) -> RawReader:
    """Reader of an array of a MAT file: the one of this name, or the only one with more than one row and column."""
    path = str(Path(path).absolute())
    stamp, blocks = Stamp.of(Path(path).stat()), sum_blocks(path)
    with Path(path).open("rb") as stream:
        order = ORDERS[stream.read(HEADER_BYTES)[124:]]
        found = dict(_list_arrays(stream, path, stamp.size, order))
        shapes = {key: matrix.shape if isinstance(matrix, Matrix) else () for key, matrix in found.items()}
        if name is None:  # a number is a matrix there too
            shapes = {key: shape for key, shape in shapes.items() if len(shape) == 2 and min(shape) > 1} or shapes
        name = choose_array(path, shapes, name)
        matrix, where = found[name], f"{path}, array {name!r}"
        if isinstance(matrix, str):
            raise SamplesFileError(f"{where} is {matrix}, expected a full matrix of real numbers.")
        n_samples, n_features = check_shape(matrix.shape, where)
        spool = _inflate(stream, path, order, matrix) if matrix.compressed else None
    start, precision = 0 if matrix.compressed else matrix.start, matrix.precision
    facts: tuple[Any, ...] = (matrix.stored, n_features > 1, stamp, blocks, None, name, spool, None, precision)
    return RawReader(path, start, n_samples, n_features, *facts)


def _list_arrays(stream: IO[bytes], path: str, size: int, order: str) -> Iterator[tuple[str, Matrix | str]]:
    """Names of all arrays, and where their numbers are, or what they are instead of numbers."""
    position = HEADER_BYTES
    while position < size:
        kind, n_bytes = _read_numbers(Plain(stream, path, position), f"{order}u4", 2)
        begin = position + 8
        if begin + n_bytes > size:
            raise SamplesFileError(
                f"{path} is truncated: what begins at byte {position} has {n_bytes} bytes, and the file ends at {size}."
            )
        if kind == COMPRESSED:
            source = Inflated(stream, path, begin, n_bytes)
            kind, length = _read_numbers(source, f"{order}u4", 2)
            if kind == MATRIX:
                yield _read_array(source, path, order, (position, length + 8))
        elif kind == MATRIX:
            yield _read_array(Plain(stream, path, begin), path, order, (position, begin + n_bytes))
        if kind != MATRIX:
            raise SamplesFileError(
                f"{path} is damaged: what begins at byte {position} is of type {kind}, not an array."
            )
        position = begin + n_bytes


def _read_array(source: Plain | Inflated, path: str, order: str, place: tuple[int, int]) -> tuple[str, Matrix | str]:
    """Name of an array that begins here, and its numbers; `place` is the byte of the element and where it ends."""
    element, end = place
    flags, *_ = np.frombuffer(_read_element(source, order, 8, path, (6,)), f"{order}u4").tolist() or [0]
    shape = np.frombuffer(_read_element(source, order, 4 * MOST_DIMENSIONS, path, (5, 6)), f"{order}i4").tolist()
    name = _read_element(source, order, LONGEST_NAME, path, (1, 16)).decode("latin1")
    kind, expected = flags & 0xFF, math.prod(shape)
    if kind not in CLASSES or flags & COMPLEX or not expected:
        found = "a text, a cell, a structure or a sparse matrix" if expected else "empty"
        return name, "complex" if flags & COMPLEX else found
    stored, n_bytes, _ = _read_tag(source, order)
    n_found = n_bytes // np.dtype(STORED.get(stored, "u1")).itemsize
    if stored not in STORED or n_found != expected or min(shape) < 0 or source.position + n_bytes > end:
        raise SamplesFileError(
            f"{path}, array {name!r} is damaged: it has {n_bytes} bytes of type {stored} for a shape of {shape}."
        )
    facts = (order + STORED[stored], name_precision(np.dtype(CLASSES[kind])), source.position, element)
    return name, Matrix(tuple(shape), *facts, isinstance(source, Inflated))


def _read_numbers(source: Source, dtype: str, count: int) -> list[int]:
    return np.frombuffer(source.read(count * np.dtype(dtype).itemsize), dtype).tolist()  # type: ignore[no-any-return]


def _read_tag(source: Source, order: str) -> tuple[int, int, bool]:
    """Type and length of an element, and whether its content stands in the tag itself, as four bytes may."""
    (kind,) = _read_numbers(source, f"{order}u4", 1)
    if kind >> 16:
        return kind & 0xFFFF, kind >> 16, True
    (n_bytes,) = _read_numbers(source, f"{order}u4", 1)
    return kind, n_bytes, False


def _read_element(source: Source, order: str, most: int, path: str, kinds: tuple[int, ...]) -> bytes:
    """Content of a small element of these types; it is filled up to whole eight bytes, or four in a tag."""
    kind, n_bytes, in_tag = _read_tag(source, order)
    whole = 4 if kinds[0] in STORED and STORED[kinds[0]] != "i1" else 1
    if kind not in kinds or n_bytes > (min(4, most) if in_tag else most) or n_bytes % whole:
        raise SamplesFileError(
            f"{path} is damaged: before an array stand {n_bytes} bytes of type {kind}, expected {most} at most of type "
            f"{kinds[0]}."
        )
    return source.read(4 if in_tag else -(-n_bytes // 8) * 8)[:n_bytes]


def _inflate(stream: IO[bytes], path: str, order: str, matrix: Matrix) -> Spool:
    """Numbers of a compressed array."""
    _, n_bytes = _read_numbers(Plain(stream, path, matrix.element), f"{order}u4", 2)
    source, spool = Inflated(stream, path, matrix.element + 8, n_bytes), Spool(path)
    source.read(matrix.start)
    left = math.prod(matrix.shape) * np.dtype(matrix.stored).itemsize
    room = -left % 8
    while part := source.read_some(PART_BYTES):
        spool.write(part[:left])
        room -= max(0, len(part) - left)
        left -= min(left, len(part))
        if room < 0:
            break
    if left or room < 0:
        raise SamplesFileError(f"{path} is damaged: compressed numbers are {'too few' if left else 'too many'}.")
    return spool
