"""Files and folders that are complete or not there."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

NAMELESS_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No space, quota or size left: errors of writing alone, which the system raises without the name of the file."""


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a file; until it is complete and on disk, an older one at `path` stays as it is."""
    with atomic_file(path) as stream:
        write(stream)


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """A stream that becomes the file at `path` when the block ends; if it fails, an older file stays as it is.

    A link is followed: the file that it names is replaced, not the link. Who could read the older file can read the new
    one, and nobody else, while it is written too.
    """
    path = path.resolve()
    refuse_special(path)
    older = find_status(path)
    temporary = temporary_beside(path)
    try:
        with _create(temporary, 0o666 if older is None else 0o600) as stream:
            if older is not None:
                keep_access(temporary, older)
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        _name_file(error, path, temporary)
        raise
    _sync(path.parent)


@contextmanager
def atomic_folder(path: Path, may_replace: Callable[[Path], bool]) -> Iterator[Path]:
    """A folder that gets the name `path` when the block ends, and is removed if it fails.

    A folder that is there already is replaced only if `may_replace` says so, by one that the same people can open. No
    system exchanges two folders in one step: for a moment there is neither, never a mixture.
    """
    path = path.resolve()
    if path.exists() and not (path.is_dir() and may_replace(path)):
        raise OSError(errno.EEXIST, "exists, and is nothing that may be replaced", str(path))
    new, old = temporary_beside(path), temporary_beside(path)
    older = find_status(path)
    new.mkdir(0o777 if older is None else 0o700)
    try:
        yield new
        for content in new.rglob("*"):
            _sync(content)
        if older is not None:
            keep_access(new, older)
        _sync(new)
        if path.exists():
            path.rename(old)
        new.rename(path)
    except BaseException as error:
        if old.exists():
            old.rename(path)
        shutil.rmtree(new, ignore_errors=True)
        _name_file(error, path, new)
        raise
    shutil.rmtree(old, ignore_errors=True)
    _sync(path.parent)


def _name_file(error: BaseException, path: Path, temporary: Path) -> None:
    """Give an error of writing the name that the user has given, instead of none or of a temporary one."""
    if not isinstance(error, OSError):
        return
    if error.filename is None:
        if error.errno in NAMELESS_ERRORS:
            error.filename = str(path)
    elif Path(os.fsdecode(error.filename)).is_relative_to(temporary):
        error.filename = str(path)


def temporary_beside(path: Path) -> Path:
    """A name that nobody uses, in the same folder: only there is a rename atomic."""
    return path.with_name(f".{secrets.token_hex(8)}.tmp")


def find_status(path: Path) -> os.stat_result | None:
    """What the system knows of a file or folder; None if there is none."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def keep_access(path: Path, older: os.stat_result) -> None:
    """Give a new file or folder the owner, group and mode of an older one.

    Where the group cannot be kept, which takes a member of it, another group gets no access instead.
    """
    mode = stat.S_IMODE(older.st_mode) & ~stat.S_ISUID
    new = path.stat()
    if hasattr(os, "chown") and (new.st_uid, new.st_gid) != (older.st_uid, older.st_gid):
        for owner in (older.st_uid, -1):  # only the administrator gives files away
            try:
                os.chown(path, owner, older.st_gid)
                break
            except OSError:
                continue
        else:
            mode &= ~0o070
    if stat.S_IMODE(path.stat().st_mode) != mode:  # some file systems have one mode for all files, and refuse others
        path.chmod(mode)


def _create(path: Path, mode: int) -> IO[bytes]:
    """A stream of a new file that has this mode, less what the process takes away from all its files."""
    return open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode))


def refuse_special(path: Path) -> None:
    """Raise if `path` is a device, a pipe or a folder: a rename would put a plain file in its place."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))


def _sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable; a system that cannot open folders has nothing to sync."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
