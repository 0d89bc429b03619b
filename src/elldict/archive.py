"""Archives: a JSON header and arrays of numbers, in the format of `numpy.savez`, without pickle.

Nothing in a file is executed, and reading it takes no more memory than the arrays that are expected in it.
"""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from elldict.atomic import open_atomic

Arrays = dict[str, NDArray[Any]]
Header = dict[str, Any]

HEADER = "header.json"
COMPRESSION = 1  # fastest; others save a few percent


class Form(NamedTuple):
    """Dtype and shape of an array; None is any length. Only an array whose shape is known may be compressed."""

    dtype: str
    shape: tuple[int | None, ...]
    compressed: bool = False

    def check(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        """Raise an error for another dtype or shape."""
        is_right = len(shape) == len(self.shape) and all(
            length == wanted or (wanted is None and length >= 0)
            for length, wanted in zip(shape, self.shape, strict=True)
        )
        if dtype != np.dtype(self.dtype) or not is_right:
            raise ValueError(
                f"array {name!r} has shape {shape} and dtype {dtype}, expected {self.shape} and {self.dtype}"
            )


Forms = Mapping[str, Form]


def write_archive(path: str | os.PathLike[str], header: Header, arrays: Arrays, forms: Forms) -> None:
    """Write a file that is complete or absent, and depends on nothing but its content."""
    with open_atomic(path) as stream, zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(zipfile.ZipInfo(HEADER), json.dumps(header, indent=1))
        for name, array in arrays.items():
            content = io.BytesIO()
            npy.write_array(content, array, version=(1, 0), allow_pickle=False)  # keeps the order in memory
            method = zipfile.ZIP_DEFLATED if forms[name].compressed else zipfile.ZIP_STORED
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getbuffer(), method, COMPRESSION)


def read_archive(stream: BinaryIO, list_forms: Callable[[Header], Forms]) -> tuple[Header, Arrays]:
    """Read the header, and those arrays that are there of the ones that it makes expected.

    Damaged archives raise errors of many classes.
    """
    with zipfile.ZipFile(stream) as archive:
        header = read_header(archive)
        forms = list_forms(header)
        check_members(archive, forms, os.fstat(stream.fileno()).st_size)
        found = set(archive.namelist())
        names = sorted((name for name in forms if f"{name}.npy" in found), key=lambda name: forms[name].compressed)
        return header, {name: read_array(archive, name, forms[name]) for name in names}


def read_header(archive: zipfile.ZipFile) -> Header:
    """Read the header of an archive."""
    if HEADER not in archive.namelist():
        raise ValueError(f"it has no {HEADER}")
    check_stored(archive.getinfo(HEADER))
    header = json.loads(archive.read(HEADER))
    if not isinstance(header, dict):
        raise ValueError(f"its header is a {type(header).__name__}, expected an object")
    return header


def check_members(archive: zipfile.ZipFile, forms: Forms, n_bytes: int) -> None:
    """Raise an error if an archive in a file of this size has other members than a header and such arrays."""
    members = archive.infolist()
    names = [info.filename for info in members]
    if unknown := set(names) - {HEADER, *(f"{name}.npy" for name in forms)}:
        raise ValueError(f"it has a member named {min(unknown)!r}, which is not expected")
    if len(set(names)) < len(names) or sum(info.compress_size for info in members) > n_bytes:
        raise ValueError("it has two members of the same name, or more content than bytes")
    for info in members:
        if info.filename == HEADER or not forms[info.filename.removesuffix(".npy")].compressed:
            check_stored(info)


def check_stored(info: zipfile.ZipInfo) -> None:
    """Raise an error if a member is compressed, so that it could be larger than its file."""
    if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
        raise ValueError(f"its member {info.filename!r} is compressed, which is not expected")


def read_array(archive: zipfile.ZipFile, name: str, form: Form) -> NDArray[Any]:
    """Read an array of an expected form, in its order in memory, on which the rounding of products may depend."""
    with archive.open(f"{name}.npy") as member:
        if npy.read_magic(member) != (1, 0):
            raise ValueError(f"array {name!r} has an unknown version of the .npy format")
        shape, is_fortran, dtype = npy.read_array_header_1_0(member)
        form.check(name, dtype, shape)
        n_bytes = math.prod(shape) * dtype.itemsize
        content = member.read(n_bytes + 1)  # one more byte: the checksum is compared at the end
    if len(content) != n_bytes:
        raise ValueError(f"array {name!r} does not have the {n_bytes} bytes of its shape {shape}")
    return np.frombuffer(bytearray(content), dtype).reshape(shape, order="F" if is_fortran else "C")
