"""Files of the command line: looked at before the work starts, written in one piece when it is done."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict.atomic import temporary_beside, write_atomically

NPY_MAGIC = b"\x93NUMPY"
ZIP_MAGIC = b"PK"


class MistakeError(Exception):
    """Something the user has to change; the message says what."""


def check_output(path: Path, force: bool, inputs: Sequence[Path] = ()) -> None:
    """Raise now what would otherwise be found out after the work is done."""
    if path.is_dir():
        raise MistakeError(f"output {path} is a directory, expected the name of a file.")
    if not path.parent.is_dir():
        raise MistakeError(f"output folder {path.parent} does not exist. Create it first.")
    if path.exists():
        if not path.is_file():
            raise MistakeError(f"output {path} is not a regular file. Choose another name.")
        if any(given.exists() and path.samefile(given) for given in inputs):
            raise MistakeError(f"output {path} is also an input. Choose another name.")
        if not force:
            raise MistakeError(f"output {path} exists. Overwrite it with --force.")
    try:
        probe = temporary_beside(path)  # the only sure test: permissions, quotas and read-only disks all have a say
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise MistakeError(f"output {path} cannot be written: {error.strerror}.") from error


def open_samples(path: Path) -> NDArray[Any]:
    """Samples (n_samples, n_features), left on disk until they are looked at."""
    with path.open("rb") as stream:
        magic = stream.read(len(NPY_MAGIC))
    if magic.startswith(ZIP_MAGIC):
        raise MistakeError(f"{path} is an archive (.npz?), expected one array in a .npy file.")
    if magic != NPY_MAGIC:
        raise MistakeError(f"{path} is not a .npy file. Write one with numpy.save.")
    samples = _mapped(path)
    if samples.ndim != 2 or samples.dtype.kind not in "fiub":
        raise MistakeError(
            f"{path} holds an array of shape {samples.shape} of {samples.dtype}, expected (n_samples, n_features) of "
            "real numbers."
        )
    return samples


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write a .npy file, under exactly this name."""
    write_atomically(path, lambda stream: np.save(stream, array, allow_pickle=False))


def _mapped(path: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy's parser of headers raises what it likes on damaged files
        raise MistakeError(f"{path} cannot be read: {error}") from error
    return array
