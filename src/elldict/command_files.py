"""Files of the command line: looked at before the work starts, written in one piece when it is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from elldict.atomic import temporary_beside

if TYPE_CHECKING:
    from elldict.backend.base import Array, Backend
    from elldict.data.dataset import Dataset


class MistakeError(Exception):
    """Something the user has to change; the message says what."""


def check_output(path: Path, force: bool, inputs: Sequence[Path] = (), *, zarr: bool = False) -> None:
    """Raise now what would otherwise be found out after the work is done; a zarr array is a folder."""
    if path.is_dir() and not (zarr and path.suffix == ".zarr"):
        raise MistakeError(f"output {path} is a directory, expected the name of a file.")
    if not path.parent.is_dir():
        raise MistakeError(f"output folder {path.parent} does not exist. Create it first.")
    if path.exists():
        if not path.is_file() and not path.is_dir():
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


def open_data(path: Path, columns: Sequence[str], block_size: int | None) -> Dataset:
    """Samples of a file, left on disk."""
    from elldict.data.open import open_samples  # noqa: PLC0415

    column = columns[0] if len(columns) == 1 else list(columns) or None
    return open_samples(path, column=column, block_size=block_size)


def share_not_zero(path: Path) -> float:
    """Share of the values in a file that are not zero; read a block at a time, as whoever wrote them did."""
    from elldict.data.open import open_samples  # noqa: PLC0415

    samples = open_samples(path)
    return samples.sum(NonZeroKernel()) / (samples.n_samples * samples.n_features)


class NonZeroKernel:
    """Number of values that are not zero."""

    def bind(self, backend: Backend) -> Callable[[Array], int]:  # noqa: ARG002
        """Return the function that counts in one tile."""
        return np.count_nonzero
