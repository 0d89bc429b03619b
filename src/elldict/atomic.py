"""Files that are complete or not there."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import IO


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a file; until it is complete and on disk, an older one at `path` stays as it is.

    A link is followed: the file that it names is replaced, not the link.
    """
    path = path.resolve()
    refuse_special(path)
    temporary = temporary_beside(path)
    try:
        with temporary.open("xb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def temporary_beside(path: Path) -> Path:
    """A name that nobody uses, in the same folder: only there is a rename atomic."""
    return path.with_name(f".{secrets.token_hex(8)}.tmp")


def refuse_special(path: Path) -> None:
    """Raise if `path` is a device, a pipe or a folder: a rename would put a plain file in its place."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))


def _sync_folder(folder: Path) -> None:
    """Make the new name durable; a system that cannot open folders has nothing to sync."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
