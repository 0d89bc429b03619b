"""Arrays of a .npz archive: stored ones are read where they lie, compressed ones are decompressed once."""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elldict._old.data.file import Stamp, check_shape, choose_array, describe_error, sum_blocks
from elldict._old.data.npy import RawReader, check_dtype, read_header
from elldict._old.data.spool import Spool
from elldict.exceptions import SamplesFileError

MAGIC = b"PK"

HEADER_BYTES = 2**16
"""Bytes of an array in which its header has to end: NumPy's own has some hundred."""

LOCAL_HEADER_BYTES = 30
"""Of what stands before a member in the archive, without its name and what follows the name."""

PART_BYTES = 2**20
"""Bytes that are decompressed at a time."""


@dataclass(frozen=True)
class Member:
    """An array of an archive."""

    info: zipfile.ZipInfo
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    header_bytes: int


def open_npz(path: str | os.PathLike[str], name: str | None) -> RawReader:
    """Reader of an array of a .npz file: the one of this name, or the only one with rows and columns."""
    path = str(Path(path).absolute())
    stamp, blocks = Stamp.of(Path(path).stat()), sum_blocks(path)
    with _open_archive(path) as archive:
        infos = {info.filename.removesuffix(".npy"): info for info in archive.infolist() if _is_array(info)}
        if name is not None and name in infos:
            infos = {name: infos[name]}
        members = {key: _read_member(archive, info, path) for key, info in infos.items()}
        name = choose_array(path, {key: member.shape for key, member in members.items()}, name)
        member, where = members[name], f"{path}, array {name!r}"
        check_dtype(member.dtype, where)
        n_samples, n_features = check_shape(member.shape, where)
        _check_size(member, where)
        offset, spool = member.header_bytes, None
        if member.info.compress_type == zipfile.ZIP_STORED:
            offset += _find_content(path, member.info, stamp.size, where)
        else:
            spool = _decompress(archive, member, path)
    facts: tuple[Any, ...] = (member.dtype.str, member.fortran and n_features > 1, stamp, blocks, None, name, spool)
    return RawReader(path, offset, n_samples, n_features, *facts)


def _is_array(info: zipfile.ZipInfo) -> bool:
    return info.filename.endswith(".npy")


@contextmanager
def _open_archive(path: str) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (MemoryError, SamplesFileError):
        raise
    except Exception as error:  # of a damaged archive, zipfile and zlib raise what they like
        if isinstance(error, OSError) and error.filename is not None:
            raise
        raise SamplesFileError(f"{path} cannot be read as an archive (.npz): {describe_error(error)}") from error


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: str) -> Member:
    """Header of an array; no more than it is allowed is decompressed."""
    where = f"{path}, array {info.filename.removesuffix('.npy')!r}"
    if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise SamplesFileError(f"{where} is encrypted or compressed as NumPy never does. Write it with numpy.savez.")
    with archive.open(info) as content:
        stream = io.BytesIO(content.read(HEADER_BYTES))
    shape, fortran, dtype = read_header(stream, where)
    return Member(info, shape, fortran, dtype, stream.tell())


def _check_size(member: Member, where: str) -> None:
    expected = member.header_bytes + math.prod(member.shape) * member.dtype.itemsize
    if member.info.file_size != expected:
        raise SamplesFileError(
            f"{where} is damaged: it has {member.info.file_size} bytes, and an array of shape {member.shape} of "
            f"{member.dtype} has {expected}. Copy or write it again."
        )


def _find_content(path: str, info: zipfile.ZipInfo, size: int, where: str) -> int:
    """Byte at which a stored member begins."""
    with Path(path).open("rb") as stream:
        stream.seek(info.header_offset)
        header = stream.read(LOCAL_HEADER_BYTES)
    lengths = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))  # of name, and of what follows it
    start = info.header_offset + LOCAL_HEADER_BYTES + sum(lengths)
    if info.compress_size != info.file_size or start + info.file_size > size:
        raise SamplesFileError(f"{where} is damaged: it does not end within the file. Copy or write it again.")
    return start


def _decompress(archive: zipfile.ZipFile, member: Member, path: str) -> Spool:
    """All bytes of a member, whose checksum is compared at their end; zipfile stops at the size declared."""
    spool = Spool(path)
    with archive.open(member.info) as content:
        while part := content.read(PART_BYTES):
            spool.write(part)
    if spool.size != member.info.file_size:
        raise SamplesFileError(f"{path} is damaged: {member.info.filename} ends after {spool.size} bytes.")
    return spool
