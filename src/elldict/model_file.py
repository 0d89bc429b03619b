"""Model files: arrays and a JSON header in an uncompressed zip archive, readable by ``numpy.load``.

Reading executes nothing and believes nothing: names, types and sizes are checked against the file itself before
memory is taken. This module knows no estimator.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from elldict.atomic import write_atomically

VERSION = 1
HEADER = "header.json"
MAX_HEADER_BYTES = 2**20
MEMBER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\.npy")


class ModelFileError(ValueError):
    """The file is not a model file, or is damaged."""


def write(path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a model file; until it is complete and on disk, an older file at `path` stays as it is."""
    text = json.dumps({**header, "version": VERSION}, allow_nan=False, indent=1)
    write_atomically(Path(path), lambda stream: _write_members(stream, text, arrays))


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and arrays of a model file; ModelFileError if it is anything else."""
    path = Path(path)
    with path.open("rb") as stream:  # a file that is not there or not readable is no damaged file
        try:
            with zipfile.ZipFile(stream) as archive:
                members = _checked_members(path, archive)
                header = _read_header(path, archive, members.pop(HEADER))
                arrays = {name.removesuffix(".npy"): _read_array(archive, info) for name, info in members.items()}
        except ModelFileError:
            raise
        except Exception as error:  # the parsers below raise what they like on damaged files
            raise ModelFileError(f"{path} is not a model file, or is damaged: {error}") from error
    return header, arrays


def _write_members(stream: IO[bytes], text: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(HEADER, text)
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, np.ascontiguousarray(array), allow_pickle=False)


def _checked_members(path: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Members by name, none of them larger than the file that holds it."""
    size = path.stat().st_size
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename
        if name != HEADER and not MEMBER_NAME.fullmatch(name):
            raise ModelFileError(f"{path} holds a member named {name!r}, which no model has.")
        if name in members:
            raise ModelFileError(f"{path} holds two members named {name!r}.")
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise ModelFileError(f"{path}: member {name!r} is compressed, which no model is.")
        members[name] = info
    claimed = sum(info.file_size for info in members.values())
    if claimed > size:
        raise ModelFileError(f"{path} claims {claimed} bytes of content and has {size}.")
    if HEADER not in members:
        raise ModelFileError(f"{path} has no {HEADER}: it was not written by save().")
    return members


def _read_header(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> dict[str, Any]:
    if info.file_size > MAX_HEADER_BYTES:
        raise ModelFileError(f"{path}: the header has {info.file_size} bytes, expected at most {MAX_HEADER_BYTES}.")
    header = json.loads(archive.read(info))
    if not isinstance(header, dict):
        raise ModelFileError(f"{path}: the header is a {type(header).__name__}, expected an object.")
    version = header.pop("version", None)
    if version != VERSION:
        raise ModelFileError(f"{path} has format version {version!r}; this elldict reads version {VERSION}.")
    return header


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(info) as member:
        magic = npy.read_magic(member)
        read_head = npy.read_array_header_1_0 if magic == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read_head(member)
        if dtype.kind not in "fiub":
            raise ValueError(f"member {info.filename!r} has dtype {dtype}, expected plain numbers.")
        expected = info.file_size - member.tell()
        if min(shape, default=1) < 0 or int(np.prod(shape, dtype=object)) * dtype.itemsize != expected:
            raise ValueError(f"member {info.filename!r} claims shape {shape} of {dtype} and has {expected} bytes.")
        data = member.read()  # reads to the end, so that the checksum is verified
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C").copy()
