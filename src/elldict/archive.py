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
            # not getbuffer(), after which Python 3.12.1 crashes if the disk is full
            write_member(archive, f"{name}.npy", content.getvalue(), checksum)
        archive.comment = checksum.hexdigest().encode()


def write_member(archive: zipfile.ZipFile, name: str, content: bytes, checksum: Any) -> None:
    """Append a member to an archive and its checksum."""
    archive.writestr(zipfile.ZipInfo(name), content)  # without the time
    add_member(checksum, name, content)


def add_member(checksum: Any, name: str, content: bytes) -> None:
    """Add the name and the content of a member to the checksum of an archive."""
    checksum.update(name.encode() + hashlib.sha256(content).digest())


def read_archive(stream: BinaryIO, check_header: Callable[[Header], None]) -> tuple[Header, Arrays]:
    """Read the header, and if it passes a check, the arrays; damaged files raise errors of many classes."""
    arrays, checksum = {}, hashlib.sha256()
    with open_archive(stream) as archive:
        header = read_header(archive)
        check_header(header)
        for name in archive.namelist():
            content = archive.read(name)
            add_member(checksum, name, content)
            if name != HEADER:
                arrays[name.removesuffix(".npy")] = parse_array(content)
        if archive.comment != checksum.hexdigest().encode():
            raise ValueError("it has changed since it was written: its checksum is that of other content")
    return header, arrays


def open_archive(stream: BinaryIO) -> zipfile.ZipFile:
    """Open an archive whose members together are no larger than its file."""
    archive = zipfile.ZipFile(stream)
    members = archive.infolist()
    if any(each.compress_type != zipfile.ZIP_STORED or each.compress_size != each.file_size for each in members):
        raise ValueError("its members are compressed, which is not expected")
    if sum(each.file_size for each in members) > os.fstat(stream.fileno()).st_size:  # members may overlap
        raise ValueError("its members are larger than the file")
    return archive


def read_header(archive: zipfile.ZipFile) -> Header:
    """Read the header of an archive."""
    return json.loads(archive.read(HEADER))  # type: ignore[no-any-return]


def parse_array(content: bytes) -> NDArray[Any]:
    """Read an array of numbers, in its order in memory, on which the rounding of products depends."""
    stream = io.BytesIO(content)
    if npy.read_magic(stream) != (1, 0):
        raise ValueError("it has an array in an unknown version of the .npy format")
    shape, is_fortran, dtype = npy.read_array_header_1_0(stream)
    flat = np.frombuffer(content, dtype, offset=stream.tell())  # refuses Python objects
    return flat.reshape(shape, order="F" if is_fortran else "C").copy("K")
