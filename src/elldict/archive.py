"""Archives: a JSON header and arrays of numbers in one file, which `numpy.load` reads as well.

Nothing in a file is executed. Members are not compressed, so that reading takes no more memory than the file has bytes.
The zip comment is a checksum of the header and all arrays: files that were damaged or edited are refused.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from elldict.atomic import open_atomic

Arrays = dict[str, NDArray[Any]]
Header = dict[str, Any]

HEADER = "header.json"


def write_archive(path: str | os.PathLike[str], header: Header, arrays: Arrays) -> None:
    """Write a file that is complete or absent, and depends on nothing but its content."""
    checksum = hashlib.sha256()
    with open_atomic(path) as stream, zipfile.ZipFile(stream, "w") as archive:
        write_member(archive, HEADER, json.dumps(header, indent=1).encode(), checksum)
        for name, array in arrays.items():
            content = io.BytesIO()
            npy.write_array(content, array, version=(1, 0), allow_pickle=False)
            write_member(archive, f"{name}.npy", content.getbuffer(), checksum)
        archive.comment = checksum.hexdigest().encode()


def write_member(archive: zipfile.ZipFile, name: str, content: bytes | memoryview, checksum: Any) -> None:
    """Append a member to an archive and its checksum."""
    archive.writestr(zipfile.ZipInfo(name), content)  # without the time
    add_member(checksum, name, content)


def add_member(checksum: Any, name: str, content: bytes | memoryview) -> None:
    """Add the name and the content of a member to the checksum of an archive."""
    checksum.update(name.encode() + hashlib.sha256(content).digest())


def read_archive(stream: BinaryIO, check_header: Callable[[Header], None]) -> tuple[Header, Arrays]:
    """Read the header, and if it passes a check, the arrays; damaged files raise errors of many classes."""
    arrays, checksum = {}, hashlib.sha256()
    with zipfile.ZipFile(stream) as archive:
        header = read_header(archive)
        check_header(header)
        check_sizes(archive, os.fstat(stream.fileno()).st_size)
        for info in archive.infolist():
            content = archive.read(info)
            add_member(checksum, info.filename, content)
            if info.filename != HEADER:
                arrays[info.filename.removesuffix(".npy")] = parse_array(content)
        if archive.comment != checksum.hexdigest().encode():
            raise ValueError("it has changed since it was written: its checksum is that of other content")
    return header, arrays


def read_header(archive: zipfile.ZipFile) -> Header:
    """Read the header of an archive."""
    if HEADER not in archive.namelist():
        raise ValueError(f"it has no {HEADER}")
    check_stored(archive.getinfo(HEADER))
    header = json.loads(archive.read(HEADER))
    if not isinstance(header, dict):
        raise ValueError(f"its header is a {type(header).__name__}, expected an object")
    return header


def check_sizes(archive: zipfile.ZipFile, n_bytes: int) -> None:
    """Raise an error if the members of an archive together are larger than its file."""
    for info in archive.infolist():
        check_stored(info)
    if sum(info.file_size for info in archive.infolist()) > n_bytes:  # members may overlap
        raise ValueError(f"its members are larger than its {n_bytes} bytes")


def check_stored(info: zipfile.ZipInfo) -> None:
    """Raise an error if a member is compressed, so that it could be larger than its file."""
    if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
        raise ValueError(f"its member {info.filename!r:.60} is compressed, which is not expected")


def parse_array(content: bytes) -> NDArray[Any]:
    """Read an array of numbers, in its order in memory, on which the rounding of products depends."""
    stream = io.BytesIO(content)
    if npy.read_magic(stream) != (1, 0):
        raise ValueError("it has an array in an unknown version of the .npy format")
    shape, is_fortran, dtype = npy.read_array_header_1_0(stream)
    flat = np.frombuffer(content, dtype, offset=stream.tell())  # refuses Python objects
    return flat.reshape(shape, order="F" if is_fortran else "C").copy("K")
