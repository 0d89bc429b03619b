"""Files that are complete or absent: written aside, then renamed."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

NAMELESS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of writing alone, which the system raises without the name of the file."""


@contextmanager
def open_atomic(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a binary file that replaces the one at `path` when the block ends; if the block fails, nothing changes.

    The target of a link is replaced, not the link. A new version has the mode of the old one; while it is written, only
    its owner may read it.
    """
    path = Path(path).resolve()
    refuse_special(path)
    older = path.stat() if path.exists() else None
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")  # beside it: a rename within a folder is atomic
    try:
        with create(temporary, 0o666 if older is None else 0o600) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if older is not None:
            with suppress(OSError):  # some file systems have a single mode, and refuse others
                temporary.chmod(older.st_mode & 0o777)
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and (error.errno in NAMELESS or error.filename == str(temporary)):
            error.filename = str(path)
        raise


def refuse_special(path: Path) -> None:
    """Raise an error for a folder, a device or a pipe, which might never end when it is read."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "Not a regular file", str(path))


def create(path: Path, mode: int) -> BinaryIO:
    """Create a file with this mode, less what the process denies to all its files."""
    return cast(BinaryIO, open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode)))
